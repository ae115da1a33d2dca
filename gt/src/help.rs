//! Help texts: examples first, then the flags, from the option tables.

use std::fmt::Write;

use config::{
    Role,
    options::{CLIENT_OPTIONS, Kind, Opt, PROXY_OPTIONS, SERVER_OPTIONS, SERVICE, Status, Table},
};

/// Below clap's help of `gt`.
pub(crate) const OVERVIEW: &str = "\
Examples:
  gt server -addr 8080 -id web -secret SECRET
  gt client -local http://127.0.0.1:3000 -remote tcp://example.com:8080 -id web -secret SECRET
  gt server -c server.yml
  gt proxy --listen :8080 --to 127.0.0.1:3000
  gt config check server.yml
  gt reload -c server.yml
  gt status -c server.yml

gt server --help, gt client --help and gt proxy --help show more.";

/// The help of one role.
pub(crate) fn of(role: Role) -> String {
    let mut text = String::from(match role {
        Role::Server => SERVER,
        Role::Client => CLIENT,
        Role::Proxy => PROXY,
    });
    match role {
        Role::Server => flags(&mut text, "Flags", &SERVER_OPTIONS),
        Role::Client => {
            flags(&mut text, "Flags", &CLIENT_OPTIONS);
            flags(&mut text, "Flags of a service, after its -local", &SERVICE);
        }
        Role::Proxy => flags(&mut text, "Flags", &PROXY_OPTIONS),
    }
    text.push_str(FOOT);
    text
}

/// The option can be given on the command line.
pub(crate) fn is_flag(option: &Opt) -> bool {
    !matches!(
        option.kind,
        Kind::Section(_) | Kind::Short(_) | Kind::Named(_) | Kind::Fields | Kind::Secrets
    )
}

fn flags(text: &mut String, title: &str, table: &Table) {
    // Writing to a String does not fail.
    let _ = writeln!(text, "\n{title}:");
    for option in table
        .options
        .iter()
        .filter(|option| is_flag(option) && option.status == Status::Built)
    {
        let value = value_name(option.kind);
        let flag = if value.is_empty() {
            format!("-{}", option.name)
        } else {
            format!("-{} {value}", option.name)
        };
        let repeated = if option.list {
            " (may be repeated)"
        } else {
            ""
        };
        let default = if option.default.is_empty() {
            String::new()
        } else {
            format!(" [{}]", option.default)
        };
        let _ = match flag.len() {
            ..30 => writeln!(text, "  {flag:<30} {}{repeated}{default}", option.help),
            _ => writeln!(
                text,
                "  {flag}\n  {:<30} {}{repeated}{default}",
                "", option.help
            ),
        };
    }
}

fn value_name(kind: Kind) -> String {
    let name = match kind {
        Kind::Bool => "",
        Kind::Count { .. } => "NUMBER",
        Kind::Duration { .. } => "TIME",
        Kind::Speed | Kind::Size => "BYTES",
        Kind::Listen { .. } => "ADDRESS",
        Kind::Id => "ID",
        Kind::Secret => "SECRET",
        Kind::HostPrefix => "PREFIX",
        Kind::HostName | Kind::HeaderName | Kind::Text => "NAME",
        Kind::Path | Kind::NamedOrPath(_) => "FILE",
        Kind::Url | Kind::Remote | Kind::Local => "URL",
        Kind::Regex => "REGEX",
        Kind::PortRange => "FIRST-LAST",
        Kind::Port => "PORT",
        Kind::Network => "NETWORK",
        Kind::Choice(words) => return words.join("|"),
        Kind::Form(form) => form.metavar,
        Kind::Section(_) | Kind::Short(_) | Kind::Named(_) => "VALUE",
        Kind::Fields | Kind::Secrets | Kind::Any => "VALUE",
    };
    name.into()
}

const SERVER: &str = "\
gt server: visitors come here, and are led to clients behind NAT

Usage: gt server [-c FILE|DIR] [FLAGS]

Examples:
  One client, plain HTTP on port 8080. Visitors of http://web.example.com:8080 reach client `web`:
    gt server -addr 8080 -id web -secret SECRET
  Encrypted, two clients, ports 10000 to 10100 for TCP services:
    gt server -tlsAddr 443 -certFile chain.pem -keyFile key.pem -tcpRange 10000-10100 \\
      -id web -secret SECRET1 -id db -secret SECRET2
  HTTPS whose key stays with the client (passed through by server name):
    gt server -addr 80 -sniAddr 443 -users users.yml
  From a file, with another port:
    gt server -c server.yml -addr 8081
";

const CLIENT: &str = "\
gt client: makes local services reachable through a gt server

Usage: gt client [-c FILE|DIR] [FLAGS] -local URL [FLAGS OF THIS SERVICE] [-local URL ...]

Examples:
  A web server:
    gt client -remote tls://gt.example.com -id web -secret SECRET -local http://127.0.0.1:3000
  A page of gt itself, to see whether the way works; id and secret are made and kept:
    gt client -remote tls://gt.example.com -local builtin:demo
  SSH on any free port of the server, and a second web server as blog.example.com:
    gt client -remote tls://gt.example.com -id web -secret SECRET \\
      -local tcp://127.0.0.1:22 -remoteTCPRandom \\
      -local http://127.0.0.1:4000 -hostPrefix blog
  From a file:
    gt client -c client.yml
";

const PROXY: &str = "\
gt proxy: a reverse proxy for HTTP, TCP and TLS

Usage: gt proxy [-c FILE|DIR] [FLAGS]

Examples:
  All requests on port 8080 to two servers in turn:
    gt proxy --listen :8080 --to 127.0.0.1:3000 --to 127.0.0.1:3001
  With TLS:
    gt proxy --listen :443 --certFile chain.pem --keyFile key.pem --to 127.0.0.1:3000
  From a file:
    gt proxy -c proxy.yml
";

const FOOT: &str = "
  -c, -config FILE|DIR           Read a file, or all .yml and .yaml files of a folder
  -s, -signal SIGNAL             Ask a running gt: reload, plan, restart, stop, status, reopen
  -no-supervisor                 One process, without a supervisor: no reload, no restart
  -h, -help                      This text

One dash or two, `-name value` or `-name=value`; for true or false `-name` or `-name=false`.
Flags go before the file. TIME is written 90s, 5m or 1h30m, BYTES 500KB or 1MiB.
docs/configuration.md explains every option.
";

//! Examples, documentation and schema say what the option tables say, and load.
//!
//! `GT_BLESS=1 cargo test -p config --test documents` writes the tables of `docs/configuration.md` anew.

mod common;

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
};

use common::World;
use config::{
    Checked, System, check_text, load_path,
    options::{
        ACCESS_LOG, APP, BACKEND, BASIC_AUTH, CERTIFICATE, CLIENT, CLIENT_OPTIONS, COMPRESS, EDITS,
        EJECTION, FILES, HEADERS, HEALTH, HOST, KEEP_ALIVE, Kind, LIMITS, LISTENER, Opt, PROXY,
        PROXY_FILE, PROXY_OPTIONS, RATE_LIMIT, REDIRECT, RESPOND, REWRITE, ROUTE, SERVER,
        SERVER_ENTRY, SERVER_OPTIONS, SERVICE, STICKY, Status, TCP, TIMEOUTS, Table, UPSTREAM,
        UPSTREAM_TLS, USER,
    },
    schema,
};
use serde_json::Value;

const TABLES: [&Table; 35] = [
    &SERVER,
    &SERVER_OPTIONS,
    &USER,
    &TCP,
    &HOST,
    &CERTIFICATE,
    &CLIENT,
    &CLIENT_OPTIONS,
    &SERVICE,
    &HEADERS,
    &PROXY_FILE,
    &PROXY_OPTIONS,
    &PROXY,
    &ACCESS_LOG,
    &LISTENER,
    &UPSTREAM,
    &SERVER_ENTRY,
    &STICKY,
    &UPSTREAM_TLS,
    &KEEP_ALIVE,
    &HEALTH,
    &EJECTION,
    &ROUTE,
    &COMPRESS,
    &REDIRECT,
    &RESPOND,
    &FILES,
    &REWRITE,
    &EDITS,
    &RATE_LIMIT,
    &BASIC_AUTH,
    &LIMITS,
    &TIMEOUTS,
    &APP,
    &BACKEND,
];

/// Where keys of a table go. Each basis has room for `KEY`.
fn proxy_bases() -> Vec<(&'static Table, Vec<&'static str>)> {
    vec![
        (
            &PROXY_OPTIONS,
            vec![
                "options: {KEY}\nproxy: {listeners: {addr: 1}, routes: {to: 'h:1'}}",
                "options: {listen: 1, to: 'h:1', certFile: c, KEY}",
                "options: {listen: 1, to: 'h:1', keyFile: k, KEY}",
            ],
        ),
        (
            &PROXY,
            vec![
                "proxy: {listeners: {addr: 1}, routes: {to: 'h:1'}, trustedProxies: 10.0.0.1, KEY}",
                "proxy: {KEY}",
            ],
        ),
        (
            &ACCESS_LOG,
            vec![
                "proxy: {listeners: {addr: 1}, routes: {to: 'h:1'}, accessLog: {path: a, KEY}}",
                "proxy: {listeners: {addr: 1}, routes: {to: 'h:1'}, accessLog: {KEY}}",
            ],
        ),
        (
            &LISTENER,
            vec![
                "proxy: {listeners: {addr: 1, certFile: c, keyFile: k, clientCA: c, KEY}, routes: {to: 'h:1'}}",
                "proxy: {listeners: {KEY}, routes: {to: 'h:1'}}",
            ],
        ),
        (
            &UPSTREAM,
            vec![
                "proxy: {listeners: {addr: 1}, routes: {to: u}, upstreams: {u: {servers: 'h:1', balance: hash, KEY}}}",
                "proxy: {listeners: {addr: 1}, routes: {to: u}, upstreams: {u: {servers: 'h:1', KEY}}}",
            ],
        ),
        (
            &SERVER_ENTRY,
            vec![
                "proxy: {listeners: {addr: 1}, routes: {to: u}, upstreams: {u: {servers: [{addr: 'h:1', KEY}, 'g:1']}}}",
            ],
        ),
        (
            &STICKY,
            vec![
                "proxy: {listeners: {addr: 1}, routes: {to: u}, upstreams: {u: {servers: 'h:1', sticky: {KEY}}}}",
            ],
        ),
        (
            &UPSTREAM_TLS,
            vec![
                "proxy: {listeners: {addr: 1}, routes: {to: u}, upstreams: {u: {servers: 'h:1', tls: {KEY}}}}",
            ],
        ),
        (
            &KEEP_ALIVE,
            vec![
                "proxy: {listeners: {addr: 1}, routes: {to: u}, upstreams: {u: {servers: 'h:1', keepAlive: {KEY}}}}",
            ],
        ),
        (
            &HEALTH,
            vec![
                "proxy: {listeners: {addr: 1}, routes: {to: u}, upstreams: {u: {servers: 'h:1', health: {type: http, KEY}}}}",
                "proxy: {listeners: {addr: 1}, routes: {to: u}, upstreams: {u: {servers: 'h:1', health: {KEY}}}}",
            ],
        ),
        (
            &EJECTION,
            vec![
                "proxy: {listeners: {addr: 1}, routes: {to: u}, upstreams: {u: {servers: 'h:1', ejection: {KEY}}}}",
            ],
        ),
        (
            &ROUTE,
            vec![
                "proxy: {listeners: {addr: 1}, routes: {path: /x, to: 'h:1', KEY}}",
                "proxy: {listeners: {addr: 1}, routes: {to: 'h:1', KEY}}",
                "proxy: {listeners: {addr: 1}, routes: {KEY}}",
            ],
        ),
        (
            &COMPRESS,
            vec!["proxy: {listeners: {addr: 1}, routes: {to: 'h:1', compress: {KEY}}}"],
        ),
        (
            &REDIRECT,
            vec!["proxy: {listeners: {addr: 1}, routes: {redirect: {to: /, KEY}}}"],
        ),
        (
            &RESPOND,
            vec!["proxy: {listeners: {addr: 1}, routes: {respond: {body: x, KEY}}}"],
        ),
        (
            &FILES,
            vec!["proxy: {listeners: {addr: 1}, routes: {files: {root: /srv, KEY}}}"],
        ),
        (
            &REWRITE,
            vec![
                "proxy: {listeners: {addr: 1}, routes: {path: /x, to: 'h:1', rewrite: {regex: a, KEY}}}",
            ],
        ),
        (
            &EDITS,
            vec!["proxy: {listeners: {addr: 1}, routes: {to: 'h:1', requestHeaders: {KEY}}}"],
        ),
        (
            &RATE_LIMIT,
            vec![
                "proxy: {listeners: {addr: 1}, routes: {to: 'h:1', rateLimit: {requests: 100, KEY}}}",
            ],
        ),
        (
            &BASIC_AUTH,
            vec![
                "proxy: {listeners: {addr: 1}, routes: {to: 'h:1', basicAuth: {passwords: {a: b}, KEY}}}",
            ],
        ),
        (
            &LIMITS,
            vec!["proxy: {listeners: {addr: 1}, routes: {to: 'h:1', limits: {KEY}}}"],
        ),
        (
            &TIMEOUTS,
            vec!["proxy: {listeners: {addr: 1}, routes: {to: 'h:1', timeouts: {KEY}}}"],
        ),
        (
            &APP,
            vec![
                "apps: {listen: 1, backends: {host: 'h:1'}, KEY}",
                "apps: {listen: 1, certFile: c, backends: {host: 'h:1'}, KEY}",
                "apps: {listen: 1, keyFile: k, backends: {host: 'h:1'}, KEY}",
                "apps: {KEY}",
            ],
        ),
        (
            &BACKEND,
            vec![
                "apps: {listen: 1, backends: {host: 'h:1', health_check_uri: /x, KEY}}",
                "apps: {listen: 1, backends: {KEY}}",
            ],
        ),
    ]
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn examples() -> Vec<PathBuf> {
    let folder = fs::read_dir(root().join("examples/config")).expect("the examples are committed");
    let mut paths: Vec<_> = folder
        .map(|entry| entry.expect("readable").path())
        .collect();
    paths.retain(|path| {
        path.file_name()
            .is_some_and(|name| name != "gt-style.users")
    });
    assert!(paths.len() >= 6);
    paths
}

/// The YAML blocks of the documentation that are whole files.
fn documented() -> Vec<String> {
    let read = |name: &str| fs::read_to_string(root().join(name));
    let [configuration, migrating] = ["docs/configuration.md", "docs/migrating.md"]
        .map(|name| read(name).expect("the documentation is committed"));
    assert!(migrating.matches("```yaml\n").count() >= 10);
    let blocks: Vec<_> = (configuration + &migrating)
        .split("```yaml\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap_or_default().to_string())
        .collect();
    assert!(blocks.len() >= 5);
    blocks
}

#[test]
fn every_example_loads() {
    for path in examples() {
        let loaded = load_path(
            &path,
            &System {
                create_identity: false,
            },
        )
        .unwrap_or_else(|e| panic!("{e}"));
        let client = path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("client"));
        assert_eq!(
            matches!(loaded[0], Checked::Client(_)),
            client,
            "{}",
            path.display()
        );
    }
    let all = load_path(
        &root().join("examples/config"),
        &System {
            create_identity: false,
        },
    );
    assert_eq!(all.expect("a folder loads").len(), examples().len());
}

#[test]
fn every_documented_file_loads() {
    let world = World::default()
        .file("users.yml", "id3: {secret: s}")
        .file("/etc/gt/chain.pem", "")
        .file("/etc/gt/key.pem", "")
        .file(
            "/etc/gt/users",
            "ann:$2y$04$wXSYmw5a1qkJ0X9lXyJmSuFcsVVKwI1Tk7cvGJ3XOpnc9jmEvCqDq",
        )
        .file("/run/secrets/gt", "s");
    for text in documented() {
        let checked = check_text(Path::new("doc.yml"), &text, None, &world)
            .unwrap_or_else(|e| panic!("{e}\n{text}"));
        if let Checked::Proxy(proxy) = checked {
            assert_eq!(proxy.warnings, [], "{text}");
        }
    }
}

#[test]
fn the_schema_accepts_what_loads_and_refuses_what_does_not() {
    let schema = schema();
    let documents = examples()
        .into_iter()
        .map(|path| fs::read_to_string(path).expect("readable"))
        .chain(documented());
    for text in documents {
        let value: Value = serde_saphyr::from_str(&text).expect("it is YAML");
        assert!(fits(&schema, &schema, &value), "the schema refuses\n{text}");
    }
    for text in [
        "options: {adr: 80}",
        "options: {addr: localhost:80}",
        "options: {timeout: 90}",
        "options: {connections: 0}",
        "options: {id: {a: b}}",
        "services: [{local: http://h, mode: sideways}]",
        "services: [{local: http://h, basicAuth: x}]",
        "services: [{local: h}]",
        "users: {a: {spede: 1}}",
        "proxy: {listeners: {adr: 80}}",
        "proxy: {routes: {to: 'h:1', retries: many}}",
        "proxy: {upstreams: {u: {balance: best}}}",
        "proxy: {routes: {redirect: {status: 200}}}",
        "unknown: 1",
        "[]",
    ] {
        let value: Value = serde_saphyr::from_str(text).expect("it is YAML");
        assert!(!fits(&schema, &schema, &value), "the schema accepts {text}");
    }
}

#[test]
fn the_tables_are_sound() {
    for table in TABLES {
        let mut names = HashSet::new();
        for option in table.options {
            assert!(
                names.insert(option.name),
                "{} twice in {}",
                option.name,
                table.name
            );
            assert!(
                option.help.ends_with('.') && option.help.len() <= 120,
                "{}",
                option.name
            );
            match option.kind {
                Kind::Count { min, max } => {
                    assert!(min <= max && max <= u64::from(u32::MAX), "{}", option.name)
                }
                Kind::Duration { min, max, .. } => assert!(min <= max, "{}", option.name),
                _ => {}
            }
        }
    }
    // A flag of gt client belongs to the client or to a service, never to both.
    for option in SERVICE.options {
        assert!(
            CLIENT_OPTIONS.find(option.name).is_none(),
            "{}",
            option.name
        );
    }
}

#[test]
fn every_default_is_what_the_absent_option_means() {
    let basis = "options: {addr: 1, id: a, secret: s, tlsAddr: 2, certFile: c, keyFile: k, KEY}";
    compare(&SERVER_OPTIONS, basis, "");
    compare(
        &CLIENT_OPTIONS,
        "options: {id: a, secret: s, remote: 'tcp://h', KEY}\nservices: {local: 'http://h'}",
        "",
    );
    compare(
        &SERVICE,
        "options: {id: a, secret: s, remote: 'tcp://h'}\nservices: {local: 'http://h', KEY}",
        "",
    );
    compare(
        &USER,
        "options: {addr: 1}\nusers: {a: {secret: s, KEY}}",
        "",
    );
    compare(
        &HOST,
        "options: {addr: 1, id: a, secret: s}\nhost: {KEY}",
        "",
    );
    for (table, bases) in proxy_bases() {
        for option in table.options {
            let free = bases
                .iter()
                .find(|basis| !basis.contains(&format!("{}:", option.name)));
            // A key that stands in every basis has no default.
            if let Some(basis) = free {
                compare_one(option, basis, "");
            }
        }
    }
}

fn compare(table: &Table, basis: &str, absent: &str) {
    for option in table.options {
        compare_one(option, basis, absent);
    }
}

fn compare_one(option: &Opt, basis: &str, absent: &str) {
    if option.status != Status::Built || option.default.is_empty() {
        return;
    }
    let load = |key: &str| {
        let text = basis.replace("KEY", key);
        let world = World::default().file("c", "").file("k", "");
        let checked = check_text(Path::new("x.yml"), &text, None, &world)
            .unwrap_or_else(|e| panic!("{e}\n{text}"));
        format!("{checked:?}").replace("level: Some(Info)", "level: None")
    };
    let written = load(&format!("{}: '{}'", option.name, option.default));
    let (name, default) = (option.name, option.default);
    assert_eq!(written, load(absent), "{name} = {default}");
}

#[test]
fn every_option_has_an_effect() {
    let mut idle = Vec::new();
    let server = "options: {addr: 1, tlsAddr: 2, certFile: c, keyFile: k, apiAddr: 3, allowAnyClient: true, KEY}";
    let client = "options: {remote: 'tcp://h', KEY}\nservices: {local: 'http://h'}";
    let known = "options: {id: a, remote: 'tcp://h', KEY}\nservices: {local: 'http://h'}";
    let web = "options: {id: a, secret: s, remote: 'tcp://h'}\nservices: {local: 'http://h', KEY}";
    let udp = "options: {id: a, secret: s, remote: 'tcp://h'}\nservices: {local: 'udp://h:1', remoteUDPPort: 9, KEY}";
    for (table, bases) in [
        (&SERVER_OPTIONS, vec![server]),
        (&CLIENT_OPTIONS, vec![client, known]),
        (&SERVICE, vec![web, udp]),
        (
            &USER,
            vec![
                "options: {addr: 1}\nusers: {a: {secret: s, KEY}, b: {KEY}}",
                "options: {addr: 1}\nusers: {a: {secret: s, KEY}}",
            ],
        ),
        (
            &HOST,
            vec!["options: {addr: 1, id: a, secret: s}\nhost: {KEY}"],
        ),
    ]
    .into_iter()
    .chain(proxy_bases())
    {
        for option in table
            .options
            .iter()
            .filter(|option| option.status == Status::Built)
        {
            let world = World::default()
                .file("/run/secrets/gt", "s")
                .file("c", "")
                .file("k", "")
                .file("users.yml", "u: {secret: s}");
            let load = |basis: &str, key: &str| {
                check_text(Path::new("x.yml"), &basis.replace("KEY", key), None, &world)
                    .map(|checked| format!("{checked:?}"))
                    .map_err(|e| e.to_string())
            };
            let written = format!("{}: {}", option.name, example(option));
            // What the option changes may be the result, or what is missing besides it.
            let effect = bases.iter().any(|basis| {
                basis.contains(&format!("{}:", option.name))
                    || load(basis, &written) != load(basis, "")
            });
            if !effect {
                idle.push(format!("{} of {}", written, table.name));
            }
        }
    }
    assert!(idle.is_empty(), "these change nothing: {idle:#?}");
}

#[test]
fn the_documentation_has_every_option() {
    let path = root().join("docs/configuration.md");
    let mut text = fs::read_to_string(&path).expect("the documentation is committed");
    let before = text.clone();
    for table in TABLES {
        let (begin, end) = (format!("<!-- table: {} -->\n", table.name), "<!-- end -->");
        let at = text
            .find(&begin)
            .unwrap_or_else(|| panic!("no table {}", table.name))
            + begin.len();
        let until = at + text[at..].find(end).expect("it ends");
        text.replace_range(at..until, &rendered(table));
    }
    if std::env::var_os("GT_BLESS").is_some() {
        fs::write(&path, &text).expect("written");
    } else {
        assert!(
            text == before,
            "docs/configuration.md differs from the tables: GT_BLESS=1 cargo test -p config --test documents"
        );
    }
}

fn rendered(table: &Table) -> String {
    let mut text =
        String::from("| Option | Value | Default | Example | Meaning |\n|---|---|---|---|---|\n");
    for option in table.options {
        let value = match option.status {
            Status::Built => format!(
                "{}{}",
                value(option.kind),
                if option.list {
                    "; a list of them is allowed"
                } else {
                    ""
                }
            ),
            _ => "not looked at".into(),
        };
        let default = if option.default.is_empty() {
            String::new()
        } else {
            format!("`{}`", option.default)
        };
        let example = if option.status == Status::Built {
            format!("`{}: {}`", option.name, example(option))
        } else {
            String::new()
        };
        let status = match option.status {
            Status::Built => "",
            Status::Ignored => " **Not in this build: ignored with a warning.**",
        };
        let cell = |text: String| text.replace('|', "\\|");
        text.push_str(&format!(
            "| `{}` | {} | {} | {} | {}{status} |\n",
            option.name,
            cell(value),
            cell(default),
            cell(example),
            cell(option.help.into())
        ));
    }
    text
}

fn value(kind: Kind) -> String {
    match kind {
        Kind::Bool => "true or false".into(),
        Kind::Count { min, max } => format!("number, {min} to {max}"),
        Kind::Duration { zero, min, max } => {
            let show = |ms: u64| {
                if ms < 1000 {
                    format!("{ms}ms")
                } else if ms < 3_600_000 {
                    format!("{}s", ms / 1000)
                } else {
                    format!("{}h", ms / 3_600_000)
                }
            };
            format!(
                "time, {} to {}{}",
                show(min),
                show(max),
                if zero { ", or 0" } else { "" }
            )
        }
        Kind::Speed => "bytes per second".into(),
        Kind::Size => "bytes".into(),
        Kind::Listen { .. } => "port or IP address with port".into(),
        Kind::Id => "1 to 64 of A-Z a-z 0-9 . _ -".into(),
        Kind::Secret => "text of 1 to 1024 bytes, or {file: PATH}".into(),
        Kind::HostPrefix => "one label, up to 63 of a-z 0-9 - _".into(),
        Kind::HostName => "host name, up to 253 bytes".into(),
        Kind::HeaderName => "header name, up to 64 bytes".into(),
        Kind::Text => "text of 1 to 64 bytes".into(),
        Kind::Path => "path".into(),
        Kind::Url => "http:// or https:// address".into(),
        Kind::Regex => "regular expression".into(),
        Kind::PortRange => "port or FIRST-LAST, 1 to 65535".into(),
        Kind::Port => "port, 1 to 65535".into(),
        Kind::Remote => "auto://, quic://, tls://, tcp://, wss://, ws:// or kcp:// address".into(),
        Kind::Local => "address of a service".into(),
        Kind::Network => "IP address or network".into(),
        Kind::Choice(words) => words.join(", "),
        Kind::Section(table) => format!("mapping: {}", table.name),
        Kind::Named(table) => format!("mapping of ids to: {}", table.name),
        Kind::NamedOrPath(table) => format!("path, or mapping of ids to: {}", table.name),
        Kind::Short(table) => {
            format!("{}, or mapping: {}", table.options[0].name, table.name)
        }
        Kind::Fields => "mapping of header names to texts".into(),
        Kind::Secrets => "mapping of names to secrets".into(),
        Kind::Form(form) => form.what.into(),
        Kind::Any => "not looked at".into(),
    }
}

fn example(option: &Opt) -> String {
    match (option.kind, option.name) {
        (_, "type") => "server",
        (_, "version") => "1.0",
        (_, "logFile") => "/var/log/gt.log",
        (_, "identity") => "/var/lib/gt/identity.yml",
        (_, "logLevel") => "debug",
        (Kind::Bool, _) if option.default == "true" => "false",
        (Kind::Bool, _) => "true",
        (Kind::Count { .. }, "failures") => "3",
        (Kind::Duration { .. }, "idle") => "4s",
        (Kind::Duration { .. }, "time") => "1m",
        (Kind::Count { .. }, _) => "5",
        (Kind::Duration { .. }, _) => "30s",
        (Kind::Speed, _) => "1MiB",
        (Kind::Size, _) => "100MiB",
        (Kind::Listen { .. }, _) => "8080",
        (Kind::Id, _) => "web",
        (Kind::Secret, _) => "{file: /run/secrets/gt}",
        (Kind::HostPrefix, _) => "www",
        (Kind::HostName, _) => "api.example.com",
        (Kind::HeaderName, _) => "X-Target",
        (Kind::Text, _) => "blog",
        (Kind::Path, name) if name.ends_with("eyFile") => "/etc/gt/key.pem",
        (Kind::Path, "secretFile") => "/run/secrets/gt",
        (Kind::Path, _) => "/etc/gt/chain.pem",
        (Kind::Url, _) => "https://example.com/gt",
        (Kind::Regex, _) => "^[a-z]+$",
        (Kind::PortRange, _) => "10000-20000",
        (Kind::Port, _) => "10022",
        (Kind::Remote, _) => "tls://gt.example.com:443",
        (Kind::Local, _) => "http://127.0.0.1:3000",
        (Kind::Network, _) => "192.0.2.0/24",
        (Kind::Choice(words), _) => words.last().copied().unwrap_or_default(),
        (Kind::Section(table), _) => match table.name {
            "tcp" => "{range: 10000-20000}",
            "host" => "{number: 5}",
            "certificate" => "{certFile: c.pem, keyFile: k.pem}",
            "service" => "{local: 'http://127.0.0.1:3000'}",
            "server options" => "{addr: 8080}",
            "proxy options" => "{listen: 8080, to: '127.0.0.1:3000'}",
            "proxy" => "{listeners: {addr: 8080}, routes: {to: '127.0.0.1:3000'}}",
            "listener" => "{addr: 8080}",
            "route" => "{host: example.com, to: '127.0.0.1:3000'}",
            "app" => "{listen: 8080, backends: {host: '127.0.0.1:3000'}}",
            "backend" => "{host: '127.0.0.1:3000'}",
            "upstream tls" => "{serverName: app.internal}",
            "keep-alive" => "{idle: 4s}",
            "health check" => "{path: /health}",
            "ejection" => "{failures: 3}",
            "response" => "{status: 503, body: later}",
            "rewrite" => "{prefix: /v2}",
            "header changes" => "{remove: Server}",
            "headers" => "{response: {remove: Server}}",
            "rate limit" => "{requests: 10}",
            "basic auth" => "{passwords: {ann: {file: /run/secrets/gt}}}",
            "limits" => "{body: 10MiB}",
            "timeouts" => "{response: 5m}",
            _ => "{id: web}",
        },
        (Kind::Form(_), "cookie") => "session",
        (Kind::Form(_), "name") => "app",
        (Kind::Form(_), "http_host") => "api.example.com",
        (Kind::Form(form), _) => form.example,
        (Kind::Short(table), _) => match table.name {
            "upstream server" => "[127.0.0.1:3000, 127.0.0.1:3001]",
            "sticky cookie" => "{cookie: session}",
            "access log" => "/var/log/gt/access.log",
            "compression" => "true",
            "redirect" => "'https://{host}{uri}'",
            _ => "/srv/www",
        },
        (Kind::Fields, "headers") => "{x-beta: 'yes'}",
        (Kind::Fields, _) => "{X-Visitor: '{clientIp}'}",
        (Kind::Secrets, _) => "{ann: {file: /run/secrets/gt}}",
        (Kind::Named(table), _) if table.name == "upstream" => "{app: {servers: '127.0.0.1:3000'}}",
        (Kind::NamedOrPath(_), _) => "users.yml",
        (Kind::Named(_), _) => "{web: {secret: TEXT}}",
        (Kind::Any, _) => "",
    }
    .into()
}

/// The part of JSON Schema that the schema uses.
fn fits(root: &Value, schema: &Value, value: &Value) -> bool {
    let Some(schema) = schema.as_object() else {
        return true;
    };
    schema.iter().all(|(keyword, rule)| match keyword.as_str() {
        "$ref" => {
            let name = rule
                .as_str()
                .and_then(|name| name.strip_prefix("#/$defs/"))
                .expect("a local reference");
            fits(root, &root["$defs"][name], value)
        }
        "anyOf" => rule
            .as_array()
            .expect("a list")
            .iter()
            .any(|one| fits(root, one, value)),
        "not" => !fits(root, rule, value),
        "enum" => rule.as_array().expect("a list").contains(value),
        "const" => rule == value,
        "type" => match rule {
            Value::Array(types) => types.iter().any(|one| is(one, value)),
            one => is(one, value),
        },
        "minimum" => value
            .as_u64()
            .is_none_or(|n| n >= rule.as_u64().unwrap_or(0)),
        "maximum" => value
            .as_u64()
            .is_none_or(|n| n <= rule.as_u64().unwrap_or(u64::MAX)),
        "pattern" => value.as_str().is_none_or(|text| {
            regex::Regex::new(rule.as_str().expect("a text"))
                .expect("a pattern")
                .is_match(text)
        }),
        "items" => value
            .as_array()
            .is_none_or(|items| items.iter().all(|item| fits(root, rule, item))),
        "required" => rule
            .as_array()
            .expect("a list")
            .iter()
            .all(|key| value.get(key.as_str().unwrap_or_default()).is_some()),
        "properties" => value.as_object().is_none_or(|map| {
            map.iter()
                .all(|(key, value)| rule.get(key).is_none_or(|rule| fits(root, rule, value)))
        }),
        "additionalProperties" => value.as_object().is_none_or(|map| {
            let known = |key: &str| {
                let by_name = schema
                    .get("properties")
                    .is_some_and(|rules| rules.get(key).is_some());
                let patterns = schema.get("patternProperties").and_then(Value::as_object);
                by_name
                    || patterns.is_some_and(|rules| {
                        rules
                            .keys()
                            .any(|stem| key.starts_with(stem.trim_start_matches('^')))
                    })
            };
            map.iter().all(|(key, value)| {
                known(key) || (rule != &Value::Bool(false) && fits(root, rule, value))
            })
        }),
        "patternProperties" | "$schema" | "$defs" | "title" | "description" | "default" => true,
        other => panic!("the test does not know {other}"),
    })
}

fn is(name: &Value, value: &Value) -> bool {
    match name.as_str() {
        Some("null") => value.is_null(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("string") => value.is_string(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        other => panic!("the test does not know the type {other:?}"),
    }
}

//! The command line: `gt server`, `gt client` and `gt proxy` have their own grammar (crate `config`: one dash or two, flags that belong
//! to the `-local` before them); everything else is clap's.

use std::path::PathBuf;

use clap::{Arg, ArgAction, Args, Command, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use config::{
    CommandLine, Role,
    options::{CLIENT_OPTIONS, Kind, PROXY_OPTIONS, SERVER_OPTIONS, SERVICE, Status, Table},
};

use crate::{failure::Failure, help};

/// What to do.
pub(crate) enum Action {
    /// Run what the flags and the file of one role say.
    Run(CommandLine),
    /// Run what a file or folder says, whatever the role.
    RunPath(PathBuf),
    /// Check files and folders.
    Check(Vec<PathBuf>),
    /// Print a text and end.
    Print(String),
}

/// Reads the arguments after the program's name.
pub(crate) fn parse(args: Vec<String>) -> Result<Action, Failure> {
    match args.first().map(String::as_str) {
        Some("server") => role(Role::Server, args),
        Some("client") => role(Role::Client, args),
        Some("proxy") => role(Role::Proxy, args),
        _ => other(args),
    }
}

fn role(role: Role, args: Vec<String>) -> Result<Action, Failure> {
    let line = CommandLine::parse(role, args.into_iter().skip(1))?;
    if line.help {
        return Ok(Action::Print(help::of(role)));
    }
    if line.signal.is_some() {
        return Err(no_signals());
    }
    if line.config.is_none() && !line.has_options() {
        let hint = format!("gt {role} needs flags or a file; gt {role} --help shows examples");
        return Err(Failure::Usage(hint));
    }
    Ok(Action::Run(line))
}

fn other(args: Vec<String>) -> Result<Action, Failure> {
    let parsed = match Cli::try_parse_from(std::iter::once("gt".to_string()).chain(args)) {
        Ok(parsed) => parsed,
        // Help and version are "errors" of clap that go to standard output.
        Err(error) if !error.use_stderr() => return Ok(Action::Print(error.to_string())),
        Err(error) => return Err(Failure::Usage(error.to_string())),
    };
    if parsed.signal.is_some() {
        return Err(no_signals());
    }
    match (parsed.command, parsed.config) {
        (
            Some(Verb::Config {
                what: ConfigVerb::Check { paths },
            }),
            _,
        ) => Ok(Action::Check(paths)),
        (
            Some(Verb::Config {
                what: ConfigVerb::Schema,
            }),
            _,
        ) => Ok(Action::Print(format!("{:#}\n", config::schema()))),
        (Some(Verb::Completions { shell }), _) => Ok(Action::Print(completions(shell))),
        (Some(Verb::Server(rest)), _) => role(Role::Server, rest.with_name("server")),
        (Some(Verb::Client(rest)), _) => role(Role::Client, rest.with_name("client")),
        (Some(Verb::Proxy(rest)), _) => role(Role::Proxy, rest.with_name("proxy")),
        (None, Some(path)) => Ok(Action::RunPath(path)),
        (None, None) => Err(Failure::Usage(Cli::command().render_help().to_string())),
    }
}

fn no_signals() -> Failure {
    Failure::Usage("process signalling (-s reload, restart, stop) is not in this build; send SIGTERM to stop gt".into())
}

/// Make a service reachable: relay server and relay client.
#[derive(Parser)]
#[command(name = "gt", version, disable_help_subcommand = true, after_help = help::OVERVIEW)]
struct Cli {
    #[command(subcommand)]
    command: Option<Verb>,
    /// Run what a file says, or all .yml and .yaml files of a folder
    #[arg(short, long, value_name = "FILE|DIR")]
    config: Option<PathBuf>,
    /// Tell a running gt to reload, restart or stop (not in this build)
    #[arg(short, long, value_name = "SIGNAL")]
    signal: Option<String>,
}

#[derive(Subcommand)]
enum Verb {
    /// Run a relay server
    Server(Rest),
    /// Run a relay client beside a service
    Client(Rest),
    /// Run a reverse proxy
    Proxy(Rest),
    /// Check configuration files, or print their schema
    Config {
        #[command(subcommand)]
        what: ConfigVerb,
    },
    /// Print shell completions
    Completions {
        /// bash, zsh or fish
        shell: Shell,
    },
}

#[derive(Subcommand)]
enum ConfigVerb {
    /// Check files or folders and say what is wrong; nothing is started or written
    Check {
        /// Files, or folders with .yml and .yaml files
        #[arg(required = true, value_name = "FILE|DIR")]
        paths: Vec<PathBuf>,
    },
    /// Print the JSON schema of configuration files
    Schema,
}

/// Arguments that the role's own grammar reads.
#[derive(Args)]
struct Rest {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    args: Vec<String>,
}

impl Rest {
    fn with_name(self, name: &str) -> Vec<String> {
        std::iter::once(name.to_string()).chain(self.args).collect()
    }
}

/// The commands as clap knows them, with the flags of the option tables in place of the role's own grammar.
fn completions(shell: Shell) -> String {
    let mut command = Command::new("gt").version(env!("CARGO_PKG_VERSION"));
    for subcommand in Cli::command().get_subcommands() {
        command = command.subcommand(match subcommand.get_name() {
            "server" => with_flags("server", &[&SERVER_OPTIONS]),
            "client" => with_flags("client", &[&CLIENT_OPTIONS, &SERVICE]),
            "proxy" => with_flags("proxy", &[&PROXY_OPTIONS]),
            _ => subcommand.clone(),
        });
    }
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, "gt", &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

fn with_flags(name: &'static str, tables: &[&'static Table]) -> Command {
    let config = Arg::new("config")
        .short('c')
        .long("config")
        .help("A file or a folder")
        .value_hint(clap::ValueHint::AnyPath);
    let options = tables.iter().flat_map(|table| table.options);
    let flags = options
        .filter(|option| option.status == Status::Built && help::is_flag(option))
        .map(|option| {
            let arg = Arg::new(option.name).long(option.name).help(option.help);
            match option.kind {
                Kind::Bool => arg.action(ArgAction::SetTrue),
                Kind::Path => arg.value_hint(clap::ValueHint::FilePath),
                Kind::Choice(words) => arg.value_parser(words.to_vec()),
                _ => arg.action(ArgAction::Append),
            }
        });
    Command::new(name).arg(config).args(flags)
}

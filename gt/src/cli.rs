//! The command line: `gt server`, `gt client` and `gt proxy` have their own grammar (crate `config`: one dash or two, flags that belong
//! to the `-local` before them); everything else is clap's.

use std::path::PathBuf;

use clap::{Arg, ArgAction, Args, Command, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use config::{
    CommandLine, Role,
    options::{CLIENT_OPTIONS, Kind, PROXY_OPTIONS, SERVER_OPTIONS, SERVICE, Status, Table},
};

use supervisor::Ask;

use crate::{failure::Failure, help};

/// What to do.
pub(crate) enum Action {
    /// Run it.
    Run(Target),
    /// Ask a gt that runs it, and show the answer, as JSON or not.
    Ask(Target, Ask, bool),
    /// Check files and folders.
    Check(Vec<PathBuf>),
    /// Print a text and end.
    Print(String),
}

/// What is to be run, or runs.
pub(crate) enum Target {
    /// What the flags and the file of one role say.
    Line(CommandLine),
    /// What a file or folder says, whatever the role.
    Path(PathBuf),
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
    if let Some(word) = &line.signal {
        let ask = signal(word)?;
        if line.config.is_none() && !line.has_options() {
            return Err(which());
        }
        return Ok(Action::Ask(Target::Line(line), ask, false));
    }
    if line.config.is_none() && !line.has_options() {
        let hint = format!("gt {role} needs flags or a file; gt {role} --help shows examples");
        return Err(Failure::Usage(hint));
    }
    Ok(Action::Run(Target::Line(line)))
}

fn other(args: Vec<String>) -> Result<Action, Failure> {
    let parsed = match Cli::try_parse_from(std::iter::once("gt".to_string()).chain(args)) {
        Ok(parsed) => parsed,
        // Help and version are "errors" of clap that go to standard output.
        Err(error) if !error.use_stderr() => return Ok(Action::Print(error.to_string())),
        Err(error) => return Err(Failure::Usage(error.to_string())),
    };
    if let Some(word) = &parsed.signal {
        return asked(parsed.config, signal(word)?, false);
    }
    match (parsed.command, parsed.config) {
        (Some(Verb::Reload { plan, config }), other) => {
            let ask = if plan { Ask::Plan } else { Ask::Reload };
            asked(config.or(other), ask, false)
        }
        (Some(Verb::Restart { config }), other) => asked(config.or(other), Ask::Restart, false),
        (Some(Verb::Stop { config }), other) => asked(config.or(other), Ask::Stop, false),
        (Some(Verb::Status { json, config }), other) => asked(config.or(other), Ask::Status, json),
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
        (None, Some(path)) => Ok(Action::Run(Target::Path(path))),
        (None, None) => Err(Failure::Usage(Cli::command().render_help().to_string())),
    }
}

fn asked(path: Option<PathBuf>, ask: Ask, json: bool) -> Result<Action, Failure> {
    let path = path.ok_or_else(which)?;
    Ok(Action::Ask(Target::Path(path), ask, json))
}

fn which() -> Failure {
    let text = "which gt? -c FILE says it; for one that was started with flags only, give `gt server -s …` or \
                `gt client -s …` the same flags";
    Failure::Usage(text.into())
}

fn signal(word: &str) -> Result<Ask, Failure> {
    Ok(match word {
        "reload" => Ask::Reload,
        "plan" => Ask::Plan,
        "restart" => Ask::Restart,
        "stop" | "quit" => Ask::Stop,
        "status" => Ask::Status,
        "reopen" => Ask::ReopenLogs,
        _ => {
            let text =
                format!("-s {word}: there are reload, plan, restart, stop, status and reopen");
            return Err(Failure::Usage(text));
        }
    })
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
    /// One process, without a supervisor: no reload, no restart (also after server and client)
    #[arg(long)]
    no_supervisor: bool,
    /// Tell a running gt to reload, plan (say what a reload would do), restart, stop, tell its status or reopen its logs
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
    /// Let a running gt read its configuration again
    Reload {
        /// Only say what would change in place and what would be replaced
        #[arg(long)]
        plan: bool,
        /// What it was started with
        #[arg(short, long, value_name = "FILE|DIR")]
        config: Option<PathBuf>,
    },
    /// Let a running gt become the program that lies on disk now
    Restart {
        /// What it was started with
        #[arg(short, long, value_name = "FILE|DIR")]
        config: Option<PathBuf>,
    },
    /// End a running gt in order; a second time, at once
    Stop {
        /// What it was started with
        #[arg(short, long, value_name = "FILE|DIR")]
        config: Option<PathBuf>,
    },
    /// Show what runs
    Status {
        /// As JSON
        #[arg(long)]
        json: bool,
        /// What it was started with
        #[arg(short, long, value_name = "FILE|DIR")]
        config: Option<PathBuf>,
    },
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

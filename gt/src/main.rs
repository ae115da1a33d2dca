//! The gt binary: reads the command line, hands a checked configuration to the data plane, and says what went wrong.
//!
//! Exit codes: 0 ended well, 1 failed while running, 2 the command line or the configuration is wrong.

mod cli;
mod failure;
mod help;
mod log;
mod run;
mod supervise;
mod worker;

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use cli::{Action, Target};
use config::{Checked, System};
use failure::Failure;

fn main() -> ExitCode {
    net::keep_free_memory();
    match act(std::env::args().skip(1).collect()) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            let text = failure.to_string();
            let _ = writeln!(io::stderr(), "{}", text.trim_end());
            ExitCode::from(failure.exit_code())
        }
    }
}

fn act(mut args: Vec<String>) -> Result<u8, Failure> {
    match args.first().map(String::as_str) {
        Some(supervisor::WORKER) => return worker::run(&args[1..]).map(|()| 0),
        Some(supervisor::CHECK) => {
            print(&supervise::check(&args[1..])?);
            return Ok(0);
        }
        _ => {}
    }
    let before = args.len();
    args.retain(|arg| !matches!(arg.as_str(), "--no-supervisor" | "-no-supervisor"));
    let alone = args.len() < before;
    match cli::parse(args.clone())? {
        Action::Print(text) => print(&text),
        Action::Check(paths) => check(&paths)?,
        Action::Ask(target, ask, json) => {
            let (text, ok) = supervise::ask(&target, ask, json)?;
            if !ok {
                return Err(Failure::NotDone(text));
            }
            print(&text);
        }
        Action::Run(target) if alone => {
            let system = System {
                create_identity: true,
            };
            start(match &target {
                Target::Line(line) => config::load(line, &system)?,
                Target::Path(path) => config::load_path(path, &system)?,
            })?;
        }
        Action::Run(target) => return supervise::run(args, &target),
    }
    Ok(0)
}

fn start(configurations: Vec<Checked>) -> Result<(), Failure> {
    log::start(&configurations)?;
    for warning in configurations.iter().flat_map(Checked::warnings) {
        tracing::warn!("{warning}");
    }
    Ok(run::run(configurations)?)
}

fn check(paths: &[PathBuf]) -> Result<(), Failure> {
    let system = System {
        create_identity: false,
    };
    for path in paths {
        let checked = config::load_path(path, &system)?;
        for warning in checked.iter().flat_map(Checked::warnings) {
            let _ = writeln!(io::stderr(), "warning: {warning}");
        }
        let what = supervise::describe_all(&checked);
        print(&format!("{}: ok: {what}\n", path.display()));
    }
    Ok(())
}

/// A reader that went away (`gt --help | head`) is no failure.
fn print(text: &str) {
    let _ = io::stdout().write_all(text.as_bytes());
}

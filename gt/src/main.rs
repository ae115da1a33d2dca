//! The gt binary: reads the command line, hands a checked configuration to the data plane, and says what went wrong.
//!
//! Exit codes: 0 ended well, 1 failed while running, 2 the command line or the configuration is wrong.

mod cli;
mod failure;
mod help;
mod log;
mod run;

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use cli::Action;
use config::{Checked, System};
use failure::Failure;

fn main() -> ExitCode {
    match act(std::env::args().skip(1).collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let text = failure.to_string();
            let _ = writeln!(io::stderr(), "{}", text.trim_end());
            ExitCode::from(failure.exit_code())
        }
    }
}

fn act(args: Vec<String>) -> Result<(), Failure> {
    let system = System {
        create_identity: true,
    };
    match cli::parse(args)? {
        Action::Print(text) => print(&text),
        Action::Check(paths) => check(&paths)?,
        Action::Run(line) => start(config::load(&line, &system)?)?,
        Action::RunPath(path) => start(config::load_path(&path, &system)?)?,
    }
    Ok(())
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
        let what: Vec<_> = checked.iter().map(run::describe).collect();
        print(&format!("{}: ok: {}\n", path.display(), what.join("; ")));
    }
    Ok(())
}

/// A reader that went away (`gt --help | head`) is no failure.
fn print(text: &str) {
    let _ = io::stdout().write_all(text.as_bytes());
}

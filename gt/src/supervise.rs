//! From a command line to a supervisor: what it runs, how it is found again, and what `gt -s` and its relatives do.

use std::{fmt::Write, path::Path, time::Duration};

use config::{Checked, Role, Surroundings, System};
use supervisor::{Answer, Ask, HANDOVER, Options, Status, UnitSpec};

use crate::{
    cli::{self, Action, Target},
    failure::Failure,
    log,
    run::describe,
};

/// What a command line runs, and the name it has on this machine.
struct Plan {
    key: String,
    units: Vec<UnitSpec>,
    checked: Vec<Checked>,
    /// There is no file that names it.
    by_flags: bool,
}

/// Runs the command line under a supervisor; returns the exit code.
pub(crate) fn run(args: Vec<String>, target: &Target) -> Result<u8, Failure> {
    // Read here once, so that what is wrong is said before anything is started.
    let system = System {
        create_identity: !supervisor::is_resumed(),
    };
    let planned = plan(target, &args, &system);
    log::start_plain()?;
    let plan = match planned {
        Ok(plan) => plan,
        // It was right a moment ago, and what runs must not be lost for it.
        Err(failure) if supervisor::is_resumed() => {
            tracing::error!("{failure}");
            Plan {
                key: String::new(),
                units: Vec::new(),
                checked: Vec::new(),
                by_flags: false,
            }
        }
        Err(failure) => return Err(failure),
    };
    let options = Options {
        program: std::env::current_exe().map_err(|error| Failure::Usage(error.to_string()))?,
        args,
        key: plan.key,
        // Two clients of one id may share its visitors; a server's ports are its own, unless the system chooses them.
        key_may_repeat: plan.by_flags,
        units: plan.units,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    Ok(supervisor::run(options)?)
}

/// What the hidden check prints.
pub(crate) fn check(args: &[String]) -> Result<String, Failure> {
    let system = System {
        create_identity: false,
    };
    let plan = plan(&target(args)?, args, &system)?;
    let checked = supervisor::Checked {
        units: plan.units,
        handover: HANDOVER,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    serde_json::to_string(&checked).map_err(|error| Failure::Usage(error.to_string()))
}

/// The one configuration of a worker.
pub(crate) fn load_one(args: &[String], system: &System) -> Result<Checked, Failure> {
    let mut loaded = match target(args)? {
        Target::Line(line) => config::load(&line, system)?,
        Target::Path(path) => config::load_path(&path, system)?,
    };
    match loaded.pop() {
        Some(checked) if loaded.is_empty() => Ok(checked),
        _ => Err(Failure::Usage("a worker runs one configuration".into())),
    }
}

fn target(args: &[String]) -> Result<Target, Failure> {
    match cli::parse(args.to_vec())? {
        Action::Run(target) => Ok(target),
        _ => Err(Failure::Usage("these arguments run nothing".into())),
    }
}

fn plan(target: &Target, args: &[String], system: &dyn Surroundings) -> Result<Plan, Failure> {
    let (path, role) = match target {
        Target::Line(line) => (line.config.as_deref(), Some(line.role)),
        Target::Path(path) => (Some(path.as_path()), None),
    };
    if let Some(folder) = path.filter(|path| path.is_dir()) {
        // Flags beside a folder are refused here as they are in one process.
        if let Target::Line(line) = target {
            config::load(line, system)?;
        }
        return folder_plan(folder, role, system);
    }
    let checked = match target {
        Target::Line(line) => config::load(line, system)?,
        Target::Path(path) => config::load_path(path, system)?,
    };
    let key = match path {
        Some(path) => canonical(path),
        None => checked.iter().map(key_of).collect::<Vec<_>>().join(", "),
    };
    let unit = UnitSpec {
        name: key.clone(),
        args: args.to_vec(),
    };
    Ok(Plan {
        key,
        units: vec![unit],
        checked,
        by_flags: path.is_none(),
    })
}

fn folder_plan(
    folder: &Path,
    role: Option<Role>,
    system: &dyn Surroundings,
) -> Result<Plan, Failure> {
    let loaded = config::load_folder(folder, role, system)?;
    let unit = |(path, checked): &(std::path::PathBuf, Checked)| {
        let role = match checked {
            Checked::Server(_) => "server",
            Checked::Client(_) => "client",
            Checked::Proxy(_) => "proxy",
        };
        let name = canonical(path);
        UnitSpec {
            args: vec![role.into(), "-c".into(), name.clone()],
            name,
        }
    };
    Ok(Plan {
        key: canonical(folder),
        units: loaded.iter().map(unit).collect(),
        checked: loaded.into_iter().map(|(_, checked)| checked).collect(),
        by_flags: false,
    })
}

/// The same file by whatever way it was named.
fn canonical(path: &Path) -> String {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    path.display().to_string()
}

/// A command line without a file is found again by what it does: where a server listens, or who a client is and of which servers.
fn key_of(checked: &Checked) -> String {
    match checked {
        Checked::Server(server) => {
            let at = &server.listeners;
            let addresses = [at.plain, at.tls, at.sni].into_iter().flatten();
            let addresses: Vec<_> = addresses.map(|address| address.to_string()).collect();
            format!("gt server on {}", addresses.join(" "))
        }
        Checked::Client(client) => {
            let mut remotes: Vec<_> = client.remotes.iter().map(ToString::to_string).collect();
            remotes.extend(client.remote_api.as_ref().map(ToString::to_string));
            format!("gt client {} of {}", client.id, remotes.join(" "))
        }
        Checked::Proxy(proxy) => {
            let addresses = proxy
                .proxy
                .listeners
                .iter()
                .map(|listener| listener.addr.to_string());
            format!("gt proxy on {}", addresses.collect::<Vec<_>>().join(" "))
        }
    }
}

/// Asks a running gt; returns whether it did what was asked.
pub(crate) fn ask(target: &Target, question: Ask, json: bool) -> Result<(String, bool), Failure> {
    let path = match target {
        Target::Line(line) => line.config.as_deref(),
        Target::Path(path) => Some(path.as_path()),
    };
    // The file need not be right, nor even be there any more, to be asked about.
    let key = match path {
        Some(path) => canonical(path),
        None => {
            let system = System {
                create_identity: false,
            };
            let keys = plan(target, &[], &system)?;
            keys.checked
                .iter()
                .map(key_of)
                .collect::<Vec<_>>()
                .join(", ")
        }
    };
    let Answer { ok, text, status } = supervisor::ask(&key, question, PATIENCE)?;
    let text = match status {
        Some(status) if json => format!(
            "{}\n",
            serde_json::to_string_pretty(&status).unwrap_or_default()
        ),
        Some(status) => show(&status),
        None if text.is_empty() => "done\n".into(),
        None => format!("{text}\n"),
    };
    Ok((text, ok))
}

fn show(status: &Status) -> String {
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = writeln!(
        text,
        "gt {} (process {}) runs {} since {}",
        status.version,
        status.pid,
        status.configuration,
        ago(status.uptime_seconds)
    );
    if status.busy {
        let _ = writeln!(text, "  a reload or restart is under way");
    }
    for unit in &status.units {
        let _ = writeln!(text, "{}", unit.name);
        for listener in &unit.listeners {
            let _ = writeln!(
                text,
                "  {:<10} {} {}",
                listener.option, listener.protocol, listener.address
            );
        }
        if unit.service_ports > 0 {
            let _ = writeln!(text, "  {} ports of services", unit.service_ports);
        }
        for worker in &unit.workers {
            let _ = write!(
                text,
                "  worker {} (process {}): {} since {}",
                worker.generation,
                worker.pid,
                worker.state,
                ago(worker.uptime_seconds)
            );
            let _ = match (worker.ends_within_seconds, worker.visits) {
                (Some(left), Some(visits)) => {
                    writeln!(text, ", {visits} visits left, ends within {left} s")
                }
                (Some(left), None) => writeln!(text, ", ends within {left} s"),
                _ => writeln!(text, ": {}", worker.what),
            };
        }
        if unit.workers.is_empty() {
            let _ = writeln!(text, "  no worker; {} have died in a row", unit.deaths);
        }
        if unit.change_waits {
            let _ = writeln!(text, "  a change waits until an older worker has ended");
        }
    }
    text
}

fn ago(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// One line about each, for `gt config check`.
pub(crate) fn describe_all(checked: &[Checked]) -> String {
    let what: Vec<_> = checked.iter().map(describe).collect();
    what.join("; ")
}

/// A reload may wait for a new process to be ready.
const PATIENCE: Duration = Duration::from_secs(90);

//! Which transport the client chooses on impaired paths, when and why, and what it carries beside each fixed one.
//!
//! Each case (`cases.rs`) has a bridge of its own (crate `netem`): a real `gt server` in the right namespace, in the left one a client that
//! chooses and one for each transport, with a service that sends without end (`lab.rs`). Visitors are on the server's side, so bytes go from
//! left to right. In each phase of a case the firewall changes, visitors keep the choosing client busy until it has settled
//! (`watch.rs` reads its log), then everybody's goodput is measured in turns. `table.rs` writes it down. Needs root.
//!
//! With `--links` nothing is chosen: `links.rs` measures what links carry beside what the path carries without them.

mod cases;
mod lab;
mod links;
mod plain;
mod table;
mod watch;

use std::{collections::VecDeque, path::PathBuf, sync::Mutex, time::Duration};

use clap::Parser;

use crate::cases::Case;

/// Shows which transport the client chooses on impaired paths; needs root.
#[derive(Debug, Parser)]
#[command(name = "auto-path", version)]
struct Cli {
    /// Measure what each kind of link carries of what the path does, instead of what is chosen.
    #[arg(long)]
    links: bool,
    /// Only cases whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// Cases at a time.
    #[arg(long, default_value_t = 3)]
    parallel: usize,
    /// How often each goodput is measured; medians are shown.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Seconds that count of each download, after two that do not.
    #[arg(long, default_value_t = 2)]
    seconds: u64,
    /// The paths' seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the table into this file too.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Print the log of the client that chooses.
    #[arg(long)]
    log: bool,
}

/// What every case needs to know.
#[derive(Clone, Copy, Debug)]
struct Settings {
    rounds: u32,
    time: Duration,
    seed: u64,
    log: bool,
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    netem::available().map_err(anyhow::Error::msg)?;
    let settings = Settings {
        rounds: cli.rounds.max(1),
        time: Duration::from_secs(cli.seconds.max(1)),
        seed: cli.seed,
        log: cli.log,
    };
    let only = cli.only.unwrap_or_default();
    let parallel = cli.parallel.max(1);
    let wanted = |cases: Vec<Case>| -> Vec<Case> {
        let cases = cases.into_iter();
        cases.filter(|case| case.name.contains(&only)).collect()
    };
    let (text, bad) = if cli.links {
        let cases = wanted(links::cases());
        let measured = run_all(&cases, settings, parallel, links::run)?;
        let text = links::write(&cases, &measured, settings, parallel);
        (text, links::verdict(&cases, &measured))
    } else {
        let cases = wanted(cases::all());
        let measured = run_all(&cases, settings, parallel, lab::run)?;
        let text = table::write(&cases, &measured, settings, parallel);
        (text, table::verdict(&cases, &measured))
    };
    print!("{text}");
    if let Some(out) = cli.out {
        std::fs::write(&out, text)?;
    }
    anyhow::ensure!(bad.is_empty(), "not as it should be: {}", bad.join("; "));
    Ok(())
}

/// Runs some at a time; results stand in the order of the cases.
fn run_all<M: Send>(
    cases: &[Case],
    settings: Settings,
    parallel: usize,
    run: impl Fn(&Case, Settings) -> anyhow::Result<M> + Sync,
) -> anyhow::Result<Vec<M>> {
    let waiting: Mutex<VecDeque<usize>> = Mutex::new((0..cases.len()).collect());
    let done: Mutex<Vec<(usize, anyhow::Result<M>)>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..parallel {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().ok().and_then(|mut next| next.pop_front());
                    let Some(number) = next else {
                        return;
                    };
                    let result = run(&cases[number], settings);
                    eprintln!("{}: done", cases[number].name);
                    if let Ok(mut done) = done.lock() {
                        done.push((number, result));
                    }
                }
            });
        }
    });
    let mut done = done
        .into_inner()
        .map_err(|_| anyhow::anyhow!("a case panicked"))?;
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, result)| result).collect()
}

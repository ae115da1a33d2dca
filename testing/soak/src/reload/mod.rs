//! Reloads under load: nothing may be lost. The same visits as in the long soak, but no kill excuses any of them.
//!
//! Each reload changes something: users and limits (in place), the number of threads (a new worker), or nothing. While two old workers
//! carry what they had, changes that need a further one wait; everything else goes on.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::relay::Relay;
use crate::rng::Rng;
use crate::tally::{Sums, Tally};
use crate::visitor::{Route, Visit};

/// How to run it.
#[derive(Clone, Debug)]
pub struct Options {
    /// The gt binary.
    pub gt: PathBuf,
    /// How many reloads.
    pub reloads: u64,
    /// Time from one to the next.
    pub every: Duration,
    /// Seed of all visits.
    pub seed: u64,
    /// Visitors at a time.
    pub visitors: u64,
    /// Longest time of one visit.
    pub limit: Duration,
}

/// What it came to.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Of the visits.
    pub sums: Sums,
    /// Workers that were replaced.
    pub replaced: u64,
    /// Reloads whose change had to wait for older workers.
    pub waited: u64,
    /// The longest reload.
    pub longest: Duration,
}

/// Runs it. The verdict is good when the sums have no failures.
///
/// # Errors
/// When the relay does not start or does not end.
pub fn run(options: &Options) -> Result<Verdict> {
    let mut relay = Relay::start_supervised(&options.gt)?;
    let tally = Tally::default();
    let rng = Rng::new(options.seed);
    let routes: Vec<Route> = relay
        .clients
        .iter()
        .map(|client| client.route.clone())
        .collect();
    let stop = AtomicBool::new(false);
    let mut verdict = Verdict {
        sums: Sums::default(),
        replaced: 0,
        waited: 0,
        longest: Duration::ZERO,
    };
    std::thread::scope(|scope| {
        for number in 0..options.visitors {
            let (routes, stop, tally, mut rng) = (&routes, &stop, &tally, rng.branch(number));
            scope.spawn(move || {
                let mut count = 0;
                while !stop.load(Ordering::Relaxed) && !tally.is_hopeless() {
                    let client = rng.below(routes.len() as u64) as usize;
                    let visit = Visit::draw(&mut rng);
                    let outcome = visit.make(&routes[client], options.limit);
                    let who =
                        format_args!("visitor {number}, visit {count}, client {client}, {visit:?}");
                    tally.add(who, &outcome, false);
                    count += 1;
                }
            });
        }
        for number in 0..options.reloads {
            let began = Instant::now();
            match reload(&relay, options, number) {
                Ok(said) => {
                    verdict.replaced += u64::from(said.contains("a new worker serves"));
                    verdict.waited += u64::from(said.contains("the change is made when"));
                }
                Err(error) => tally.fail(format!("reload {number}: {error:#}")),
            }
            verdict.longest = verdict.longest.max(began.elapsed());
            if tally.is_hopeless() {
                break;
            }
            std::thread::sleep(options.every.saturating_sub(began.elapsed()));
        }
        stop.store(true, Ordering::Relaxed);
    });
    let running = relay.check_running();
    let stopped = ask(&relay, options, "stop");
    let until = Instant::now() + STOP;
    while relay.server.is_running() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    if relay.server.is_running() {
        tally.fail("the server does not stop".to_owned());
        let _ = ask(&relay, options, "stop");
    }
    running?;
    stopped?;
    verdict.sums = tally.sums();
    Ok(verdict)
}

fn reload(relay: &Relay, options: &Options, number: u64) -> Result<String> {
    let limits = format!("  reconnectTimes: {}\n", 3 + number % 2);
    // Every fifth needs another worker.
    let threads = format!("  workers: {}\n", 1 + number / 5 % 3);
    let users = match number % 3 {
        0 => "  more: {secret: a-secret-that-comes-and-goes}\n",
        _ => "",
    };
    relay.config.write(&(limits + &threads), users)?;
    ask(relay, options, "reload")
}

fn ask(relay: &Relay, options: &Options, what: &str) -> Result<String> {
    let output = Command::new(&options.gt)
        .args(["-s", what, "-c"])
        .arg(&relay.config.file)
        .output()
        .context("run gt")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(said)
}

const STOP: Duration = Duration::from_secs(15);

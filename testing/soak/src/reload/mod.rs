//! Reloads under load: nothing may be lost.
//!
//! `processes` starts a supervised server, a client for each kind of link and a reverse proxy; the visitors of `load` come through all of
//! them, and those of the long soak through the clients; `origin` remembers what came twice; `count` has a column for each thing that must
//! not happen. Server, proxy and clients are reloaded in turn: most reloads change something in place, every third needs another
//! worker. While two old workers of a process carry what they had, changes that need a further one wait; everything else goes on. When
//! all visitors have gone, old workers must end and memory must be what it was. `beside` reloads nginx and HAProxy under the same load.

pub mod beside;
pub mod count;
pub mod load;
pub mod origin;
pub mod processes;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bench::visit::until_ready;

use self::count::Counts;
use self::load::{KINDS, Scene};
use self::processes::{Field, Supervised};
use crate::rng::Rng;
use crate::tally::{Sums, Tally};
use crate::visitor::{Outcome, Visit};

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
    /// Visitors of the long soak at a time.
    pub visitors: u64,
    /// Longest time of one of their visits.
    pub limit: Duration,
    /// Bytes of the transfers that take as long as the reloads do, down and up, through the proxy and over a TCP link; a sixteenth of it over the
    /// other links.
    pub long: u64,
    /// Where the logs of all processes go at the end, if anywhere.
    pub logs: Option<PathBuf>,
}

/// What it came to.
#[derive(Debug)]
pub struct Verdict {
    /// By way and kind.
    pub counts: Counts,
    /// Of the long soak's visits, and whatever else must not happen.
    pub sums: Sums,
    /// Workers that were replaced.
    pub replaced: u64,
    /// Reloads whose change had to wait for older workers.
    pub waited: u64,
    /// The longest reload.
    pub longest: Duration,
    /// Resident bytes of all processes, before and after.
    pub memory: (u64, u64),
}

impl Verdict {
    /// Whether nothing was lost.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.counts.faults() == 0 && self.sums.failures.is_empty()
    }
}

#[derive(Debug, Default)]
struct Reloads {
    replaced: u64,
    waited: u64,
    longest: Duration,
}

/// Runs it.
///
/// # Errors
/// When something does not start.
pub fn run(options: &Options) -> Result<Verdict> {
    let mut field = Field::start(&options.gt)?;
    let (counts, tally) = (Counts::default(), Tally::default());
    until_open(&field)?;
    let rng = Rng::new(options.seed);
    // What the first requests leave in memory is no leak: the second half is compared with the first.
    load(&field, options, &rng.branch(0), &counts, &tally, WARM_UP)?;
    quiet(&field, &tally);
    let before = resident(&mut field);
    let reloads = load(
        &field,
        options,
        &rng.branch(1),
        &counts,
        &tally,
        options.reloads,
    )?;
    quiet(&field, &tally);
    let after = resident(&mut field);
    if after > before + (before / 4).max(MEMORY_SLACK) {
        tally.fail(format!(
            "memory: {} KiB before, {} KiB after",
            before >> 10,
            after >> 10
        ));
    }
    for process in field.all() {
        if !process.is_running() {
            tally.fail(format!("{} has died: {}", process.name, process.log_tail()));
        } else if let Err(error) = process.stop() {
            tally.fail(format!("{error:#}"));
        }
    }
    if let Some(into) = &options.logs {
        field.keep_logs(into)?;
    }
    Ok(Verdict {
        counts,
        sums: tally.sums(),
        replaced: reloads.replaced,
        waited: reloads.waited,
        longest: reloads.longest,
        memory: (before, after),
    })
}

/// Until each way has answered once.
fn until_open(field: &Field) -> Result<()> {
    for way in &field.ways {
        let probe = || {
            let answer = bench::visit::get(way.at, &way.host, "/10/1")?;
            ensure!(answer.status == 200, "status {}", answer.status);
            Ok(())
        };
        until_ready(START, probe).with_context(|| {
            let logs = |process: &Supervised| format!("{}: {}", process.name, process.log_tail());
            let clients: Vec<String> = field.clients.iter().map(logs).collect();
            format!(
                "{}\n{}\n{}\n{}",
                way.name,
                logs(&field.server),
                logs(&field.proxy),
                clients.join("\n")
            )
        })?;
    }
    Ok(())
}

fn load(
    field: &Field,
    options: &Options,
    rng: &Rng,
    counts: &Counts,
    tally: &Tally,
    reloads: u64,
) -> Result<Reloads> {
    let stop = AtomicBool::new(false);
    let scene = Scene {
        counts,
        ways: field.ways.clone(),
        origins: field.origins.iter().collect(),
        stop: &stop,
        began: Instant::now(),
    };
    let seen = Mutex::new(Reloads::default());
    let time = options.every * u32::try_from(reloads).unwrap_or(u32::MAX);
    std::thread::scope(|scope| {
        let scene = &scene;
        for way in 0..scene.ways.len() {
            for kind in 0..KINDS.len() {
                let rng = rng.branch(100 + (way * KINDS.len() + kind) as u64);
                scope.spawn(move || scene.visit(way, kind, rng));
            }
            let bytes = long(options, &scene.ways[way].name, reloads);
            for up in [false, true] {
                let seed = rng.branch(50 + way as u64).draw() + u64::from(up);
                scope.spawn(move || scene.transfer(way, up, bytes, time, seed));
            }
        }
        for number in 0..options.visitors {
            let (rng, stop) = (rng.branch(1000 + number), &stop);
            scope.spawn(move || visits(field, options, number, rng, stop, tally));
        }
        let began = Instant::now();
        let mut told = false;
        for number in 0..reloads {
            let due = options.every * u32::try_from(number).unwrap_or(u32::MAX);
            std::thread::sleep(due.saturating_sub(began.elapsed()));
            if !told && counts.faults() > 0 {
                told = true;
                println!(
                    "the first fault, and what was last logged:\n{}",
                    field.last_words()
                );
            }
            if counts.is_hopeless() || tally.is_hopeless() {
                break;
            }
            // Each asks for itself, so that a reload that takes longer does not hold the next ones back.
            let seen = &seen;
            scope.spawn(move || {
                if let Err(error) = reload(field, number, seen) {
                    tally.fail(format!("reload {number}: {error:#}"));
                }
            });
        }
        std::thread::sleep(options.every);
        stop.store(true, Ordering::Relaxed);
    });
    Ok(seen.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Bytes of a transfer that takes as long as `reloads` do. All ways in full would keep the machine from anything else.
fn long(options: &Options, way: &str, reloads: u64) -> u64 {
    let all = options.long * reloads / options.reloads.max(1);
    match way {
        "relay, tcp link" | "reverse proxy" => all,
        _ => all / 16,
    }
}

fn visits(
    field: &Field,
    options: &Options,
    number: u64,
    mut rng: Rng,
    stop: &AtomicBool,
    tally: &Tally,
) {
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) && !tally.is_hopeless() {
        let client = rng.below(field.routes.len() as u64) as usize;
        let visit = Visit::draw(&mut rng);
        let outcome: Outcome = visit.make(&field.routes[client], options.limit);
        let link = processes::LINKS[client];
        tally.add(
            format_args!("visitor {number}, visit {count}, over {link}, {visit:?}"),
            &outcome,
            false,
        );
        count += 1;
    }
}

/// Server, proxy, a client: in turn.
fn reload(field: &Field, number: u64, seen: &Mutex<Reloads>) -> Result<()> {
    // What a process is at in its own turns: every third of them needs another worker.
    let turn = number / 3;
    let threads = format!("  workers: {}\n", 1 + turn / 3 % 3);
    let odd = turn % 2 == 1;
    let process = match number % 3 {
        0 => {
            let limits = format!("  reconnectTimes: {}\n", 3 + turn % 2);
            let user = if odd {
                "  other: {secret: a-secret-that-comes-and-goes}\n"
            } else {
                ""
            };
            field.server.write(&(limits + &threads), user)?;
            &field.server
        }
        1 => {
            let route = if odd {
                "  - {host: more.example.com, respond: {status: 204}}\n"
            } else {
                ""
            };
            field.proxy.write(&threads, route)?;
            &field.proxy
        }
        _ => {
            let index = turn as usize % field.clients.len();
            let own = turn / field.clients.len() as u64;
            let threads = format!("  workers: {}\n", 1 + own / 2 % 2);
            let service = match own % 2 {
                1 => {
                    format!("- {{name: more, local: \"builtin:demo\", hostPrefix: more{index}}}\n")
                }
                _ => String::new(),
            };
            field.clients[index].write(&threads, &service)?;
            &field.clients[index]
        }
    };
    let began = Instant::now();
    let said = process.ask(&["reload"])?;
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    seen.longest = seen.longest.max(began.elapsed());
    seen.replaced += u64::from(said.contains("a new worker serves"));
    seen.waited += u64::from(said.contains("the change is made when"));
    Ok(())
}

/// Nobody visits any more, so old workers have nothing left and must end.
fn quiet(field: &Field, tally: &Tally) {
    let processes = [&field.server, &field.proxy];
    for process in processes.into_iter().chain(&field.clients) {
        let until = Instant::now() + OLD_WORKERS;
        let alone = loop {
            match process.workers() {
                Ok(1) => break Ok(()),
                Ok(_) if Instant::now() < until => std::thread::sleep(Duration::from_millis(100)),
                Ok(n) => break Err(format!("{}: {n} workers, and nothing to do", process.name)),
                Err(error) => break Err(format!("{error:#}")),
            }
        };
        if let Err(error) = alone {
            tally.fail(error);
        }
    }
}

fn resident(field: &mut Field) -> u64 {
    field.all().map(|process| process.resident()).sum()
}

/// Reloads after which memory is looked at first.
const WARM_UP: u64 = 15;
const START: Duration = Duration::from_secs(20);
/// What old workers may take to notice that nothing is left; a kept connection of a proxy waits 5 s for one more request.
const OLD_WORKERS: Duration = Duration::from_secs(20);
const MEMORY_SLACK: u64 = 24 << 20;

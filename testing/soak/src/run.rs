//! A soak from start to verdict: quiet, warm-up, quiet, load, quiet.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::chaos::Action;
use crate::ledger::Ledger;
use crate::paths;
use crate::quiet::{Levels, compare, gauges_exist};
use crate::relay::{Links, Relay};
use crate::rng::Rng;
use crate::tally::{Sums, Tally};
use crate::visitor::{Route, Visit};

/// How to run it.
#[derive(Clone, Debug)]
pub struct Options {
    /// The gt binary.
    pub gt: PathBuf,
    /// Time under load, of which the first fifth is the warm-up.
    pub time: Duration,
    /// Seed of all visits and kills.
    pub seed: u64,
    /// Visitors at a time.
    pub visitors: u64,
    /// Longest time of one visit, killed or not.
    pub limit: Duration,
    /// With [`Links::Auto`] paths change instead of anything being killed, and nothing excuses a visit that fails.
    pub links: Links,
}

/// Runs it. The verdict is good when the sums have no failures.
///
/// # Errors
/// When the relay does not start, dies, or has no metrics: nothing can be said about the rest then.
pub fn run(options: &Options) -> Result<Sums> {
    ensure!(options.visitors > 0, "no visitors");
    let mut relay = Relay::start(&options.gt, options.links)?;
    let mut start = Levels::settled(&relay, None)?;
    gauges_exist(&start)?;
    if options.links == Links::Auto {
        // Links that are over UDP now share its sockets; those that end up over TCP have one each.
        start.descriptors += start.gauges[0].unwrap_or_default() as usize;
    }
    eprintln!("start: {start:?}");

    let (ledger, tally) = (Ledger::default(), Tally::default());
    let rng = Rng::new(options.seed);
    let warm_up = options.time / 5;
    phase(
        &mut relay,
        options,
        &rng.branch(0),
        warm_up,
        &ledger,
        &tally,
    )?;
    let warm = Levels::settled(&relay, Some(&start))?;
    eprintln!("warm: {warm:?}");
    phase(
        &mut relay,
        options,
        &rng.branch(1),
        options.time - warm_up,
        &ledger,
        &tally,
    )?;
    let end = Levels::settled(&relay, Some(&start))?;
    eprintln!("end: {end:?}");

    for wrong in compare(&start, &warm, &end) {
        tally.fail(wrong);
    }
    match options.links {
        Links::OneEach => eprintln!("{} kills", ledger.count()),
        Links::Auto => paths::report(&relay)?,
    }
    Ok(tally.sums())
}

/// Load and kills for a time. Kills run on this thread: the processes they start live as long as it does.
fn phase(
    relay: &mut Relay,
    options: &Options,
    rng: &Rng,
    time: Duration,
    ledger: &Ledger,
    tally: &Tally,
) -> Result<()> {
    let routes: Vec<Route> = relay
        .clients
        .iter()
        .map(|client| client.route.clone())
        .collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for number in 0..options.visitors {
            let (routes, stop, rng) = (&routes, &stop, rng.branch(1 + number));
            scope.spawn(move || visits(number, rng, routes, options.limit, stop, ledger, tally));
        }
        match options.links {
            Links::OneEach => kills(relay, rng.branch(0), time, ledger, tally),
            Links::Auto => paths::change(relay, rng.branch(0), time, tally),
        }
        stop.store(true, Ordering::Relaxed);
    });
    relay.check_running()
}

fn visits(
    number: u64,
    mut rng: Rng,
    routes: &[Route],
    limit: Duration,
    stop: &AtomicBool,
    ledger: &Ledger,
    tally: &Tally,
) {
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) && !tally.is_hopeless() {
        let client = rng.below(routes.len() as u64) as usize;
        let visit = Visit::draw(&mut rng);
        let from = Instant::now();
        let outcome = visit.make(&routes[client], limit);
        let touched = ledger.touched(client, visit.service(), from, Instant::now());
        tally.add(
            format_args!("visitor {number}, visit {count}, client {client}, {visit:?}"),
            &outcome,
            touched,
        );
        count += 1;
    }
}

fn kills(relay: &mut Relay, mut rng: Rng, time: Duration, ledger: &Ledger, tally: &Tally) {
    let end = Instant::now() + time;
    loop {
        let pause = Action::pause(&mut rng);
        // The pause is the time in which transfers must run undisturbed.
        std::thread::sleep(pause.min(end.saturating_duration_since(Instant::now())));
        if Instant::now() >= end || tally.is_hopeless() {
            return;
        }
        let action = Action::draw(&mut rng, relay.clients.len());
        match action.carry_out(relay, ledger) {
            Ok(back) => eprintln!("{action}: back after {:.2} s", back.as_secs_f64()),
            Err(error) => {
                eprintln!("{error:#}");
                tally.fail(format!("{error:#}"));
                if relay.check_running().is_err() {
                    return;
                }
            }
        }
    }
}

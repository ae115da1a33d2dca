//! A byte every 20 ms and its echo, first alone, then beside a download over the same link: what a person at a terminal feels.
//!
//! gt is given one link; frp has one; rathole has a connection per visitor and is there for comparison. Relays take turns.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::{ORIGIN_CORE, Setting, echoed, started};
use crate::lab::Lab;
use crate::load::{keystrokes, percentile};
use crate::peers::{Plan, Running, Subject, gt};
use crate::table::{Report, Table, spread};
use crate::{origin, tools, visit};

/// How to run it.
pub struct Options {
    /// Number of rounds.
    pub rounds: u32,
    /// Length of the quiet part and of the part with the download.
    pub length: Duration,
}

/// Measures and publishes.
///
/// # Errors
/// When an origin or a relay does not start, or no relay is there.
pub fn run(setting: &Setting, options: &Options) -> Result<()> {
    tools::require(&["nginx", "openssl", "taskset"])?;
    let lab = Lab::new("bench-keystroke")?;
    let nginx = origin::nginx(&lab, ORIGIN_CORE)?;
    let echo = origin::echo(&lab, None)?;
    let usual = [
        Subject::Gt(gt::Link::Tcp),
        Subject::RatholeTcp,
        Subject::FrpTcp,
        Subject::Gt(gt::Link::Tls),
        Subject::FrpTls,
    ];
    let mut field = Vec::new();
    for subject in setting
        .subjects(&usual)
        .into_iter()
        .filter(|subject| !subject.is_http())
    {
        let plan = Plan {
            origins: &[echo.at, nginx.at],
            links: Some(1),
            core: None,
        };
        if let Some((running, ())) = started(subject, &plan, &lab, &setting.tools, echoed)? {
            field.push((subject, running, Vec::new()));
        }
    }
    ensure!(!field.is_empty(), "no relay to measure");
    for round in 1..=options.rounds {
        for (subject, running, samples) in &mut field {
            match measure(running, options.length) {
                Ok(sample) => {
                    let [_, quiet, _, busy] = sample.millis();
                    eprintln!(
                        "round {round} {subject:<12} p99 {quiet:.2} ms quiet, {busy:.2} ms beside {:.0} MB/s",
                        sample.rate
                    );
                    samples.push(sample);
                }
                Err(error) => eprintln!(
                    "round {round} {subject:<12} failed: {error:#}\n{}",
                    running.logs()
                ),
            }
        }
    }

    let how = format!(
        "{} rounds, all relays in turn in each; one stream sends a byte each {PACE:?} and awaits its echo, {:?} quiet, then {:?} beside one download \
         over the same link (gt with `-remoteConnections 1`, frp with its multiplexer; rathole has a connection per visitor). Milliseconds, \
         median (least..greatest) of the rounds.",
        options.rounds, options.length, options.length
    );
    let mut report = Report::new(
        "keystroke",
        "Relay: keystrokes beside a download",
        &how,
        &setting.tools,
    );
    let mut table = Table::new([
        "relay",
        "quiet p50",
        "quiet p99",
        "busy p50",
        "busy p99",
        "p50 added",
        "p99 added",
        "download MB/s",
        "rounds",
    ]);
    for (subject, _, samples) in &field {
        let all = |figure: fn([f64; 4]) -> f64| {
            spread(
                samples
                    .iter()
                    .map(|sample: &Sample| figure(sample.millis())),
                2,
            )
        };
        table.row([
            subject.name().to_owned(),
            all(|m| m[0]),
            all(|m| m[1]),
            all(|m| m[2]),
            all(|m| m[3]),
            all(|m| m[2] - m[0]),
            all(|m| m[3] - m[1]),
            spread(samples.iter().map(|sample| sample.rate), 0),
            format!("{}/{}", samples.len(), options.rounds),
        ]);
    }
    report.table(&table);
    report.commands(&lab.started());
    report.publish(&setting.out)
}

struct Sample {
    quiet: Vec<Duration>,
    busy: Vec<Duration>,
    /// Of the download, in MB/s.
    rate: f64,
}

impl Sample {
    /// Quiet p50 and p99, busy p50 and p99.
    fn millis(&self) -> [f64; 4] {
        let of = |times: &[Duration], share| percentile(times, share).as_secs_f64() * 1e3;
        [
            of(&self.quiet, 0.5),
            of(&self.quiet, 0.99),
            of(&self.busy, 0.5),
            of(&self.busy, 0.99),
        ]
    }
}

fn measure(running: &Running, length: Duration) -> Result<Sample> {
    let mut stream = visit::connect(running.doors[0], None)?;
    let quiet = keystrokes(&mut stream, PACE, length).context("quiet")?;

    let done = Arc::new(AtomicBool::new(false));
    let got = Arc::new(AtomicU64::new(0));
    let (to, host) = (running.doors[1], running.host);
    let reader = std::thread::spawn({
        let (done, got) = (done.clone(), got.clone());
        move || visit::download_until(to, host, origin::LARGE_PATH, &done, &got)
    });
    let flowing = visit::until_ready(visit::PATIENCE, || {
        if got.load(Ordering::Relaxed) > 0 {
            Ok(())
        } else {
            bail!("no download")
        }
    });
    let before = got.load(Ordering::Relaxed);
    let start = std::time::Instant::now();
    let busy = flowing.and_then(|()| keystrokes(&mut stream, PACE, length).context("busy"));
    let rate = (got.load(Ordering::Relaxed) - before) as f64 / 1e6 / start.elapsed().as_secs_f64();
    done.store(true, Ordering::Relaxed);
    let download = reader.join();
    let busy = busy?;
    match download {
        Ok(result) => result.context("download")?,
        Err(_) => bail!("the download's thread panicked"),
    }
    Ok(Sample { quiet, busy, rate })
}

/// Between two bytes: somebody who types fast, or a held key.
const PACE: Duration = Duration::from_millis(20);

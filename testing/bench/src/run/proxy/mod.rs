//! Requests through each reverse proxy, in rounds: gt, nginx with and without kept connections, HAProxy. The proxy has core 0 for itself, origin
//! and load share core 1.
//!
//! All add the same fields (X-Forwarded-For, X-Real-IP), log nothing and use one thread; a round with any wrong answer is left out.

mod case;
mod subject;

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

pub use case::Case;
pub(super) use subject::Doors;
pub use subject::Subject;

use super::{ORIGIN_CORE, READY, RELAY_CORE, Setting};
use crate::lab::{Lab, Program};
use crate::load::Load;
use crate::procstat::{self, Usage};
use crate::table::{Report, Table, spread};
use crate::{floor, origin, tools, visit};

/// How to run it.
pub struct Options {
    /// The tables.
    pub cases: Vec<Case>,
    /// Number of rounds.
    pub rounds: u32,
    /// Seconds of load for each proxy in each round.
    pub seconds: u32,
    /// Connections of wrk.
    pub connections: u32,
    /// Visitors for [`Case::Idle`].
    pub visitors: u32,
    /// The proxies; none means all.
    pub proxies: Vec<Subject>,
    /// Another gt to measure beside this one.
    pub before: Option<PathBuf>,
}

/// A running proxy.
struct Entry {
    subject: Subject,
    program: Program,
    doors: Doors,
}

#[derive(Clone, Copy)]
struct Sample {
    load: Load,
    used: Duration,
    resident: u64,
}

/// Measures and publishes.
///
/// # Errors
/// When the origin or a proxy does not start.
pub fn run(setting: &Setting, options: &Options) -> Result<()> {
    tools::require(&["nginx", "wrk", "taskset", "haproxy", "openssl", "h2load"])?;
    origin::raise_descriptor_limit();
    let lab = Lab::new("bench-proxy")?;
    let nginx = origin::nginx(&lab, ORIGIN_CORE)?;
    let mut field = Vec::new();
    let before = options.before.as_deref();
    for subject in options.subjects() {
        let doors = Doors {
            plain: lab.address()?,
            tls: lab.address()?,
        };
        let line = subject.line(doors, nginx.at, &lab, &setting.tools, before)?;
        let program = lab.start(&format!("{subject:?}"), &line, Some(RELAY_CORE))?;
        visit::until_ready(READY, || Case::Small.answer_length(doors))
            .with_context(|| format!("{}: {}", subject.name(), program.log_tail()))?;
        field.push(Entry {
            subject,
            program,
            doors,
        });
    }
    let Options {
        rounds,
        seconds,
        connections,
        ..
    } = *options;
    let how = format!(
        "{rounds} rounds of {seconds} s, all proxies in turn in each round; wrk -t1 -c{connections} (unless a table says else), nginx behind (one process); \
         the proxy pinned to core {RELAY_CORE}, origin and load to core {ORIGIN_CORE}; one worker each, no access log, X-Forwarded-For and X-Real-IP added by all. CPU is user and \
         system time of all of the proxy's processes per request answered correctly. Cells are median (least..greatest) over the rounds; ratios are \
         taken round by round."
    );
    let mut report = Report::new("proxy", "Reverse proxy", &how, &setting.tools);
    for case in &options.cases {
        report.heading(case.title());
        if *case == Case::Idle {
            report.table(&idle(&field, options.visitors)?);
        } else {
            report.table(&measure(*case, &field, &lab, options));
        }
    }
    report.commands(&lab.started());
    report.publish(&setting.out)
}

impl Options {
    fn subjects(&self) -> Vec<Subject> {
        let mut subjects = self.proxies.clone();
        if subjects.is_empty() {
            subjects = Subject::ALL.to_vec();
            if self.before.is_none() {
                let before = [Subject::GtBefore, Subject::GtBeforeMultiplex];
                subjects.retain(|subject| !before.contains(subject));
            }
            if !floor::has_io_uring() {
                eprintln!("this system allows no io_uring: its floor is left out");
                subjects.retain(|subject| *subject != Subject::FloorUring);
            }
        }
        subjects
    }
}

/// One table of load.
fn measure(case: Case, field: &[Entry], lab: &Lab, options: &Options) -> Table {
    let field: Vec<_> = field
        .iter()
        .filter(|entry| entry.subject.can(case))
        .collect();
    let mut rounds: Vec<Vec<Option<Sample>>> = field.iter().map(|_| Vec::new()).collect();
    for entry in &field {
        if let Err(error) = case.run(entry.doors, options.connections, 1, ORIGIN_CORE, lab) {
            eprintln!("{}: warm-up: {error:#}", entry.subject.name());
        }
    }
    for round in 1..=options.rounds {
        for (entry, samples) in field.iter().zip(&mut rounds) {
            let sample = entry.measure(case, lab, options);
            let name = entry.subject.name();
            match &sample {
                Ok(s) => eprintln!(
                    "{case:?} {round} {name:<30} {:6.1} µs {:6.0}/s",
                    s.cpu(),
                    s.rate()
                ),
                Err(error) => eprintln!("{case:?} {round} {name} failed: {error:#}"),
            }
            samples.push(sample.ok());
        }
    }
    table(&field, &rounds)
}

impl Entry {
    fn measure(&self, case: Case, lab: &Lab, options: &Options) -> Result<Sample> {
        let family = procstat::family(self.program.pid());
        let usage = || {
            family
                .iter()
                .map(|pid| Usage::of(*pid))
                .collect::<Result<Vec<_>>>()
        };
        let before = usage()?;
        let load = case.run(
            self.doors,
            options.connections,
            options.seconds,
            ORIGIN_CORE,
            lab,
        )?;
        let used = usage()?
            .iter()
            .zip(&before)
            .map(|(now, before)| now.since(before))
            .sum();
        Ok(Sample {
            load,
            used,
            resident: self.resident()?,
        })
    }

    fn resident(&self) -> Result<u64> {
        procstat::family(self.program.pid())
            .iter()
            .map(|pid| procstat::resident(*pid))
            .sum()
    }
}

impl Sample {
    fn cpu(&self) -> f64 {
        self.used.as_secs_f64() * 1e6 / self.load.requests as f64
    }

    fn rate(&self) -> f64 {
        self.load.requests as f64 / self.load.time.as_secs_f64()
    }
}

fn table(field: &[&Entry], rounds: &[Vec<Option<Sample>>]) -> Table {
    let mut table = Table::new([
        "proxy",
        "CPU µs/request",
        "to gt",
        "to the floor",
        "requests/s",
        "p50 ms",
        "p99 ms",
        "RSS MiB",
        "rounds",
    ]);
    let place = |subject| field.iter().position(|entry| entry.subject == subject);
    let (gt, floor) = (place(Subject::Gt), place(Subject::Floor));
    for (entry, mine) in field.iter().zip(rounds) {
        let all = |figure: fn(&Sample) -> f64, decimals| {
            spread(mine.iter().flatten().map(figure), decimals)
        };
        let to = |other: Option<usize>| {
            let other = other.map_or(&[][..], |other| &rounds[other]);
            let pairs = mine.iter().zip(other);
            let ratios = pairs.filter_map(|(a, b)| Some(a.as_ref()?.cpu() / b.as_ref()?.cpu()));
            spread(ratios, 2)
        };
        table.row([
            entry.subject.name().to_owned(),
            all(Sample::cpu, 1),
            to(gt),
            to(floor),
            all(Sample::rate, 0),
            all(|s| s.load.p50.as_secs_f64() * 1e3, 2),
            all(|s| s.load.p99.as_secs_f64() * 1e3, 2),
            all(|s| s.resident as f64 / MIB, 1),
            format!("{}/{}", mine.iter().flatten().count(), mine.len()),
        ]);
    }
    table
}

/// Visitors who have made one request each and stay.
fn idle(field: &[Entry], visitors: u32) -> Result<Table> {
    let mut table = Table::new(["proxy", "visitors", "B/visitor", "MiB before", "MiB with"]);
    for entry in field.iter().filter(|entry| entry.subject.can(Case::Idle)) {
        let before = entry.resident()?;
        let mut there = Vec::new();
        for number in 0..visitors {
            // From several addresses, so that ports do not run out.
            let from = IpAddr::from(Ipv4Addr::new(127, 0, 0, 2 + (number / 4000) as u8));
            let mut stream = visit::connect(entry.doors.plain, Some(from))
                .with_context(|| format!("{}: visitor {number}", entry.subject.name()))?;
            visit::get_on(&mut stream, HOST, "/")
                .with_context(|| format!("{}: visitor {number}", entry.subject.name()))?;
            there.push(stream);
        }
        // Nothing announces that an allocator has given back: the time is part of the measurement.
        std::thread::sleep(SETTLE);
        let with = entry.resident()?;
        let last = there.last_mut().context("no visitor")?;
        visit::get_on(last, HOST, "/").context("after the wait")?;
        ensure!(with > 0, "no memory");
        table.row([
            entry.subject.name().to_owned(),
            visitors.to_string(),
            format!("{:.0}", (with as f64 - before as f64) / f64::from(visitors)),
            format!("{:.1}", before as f64 / MIB),
            format!("{:.1}", with as f64 / MIB),
        ]);
    }
    Ok(table)
}

const HOST: &str = "app.example.com";
const MIB: f64 = 1024.0 * 1024.0;
const SETTLE: Duration = Duration::from_secs(3);

//! Requests through each relay, in rounds: A, B, C, A, B, C, …, so that the machine's moods hit all of them.
//!
//! A subject's processes are started once and stay: an idle relay uses next to nothing, while one that has just started pays for
//! its first allocations. One unmeasured second warms each up. A round with any wrong answer is left out and counted as failed.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::{ORIGIN_CORE, RELAY_CORE, Setting, short_answer, started};
use crate::lab::Lab;
use crate::load::{Load, Wrk};
use crate::origin;
use crate::peers::{Plan, Running, Subject};
use crate::table::{Report, Table, spread};
use crate::tools;

/// How to run it.
pub struct Options {
    /// Number of rounds.
    pub rounds: u32,
    /// Seconds of load for each subject in each round.
    pub seconds: u32,
    /// Connections of wrk.
    pub connections: u32,
    /// Pin the relay's processes to core 0 and the load to core 1.
    pub pin: bool,
}

/// Measures and publishes.
///
/// # Errors
/// When the origin or a relay does not start, or no relay is there.
pub fn run(setting: &Setting, options: &Options) -> Result<()> {
    tools::require(&["nginx", "wrk", "openssl", "taskset"])?;
    origin::raise_descriptor_limit();
    let lab = Lab::new("bench-relay")?;
    let nginx = origin::nginx(&lab, ORIGIN_CORE)?;
    let mut field = Vec::new();
    for subject in setting.subjects(&Subject::usual()) {
        let plan = Plan {
            origins: &[nginx.at],
            links: None,
            core: options.pin.then_some(RELAY_CORE),
        };
        if let Some((running, answer)) =
            started(subject, &plan, &lab, &setting.tools, short_answer)?
        {
            field.push(Entry {
                subject,
                running,
                answer_length: answer.length,
                rounds: Vec::new(),
            });
        }
    }
    ensure!(!field.is_empty(), "no relay to measure");

    for entry in &field {
        if let Err(error) = entry.load(&lab, options, 1) {
            eprintln!("{}: warm-up: {error:#}", entry.subject);
        }
    }
    for round in 1..=options.rounds {
        for entry in &mut field {
            let sample = entry.measure(&lab, options);
            match &sample {
                Ok(s) => eprintln!(
                    "round {round} {:<12} {:6.1} µs {:6.0}/s",
                    entry.subject,
                    s.cpu(),
                    s.rate()
                ),
                Err(error) => eprintln!(
                    "round {round} {:<12} failed: {error:#}\n{}",
                    entry.subject,
                    entry.running.logs()
                ),
            }
            entry.rounds.push(sample.ok());
        }
    }
    report(setting, options, &lab, &field)
}

/// A relay in the field, with what it showed in each round.
struct Entry {
    subject: Subject,
    running: Running,
    answer_length: u64,
    rounds: Vec<Option<Sample>>,
}

/// One subject in one round.
#[derive(Clone, Copy)]
struct Sample {
    load: Load,
    server: Duration,
    client: Duration,
    resident: (u64, u64),
}

impl Entry {
    fn load(&self, lab: &Lab, options: &Options, seconds: u32) -> Result<Load> {
        let (to, host) = (self.running.doors[0], self.running.host);
        let core = options.pin.then_some(ORIGIN_CORE);
        Wrk {
            to,
            host,
            answer_length: self.answer_length,
            connections: options.connections,
            seconds,
            core,
        }
        .run(lab)
    }

    fn measure(&self, lab: &Lab, options: &Options) -> Result<Sample> {
        let before = self.running.cost()?;
        let load = self.load(lab, options, options.seconds)?;
        let (server, client) = self.running.cost()?.since(&before);
        Ok(Sample {
            load,
            server,
            client,
            resident: self.running.resident()?,
        })
    }
}

impl Sample {
    /// Processor µs of both processes per request.
    fn cpu(&self) -> f64 {
        self.micros(self.server + self.client)
    }

    fn micros(&self, used: Duration) -> f64 {
        used.as_secs_f64() * 1e6 / self.load.requests as f64
    }

    /// Requests per second.
    fn rate(&self) -> f64 {
        self.load.requests as f64 / self.load.time.as_secs_f64()
    }
}

fn report(setting: &Setting, options: &Options, lab: &Lab, field: &[Entry]) -> Result<()> {
    let Options {
        rounds,
        seconds,
        connections,
        pin,
    } = *options;
    let pinned = if pin {
        format!(
            "both relay processes pinned to core {RELAY_CORE}, origin and wrk to core {ORIGIN_CORE}"
        )
    } else {
        format!("origin pinned to core {ORIGIN_CORE}, relay processes and wrk unpinned")
    };
    let how = format!(
        "{rounds} rounds of {seconds} s, all relays in turn in each round; wrk -t1 -c{connections}, 12-byte body from nginx (one process); {pinned}. \
         CPU is user and system time of the relay's server and client processes together, per request answered correctly. Cells are \
         median (least..greatest) over the rounds; ratios are taken round by round."
    );
    let mut report = Report::new("relay", "Relay: small requests", &how, &setting.tools);
    let mut table = Table::new([
        "relay",
        "CPU µs/request",
        "of it server",
        "to rathole-tcp",
        "to rathole-tls",
        "to frp-tcp",
        "requests/s",
        "p50 ms",
        "p99 ms",
        "RSS MiB (server + client)",
        "rounds",
    ]);
    for entry in field {
        let all = |figure: fn(&Sample) -> f64, decimals| {
            spread(entry.rounds.iter().flatten().map(figure), decimals)
        };
        let good = entry.rounds.iter().flatten().count();
        table.row([
            entry.subject.name().to_owned(),
            all(Sample::cpu, 1),
            all(|s| s.micros(s.server), 1),
            ratio(entry, Subject::RatholeTcp, field),
            ratio(entry, Subject::RatholeTls, field),
            ratio(entry, Subject::FrpTcp, field),
            all(Sample::rate, 0),
            all(|s| s.load.p50.as_secs_f64() * 1e3, 2),
            all(|s| s.load.p99.as_secs_f64() * 1e3, 2),
            all(|s| (s.resident.0 + s.resident.1) as f64 / MIB, 1),
            format!("{good}/{}", entry.rounds.len()),
        ]);
    }
    report.table(&table);
    let mut commands = lab.started();
    if let Some(entry) = field.first() {
        let wrk = Wrk {
            to: entry.running.doors[0],
            host: entry.running.host,
            answer_length: 0,
            connections,
            seconds,
            core: None,
        };
        commands.push(lab.shown(&wrk.line(lab)?));
    }
    report.commands(&commands);
    report.publish(&setting.out)
}

/// CPU of one relay over that of another, of the rounds in which both were right.
fn ratio(entry: &Entry, base: Subject, field: &[Entry]) -> String {
    let Some(base) = field.iter().find(|other| other.subject == base) else {
        return "–".into();
    };
    let pairs = entry.rounds.iter().zip(&base.rounds);
    spread(
        pairs.filter_map(|(mine, theirs)| Some(mine.as_ref()?.cpu() / theirs.as_ref()?.cpu())),
        2,
    )
}

const MIB: f64 = 1024.0 * 1024.0;

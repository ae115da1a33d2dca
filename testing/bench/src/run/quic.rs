//! HTTP/3 servers in rounds: crate `quic` and quic-go's `http3.Server` do the same for the same load, each on core 0 for itself while the other is idle; the load has
//! core 1. What counts is the processor time of the server between the load's first request and its last answer.

use std::{
    fmt,
    io::{BufRead as _, BufReader, Write as _},
    net::{SocketAddr, UdpSocket},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};

use super::{ORIGIN_CORE, RELAY_CORE, Setting};
use crate::{
    http3::{Load, Work},
    lab::{Lab, Line, Program},
    peers::Certificate,
    procstat::Usage,
    table::{Report, Spread, Table, spread},
    tools,
};

/// How to run it.
pub struct Options {
    /// The tables.
    pub cases: Vec<Case>,
    /// Number of rounds.
    pub rounds: u32,
    /// Seconds of load for each server in each round.
    pub seconds: u64,
}

/// A table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Case {
    /// 200 connections, one request at a time in each.
    Requests,
    /// 10 connections with 20 requests at a time in each.
    Streams,
    /// A connection for each request.
    Connections,
    /// One body of 1 GiB.
    Bulk,
}

/// A row of a table.
#[derive(Clone, Copy)]
struct Job {
    name: &'static str,
    work: Work,
    connections: usize,
    streams: usize,
    size: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Gt,
    QuicGo,
}

/// A server that runs, and what it showed of one job in each round.
struct Entry {
    subject: Subject,
    program: Program,
    at: SocketAddr,
}

#[derive(Clone, Copy)]
struct Sample {
    load: Load,
    size: u64,
    server: Duration,
    /// The load's own.
    client: Duration,
}

/// Measures and publishes.
///
/// # Errors
/// When a server does not start, or any answer is wrong.
pub fn run(setting: &Setting, options: &Options) -> Result<()> {
    tools::require(&["openssl", "taskset"])?;
    let lab = Lab::new("bench-quic")?;
    let field = [Subject::Gt, Subject::QuicGo]
        .map(|subject| start(subject, &lab, setting).with_context(|| subject.to_string()));
    let [gt, other] = field;
    let field = [gt?, other?];
    let how = format!(
        "{} rounds of {} s, both servers in turn in each round, each alone on core {RELAY_CORE} while the other is idle; one load for both (quinn, one thread) on core \
         {ORIGIN_CORE}. gt is crate quic's HTTP/3 server, quic-go its http3.Server, with the same handler, certificate (ECDSA P-256), packet size (1452 bytes at most) and \
         receive windows. Figures are of the server's processor time, user and system, while the load runs. Cells are median (least..greatest) over the rounds; ratios are taken \
         round by round, above 1 where gt does more for the same time. \"Load busy\" is how much of its core the load used beside gt and quic-go: near 100 % the rate is the \
         load's limit, the processor time is not.",
        options.rounds, options.seconds
    );
    let mut report = Report::new("quic", "HTTP/3 beside quic-go", &how, &setting.tools);
    let go = setting.tools.peer(PEER)?;
    report.notes(&[format!("quic-go: {}", tools::version(&go, &["version"]))]);
    for case in &options.cases {
        report.heading(case.title());
        let mut table = Table::new(case.columns());
        for job in case.jobs() {
            let rounds = measure(&field, &lab, options, &job)?;
            table.row(row(*case, &job, &rounds));
        }
        report.table(&table);
    }
    report.notes(&link());
    let mut commands = lab.started();
    if let (Some(case), [gt, _]) = (options.cases.first(), &field)
        && let Some(job) = case.jobs().first()
    {
        commands.push(lab.shown(&load_line(job, gt.at, options.seconds)?));
    }
    commands.push("bench quic".into());
    report.commands(&commands);
    report.publish(&setting.out)
}

/// What the link's own table says in the unit of an older figure.
fn link() -> [String; 1] {
    ["gt's QUIC *link* is measured by `bench relay` (subject gt-quic). GT of 2023 took 100 to 110 µs for a request over its QUIC link where rathole took 37.5 µs beside it: 2.7 \
      to 2.9 times rathole. gt-quic's column \"to rathole-tcp\" says the same of today's, 0.78 (2026-11-21-relay.md): 3.4 to 3.8 times fewer µs, where 2.5 were wanted."
        .into()]
}

fn start(subject: Subject, lab: &Lab, setting: &Setting) -> Result<Entry> {
    let certificate = Certificate::in_lab(lab)?;
    // A port for UDP: what the lab gives is free for TCP, which gt's server takes as well.
    let at = loop {
        let at = lab.address()?;
        if UdpSocket::bind(at).is_ok() {
            break at;
        }
    };
    let line = match subject {
        Subject::Gt => Line::new(std::env::current_exe()?).arg("http3-server"),
        Subject::QuicGo => Line::new(setting.tools.peer(PEER)?),
    };
    let line = line.arg(at.to_string());
    let line = line.arg(certificate.cert).arg(certificate.key);
    let program = lab.start(&subject.to_string(), &line, Some(RELAY_CORE))?;
    Ok(Entry {
        subject,
        program,
        at,
    })
}

fn measure(
    field: &[Entry; 2],
    lab: &Lab,
    options: &Options,
    job: &Job,
) -> Result<Vec<[Sample; 2]>> {
    let take = |entry: &Entry, seconds| {
        one(entry, lab, seconds, job).with_context(|| {
            format!(
                "{}, {}: {}",
                entry.subject,
                job.name,
                entry.program.log_tail()
            )
        })
    };
    for entry in field {
        take(entry, 1)?;
    }
    let mut rounds = Vec::new();
    for round in 1..=options.rounds {
        let samples = [
            take(&field[0], options.seconds)?,
            take(&field[1], options.seconds)?,
        ];
        eprintln!(
            "round {round} {:<24} gt {:9.2}  quic-go {:9.2}  per CPU-ms, ratio {:.2}",
            job.name,
            samples[0].per_cpu(job) / 1e3,
            samples[1].per_cpu(job) / 1e3,
            samples[0].per_cpu(job) / samples[1].per_cpu(job)
        );
        rounds.push(samples);
    }
    Ok(rounds)
}

/// One load on one server.
fn one(entry: &Entry, lab: &Lab, seconds: u64, job: &Job) -> Result<Sample> {
    let log = std::fs::File::options()
        .create(true)
        .append(true)
        .open(lab.dir().join("load.log"))?;
    // It ends with its input, so nothing is left behind when the bench is killed.
    let mut child = load_line(job, entry.at, seconds)?
        .command(Some(ORIGIN_CORE))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()?;
    let mut input = child.stdin.take().context("the load has no input")?;
    let mut said = BufReader::new(child.stdout.take().context("the load has no output")?);
    let mut line = String::new();
    let sample = (|| {
        said.read_line(&mut line)?;
        ensure!(line.trim() == "ready", "the load failed: {}", lab_log(lab));
        let server = Usage::of(entry.program.pid())?;
        let client = Usage::of(child.id())?;
        input.write_all(b"go\n")?;
        line.clear();
        said.read_line(&mut line)?;
        let server = Usage::of(entry.program.pid())?.since(&server);
        let client = Usage::of(child.id())?.since(&client);
        let load = Load::parse(&line).with_context(|| lab_log(lab))?;
        Ok(Sample {
            load,
            size: job.size,
            server,
            client,
        })
    })();
    drop(input);
    if sample.is_err() {
        let _ = child.kill();
    }
    child.wait()?;
    sample
}

fn lab_log(lab: &Lab) -> String {
    std::fs::read_to_string(lab.dir().join("load.log")).unwrap_or_default()
}

fn load_line(job: &Job, to: SocketAddr, seconds: u64) -> Result<Line> {
    let work =
        clap::ValueEnum::to_possible_value(&job.work).context("a kind of work without a name")?;
    let line = Line::new(std::env::current_exe()?).arg("http3-load");
    let line = line.arg(to.to_string()).args(["--work", work.get_name()]);
    let line = line.args(["--connections", &job.connections.to_string()]);
    let line = line.args(["--streams", &job.streams.to_string()]);
    let line = line.args(["--size", &job.size.to_string()]);
    Ok(line.args(["--seconds", &seconds.to_string()]))
}

impl Sample {
    /// Requests, or bytes, for a second of the server's processor time.
    fn per_cpu(&self, job: &Job) -> f64 {
        self.amount(job) / self.server.as_secs_f64()
    }

    /// The same for a second of the clock.
    fn rate(&self, job: &Job) -> f64 {
        self.amount(job) / self.load.time.as_secs_f64()
    }

    fn amount(&self, job: &Job) -> f64 {
        match job.work {
            Work::Download | Work::Upload => self.size as f64,
            _ => self.load.requests as f64,
        }
    }

    fn busy(&self) -> f64 {
        self.client.as_secs_f64() / self.load.time.as_secs_f64() * 100.0
    }
}

fn row(case: Case, job: &Job, rounds: &[[Sample; 2]]) -> Vec<String> {
    let of = |place: usize, decimals, figure: &dyn Fn(&Sample) -> f64| {
        spread(rounds.iter().map(|both| figure(&both[place])), decimals)
    };
    let median = |place: usize, figure: &dyn Fn(&Sample) -> f64| {
        Spread::of(rounds.iter().map(|both| figure(&both[place]))).map_or(f64::NAN, |s| s.median)
    };
    let ratio = spread(
        rounds
            .iter()
            .map(|[gt, other]| gt.per_cpu(job) / other.per_cpu(job)),
        2,
    );
    let busy = format!(
        "{:.0} / {:.0}",
        median(0, &Sample::busy),
        median(1, &Sample::busy)
    );
    let mut cells = vec![job.name.to_owned()];
    if case == Case::Bulk {
        let gigabytes = |sample: &Sample| sample.size as f64 / f64::from(1 << 30);
        let cost = |sample: &Sample| sample.server.as_secs_f64() / gigabytes(sample);
        let rate = |sample: &Sample| sample.rate(job) * 8e-9;
        let faster = spread(
            rounds
                .iter()
                .map(|[gt, other]| gt.rate(job) / other.rate(job)),
            2,
        );
        cells.extend([of(0, 2, &cost), of(1, 2, &cost), ratio]);
        cells.extend([of(0, 2, &rate), of(1, 2, &rate), faster, busy]);
    } else {
        let per_cpu = |sample: &Sample| sample.per_cpu(job);
        let rate = |sample: &Sample| sample.rate(job);
        let times = |place| {
            let p50 = median(place, &|s| s.load.p50.as_secs_f64() * 1e3);
            let p99 = median(place, &|s| s.load.p99.as_secs_f64() * 1e3);
            format!("{p50:.2} / {p99:.2}")
        };
        cells.extend([of(0, 0, &per_cpu), of(1, 0, &per_cpu), ratio]);
        cells.extend([of(0, 0, &rate), of(1, 0, &rate), times(0), times(1), busy]);
    }
    cells
}

impl Case {
    fn title(self) -> &'static str {
        match self {
            Self::Requests => "GET over 200 connections, one request at a time in each",
            Self::Streams => "GET over 10 connections, 20 requests at a time in each",
            Self::Connections => "New connections, 32 at a time, each with one GET of 30 B",
            Self::Bulk => "One body of 1 GiB over one connection",
        }
    }

    fn columns(self) -> Vec<&'static str> {
        if self == Self::Bulk {
            return vec![
                "direction",
                "gt CPU s/GiB",
                "quic-go CPU s/GiB",
                "ratio",
                "gt Gbit/s",
                "quic-go Gbit/s",
                "ratio of rates",
                "load busy %",
            ];
        }
        let first = if self == Self::Connections {
            "handshakes"
        } else {
            "body"
        };
        vec![
            first,
            "gt per CPU-second",
            "quic-go per CPU-second",
            "ratio",
            "gt/s",
            "quic-go/s",
            "gt p50 / p99 ms",
            "quic-go p50 / p99 ms",
            "load busy %",
        ]
    }

    fn jobs(self) -> Vec<Job> {
        let bodies = |connections, streams| {
            let sizes = [
                ("30 B", 30),
                ("1 kB", 1000),
                ("5 kB", 5000),
                ("10 kB", 10_000),
            ];
            let job = |(name, size)| Job {
                name,
                work: Work::Requests,
                connections,
                streams,
                size,
            };
            sizes.map(job).to_vec()
        };
        let single = |name, work, connections, size| Job {
            name,
            work,
            connections,
            streams: 1,
            size,
        };
        match self {
            Self::Requests => bodies(200, 1),
            Self::Streams => bodies(10, 20),
            Self::Connections => vec![
                single("full", Work::Handshakes, 32, 30),
                single("resumed", Work::Resumptions, 32, 30),
            ],
            Self::Bulk => vec![
                single("download", Work::Download, 1, 1 << 30),
                single("upload", Work::Upload, 1, 1 << 30),
            ],
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gt => "gt",
            Self::QuicGo => "quic-go",
        })
    }
}

/// quic-go's side: `testing/interop/quic/bench`.
const PEER: &str = "quic-go-bench";

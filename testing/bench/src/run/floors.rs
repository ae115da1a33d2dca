//! What io_uring would bring: the floor by each driver, and by io_uring with one switch at a time turned, in rounds beside the floor by epoll.
//!
//! Pinned and loaded as [`super::proxy`] does it, whose cases these are. On a machine that does other things at the time, [`Options::together`]
//! gives ratios that hold, of figures that are too high for all.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::proxy::{Case, Doors};
use super::{ORIGIN_CORE, READY, RELAY_CORE, Setting};
use crate::lab::{Lab, Line, Program};
use crate::load::Load;
use crate::procstat::Usage;
use crate::table::{Report, Table, spread};
use crate::{floor, origin, tools, visit};

/// How to run it.
#[derive(Debug)]
pub struct Options {
    /// The tables: those without TLS.
    pub cases: Vec<Case>,
    /// Names of the floors to measure, or parts of them, besides epoll's; none means all.
    pub floors: Vec<String>,
    /// Number of rounds.
    pub rounds: u32,
    /// Seconds of load for each floor in each round.
    pub seconds: u32,
    /// Connections of wrk.
    pub connections: u32,
    /// Epoll's floor and the other at the same time, on the same core: what else the machine does happens to both.
    pub together: bool,
}

struct Entry {
    name: &'static str,
    program: Program,
    doors: Doors,
}

struct Sample {
    load: Load,
    used: Duration,
    threads: usize,
}

/// Measures and publishes.
///
/// # Errors
/// When there is no io_uring here, or the origin or a floor does not start.
pub fn run(setting: &Setting, options: &Options) -> Result<()> {
    tools::require(&["nginx", "wrk", "taskset"])?;
    ensure!(floor::has_io_uring(), "this system allows no io_uring");
    let relayed = |case: &Case| !matches!(case, Case::Tls | Case::H2 | Case::Idle);
    ensure!(
        options.cases.iter().all(relayed),
        "a floor speaks no TLS and has no idle visitors"
    );
    origin::raise_descriptor_limit();
    let lab = Lab::new("bench-floors")?;
    let nginx = origin::nginx(&lab, ORIGIN_CORE)?;
    let mut field = Vec::new();
    for (name, arguments) in FLOORS {
        let named = |part: &String| match FLOORS.iter().any(|(whole, _)| whole == part) {
            true => name == part,
            false => name.contains(part.as_str()),
        };
        if field.is_empty() || options.floors.is_empty() || options.floors.iter().any(named) {
            field.push(Entry::start(name, arguments, nginx.at, &lab)?);
        }
    }
    let Options {
        rounds,
        seconds,
        connections,
        ..
    } = options;
    let order = match options.together {
        false => "all floors in turn in each round, beginning with another one each time",
        true => {
            "each floor at the same time as epoll's on the same core, each with a wrk of its own"
        }
    };
    let how = format!(
        "{rounds} rounds of {seconds} s, {order}; wrk -t1 -c{connections}, nginx behind (one process); the floor \
         pinned to core {RELAY_CORE}, origin and load to core {ORIGIN_CORE}. CPU is user and system time of all threads of the floor per request answered \
         correctly. Cells are median (least..greatest) over the rounds; ratios and differences to epoll are taken round by round. System calls are counted in a round of their own."
    );
    let mut report = Report::new("io-uring-floors", "io_uring", &how, &setting.tools);
    for case in &options.cases {
        let at = format!("{}, {connections} connections", case.title());
        report.heading(&at);
        report.table(&measure(*case, &field, &lab, options));
    }
    report.commands(&lab.started());
    report.publish(&setting.out)
}

fn measure(case: Case, field: &[Entry], lab: &Lab, options: &Options) -> Table {
    let mut rounds: Vec<Vec<Option<Sample>>> = field.iter().map(|_| Vec::new()).collect();
    for entry in field {
        if let Err(error) = case.run(entry.doors, options.connections, 1, ORIGIN_CORE, lab) {
            eprintln!("{}: warm-up: {error:#}", entry.name);
        }
    }
    let mut epoll: Vec<Vec<Option<Sample>>> = field.iter().map(|_| Vec::new()).collect();
    for round in 0..options.rounds as usize {
        for nth in 0..field.len() {
            let nth = (nth + round) % field.len();
            let entry = &field[nth];
            let mut beside = None;
            let sample = if options.together && nth > 0 {
                std::thread::scope(|scope| {
                    let other = scope.spawn(|| {
                        let own = Lab::new("bench-floors-beside")?;
                        field[0].measure(case, &own, options)
                    });
                    let sample = entry.measure(case, lab, options);
                    beside = other.join().ok();
                    sample
                })
            } else {
                entry.measure(case, lab, options)
            };
            match &sample {
                Ok(s) => eprintln!(
                    "{case:?} {} {:<40} {:6.2} µs",
                    round + 1,
                    entry.name,
                    s.cpu()
                ),
                Err(error) => eprintln!("{case:?} {} {} failed: {error:#}", round + 1, entry.name),
            }
            rounds[nth].push(sample.ok());
            epoll[nth].push(beside.and_then(Result::ok));
        }
    }
    table(case, field, lab, options, &rounds, &epoll)
}

/// `epoll`: by floor, what epoll's took at the same time, where that was measured.
fn table(
    case: Case,
    field: &[Entry],
    lab: &Lab,
    options: &Options,
    rounds: &[Vec<Option<Sample>>],
    epoll: &[Vec<Option<Sample>>],
) -> Table {
    let mut table = Table::new([
        "floor",
        "CPU µs/request",
        "to epoll",
        "µs more than epoll",
        "requests/s",
        "p50 ms",
        "p99 ms",
        "system calls/request",
        "threads",
        "rounds",
    ]);
    for (nth, (entry, mine)) in field.iter().zip(rounds).enumerate() {
        let all = |figure: fn(&Sample) -> f64, decimals| {
            spread(mine.iter().flatten().map(figure), decimals)
        };
        let beside = |figure: fn(f64, f64) -> f64| {
            let epoll = match options.together && nth > 0 {
                true => &epoll[nth],
                false => &rounds[0],
            };
            let pairs = mine.iter().zip(epoll);
            let figures =
                pairs.filter_map(|(a, b)| Some(figure(a.as_ref()?.cpu(), b.as_ref()?.cpu())));
            spread(figures, 2)
        };
        let calls = entry.system_calls(case, lab, options);
        table.row([
            entry.name.to_owned(),
            all(Sample::cpu, 2),
            beside(|a, b| a / b),
            beside(|a, b| a - b),
            all(|s| s.load.requests as f64 / s.load.time.as_secs_f64(), 0),
            all(|s| s.load.p50.as_secs_f64() * 1e3, 2),
            all(|s| s.load.p99.as_secs_f64() * 1e3, 2),
            calls.map_or("–".to_owned(), |calls| format!("{calls:.2}")),
            all(|s| s.threads as f64, 0),
            format!("{}/{}", mine.iter().flatten().count(), mine.len()),
        ]);
    }
    table
}

impl Entry {
    fn start(
        name: &'static str,
        arguments: &[&str],
        origin: SocketAddr,
        lab: &Lab,
    ) -> Result<Self> {
        let doors = Doors {
            plain: lab.address()?,
            // None of these speaks TLS.
            tls: (Ipv4Addr::LOCALHOST, 1).into(),
        };
        let line = Line::new(std::env::current_exe()?)
            .arg("floor")
            .args(arguments)
            .arg(doors.plain.to_string())
            .arg(origin.to_string());
        let file: String = name
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .collect();
        let program = lab.start(&file, &line, Some(RELAY_CORE))?;
        visit::until_ready(READY, || Case::Small.answer_length(doors))
            .with_context(|| format!("{name}: {}", program.log_tail()))?;
        Ok(Self {
            name,
            program,
            doors,
        })
    }

    fn measure(&self, case: Case, lab: &Lab, options: &Options) -> Result<Sample> {
        let before = Usage::of(self.program.pid())?;
        let (connections, seconds) = (options.connections, options.seconds);
        let load = case.run(self.doors, connections, seconds, ORIGIN_CORE, lab)?;
        let used = Usage::of(self.program.pid())?.since(&before);
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.program.pid()))?.count();
        Ok(Sample {
            load,
            used,
            threads,
        })
    }

    /// Per request, if there is a `perf` that may count them.
    fn system_calls(&self, case: Case, lab: &Lab, options: &Options) -> Option<f64> {
        let perf = Command::new(tools::on_path("perf")?)
            .args(["stat", "-x,", "-e", "raw_syscalls:sys_enter", "-p"])
            .arg(self.program.pid().to_string())
            // It counts for longer than the load lasts: nothing is called before and after.
            .args(["sleep", "3"])
            .stderr(Stdio::piped())
            .spawn()
            .ok()?;
        std::thread::sleep(PERF_STARTS);
        let load = case.run(self.doors, options.connections, 1, ORIGIN_CORE, lab);
        let output = perf.wait_with_output().ok()?;
        let text = String::from_utf8_lossy(&output.stderr);
        let calls: f64 = text.split(',').next()?.trim().parse().ok()?;
        Some(calls / load.ok()?.requests as f64)
    }
}

impl Sample {
    fn cpu(&self) -> f64 {
        self.used.as_secs_f64() * 1e6 / self.load.requests as f64
    }
}

const PERF_STARTS: Duration = Duration::from_millis(500);
const URING: &str = "--driver=io-uring";
const FLOORS: [(&str, &[&str]); 17] = [
    ("epoll", &["--driver=epoll"]),
    ("epoll, 256 KiB", &["--driver=epoll", "--buffer=262144"]),
    ("epoll, sends at the end of the turn", &["--driver=late"]),
    ("hybrid: sends by io_uring", &["--driver=hybrid"]),
    ("io_uring", &[URING]),
    ("io_uring, sends complete", &[URING, "--skip-success=false"]),
    ("io_uring, COOP_TASKRUN", &[URING, "--task-run=coop"]),
    ("io_uring, interrupted", &[URING, "--task-run=interrupt"]),
    ("io_uring, plain descriptors", &[URING, "--direct=false"]),
    ("io_uring, ring not registered", &[URING, "--ring-fd=false"]),
    ("io_uring, SQ array", &[URING, "--no-sqarray=false"]),
    ("io_uring, single receives", &[URING, "--receive=single"]),
    ("io_uring, POLL_FIRST", &[URING, "--receive=poll-first"]),
    ("io_uring, min-wait 16/100", &[URING, "--min-wait=16/100"]),
    ("io_uring, min-wait 50/500", &[URING, "--min-wait=50/500"]),
    (
        "io_uring, 32 KiB buffers, bundle",
        &[URING, "--buffer=32768", "--buffers=512", "--bundle"],
    ),
    (
        "io_uring, no trick",
        &[
            URING,
            "--task-run=interrupt",
            "--receive=single",
            "--direct=false",
            "--ring-fd=false",
            "--no-sqarray=false",
            "--skip-success=false",
        ],
    ),
];

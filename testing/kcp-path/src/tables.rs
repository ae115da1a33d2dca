//! The questions, and their answers as Markdown tables.

use std::{thread, time::Duration};

use crate::{
    Shared,
    lab::{Lab, Pair},
    subject::Subject,
};

/// 100 Mbit/s and 50 ms each way; the queue holds what 100 ms bring.
const PATH: &str = "rate=100mbit,queue=100ms,delay=50ms";
const LINK: f64 = 100.0;
/// Seconds of start that do not count.
const WARM: u64 = 3;

/// What one run gave.
#[derive(Clone, Copy)]
struct Bulk {
    /// Mbit/s of application bytes at the receiver.
    goodput: f64,
    /// Bytes of IP packets that entered the path, per byte received.
    wire: f64,
    /// Packets sent again per packet sent, percent; over the whole run.
    again: Option<f64>,
}

/// Subjects in turns, round by round, each round with a seed of its own; the medians of the rounds with their least and most.
pub(crate) fn goodput(
    shared: &Shared,
    losses: &[u32],
    seconds: u64,
    rounds: u32,
) -> anyhow::Result<()> {
    println!(
        "| subject | loss | goodput Mbit/s | of link × (1 − p) | wire bytes / goodput | allowed | sent again % |"
    );
    println!("|---|---|---|---|---|---|---|");
    for loss in losses {
        let subjects = chosen(shared, Subject::BULK);
        let mut runs: Vec<Vec<Bulk>> = vec![Vec::new(); subjects.len()];
        for round in 0..rounds {
            for (subject, runs) in subjects.iter().zip(&mut runs) {
                match bulk(shared, *subject, *loss, seconds, u64::from(round)) {
                    Ok(run) => runs.push(run),
                    Err(error) => eprintln!("{} at {loss} %: {error:#}", subject.name()),
                }
            }
        }
        for (subject, runs) in subjects.iter().zip(&runs) {
            goodput_row(*subject, *loss, rounds, runs);
        }
    }
    Ok(())
}

fn goodput_row(subject: Subject, loss: u32, rounds: u32, runs: &[Bulk]) {
    let failed = rounds as usize - runs.len();
    let name = match failed {
        0 => subject.name(),
        _ => format!("{} ({failed} of {rounds} failed)", subject.name()),
    };
    let kept = 1.0 - f64::from(loss) / 100.0;
    let goodput = Spread::of(runs.iter().map(|run| run.goodput));
    let wire = Spread::of(runs.iter().map(|run| run.wire));
    let (Some(goodput), Some(wire)) = (goodput, wire) else {
        return println!("| {name} | {loss} % | failed | | | | |");
    };
    println!(
        "| {name} | {loss} % | {} | {:.0} % | {} | {:.3} | {} |",
        goodput.show(1),
        goodput.median / (LINK * kept) * 100.0,
        wire.show(3),
        1.1 / kept,
        Spread::of(runs.iter().filter_map(|run| run.again))
            .map_or_else(|| "-".to_owned(), |again| again.show(1)),
    );
}

/// What several rounds gave.
struct Spread {
    median: f64,
    least: f64,
    most: f64,
}

impl Spread {
    fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<_> = values.collect();
        values.sort_by(f64::total_cmp);
        Some(Self {
            median: *values.get(values.len() / 2)?,
            least: *values.first()?,
            most: *values.last()?,
        })
    }

    fn show(&self, digits: usize) -> String {
        let Self {
            median,
            least,
            most,
        } = self;
        match least == most {
            true => format!("{median:.digits$}"),
            false => format!("{median:.digits$} ({least:.digits$} to {most:.digits$})"),
        }
    }
}

fn bulk(
    shared: &Shared,
    subject: Subject,
    loss: u32,
    seconds: u64,
    round: u64,
) -> anyhow::Result<Bulk> {
    let up = format!("{PATH},loss={loss}%");
    let lab = Lab::new(&up, PATH, shared.seed + round, shared)?;
    let pair = start_bulk(&lab, subject, 7000, WARM, seconds)?;
    pair.receiver.expect("start", patience(WARM))?;
    let before = lab.report();
    let end = pair.receiver.expect("end", patience(seconds))?;
    let after = lab.report();
    let [bytes, nanos] = end[..] else {
        anyhow::bail!("{end:?} is not what a receiver says at the end");
    };
    let (again, sent) = if subject.is_tcp() {
        lab.tcp_retransmissions()?
    } else {
        let counters = pair.sender.expect("sent", patience(5))?;
        (counters[0], counters[1])
    };
    anyhow::ensure!(after.refused == 0, "the devices refused packets: {after}");
    Ok(Bulk {
        goodput: mbits(bytes, nanos),
        wire: (after.up.bytes_in - before.up.bytes_in) as f64 / bytes as f64,
        again: (sent > 0).then(|| again as f64 / sent as f64 * 100.0),
    })
}

fn start_bulk(
    lab: &Lab,
    subject: Subject,
    port: u16,
    warm: u64,
    seconds: u64,
) -> anyhow::Result<Pair> {
    let receive = [warm.to_string(), seconds.to_string()];
    // A little longer than is measured; the start may take its time.
    let send = [(warm + seconds + 2).to_string()];
    lab.start(subject, port, ("receive", &receive), ("send", &send))
}

/// Subjects in turns, round by round, each round with a seed of its own.
pub(crate) fn latency(shared: &Shared, count: u32, rounds: u32) -> anyhow::Result<()> {
    println!("| subject | p50 ms | p99 ms | most ms | messages a round |");
    println!("|---|---|---|---|---|");
    let subjects = chosen(shared, Subject::TALK);
    let mut runs: Vec<Vec<[f64; 3]>> = vec![Vec::new(); subjects.len()];
    for round in 0..rounds {
        for (subject, runs) in subjects.iter().zip(&mut runs) {
            match delays(shared, *subject, count, u64::from(round)) {
                Ok(run) => runs.push(run),
                Err(error) => eprintln!("{}: {error:#}", subject.name()),
            }
        }
    }
    for (subject, runs) in subjects.iter().zip(&runs) {
        let cells = [0, 1, 2].map(|i| {
            Spread::of(runs.iter().map(|run| run[i]))
                .map_or_else(|| "failed".to_owned(), |spread| spread.show(1))
        });
        let [p50, p99, most] = cells;
        println!("| {} | {p50} | {p99} | {most} | {count} |", subject.name());
    }
    Ok(())
}

/// Median, 99th percentile and most, in ms, of so many messages.
fn delays(shared: &Shared, subject: Subject, count: u32, round: u64) -> anyhow::Result<[f64; 3]> {
    let path = "rate=100mbit,queue=100ms,delay=50ms,loss=10%";
    let lab = Lab::new(path, path, shared.seed + round, shared)?;
    let pair = lab.start(
        subject,
        7000,
        ("listen", &[count.to_string()]),
        ("talk", &[]),
    )?;
    let within = Duration::from_millis(20 * u64::from(count)) * 2 + patience(0);
    let seen = pair.receiver.expect("latency", within)?;
    let [p50, p99, most, _] = seen[..] else {
        anyhow::bail!("{seen:?} is not what a listener says");
    };
    Ok([p50, p99, most].map(|micros| micros as f64 / 1e3))
}

pub(crate) fn fairness(shared: &Shared, seconds: u64) -> anyhow::Result<()> {
    println!("| subject | its goodput Mbit/s | CUBIC beside it | CUBIC's share |");
    println!("|---|---|---|---|");
    for subject in chosen(shared, Subject::BESIDE) {
        let lab = Lab::new(PATH, PATH, shared.seed, shared)?;
        // CUBIC first and alone: it has the whole link when the other one comes.
        // Its time is measured from when the other one's is.
        let cubic = start_bulk(&lab, Subject::TcpCubic, 7001, WARM + 4, seconds)?;
        thread::sleep(Duration::from_secs(4));
        let other = start_bulk(&lab, subject, 7000, WARM, seconds)?;
        let [own, beside] = [&other, &cubic].map(|pair| {
            let measured = || -> anyhow::Result<f64> {
                pair.receiver.expect("start", patience(WARM))?;
                let end = pair.receiver.expect("end", patience(seconds))?;
                let [bytes, nanos] = end[..] else {
                    anyhow::bail!("{end:?} is not what a receiver says at the end");
                };
                Ok(mbits(bytes, nanos))
            };
            measured()
        });
        match (own, beside) {
            (Ok(own), Ok(beside)) => println!(
                "| {} | {own:.1} | {beside:.1} | {:.0} % |",
                subject.name(),
                beside / (own + beside) * 100.0
            ),
            (own, beside) => {
                for error in [own.err(), beside.err()].into_iter().flatten() {
                    eprintln!("{} beside CUBIC: {error}", subject.name());
                }
                println!("| {} | failed | | |", subject.name());
            }
        }
    }
    Ok(())
}

fn chosen(shared: &Shared, all: &[Subject]) -> Vec<Subject> {
    match shared.only.is_empty() {
        true => all.to_vec(),
        false => shared.only.clone(),
    }
}

fn mbits(bytes: u64, nanos: u64) -> f64 {
    bytes as f64 * 8e3 / nanos as f64
}

/// How long something may take that should take so many seconds.
fn patience(seconds: u64) -> Duration {
    Duration::from_secs(seconds + 15)
}

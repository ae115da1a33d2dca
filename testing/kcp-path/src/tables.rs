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

pub(crate) fn goodput(
    shared: &Shared,
    losses: &[u32],
    seconds: u64,
    rounds: u32,
) -> anyhow::Result<()> {
    println!(
        "| subject | loss | goodput Mbit/s | of link × (1 − p) | wire bytes / goodput | allowed | sent again |"
    );
    println!("|---|---|---|---|---|---|---|");
    for loss in losses {
        for subject in chosen(shared, Subject::BULK) {
            let mut runs = Vec::new();
            for round in 0..rounds {
                match bulk(shared, subject, *loss, seconds, u64::from(round)) {
                    Ok(run) => runs.push(run),
                    Err(error) => eprintln!("{} at {loss} %: {error:#}", subject.name()),
                }
            }
            runs.sort_by(|a, b| a.goodput.total_cmp(&b.goodput));
            let Some(run) = runs.get(runs.len() / 2) else {
                println!("| {} | {loss} % | failed | | | | |", subject.name());
                continue;
            };
            let kept = 1.0 - f64::from(*loss) / 100.0;
            println!(
                "| {} | {loss} % | {:.1} | {:.0} % | {:.3} | {:.3} | {} |",
                subject.name(),
                run.goodput,
                run.goodput / (LINK * kept) * 100.0,
                run.wire,
                1.1 / kept,
                run.again
                    .map_or_else(|| "-".to_owned(), |again| format!("{again:.1} %")),
            );
        }
    }
    Ok(())
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

pub(crate) fn latency(shared: &Shared, count: u32) -> anyhow::Result<()> {
    println!("| subject | p50 ms | p99 ms | max ms | messages |");
    println!("|---|---|---|---|---|");
    for subject in chosen(shared, Subject::TALK) {
        let path = "rate=100mbit,queue=100ms,delay=50ms,loss=10%";
        let lab = Lab::new(path, path, shared.seed, shared)?;
        let count = [count.to_string()];
        let pair = lab.start(subject, 7000, ("listen", &count), ("talk", &[]))?;
        let within = Duration::from_millis(20 * count[0].parse::<u64>()?) * 2;
        let seen = pair.receiver.expect("latency", within)?;
        let [p50, p99, max, count] = seen[..] else {
            anyhow::bail!("{seen:?} is not what a listener says");
        };
        let ms = |micros: u64| micros as f64 / 1e3;
        println!(
            "| {} | {:.1} | {:.1} | {:.1} | {count} |",
            subject.name(),
            ms(p50),
            ms(p99),
            ms(max)
        );
    }
    Ok(())
}

pub(crate) fn fairness(shared: &Shared, seconds: u64) -> anyhow::Result<()> {
    println!("| subject | its goodput Mbit/s | CUBIC beside it | CUBIC's share |");
    println!("|---|---|---|---|");
    for subject in chosen(shared, Subject::BULK) {
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

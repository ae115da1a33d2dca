//! A download of 1 GiB through each relay: what a gibibyte costs, and how fast it goes.
//!
//! nginx sends a file of holes from the page cache; the bench reads and throws away, and its own time is not counted.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::{ORIGIN_CORE, RELAY_CORE, Setting, short_answer, started};
use crate::lab::Lab;
use crate::peers::{Plan, Running, Subject};
use crate::table::{Report, Table, spread};
use crate::{origin, tools, visit};

/// How to run it.
pub struct Options {
    /// Number of rounds.
    pub rounds: u32,
    /// Pin the relay's processes to core 0.
    pub pin: bool,
}

/// Measures and publishes.
///
/// # Errors
/// When the origin or a relay does not start, or no relay is there.
pub fn run(setting: &Setting, options: &Options) -> Result<()> {
    tools::require(&["nginx", "openssl", "taskset"])?;
    let lab = Lab::new("bench-bulk")?;
    let nginx = origin::nginx(&lab, ORIGIN_CORE)?;
    // Fills the page cache, so that the first relay does not pay for it.
    visit::download(nginx.at, "origin", origin::LARGE_PATH)?;
    let mut field = Vec::new();
    for subject in setting.subjects(&Subject::usual()) {
        let plan = Plan {
            origins: &[nginx.at],
            links: None,
            core: options.pin.then_some(RELAY_CORE),
        };
        if let Some((running, _)) = started(subject, &plan, &lab, &setting.tools, short_answer)? {
            field.push((subject, running, Vec::new()));
        }
    }
    ensure!(!field.is_empty(), "no relay to measure");
    for round in 1..=options.rounds {
        for (subject, running, samples) in &mut field {
            match measure(running) {
                Ok(sample) => {
                    eprintln!(
                        "round {round} {subject:<12} {:.2} s/GiB {:.0} MB/s",
                        sample.cpu(),
                        sample.rate()
                    );
                    samples.push(sample);
                }
                Err(error) => eprintln!("round {round} {subject:<12} failed: {error:#}"),
            }
        }
    }

    let placed = if options.pin {
        "relay processes pinned to core 0"
    } else {
        "relay processes and reader unpinned"
    };
    let how = format!(
        "{} rounds, all relays in turn in each; one visitor downloads 1 GiB from nginx (pinned to core {ORIGIN_CORE}); {placed}. CPU is that of \
         the relay's server and client processes. Cells are median (least..greatest).",
        options.rounds
    );
    let mut report = Report::new("bulk", "Relay: bulk download", &how, &setting.tools);
    let mut table = Table::new([
        "relay",
        "CPU s/GiB",
        "of it server",
        "MB/s",
        "RSS MiB after (server + client)",
        "rounds",
    ]);
    for (subject, _, samples) in &field {
        let all =
            |figure: fn(&Sample) -> f64, decimals| spread(samples.iter().map(figure), decimals);
        table.row([
            subject.name().to_owned(),
            all(Sample::cpu, 2),
            all(|s| s.server.as_secs_f64(), 2),
            all(Sample::rate, 0),
            all(|s| s.resident as f64 / 1024.0 / 1024.0, 1),
            format!("{}/{}", samples.len(), options.rounds),
        ]);
    }
    report.table(&table);
    report.commands(&lab.started());
    report.publish(&setting.out)
}

struct Sample {
    server: Duration,
    client: Duration,
    time: Duration,
    resident: u64,
}

impl Sample {
    /// Processor seconds per GiB: the download is one.
    fn cpu(&self) -> f64 {
        (self.server + self.client).as_secs_f64()
    }

    /// Megabytes (10^6) per second.
    fn rate(&self) -> f64 {
        origin::LARGE as f64 / 1e6 / self.time.as_secs_f64()
    }
}

fn measure(running: &Running) -> Result<Sample> {
    let before = running.cost()?;
    let (bytes, time) = visit::download(running.doors[0], running.host, origin::LARGE_PATH)?;
    let (server, client) = running.cost()?.since(&before);
    ensure!(bytes == origin::LARGE, "{bytes} bytes came");
    let resident = running.resident()?;
    Ok(Sample {
        server,
        client,
        time,
        resident: resident.0 + resident.1,
    })
}

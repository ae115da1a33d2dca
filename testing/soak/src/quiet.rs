//! What is left when nobody visits: memory, descriptors and gauges, before and after the load.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bench::procstat;

use crate::metrics::Metrics;
use crate::relay::Relay;

/// Levels at a quiet moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Levels {
    /// Resident bytes of the server.
    pub resident: u64,
    /// Open descriptors of the server.
    pub descriptors: usize,
    /// Open descriptors of each client.
    pub client_descriptors: Vec<usize>,
    /// The gauges of [`GAUGES`], in that order; `None` when the server has no such metric.
    pub gauges: [Option<f64>; 3],
}

/// Gauges that must return to their level: those of links to what they were, the others to zero.
pub const GAUGES: [&str; 3] = ["gt_links_open", "gt_streams_open", "gt_visitors_open"];

impl Levels {
    /// Reads them now.
    ///
    /// # Errors
    /// When a process is gone or the API does not answer.
    pub fn now(relay: &Relay) -> Result<Self> {
        let metrics = Metrics::fetch(relay.api)?;
        let server = procstat::family(relay.server.pid());
        let descriptors = |pid| {
            procstat::family(pid)
                .into_iter()
                .map(procstat::descriptors)
                .sum::<Result<usize>>()
        };
        let clients = relay
            .clients
            .iter()
            .map(|client| descriptors(client.program.pid()));
        Ok(Self {
            resident: server
                .iter()
                .map(|&pid| procstat::resident(pid))
                .sum::<Result<u64>>()?,
            descriptors: server
                .iter()
                .map(|&pid| procstat::descriptors(pid))
                .sum::<Result<usize>>()?,
            client_descriptors: clients.collect::<Result<_>>()?,
            gauges: GAUGES.map(|name| metrics.get(name)),
        })
    }

    /// Waits until streams and visitors are gone and nothing but memory has moved for a while, or, given earlier levels, until
    /// those are reached again; gives the last reading when patience is over, for [`compare`] to judge.
    ///
    /// # Errors
    /// As [`now`](Self::now).
    pub fn settled(relay: &Relay, earlier: Option<&Self>) -> Result<Self> {
        let end = Instant::now() + PATIENCE;
        let mut last = Self::now(relay)?;
        let mut since = Instant::now();
        loop {
            // Levels give no event to await.
            std::thread::sleep(Duration::from_millis(250));
            let now = Self::now(relay)?;
            if !now.same_but_memory(&last) {
                since = Instant::now();
            }
            let still_open = now.gauges[1..].iter().flatten().any(|&open| open > 0.0);
            let reached = earlier.is_none_or(|earlier| compare(earlier, &now, &now).is_empty());
            last = now;
            if (!still_open && reached && since.elapsed() >= STEADY) || Instant::now() >= end {
                return Ok(last);
            }
        }
    }

    fn same_but_memory(&self, other: &Self) -> bool {
        let Self {
            resident: _,
            descriptors,
            client_descriptors,
            gauges,
        } = self;
        (descriptors, client_descriptors, gauges)
            == (&other.descriptors, &other.client_descriptors, &other.gauges)
    }
}

/// What did not return to its level, in words. `start` is before any load; `warm` after the warm-up, for memory.
pub fn compare(start: &Levels, warm: &Levels, end: &Levels) -> Vec<String> {
    let mut wrong = Vec::new();
    let bound = warm.resident + (warm.resident / 4).max(MEMORY_SLACK);
    if end.resident > bound {
        wrong.push(format!(
            "server memory: {} KiB after the warm-up, {} KiB at the end",
            warm.resident / 1024,
            end.resident / 1024
        ));
    }
    if end.descriptors > start.descriptors {
        wrong.push(format!(
            "server descriptors: {} at the start, {} at the end",
            start.descriptors, end.descriptors
        ));
    }
    for (number, (before, after)) in start
        .client_descriptors
        .iter()
        .zip(&end.client_descriptors)
        .enumerate()
    {
        if after > before {
            wrong.push(format!(
                "descriptors of client {number}: {before} at the start, {after} at the end"
            ));
        }
    }
    let expected = [start.gauges[0], Some(0.0), Some(0.0)];
    for ((name, expected), found) in GAUGES.iter().zip(expected).zip(end.gauges) {
        match (expected, found) {
            (_, None) => wrong.push(format!("{name} is missing from /metrics")),
            (Some(expected), Some(found)) if expected != found => {
                wrong.push(format!("{name} is {found} instead of {expected}"))
            }
            _ => {}
        }
    }
    wrong
}

/// That all gauges are there: without them the end could not be judged.
///
/// # Errors
/// The names of those missing.
pub fn gauges_exist(levels: &Levels) -> Result<()> {
    let missing = GAUGES
        .iter()
        .zip(&levels.gauges)
        .filter(|(_, value)| value.is_none());
    let missing: Vec<&str> = missing.map(|(name, _)| *name).collect();
    ensure!(
        missing.is_empty(),
        "missing from /metrics: {}",
        missing.join(", ")
    );
    Ok(())
}

/// Nothing has moved for so long: it is quiet.
const STEADY: Duration = Duration::from_secs(2);

/// It must be quiet by then.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a small server's memory may grow by beyond a quarter: an allocator's arenas of a few threads.
const MEMORY_SLACK: u64 = 8 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn levels() -> Levels {
        Levels {
            resident: 20 << 20,
            descriptors: 40,
            client_descriptors: vec![10, 11],
            gauges: [Some(6.0), Some(0.0), Some(0.0)],
        }
    }

    #[test]
    fn levels_that_returned_pass() {
        let end = Levels {
            resident: 27 << 20,
            descriptors: 39,
            ..levels()
        };
        assert_eq!(compare(&levels(), &levels(), &end), Vec::<String>::new());
        assert!(gauges_exist(&end).is_ok());
    }

    #[test]
    fn each_leak_is_named() {
        let end = Levels {
            resident: 29 << 20,
            descriptors: 41,
            client_descriptors: vec![10, 12],
            gauges: [Some(7.0), Some(1.0), None],
        };
        let wrong = compare(&levels(), &levels(), &end);
        assert_eq!(wrong.len(), 6, "{wrong:?}");
        assert!(
            gauges_exist(&end)
                .unwrap_err()
                .to_string()
                .contains("gt_visitors_open")
        );
    }
}

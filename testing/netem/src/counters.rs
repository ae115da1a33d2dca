//! What a path did, and how late its shell was: numbers to print at the end and to compute with.

use std::{fmt, time::Duration};

/// What one direction did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that came.
    pub packets_in: u64,
    /// Their bytes.
    pub bytes_in: u64,
    /// Packets that arrived, duplicates too.
    pub packets_out: u64,
    /// Their bytes.
    pub bytes_out: u64,
    /// Dropped because the queue before the bottleneck was full.
    pub queue_drops: u64,
    /// Lost on the way, as asked for.
    pub lost: u64,
    /// Dropped because the path's own memory was full: more was on the way than it may hold. A figure other than zero says that
    /// the path did not do what was asked.
    pub line_drops: u64,
    /// Arrived with a flipped bit.
    pub corrupted: u64,
    /// Arrived twice.
    pub duplicated: u64,
    /// Held back so that others overtook.
    pub reordered: u64,
    /// Most bytes that waited before the bottleneck.
    pub queue_max: u64,
}

impl fmt::Display for Counters {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "in {} packets {} B, out {} packets {} B; dropped: queue {}, loss {}, memory {}; \
             corrupted {}, duplicated {}, reordered {}; queue max {} B",
            self.packets_in,
            self.bytes_in,
            self.packets_out,
            self.bytes_out,
            self.queue_drops,
            self.lost,
            self.line_drops,
            self.corrupted,
            self.duplicated,
            self.reordered,
            self.queue_max,
        )
    }
}

/// How late packets were passed on, against the time the path computed: the shell's own error.
#[derive(Clone, Debug)]
pub struct Lateness {
    /// Counts per power of two of nanoseconds, each in four steps.
    buckets: Vec<u64>,
    count: u64,
    max: Duration,
}

impl Default for Lateness {
    fn default() -> Self {
        Self {
            buckets: vec![0; 256],
            count: 0,
            max: Duration::ZERO,
        }
    }
}

impl Lateness {
    pub(crate) fn record(&mut self, late: Duration) {
        let nanos = u64::try_from(late.as_nanos()).unwrap_or(u64::MAX).max(4);
        let power = nanos.ilog2() as usize;
        let step = (nanos >> (power - 2)) as usize & 3;
        self.buckets[power * 4 + step] += 1;
        self.count += 1;
        self.max = self.max.max(late);
    }

    /// Packets counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The latest.
    pub fn max(&self) -> Duration {
        self.max
    }

    /// The lateness that `share` (0 to 1) of all packets do not exceed, rounded up by at most a quarter.
    pub fn quantile(&self, share: f64) -> Duration {
        let rank = (self.count as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank && seen > 0 {
                let (power, step) = (index / 4, index % 4);
                let above = (5 + step as u64) << (power - 2).min(58);
                return Duration::from_nanos(above).min(self.max);
            }
        }
        Duration::ZERO
    }
}

/// What a shell did until it ended, or until it was asked.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// How long it had run.
    pub time: Duration,
    /// From clients to the target; from the left namespace to the right one.
    pub up: Counters,
    /// The way back.
    pub down: Counters,
    /// Both directions together.
    pub lateness: Lateness,
    /// Packets that the filter did not let in.
    pub filtered: u64,
    /// Packets that a socket or device refused.
    pub refused: u64,
    /// Packets of new clients when there were already as many as may be.
    pub turned_away: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "after {:.1} s", self.time.as_secs_f64())?;
        writeln!(out, "up:   {}", self.up)?;
        writeln!(out, "down: {}", self.down)?;
        write!(
            out,
            "own lateness: p50 {:?}, p99 {:?}, max {:?}; not let in {}, refused by sockets {}, clients turned away {}",
            self.lateness.quantile(0.5),
            self.lateness.quantile(0.99),
            self.lateness.max(),
            self.filtered,
            self.refused,
            self.turned_away,
        )
    }
}

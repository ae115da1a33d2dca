//! What visitors saw, counted by way and kind: everything that a reload must not cause has a column of its own.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What went wrong with one request, message or transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nobody listened.
    Refused,
    /// The connection was reset, or ended under a request.
    Reset(String),
    /// An answer that is not 2xx.
    Status(u16),
    /// Bytes were lost, doubled or others than expected.
    Wrong(String),
    /// Not over in time.
    Late,
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::Refused,
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Self::Late,
            _ => Self::Reset(error.to_string()),
        }
    }
}

/// One line of the table.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// Requests, messages or transfers that were right.
    pub right: u64,
    /// [`Fault::Refused`].
    pub refused: u64,
    /// [`Fault::Reset`].
    pub reset: u64,
    /// [`Fault::Status`].
    pub status: u64,
    /// [`Fault::Wrong`].
    pub wrong: u64,
    /// [`Fault::Late`].
    pub late: u64,
    /// POST requests that reached the service more than once.
    pub doubled: u64,
    /// Bytes that were compared.
    pub bytes: u64,
    /// Times in microseconds, from the first byte sent (or the connection begun) to the last one received.
    pub times: Vec<u32>,
}

impl Row {
    /// All that must be zero.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.refused + self.reset + self.status + self.wrong + self.late + self.doubled
    }

    /// A share of the times, `1.0` for the longest; zero when there are none.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Duration {
        let mut times = self.times.clone();
        times.sort_unstable();
        let last = times.len().saturating_sub(1);
        let index = (last as f64 * share).round() as usize;
        Duration::from_micros(times.get(index).copied().unwrap_or(0).into())
    }
}

/// Counts of a run, shared by all visitors.
#[derive(Debug, Default)]
pub struct Counts(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    rows: BTreeMap<(String, &'static str), Row>,
    first: Vec<String>,
}

impl Counts {
    /// One that was right, with its time (`None` where time says nothing) and the bytes that were compared.
    pub fn right(&self, way: &str, kind: &'static str, took: Option<Duration>, bytes: u64) {
        let mut inner = self.lock();
        let row = inner.rows.entry((way.to_owned(), kind)).or_default();
        row.right += 1;
        row.bytes += bytes;
        let micros = took.map(|took| u32::try_from(took.as_micros()).unwrap_or(u32::MAX));
        row.times.extend(micros);
    }

    /// One that was not.
    pub fn wrong(&self, way: &str, kind: &'static str, fault: &Fault, when: Duration) {
        let mut inner = self.lock();
        let row = inner.rows.entry((way.to_owned(), kind)).or_default();
        match fault {
            Fault::Refused => row.refused += 1,
            Fault::Reset(_) => row.reset += 1,
            Fault::Status(_) => row.status += 1,
            Fault::Wrong(_) => row.wrong += 1,
            Fault::Late => row.late += 1,
        }
        if inner.first.len() < SHOWN {
            inner
                .first
                .push(format!("{way}, {kind}, after {when:.3?}: {fault:?}"));
        }
    }

    /// POST requests of a way that came more than once.
    pub fn doubled(&self, way: &str, kind: &'static str, count: u64) {
        let mut inner = self.lock();
        inner
            .rows
            .entry((way.to_owned(), kind))
            .or_default()
            .doubled += count;
    }

    /// The table so far and the first faults in words.
    #[must_use]
    pub fn table(&self) -> (Vec<(String, &'static str, Row)>, Vec<String>) {
        let inner = self.lock();
        let rows = inner.rows.iter();
        let rows = rows.map(|((way, kind), row)| (way.clone(), *kind, row.clone()));
        (rows.collect(), inner.first.clone())
    }

    /// All faults.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.lock().rows.values().map(Row::faults).sum()
    }

    /// Whether so much has gone wrong that going on would show nothing new.
    #[must_use]
    pub fn is_hopeless(&self) -> bool {
        self.faults() >= HOPELESS
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The table as Markdown.
impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| way | kind | right | refused | reset | non-2xx | wrong | late | doubled | MiB | median ms | p99 ms | worst ms |"
        )?;
        writeln!(f, "|---|---|{}", "--:|".repeat(11))?;
        for (way, kind, row) in self.table().0 {
            let ms = |share| match row.times.is_empty() {
                true => String::new(),
                false => format!("{:.1}", row.quantile(share).as_secs_f64() * 1e3),
            };
            writeln!(
                f,
                "| {way} | {kind} | {} | {} | {} | {} | {} | {} | {} | {:.1} | {} | {} | {} |",
                row.right,
                row.refused,
                row.reset,
                row.status,
                row.wrong,
                row.late,
                row.doubled,
                row.bytes as f64 / f64::from(1 << 20),
                ms(0.5),
                ms(0.99),
                ms(1.0),
            )?;
        }
        Ok(())
    }
}

/// Faults in words.
const SHOWN: usize = 40;
const HOPELESS: u64 = 2000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_its_column_and_times_are_ordered() {
        let counts = Counts::default();
        for ms in [5, 1, 9] {
            counts.right("a", "get", Some(Duration::from_millis(ms)), 10);
        }
        for fault in [
            Fault::Refused,
            Fault::Reset("end".into()),
            Fault::Status(502),
            Fault::Wrong("byte 1".into()),
            Fault::Late,
        ] {
            counts.wrong("a", "get", &fault, Duration::ZERO);
        }
        counts.doubled("a", "get", 2);
        let (rows, words) = counts.table();
        let row = &rows[0].2;
        assert_eq!(
            (row.refused, row.reset, row.status, row.wrong, row.late),
            (1, 1, 1, 1, 1)
        );
        assert_eq!(
            (row.right, row.bytes, row.faults(), words.len()),
            (3, 30, 7, 5)
        );
        assert_eq!(row.quantile(0.5), Duration::from_millis(5));
        assert_eq!(row.quantile(1.0), Duration::from_millis(9));
        assert!(
            counts
                .to_string()
                .contains("| a | get | 3 | 1 | 1 | 1 | 1 | 1 | 2 |")
        );
    }
}

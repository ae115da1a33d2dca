//! What happens on the endpoints of a server, counted over all workers.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Connections whose handshake succeeded.
    pub accepted: u64,
    /// Of them, those that have ended.
    pub ended: u64,
    /// Handshakes that failed or took too long.
    pub failed: u64,
    /// Clients that were asked to prove their address.
    pub retried: u64,
    /// Connections refused because there were too many.
    pub refused: u64,
    /// First packets ignored because too many handshakes were under way.
    pub ignored: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) accepted: AtomicU64,
    pub(crate) ended: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) retried: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) ignored: AtomicU64,
}

impl Counters {
    pub(crate) fn read(&self) -> Stats {
        Stats {
            accepted: self.accepted.load(Relaxed),
            ended: self.ended.load(Relaxed),
            failed: self.failed.load(Relaxed),
            retried: self.retried.load(Relaxed),
            refused: self.refused.load(Relaxed),
            ignored: self.ignored.load(Relaxed),
        }
    }
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

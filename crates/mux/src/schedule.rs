//! Whose turn it is: deficit round robin over the waiting streams, in two lists (RFC 8290 §4.1). A stream that has not used up
//! its quantum waits in `sparse`, which goes first; one that has waits in `bulk` and gets a new quantum for it. So in each round
//! of `bulk` every stream sends at most one quantum, and who sends little hardly waits. Short streams without end must not starve
//! the long ones: after a quantum's worth of bytes out of `sparse` it is the turn of `bulk`.

use std::collections::VecDeque;

use crate::types::Key;

/// Bytes a stream may send per round. Small enough that a round of a few bulk streams stays short on a slow link, large enough
/// that a read system call moves enough bytes to pay for itself (64 KiB of `read` costs about 6 times what 4 KiB costs).
pub(crate) const QUANTUM: i32 = 64 << 10;

/// A stream's standing with the scheduler.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    pub(crate) queued: bool,
    deficit: i32,
}

impl Default for Standing {
    fn default() -> Self {
        Self {
            queued: false,
            deficit: QUANTUM,
        }
    }
}

impl Standing {
    fn used(&mut self, bytes: i32) {
        self.deficit = self.deficit.saturating_sub(bytes);
    }

    /// What the stream may send in one go.
    pub(crate) fn allowance(&mut self) -> usize {
        if self.deficit <= 0 {
            self.deficit = QUANTUM;
        }
        usize::try_from(self.deficit).unwrap_or(0)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Schedule {
    sparse: VecDeque<Key>,
    bulk: VecDeque<Key>,
    /// Entries whose stream has ended or finished sending.
    stale: usize,
    /// Whether the latest turn came out of `sparse`.
    from_sparse: bool,
    /// Bytes sent in turns out of `sparse` since `bulk` had one.
    passed: i32,
}

impl Schedule {
    pub(crate) fn is_empty(&self) -> bool {
        self.sparse.len() + self.bulk.len() <= self.stale
    }

    pub(crate) fn push(&mut self, key: Key, standing: &mut Standing) {
        if standing.queued {
            return;
        }
        standing.queued = true;
        if standing.deficit >= LEAST_TURN {
            self.sparse.push_back(key);
        } else {
            // The rest counts in the next round.
            standing.deficit = standing.deficit.saturating_add(QUANTUM);
            self.bulk.push_back(key);
        }
    }

    /// The caller clears `queued` of the stream it gets, or calls [`Schedule::was_stale`].
    pub(crate) fn pop(&mut self) -> Option<Key> {
        let bulk_first = self.sparse.is_empty() || self.passed >= QUANTUM;
        if bulk_first && let Some(key) = self.bulk.pop_front() {
            self.from_sparse = false;
            self.passed = 0;
            return Some(key);
        }
        self.from_sparse = true;
        self.sparse.pop_front()
    }

    pub(crate) fn sent(&mut self, standing: &mut Standing, bytes: usize) {
        let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
        standing.used(bytes);
        if self.from_sparse && !self.bulk.is_empty() {
            self.passed = self.passed.saturating_add(bytes);
        }
    }

    /// The entry that `pop` gave belonged to a stream that needs no turn any more.
    pub(crate) fn was_stale(&mut self) {
        self.stale = self.stale.saturating_sub(1);
    }

    /// A stream needs no turn any more. Its entry is left where it is, unless most entries are such.
    pub(crate) fn forget(&mut self, standing: &mut Standing, is_live: impl Fn(Key) -> bool) {
        if !std::mem::take(&mut standing.queued) {
            return;
        }
        self.stale += 1;
        if self.stale > LEAST_SWEPT && self.stale > (self.sparse.len() + self.bulk.len()) / 2 {
            self.sparse.retain(|key| is_live(*key));
            self.bulk.retain(|key| is_live(*key));
            self.stale = 0;
        }
    }
}

/// The rest of a quantum that is worth a turn of its own.
const LEAST_TURN: i32 = 4 << 10;
/// Stale entries that are not worth a sweep.
const LEAST_SWEPT: usize = 64;

//! Whose turn it is: deficit round robin over the waiting streams, in two lists (RFC 8290 §4.1). A stream that has not used up
//! its quantum waits in `sparse`, which goes first; one that has waits in `bulk` and gets a new quantum for it. So in each round
//! of `bulk` every stream sends at most one quantum, and who sends little hardly waits.

use std::collections::VecDeque;

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
    pub(crate) fn used(&mut self, bytes: usize) {
        self.deficit = self
            .deficit
            .saturating_sub(i32::try_from(bytes).unwrap_or(i32::MAX));
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
    sparse: VecDeque<u32>,
    bulk: VecDeque<u32>,
}

impl Schedule {
    pub(crate) fn is_empty(&self) -> bool {
        self.sparse.is_empty() && self.bulk.is_empty()
    }

    pub(crate) fn push(&mut self, index: u32, standing: &mut Standing) {
        if standing.queued {
            return;
        }
        standing.queued = true;
        if standing.deficit > 0 {
            self.sparse.push_back(index);
        } else {
            standing.deficit = QUANTUM;
            self.bulk.push_back(index);
        }
    }

    /// The caller clears `queued` of the stream it gets (or ignores a stream that has ended).
    pub(crate) fn pop(&mut self) -> Option<u32> {
        self.sparse.pop_front().or_else(|| self.bulk.pop_front())
    }
}

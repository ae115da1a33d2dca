//! One stream: what each direction may still carry, and how it ends. Byte counts wrap at 32 bits, as they do on the wire.

use std::time::Duration;

use super::types::{LARGEST_WINDOW, Version, Violation};
use crate::schedule::Standing;

/// What a version 2 sender assumes of the other end's window until it is told.
pub const INITIAL_WINDOW: u32 = 262_144;

#[derive(Debug)]
pub(super) struct Stream {
    /// Wire id.
    pub(super) id: u32,
    pub(super) generation: u32,
    pub(super) send: Sending,
    pub(super) receive: Receiving,
    pub(super) standing: Standing,
}

impl Stream {
    pub(super) fn new(id: u32, generation: u32) -> Self {
        Self {
            id,
            generation,
            send: Sending {
                sent: 0,
                peer_consumed: 0,
                peer_window: INITIAL_WINDOW,
                finished: false,
                wants: false,
                stuck_since: None,
            },
            receive: Receiving {
                credit: INITIAL_WINDOW,
                unconsumed: 0,
                consumed: 0,
                announced: 0,
                window: INITIAL_WINDOW,
                told: false,
                finished: false,
            },
            standing: Standing::default(),
        }
    }

    /// Nothing will happen on it any more.
    pub(super) fn is_over(&self) -> bool {
        self.send.finished && self.receive.finished && self.receive.unconsumed == 0
    }

    /// Whether the stream has waited for window for `patience` although the peer has finished; looked at from time to time.
    pub(super) fn is_stuck(&mut self, now: Duration, patience: Duration) -> bool {
        if !(self.receive.finished && self.send.wants) {
            self.send.stuck_since = None;
            return false;
        }
        let since = *self.send.stuck_since.get_or_insert(now);
        now.saturating_sub(since) >= patience
    }
}

#[derive(Debug)]
pub(super) struct Sending {
    sent: u32,
    peer_consumed: u32,
    peer_window: u32,
    pub(super) finished: bool,
    /// The caller has bytes but there is no window.
    pub(super) wants: bool,
    stuck_since: Option<Duration>,
}

impl Sending {
    /// Bytes that may be sent now.
    pub(super) fn capacity(&self, version: Version) -> usize {
        match version {
            Version::V1 => usize::MAX,
            Version::V2 => self.peer_window.saturating_sub(self.in_flight()) as usize,
        }
    }

    pub(super) fn sent(&mut self, n: usize) {
        // Frames have at most 65,535 bytes.
        self.sent = self.sent.wrapping_add(n as u32);
    }

    /// The peer's word on what it has consumed and how large its window is.
    pub(super) fn update(&mut self, id: u32, consumed: u32, window: u32) -> Result<(), Violation> {
        let progress = consumed.wrapping_sub(self.peer_consumed);
        if progress > LARGEST_WINDOW {
            // Behind what was said before: two readers of a Go stream may overtake each other.
            return Ok(());
        }
        if progress > self.in_flight() {
            return Err(Violation::OverConsumed(id));
        }
        self.peer_consumed = consumed;
        self.peer_window = window.min(LARGEST_WINDOW);
        self.stuck_since = None;
        Ok(())
    }

    fn in_flight(&self) -> u32 {
        self.sent.wrapping_sub(self.peer_consumed)
    }
}

#[derive(Debug)]
pub(super) struct Receiving {
    /// Version 2: bytes the peer may still send.
    credit: u32,
    /// Bytes given to the caller that it has not passed on.
    pub(super) unconsumed: usize,
    /// Bytes passed on, ever.
    consumed: u32,
    /// `consumed` as the peer was last told.
    announced: u32,
    /// The window that the peer was told, or assumes.
    pub(super) window: u32,
    told: bool,
    pub(super) finished: bool,
}

impl Receiving {
    /// Counts `n` bytes that came.
    pub(super) fn received(
        &mut self,
        version: Version,
        id: u32,
        n: usize,
    ) -> Result<(), Violation> {
        if version == Version::V2 {
            let n = u32::try_from(n).unwrap_or(u32::MAX);
            self.credit = self
                .credit
                .checked_sub(n)
                .ok_or(Violation::OverWindow(id))?;
        }
        self.unconsumed += n;
        Ok(())
    }

    /// Counts bytes passed on, no more than came; whether the peer is to be told: at the first, and once half a window has gathered.
    pub(super) fn consume(&mut self, n: usize) -> bool {
        self.unconsumed -= n;
        self.consumed = self.consumed.wrapping_add(n as u32);
        let gathered = self.consumed.wrapping_sub(self.announced);
        let enough = if self.told { self.window / 2 } else { 0 };
        !self.finished && gathered >= enough.max(1)
    }

    /// What to tell the peer of consumed bytes along with `window`; from now on it is held to that.
    pub(super) fn announce(&mut self, window: u32) -> u32 {
        self.announced = self.consumed;
        self.window = window;
        self.told = true;
        // Go's sender may see the new count with the old window for a moment.
        let allowed = u64::from(window.max(INITIAL_WINDOW));
        let credit = allowed.saturating_sub(self.unconsumed as u64);
        self.credit = self.credit.max(u32::try_from(credit).unwrap_or(u32::MAX));
        self.consumed
    }
}

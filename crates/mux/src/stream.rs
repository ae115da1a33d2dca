//! One stream: what each direction may still carry, and how it ends.

use std::time::Duration;

use crate::schedule::Standing;

#[derive(Debug)]
pub(crate) struct Stream {
    /// Wire id.
    pub(crate) id: u32,
    pub(crate) generation: u32,
    pub(crate) send: Sending,
    pub(crate) receive: Receiving,
    pub(crate) standing: Standing,
}

impl Stream {
    pub(crate) fn new(
        id: u32,
        generation: u32,
        peer_window: u32,
        window: u32,
        now: Duration,
    ) -> Self {
        Self {
            id,
            generation,
            send: Sending {
                credit: peer_window,
                outstanding: 0,
                finished: false,
                wants: false,
            },
            receive: Receiving {
                credit: window,
                window,
                unconsumed: 0,
                consumed: 0,
                credited_at: now,
                finished: false,
            },
            standing: Standing::default(),
        }
    }

    /// Nothing will happen on it any more.
    pub(crate) fn is_over(&self) -> bool {
        self.send.finished && self.receive.finished && self.receive.unconsumed == 0
    }
}

#[derive(Debug)]
pub(crate) struct Sending {
    /// Bytes that may be sent before the peer gives more.
    pub(crate) credit: u32,
    /// Bytes sent for which no credit came back.
    pub(crate) outstanding: u64,
    pub(crate) finished: bool,
    /// The caller has bytes but there is no credit.
    pub(crate) wants: bool,
}

#[derive(Debug)]
pub(crate) struct Receiving {
    /// Bytes the peer may still send.
    pub(crate) credit: u32,
    /// Bytes the peer may have on the way; grows while the reader keeps up.
    pub(crate) window: u32,
    /// Bytes given to the caller that it has not passed on.
    pub(crate) unconsumed: u64,
    /// Bytes passed on for which no credit was given back.
    consumed: u32,
    credited_at: Duration,
    pub(crate) finished: bool,
}

impl Receiving {
    /// Counts bytes passed on; tells how much credit to give back now, if any: once half a window has gathered, or more than
    /// `hold` bytes.
    pub(crate) fn consume(
        &mut self,
        n: u32,
        limit: u32,
        hold: u32,
        round_trip: Duration,
        now: Duration,
    ) -> Option<u32> {
        self.unconsumed = self.unconsumed.saturating_sub(u64::from(n));
        self.consumed = self.consumed.saturating_add(n);
        if self.consumed < (self.window / 2).min(hold) {
            return None;
        }
        let kept_up = self.consumed >= self.window / 2;
        let mut credit = self.release()?;
        // Half a window in less than two round trips: the window, not the reader, sets the pace.
        if kept_up && now.saturating_sub(self.credited_at) < round_trip * 2 && self.window < limit {
            let grown = self.window.saturating_mul(2).min(limit);
            let more = grown - self.window;
            self.window = grown;
            self.credit = self.credit.saturating_add(more);
            credit = credit.saturating_add(more);
        }
        self.credited_at = now;
        Some(credit)
    }

    /// All credit that is held back.
    pub(crate) fn release(&mut self) -> Option<u32> {
        let credit = std::mem::take(&mut self.consumed);
        if self.finished || credit == 0 {
            return None;
        }
        self.credit = self.credit.saturating_add(credit);
        Some(credit)
    }
}

//! One stream: what each direction may still carry, how its window grows, and how it ends.

use std::time::Duration;

use crate::{path::Path, schedule::Standing};

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
        silence: u32,
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
                parked: None,
            },
            receive: Receiving {
                credit: window,
                window,
                unconsumed: 0,
                held: 0,
                holder: None,
                round: Round::new(silence, now),
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
    /// The caller has bytes but there is no credit, or not enough of the link's window is free.
    pub(crate) wants: bool,
    /// `outstanding` as it is noted in the set of streams that wait for the link's window.
    pub(crate) parked: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Receiving {
    /// Bytes the peer may still send.
    pub(crate) credit: u32,
    /// Bytes the peer may have on the way; grows while the reader keeps up.
    pub(crate) window: u32,
    /// Bytes given to the caller that it has not passed on.
    pub(crate) unconsumed: u32,
    /// Bytes passed on for which no credit was given back.
    pub(crate) held: u32,
    /// Place in the list of streams that hold credit back.
    pub(crate) holder: Option<u32>,
    round: Round,
    pub(crate) finished: bool,
}

/// What is learned while one window passes through.
#[derive(Debug)]
struct Round {
    began: Duration,
    /// Bytes credited since: a whole window makes a round.
    credited: u32,
    /// The link's latest silence that this stream knows of.
    silence: u32,
    /// The longest time for which the link was silent while the reader waited; of earlier rounds less and less.
    stall: Duration,
}

/// What one call of [`Receiving::consume`] gives the peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    /// Room of bytes that were passed on.
    pub(crate) returned: u32,
    /// Room that was not there before.
    pub(crate) grown: u32,
}

impl Round {
    fn new(silence: u32, now: Duration) -> Self {
        Self {
            began: now,
            credited: 0,
            silence,
            stall: Duration::ZERO,
        }
    }
}

impl Receiving {
    /// Counts bytes that came; `path` knows for how long nothing had.
    pub(crate) fn take(&mut self, n: u32, path: &Path) {
        let (silence, length) = path.silence();
        if std::mem::replace(&mut self.round.silence, silence) != silence && self.unconsumed == 0 {
            self.round.stall = self.round.stall.max(length);
        }
        self.unconsumed = self.unconsumed.saturating_add(n);
    }

    /// Counts bytes passed on; tells how much credit to give back now, if any: once a quarter of a window has gathered, or `hold`
    /// bytes. With halves, a sender whose window is one round trip's worth stands still for a third of the time.
    pub(crate) fn consume(
        &mut self,
        n: u32,
        limit: u32,
        hold: u32,
        path: &Path,
        now: Duration,
    ) -> Option<Grant> {
        self.unconsumed = self.unconsumed.saturating_sub(n);
        if self.finished {
            return None;
        }
        self.held = self.held.saturating_add(n);
        if self.held < (self.window / 4).min(hold) {
            return None;
        }
        let returned = self.release()?;
        Some(Grant {
            returned,
            grown: self.grow(returned, limit, path, now),
        })
    }

    /// A sender that waits for credit gets one window through in one round trip; one that does not, takes longer. Only the first has
    /// use for a larger window: for the second it would be a queue in front of everybody else's bytes. Where packets are lost, a
    /// transport that keeps its order stands still until they have come again, and only a window that lasts as long keeps the path
    /// busy meanwhile; so the time in which a window may pass has the longest such stall twice in it. A queue that is never empty
    /// makes round trips long but is never silent, and a reader that is behind does not wait: neither makes a window grow. Judged over
    /// whole windows, because parts come in bursts.
    fn grow(&mut self, returned: u32, limit: u32, path: &Path, now: Duration) -> u32 {
        self.round.credited = self.round.credited.saturating_add(returned);
        if self.round.credited < self.window {
            return 0;
        }
        let took = now.saturating_sub(self.round.began);
        let stall = self.round.stall;
        self.round = Round {
            stall: stall - stall / 8,
            ..Round::new(self.round.silence, now)
        };
        let round_trip = path.round_trip();
        let enough = round_trip.saturating_mul(3) / 2
            + stall.min(round_trip.saturating_mul(LONGEST_STALL)) * 2;
        if took >= enough || self.window >= limit {
            return 0;
        }
        // Far off: two steps at once, which end no further up than one from where it would just not be enough.
        let steps = if took * 2 < enough { 4 } else { 2 };
        let window = self.window.saturating_mul(steps).min(limit);
        let grown = window - self.window;
        self.window = window;
        self.credit = self.credit.saturating_add(grown);
        grown
    }

    /// All credit that is held back.
    pub(crate) fn release(&mut self) -> Option<u32> {
        let credit = std::mem::take(&mut self.held);
        if self.finished || credit == 0 {
            return None;
        }
        self.credit = self.credit.saturating_add(credit);
        Some(credit)
    }
}

/// Round trips of one stall that windows are made for: a packet that is lost eight times in a row at a loss of 10 % is one in 10^8, and
/// a link that stood still for longer was away.
const LONGEST_STALL: u32 = 8;

//! How much a paced sender may have out beside others in the same queue.
//!
//! The pacer's model knows no loss, so that a path that loses packets at random is used in full. But a flow of TCP in the same queue
//! gives way whenever that overflows, and a sender that never does gets all of it. What tells the two kinds of loss apart is the queue: it
//! overflows when it is full, and then round trips are long; random losses come at any length. So for each round trip: how
//! much was lost, and how far even the shortest round trip was above the path's. What is lost while the queue is short is the path's
//! own share of loss; more than that while the queue is long is ours, and what may be out shrinks and grows again as CUBIC's
//! window does (RFC 9438 §4).

use std::time::Duration;

use crate::Time;

/// What is left of what was out when the queue overflowed, in 1/1000: CUBIC's (RFC 9438 §4.6).
const BETA: u64 = 700;
/// Segments per second cubed: CUBIC's (RFC 9438 §5).
const CUBIC: f64 = 0.4;
/// The shortest and the longest round trip are those of so many spans.
const SPANS: usize = 6;
const SPAN: Duration = Duration::from_secs(10);
/// Timers and hosts are late by so much without any queue.
const NOISE: Duration = Duration::from_millis(4);

/// What is remembered of a span of time.
#[derive(Clone, Copy, Debug)]
struct Span {
    shortest: Duration,
    /// The longest that the queue was through a whole round trip.
    queue: Duration,
}

impl Span {
    const EMPTY: Self = Self {
        shortest: Duration::MAX,
        queue: Duration::ZERO,
    };
}

/// After so many round trips without a queue nobody else is there: another flow that gave way as well is back by then.
const ALONE: u32 = 16;

/// Round trips of a paced sender so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Rounds {
    /// All that are over.
    pub all: u64,
    /// Those of them in which losses may have been those of a full queue.
    pub queued: u64,
}

/// When the queue overflowed, and how much was out then.
#[derive(Clone, Copy, Debug)]
struct Cut {
    at: Time,
    before: u64,
}

/// A limit for what is out, from losses that this sender has a part in.
#[derive(Debug)]
pub(super) struct Share {
    mtu: u64,
    spans: [Span; SPANS],
    span: usize,
    span_end: Time,
    /// Of the round at hand.
    delivered: u64,
    lost: u64,
    shortest: Duration,
    most_out: u64,
    /// The path's own loss: bytes lost, of bytes, when the queue was short; of lately more than of long ago.
    known: (u64, u64),
    /// Rounds that say nothing of it.
    dirty: u32,
    rounds: Rounds,
    cut: Option<Cut>,
    /// The first round after a cut still has what was on its way before.
    rests: bool,
    /// Rounds in a row in which the queue was short though the limit was used.
    alone: u32,
    limit: u64,
}

impl Share {
    pub(super) fn new(mtu: u64) -> Self {
        Self {
            mtu,
            spans: [Span::EMPTY; SPANS],
            span: 0,
            span_end: Time::ZERO,
            delivered: 0,
            lost: 0,
            shortest: Duration::MAX,
            most_out: 0,
            known: (0, 0),
            dirty: 0,
            rounds: Rounds::default(),
            cut: None,
            rests: false,
            alone: 0,
            limit: u64::MAX,
        }
    }

    /// Bytes that may be out.
    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    pub(super) fn rounds(&self) -> Rounds {
        self.rounds
    }

    /// So many bytes are out.
    pub(super) fn out(&mut self, bytes: u64) {
        self.most_out = self.most_out.max(bytes);
    }

    pub(super) fn delivered(&mut self, bytes: u64) {
        self.delivered += bytes;
    }

    pub(super) fn lost(&mut self, bytes: u64) {
        self.lost += bytes;
    }

    pub(super) fn rtt(&mut self, now: Time, rtt: Duration) {
        self.shortest = self.shortest.min(rtt);
        if now >= self.span_end {
            self.span_end = now + SPAN;
            self.span = (self.span + 1) % SPANS;
            self.spans[self.span] = Span::EMPTY;
        }
        let span = &mut self.spans[self.span];
        span.shortest = span.shortest.min(rtt);
    }

    /// A round trip is over. Says whether the queue overflowed in it. `product` is what the path holds of ours without a queue, in bytes.
    pub(super) fn end_round(&mut self, now: Time, product: u64) -> bool {
        let (lost, all) = (self.lost, self.lost + self.delivered);
        let (shortest, most_out) = (self.shortest, self.most_out);
        (self.delivered, self.lost, self.most_out) = (0, 0, 0);
        self.shortest = Duration::MAX;
        let least = self.spans.iter().map(|span| span.shortest).min();
        let queue = shortest.saturating_sub(least.unwrap_or(shortest));
        if shortest == Duration::MAX {
            return false;
        }
        let span = &mut self.spans[self.span];
        span.queue = span.queue.max(queue);
        let longest = self.spans.iter().map(|span| span.queue).max();
        let is_long = queue > NOISE && queue >= longest.unwrap_or(queue) / 2;
        // Who had less out than the path holds had nothing in the queue. An application that stands still until something is sent again has
        // few packets out, of which a few lost ones are many, and a limit made of those few would hold for half a minute.
        let has_part = most_out > product;
        let overflowed = is_long && has_part && lost > self.expected(all);
        // Losses are noticed late: those of the rounds after an overflow are the overflow's.
        self.dirty = if overflowed {
            3
        } else {
            self.dirty.saturating_sub(1)
        };
        let queued = is_long || self.dirty > 0;
        self.rounds.all += 1;
        self.rounds.queued += u64::from(queued);
        if !queued {
            self.known = (self.known.0 * 7 / 8 + lost, self.known.1 * 7 / 8 + all);
        }
        if overflowed && !self.rests {
            self.cut = Some(Cut {
                at: now,
                before: most_out.max(self.mtu),
            });
        }
        self.rests = overflowed && !self.rests;
        let alone = queue <= NOISE && most_out >= self.limit / 2;
        self.alone = if alone { self.alone + 1 } else { 0 };
        self.grow(now);
        self.rests
    }

    /// The most bytes of so many that the path loses by itself, as good as certain (three standard deviations).
    fn expected(&self, all: u64) -> u64 {
        let mean = self.known.0 as f64 * all as f64 / self.known.1.max(1) as f64;
        (1.25 * mean + 3.0 * (mean * self.mtu as f64).sqrt()) as u64
    }

    /// The limit at this time.
    fn grow(&mut self, now: Time) {
        let Some(cut) = &mut self.cut else {
            return;
        };
        if self.alone >= ALONE {
            // As if the cut had been later and higher: the limit goes up by a quarter for each round trip.
            cut.before += cut.before / 4;
        }
        let before = cut.before as f64 / self.mtu as f64;
        let kept = BETA as f64 / 1000.0;
        let back = (before * (1.0 - kept) / CUBIC).cbrt();
        let since = now.since(cut.at).as_secs_f64();
        let segments = CUBIC * (since - back).powi(3) + before;
        self.limit = (segments * self.mtu as f64) as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MTU: u64 = 1000;

    /// A round of 200 datagrams at a round trip of so many milliseconds, of which so many are lost.
    fn round(share: &mut Share, at: u64, rtt: u64, lost: u64) -> bool {
        let now = Time::from_millis(at);
        share.out(200 * MTU);
        share.rtt(now, Duration::from_millis(rtt));
        share.delivered((200 - lost) * MTU);
        share.lost(lost * MTU);
        share.end_round(now, 100 * MTU)
    }

    #[test]
    fn losses_at_any_length_of_the_queue_are_the_paths_own() {
        let mut share = Share::new(MTU);
        for i in 1..200 {
            let rtt = if i % 8 == 0 { 120 } else { 100 };
            let lost = 15 + i * 7 % 11;
            assert!(!round(&mut share, 100 * i, rtt, lost), "round {i}");
        }
        assert_eq!(share.limit(), u64::MAX);
        assert!(round(&mut share, 30_000, 150, 60), "three times as much");
    }

    #[test]
    fn a_queue_that_overflows_shrinks_the_limit_which_grows_back() {
        let mut share = Share::new(MTU);
        for i in 1..20 {
            assert!(!round(&mut share, 100 * i, 100, 0));
        }
        assert!(round(&mut share, 2000, 190, 2));
        assert_eq!(share.limit() / MTU, 140);
        assert!(!round(&mut share, 2100, 190, 2), "lost before the cut");
        assert!(round(&mut share, 2200, 190, 2));
        let mut last = share.limit();
        for i in 0..200 {
            assert!(!round(&mut share, 2300 + 100 * i, 190, 0));
            assert!(share.limit() >= last);
            last = share.limit();
        }
        assert!(last > 200 * MTU, "{last}");
    }

    #[test]
    fn who_has_little_out_is_not_limited_by_what_is_lost_of_it() {
        let mut share = Share::new(MTU);
        for i in 1..20 {
            assert!(!round(&mut share, 100 * i, 100, 0));
        }
        let now = Time::from_millis(2000);
        share.out(4 * MTU);
        share.rtt(now, Duration::from_millis(190));
        share.delivered(2 * MTU);
        share.lost(2 * MTU);
        assert!(!share.end_round(now, 100 * MTU));
        assert_eq!(share.limit(), u64::MAX);
    }

    #[test]
    fn who_is_alone_gets_back_soon() {
        let mut share = Share::new(MTU);
        round(&mut share, 100, 100, 0);
        assert!(round(&mut share, 200, 200, 50));
        for i in 3..30 {
            round(&mut share, 100 * i, 100, 0);
        }
        assert!(share.limit() > 300 * MTU, "{}", share.limit());
    }
}

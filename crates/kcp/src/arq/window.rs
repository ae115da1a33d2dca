//! How much may be in flight: the peer's window, our own, and the congestion window where it is on; and the probing of a
//! closed peer window.

use std::time::Duration;

use crate::Time;

/// KCP's initial window, before the peer has told its own.
const INITIAL_WINDOW: u32 = 32;
const THRESHOLD_MIN: u32 = 2;
const PROBE_FIRST: Duration = Duration::from_millis(500);
const PROBE_MAX: Duration = Duration::from_secs(120);

/// Send windows, in segments.
#[derive(Debug)]
pub(super) struct Windows {
    pub(super) ours: u32,
    peer: u32,
    congestion: u32,
    threshold: u32,
    /// The congestion window in bytes: it grows by parts of a segment.
    bytes: u64,
}

impl Windows {
    pub(super) fn new(ours: u32) -> Self {
        Self {
            ours,
            peer: INITIAL_WINDOW,
            congestion: 1,
            threshold: THRESHOLD_MIN,
            bytes: 0,
        }
    }

    /// How many segments may be between `una` and `next`.
    pub(super) fn limit(&self, congestion_control: bool) -> usize {
        let limit = self.ours.min(self.peer);
        (if congestion_control {
            limit.min(self.congestion)
        } else {
            limit
        }) as usize
    }

    pub(super) fn set_peer(&mut self, window: u16) {
        self.peer = u32::from(window);
    }

    pub(super) fn peer_closed(&self) -> bool {
        self.peer == 0
    }

    /// `una` moved: slow start below the threshold, then about one segment per round trip.
    pub(super) fn on_progress(&mut self, mss: usize) {
        let mss = mss.max(1) as u64;
        if self.congestion >= self.peer {
            return;
        }
        if self.congestion < self.threshold {
            self.congestion += 1;
            self.bytes += mss;
        } else {
            self.bytes = self.bytes.max(mss);
            self.bytes += mss * mss / self.bytes + mss / 16;
            if u64::from(self.congestion + 1) * mss <= self.bytes {
                self.congestion = u32::try_from(self.bytes.div_ceil(mss)).unwrap_or(u32::MAX);
            }
        }
        if self.congestion > self.peer {
            self.congestion = self.peer;
            self.bytes = u64::from(self.peer) * mss;
        }
    }

    /// Segments were lost and others got through: halve.
    pub(super) fn on_fast_loss(&mut self, in_flight: usize, resend: u32, mss: usize) {
        self.threshold = (in_flight as u32 / 2).max(THRESHOLD_MIN);
        self.congestion = self.threshold.saturating_add(resend.min(32));
        self.bytes = u64::from(self.congestion) * mss as u64;
    }

    /// Nothing gets through: start over.
    pub(super) fn on_timeout(&mut self, mss: usize) {
        self.threshold = (self.limit(true) as u32 / 2).max(THRESHOLD_MIN);
        self.congestion = 1;
        self.bytes = mss as u64;
    }
}

/// The timer that asks a peer for its window while that is closed.
#[derive(Debug, Default)]
pub(super) struct Probe {
    next: Option<(Time, Duration)>,
    ask: bool,
    /// Probes sent since the peer was last heard.
    unanswered: u32,
}

impl Probe {
    /// Starts or stops probing.
    pub(super) fn set(&mut self, closed: bool, now: Time) {
        match (closed, self.next) {
            (true, None) => self.next = Some((now + PROBE_FIRST, PROBE_FIRST)),
            (false, Some(_)) => *self = Self::default(),
            _ => {}
        }
    }

    /// The peer was heard.
    pub(super) fn heard(&mut self) {
        self.unanswered = 0;
    }

    pub(super) fn due(&self) -> Option<Time> {
        self.next.map(|(at, _)| at)
    }

    /// Plans a probe when its time has come. Returns how many went unanswered.
    pub(super) fn expire(&mut self, now: Time) -> u32 {
        if let Some((at, wait)) = self.next
            && at <= now
        {
            let wait = (wait * 3 / 2).min(PROBE_MAX);
            self.next = Some((now + wait, wait));
            self.ask = true;
            self.unanswered += 1;
        }
        self.unanswered
    }

    pub(super) fn wants_ask(&self) -> bool {
        self.ask
    }

    pub(super) fn take_ask(&mut self) -> bool {
        std::mem::take(&mut self.ask)
    }
}

/// Holds back what has timed out, beyond a few segments, until one of those is answered.
///
/// A receiver acknowledges a whole window in one or two datagrams. When those are lost, everything in flight times out,
/// though all of it has arrived; a few segments sent again bring the acknowledgement back, or the evidence of what is lost.
/// KCP's rule, to send all again, costs a window for each lost acknowledgement.
#[derive(Debug, Default)]
pub(super) struct Tries {
    /// Segments sent again since the peer was last heard.
    spent: u32,
    /// Rounds since then.
    round: u32,
    /// When the next round may start.
    next: Option<Time>,
}

impl Tries {
    /// Segments of the first round: what a short burst loses goes out again at once.
    const FIRST: u32 = 16;

    /// Whether another segment that timed out may go. Without `resend` only the timeout repairs, so nothing is held back.
    pub(super) fn allow(&mut self, resend: u32, now: Time) -> bool {
        if resend == 0 || self.spent < self.bound() {
            return true;
        }
        if self.next.is_none_or(|next| next <= now) {
            self.round += 1;
            self.next = None;
        }
        self.spent < self.bound()
    }

    /// Notes one that went; if it is not answered by `next`, more may go.
    pub(super) fn spent(&mut self, next: Time) {
        self.spent = self.spent.saturating_add(1);
        self.next = Some(next);
    }

    /// The peer was heard.
    pub(super) fn heard(&mut self) {
        *self = Self::default();
    }

    /// When a timeout that is due at `at` can be acted on.
    pub(super) fn delay(&self, resend: u32, at: Option<Time>) -> Option<Time> {
        if resend == 0 || self.spent < self.bound() {
            return at;
        }
        at.max(at.and(self.next))
    }

    /// Each round may send three times as much as all before.
    fn bound(&self) -> u32 {
        Self::FIRST.saturating_mul(4_u32.saturating_pow(self.round))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_congestion_window_starts_slow_and_halves_on_loss() {
        let mut windows = Windows::new(1000);
        windows.set_peer(1000);
        assert_eq!(windows.limit(true), 1);
        for _ in 0..5000 {
            windows.on_progress(1000);
        }
        let grown = windows.limit(true);
        assert!(grown > 50 && grown <= 1000, "{grown}");
        windows.on_fast_loss(grown, 2, 1000);
        assert_eq!(windows.limit(true), grown / 2 + 2);
        windows.on_timeout(1000);
        assert_eq!(windows.limit(true), 1);
        assert_eq!(windows.limit(false), 1000);
    }

    #[test]
    fn probes_space_out_up_to_two_minutes() {
        let mut probe = Probe::default();
        probe.set(true, Time::ZERO);
        let mut now = Time::ZERO;
        for _ in 0..40 {
            now = probe.due().expect("probing");
            probe.expire(now);
            assert!(probe.take_ask());
        }
        assert_eq!(probe.due().expect("probing").since(now), PROBE_MAX);
        probe.set(false, now);
        assert_eq!(probe.due(), None);
    }
}

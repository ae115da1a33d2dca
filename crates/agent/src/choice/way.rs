//! One way: what its transport is like, what was measured of it, and what it costs.
//!
//! A way's round-trip time is the shortest of the last minute, which is what the path takes, and beside it a mean. A way that is probed once a
//! minute would carry one bad moment for many in its mean; and its shortest is of few, while that of a link in use is of many. So there are two
//! costs, and a comparison has two results.

use std::{fmt, time::Duration};

/// What is known of a transport before anything is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traits {
    /// What a loss of all packets would add to the cost, in multiples: one lost packet stops all streams of a TCP link, one of a QUIC link.
    pub(crate) loss_weight: f64,
    /// What it costs beside its time, as a factor: bytes, or work.
    pub(crate) burden: f64,
    /// Whether it sends more slowly whenever a packet is lost, as Reno, CUBIC and most others do.
    pub(crate) yields: bool,
    pub(crate) kind: Kind,
}

/// What networks tell apart, and block or throttle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Tcp,
    Udp,
}

/// What was measured of a way.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Figures {
    /// Round-trip time.
    pub(crate) rtt: Option<Duration>,
    /// The shortest and the longest one while the rest was measured.
    pub(crate) shortest: Option<Duration>,
    pub(crate) longest: Option<Duration>,
    /// The share of packets that are lost, 0 to 1.
    pub(crate) loss: Option<f64>,
    /// Bytes per second while the link was busy.
    pub(crate) goodput: Option<f64>,
}

/// What is known of a way.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Known {
    /// Whether it works; `None` before it was tried.
    pub(crate) works: Option<bool>,
    /// The shortest of late.
    pub(crate) rtt: Option<Duration>,
    /// `None` where it cannot be measured: then it counts as that of the way it is compared with.
    pub(crate) loss: Option<f64>,
    /// Bytes per second, if it has been busy not long ago.
    pub(crate) goodput: Option<f64>,
}

#[derive(Debug)]
pub(super) struct Way {
    pub(super) traits: Traits,
    pub(super) known: Known,
    /// Smoothed round-trip time.
    mean: Option<Duration>,
    pub(super) goodput_at: Duration,
    /// Whether the last measurement found it busy, and what that was if the one before did too.
    was_busy: bool,
    inner: Option<f64>,
    /// How often it was, since links came to it.
    pub(super) busy_times: u32,
    /// Whether that goodput was all that the way could carry: packets were lost, or a queue stood.
    pub(super) tight: bool,
    pub(super) loss_at: Duration,
    /// The shortest round-trip time in this period and in the one before.
    least: [Option<Duration>; 2],
    period_at: Duration,
    /// What a queue has added to the last round-trip time.
    pub(super) queue: Duration,
    pub(super) tried_at: Option<Duration>,
    /// Probes in a row that failed, or worked.
    pub(super) failures: u32,
    pub(super) successes: u32,
    pub(super) probe_at: Duration,
    /// Probes in a row that were to tell whether the one before was an accident.
    pub(super) again: u32,
    /// When the last probe began, when something last answered, and when a link over it last failed.
    pub(super) probed_at: Option<Duration>,
    pub(super) answered_at: Option<Duration>,
    pub(super) refused_at: Option<Duration>,
    /// Links over it that failed since one did not.
    pub(super) refusals: u32,
    /// Since when it would be the better one.
    pub(super) better_since: Option<Duration>,
}

impl Way {
    pub(super) fn new(traits: Traits, now: Duration, probe_at: Duration) -> Self {
        Self {
            traits,
            known: Known::default(),
            mean: None,
            goodput_at: Duration::ZERO,
            was_busy: false,
            inner: None,
            busy_times: 0,
            tight: false,
            loss_at: Duration::ZERO,
            least: [None; 2],
            period_at: now,
            queue: Duration::ZERO,
            tried_at: None,
            failures: 0,
            successes: 0,
            probe_at,
            again: 0,
            probed_at: None,
            answered_at: None,
            refused_at: None,
            refusals: 0,
            better_since: None,
        }
    }

    /// A link over it has failed, or several at once.
    pub(super) fn refuse(&mut self, now: Duration) {
        let at_once = |at: Duration| now.saturating_sub(at) < AT_ONCE;
        if !self.refused_at.is_some_and(at_once) {
            self.refusals += 1;
        }
        self.refused_at = Some(now);
    }

    /// Whether an answer does not count yet: some ways answer and carry no link.
    pub(super) fn is_refused(&self, now: Duration) -> bool {
        let wait = AT_ONCE
            .saturating_mul(1 << self.refusals.min(6))
            .min(LONGEST);
        let lately = |at: Duration| now.saturating_sub(at) < wait;
        self.refused_at.is_some_and(lately)
    }

    /// Takes what was measured.
    pub(super) fn note(&mut self, now: Duration, figures: Figures) {
        let busy = figures.goodput.is_some();
        if let Some(rtt) = figures.shortest {
            self.queue(now, rtt, busy);
        }
        let queue = figures.rtt.map(|rtt| self.queue(now, rtt, busy));
        let longest = figures.longest.map(|rtt| self.queue(now, rtt, busy));
        let queued = queue.max(longest).is_some_and(|queue| !queue.is_zero());
        self.queue = queue.unwrap_or_default();
        self.known.rtt = self.least();
        if let Some(rtt) = figures.rtt {
            // A busy link's own queue would be there on any way.
            let own = if busy { self.queue } else { Duration::ZERO };
            let rtt = rtt.saturating_sub(own);
            let mean = |mean: Duration| mean.mul_f64(1.0 - SMOOTH) + rtt.mul_f64(SMOOTH);
            self.mean = Some(self.mean.map_or(rtt, mean));
        }
        // What is lost from a queue that the link has filled would be lost on any way; and who yields could not fill it if the path lost much.
        if let Some(loss) = figures.loss.filter(|_| !queued || self.traits.yields) {
            let loss = if queued { 0.0 } else { loss.clamp(0.0, 1.0) };
            let known = self.known.loss.unwrap_or(loss);
            self.known.loss = Some(known + (loss - known) * SMOOTH);
            self.loss_at = now;
        }
        let inner = self.inner.take();
        self.inner = figures.goodput.filter(|_| self.was_busy);
        self.was_busy = busy;
        if let Some(goodput) = figures.goodput {
            // What it can carry is what it has carried at best, of late. The first and the last measurement of a transfer hold a part of it only.
            let least = inner.map_or(1.0, |_| FADE);
            let known = self.known.goodput.map(|known| known * least);
            let best = known.into_iter().chain(inner).fold(goodput, f64::max);
            self.known.goodput = Some(best);
            self.goodput_at = now;
            self.busy_times = self.busy_times.saturating_add(1);
            self.tight = queued || self.known.loss.is_some_and(|loss| loss >= LOSSY);
        }
    }

    /// Whether it carries much at present.
    pub(super) fn is_busy(&self, now: Duration) -> bool {
        self.known.goodput.is_some() && now.saturating_sub(self.goodput_at) < RECENTLY
    }

    /// What a queue adds to the round-trip time; zero where it may be chance.
    fn queue(&mut self, now: Duration, rtt: Duration, busy: bool) -> Duration {
        // A link that is always busy may never see its path empty again.
        let age = now.saturating_sub(self.period_at);
        if !busy && age >= PERIOD {
            self.period_at = now;
            let before = self.least[0].filter(|_| age < 2 * PERIOD);
            self.least = [None, before];
        }
        self.least[0] = Some(self.least[0].map_or(rtt, |least| least.min(rtt)));
        let least = self.least().unwrap_or(rtt);
        if rtt > least.mul_f64(QUEUED) + BASE {
            rtt - least
        } else {
            Duration::ZERO
        }
    }

    /// The shortest round-trip time of late.
    fn least(&self) -> Option<Duration> {
        self.least.into_iter().flatten().min()
    }

    /// What was measured of it before it died says nothing of the time when it works again.
    pub(super) fn forget(&mut self) {
        (self.known.loss, self.known.rtt, self.mean) = (None, None, None);
    }

    /// In seconds, by the shortest round-trip time. `None` before anything was measured.
    pub(super) fn cost(&self, loss: Option<f64>) -> Option<f64> {
        Some(self.weighed(self.known.rtt?, loss))
    }

    /// The same by the mean.
    pub(super) fn mean_cost(&self, loss: Option<f64>) -> Option<f64> {
        Some(self.weighed(self.mean?, loss))
    }

    fn weighed(&self, rtt: Duration, loss: Option<f64>) -> f64 {
        let loss = loss.unwrap_or(0.0);
        let slowed = if self.traits.yields {
            BULK * loss.sqrt()
        } else {
            0.0
        };
        let trips = 1.0 + self.traits.loss_weight * loss + slowed;
        (rtt + BASE).as_secs_f64() * trips * self.traits.burden
    }
}

impl fmt::Display for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rtt {
            Some(rtt) => write!(f, "{:.1} ms", rtt.as_secs_f64() * 1e3)?,
            None => f.write_str("not measured")?,
        }
        if let Some(loss) = self.loss {
            write!(f, ", {:.1} % lost", loss * 100.0)?;
        }
        if let Some(goodput) = self.goodput {
            write!(f, ", {:.1} Mbit/s", goodput * 8.0 / 1e6)?;
        }
        Ok(())
    }
}

/// Added to round-trip times: differences far below what anybody notices count for little.
const BASE: Duration = Duration::from_millis(5);
/// A new measurement's share in what is known.
const SMOOTH: f64 = 0.3;
/// Round trips that a short transfer of 32 KiB needs more, by the root of the loss, where the transport yields to it: a sender that halves its rate
/// for each loss carries 1.22 packets of 1400 bytes per round trip over the root of the loss (Mathis et al. 1997), so 32 KiB / (1.22 × 1400).
const BULK: f64 = 19.2;
/// A loss from which on something is wrong with the path, or with how it treats this kind of packets.
pub(super) const LOSSY: f64 = 0.002;
/// A round-trip time so many times the shortest one shows a queue.
const QUEUED: f64 = 1.4;
/// How long the shortest round-trip time counts, up to twice that; more than half of the time between two probes, so that two of them count.
const PERIOD: Duration = Duration::from_secs(45);
/// How long a link counts as busy.
const RECENTLY: Duration = Duration::from_secs(5);
/// What is left of a goodput that is not reached again, per measurement.
const FADE: f64 = 0.9;
/// Links that fail within so long fail for one reason.
const AT_ONCE: Duration = Duration::from_secs(1);
/// How long an answer of a way whose links fail counts for nothing, at most; it doubles from two seconds.
const LONGEST: Duration = Duration::from_secs(60);

//! Paced sending: a model of the path (its bandwidth and its shortest round trip) says how fast to send and how much may
//! be out, in place of a window that loss makes smaller.
//!
//! The rules are those of BBR (draft-cardwell-iccrg-bbr-congestion-control-00), in short: the bandwidth is the best
//! delivery rate of the last ten round trips; sending is paced at that rate, for one round trip of eight a quarter faster, to
//! find more, then a quarter slower, to take back the queue that this made. At most twice the product of bandwidth and round
//! trip is out. Loss by itself changes nothing, so that a path that loses packets at random is used in full; what `share` takes
//! for a queue that overflowed limits what is out.

use std::time::Duration;

use super::share::{Rounds, Share};
use crate::Time;

/// Round trips that a bandwidth sample counts for.
const ROUNDS: usize = 10;
/// Doubles the rate in each round trip (draft §4.3.1.1: 2 / ln 2), in 1/1000.
const STARTUP: u64 = 2885;
const DRAIN: u64 = 1_000_000 / STARTUP;
/// Pacing gains of successive round trips, in 1/1000.
const CYCLE: [u64; 8] = [1250, 750, 1000, 1000, 1000, 1000, 1000, 1000];
/// What is left to others of a limit that shares the queue, in 1/1000 (BBR's draft -02, §4.6.4.4).
const HEADROOM: u64 = 150;
/// Once the rate has not grown by a quarter for so many round trips, it is the path's.
const FULL_ROUNDS: u32 = 3;
/// A shortest round trip older than this is measured again, for [`PROBE_TIME`] with half of the usual amount out.
const MIN_RTT_AGE: Duration = Duration::from_secs(10);
const PROBE_TIME: Duration = Duration::from_millis(200);
/// What may be out before anything was measured, in datagrams: KCP's initial peer window.
const INITIAL: u64 = 32;
const LEAST: u64 = 4;
/// Timers come a millisecond late and in steps of one: what is due within this goes in one burst.
const QUANTUM_NS: u64 = 1_000_000;
/// How much of a late wake-up is made up for.
const CATCH_UP_NS: u64 = 2_000_000;

/// What was known when a segment was sent; comes back with its acknowledgement.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stamp {
    delivered: u64,
    delivered_at: Time,
    first_sent: Time,
    app_limited: bool,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Looking for the bandwidth.
    Startup,
    /// Taking back the queue that looking for it made.
    Drain,
    /// At the bandwidth found, in this step of the cycle since then.
    Cruise { step: usize, since: Time },
    /// Measuring the shortest round trip.
    ProbeRtt { until: Time },
}

/// The path's model and the sender's budget.
#[derive(Debug)]
pub(super) struct Pacer {
    phase: Phase,
    /// Best delivery rate of each of the last rounds, bytes per second.
    rates: [u64; ROUNDS],
    round: usize,
    /// The round ends when something is acknowledged that was sent after so much was delivered.
    round_end: u64,
    /// Bytes delivered so far, and when the last of them were.
    delivered: u64,
    delivered_at: Time,
    /// When the segment was sent that was acknowledged last.
    first_sent: Time,
    /// Samples before so much was delivered tell the application's speed, not the path's.
    app_limited_until: u64,
    /// Bytes sent and neither acknowledged nor lost.
    outstanding: u64,
    /// The newest transmission that the current datagram acknowledges.
    sample: Option<(Time, Stamp)>,
    min_rtt: Option<(Duration, Time)>,
    full: (u64, u32),
    /// When the next segment is due, in nanoseconds of [`Time`].
    due_ns: u64,
    mtu: u64,
    /// How long the peer may hold an acknowledgement back: so much more is out than the path holds.
    ack_delay: Duration,
    share: Share,
}

impl Pacer {
    pub(super) fn new(mtu: usize, ack_delay: Duration, outstanding: u64) -> Self {
        Self {
            phase: Phase::Startup,
            rates: [0; ROUNDS],
            round: 0,
            round_end: 0,
            delivered: 0,
            delivered_at: Time::ZERO,
            first_sent: Time::ZERO,
            app_limited_until: 0,
            outstanding,
            sample: None,
            min_rtt: None,
            full: (0, 0),
            due_ns: 0,
            mtu: mtu as u64,
            ack_delay,
            share: Share::new(mtu as u64),
        }
    }

    /// Round trips so far, and what their losses may have been.
    pub(super) fn rounds(&self) -> Rounds {
        self.share.rounds()
    }

    /// Whether another segment may be out.
    pub(super) fn has_room(&self) -> bool {
        self.outstanding < self.window()
    }

    /// Whether so much is out that acknowledgements will not cease before a loss is noticed by them.
    pub(super) fn is_bulk(&self) -> bool {
        self.outstanding > INITIAL * self.mtu
    }

    /// Whether a segment may go now, as far as pacing is concerned.
    pub(super) fn is_due(&self, now: Time) -> bool {
        self.due_ns <= nanos(now) + QUANTUM_NS
    }

    /// When [`Self::is_due`] has room for a burst.
    pub(super) fn due(&self) -> Time {
        Time::from_micros(self.due_ns.div_ceil(1000))
    }

    /// Notes a segment of so many bytes on its way.
    pub(super) fn sent(&mut self, now: Time, bytes: u64) -> Stamp {
        if self.outstanding == 0 {
            (self.first_sent, self.delivered_at) = (now, now);
        }
        self.outstanding += bytes;
        self.share.out(self.outstanding);
        let rate = self.rate().max(1);
        let start = self.due_ns.max(nanos(now).saturating_sub(CATCH_UP_NS));
        self.due_ns = start.saturating_add(bytes.saturating_mul(1_000_000_000) / rate);
        Stamp {
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent: self.first_sent,
            app_limited: self.delivered < self.app_limited_until,
        }
    }

    /// A segment in the network was lost.
    pub(super) fn lost(&mut self, bytes: u64) {
        self.share.lost(bytes);
        self.landed(bytes);
    }

    fn landed(&mut self, bytes: u64) {
        self.outstanding = self.outstanding.saturating_sub(bytes);
    }

    /// A segment was acknowledged. `out` says that it was taken to be on its way; `sample` is when its last transmission
    /// was sent, if that is the one that arrived.
    pub(super) fn delivered(&mut self, bytes: u64, out: bool, sample: Option<(Time, Stamp)>) {
        self.delivered += bytes;
        self.share.delivered(bytes);
        if out {
            self.landed(bytes);
        }
        if let Some((sent, _)) = sample
            && self.sample.is_none_or(|(newest, _)| newest <= sent)
        {
            self.sample = sample;
        }
    }

    /// Takes a round-trip time.
    pub(super) fn rtt(&mut self, now: Time, rtt: Duration) {
        // The timestamps on the wire have milliseconds.
        let rtt = rtt.max(Duration::from_millis(1));
        self.share.rtt(now, rtt);
        if self.min_rtt.is_none_or(|(least, _)| rtt <= least) {
            self.min_rtt = Some((rtt, now));
        } else if self
            .min_rtt
            .is_some_and(|(_, at)| now.since(at) > MIN_RTT_AGE)
            && !matches!(self.phase, Phase::Startup)
        {
            self.min_rtt = Some((rtt, now));
            self.phase = Phase::ProbeRtt {
                until: now + PROBE_TIME.max(rtt),
            };
        }
    }

    /// All of a datagram's acknowledgements have been taken: draws the conclusions.
    pub(super) fn acknowledged(&mut self, now: Time) {
        let Some((sent, stamp)) = self.sample.take() else {
            return;
        };
        self.delivered_at = now;
        self.first_sent = sent;
        let new_round = stamp.delivered >= self.round_end;
        if new_round {
            self.round_end = self.delivered;
        }
        // What an application that says little shows of the path must not push out what is known of it.
        if new_round && !stamp.app_limited {
            self.round = (self.round + 1) % ROUNDS;
            self.rates[self.round] = 0;
        }
        let taken = now
            .since(stamp.delivered_at)
            .max(sent.since(stamp.first_sent));
        let bytes = self.delivered - stamp.delivered;
        // Acknowledgements that were held back and come together look faster than any path is.
        if taken >= self.min_rtt().unwrap_or(Duration::from_millis(1)) {
            let micros = u64::try_from(taken.as_micros()).unwrap_or(u64::MAX).max(1);
            let rate = bytes.saturating_mul(1_000_000) / micros;
            if !stamp.app_limited || rate > self.bandwidth() {
                self.rates[self.round] = self.rates[self.round].max(rate);
            }
        }
        self.advance(now, new_round && !stamp.app_limited);
        // What an application shows that says little is not what the path holds: then nothing of the queue is ours. Startup was left for a
        // few packets lost in a queue of others, and from their rate up it took minutes to find the path's.
        let holds = match stamp.app_limited {
            true => u64::MAX,
            false => self.product(),
        };
        if new_round && self.share.end_round(now, holds) && matches!(self.phase, Phase::Startup) {
            self.phase = Phase::Drain;
        }
    }

    /// Nothing more to send though more might be.
    pub(super) fn limited_by_others(&mut self) {
        if self.has_room() {
            self.app_limited_until = self.delivered + self.outstanding.max(1);
        }
    }

    fn advance(&mut self, now: Time, new_round: bool) {
        let min_rtt = self.min_rtt().unwrap_or(Duration::from_millis(1));
        let drained = self.outstanding <= self.product();
        self.phase = match self.phase {
            Phase::Startup if new_round => {
                let rate = self.bandwidth();
                if rate >= self.full.0 + self.full.0 / 4 {
                    self.full = (rate, 0);
                } else {
                    self.full.1 += 1;
                }
                if self.full.1 >= FULL_ROUNDS {
                    Phase::Drain
                } else {
                    Phase::Startup
                }
            }
            Phase::Drain if drained => Phase::Cruise {
                step: 2,
                since: now,
            },
            Phase::Cruise { step, since }
                if now.since(since) > min_rtt || (step == 1 && drained) =>
            {
                Phase::Cruise {
                    step: (step + 1) % CYCLE.len(),
                    since: now,
                }
            }
            Phase::ProbeRtt { until } if until <= now => Phase::Cruise {
                step: 2,
                since: now,
            },
            other => other,
        };
    }

    fn min_rtt(&self) -> Option<Duration> {
        self.min_rtt.map(|(rtt, _)| rtt)
    }

    fn bandwidth(&self) -> u64 {
        self.rates.iter().copied().max().unwrap_or(0)
    }

    /// Bytes that the path holds without a queue; 0 as long as nothing was measured.
    fn product(&self) -> u64 {
        bytes_in(self.bandwidth(), self.min_rtt().unwrap_or(Duration::ZERO))
    }

    /// Bytes that may be out.
    fn window(&self) -> u64 {
        let product = self.product();
        let held_back = bytes_in(self.bandwidth(), self.ack_delay) + LEAST * self.mtu;
        let window = match self.phase {
            _ if product == 0 => INITIAL * self.mtu,
            Phase::Startup => (product * STARTUP / 1000 + held_back).max(INITIAL * self.mtu),
            Phase::ProbeRtt { .. } => product / 2 + LEAST * self.mtu,
            Phase::Drain | Phase::Cruise { .. } => 2 * product + held_back,
        };
        let limit = self.share.limit();
        let limit = match self.phase {
            // Others must find room to grow into, except while we look for more.
            Phase::Cruise { step: 1.., .. } => limit - limit / 1000 * HEADROOM,
            _ => limit,
        };
        window.min(limit.max(LEAST * self.mtu))
    }

    /// Bytes per second to send.
    fn rate(&self) -> u64 {
        let (gain, least) = match self.phase {
            Phase::Startup => (STARTUP, INITIAL),
            Phase::Drain => (DRAIN, LEAST),
            Phase::Cruise { step, .. } => (CYCLE[step], LEAST),
            Phase::ProbeRtt { .. } => (1000, LEAST),
        };
        let Some(rtt) = self.min_rtt() else {
            return u64::MAX;
        };
        let micros = u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX).max(1);
        let least = (least * self.mtu).saturating_mul(1_000_000) / micros;
        let bandwidth = self.bandwidth().max(least);
        bandwidth.saturating_mul(gain) / 1000
    }
}

fn nanos(time: Time) -> u64 {
    time.as_micros().saturating_mul(1000)
}

fn bytes_in(rate: u64, time: Duration) -> u64 {
    let bytes = u128::from(rate) * time.as_micros() / 1_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path that passes a segment each millisecond and takes 50 ms, for a sender that never runs out.
    fn converge(pacer: &mut Pacer, millis: u64) -> Vec<u64> {
        let (mut flying, mut free_at) = (std::collections::VecDeque::new(), 0);
        let mut out = Vec::new();
        for micros in (0..millis * 1000).step_by(100) {
            let now = Time::from_micros(1 + micros);
            while let Some(&(at, sent, stamp)) = flying.front()
                && at <= micros
            {
                flying.pop_front();
                pacer.delivered(1000, true, Some((sent, stamp)));
                pacer.rtt(now, now.since(sent));
                pacer.acknowledged(now);
            }
            while pacer.has_room() && pacer.is_due(now) {
                let stamp = pacer.sent(now, 1000);
                free_at = micros.max(free_at) + 1000;
                flying.push_back((free_at + 50_000, now, stamp));
            }
            out.push(pacer.outstanding);
        }
        out
    }

    #[test]
    fn the_model_finds_the_rate_and_the_round_trip() {
        let mut pacer = Pacer::new(1000, Duration::ZERO, 0);
        let out = converge(&mut pacer, 5000);
        assert!(pacer.bandwidth().abs_diff(1_000_000) < 50_000, "{pacer:?}");
        assert!(
            pacer.min_rtt().is_some_and(|rtt| rtt.as_millis() <= 53),
            "{pacer:?}"
        );
        let late = &out[out.len() / 2..];
        let mean = late.iter().sum::<u64>() / late.len() as u64;
        assert!(
            (45_000..80_000).contains(&mean),
            "{mean} bytes out, the path holds 51000"
        );
    }

    #[test]
    fn an_application_that_says_little_does_not_make_the_path_look_slow() {
        let mut pacer = Pacer::new(1000, Duration::ZERO, 0);
        converge(&mut pacer, 3000);
        let before = pacer.bandwidth();
        let mut now = Time::from_millis(10_000);
        for _ in 0..100 {
            let stamp = pacer.sent(now, 100);
            pacer.limited_by_others();
            let sent = now;
            now = now + Duration::from_millis(50);
            pacer.delivered(100, true, Some((sent, stamp)));
            pacer.acknowledged(now);
        }
        assert_eq!(pacer.bandwidth(), before, "{pacer:?}");
    }
}

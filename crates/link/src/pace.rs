//! Speed limits and byte counters. A limit is shared by all streams of a user on all workers, so it is one atomic; nobody waits while
//! holding anything. Streams without a limit never come here.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use tokio::time::{Sleep, sleep_until};

/// A bandwidth in bytes per second (token bucket in the form of GCRA: one timestamp says when the bytes granted so far are
/// through).
#[derive(Debug)]
pub struct Pacer {
    /// The limit of a whole that this one is a part of.
    parent: Option<Arc<Pacer>>,
    bytes_per_second: AtomicU64,
    /// Nanoseconds since `origin` at which all bytes granted are through.
    through: AtomicU64,
    origin: Instant,
}

impl Pacer {
    /// `bytes_per_second` of 0 counts as 1.
    #[must_use]
    pub fn new(bytes_per_second: u64, parent: Option<Arc<Self>>) -> Self {
        Self {
            parent,
            bytes_per_second: AtomicU64::new(bytes_per_second.max(1)),
            through: AtomicU64::new(0),
            origin: Instant::now(),
        }
    }

    /// Another limit from now on; 0 counts as 1.
    pub fn set(&self, bytes_per_second: u64) {
        self.bytes_per_second
            .store(bytes_per_second.max(1), Relaxed);
    }

    fn rate(&self) -> u64 {
        self.bytes_per_second.load(Relaxed)
    }

    /// Bytes that are granted at a time: what passes in 50 ms, so that a limited stream flows evenly.
    fn portion(&self) -> usize {
        let own = usize::try_from(self.rate() / 20)
            .unwrap_or(usize::MAX)
            .clamp(1, 64 << 10);
        self.parent
            .as_ref()
            .map_or(own, |parent| own.min(parent.portion()))
    }

    fn nanos(&self, bytes: usize) -> u64 {
        let nanos = bytes as u128 * 1_000_000_000 / u128::from(self.rate());
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Grants `bytes`; returns when they may pass. For whoever moves whole messages; joined streams do it by themselves.
    pub fn reserve(&self, bytes: usize) -> Instant {
        self.reserve_again(bytes, self.now(), Duration::ZERO)
    }

    /// The same, at `now`, for somebody who got what he was granted before later than it was due: so much time is not lost to him.
    fn reserve_again(&self, bytes: usize, now: u64, late: Duration) -> Instant {
        let cost = self.nanos(bytes);
        let owed = u64::try_from(late.as_nanos()).unwrap_or(u64::MAX);
        let from = now.saturating_sub(owed);
        let add = |through: u64| Some(through.max(from).saturating_add(cost));
        let before = self
            .through
            .fetch_update(Relaxed, Relaxed, add)
            .unwrap_or_else(|unchanged| unchanged);
        let through = before.max(from).saturating_add(cost);
        // At higher rates a short burst spares small messages the wait; at low ones the rate is exact.
        let burst = if self.rate() >= 64 << 10 {
            10_000_000
        } else {
            0
        };
        let own = self.origin + Duration::from_nanos(through.saturating_sub(burst).max(now));
        self.parent.as_ref().map_or(own, |parent| {
            own.max(parent.reserve_again(bytes, parent.now(), late))
        })
    }

    /// Takes back what was granted and not used.
    fn refund(&self, bytes: usize) {
        let cost = self.nanos(bytes);
        let _ = self.through.fetch_update(Relaxed, Relaxed, |through| {
            Some(through.saturating_sub(cost))
        });
        if let Some(parent) = &self.parent {
            parent.refund(bytes);
        }
    }
}

/// One direction of one stream under a [`Pacer`]: ask for an allowance, move at most that much, then settle.
#[derive(Debug)]
pub struct Pace {
    pacer: Arc<Pacer>,
    granted: usize,
    sleep: Option<Pin<Box<Sleep>>>,
    /// By how much the last grant came too late. Timers are late by a millisecond, and by many on a busy machine; without this, each of them
    /// would be taken off the limit.
    late: Duration,
}

impl Pace {
    /// A direction that has moved nothing yet.
    #[must_use]
    pub fn new(pacer: Arc<Pacer>) -> Self {
        Self {
            pacer,
            granted: 0,
            sleep: None,
            late: Duration::ZERO,
        }
    }

    /// How many bytes may pass now.
    pub fn poll_allowance(&mut self, cx: &mut Context<'_>) -> Poll<usize> {
        if self.granted == 0 {
            self.granted = self.pacer.portion();
            let late = std::mem::take(&mut self.late);
            let at = self
                .pacer
                .reserve_again(self.granted, self.pacer.now(), late);
            self.sleep = Some(Box::pin(sleep_until(at.into())));
        }
        if let Some(sleep) = &mut self.sleep {
            std::task::ready!(sleep.as_mut().poll(cx));
            self.late = sleep.deadline().into_std().elapsed().min(MOST_LATE);
            self.sleep = None;
        }
        Poll::Ready(self.granted)
    }

    /// `bytes` of the allowance were used and there are no more to move now: the rest goes back.
    pub fn settle(&mut self, bytes: usize) {
        if self.sleep.is_none() {
            self.pacer.refund(self.granted.saturating_sub(bytes));
            self.granted = 0;
        }
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        self.pacer.refund(self.granted);
    }
}

/// What is made up for, at most: after a machine stood still nobody gets a second's worth at once.
const MOST_LATE: Duration = Duration::from_millis(250);

/// Bytes moved, shared by all streams that are counted together.
#[derive(Debug, Default)]
pub struct Traffic {
    /// The whole that this is a part of.
    pub parent: Option<Arc<Traffic>>,
    /// From joined sockets into links.
    pub sent: AtomicU64,
    /// From links into joined sockets.
    pub received: AtomicU64,
}

impl Traffic {
    pub(crate) fn add_sent(&self, n: usize) {
        self.sent.fetch_add(n as u64, Relaxed);
        if let Some(parent) = &self.parent {
            parent.add_sent(n);
        }
    }

    pub(crate) fn add_received(&self, n: usize) {
        self.received.fetch_add(n as u64, Relaxed);
        if let Some(parent) = &self.parent {
            parent.add_received(n);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u64 = 1000;
    const PORTION: usize = 50;

    /// Moves portions one after the other, each woken so much too late, and returns how long all of them took.
    fn pass(pacer: &Pacer, begin: Duration, portions: u32, delay: Duration) -> Duration {
        let (mut now, mut late) = (begin, Duration::ZERO);
        for _ in 0..portions {
            let at = pacer.reserve_again(PORTION, now.as_nanos() as u64, late);
            now = (at - pacer.origin).max(now) + delay;
            late = delay;
        }
        now - begin
    }

    #[test]
    fn timers_that_are_late_cost_a_stream_nothing_of_its_speed() {
        let delay = Duration::from_millis(15);
        let took = pass(&Pacer::new(RATE, None), Duration::ZERO, 80, delay);
        assert_eq!(took, Duration::from_secs(4) + delay);
    }

    #[test]
    fn a_pause_is_not_saved_up() {
        let pacer = Pacer::new(RATE, None);
        let first = pass(&pacer, Duration::ZERO, 20, Duration::ZERO);
        assert_eq!(first, Duration::from_secs(1));
        let again = pass(&pacer, Duration::from_secs(10), 20, Duration::ZERO);
        assert_eq!(again, Duration::from_secs(1));
    }
}

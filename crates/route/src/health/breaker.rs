//! The circuit breaker: so many requests at one time on an upstream, so many waiting in line, and the rest refused at once. Per worker.

use std::{collections::VecDeque, time::Duration};

/// How many may be where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerSpec {
    /// Requests under way.
    pub max_active: u32,
    /// Requests that wait; at most [`Breaker::MAX_QUEUE`].
    pub max_queue: u32,
    /// How long one waits.
    pub queue_time: Duration,
}

impl Default for BreakerSpec {
    fn default() -> Self {
        Self {
            max_active: 10_000,
            max_queue: 1024,
            queue_time: Duration::from_secs(5),
        }
    }
}

/// A place in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(u64);

/// What a request may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// Go on; call [`Breaker::leave`] at the end.
    Go,
    /// Wait until [`Breaker::leave`] hands out this ticket, which then counts as `Go`; at the deadline call [`Breaker::give_up`].
    Wait(Ticket, Duration),
    /// The queue is full: 503.
    Refused,
}

/// The breaker of one upstream.
#[derive(Debug)]
pub struct Breaker {
    spec: BreakerSpec,
    active: u32,
    /// In the order they came.
    queue: VecDeque<Ticket>,
    next: u64,
}

impl Breaker {
    /// Longest queue.
    pub const MAX_QUEUE: u32 = 65_536;

    /// Nobody is in.
    pub fn new(spec: BreakerSpec) -> Self {
        let spec = BreakerSpec {
            max_active: spec.max_active.max(1),
            max_queue: spec.max_queue.min(Self::MAX_QUEUE),
            ..spec
        };
        Self {
            spec,
            active: 0,
            queue: VecDeque::new(),
            next: 0,
        }
    }

    /// A request wants in.
    pub fn enter(&mut self, now: Duration) -> Admission {
        if self.active < self.spec.max_active {
            self.active += 1;
            return Admission::Go;
        }
        if self.queue.len() >= self.spec.max_queue as usize {
            return Admission::Refused;
        }
        let ticket = Ticket(self.next);
        self.next += 1;
        self.queue.push_back(ticket);
        Admission::Wait(ticket, now.saturating_add(self.spec.queue_time))
    }

    /// A request that was in has ended. The ticket of the one that is in now in its place, if one waited.
    #[must_use = "whoever holds the ticket waits to be told"]
    pub fn leave(&mut self) -> Option<Ticket> {
        debug_assert!(self.active > 0, "someone left who was not in");
        let next = self.queue.pop_front();
        if next.is_none() {
            self.active = self.active.saturating_sub(1);
        }
        next
    }

    /// A request waits no more. `false`: its ticket was handed out already, so it is in and has to [`leave`](Self::leave).
    pub fn give_up(&mut self, ticket: Ticket) -> bool {
        // Tickets are handed out in order, so the queue is sorted.
        match self.queue.binary_search(&ticket) {
            Ok(at) => self.queue.remove(at).is_some(),
            Err(_) => false,
        }
    }

    /// Requests that are in.
    pub fn active(&self) -> u32 {
        self.active
    }

    /// Requests that wait.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }
}

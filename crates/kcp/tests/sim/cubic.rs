//! A CUBIC flow (RFC 9438) in the same queue, as far as sharing it is concerned: slow start that ends when the delay grows
//! (HyStart), the cubic window, one reduction per round trip with losses. Retransmissions are new packets to it.

use std::{collections::VecDeque, time::Duration};

use kcp::Time;

/// Bytes of a packet, headers included, and of its payload.
const PACKET: u64 = 1500;
const PAYLOAD: u64 = 1448;
const C: f64 = 0.4;
const BETA: f64 = 0.7;

/// A sender that always has something to send.
pub(crate) struct Cubic {
    window: f64,
    threshold: f64,
    most: f64,
    epoch: Option<Time>,
    /// Number, when it was sent, and when its acknowledgement comes; `None` for those the path dropped.
    flying: VecDeque<(u64, Time, Option<Time>)>,
    out: u64,
    next: u64,
    recover: u64,
    min_rtt: Duration,
    delivered: u64,
}

impl Cubic {
    pub(crate) fn new() -> Self {
        Self {
            window: 10.0,
            threshold: f64::INFINITY,
            most: 0.0,
            epoch: None,
            flying: VecDeque::new(),
            out: 0,
            next: 0,
            recover: 0,
            min_rtt: Duration::MAX,
            delivered: 0,
        }
    }

    /// Payload bytes that have arrived.
    pub(crate) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// When the next acknowledgement comes.
    pub(crate) fn next_event(&self) -> Option<Time> {
        self.flying.iter().find_map(|(_, _, at)| *at)
    }

    /// Takes what has come until `now` and sends: `path` says when a packet of so many bytes is acknowledged, if it is not lost.
    pub(crate) fn turn(&mut self, now: Time, mut path: impl FnMut(u64) -> Option<Time>) {
        while let Some(at) = self
            .flying
            .iter()
            .position(|(_, _, at)| at.is_some_and(|at| at <= now))
        {
            // The path keeps the order: what lies before was lost.
            let lost = self.flying.drain(..at).map(|(number, ..)| number).max();
            self.out -= at as u64;
            if lost.is_some_and(|number| number >= self.recover) {
                self.reduce();
            }
            if let Some((_, sent, _)) = self.flying.pop_front() {
                self.out -= 1;
                self.delivered += PAYLOAD;
                self.grow(now, now.since(sent));
            }
        }
        while (self.out as f64) < self.window {
            self.flying.push_back((self.next, now, path(PACKET)));
            self.next += 1;
            self.out += 1;
        }
        // With nothing on its way that arrives, a timeout.
        if self.next_event().is_none() {
            self.out = 0;
            self.flying.clear();
            self.reduce();
        }
    }

    fn reduce(&mut self) {
        self.recover = self.next;
        self.most = self.window;
        self.window = (self.window * BETA).max(2.0);
        self.threshold = self.window;
        self.epoch = None;
    }

    fn grow(&mut self, now: Time, rtt: Duration) {
        self.min_rtt = self.min_rtt.min(rtt);
        if self.window < self.threshold {
            self.window += 1.0;
            let slack =
                (self.min_rtt / 8).clamp(Duration::from_millis(4), Duration::from_millis(16));
            if rtt > self.min_rtt + slack {
                self.threshold = self.window;
            }
            return;
        }
        let epoch = *self.epoch.get_or_insert(now);
        self.most = self.most.max(self.window * BETA);
        let k = ((self.most - self.most * BETA) / C).cbrt();
        let t = now.since(epoch).as_secs_f64() + rtt.as_secs_f64();
        let target = (C * (t - k).powi(3) + self.most).clamp(self.window, 1.5 * self.window);
        self.window += ((target - self.window) / self.window).max(0.01 / self.window);
    }
}

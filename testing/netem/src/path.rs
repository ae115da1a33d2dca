//! One direction of a path: a queue before a bottleneck, then a way with delay, loss and the rest. Sans-IO.
//!
//! Call order: [`Path::handle`] with each packet as it comes; [`Path::poll`] until it gives nothing; then sleep until
//! [`Path::next_time`] or the next packet. Time is what has passed since the path's beginning, never runs backwards, and is an
//! argument: with the same seed and the same input, the output is the same.
//!
//! A packet passes: queue (dropped when it is full) → bottleneck (takes the time its bytes need) → lost? → corrupted? → on its
//! way for delay, jitter and being held back → arrives once or twice. Times are computed, not observed: a path that is asked late
//! still says when each packet should have arrived, so that a shell's lateness does not add up.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    time::Duration,
};

use crate::{
    chance::{Channel, Dice},
    counters::Counters,
    settings::{Loss, Plan, Setting, Settings},
};

/// Most bytes on the way at any time, each packet with [`OVERHEAD`]: 100 Mbit/s for more than ten seconds.
const LINE_LIMIT: usize = 128 << 20;
/// What a packet in memory costs besides its bytes.
const OVERHEAD: usize = 128;

/// A packet and what its shell needs to know to pass it on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet<T> {
    /// The shell's own mark: where to.
    pub tag: T,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// A packet that has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival<T> {
    /// When it should have arrived; not later than the time of the question.
    pub due: Duration,
    /// The packet.
    pub packet: Packet<T>,
}

/// One direction of a path.
#[derive(Debug)]
pub struct Path<T> {
    settings: Settings,
    /// Soonest first.
    later: VecDeque<(Duration, Setting)>,
    queue: VecDeque<Packet<T>>,
    queued: usize,
    /// When the front of the queue has passed the bottleneck.
    sent_at: Duration,
    line: BinaryHeap<Reverse<OnWay<T>>>,
    line_bytes: usize,
    /// Numbers packets on the way: equal times keep their order.
    serial: u64,
    /// The latest arrival of a packet that was not held back.
    last_due: Duration,
    channel: Channel,
    dice: AllDice,
    counters: Counters,
}

#[derive(Debug)]
struct AllDice {
    loss: Dice,
    corrupt: Dice,
    jitter: Dice,
    reorder: Dice,
    duplicate: Dice,
}

impl<T: Clone> Path<T> {
    /// A path that begins at time zero.
    pub fn new(plan: Plan, seed: u64) -> Self {
        let mut later = plan.later;
        later.sort_by_key(|(at, _)| *at);
        Self {
            settings: plan.first,
            later: later.into(),
            queue: VecDeque::new(),
            queued: 0,
            sent_at: Duration::ZERO,
            line: BinaryHeap::new(),
            line_bytes: 0,
            serial: 0,
            last_due: Duration::ZERO,
            channel: Channel::default(),
            dice: AllDice {
                loss: Dice::new(seed, 1),
                corrupt: Dice::new(seed, 2),
                jitter: Dice::new(seed, 3),
                reorder: Dice::new(seed, 4),
                duplicate: Dice::new(seed, 5),
            },
            counters: Counters::default(),
        }
    }

    /// A packet enters.
    pub fn handle(&mut self, now: Duration, packet: Packet<T>) {
        self.advance(now);
        let length = packet.bytes.len();
        self.counters.packets_in += 1;
        self.counters.bytes_in += length as u64;
        let Some(rate) = self.settings.rate else {
            self.enter_line(now, packet);
            return;
        };
        if !self.queue.is_empty() && self.queued + length > self.settings.queue.bytes(rate) {
            self.counters.queue_drops += 1;
            return;
        }
        self.queued += length;
        self.counters.queue_max = self.counters.queue_max.max(self.queued as u64);
        if self.queue.is_empty() {
            self.sent_at = now + rate.time_of(length);
        }
        self.queue.push_back(packet);
    }

    /// A packet that has arrived by now, in order of arrival.
    pub fn poll(&mut self, now: Duration) -> Option<Arrival<T>> {
        self.advance(now);
        if self.line.peek()?.0.due > now {
            return None;
        }
        let Reverse(way) = self.line.pop()?;
        let length = way.packet.bytes.len();
        self.line_bytes -= length + OVERHEAD;
        self.counters.packets_out += 1;
        self.counters.bytes_out += length as u64;
        Some(Arrival {
            due: way.due,
            packet: way.packet,
        })
    }

    /// When [`poll`](Self::poll) is worth asking again, if no packet comes: never later than the next arrival.
    pub fn next_time(&self) -> Option<Duration> {
        let arrival = self.line.peek().map(|way| way.0.due);
        if self.queue.is_empty() {
            return arrival;
        }
        // What leaves the queue arrives after the shortest delay at the soonest, unless a change shortens it.
        let shortest = self.settings.delay.saturating_sub(self.settings.jitter);
        let mut soonest = self.sent_at + shortest;
        if let Some((at, _)) = self.later.front() {
            soonest = soonest.min(*at);
        }
        Some(arrival.map_or(soonest, |at| at.min(soonest)))
    }

    /// Changes what happens from now on. The packet that is passing the bottleneck is not affected.
    pub fn change(&mut self, now: Duration, change: &Setting) {
        self.advance(now);
        self.apply(now, change);
    }

    /// What happened so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What holds now.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Does everything that lies between the last call and `now`, in order of time.
    fn advance(&mut self, now: Duration) {
        loop {
            let sent = (!self.queue.is_empty()).then_some(self.sent_at);
            let change = self.later.front().map(|(at, _)| *at);
            match (sent, change) {
                (Some(at), change) if at <= now && change.is_none_or(|change| at <= change) => {
                    self.leave_queue(at);
                }
                (_, Some(at)) if at <= now => {
                    if let Some((_, change)) = self.later.pop_front() {
                        self.apply(at, &change);
                    }
                }
                _ => return,
            }
        }
    }

    fn apply(&mut self, now: Duration, change: &Setting) {
        change.apply(&mut self.settings);
        if self.settings.rate.is_none() {
            self.sent_at = self.sent_at.min(now);
        }
    }

    /// The front of the queue has passed the bottleneck; the next one begins.
    fn leave_queue(&mut self, at: Duration) {
        let Some(packet) = self.queue.pop_front() else {
            return;
        };
        self.queued -= packet.bytes.len();
        if let (Some(next), Some(rate)) = (self.queue.front(), self.settings.rate) {
            self.sent_at = at + rate.time_of(next.bytes.len());
        }
        self.enter_line(at, packet);
    }

    fn enter_line(&mut self, at: Duration, mut packet: Packet<T>) {
        let lost = match &self.settings.loss {
            Loss::Random(chance) => self.dice.loss.happens(*chance),
            Loss::Bursts(model) => self.channel.loses(model, &mut self.dice.loss),
        };
        if lost {
            self.counters.lost += 1;
            return;
        }
        if self.dice.corrupt.happens(self.settings.corrupt) && !packet.bytes.is_empty() {
            let bit = self.dice.corrupt.below(packet.bytes.len() * 8);
            packet.bytes[bit / 8] ^= 1 << (bit % 8);
            self.counters.corrupted += 1;
        }
        let due = self.arrival(at);
        if self.dice.duplicate.happens(self.settings.duplicate) {
            self.counters.duplicated += 1;
            self.push(due, packet.clone());
        }
        self.push(due, packet);
    }

    /// When a packet arrives that has left the bottleneck at `at`.
    fn arrival(&mut self, at: Duration) -> Duration {
        let jitter = self.settings.jitter;
        let spread = self.dice.jitter.around(jitter);
        let mut due = at + (self.settings.delay + spread).saturating_sub(jitter);
        if jitter > Duration::ZERO && !self.settings.jitter_reorders {
            due = due.max(self.last_due);
        }
        if self.dice.reorder.happens(self.settings.reorder) {
            self.counters.reordered += 1;
            return due + self.settings.reorder_by;
        }
        self.last_due = self.last_due.max(due);
        due
    }

    fn push(&mut self, due: Duration, packet: Packet<T>) {
        let cost = packet.bytes.len() + OVERHEAD;
        if self.line_bytes + cost > LINE_LIMIT {
            self.counters.line_drops += 1;
            return;
        }
        self.line_bytes += cost;
        self.serial += 1;
        self.line.push(Reverse(OnWay {
            due,
            serial: self.serial,
            packet,
        }));
    }
}

/// Ordered by time of arrival, then by entry.
#[derive(Debug)]
struct OnWay<T> {
    due: Duration,
    serial: u64,
    packet: Packet<T>,
}

impl<T> PartialEq for OnWay<T> {
    fn eq(&self, other: &Self) -> bool {
        (self.due, self.serial) == (other.due, other.serial)
    }
}

impl<T> Eq for OnWay<T> {}

impl<T> PartialOrd for OnWay<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for OnWay<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.serial).cmp(&(other.due, other.serial))
    }
}

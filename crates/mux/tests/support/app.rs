//! A caller of the multiplexer that keeps its rules: streams with payloads that tell their place, readers of several tempers.

use std::{collections::HashMap, time::Duration};

use mux::{Config, Event, Key, Mux, OpenError, Reason, Side};

use super::{Pipe, Rng};

/// How a stream's reader behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    Eager,
    /// So many bytes per round.
    Slow(usize),
    Never,
}

/// What both ends do with one stream; travels as its header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) tag: u64,
    /// Bytes from the opener, and to it.
    pub(crate) totals: [usize; 2],
    /// Readers at the acceptor and at the opener.
    pub(crate) readers: [Reader; 2],
}

impl Plan {
    pub(crate) fn random(rng: &mut Rng, max: usize) -> Self {
        let mut reader = || match rng.below(6) {
            0 => Reader::Never,
            1 => Reader::Slow(1 + rng.below(4000)),
            _ => Reader::Eager,
        };
        let readers = [reader(), reader()];
        Self {
            tag: rng.next(),
            totals: [rng.size(max), rng.size(max)],
            readers,
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut wire = self.tag.to_be_bytes().to_vec();
        for n in self.totals {
            wire.extend((n as u32).to_be_bytes());
        }
        for reader in self.readers {
            let code = match reader {
                Reader::Eager => u32::MAX,
                Reader::Never => 0,
                Reader::Slow(n) => n as u32,
            };
            wire.extend(code.to_be_bytes());
        }
        wire
    }

    fn decode(wire: &[u8]) -> Self {
        let number = |at: usize| u32::from_be_bytes(wire[at..at + 4].try_into().expect("4 bytes"));
        let reader = |at| match number(at) {
            u32::MAX => Reader::Eager,
            0 => Reader::Never,
            n => Reader::Slow(n as usize),
        };
        Self {
            tag: u64::from_be_bytes(wire[..8].try_into().expect("8 bytes")),
            totals: [number(8) as usize, number(12) as usize],
            readers: [reader(16), reader(20)],
        }
    }
}

/// The byte at one place of one direction of a stream.
fn byte(tag: u64, direction: usize, offset: usize) -> u8 {
    let x = tag
        .wrapping_add(direction as u64)
        .wrapping_add(offset as u64 / 3)
        .wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (x >> 56) as u8
}

#[derive(Debug)]
struct Half {
    tag: u64,
    /// Direction in which this end sends.
    direction: usize,
    sent: usize,
    total: usize,
    received: usize,
    expected: usize,
    unconsumed: usize,
    reader: Reader,
    finished: bool,
}

/// One end: its multiplexer and the streams' apps.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) mux: Mux,
    config: Config,
    halves: HashMap<Key, Half>,
    /// Bytes given to apps that they have not passed on.
    pub(crate) unconsumed: usize,
    pub(crate) opened: usize,
    pub(crate) completed: usize,
    pub(crate) resets: usize,
    control_sent: u32,
    control_received: u32,
    /// All readers become eager.
    pub(crate) closing: bool,
}

impl End {
    pub(crate) fn new(side: Side, config: Config) -> Self {
        Self {
            mux: Mux::new(side, config, Duration::ZERO),
            config,
            halves: HashMap::new(),
            unconsumed: 0,
            opened: 0,
            completed: 0,
            resets: 0,
            control_sent: 0,
            control_received: 0,
            closing: false,
        }
    }

    pub(crate) fn open(&mut self, plan: Plan, now: Duration) -> Option<Key> {
        let first: Vec<u8> = (0..plan.totals[0].min(600))
            .map(|i| byte(plan.tag, 0, i))
            .collect();
        let (key, sent) = match self.mux.open(&plan.encode(), &first, now) {
            Ok(opened) => opened,
            Err(OpenError::TooManyStreams) => return None,
            Err(error) => panic!("{error}"),
        };
        self.opened += 1;
        self.start(key, plan, 0, sent);
        Some(key)
    }

    fn start(&mut self, key: Key, plan: Plan, direction: usize, sent: usize) {
        let half = Half {
            tag: plan.tag,
            direction,
            sent,
            total: plan.totals[direction],
            received: 0,
            expected: plan.totals[1 - direction],
            unconsumed: 0,
            reader: plan.readers[1 - direction],
            finished: false,
        };
        assert!(
            self.halves.insert(key, half).is_none(),
            "a key was given out twice"
        );
        self.more(key);
    }

    /// The stream asks for its turn, or ends its direction.
    fn more(&mut self, key: Key) {
        let half = &self.halves[&key];
        if half.sent == half.total {
            self.mux.finish(key);
            self.forget_if_over(key);
        } else if let mux::Turn::Now(limit) = self.mux.request(key) {
            self.turn(key, limit);
        }
    }

    fn turn(&mut self, key: Key, limit: usize) {
        let half = self
            .halves
            .get_mut(&key)
            .expect("turns are for live streams");
        let n = limit.min(half.total - half.sent);
        assert!(n > 0, "a turn of nothing");
        let filled: Result<usize, std::convert::Infallible> = self.mux.send_with(key, n, |room| {
            for (i, place) in room.iter_mut().enumerate() {
                *place = byte(half.tag, half.direction, half.sent + i);
            }
            Ok(room.len())
        });
        half.sent += filled.unwrap_or_default();
        self.more(key);
    }

    pub(crate) fn turns(&mut self) {
        while let Some((key, limit)) = self.mux.next_turn() {
            self.turn(key, limit);
        }
    }

    fn forget_if_over(&mut self, key: Key) {
        let half = &self.halves[&key];
        if half.finished && half.sent == half.total && half.unconsumed == 0 {
            self.halves.remove(&key);
            self.completed += 1;
        }
    }

    /// Whether the rules allow to read from the transport.
    pub(crate) fn may_read(&self) -> bool {
        self.mux.output_len() <= 16 * self.config.output_limit.max(4096)
    }

    pub(crate) fn read(&mut self, wire: &[u8], now: Duration) {
        let mut input = wire;
        loop {
            let event = self.mux.receive(&mut input, now).expect("an honest peer");
            let Some(event) = event else { break };
            match event {
                Event::Opened { key, header } => {
                    let plan = Plan::decode(&header);
                    self.start(key, plan, 1, 0);
                }
                Event::Data { key, bytes } => self.take(key, bytes),
                Event::Finished { key } => {
                    let half = self.halves.get_mut(&key).expect("known");
                    assert_eq!(half.received, half.expected, "bytes are missing at the end");
                    assert!(
                        !std::mem::replace(&mut half.finished, true),
                        "finished twice"
                    );
                    self.forget_if_over(key);
                }
                Event::Reset { key, .. } => {
                    let half = self.halves.remove(&key).expect("known");
                    self.unconsumed -= half.unconsumed;
                    self.resets += 1;
                }
                Event::Control { message } => {
                    assert_eq!(message[..4], self.control_received.to_be_bytes());
                    self.control_received += 1;
                }
                Event::Pong { .. } => {}
            }
        }
        assert!(input.is_empty());
    }

    fn take(&mut self, key: Key, bytes: &[u8]) {
        let half = self.halves.get_mut(&key).expect("data of a live stream");
        for (i, got) in bytes.iter().enumerate() {
            assert_eq!(
                *got,
                byte(half.tag, 1 - half.direction, half.received + i),
                "order"
            );
        }
        half.received += bytes.len();
        half.unconsumed += bytes.len();
        self.unconsumed += bytes.len();
        assert!(half.received <= half.expected);
        assert!(
            half.unconsumed <= self.config.max_stream_window as usize,
            "a stream's window"
        );
        assert!(
            self.unconsumed <= self.config.link_window as usize,
            "the link's window"
        );
    }

    /// Readers pass bytes on.
    pub(crate) fn consume(&mut self, rng: &mut Rng, now: Duration) {
        let mut ready: Vec<(Key, usize)> = Vec::new();
        for (key, half) in &self.halves {
            let n = match half.reader {
                _ if self.closing => half.unconsumed,
                Reader::Eager => half.unconsumed,
                Reader::Slow(n) => n.min(half.unconsumed),
                Reader::Never => 0,
            };
            if n > 0 {
                ready.push((*key, n));
            }
        }
        ready.sort_by_key(|(key, _)| key.index());
        for (key, n) in ready {
            // Sometimes in pieces.
            let cut = if rng.chance(3) { rng.below(n) } else { 0 };
            for n in [cut, n - cut].into_iter().filter(|n| *n > 0) {
                self.mux.consumed(key, n, now);
            }
            let half = self.halves.get_mut(&key).expect("known");
            half.unconsumed -= n;
            self.unconsumed -= n;
            self.forget_if_over(key);
        }
    }

    pub(crate) fn reset_one(&mut self, rng: &mut Rng) {
        let mut keys: Vec<Key> = self.halves.keys().copied().collect();
        keys.sort_by_key(|key| key.index());
        if keys.is_empty() {
            return;
        }
        let key = keys[rng.below(keys.len())];
        let half = self.halves.remove(&key).expect("known");
        self.unconsumed -= half.unconsumed;
        self.mux.reset(key, Reason(7));
        self.mux.consumed(key, 100, Duration::ZERO);
        assert_eq!(self.mux.request(key), mux::Turn::Gone);
        self.resets += 1;
    }

    pub(crate) fn control(&mut self, rng: &mut Rng) {
        let mut message = self.control_sent.to_be_bytes().to_vec();
        message.resize(4 + rng.size(3000), 0x5A);
        self.mux.send_control(&message);
        self.control_sent += 1;
    }

    /// All control messages of `self` have come at `other`.
    pub(crate) fn check_control(&self, other: &Self) {
        assert_eq!(self.control_sent, other.control_received);
    }

    /// Writes what the transport takes, in uneven pieces.
    pub(crate) fn write(&mut self, pipe: &mut Pipe, rng: &mut Rng, now: Duration) {
        loop {
            self.turns();
            let output = self.mux.output();
            if output.is_empty() {
                return;
            }
            let n = if rng.chance(2) {
                output.len()
            } else {
                1 + rng.below(output.len())
            };
            let taken = pipe.write(&output[..n], now);
            self.mux.advance(taken);
            if taken < n || rng.chance(8) {
                return;
            }
        }
    }

    pub(crate) fn tick(&mut self, now: Duration) {
        if self.mux.next_timeout() <= now {
            self.mux.on_timeout(now).expect("a live link");
        }
    }

    /// Bytes received so far on a stream, if it is live.
    pub(crate) fn received(&self, key: Key) -> Option<usize> {
        self.halves.get(&key).map(|half| half.received)
    }

    pub(crate) fn sent(&self, key: Key) -> Option<usize> {
        self.halves.get(&key).map(|half| half.sent)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.halves.is_empty() && self.mux.stream_count() == 0 && !self.mux.has_output()
    }
}

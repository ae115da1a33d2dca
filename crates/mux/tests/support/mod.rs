//! What the tests share: a seeded generator, a transport of finite capacity in virtual time, and helpers that move frames.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::{collections::VecDeque, time::Duration};

use mux::{Config, Event, Key, Mux, Side};
use testkit::Random;

pub(crate) mod app;
pub(crate) mod lossy;

/// A seeded generator.
#[derive(Clone, Debug)]
pub(crate) struct Rng(Random);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Random::new(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.number()
    }

    /// A number below `n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    pub(crate) fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    /// A size up to `max`: half of the time any, half of the time of any magnitude, so that tiny ones come too.
    pub(crate) fn size(&mut self, max: usize) -> usize {
        if self.chance(2) {
            return self.below(max + 1);
        }
        let bits = self.below((usize::BITS - max.leading_zeros()) as usize + 1);
        self.below(1 << bits).min(max)
    }
}

/// One direction of a transport: bytes in order, after a delay, at most so many on the way.
#[derive(Debug)]
pub(crate) struct Pipe {
    chunks: VecDeque<(Duration, Vec<u8>)>,
    len: usize,
    capacity: usize,
    delay: Duration,
    /// Bytes ever read.
    pub(crate) moved: usize,
}

impl Pipe {
    pub(crate) fn new(capacity: usize, delay: Duration) -> Self {
        Self {
            chunks: VecDeque::new(),
            len: 0,
            capacity,
            delay,
            moved: 0,
        }
    }

    /// Takes as much as fits; tells how much.
    pub(crate) fn write(&mut self, bytes: &[u8], now: Duration) -> usize {
        let n = bytes.len().min(self.capacity - self.len);
        if n > 0 {
            self.chunks
                .push_back((now + self.delay, bytes[..n].to_vec()));
            self.len += n;
        }
        n
    }

    /// At most `n` bytes that have arrived by `now`.
    pub(crate) fn read(&mut self, n: usize, now: Duration) -> Vec<u8> {
        let mut out = Vec::new();
        while let Some((ready, chunk)) = self.chunks.front_mut() {
            if *ready > now || out.len() == n {
                break;
            }
            let part = chunk.len().min(n - out.len());
            out.extend(chunk.drain(..part));
            if chunk.is_empty() {
                self.chunks.pop_front();
            }
        }
        self.len -= out.len();
        self.moved += out.len();
        out
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Two ends with the same windows.
pub(crate) fn pair(config: Config) -> (Mux, Mux) {
    (
        Mux::new(Side::Initiator, config, Duration::ZERO),
        Mux::new(Side::Acceptor, config, Duration::ZERO),
    )
}

/// `stream` and `link` bytes of window at both ends, windows that do not grow.
pub(crate) fn windows(stream: u32, link: u32) -> Config {
    Config {
        stream_window: stream,
        peer_stream_window: stream,
        max_stream_window: stream,
        link_window: link,
        peer_link_window: link,
        ..Config::default()
    }
}

/// An event that owns what it carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Got {
    Opened(Key, Vec<u8>),
    Data(Key, usize),
    Finished(Key),
    Reset(Key, u16),
    Control(Vec<u8>),
    Pong,
}

/// Feeds `wire`, which must be legal.
pub(crate) fn feed(mux: &mut Mux, wire: &[u8], now: Duration) -> Vec<Got> {
    let mut input = wire;
    let mut got = Vec::new();
    while let Some(event) = mux.receive(&mut input, now).expect("a legal peer") {
        got.push(match event {
            Event::Opened { key, header } => Got::Opened(key, header.into_owned()),
            Event::Data { key, bytes } => Got::Data(key, bytes.len()),
            Event::Finished { key } => Got::Finished(key),
            Event::Reset { key, reason } => Got::Reset(key, reason.0),
            Event::Control { message } => Got::Control(message.into_owned()),
            Event::Pong { .. } => Got::Pong,
        });
    }
    assert!(input.is_empty());
    got
}

/// All output, as if the transport took it.
pub(crate) fn drain(mux: &mut Mux) -> Vec<u8> {
    let wire = mux.output().to_vec();
    mux.advance(wire.len());
    wire
}

/// Moves everything from one end to the other.
pub(crate) fn carry(from: &mut Mux, to: &mut Mux, now: Duration) -> Vec<Got> {
    let wire = drain(from);
    feed(to, &wire, now)
}

/// Sends zeros in a turn.
pub(crate) fn fill(mux: &mut Mux, key: Key, n: usize) -> usize {
    let filled: Result<usize, std::convert::Infallible> =
        mux.send_with(key, n, |room| Ok(room.len()));
    filled.unwrap_or_default()
}

/// Bytes that `mux` may send on new streams while nothing is passed on at the other end: what is left of the link's window.
pub(crate) fn sendable(from: &mut Mux, to: &mut Mux, streams: usize, now: Duration) -> usize {
    let mut sent = 0;
    let mut keys = Vec::new();
    for _ in 0..streams {
        let (key, _) = from.open(&[], &[], now).expect("room for a stream");
        keys.push(key);
        while let mux::Turn::Now(n) = from.request(key) {
            sent += fill(from, key, n);
        }
        while from.has_output() {
            carry(from, to, now);
            carry(to, from, now);
            while let Some((key, n)) = from.next_turn() {
                sent += fill(from, key, n);
                from.request(key);
            }
        }
    }
    for key in keys {
        from.reset(key, mux::Reason(0));
    }
    carry(from, to, now);
    carry(to, from, now);
    sent
}

//! Two honest smux ends over a seeded transport that cuts its bytes anywhere: whatever the streams and their readers do, every byte
//! comes once and in order, memory stays within the buffers, and everything returns to nothing. For both versions.

mod support;

use std::{
    collections::{HashMap, HashSet},
    convert::Infallible,
    time::Duration,
};

use mux::{
    Key, Side, Turn,
    smux::{Config, Event, INITIAL_WINDOW, OpenError, Smux, Version},
};
use testkit::seeds;

use support::{Pipe, Rng};

/// What a stream is to carry, told to the acceptor in its first bytes.
#[derive(Clone, Copy, Debug)]
struct Plan {
    tag: u32,
    /// Bytes of the opener (the plan among them) and of the acceptor.
    totals: [usize; 2],
}

const PLAN: usize = 12;

impl Plan {
    fn byte(self, direction: usize, i: usize) -> u8 {
        if direction == 0 && i < PLAN {
            let words = [self.tag, self.totals[0] as u32, self.totals[1] as u32];
            return words[i / 4].to_le_bytes()[i % 4];
        }
        (self.tag as usize * 31 + direction * 17 + i + (i >> 8) * 7) as u8
    }

    fn decode(bytes: &[u8]) -> Self {
        let word = |i: usize| {
            let word: [u8; 4] = bytes[4 * i..4 * i + 4].try_into().expect("four bytes");
            u32::from_le_bytes(word)
        };
        Self {
            tag: word(0),
            totals: [word(1) as usize, word(2) as usize],
        }
    }
}

/// This end's part of a stream.
#[derive(Debug)]
struct Half {
    /// The acceptor learns it from the stream.
    plan: Option<Plan>,
    head: Vec<u8>,
    direction: usize,
    sent: usize,
    received: usize,
    unconsumed: usize,
    /// Bytes passed on at a time.
    pace: usize,
    sent_all: bool,
    finished: bool,
}

/// Directions of streams that were given up on the way: (tag, direction).
type Cut = HashSet<(u32, usize)>;

#[derive(Debug)]
struct End {
    smux: Smux,
    config: Config,
    halves: HashMap<Key, Half>,
    unconsumed: usize,
    closing: bool,
    progress: usize,
}

impl End {
    fn new(side: Side, config: Config) -> Self {
        Self {
            smux: Smux::new(side, config, Duration::ZERO),
            config,
            halves: HashMap::new(),
            unconsumed: 0,
            closing: false,
            progress: 0,
        }
    }

    fn may_read(&self) -> bool {
        self.smux.output_len() <= 4 * self.config.output_limit.max(16 << 10)
    }

    fn open(&mut self, plan: Plan, rng: &mut Rng) {
        match self.smux.open() {
            Ok(key) => self.start(key, Some(plan), 0, rng),
            Err(OpenError::TooManyStreams) => {
                assert_eq!(self.smux.stream_count(), self.config.max_streams);
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn start(&mut self, key: Key, plan: Option<Plan>, direction: usize, rng: &mut Rng) {
        let half = Half {
            plan,
            head: Vec::new(),
            direction,
            sent: 0,
            received: 0,
            unconsumed: 0,
            pace: match rng.below(6) {
                0 => 0,
                1 => 1 + rng.size(3000),
                _ => usize::MAX,
            },
            sent_all: false,
            finished: false,
        };
        assert!(self.halves.insert(key, half).is_none(), "a key came twice");
        self.more(key);
    }

    /// The stream asks for its turn, or ends its direction.
    fn more(&mut self, key: Key) {
        let half = self.halves.get_mut(&key).expect("known");
        let Some(plan) = half.plan else { return };
        if half.sent_all {
        } else if half.sent == plan.totals[half.direction] {
            half.sent_all = true;
            self.smux.finish(key);
            self.forget_if_over(key);
        } else if let Turn::Now(limit) = self.smux.request(key) {
            self.turn(key, limit);
        }
    }

    fn turn(&mut self, key: Key, limit: usize) {
        let half = self
            .halves
            .get_mut(&key)
            .expect("turns are for live streams");
        let plan = half.plan.expect("it has asked");
        let n = limit.min(plan.totals[half.direction] - half.sent);
        assert!(n > 0, "a turn of nothing");
        let filled: Result<usize, Infallible> = self.smux.send_with(key, n, |room| {
            for (i, place) in room.iter_mut().enumerate() {
                *place = plan.byte(half.direction, half.sent + i);
            }
            Ok(room.len())
        });
        let Ok(filled) = filled;
        assert_eq!(filled, n, "a turn is good for what it says");
        half.sent += filled;
        self.more(key);
    }

    fn forget_if_over(&mut self, key: Key) {
        let half = &self.halves[&key];
        if half.finished && half.sent_all && half.unconsumed == 0 {
            self.halves.remove(&key);
            self.progress += 1;
        }
    }

    fn read(&mut self, wire: &[u8], rng: &mut Rng, cut: &Cut, now: Duration) {
        let mut input = wire;
        loop {
            let event = self.smux.receive(&mut input, now).expect("an honest peer");
            let Some(event) = event else { break };
            match event {
                Event::Opened { key } => self.start(key, None, 1, rng),
                Event::Data { key, bytes } => self.take(key, bytes),
                Event::Finished { key } => {
                    let half = self.halves.get_mut(&key).expect("known");
                    assert!(!std::mem::replace(&mut half.finished, true), "ended twice");
                    let theirs = 1 - half.direction;
                    match half.plan {
                        Some(plan) if !cut.contains(&(plan.tag, theirs)) => {
                            assert_eq!(half.received, plan.totals[theirs], "bytes are missing");
                        }
                        Some(_) => {}
                        // Refused or given up before it has said what it is.
                        None => {
                            half.sent_all = true;
                            self.smux.finish(key);
                        }
                    }
                    self.forget_if_over(key);
                }
            }
        }
        assert!(input.is_empty());
    }

    fn take(&mut self, key: Key, bytes: &[u8]) {
        let half = self.halves.get_mut(&key).expect("data of a live stream");
        if half.plan.is_none() {
            half.head.extend(bytes);
        }
        let at = half.received;
        half.received += bytes.len();
        half.unconsumed += bytes.len();
        self.unconsumed += bytes.len();
        self.progress += bytes.len();
        assert!(self.unconsumed <= self.config.receive_buffer, "the buffer");
        if self.config.version == Version::V2 {
            let window = self.config.stream_buffer.max(INITIAL_WINDOW);
            assert!(half.unconsumed <= window as usize, "a stream's window");
        }
        match half.plan {
            Some(plan) => check(plan, 1 - half.direction, at, bytes),
            None if half.head.len() >= PLAN => {
                let plan = Plan::decode(&half.head);
                half.plan = Some(plan);
                check(plan, 0, 0, &std::mem::take(&mut half.head));
                self.more(key);
            }
            None => {}
        }
    }

    /// Readers pass bytes on.
    fn consume(&mut self, rng: &mut Rng, now: Duration) {
        let closing = self.closing;
        let amount = |half: &Half| match closing {
            true => half.unconsumed,
            false => half.unconsumed.min(half.pace),
        };
        let mut ready: Vec<(Key, usize)> = self
            .halves
            .iter()
            .map(|(key, half)| (*key, amount(half)))
            .filter(|(_, n)| *n > 0)
            .collect();
        ready.sort_by_key(|(key, _)| key.index());
        for (key, n) in ready {
            let first = if rng.chance(3) { rng.below(n) } else { 0 };
            self.smux.consumed(key, first, now);
            self.smux.consumed(key, n - first, now);
            let half = self.halves.get_mut(&key).expect("known");
            half.unconsumed -= n;
            self.unconsumed -= n;
            self.forget_if_over(key);
        }
    }

    /// One stream is given up in both directions.
    fn close_one(&mut self, rng: &mut Rng, cut: &mut Cut, now: Duration) {
        let mut keys: Vec<Key> = self.halves.keys().copied().collect();
        keys.sort_by_key(|key| key.index());
        if keys.is_empty() {
            return;
        }
        let key = keys[rng.below(keys.len())];
        let half = self.halves.remove(&key).expect("known");
        let plan = half.plan.expect("the caller sees to it");
        cut.insert((plan.tag, half.direction));
        self.unconsumed -= half.unconsumed;
        self.smux.close(key, now);
        self.smux.consumed(key, 100, now);
        assert_eq!(self.smux.request(key), Turn::Gone);
    }

    fn write(&mut self, pipe: &mut Pipe, rng: &mut Rng, now: Duration) {
        loop {
            while let Some((key, limit)) = self.smux.next_turn() {
                self.turn(key, limit);
            }
            let output = self.smux.output();
            if output.is_empty() {
                return;
            }
            let n = match rng.chance(2) {
                true => output.len(),
                false => 1 + rng.below(output.len()),
            };
            let taken = pipe.write(&output[..n], now);
            self.smux.advance(taken);
            if taken < n || rng.chance(8) {
                return;
            }
        }
    }

    fn tick(&mut self, cut: &mut Cut, now: Duration) {
        if self.smux.next_timeout() > now {
            return;
        }
        self.smux.on_timeout(now).expect("a live session");
        while let Some(key) = self.smux.next_given_up() {
            assert_eq!(self.config.version, Version::V2);
            let half = self.halves.get_mut(&key).expect("known");
            assert!(half.finished && !half.sent_all);
            half.sent_all = true;
            let plan = half.plan.expect("it has sent");
            cut.insert((plan.tag, half.direction));
            self.forget_if_over(key);
        }
    }

    fn is_idle(&self) -> bool {
        self.halves.is_empty() && self.smux.stream_count() == 0 && self.smux.output_len() == 0
    }
}

fn check(plan: Plan, direction: usize, at: usize, bytes: &[u8]) {
    for (i, got) in bytes.iter().enumerate() {
        assert_eq!(*got, plan.byte(direction, at + i), "order");
    }
}

#[derive(Debug)]
struct World {
    rng: Rng,
    now: Duration,
    ends: [End; 2],
    /// `pipes[i]` carries what `ends[i]` writes.
    pipes: [Pipe; 2],
    cut: Cut,
}

impl World {
    fn new(version: Version, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut config = || Config {
            version,
            receive_buffer: 1 + rng.size(600_000),
            stream_buffer: 1 + rng.size(300_000) as u32,
            max_frame: 1 + rng.size(65_534) as u16,
            // The other end refuses by `FIN`, which a model of bytes cannot tell from a service that is done.
            max_streams: 1000,
            output_limit: 1 + rng.size(100_000),
            keep_alive: Duration::from_millis(500),
            keep_alive_timeout: Duration::from_secs(100_000),
            linger: Duration::from_secs(2),
        };
        let configs = [config(), config()];
        let delay = Duration::from_millis(rng.size(200) as u64);
        let capacity = 2000 + rng.size(200_000);
        Self {
            now: Duration::ZERO,
            ends: [
                End::new(Side::Initiator, configs[0]),
                End::new(Side::Acceptor, configs[1]),
            ],
            pipes: [Pipe::new(capacity, delay), Pipe::new(capacity, delay)],
            cut: Cut::new(),
            rng,
        }
    }

    fn round(&mut self) {
        self.now += Duration::from_millis(1 + self.rng.below(10) as u64);
        let Self {
            rng,
            now,
            ends,
            pipes,
            cut,
        } = self;
        for (i, end) in ends.iter_mut().enumerate() {
            // As often as there is room, as a shell does.
            while end.may_read() && end.smux.read_budget() > 0 {
                let n = end.smux.read_budget().min(1 + rng.size(70_000));
                let wire = pipes[1 - i].read(n, *now);
                if wire.is_empty() {
                    break;
                }
                let mut rest = &wire[..];
                while !rest.is_empty() {
                    let n = match rng.chance(2) {
                        true => rest.len(),
                        false => 1 + rng.below(rest.len().min(64)),
                    };
                    end.read(&rest[..n], rng, cut, *now);
                    rest = &rest[n..];
                }
                end.consume(rng, *now);
                if rng.chance(4) {
                    break;
                }
            }
            end.consume(rng, *now);
            end.write(&mut pipes[i], rng, *now);
            end.tick(cut, *now);
        }
    }
}

fn simulate(version: Version, seed: u64) {
    let mut world = World::new(version, seed);
    // A buffer of a few bytes is a hard case; many bytes through it would only be slow.
    let least = world.ends.iter().map(|end| end.config.receive_buffer).min();
    let max = 20 + world.rng.size(200_000.min(50 * least.unwrap_or(1)));
    let closes = world.rng.chance(2);
    let mut tag = 0;
    for _ in 0..100 {
        for end in &mut world.ends {
            while world.rng.chance(3) && end.may_read() {
                let totals = [PLAN + world.rng.size(max), world.rng.size(max)];
                tag += 1;
                end.open(Plan { tag, totals }, &mut world.rng);
            }
            // The acceptor of a stream may not know its tag yet, so only streams that it knows are closed there.
            if closes && world.rng.chance(20) {
                let unknown = end.halves.values().any(|half| half.plan.is_none());
                if !unknown {
                    end.close_one(&mut world.rng, &mut world.cut, world.now);
                }
            }
        }
        world.round();
    }
    world.ends.iter_mut().for_each(|end| end.closing = true);
    let mut last = (0, 0);
    for round in 0.. {
        if world.ends.iter().all(End::is_idle) {
            break;
        }
        world.round();
        let progress = world.ends.iter().map(|end| end.progress).sum();
        if progress != last.1 {
            last = (round, progress);
        }
        assert!(round < last.0 + 3000, "the streams stand still: {world:?}");
    }
    for end in &world.ends {
        assert_eq!(end.unconsumed, 0);
        assert_eq!(end.smux.read_budget(), end.config.receive_buffer.max(1));
        assert!(end.progress > 0);
    }
}

#[test]
fn version_1_brings_every_byte_once_and_in_order() {
    for seed in seeds(25) {
        simulate(Version::V1, seed);
    }
}

#[test]
fn version_2_brings_every_byte_once_and_in_order() {
    for seed in seeds(25) {
        simulate(Version::V2, seed);
    }
}

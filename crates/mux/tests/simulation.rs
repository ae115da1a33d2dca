//! Two honest ends over a seeded transport that cuts its bytes anywhere: whatever the streams and their readers do, every byte
//! comes once and in order, memory stays within the windows, and everything returns to nothing.

mod support;

use std::time::Duration;

use mux::{Config, Side};
use testkit::seeds;

use support::{Pipe, Rng, app::End, app::Plan, drain, feed, pair, sendable, windows};

#[derive(Debug)]
struct World {
    rng: Rng,
    now: Duration,
    ends: [End; 2],
    /// `pipes[i]` carries what `ends[i]` writes.
    pipes: [Pipe; 2],
}

impl World {
    fn new(seed: u64) -> (Self, Config) {
        let mut rng = Rng::new(seed);
        let stream = 1 + rng.size(200_000) as u32;
        let link = 2000 + rng.size(1_000_000) as u32;
        let mut config = windows(stream, link);
        if rng.chance(2) {
            config.max_stream_window = stream.saturating_mul(8);
        }
        config.max_streams = if rng.chance(4) { 1 + rng.size(20) } else { 300 };
        config.output_limit = 1 + rng.size(100_000);
        // A transport of a few bytes is a hard case, but with a delay it would only be slow.
        let (delay, capacity) = match rng.chance(8) {
            true => (0, 100 + rng.size(400)),
            false => (rng.size(200) as u64, 2000 + rng.size(200_000)),
        };
        let delay = Duration::from_millis(delay);
        let world = Self {
            now: Duration::ZERO,
            ends: [
                End::new(Side::Initiator, config),
                End::new(Side::Acceptor, config),
            ],
            pipes: [Pipe::new(capacity, delay), Pipe::new(capacity, delay)],
            rng,
        };
        (world, config)
    }

    fn round(&mut self) {
        self.now += Duration::from_millis(1 + self.rng.below(10) as u64);
        for i in 0..2 {
            let end = &mut self.ends[i];
            if end.may_read() {
                let n = if self.rng.chance(2) {
                    usize::MAX
                } else {
                    self.rng.size(70_000)
                };
                let wire = self.pipes[1 - i].read(n, self.now);
                let mut rest = &wire[..];
                while !rest.is_empty() {
                    let n = if self.rng.chance(2) {
                        rest.len()
                    } else {
                        1 + self.rng.below(rest.len().min(64))
                    };
                    end.read(&rest[..n], self.now);
                    rest = &rest[n..];
                }
            }
            end.consume(&mut self.rng, self.now);
            end.write(&mut self.pipes[i], &mut self.rng, self.now);
            end.tick(self.now);
        }
    }
}

#[test]
fn every_byte_comes_once_in_order_and_all_ends_at_nothing() {
    for seed in seeds(100) {
        let (mut world, config) = World::new(seed);
        // A stream may need some hundred round trips, not more.
        let max = 1 + world
            .rng
            .size(300_000.min(200 * config.stream_window as usize));
        let mut opened = [0; 2];
        for _ in 0..150 {
            for (i, end) in world.ends.iter_mut().enumerate() {
                while world.rng.chance(3) && end.may_read() {
                    let plan = Plan::random(&mut world.rng, max);
                    opened[i] += usize::from(end.open(plan, world.now).is_some());
                }
                if world.rng.chance(20) {
                    end.reset_one(&mut world.rng);
                }
                if world.rng.chance(20) && end.may_read() {
                    end.control(&mut world.rng);
                }
            }
            world.round();
        }
        world.ends.iter_mut().for_each(|end| end.closing = true);
        let mut last = (0, 0);
        for round in 0.. {
            if world.ends.iter().all(End::is_idle) && world.pipes.iter().all(Pipe::is_empty) {
                break;
            }
            world.round();
            let moved = world.pipes.iter().map(|pipe| pipe.moved).sum();
            if moved != last.1 {
                last = (round, moved);
            }
            // Longer than ten round trips, shorter than the time between pings.
            assert!(round < last.0 + 2000, "the streams stand still: {world:?}");
        }
        let [a, b] = &mut world.ends;
        a.check_control(b);
        b.check_control(a);
        assert_eq!(a.unconsumed + b.unconsumed, 0);
        assert!(a.completed + a.resets >= opened[0]);
        let now = world.now;
        for (from, to) in [(0, 1), (1, 0)] {
            let [from, to] = world.ends.get_disjoint_mut([from, to]).expect("two ends");
            assert_credit_is_whole(&mut from.mux, &mut to.mux, config, now);
        }
    }
}

/// What may be sent now is what may be sent on a fresh link, but for the credit that a receiver may hold back.
fn assert_credit_is_whole(from: &mut mux::Mux, to: &mut mux::Mux, config: Config, now: Duration) {
    let streams = config.max_streams.min(40);
    let (mut fresh_from, mut fresh_to) = pair(config);
    let fresh = sendable(&mut fresh_from, &mut fresh_to, streams, now);
    let sent = sendable(from, to, streams, now);
    assert!(sent <= fresh, "credit was invented: {sent} > {fresh}");
    let held = config.link_window as usize / 64;
    assert!(
        sent + held >= fresh - fresh / 8,
        "credit was lost: {sent} of {fresh}"
    );
}

#[test]
fn fragmentation_does_not_change_what_is_received() {
    for seed in seeds(50) {
        let mut rng = Rng::new(seed);
        let (mut client, mut whole) = pair(Config::default());
        let (_, mut cut) = pair(Config::default());
        for i in 0..20 {
            let header = vec![i; rng.size(1024)];
            let first = vec![i; rng.size(3000)];
            let (key, _) = client.open(&header, &first, Duration::ZERO).expect("room");
            client.send_control(&vec![i; 1 + rng.size(2000)]);
            client.finish(key);
        }
        client.on_timeout(Duration::ZERO).expect("alive");
        let wire = drain(&mut client);
        let joined = |events: Vec<support::Got>| {
            let mut joined: Vec<support::Got> = Vec::new();
            for event in events {
                match (joined.last_mut(), event) {
                    (Some(support::Got::Data(a, n)), support::Got::Data(b, m)) if *a == b => {
                        *n += m
                    }
                    (_, event) => joined.push(event),
                }
            }
            joined
        };
        let expected = joined(feed(&mut whole, &wire, Duration::ZERO));
        let mut got = Vec::new();
        let mut rest = &wire[..];
        while !rest.is_empty() {
            let n = (1 + rng.size(12)).min(rest.len());
            got.extend(feed(&mut cut, &rest[..n], Duration::ZERO));
            rest = &rest[n..];
        }
        assert_eq!(joined(got), expected);
        assert_eq!(drain(&mut cut), drain(&mut whole));
    }
}

//! How windows grow, in virtual time over a transport that stands still when it loses a packet: far enough to use the path within a few
//! round trips, and no further for readers that are behind or because of a queue.

mod support;

use std::{collections::BTreeMap, time::Duration};

use mux::{Config, Event, Key, Mux, Side, Turn};
use testkit::seeds;

use support::{
    Rng, fill,
    lossy::{Lossy, Way},
};

const TICK: Duration = Duration::from_millis(1);

/// 20 Mbit/s over 100 ms, of which so many packets of a thousand are lost. As much waits as a kernel is allowed to hold for a link.
fn long(loss: usize) -> Way {
    Way {
        rate: 2_500_000,
        delay: Duration::from_millis(50),
        loss,
        queue: 128 << 10,
    }
}

/// A stream's end that passes bytes on at its own pace.
#[derive(Debug, Default)]
struct Reader {
    /// Bytes in a tick.
    pace: usize,
    waiting: usize,
    passed: usize,
}

/// Bulk streams from one end to the other.
#[derive(Debug)]
struct World {
    now: Duration,
    from: Mux,
    to: Mux,
    there: Lossy,
    back: Lossy,
    /// In order of the streams' opening.
    readers: BTreeMap<usize, (Key, Reader)>,
}

impl World {
    fn new(seed: u64, way: Way, config: Config) -> Self {
        let mut rng = Rng::new(seed);
        let (first, second) = (Rng::new(rng.next()), Rng::new(rng.next()));
        let mut world = Self {
            now: Duration::ZERO,
            from: Mux::new(Side::Initiator, config, Duration::ZERO),
            to: Mux::new(Side::Acceptor, config, Duration::ZERO),
            there: Lossy::new(way, first),
            back: Lossy::new(way, second),
            readers: BTreeMap::new(),
        };
        // A link is measured before its first stream.
        world.run(way.delay * 4);
        world
    }

    /// A stream that always has more to send, to a reader that takes so many bytes in a tick.
    fn bulk(&mut self, pace: usize) {
        let (key, _) = self
            .from
            .open(&(pace as u64).to_be_bytes(), &[], self.now)
            .expect("room for a stream");
        while let Turn::Now(n) = self.from.request(key) {
            fill(&mut self.from, key, n);
        }
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += TICK;
            self.tick();
        }
    }

    fn tick(&mut self) {
        let now = self.now;
        let wire = self.back.read(now);
        support::feed(&mut self.from, &wire, now);
        let wire = self.there.read(now);
        self.receive(&wire);
        for (key, reader) in self.readers.values_mut() {
            let n = reader.pace.min(reader.waiting);
            if n > 0 {
                reader.waiting -= n;
                reader.passed += n;
                self.to.consumed(*key, n, now);
            }
        }
        for mux in [&mut self.from, &mut self.to] {
            if mux.next_timeout() <= now {
                mux.on_timeout(now).expect("a live link");
            }
        }
        write(&mut self.from, &mut self.there, now);
        write(&mut self.to, &mut self.back, now);
    }

    fn receive(&mut self, wire: &[u8]) {
        let mut input = wire;
        while let Some(event) = self.to.receive(&mut input, self.now).expect("legal") {
            match event {
                Event::Opened { key, header } => {
                    let pace = u64::from_be_bytes(header[..].try_into().expect("8 bytes"));
                    let reader = Reader {
                        pace: pace as usize,
                        ..Reader::default()
                    };
                    self.readers.insert(key.index(), (key, reader));
                }
                Event::Data { key, bytes } => {
                    let (_, reader) = self.readers.get_mut(&key.index()).expect("known");
                    reader.waiting += bytes.len();
                }
                _ => {}
            }
        }
    }

    fn passed(&self) -> Vec<usize> {
        let readers = self.readers.values();
        readers.map(|(_, reader)| reader.passed).collect()
    }

    /// Bytes per second that each stream's reader gets in `time`.
    fn rates(&mut self, time: Duration) -> Vec<f64> {
        let before = self.passed();
        self.run(time);
        let after = self.passed();
        let moved = after
            .iter()
            .zip(before.iter().chain(std::iter::repeat(&0)))
            .map(|(after, before)| (after - before) as f64 / time.as_secs_f64());
        moved.collect()
    }

    /// What readers that stop now are made to hold, all together: their windows.
    fn held(&mut self) -> usize {
        for (_, reader) in self.readers.values_mut() {
            reader.pace = 0;
        }
        self.run(Duration::from_secs(5));
        let readers = self.readers.values();
        readers.map(|(_, reader)| reader.waiting).sum()
    }
}

/// Serves turns and writes until the transport takes no more.
fn write(mux: &mut Mux, pipe: &mut Lossy, now: Duration) {
    loop {
        while let Some((key, n)) = mux.next_turn() {
            fill(mux, key, n);
            while let Turn::Now(n) = mux.request(key) {
                fill(mux, key, n);
            }
        }
        let output = mux.output();
        if output.is_empty() {
            return;
        }
        let taken = pipe.write(output, now);
        mux.advance(taken);
        if taken == 0 {
            return;
        }
    }
}

/// As fast as anything comes.
const EAGER: usize = usize::MAX >> 1;

/// Windows that are as large from the beginning as they could grow.
fn wide() -> Config {
    let config = Config::default();
    Config {
        stream_window: config.max_stream_window,
        peer_stream_window: config.max_stream_window,
        ..config
    }
}

/// What readers get of what they would get with the largest windows, after `warm`, on the same path with the same losses.
fn share(seed: u64, way: Way, streams: usize, warm: Duration) -> (f64, Vec<f64>) {
    let rates = |config| {
        let mut world = World::new(seed, way, config);
        for _ in 0..streams {
            world.bulk(EAGER);
        }
        world.run(warm);
        world.rates(Duration::from_secs(8))
    };
    let grown = rates(Config::default());
    let best: f64 = rates(wide()).iter().sum();
    (grown.iter().sum::<f64>() / best, grown)
}

#[test]
fn a_lone_stream_uses_the_path_after_thirty_round_trips_whatever_is_lost() {
    for seed in seeds(4) {
        for loss in [0, 1, 10, 50, 100] {
            let (share, _) = share(seed, long(loss), 1, Duration::from_secs(3));
            assert!(share >= 0.85, "{loss} of 1000 lost: {share:.2}");
        }
    }
}

#[test]
fn a_stream_grows_its_window_where_nothing_is_lost_within_eight_round_trips() {
    let (share, _) = share(1, long(0), 1, Duration::from_millis(800));
    assert!(share >= 0.97, "{share:.2}");
}

#[test]
fn four_streams_use_the_path_together_and_evenly() {
    for seed in seeds(2) {
        for loss in [0, 10, 100] {
            let (share, each) = share(seed, long(loss), 4, Duration::from_secs(3));
            assert!(share >= 0.85, "{loss} of 1000 lost: {share:.2}");
            let least = each.iter().copied().fold(f64::MAX, f64::min);
            let mean = each.iter().sum::<f64>() / 4.0;
            assert!(least >= mean * 0.7, "{loss} of 1000 lost: {each:?}");
        }
    }
}

#[test]
fn a_reader_that_is_behind_keeps_the_window_it_needs() {
    for seed in seeds(4) {
        for loss in [0, 10, 50] {
            // A quarter of the path, and never anything.
            for (pace, most) in [(625, 512 << 10), (0, 256 << 10)] {
                let mut world = World::new(seed, long(loss), Config::default());
                world.bulk(pace);
                world.run(Duration::from_secs(10));
                let held = world.held();
                assert!(held <= most, "{loss} of 1000 lost, {pace} a tick: {held}");
            }
        }
    }
}

#[test]
fn a_queue_that_is_never_empty_makes_no_window_grow() {
    // A transport that takes all it is given, as one in front of a router with endless memory: a window more is as much more queue.
    let way = Way {
        delay: Duration::from_millis(10),
        queue: 64 << 20,
        ..long(0)
    };
    // Asked often, so that soon no answer is left that did not wait in the queue.
    let config = Config {
        keep_alive: Duration::from_millis(500),
        ..Config::default()
    };
    let mut world = World::new(1, way, config);
    world.bulk(EAGER);
    world.run(Duration::from_secs(20));
    let rate: f64 = world.rates(Duration::from_secs(2)).iter().sum();
    assert!(rate >= 0.97 * way.rate as f64, "{rate}");
    let held = world.held();
    assert!(held <= 256 << 10, "{held}");
}

#[test]
fn windows_grow_no_further_than_they_may() {
    for seed in seeds(4) {
        let config = Config {
            max_stream_window: 700 << 10,
            link_window: 2 << 20,
            peer_link_window: 2 << 20,
            ..Config::default()
        };
        let mut world = World::new(seed, long(50), config);
        for _ in 0..8 {
            world.bulk(EAGER);
        }
        world.run(Duration::from_secs(10));
        let held = world.held();
        assert!(held <= 2 << 20, "{held}");
        for (_, reader) in world.readers.values() {
            assert!(reader.waiting <= 700 << 10, "{}", reader.waiting);
        }
    }
}

#[test]
fn a_longer_path_is_found_out_in_mid_transfer() {
    for seed in seeds(4) {
        let short = Way {
            delay: Duration::from_millis(10),
            ..long(0)
        };
        let mut world = World::new(seed, short, Config::default());
        world.bulk(EAGER);
        world.run(Duration::from_secs(2));
        // Its packets are all underway when the path changes; nothing is said of it.
        let mut rng = Rng::new(seed);
        world.there.change(long(10), Rng::new(rng.next()));
        world.back.change(long(10), rng);
        world.run(Duration::from_secs(5));
        let rate: f64 = world.rates(Duration::from_secs(8)).iter().sum();
        assert!(rate >= 0.8 * 2_500_000.0, "{rate}");
    }
}

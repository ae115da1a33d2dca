//! Simulations in which visitors keep the link busy: what each transport carries follows from the path's rate and loss. Replay: GT_SEED=n.

use testkit::seeds;

use super::*;

const QUIC: Traits = traits(8.0, 1.0, true, Kind::Udp);
const KCP: Traits = traits(4.0, 1.15, false, Kind::Udp);
const TLS: Traits = traits(25.0, 1.05, true, Kind::Tcp);
const WSS: Traits = traits(25.0, 1.1, true, Kind::Tcp);
const ALL: [Traits; 4] = [QUIC, KCP, TLS, WSS];
/// Where the kernel's TCP bears losses.
const BBR: [Traits; 4] = [
    QUIC,
    KCP,
    traits(25.0, 1.05, false, Kind::Tcp),
    traits(25.0, 1.1, false, Kind::Tcp),
];
/// What `auto://` stands for.
const AUTO: [Traits; 3] = [QUIC, TLS, WSS];

const fn traits(loss_weight: f64, burden: f64, yields: bool, kind: Kind) -> Traits {
    Traits {
        loss_weight,
        burden,
        yields,
        kind,
    }
}

/// A path. Rates in bytes per second.
#[derive(Clone, Copy, Debug)]
struct Path {
    rtt: f64,
    /// By chance, whatever is sent.
    loss: f64,
    rate: f64,
    /// What a policer lets through of UDP.
    udp_rate: f64,
    udp: bool,
    tcp: bool,
    /// What each way carries of the rate, if it does not yield.
    carried: [f64; 4],
}

const FINE: Path = Path {
    rtt: 0.02,
    loss: 0.0,
    rate: 6e6,
    udp_rate: f64::INFINITY,
    udp: true,
    tcp: true,
    carried: [0.95; 4],
};

struct World {
    now: Duration,
    path: Path,
    ways: Vec<Traits>,
    choice: Choice,
    random: u64,
    moves: Vec<(Duration, Move)>,
    carried: f64,
    silent_since: Option<Duration>,
    /// How long visitors stay on links of the former way, and share the path with the new ones.
    linger: Duration,
    moved_at: Option<Duration>,
    /// Seconds on each way.
    on: [f64; 4],
}

const TICK: f64 = 0.25;

impl World {
    fn new(seed: u64, ways: &[Traits], path: Path) -> Self {
        Self {
            now: Duration::ZERO,
            path,
            ways: ways.to_vec(),
            choice: Choice::new(ways.iter().copied(), 0, Duration::ZERO),
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            moves: Vec::new(),
            carried: 0.0,
            silent_since: None,
            linger: Duration::ZERO,
            moved_at: None,
            on: [0.0; 4],
        }
    }

    /// A factor between 1 − `spread` and 1 + `spread`.
    fn noise(&mut self, spread: f64) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        1.0 + spread * ((self.random % 2001) as f64 / 1000.0 - 1.0)
    }

    fn works(&self, way: usize) -> bool {
        match self.ways[way].kind {
            Kind::Udp => self.path.udp,
            Kind::Tcp => self.path.tcp,
        }
    }

    /// What a busy link over this way shows: goodput, loss, round-trip time.
    fn busy(&self, way: usize) -> (f64, f64, f64) {
        let Path {
            rtt,
            loss,
            rate,
            udp_rate,
            carried,
            ..
        } = self.path;
        let traits = self.ways[way];
        let mathis = |rtt: f64, loss: f64| 1.22 * 1400.0 / rtt / loss.sqrt();
        let policed = traits.kind == Kind::Udp && udp_rate < rate;
        let limit = if policed { udp_rate } else { rate };
        let by_loss = if traits.yields && loss > 0.0 {
            mathis(rtt, loss)
        } else {
            f64::INFINITY
        };
        if by_loss < limit {
            return (by_loss, loss, rtt);
        }
        // It reaches the limit, and learns of it by what is dropped there; before a queue of 100 ms unless it is a policer.
        let queue = if policed || !traits.yields { 0.0 } else { 0.06 };
        let own = if traits.yields {
            (1.22 * 1400.0 / (rtt + queue) / limit).powi(2)
        } else if policed {
            0.03
        } else {
            0.0
        };
        (limit * carried[way], loss + own, rtt + queue)
    }

    fn run(&mut self, seconds: u64) {
        let until = self.now + Duration::from_secs(seconds);
        while self.now < until {
            self.now += Duration::from_secs_f64(TICK);
            let current = self.choice.current();
            self.on[current] += TICK;
            if self.works(current) {
                self.silent_since = None;
                let (goodput, loss, rtt) = self.busy(current);
                self.carried += goodput * TICK;
                let rtt = rtt * self.noise(0.1);
                // Losses are counted in samples of so many packets.
                let sampled = self.noise(1.0) < 1.0;
                let loss = sampled.then(|| loss * self.noise(0.3));
                let goodput = goodput * self.noise(0.1);
                let shared = self.moved_at.is_some_and(|at| self.now - at < self.linger);
                let figures = Figures {
                    rtt: Some(Duration::from_secs_f64(rtt)),
                    longest: None,
                    shortest: None,
                    loss,
                    goodput: (goodput > 125_000.0 && !shared).then_some(goodput),
                };
                self.choice.measured(self.now, figures);
            } else {
                let since = *self.silent_since.get_or_insert(self.now);
                if self.now - since >= Duration::from_millis(1500) {
                    self.choice.failed(self.now, current);
                }
            }
            if let Some(way) = self.choice.due(self.now) {
                if self.works(way) {
                    // The queue is there for all.
                    let rtt = if self.works(self.choice.current()) {
                        self.busy(self.choice.current()).2
                    } else {
                        self.path.rtt
                    };
                    let rtt = rtt * self.noise(0.2);
                    let figures = Figures {
                        rtt: Some(Duration::from_secs_f64(rtt)),
                        ..Figures::default()
                    };
                    self.choice.worked(self.now, way, figures);
                } else {
                    self.choice.failed(self.now, way);
                }
            }
            if let Some(moved) = self.choice.decide(self.now) {
                self.moves.push((self.now, moved));
                self.moved_at = Some(self.now);
                self.silent_since = None;
            }
        }
    }

    /// What was carried since the last call, of what the best way carries.
    fn share(&mut self, seconds: u64) -> f64 {
        let ways = 0..self.ways.len();
        let best = ways.map(|way| self.busy(way).0).fold(0.0, f64::max);
        std::mem::take(&mut self.carried) / best / seconds as f64
    }
}

#[test]
fn a_path_that_loses_by_chance_is_left_to_the_transport_that_does_not_yield() {
    for seed in seeds(100) {
        for loss in [0.01, 0.05, 0.1] {
            let path = Path {
                rtt: 0.1,
                loss,
                ..FINE
            };
            let mut world = World::new(seed, &ALL, path);
            world.run(30);
            assert_eq!(world.choice.current(), 1, "seed {seed}, {loss}");
            world.share(30);
            world.run(3600);
            assert_eq!(
                world.moves.len(),
                1,
                "seed {seed}, {loss}: {:?}",
                world.moves
            );
            assert!(world.share(3600) > 0.99);
        }
    }
}

/// Where KCP and TCP both bear losses, and carry such shares of the rate.
fn two_that_bear_losses(seed: u64, kcp: f64, tcp: f64) -> World {
    let path = Path {
        rtt: 0.1,
        loss: 0.02,
        carried: [0.95, kcp, tcp, tcp],
        ..FINE
    };
    let mut world = World::new(seed, &BBR, path);
    world.run(60);
    world
}

#[test]
fn of_two_that_bear_losses_the_one_that_carries_more_is_kept() {
    for seed in seeds(30) {
        for (kcp, tcp, best) in [(0.75, 0.95, 2), (0.95, 0.7, 1)] {
            let mut world = two_that_bear_losses(seed, kcp, tcp);
            let moves = &world.moves;
            assert_eq!(world.choice.current(), best, "seed {seed}: {moves:?}");
            world.share(60);
            world.run(3600);
            let share = world.share(3600);
            assert!(share > 0.95, "seed {seed}: {share} {:?}", world.moves);
            // What was seen is believed for ten minutes.
            assert!(world.moves.len() <= 16, "seed {seed}: {:?}", world.moves);
        }
    }
}

#[test]
fn a_trial_lasts_until_the_way_carries_something_alone() {
    for seed in seeds(100) {
        let path = Path {
            rtt: 0.1,
            loss: 0.05,
            carried: [0.95, 0.75, 0.95, 0.95],
            ..FINE
        };
        let mut world = World::new(seed, &BBR, path);
        world.linger = Duration::from_secs(20);
        world.run(100);
        let (now, moves) = (world.choice.current(), &world.moves);
        assert_eq!((now, moves.len()), (2, 2), "seed {seed}: {moves:?}");
        // Nobody uses it: the trial is over.
        let mut world = World::new(seed, &BBR, path);
        world.linger = Duration::from_secs(60);
        world.run(200);
        let (now, moves) = (world.choice.current(), &world.moves);
        assert_eq!((now, moves.len()), (1, 3), "seed {seed}: {moves:?}");
        assert!(moves[2].0 - moves[1].0 <= Duration::from_secs(55));
    }
}

#[test]
fn of_two_that_carry_nearly_the_same_either_may_be_kept_without_much_moving() {
    for seed in seeds(30) {
        for kcp in [0.84, 0.87, 0.9, 0.95] {
            let mut world = two_that_bear_losses(seed, kcp, 0.95);
            world.share(60);
            world.run(3600);
            let share = world.share(3600);
            assert!(share > 0.87, "seed {seed}: {share} {:?}", world.moves);
            assert!(world.moves.len() <= 20, "seed {seed}: {:?}", world.moves);
        }
    }
}

#[test]
fn a_full_path_is_no_reason_to_leave() {
    for seed in seeds(100) {
        for rtt in [0.002, 0.02, 0.1] {
            let mut world = World::new(seed, &ALL, Path { rtt, ..FINE });
            // A handshake on an empty path, then full for an hour.
            let figures = Figures {
                rtt: Some(Duration::from_secs_f64(rtt)),
                ..Figures::default()
            };
            world.choice.worked(Duration::ZERO, 0, figures);
            world.run(3600);
            assert_eq!(world.moves, [], "seed {seed}");
        }
    }
}

#[test]
fn throttled_udp_is_left_for_tcp_and_stays_left_for_minutes() {
    for seed in seeds(100) {
        for ways in [&ALL[..], &AUTO[..]] {
            let path = Path {
                udp_rate: 0.6e6,
                ..FINE
            };
            let mut world = World::new(seed, ways, path);
            world.run(60);
            let kind = ways[world.choice.current()].kind;
            assert_eq!(kind, Kind::Tcp, "seed {seed}: {:?}", world.moves);
            let mut reasons = world.moves.iter().map(|(_, moved)| moved.reason);
            let trial = reasons.any(|reason| matches!(reason, Reason::Trial { .. }));
            assert!(trial, "seed {seed}: {:?}", world.moves);
            world.share(60);
            world.run(7200);
            let share = world.share(7200);
            assert!(share > 0.85, "seed {seed}: {share} {:?}", world.moves);
        }
    }
}

#[test]
fn a_trial_that_shows_nothing_better_is_over_soon_and_rare() {
    for seed in seeds(100) {
        let path = Path {
            rtt: 0.1,
            loss: 0.01,
            ..FINE
        };
        // No transport here bears the loss.
        let mut world = World::new(seed, &AUTO, path);
        world.run(3600);
        assert!(world.on[0] > 3000.0, "seed {seed}: {:?}", world.on);
        assert!(world.moves.len() <= 14, "seed {seed}: {:?}", world.moves);
    }
}

#[test]
fn when_udp_goes_silent_no_other_udp_way_is_tried_first() {
    for seed in seeds(100) {
        let path = Path {
            rtt: 0.1,
            loss: 0.01,
            ..FINE
        };
        let mut world = World::new(seed, &ALL, path);
        world.run(100 + seed);
        assert_eq!(world.choice.current(), 1, "seed {seed}");
        world.path.udp = false;
        let blocked_at = world.now;
        let before = world.moves.len();
        world.run(3);
        let (at, moved) = world.moves[before].clone();
        assert_eq!(
            (moved.from, ALL[moved.to].kind),
            (1, Kind::Tcp),
            "seed {seed}"
        );
        assert!(at - blocked_at <= Duration::from_secs(2), "seed {seed}");
        world.run(200);
        let mut since = world.moves[before..].iter();
        let to_udp = since.any(|(_, moved)| ALL[moved.to].kind == Kind::Udp);
        assert!(!to_udp, "seed {seed}: {:?}", world.moves);
        assert!(
            world.moves.len() <= before + 2,
            "seed {seed}: {:?}",
            world.moves
        );
        world.path.udp = true;
        world.run(90);
        assert_eq!(world.choice.current(), 1, "seed {seed}: {:?}", world.moves);
    }
}

#[test]
fn when_tcp_goes_silent_udp_is_next() {
    let mut world = World::new(1, &ALL, Path { udp: false, ..FINE });
    world.run(20);
    assert_eq!(world.choice.current(), 2);
    world.path.udp = true;
    world.path.tcp = false;
    // UDP was not known to work again, and another way over TCP was thought to.
    world.run(3);
    assert_eq!(ALL[world.choice.current()].kind, Kind::Udp);
}

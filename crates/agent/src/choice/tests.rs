//! A simulated network with a virtual clock: three ways whose weather changes, seen through noise. Replay: GT_SEED=n.

use testkit::{Random, seeds};

use super::*;

const QUIC: Traits = Traits {
    loss_weight: 8.0,
    burden: 1.0,
    yields: true,
    kind: Kind::Udp,
};
const TLS: Traits = Traits {
    loss_weight: 25.0,
    burden: 1.05,
    yields: true,
    kind: Kind::Tcp,
};
const WSS: Traits = Traits {
    loss_weight: 25.0,
    burden: 1.1,
    yields: true,
    kind: Kind::Tcp,
};

/// 0 to 1.
fn share(random: &mut Random) -> f64 {
    random.below(1_000_001) as f64 / 1e6
}

#[derive(Clone, Copy, Debug)]
struct Weather {
    works: bool,
    rtt: f64,
    loss: f64,
}

struct World {
    now: Duration,
    weather: [Weather; 3],
    noise: f64,
    random: Random,
    choice: Choice,
    moves: Vec<(Duration, Move)>,
    probes: u32,
    silent_since: Option<Duration>,
}

const TICK: Duration = Duration::from_millis(250);
/// When the shell notices that a link hears nothing.
const NOTICED: Duration = Duration::from_millis(1500);

impl World {
    fn new(seed: u64, weather: [Weather; 3], noise: f64) -> Self {
        Self {
            now: Duration::ZERO,
            weather,
            noise,
            random: Random::new(seed),
            choice: Choice::new([QUIC, TLS, WSS], 0, Duration::ZERO),
            moves: Vec::new(),
            probes: 0,
            silent_since: None,
        }
    }

    fn figures(&mut self, way: usize) -> Figures {
        let Weather { rtt, loss, .. } = self.weather[way];
        let mut noisy =
            |value: f64| value * (1.0 + self.noise * (2.0 * share(&mut self.random) - 1.0));
        Figures {
            rtt: Some(Duration::from_secs_f64(noisy(rtt))),
            loss: Some(noisy(loss)),
            goodput: None,
            longest: None,
        }
    }

    fn tick(&mut self) {
        self.now += TICK;
        let current = self.choice.current();
        if self.weather[current].works {
            self.silent_since = None;
            let figures = self.figures(current);
            self.choice.measured(self.now, figures);
        } else {
            let since = *self.silent_since.get_or_insert(self.now);
            if self.now - since >= NOTICED {
                self.choice.failed(self.now, current);
            }
        }
        if let Some(way) = self.choice.due(self.now) {
            self.probes += 1;
            if self.weather[way].works {
                let figures = self.figures(way);
                self.choice.worked(self.now, way, figures);
            } else {
                self.choice.failed(self.now, way);
            }
        }
        if let Some(moved) = self.choice.decide(self.now) {
            self.moves.push((self.now, moved));
            self.silent_since = None;
        }
    }

    fn run(&mut self, seconds: u64) {
        let until = self.now + Duration::from_secs(seconds);
        while self.now < until {
            self.tick();
        }
    }
}

fn fine(rtt: f64) -> Weather {
    Weather {
        works: true,
        rtt,
        loss: 0.0,
    }
}

const BLOCKED: Weather = Weather {
    works: false,
    rtt: 1.0,
    loss: 1.0,
};

#[test]
fn the_first_way_is_used_where_all_are_alike_whatever_the_noise() {
    for seed in seeds(200) {
        let mut world = World::new(seed, [fine(0.05), fine(0.05), fine(0.05)], 0.25);
        world.run(3600);
        assert_eq!(world.moves, [], "seed {seed}");
    }
}

#[test]
fn a_blocked_way_is_left_within_three_seconds_and_taken_again_when_it_works() {
    for seed in seeds(200) {
        let mut world = World::new(seed, [fine(0.05), fine(0.05), fine(0.05)], 0.2);
        world.run(20 + seed % 100);
        let blocked_at = world.now;
        world.weather[0] = BLOCKED;
        world.run(3);
        assert_ne!(world.choice.current(), 0, "seed {seed}");
        let (left_at, left) = &world.moves[0];
        assert!(matches!(left.reason, Reason::Failed { .. }), "seed {seed}");
        assert!(
            *left_at - blocked_at <= Duration::from_secs(2),
            "seed {seed}"
        );
        world.run(seed % 300);
        let back = world.moves.iter().any(|(_, moved)| moved.to == 0);
        assert!(!back, "seed {seed}: not while it is blocked");
        world.weather[0] = fine(0.05);
        world.run(60 + 30);
        assert_eq!(world.choice.current(), 0, "seed {seed}");
        assert!(world.moves.len() <= 3, "seed {seed}");
    }
}

#[test]
fn what_was_lost_while_a_way_died_is_not_held_against_it() {
    let rtt = Some(Duration::from_millis(50));
    let figures = |loss| Figures {
        rtt,
        loss,
        ..Figures::default()
    };
    let mut choice = Choice::new([QUIC, TLS], 0, Duration::ZERO);
    let mut back = None;
    for second in 1..120 {
        let now = Duration::from_secs(second);
        let blocked = (30..40).contains(&second);
        match (choice.current(), blocked) {
            (0, true) if second > 31 => choice.failed(now, 0),
            (0, true) => choice.measured(now, figures(Some(0.5))),
            _ => choice.measured(now, figures(Some(0.0))),
        }
        match choice.due(now) {
            Some(0) if blocked => choice.failed(now, 0),
            Some(way) => choice.worked(now, way, figures(None)),
            None => {}
        }
        if choice.decide(now).is_some_and(|moved| moved.to == 0) {
            back = Some(second);
        }
    }
    assert!(
        choice.moves() == 2 && back.is_some_and(|at| at < 75),
        "{back:?}"
    );
}

#[test]
fn when_nothing_works_each_way_gets_its_turn() {
    let mut choice = Choice::new([QUIC, TLS, WSS], 0, Duration::ZERO);
    let mut tried = Vec::new();
    for second in 1..10 {
        let now = Duration::from_secs(second);
        let way = choice.current();
        tried.push(way);
        choice.failed(now, way);
        choice.decide(now);
    }
    assert_eq!(tried, [0, 1, 2, 0, 1, 2, 0, 1, 2]);
    assert!(!choice.has_hope());
}

#[test]
fn loss_moves_the_link_to_the_way_that_bears_it() {
    for seed in seeds(200) {
        // UDP is throttled: a fifth of it is dropped.
        let mut world = World::new(seed, [fine(0.05), fine(0.05), fine(0.05)], 0.1);
        world.run(120);
        world.weather[0].loss = 0.2;
        world.run(180);
        assert_eq!(world.choice.current(), 1, "seed {seed}");
        // The path itself is bad: then QUIC is the better one.
        for way in &mut world.weather {
            way.loss = 0.2;
        }
        world.run(1200);
        assert_eq!(world.choice.current(), 0, "seed {seed}");
    }
}

#[test]
fn a_link_that_carries_far_less_than_another_did_moves() {
    let mut choice = Choice::new([QUIC, TLS], 0, Duration::ZERO);
    let figures = |goodput| Figures {
        rtt: Some(Duration::from_millis(50)),
        loss: Some(0.0),
        goodput,
        longest: None,
    };
    let second = Duration::from_secs;
    choice.worked(second(1), 1, figures(Some(10e6)));
    let mut moved = None;
    for n in 2..60 {
        choice.measured(second(n), figures(Some(1e6)));
        moved = moved.or(choice.decide(second(n)));
    }
    let moved = moved.expect("a move");
    assert_eq!(moved.to, 1);
    let text = moved.reason.to_string();
    assert!(
        text.contains("80.0 Mbit/s") && text.contains("8.0 Mbit/s"),
        "{text}"
    );
}

#[test]
fn changing_weather_never_leaves_the_link_where_nothing_works_and_never_makes_it_flap() {
    for seed in seeds(200) {
        let mut world = World::new(seed, [fine(0.05), fine(0.06), fine(0.07)], 0.3);
        let mut weather = Random::new(seed ^ 0xabcd);
        for _ in 0..120 {
            for way in 0..3 {
                // One always works, so that there is somewhere to go.
                world.weather[way] = if way != 1 && weather.below(4) == 0 {
                    BLOCKED
                } else {
                    Weather {
                        works: true,
                        rtt: 0.01 + 0.1 * share(&mut weather),
                        loss: 0.05 * share(&mut weather),
                    }
                };
            }
            let length = 10 + weather.below(50);
            for _ in 0..length * 4 {
                world.tick();
                let stuck = world
                    .silent_since
                    .is_some_and(|since| world.now - since > Duration::from_secs(3));
                assert!(!stuck, "seed {seed} at {:?}", world.now);
            }
        }
        let voluntary = world
            .moves
            .iter()
            .filter(|(_, moved)| !matches!(moved.reason, Reason::Failed { .. }))
            .count();
        let hours = world.now.as_secs_f64() / 3600.0;
        assert!(
            (voluntary as f64) < 40.0 * hours + 5.0,
            "seed {seed}: {voluntary} moves in {hours} h"
        );
    }
}

#[test]
fn probes_are_few() {
    let mut world = World::new(1, [fine(0.05), fine(0.05), BLOCKED], 0.1);
    world.run(3600);
    // Two ways, a probe a minute each.
    assert!(world.probes <= 2 * 60 + 10, "{}", world.probes);
}

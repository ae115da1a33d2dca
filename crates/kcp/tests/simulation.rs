//! Seeded simulations of whole sessions over a bad network, in virtual time.

mod sim;

use std::{sync::Arc, time::Duration};

use kcp::{
    Config, Control, Mode, Shards,
    seal::{Cipher, Seal, derive_key},
};
use sim::{Path, Random, World, cubic::Cubic, seeds};

fn seal(cipher: Cipher) -> Arc<Seal> {
    Arc::new(Seal::new(cipher, &derive_key(b"simulation")).expect("a key of 32 bytes"))
}

fn config(random: &mut Random, fec: Option<Shards>) -> Config {
    Config {
        mode: random.pick(&[
            Mode::NORMAL,
            Mode::FAST,
            Mode::FAST2,
            Mode::FAST3,
            Mode::CLASSIC,
        ]),
        control: random.pick(&[Control::Classic, Control::Classic, Control::Paced]),
        send_window: random.pick(&[2, 32, 128, 1024]),
        recv_window: random.pick(&[2, 32, 128, 1024]),
        mtu: random.pick(&[200, 576, 1350, 1400, 1500]),
        stream: random.percent(70),
        ack_nodelay: random.percent(30),
        write_delay: random.percent(30),
        // At these losses twenty in a row are chance, not death.
        dead_link: 60,
        dead_silence: Duration::from_secs(10),
        fec,
        fec_agrees: random.percent(80),
    }
}

fn fec(random: &mut Random) -> [Option<Shards>; 2] {
    let shards = |d, p| Shards::new(d, p).ok();
    random.pick(&[
        [None, None],
        [shards(10, 3), shards(10, 3)],
        [shards(20, 10), shards(20, 10)],
        [shards(3, 1), shards(10, 3)],
        [shards(10, 3), None],
        [shards(1, 1), shards(2, 2)],
    ])
}

#[test]
fn every_byte_arrives_once_and_in_order() {
    for seed in seeds(150) {
        let mut random = Random::new(seed);
        let path = Path {
            delay_ms: random.pick(&[0, 1, 20, 100, 300]),
            jitter_ms: random.pick(&[0, 0, 1, 10, 100]),
            loss_percent: random.pick(&[0, 1, 5, 10, 30]),
            burst_percent: random.pick(&[0, 5, 50]),
            repeat_percent: random.pick(&[0, 5]),
            damage_percent: random.pick(&[0, 5]),
            ..Path::default()
        };
        // With the null cipher nothing detects damage.
        let cipher = random.pick(&[
            Cipher::None,
            Cipher::Aes128,
            Cipher::Salsa20,
            Cipher::Aes128Gcm,
            Cipher::Null,
        ]);
        let damage_percent = if cipher == Cipher::Null {
            0
        } else {
            path.damage_percent
        };
        let path = Path {
            damage_percent,
            ..path
        };
        let [a, b] = fec(&mut random);
        let configs = [config(&mut random, a), config(&mut random, b)];
        let apps = std::array::from_fn(|_| {
            (
                random.pick(&[0, 1, 5000, 100_000]),
                random.pick(&[50, 200, 3000]),
                random.pick(&[700, 20_000, 1_000_000]),
            )
        });
        let about = format!("{path:?} {cipher} {configs:?} {apps:?}");
        let mut world = World::new(random, path, &seal(cipher), configs, apps);
        assert!(
            world.run(Duration::from_secs(100_000)),
            "seed {seed} does not finish: {about}"
        );
        let timers = world.ends.each_mut().map(|end| end.pipeline.poll_timeout());
        assert_eq!(
            timers,
            [None, None],
            "seed {seed}: an idle session has no timer"
        );
    }
}

#[test]
fn a_dead_link_is_reported() {
    for seed in seeds(20) {
        let mut random = Random::new(seed);
        let path = Path {
            delay_ms: 20,
            ..Path::default()
        };
        let [a, b] = fec(&mut random);
        let config = |random: &mut Random, fec| Config {
            dead_link: 20,
            ..config(random, fec)
        };
        let configs = [config(&mut random, a), config(&mut random, b)];
        let apps = [(10_000_000, 3000, 1_000_000), (0, 1, 1_000_000)];
        let mut world = World::new(random, path, &seal(Cipher::None), configs, apps);
        world.run(Duration::from_millis(300));
        world.path.loss_percent = 100;
        world.path.burst_percent = 100;
        world.run(Duration::from_secs(3600));
        assert!(world.ends[0].pipeline.is_dead(), "seed {seed}");
        assert_eq!(
            world.ends[0].pipeline.poll_timeout(),
            None,
            "seed {seed}: nothing is tried any more"
        );
        assert!(
            !world.ends[1].pipeline.is_dead(),
            "seed {seed}: who has nothing to send cannot know"
        );
    }
}

#[test]
fn fec_spares_retransmissions() {
    // Single runs scatter: one lost acknowledgement can cost more than all losses. The sum must tell.
    let retransmitted = [None, Shards::new(10, 3).ok()].map(|fec| {
        let of_seed = |seed| {
            let config = Config {
                mode: Mode::FAST3,
                send_window: 256,
                recv_window: 256,
                fec,
                ..Config::default()
            };
            let path = Path {
                delay_ms: 40,
                loss_percent: 3,
                burst_percent: 3,
                ..Path::default()
            };
            let apps = [(2_000_000, 10_000, 1_000_000), (0, 1, 1_000_000)];
            let configs = [config.clone(), config];
            let mut world = World::new(Random::new(seed), path, &seal(Cipher::None), configs, apps);
            assert!(world.run(Duration::from_secs(600)));
            world.ends[0].pipeline.counters().retrans_segs
        };
        seeds(10).map(of_seed).sum::<u64>()
    });
    assert!(retransmitted[1] * 2 < retransmitted[0], "{retransmitted:?}");
}

#[test]
fn loss_costs_little_more_than_itself() {
    for seed in seeds(5) {
        let config = Config {
            mode: Mode::FAST3,
            send_window: 512,
            recv_window: 512,
            ..Config::default()
        };
        let path = Path {
            delay_ms: 50,
            loss_percent: 10,
            burst_percent: 10,
            ..Path::default()
        };
        let bytes = 4_000_000;
        let apps = [(bytes, 10_000, 1_000_000), (0, 1, 1_000_000)];
        let mut world = World::new(
            Random::new(seed),
            path,
            &seal(Cipher::Null),
            [config.clone(), config],
            apps,
        );
        assert!(world.run(Duration::from_secs(60)), "seed {seed}");
        let wire = world.ends[0].sent_bytes as f64 / bytes as f64;
        assert!(
            wire <= 1.1 / 0.9,
            "seed {seed}: {wire:.3} bytes sent for each that arrived"
        );
    }
}

#[test]
fn twenty_thousand_in_flight_do_not_collapse() {
    let seed = 1;
    let config = Config {
        mode: Mode::FAST3,
        send_window: 20_000,
        recv_window: 20_000,
        ..Config::default()
    };
    let path = Path {
        delay_ms: 100,
        jitter_ms: 5,
        loss_percent: 1,
        burst_percent: 1,
        ..Path::default()
    };
    let apps = [(60_000_000, 100_000, 100_000_000), (0, 1, 100_000_000)];
    let mut world = World::new(
        Random::new(seed),
        path,
        &seal(Cipher::Null),
        [config.clone(), config],
        apps,
    );
    let start = world.now;
    assert!(world.run(Duration::from_secs(60)));
    // Two windows and a half, a round trip of 200 ms each, and repairs.
    assert!(
        world.now.since(start) < Duration::from_secs(3),
        "{:?}",
        world.now.since(start)
    );
}

/// 100 Mbit/s with a round trip of 100 ms, and a queue that holds as much as the path.
fn long_path(loss_percent: u64) -> Path {
    Path {
        delay_ms: 50,
        loss_percent,
        burst_percent: loss_percent,
        rate: 12_500_000,
        queue: 1_250_000,
        ..Path::default()
    }
}

fn paced() -> Config {
    Config {
        mode: Mode::FAST3,
        control: Control::Paced,
        send_window: 8192,
        recv_window: 8192,
        ..Config::default()
    }
}

#[test]
fn pacing_fills_a_long_path_that_loses_packets() {
    for (loss_percent, wanted) in [(1, 0.85), (5, 0.85), (10, 0.75)] {
        for seed in seeds(1) {
            let bytes = 100_000_000;
            let apps = [(bytes, 3000, 1_000_000), (0, 1, 1_000_000)];
            let mut world = World::new(
                Random::new(seed),
                long_path(loss_percent),
                &seal(Cipher::Null),
                [paced(), paced()],
                apps,
            );
            let start = world.now;
            let done = world.run(Duration::from_secs(60));
            let sender = &world.ends[0].pipeline;
            assert!(done, "seed {seed}: {:?} {sender:?}", world.now);
            let passed = world.now.since(start).as_secs_f64();
            let arriving = 1.0 - loss_percent as f64 / 100.0;
            let used = bytes as f64 / passed / (12_500_000.0 * arriving);
            let wire = world.ends[0].sent_bytes as f64 / bytes as f64 * arriving;
            println!(
                "{loss_percent} % lost: {used:.3} of what the path lets through, {wire:.3} times the bytes needed"
            );
            assert!(used >= wanted, "seed {seed}, {loss_percent} %: {used:.3}");
            assert!(wire <= 1.1, "seed {seed}, {loss_percent} %: {wire:.3}");
        }
    }
}

#[test]
fn pacing_leaves_a_cubic_flow_its_share() {
    let mut fair = Vec::new();
    for queue in [312_500, 625_000, 150_000] {
        let path = Path {
            rate: 3_125_000,
            queue,
            ..long_path(0)
        };
        let apps = [(0, 30_000, 1_000_000), (0, 1, 1_000_000)];
        let configs = [paced(), paced()];
        let mut world = World::new(Random::new(1), path, &seal(Cipher::Null), configs, apps);
        world.rival = Some(Cubic::new());
        let start = world.now;
        let at = |seconds| start + Duration::from_secs(seconds);
        // It has the link to itself for a while, as in `kcp-path fairness`.
        world.run_until(at(4));
        world.feed(0, 1 << 40);
        let mut seen = (0, 0);
        let mut shares = Vec::new();
        for second in 7..=32 {
            world.run_until(at(second));
            let ours = world.ends[1].arrivals.last().map_or(0, |(_, bytes)| *bytes);
            let theirs = world.rival.as_ref().map_or(0, Cubic::delivered);
            if second > 7 {
                shares.push((ours - seen.0, theirs - seen.1));
            }
            seen = (ours, theirs);
        }
        let sum = shares.iter().fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        let share = sum.1 as f64 / (sum.0 + sum.1) as f64;
        let used = (sum.0 + sum.1) as f64 / 25.0 / 3_125_000.0;
        let each: Vec<_> = shares
            .iter()
            .map(|(a, b)| b * 100 / (a + b).max(1))
            .collect();
        println!(
            "queue {queue}: {share:.2} for CUBIC, {used:.2} of the link; each second {each:?}"
        );
        fair.push(share);
    }
    assert!(fair.iter().all(|share| *share >= 0.35), "{fair:?}");
}

#[test]
fn pacing_keeps_the_queue_short() {
    let bytes = 40_000_000;
    let apps = [(bytes, 3000, 1_000_000), (0, 1, 1_000_000)];
    let mut world = World::new(
        Random::new(1),
        long_path(0),
        &seal(Cipher::Null),
        [paced(), paced()],
        apps,
    );
    // Past the search for the rate.
    world.run(Duration::from_secs(2));
    let mut queued = Vec::new();
    for _ in 0..100 {
        world.run(Duration::from_millis(10));
        queued.extend(world.ends[0].pipeline.srtt());
    }
    let mean = queued.iter().sum::<Duration>() / 100;
    println!("{mean:?}");
    assert!(
        mean < Duration::from_millis(135),
        "{mean:?} of round trip, 100 ms without a queue"
    );
}

#[test]
fn reordering_is_no_loss_when_losses_are_told_by_time() {
    let retransmitted = [Control::Classic, Control::Paced].map(|control| {
        let config = Config { control, ..paced() };
        let path = Path {
            jitter_ms: 20,
            ..long_path(0)
        };
        let apps = [(10_000_000, 3000, 1_000_000), (0, 1, 1_000_000)];
        // So few in flight that none is lost in the queue.
        let config = Config {
            send_window: 256,
            ..config
        };
        let mut world = World::new(
            Random::new(1),
            path,
            &seal(Cipher::Null),
            [config.clone(), config],
            apps,
        );
        assert!(world.run(Duration::from_secs(60)));
        let counters = world.ends[0].pipeline.counters();
        (counters.retrans_segs, counters.out_segs)
    });
    println!("{retransmitted:?}");
    let [(classic, _), (by_time, sent)] = retransmitted;
    assert!(by_time * 50 <= sent, "{retransmitted:?}");
    assert!(by_time * 10 <= classic, "{retransmitted:?}");
}

#[test]
fn small_messages_are_late_by_little_more_than_a_round_trip() {
    for control in [Control::Classic, Control::Paced] {
        for fec in [None, Shards::new(3, 1).ok()] {
            let config = Config {
                control,
                fec,
                ack_nodelay: true,
                ..paced()
            };
            let path = Path {
                delay_ms: 50,
                loss_percent: 10,
                burst_percent: 10,
                ..Path::default()
            };
            let apps = [(0, 3000, 1_000_000), (0, 1, 1_000_000)];
            let mut world = World::new(
                Random::new(3),
                path,
                &seal(Cipher::Null),
                [config.clone(), config],
                apps,
            );
            let start = world.now;
            let mut written = Vec::new();
            for i in 0..3000_u64 {
                world.feed(0, 64);
                written.push(world.now);
                let next = start + Duration::from_millis(20 * (i + 1));
                world.run_until(next);
            }
            world.run(Duration::from_secs(10));
            let arrivals = &world.ends[1].arrivals;
            let mut late: Vec<_> = written
                .iter()
                .zip(1..)
                .map(|(&at, i)| {
                    let arrived = arrivals.partition_point(|&(_, bytes)| bytes < 64 * i);
                    arrivals[arrived].0.since(at)
                })
                .collect();
            late.sort_unstable();
            let [median, p99] = [late.len() / 2, late.len() * 99 / 100].map(|at| late[at]);
            println!("{control:?} {fec:?}: median {median:?}, p99 {p99:?}");
            assert!(
                median <= Duration::from_millis(60),
                "{control:?} {fec:?}: {median:?}"
            );
            // Two datagrams in a row lost, and what waits behind them: kcp-go has 270 ms.
            assert!(
                p99 <= Duration::from_millis(120),
                "{control:?} {fec:?}: {p99:?}"
            );
        }
    }
}

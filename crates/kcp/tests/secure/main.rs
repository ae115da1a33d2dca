//! Seeded simulations of sessions of gt's own mode, in virtual time: a bad network, a hostile one, clients that move.

mod gate;
mod world;

use std::time::Duration;

use kcp::secure::{CipherSet, End, FecPolicy, Options, Session};
use world::{App, CLIENT, Network, SERVER, World, addr, seeds};

fn session(world: &World, i: usize) -> &Session {
    world.sessions[i].as_ref().expect("a session")
}

fn both_ended(world: &World) -> bool {
    world.all_read()
        && world
            .sessions
            .iter()
            .all(|s| s.as_ref().is_some_and(|s| s.end().is_some()))
}

#[test]
fn every_byte_arrives_and_then_the_end() {
    for seed in seeds(60) {
        let mut random = world::Random::new(seed ^ 0xabcd);
        let network = Network {
            delay_ms: random.pick(&[0, 20, 100, 300]),
            jitter_ms: random.pick(&[0, 1, 30]),
            loss_percent: random.pick(&[0, 1, 10, 25]),
            repeat_percent: random.pick(&[0, 5]),
            damage_percent: random.pick(&[0, 5]),
            hostile_percent: random.pick(&[0, 30]),
            rate: 0,
        };
        let options = std::array::from_fn(|_| Options {
            fec: random.pick(&[FecPolicy::Off, FecPolicy::Auto, FecPolicy::On]),
            mtu: random.pick(&[1200, 1350, 1500]),
            send_window: random.pick(&[32, 1024]),
            ciphers: random.pick(&[CipherSet::ALL, CipherSet::ALL, CipherSet::CHACHA20_POLY1305]),
            ..Options::default()
        });
        let apps = std::array::from_fn(|_| App {
            bytes: random.pick(&[0, 1, 3000, 300_000]),
            ends: true,
            ..App::default()
        });
        let about = format!("seed {seed}: {network:?} {apps:?}");
        let mut world = World::new(seed, network, options, apps);
        assert!(
            world.run(Duration::from_secs(600), World::all_read),
            "{about}"
        );
        // The last words may be lost; then the other end finds out by silence.
        world.run(Duration::from_secs(60), both_ended);
        for i in 0..2 {
            let end = session(&world, i).end();
            assert!(
                matches!(end, Some(End::Finished | End::Dead)),
                "{about}: end {i} {end:?}"
            );
        }
        assert_eq!(
            session(&world, 0).binding(),
            session(&world, 1).binding(),
            "{about}"
        );
    }
}

#[test]
fn two_sessions_have_nothing_in_common() {
    let world = |seed| {
        let mut world = World::new(
            seed,
            Network::default(),
            Default::default(),
            [App::default(); 2],
        );
        assert!(world.run(Duration::from_secs(5), |w| {
            w.sessions.iter().all(Option::is_some)
        }));
        world
    };
    let (one, other) = (world(1), world(2));
    assert_ne!(session(&one, 0).binding(), session(&other, 0).binding());
    assert_ne!(session(&one, 1).local_id(), session(&other, 1).local_id());
}

#[test]
fn a_session_follows_its_client_to_another_address() {
    for seed in seeds(20) {
        let network = Network {
            delay_ms: 30,
            loss_percent: 5,
            jitter_ms: 3,
            ..Network::default()
        };
        let apps = [
            App {
                bytes: 80_000,
                trickle: 400,
                ends: true,
                ..App::default()
            },
            App {
                bytes: 80_000,
                trickle: 400,
                ends: true,
                ..App::default()
            },
        ];
        let mut world = World::new(seed, network, Default::default(), apps);
        for port in 1001..1004 {
            world.run(Duration::from_millis(400), |_| false);
            world.client_addr = addr(port);
        }
        assert!(
            world.run(Duration::from_secs(120), World::all_read),
            "seed {seed}"
        );
        assert_eq!(session(&world, SERVER).remote(), addr(1003), "seed {seed}");
    }
}

/// Bytes that each end reads in `time`.
fn reads(world: &mut World, time: Duration) -> [u64; 2] {
    let before = world.apps.map(|app| app.read);
    world.run(time, |_| false);
    [0, 1].map(|i| world.apps[i].read - before[i])
}

/// A path of 2.5 MB/s and 100 ms there and back that loses so many packets besides those that its queue has no room for, and an end that never
/// runs out of things to say.
fn busy(loss_percent: u64) -> (Network, App) {
    let network = Network {
        delay_ms: 50,
        rate: 2500,
        loss_percent,
        ..Network::default()
    };
    let bulk = App {
        bytes: u64::MAX >> 1,
        ..App::default()
    };
    (network, bulk)
}

/// Acknowledgements that are held back beside somebody else's bulk must not look like a queue: a limit was made of the few packets that were out then.
#[test]
fn who_has_said_little_beside_a_transfer_is_fast_soon_after() {
    for seed in seeds(1) {
        for loss_percent in [0, 1, 5, 10] {
            let (network, bulk) = busy(loss_percent);
            let little = App {
                trickle: 60,
                ..bulk
            };
            let mut world = World::new(seed, network, Default::default(), [bulk, little]);
            let second = Duration::from_secs(1);
            world.run(second * 12, |_| false);
            world.apps[CLIENT].bytes = world.apps[CLIENT].written;
            world.run(second * 7 / 10, |_| false);
            world.apps[SERVER] = App {
                trickle: 0,
                next_write: None,
                ..world.apps[SERVER]
            };
            world.run(second, |_| false);
            let read = reads(&mut world, second * 4)[CLIENT];
            let carried = 4 * 2_500_000 * (100 - loss_percent) / 100;
            assert!(
                read >= carried * 6 / 10,
                "{loss_percent} % lost: {read} of {carried}"
            );
        }
    }
}

#[test]
fn an_address_that_does_not_answer_gets_little_and_not_for_long() {
    for seed in seeds(20) {
        let network = Network {
            delay_ms: 30,
            ..Network::default()
        };
        let apps = [
            App::default(),
            App {
                bytes: 50_000_000,
                ..App::default()
            },
        ];
        let mut world = World::new(seed, network, Default::default(), apps);
        world.run(Duration::from_secs(1), |_| false);
        // Somebody in between lets one datagram of the client come from elsewhere, and swallows what the client sends after it.
        let before = session(&world, SERVER).stats().moves;
        world.client_addr = addr(7777);
        assert!(
            world.run(Duration::from_secs(5), |w| session(w, SERVER).stats().moves
                > before)
        );
        world.client_addr = addr(1000);
        let (earlier, moved) = (world.to_others, session(&world, SERVER).remote());
        assert_eq!(moved, addr(7777), "seed {seed}");
        world.network.loss_percent = 100;
        world.run(Duration::from_millis(3500), |_| false);
        assert!(
            world.to_others - earlier <= 3 * 1500,
            "seed {seed}: {} bytes",
            world.to_others - earlier
        );
        assert_eq!(
            session(&world, SERVER).remote(),
            addr(1000),
            "seed {seed}: back where the client answered"
        );
        world.network.loss_percent = 0;
        let read = world.apps[CLIENT].read;
        world.run(Duration::from_secs(5), |w| {
            w.apps[CLIENT].read > read + 100_000
        });
        assert!(
            world.apps[CLIENT].read > read + 100_000,
            "seed {seed}: it goes on"
        );
    }
}

#[test]
fn silence_is_asked_about_and_then_is_death() {
    let mut world = World::new(
        5,
        Network {
            delay_ms: 10,
            ..Network::default()
        },
        Default::default(),
        [App::default(); 2],
    );
    assert!(!world.run(Duration::from_secs(3600), |w| {
        w.sessions.iter().flatten().any(|s| s.end().is_some())
    }));
    let asked: u64 = world.datagrams.iter().sum();
    assert!(
        (300..2000).contains(&asked),
        "{asked} datagrams in a silent hour"
    );
    world.network.loss_percent = 100;
    let started = world.now;
    assert!(world.run(Duration::from_secs(60), |w| {
        w.sessions
            .iter()
            .flatten()
            .all(|s| s.end() == Some(End::Dead))
    }));
    assert!(
        world.now.since(started) <= Duration::from_secs(41),
        "{:?}",
        world.now.since(started)
    );
}

#[test]
fn a_reset_is_heard_and_what_came_before_can_be_read() {
    let apps = [
        App {
            bytes: 10_000,
            ..App::default()
        },
        App::default(),
    ];
    let mut world = World::new(
        6,
        Network {
            delay_ms: 10,
            ..Network::default()
        },
        Default::default(),
        apps,
    );
    assert!(world.run(Duration::from_secs(5), |w| w.apps[SERVER].read == 10_000));
    world.sessions[CLIENT].as_mut().expect("a session").reset();
    assert!(world.run(Duration::from_secs(5), |w| {
        session(w, SERVER).end().is_some()
    }));
    assert_eq!(session(&world, SERVER).end(), Some(End::Reset));
    assert_eq!(session(&world, CLIENT).end(), Some(End::Abandoned));
}

/// A keystroke is answered well within the time that retransmission alone would take.
#[test]
fn fec_follows_loss_and_helps_what_is_small() {
    let delays = [FecPolicy::Off, FecPolicy::Auto].map(|fec| {
        let mut late = 0;
        for seed in seeds(4) {
            let network = Network {
                delay_ms: 50,
                loss_percent: 10,
                ..Network::default()
            };
            let options = Options {
                fec,
                ..Options::default()
            };
            let trickle = App {
                bytes: 64 * 1500,
                trickle: 64,
                ..App::default()
            };
            let mut world = World::new(
                seed,
                network,
                [options.clone(), options],
                [trickle, trickle],
            );
            world.run(Duration::from_secs(10), |_| false);
            let mut last = world.now;
            // Milliseconds in which a reader lags more than a way and a half behind.
            world.run(Duration::from_secs(15), |w| {
                let lag = w.apps[CLIENT].written.saturating_sub(w.apps[SERVER].read);
                if lag > 64 * 5 {
                    late += w.now.since(last).as_millis();
                }
                last = w.now;
                false
            });
            let parity = session(&world, CLIENT).parity();
            assert_eq!(parity > 0, fec == FecPolicy::Auto, "seed {seed}: {parity}");
        }
        late
    });
    assert!(
        delays[1] * 2 < delays[0],
        "late for {} ms without FEC, {} ms with",
        delays[0],
        delays[1]
    );
}

#[test]
fn fec_costs_nothing_where_nothing_is_lost() {
    let apps = [
        App {
            bytes: 2_000_000,
            ends: true,
            ..App::default()
        },
        App::default(),
    ];
    let mut world = World::new(
        1,
        Network {
            delay_ms: 20,
            jitter_ms: 10,
            ..Network::default()
        },
        Default::default(),
        apps,
    );
    assert!(world.run(Duration::from_secs(60), World::all_read));
    assert_eq!(session(&world, CLIENT).stats().parity, 0);
}

/// Full packets make the longest parity there is: it must fit.
#[test]
fn parity_of_full_packets_is_sent_and_repairs() {
    for seed in seeds(5) {
        let network = Network {
            delay_ms: 20,
            loss_percent: 5,
            ..Network::default()
        };
        let options = Options {
            fec: FecPolicy::On,
            ..Options::default()
        };
        let bulk = App {
            bytes: 2_000_000,
            ends: true,
            ..App::default()
        };
        let configs = [options.clone(), options];
        let mut world = World::new(seed, network, configs, [bulk, App::default()]);
        assert!(world.run(Duration::from_secs(60), World::all_read));
        let stats = [0, 1].map(|i| session(&world, i).stats());
        assert!(stats[CLIENT].parity * 10 > stats[CLIENT].sent, "{stats:?}");
        assert!(stats[SERVER].recovered > 30, "{stats:?}");
    }
}

/// Startup fills the queue until it overflows. Parity for what was lost then was sent for 20 s, and with it two thirds of the path were used.
#[test]
fn what_its_own_queue_loses_brings_no_parity() {
    for seed in seeds(5) {
        for (loss_percent, parity, share) in [(0, 0..=0, 90), (5, 1..=3, 75)] {
            let (network, bulk) = busy(loss_percent);
            let mut world = World::new(seed, network, Default::default(), [bulk, App::default()]);
            world.run(Duration::from_secs(3), |_| false);
            let lost = session(&world, CLIENT).stats().retransmitted;
            assert!(lost > 0, "seed {seed}: nothing was lost in the queue");
            let read = reads(&mut world, Duration::from_secs(8))[SERVER];
            let (_, _, now) = session(&world, CLIENT).fec();
            assert!(
                parity.contains(&now),
                "seed {seed}, {loss_percent} % lost: {now} of parity"
            );
            let carried = 8 * 2_500_000 * share / 100;
            assert!(
                read >= carried,
                "seed {seed}, {loss_percent} % lost: {read}, wanted {carried}"
            );
        }
    }
}

//! Which server gets a request: shares, steps, and what moves when servers change.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::{collections::HashMap, net::IpAddr, time::Duration};

use common::seeded;
use rand::Rng;
use route::{
    Balancer, HashKey, Headers, NoHeaders, Outcome, Pick, PickRequest, Policy, ServerIndex,
    ServerSpec, Sticky, Tried,
};

const HASH: Policy = Policy::Hash { load_factor: None };
const POLICIES: [Policy; 6] = [
    Policy::RoundRobin,
    Policy::LeastConnections,
    Policy::TwoChoices,
    Policy::PeakEwma,
    HASH,
    Policy::Hash {
        load_factor: Some(125),
    },
];

fn specs(weights: &[u32]) -> Vec<ServerSpec> {
    let spec = |(n, weight): (usize, &u32)| ServerSpec {
        weight: *weight,
        ..ServerSpec::new(&format!("10.0.0.{n}:80"))
    };
    weights.iter().enumerate().map(spec).collect()
}

fn balancer(policy: Policy, specs: &[ServerSpec]) -> Balancer {
    Balancer::new(policy, Duration::ZERO, specs).unwrap()
}

fn request(random: u64, key: Option<u64>) -> PickRequest<'static> {
    PickRequest {
        now: Duration::from_secs(100),
        key,
        sticky: None,
        tried: Tried::default(),
        random,
    }
}

fn server(pick: Option<Pick>) -> Option<u16> {
    pick.map(|pick| pick.server.0)
}

fn all(_: ServerIndex) -> bool {
    true
}

#[test]
fn round_robin_honours_weights_exactly_and_spreads_them() {
    let mut balancer = balancer(Policy::RoundRobin, &specs(&[5, 1, 1]));
    let picks: Vec<u16> = (0..7)
        .filter_map(|n| server(balancer.pick(&request(n, None), all)))
        .collect();
    assert_eq!(picks, [0, 0, 1, 0, 2, 0, 0]);
    seeded(50, |random| {
        let weights: Vec<u32> = (0..random.random_range(1..20))
            .map(|_| random.random_range(1..50))
            .collect();
        let mut balancer = self::balancer(Policy::RoundRobin, &specs(&weights));
        let total: u32 = weights.iter().sum();
        for _ in 0..3 {
            let mut counts = vec![0; weights.len()];
            for _ in 0..total {
                counts[usize::from(server(balancer.pick(&request(0, None), all)).unwrap())] += 1;
            }
            assert_eq!(counts, weights);
        }
    });
}

#[test]
fn random_policies_follow_weights() {
    seeded(5, |random| {
        for policy in [Policy::TwoChoices, Policy::PeakEwma, HASH] {
            let mut balancer = balancer(policy, &specs(&[1, 2, 5]));
            let mut counts = [0u32; 3];
            for _ in 0..20_000 {
                let pick = balancer.pick(&request(random.random(), Some(random.random())), all);
                counts[usize::from(server(pick).unwrap())] += 1;
            }
            let shares = counts.map(|count| f64::from(count) / 20_000.0);
            // Two draws without load favour no server; the first draw decides.
            for (share, weight) in shares.iter().zip([1.0, 2.0, 5.0]) {
                assert!(
                    (share - weight / 8.0).abs() < 0.02,
                    "{policy:?}: {counts:?}"
                );
            }
        }
    });
}

#[test]
fn what_is_not_available_or_was_tried_is_never_picked() {
    seeded(40, |random| {
        for policy in POLICIES {
            let count = random.random_range(1..40usize);
            let mut specs = specs(&vec![1; count]);
            for spec in &mut specs {
                spec.weight = random.random_range(0..10);
                spec.backup = random.random_ratio(1, 4);
                spec.down = random.random_ratio(1, 5);
                spec.max_active = random.random_bool(0.3).then_some(2);
            }
            let mut balancer = balancer(policy, &specs);
            for _ in 0..50 {
                let healthy: Vec<bool> = (0..count).map(|_| random.random_bool(0.6)).collect();
                let mut tried = Tried::default();
                for n in 0..count {
                    if random.random_ratio(1, 6) {
                        tried.insert(ServerIndex(n as u16));
                    }
                }
                let asked = PickRequest {
                    tried,
                    ..request(random.random(), Some(random.random()))
                };
                let available = |server: ServerIndex| healthy[usize::from(server.0)];
                let candidate = |n: usize| {
                    !specs[n].down && specs[n].weight > 0 && !tried.has(ServerIndex(n as u16))
                };
                let primaries = (0..count).any(|n| candidate(n) && healthy[n] && !specs[n].backup);
                let backups = (0..count).any(|n| candidate(n) && healthy[n] && specs[n].backup);
                let Some(pick) = balancer.pick(&asked, available) else {
                    let open = |n: &usize| {
                        balancer.active(ServerIndex(*n as u16))
                            < specs[*n].max_active.unwrap_or(u32::MAX)
                    };
                    let free = (0..count)
                        .filter(open)
                        .any(|n| candidate(n) && healthy[n] && !specs[n].backup);
                    assert!(!free, "{policy:?} found nothing where a server was free");
                    continue;
                };
                let n = usize::from(pick.server.0);
                assert!(candidate(n), "{policy:?} picked {n}");
                assert_eq!(pick.panic, !primaries && !backups);
                assert!(
                    pick.panic || healthy[n],
                    "{policy:?} picked {n}, which is not available"
                );
                assert!(
                    !specs[n].backup || !primaries,
                    "{policy:?} picked the backup {n}"
                );
                assert!(balancer.active(pick.server) < specs[n].max_active.unwrap_or(u32::MAX));
                balancer.started(pick.server);
                if random.random_bool(0.7) {
                    let outcome = match random.random_bool(0.8) {
                        true => {
                            Outcome::Answered(Duration::from_millis(random.random_range(1..500)))
                        }
                        false => Outcome::Failed,
                    };
                    balancer.finished(pick.server, asked.now, outcome);
                }
            }
        }
    });
}

#[test]
fn a_full_primary_makes_requests_wait_and_a_dead_one_uses_the_backup() {
    let mut specs = specs(&[1, 1]);
    specs[0].max_active = Some(1);
    specs[1].backup = true;
    let mut balancer = balancer(Policy::RoundRobin, &specs);
    let first = balancer.pick(&request(0, None), all).unwrap();
    assert_eq!(first.server.0, 0);
    balancer.started(first.server);
    assert_eq!(balancer.pick(&request(0, None), all), None);
    let backup = balancer
        .pick(&request(0, None), |server| server.0 == 1)
        .unwrap();
    assert_eq!((backup.server.0, backup.panic), (1, false));
    balancer.finished(first.server, Duration::ZERO, Outcome::Failed);
    let panic = balancer.pick(&request(0, None), |_| false).unwrap();
    assert_eq!((panic.server.0, panic.panic), (0, true));
    assert_eq!(balancer.pick(&request(0, None), all).unwrap().server.0, 0);
    balancer.set_down(ServerIndex(0), true);
    assert_eq!(balancer.pick(&request(0, None), all).unwrap().server.0, 1);
}

#[test]
fn least_connections_fills_by_weight_and_lets_equals_take_turns() {
    let mut balancer = balancer(Policy::LeastConnections, &specs(&[1, 1, 1]));
    let turns: Vec<u16> = (0..4)
        .filter_map(|n| server(balancer.pick(&request(n, None), all)))
        .collect();
    assert_eq!(turns, [0, 1, 2, 0]);
    let mut balancer = self::balancer(Policy::LeastConnections, &specs(&[1, 3]));
    for _ in 0..40 {
        let pick = balancer.pick(&request(0, None), all).unwrap();
        balancer.started(pick.server);
    }
    assert_eq!([0, 1].map(|n| balancer.active(ServerIndex(n))), [10, 30]);
}

#[test]
fn two_choices_and_peak_ewma_avoid_the_busy_and_the_slow() {
    seeded(5, |random| {
        let mut balancer = balancer(Policy::TwoChoices, &specs(&[1, 1]));
        for _ in 0..5 {
            balancer.started(ServerIndex(0));
        }
        for _ in 0..5 {
            let pick = balancer.pick(&request(random.random(), None), all).unwrap();
            assert_eq!(pick.server.0, 1);
            balancer.started(pick.server);
        }

        let mut balancer = self::balancer(Policy::PeakEwma, &specs(&[1, 1, 1]));
        let at = |seconds| PickRequest {
            now: Duration::from_secs(seconds),
            ..request(1, None)
        };
        for (n, time) in [(0, 5), (1, 500), (2, 6)] {
            balancer.started(ServerIndex(n));
            balancer.finished(
                ServerIndex(n),
                Duration::from_secs(10),
                Outcome::Answered(Duration::from_millis(time)),
            );
        }
        let mut counts = [0; 3];
        for _ in 0..300 {
            let asked = PickRequest {
                random: random.random(),
                ..at(10)
            };
            counts[usize::from(server(balancer.pick(&asked, all)).unwrap())] += 1;
        }
        assert_eq!(counts[1], 0, "{counts:?}");
        assert!(counts[0] > 100 && counts[2] > 50, "{counts:?}");
    });
}

#[test]
fn hashing_moves_only_the_share_of_the_server_that_went() {
    seeded(3, |random| {
        let weights: Vec<u32> = (0..10).map(|_| random.random_range(1..4)).collect();
        let mut before = balancer(HASH, &specs(&weights));
        let mut specs = specs(&weights);
        let gone = random.random_range(0..10usize);
        let name = specs.remove(gone).name;
        let mut after = balancer(HASH, &specs);
        let mut moved = 0;
        for _ in 0..5000 {
            let key = random.random();
            let old = usize::from(server(before.pick(&request(0, Some(key)), all)).unwrap());
            let new = usize::from(server(after.pick(&request(0, Some(key)), all)).unwrap());
            let new = if new >= gone { new + 1 } else { new };
            match old == gone {
                true => moved += 1,
                false => assert_eq!(old, new, "a key of another server than {name} moved"),
            }
            // Unavailable is the same as gone.
            let without = before.pick(&request(0, Some(key)), |server| {
                usize::from(server.0) != gone
            });
            assert_eq!(usize::from(server(without).unwrap()), new);
        }
        let share = f64::from(weights[gone]) / f64::from(weights.iter().sum::<u32>());
        assert!(
            (f64::from(moved) / 5000.0 - share).abs() < 0.03,
            "{moved} of 5000 moved, share {share}"
        );
    });
}

#[test]
fn bounded_hashing_spills_a_key_that_is_too_popular() {
    let mut balancer = balancer(
        Policy::Hash {
            load_factor: Some(125),
        },
        &specs(&[1, 1, 1, 1]),
    );
    let mut counts = [0u32; 4];
    for _ in 0..100 {
        let pick = balancer.pick(&request(0, Some(42)), all).unwrap();
        balancer.started(pick.server);
        counts[usize::from(pick.server.0)] += 1;
    }
    assert!(counts.iter().all(|count| *count <= 32), "{counts:?}");
    assert_eq!(counts.iter().sum::<u32>(), 100);
}

#[test]
fn hash_keys_come_from_addresses_fields_and_cookies() {
    let headers: &[(&str, &[u8])] = &[
        ("X-User", b"ann"),
        ("Cookie", b"a=1; sid=xyz"),
        ("cookie", b"sid=other;  b=2 "),
    ];
    struct Fields<'a>(&'a [(&'a str, &'a [u8])]);
    impl Headers for Fields<'_> {
        fn nth(&self, name: &str, n: usize) -> Option<&[u8]> {
            self.0.nth(name, n)
        }
    }
    let fields = Fields(headers);
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    let of = |key: HashKey, from: &str| key.of(ip(from), &fields);
    assert_eq!(
        of(HashKey::Ip, "192.0.2.1"),
        of(HashKey::Ip, "::ffff:192.0.2.1")
    );
    assert_ne!(of(HashKey::Ip, "192.0.2.1"), of(HashKey::Ip, "192.0.2.2"));
    assert_eq!(
        of(HashKey::Header("x-user".into()), "::1"),
        Some(route::hash_bytes(0, b"ann"))
    );
    assert_eq!(
        of(HashKey::Cookie("sid".into()), "::1"),
        Some(route::hash_bytes(0, b"xyz"))
    );
    assert_eq!(
        of(HashKey::Cookie("b".into()), "::1"),
        Some(route::hash_bytes(0, b"2"))
    );
    assert_eq!(of(HashKey::Cookie("si".into()), "::1"), None);
    assert_eq!(
        HashKey::Header("x-none".into()).of(ip("::1"), &NoHeaders),
        None
    );
}

#[test]
fn a_sticky_cookie_keeps_the_visitor_while_the_server_is_fit() {
    let specs = specs(&[1, 1, 0]);
    let sticky = Sticky::new(b"secret");
    let mut balancer = balancer(Policy::RoundRobin, &specs).with_sticky(&sticky, &specs);
    let tag = *balancer.sticky_tag(ServerIndex(1)).unwrap();
    assert_eq!(tag, sticky.tag("10.0.0.1:80"));
    assert_ne!(tag, Sticky::new(b"other").tag("10.0.0.1:80"));
    let asked = PickRequest {
        sticky: Some(tag.as_bytes()),
        ..request(0, None)
    };
    for _ in 0..5 {
        let pick = balancer.pick(&asked, all).unwrap();
        assert_eq!((pick.server.0, pick.sticky), (1, true));
    }
    let elsewhere = balancer.pick(&asked, |server| server.0 != 1).unwrap();
    assert_eq!((elsewhere.server.0, elsewhere.sticky), (0, false));
    // Weight 0 drains: who is there stays, nobody comes.
    let drained = *balancer.sticky_tag(ServerIndex(2)).unwrap();
    let stays = PickRequest {
        sticky: Some(drained.as_bytes()),
        ..request(0, None)
    };
    assert_eq!(server(balancer.pick(&stays, all)), Some(2));
    assert!((0..10).all(|n| server(balancer.pick(&request(n, None), all)) != Some(2)));
    let made_up = PickRequest {
        sticky: Some(b"0000000000000000"),
        ..request(0, None)
    };
    assert!(!balancer.pick(&made_up, all).unwrap().sticky);
}

#[test]
fn a_server_that_came_back_gets_its_share_slowly() {
    let mut balancer =
        Balancer::new(Policy::RoundRobin, Duration::from_secs(10), &specs(&[1, 1])).unwrap();
    let mut share_at = |seconds: u64| {
        let mut counts: HashMap<u16, u32> = HashMap::new();
        for _ in 0..1000 {
            let asked = PickRequest {
                now: Duration::from_secs(seconds),
                ..request(0, None)
            };
            *counts
                .entry(balancer.pick(&asked, all).unwrap().server.0)
                .or_default() += 1;
        }
        if seconds == 100 {
            balancer.came_up(ServerIndex(1), Duration::from_secs(100));
        }
        counts.get(&1).copied().unwrap_or(0)
    };
    assert_eq!(share_at(100), 500);
    let warming = [share_at(101), share_at(105), share_at(110)];
    // A tenth of the weight is a share of 1/11, half of it 1/3.
    assert!((85..=97).contains(&warming[0]), "{warming:?}");
    assert!((328..=339).contains(&warming[1]), "{warming:?}");
    assert!((499..=501).contains(&warming[2]), "{warming:?}");
}

#[test]
fn too_many_servers_and_too_large_weights_are_refused() {
    let new = |weights: &[u32]| {
        Balancer::new(Policy::RoundRobin, Duration::ZERO, &specs(weights)).is_ok()
    };
    assert!(new(&[1; route::MAX_SERVERS]) && !new(&[1; route::MAX_SERVERS + 1]));
    assert!(new(&[route::MAX_WEIGHT]) && !new(&[route::MAX_WEIGHT + 1]));
    let mut full = balancer(Policy::RoundRobin, &specs(&[1; route::MAX_SERVERS]));
    let picks: Vec<u16> = (0..512)
        .filter_map(|n| server(full.pick(&request(n, None), all)))
        .collect();
    assert_eq!(picks, (0..512).collect::<Vec<_>>());
    assert_eq!(
        balancer(Policy::RoundRobin, &[]).pick(&request(0, None), all),
        None
    );
}

#[test]
fn the_only_server_is_picked_unless_it_is_down_or_was_tried() {
    for policy in POLICIES {
        let mut one = balancer(policy, &specs(&[3]));
        let asked = request(7, Some(7));
        let good = one.pick(&asked, all).unwrap();
        assert_eq!((good.server, good.panic), (ServerIndex(0), false));
        // Better an ill one than none.
        assert!(one.pick(&asked, |_| false).unwrap().panic);
        let mut tried = Tried::default();
        tried.insert(ServerIndex(0));
        assert_eq!(server(one.pick(&PickRequest { tried, ..asked }, all)), None);
        let mut down = specs(&[3]);
        down[0].down = true;
        assert_eq!(server(balancer(policy, &down).pick(&asked, all)), None);
        let mut full = specs(&[3]);
        full[0].max_active = Some(1);
        let mut full = balancer(policy, &full);
        assert_eq!(server(full.pick(&asked, all)), Some(0));
        full.started(ServerIndex(0));
        assert_eq!(server(full.pick(&asked, all)), None);
    }
}

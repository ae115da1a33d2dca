//! Fitness of servers: checks, ejection, the breaker's queue, the retry budget.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::{collections::VecDeque, time::Duration};

use common::seeded;
use rand::Rng;
use route::{
    ActiveCheck, ActiveCheckSpec, Admission, Breaker, BreakerSpec, Change, Ejector, EjectorSpec,
    Health, HealthSpec, Report, RetryBudget, RetryBudgetSpec, ServerIndex,
};

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[test]
fn a_server_falls_after_three_bad_checks_and_rises_after_two_good_ones() {
    let mut check = ActiveCheck::new(ActiveCheckSpec::default(), seconds(0), 0);
    let mut end = |good| check.ended(good, seconds(0), 0);
    assert_eq!(
        [true, false, false, true, false, false].map(&mut end),
        [None; 6]
    );
    assert_eq!(end(false), Some(false));
    assert_eq!([false, true, false, true].map(&mut end), [None; 4]);
    assert_eq!(end(true), Some(true));
    assert!(check.is_up());
}

#[test]
fn the_first_check_if_bad_takes_a_server_out() {
    let mut check = ActiveCheck::new(ActiveCheckSpec::default(), seconds(0), 0);
    assert!(check.is_up());
    assert_eq!(check.ended(false, seconds(1), 0), Some(false));
}

#[test]
fn checks_come_at_their_interval_give_or_take_the_jitter_and_never_twice_at_once() {
    seeded(20, |random| {
        let spec = ActiveCheckSpec::default();
        let start = seconds(50);
        let mut check = ActiveCheck::new(spec, start, random.random());
        let first = check.due().unwrap();
        assert!(first >= start && first < start + spec.interval);
        let mut now = first;
        for _ in 0..100 {
            check.started();
            assert_eq!(check.due(), None);
            now += Duration::from_millis(random.random_range(0..2000));
            check.ended(random.random(), now, random.random());
            let pause = check.due().unwrap() - now;
            assert!(
                pause >= Duration::from_millis(1800) && pause <= Duration::from_millis(2200),
                "{pause:?}"
            );
        }
    });
}

#[test]
fn five_failures_in_a_row_eject_for_thirty_seconds_and_one_more_ejects_again() {
    let server = ServerIndex(1);
    let mut ejector = Ejector::new(EjectorSpec::default(), 4);
    for n in 0..4 {
        assert_eq!(
            ejector.report(server, Report::ServerError, seconds(n)),
            None
        );
    }
    ejector.report(server, Report::Good, seconds(4));
    for n in 5..9 {
        assert_eq!(
            ejector.report(server, Report::Unreachable, seconds(n)),
            None
        );
    }
    assert_eq!(
        ejector.report(server, Report::ServerError, seconds(9)),
        Some(Change::Down(server))
    );
    assert!(ejector.is_ejected(server, seconds(38)) && !ejector.is_ejected(server, seconds(39)));
    // What was under way when it was ejected does not count.
    assert_eq!(
        ejector.report(server, Report::Unreachable, seconds(20)),
        None
    );
    assert_eq!(ejector.readmit(seconds(38)), None);
    assert_eq!(ejector.readmit(seconds(39)), Some(Change::Up(server)));
    assert_eq!(ejector.readmit(seconds(39)), None);
    assert_eq!(
        ejector.report(server, Report::ServerError, seconds(40)),
        Some(Change::Down(server))
    );
    assert_eq!(ejector.readmit(seconds(70)), Some(Change::Up(server)));
    ejector.report(server, Report::Good, seconds(71));
    assert_eq!(
        ejector.report(server, Report::ServerError, seconds(72)),
        None
    );
}

#[test]
fn at_most_half_of_an_upstream_is_ejected() {
    seeded(30, |random| {
        let servers = random.random_range(1..20);
        let mut ejector = Ejector::new(EjectorSpec::default(), servers);
        let mut now = seconds(0);
        for _ in 0..2000 {
            now += Duration::from_millis(random.random_range(0..500));
            let server = ServerIndex(random.random_range(0..servers as u16));
            let report = if random.random_ratio(1, 12) {
                Report::Good
            } else {
                Report::ServerError
            };
            ejector.report(server, report, now);
            if random.random_ratio(1, 10) {
                while ejector.readmit(now).is_some() {}
            }
            let out = (0..servers as u16)
                .filter(|n| ejector.is_ejected(ServerIndex(*n), now))
                .count();
            assert!(
                out <= servers / 2 && out <= ejector.ejected(),
                "{out} of {servers}"
            );
            assert!(ejector.ejected() <= servers / 2);
        }
    });
}

#[test]
fn health_joins_checks_and_ejection() {
    let spec = HealthSpec {
        active: Some(ActiveCheckSpec::default()),
        passive: Some(EjectorSpec::default()),
    };
    let mut bits = 0u32;
    let mut health = Health::new(&spec, 2, seconds(0), || {
        bits = bits.wrapping_add(1 << 30);
        bits
    });
    let (first, at) = health.next_check().unwrap();
    assert_eq!((first, at), (ServerIndex(0), Duration::from_millis(500)));
    health.check_started(first);
    assert_eq!(health.next_check(), Some((ServerIndex(1), seconds(1))));
    assert_eq!(
        health.check_ended(first, false, seconds(1), 0),
        Some(Change::Down(first))
    );
    assert!(!health.available(first, seconds(1)) && health.available(ServerIndex(1), seconds(1)));
    health.set_checked(first, true);
    assert!(health.available(first, seconds(1)));
    for _ in 0..4 {
        assert_eq!(health.report(first, Report::Unreachable, seconds(2)), None);
    }
    assert_eq!(
        health.report(first, Report::Unreachable, seconds(2)),
        Some(Change::Down(first))
    );
    assert!(!health.available(first, seconds(31)));
    assert_eq!(health.readmit(seconds(32)), Some(Change::Up(first)));
    let none = Health::new(&HealthSpec::default(), 2, seconds(0), || 0);
    assert!(none.available(first, seconds(0)) && none.next_check().is_none());
}

#[test]
fn the_breaker_lets_in_queues_and_refuses_in_order() {
    let mut breaker = Breaker::new(BreakerSpec {
        max_active: 1,
        max_queue: 2,
        queue_time: seconds(5),
    });
    assert_eq!(breaker.enter(seconds(1)), Admission::Go);
    let Admission::Wait(a, until) = breaker.enter(seconds(1)) else {
        panic!()
    };
    assert_eq!(until, seconds(6));
    let Admission::Wait(b, _) = breaker.enter(seconds(2)) else {
        panic!()
    };
    assert_eq!(breaker.enter(seconds(2)), Admission::Refused);
    assert!(breaker.give_up(a) && !breaker.give_up(a));
    assert_eq!(breaker.leave(), Some(b));
    assert!(!breaker.give_up(b), "it is in");
    assert_eq!(breaker.leave(), None);
    assert_eq!((breaker.active(), breaker.waiting()), (0, 0));
    assert_eq!(breaker.enter(seconds(9)), Admission::Go);
}

#[test]
fn the_breaker_never_holds_more_than_it_may_and_forgets_nobody() {
    seeded(30, |random| {
        let spec = BreakerSpec {
            max_active: random.random_range(1..6),
            max_queue: random.random_range(0..6),
            queue_time: seconds(1),
        };
        let mut breaker = Breaker::new(spec);
        let (mut inside, mut line) = (0u32, VecDeque::new());
        for _ in 0..1000 {
            match random.random_range(0..3) {
                0 => match breaker.enter(seconds(0)) {
                    Admission::Go => inside += 1,
                    Admission::Wait(ticket, _) => line.push_back(ticket),
                    Admission::Refused => assert_eq!(line.len(), spec.max_queue as usize),
                },
                1 if inside > 0 => match breaker.leave() {
                    Some(ticket) => assert_eq!(Some(ticket), line.pop_front()),
                    None => inside -= 1,
                },
                _ if !line.is_empty() => {
                    let ticket = line.remove(random.random_range(0..line.len())).unwrap();
                    assert!(breaker.give_up(ticket));
                }
                _ => {}
            }
            assert_eq!((breaker.active(), breaker.waiting()), (inside, line.len()));
            assert!(inside <= spec.max_active && (line.is_empty() || inside == spec.max_active));
        }
    });
}

#[test]
fn retries_are_a_fifth_of_the_requests_of_ten_seconds() {
    let mut budget = RetryBudget::new(RetryBudgetSpec::default());
    let retries = |budget: &mut RetryBudget, now| {
        (0..1000).filter(|_| budget.try_retry(seconds(now))).count()
    };
    assert_eq!(retries(&mut budget, 0), 10, "the floor");
    for n in 0..100 {
        budget.request(seconds(5 + n % 2));
    }
    assert_eq!(
        retries(&mut budget, 6),
        10,
        "20 of 100, of which 10 are spent"
    );
    assert_eq!(retries(&mut budget, 9), 0);
    assert_eq!(
        retries(&mut budget, 10),
        10,
        "those of second 0 are forgotten"
    );
    assert_eq!(retries(&mut budget, 40), 10, "the floor again");
}

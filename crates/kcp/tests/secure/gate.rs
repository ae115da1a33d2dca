//! The door of a listener under flood: what strangers can and cannot make it keep and say.

use std::time::Duration;

use kcp::{
    Time,
    secure::{Connecting, Gate, GateLimits, INITIATE_LEN, Options, Reply},
};

use crate::world::{Random, addr};

fn connecting(random: &mut Random, now: Time) -> Connecting {
    Connecting::new(now, addr(1), Options::default(), &random.bytes()).expect("a key")
}

fn gate(random: &mut Random, limits: GateLimits) -> Gate {
    Gate::new(0, Options::default(), limits, &random.bytes())
}

fn ask(
    gate: &mut Gate,
    random: &mut Random,
    now: Time,
    port: u16,
    datagram: &[u8],
) -> Option<Vec<u8>> {
    let fresh = random.bytes();
    match gate.handle_handshake(now, addr(port), datagram, false, |bytes| *bytes = fresh) {
        Reply::Send(reply) => Some(reply),
        Reply::Ignore => None,
    }
}

#[test]
fn who_has_not_shown_its_address_costs_no_memory() {
    let mut random = Random::new(1);
    let mut gate = gate(
        &mut random,
        GateLimits {
            answers_per_second: u32::MAX,
            ..GateLimits::default()
        },
    );
    for i in 0..2000 {
        let mut client = connecting(&mut random, Time::ZERO);
        let datagram = client
            .poll_transmit(Time::ZERO)
            .expect("an initiate")
            .to_vec();
        assert_eq!(datagram.len(), INITIATE_LEN);
        let reply = ask(&mut gate, &mut random, Time::ZERO, i, &datagram).expect("a retry");
        assert!(reply.len() < 40);
    }
    assert_eq!(gate.half_open(), 0);
}

#[test]
fn a_cookie_is_for_one_address_one_client_and_a_short_time() {
    let mut random = Random::new(2);
    let mut gate = gate(&mut random, GateLimits::default());
    let mut client = connecting(&mut random, Time::ZERO);
    let first = client
        .poll_transmit(Time::ZERO)
        .expect("an initiate")
        .to_vec();
    let retry = ask(&mut gate, &mut random, Time::ZERO, 5, &first).expect("a retry");
    assert!(
        client
            .handle_datagram(Time::ZERO, &retry)
            .expect("no error")
            .is_none()
    );
    let second = client
        .poll_transmit(Time::ZERO)
        .expect("at once, with the cookie")
        .to_vec();
    let accepts = |reply: Option<Vec<u8>>| reply.is_some_and(|reply| reply[0] == 0xc3);
    assert!(
        !accepts(ask(&mut gate, &mut random, Time::ZERO, 6, &second)),
        "another address"
    );
    let mut other = second.clone();
    other[3] ^= 1;
    assert!(
        !accepts(ask(&mut gate, &mut random, Time::ZERO, 5, &other)),
        "another client"
    );
    let late = Time::from_millis(20_000);
    assert!(
        !accepts(ask(&mut gate, &mut random, late, 5, &second)),
        "too late"
    );
    assert!(accepts(ask(
        &mut gate,
        &mut random,
        Time::from_millis(20_000 - 6000),
        5,
        &second
    )));
    assert_eq!(gate.half_open(), 1);
    // Again: the same answer, no second session.
    assert!(accepts(ask(
        &mut gate,
        &mut random,
        Time::from_millis(14_000),
        5,
        &second
    )));
    assert_eq!(gate.half_open(), 1);
}

#[test]
fn half_open_sessions_are_bounded_in_number_and_time() {
    let mut random = Random::new(3);
    let limits = GateLimits {
        half_open: 50,
        half_open_per_network: 20,
        ..GateLimits::default()
    };
    let mut gate = gate(&mut random, limits);
    let mut now = Time::ZERO;
    for port in 0..200 {
        let mut client = connecting(&mut random, now);
        let first = client.poll_transmit(now).expect("an initiate").to_vec();
        let retry = ask(&mut gate, &mut random, now, port, &first).expect("a retry");
        let _ = client.handle_datagram(now, &retry);
        let second = client.poll_transmit(now).expect("an initiate").to_vec();
        let _ = ask(&mut gate, &mut random, now, port, &second);
    }
    assert_eq!(gate.half_open(), 20, "all from one address");
    now = now + Duration::from_secs(11);
    gate.expire(now);
    assert_eq!(gate.half_open(), 0);
    assert_eq!(gate.poll_timeout(), None);
}

#[test]
fn answers_are_bounded_in_rate() {
    let mut random = Random::new(4);
    let mut gate = gate(
        &mut random,
        GateLimits {
            answers_per_second: 100,
            ..GateLimits::default()
        },
    );
    let mut client = connecting(&mut random, Time::ZERO);
    let datagram = client
        .poll_transmit(Time::ZERO)
        .expect("an initiate")
        .to_vec();
    let mut answered = 0;
    for i in 0..10_000_u64 {
        let now = Time::from_millis(i / 10);
        answered += usize::from(ask(&mut gate, &mut random, now, i as u16, &datagram).is_some());
    }
    assert!(
        (150..=210).contains(&answered),
        "{answered} in a second, with a burst of 100"
    );
}

#[test]
fn an_unknown_version_is_told_which_are_known() {
    let mut random = Random::new(5);
    let mut gate = gate(&mut random, GateLimits::default());
    let mut client = connecting(&mut random, Time::ZERO);
    let mut datagram = client
        .poll_transmit(Time::ZERO)
        .expect("an initiate")
        .to_vec();
    datagram[1] = 9;
    let reply = ask(&mut gate, &mut random, Time::ZERO, 5, &datagram).expect("an answer");
    assert_eq!((reply[0], &reply[10..]), (0xc4, &[1, 1][..]));
    // A client of version 1 that is told 1 knows that somebody plays games.
    assert!(
        client
            .handle_datagram(Time::ZERO, &reply)
            .expect("ignored")
            .is_none()
    );
    let mut newer = reply;
    newer[10..].copy_from_slice(&[2, 3]);
    assert!(client.handle_datagram(Time::ZERO, &newer).is_err());
}

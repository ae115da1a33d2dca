//! The ARQ by itself: two ends that pass datagrams by hand, and hostile input.

use std::time::Duration;

use super::*;
use crate::{InputError, Mode};

fn end(config: Config) -> Arq {
    Arq::new(Conv(7), config, 1376)
}

fn fast() -> Config {
    Config {
        mode: Mode::FAST3,
        send_window: 128,
        recv_window: 128,
        ..Config::default()
    }
}

fn datagrams(arq: &mut Arq, now: Time) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let mut out = [0; 1500];
    while let Some(made) = arq.poll_transmit(now, &mut out) {
        all.push(out[..made.length].to_vec());
    }
    all
}

fn deliver(arq: &mut Arq, now: Time, datagrams: &[Vec<u8>]) {
    for datagram in datagrams {
        arq.handle_input(now, datagram, Origin::Wire)
            .expect("an honest datagram");
    }
}

fn header(command: Command) -> Header {
    Header {
        conv: Conv(7),
        command,
        fragment: 0,
        window: 128,
        timestamp: 0,
        sn: Sn(0),
        una: Sn(0),
    }
}

fn datagram(header: &Header, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0; HEADER];
    header.write(payload.len(), &mut out);
    out.extend_from_slice(payload);
    out
}

#[test]
fn an_idle_session_has_no_timer() {
    let (mut a, mut b) = (end(fast()), end(fast()));
    assert_eq!(a.poll_timeout(), None);
    a.write(Time::ZERO, b"hello").expect("open");
    deliver(&mut b, Time::from_millis(1), &datagrams(&mut a, Time::ZERO));
    let due = b.poll_timeout().expect("an acknowledgement waits");
    assert_eq!(due, Time::from_millis(6), "half the interval");
    b.handle_timeout(due);
    deliver(&mut a, due, &datagrams(&mut b, due));
    assert_eq!((a.poll_timeout(), b.poll_timeout()), (None, None));
    assert!(a.is_flushed());
    assert_eq!(a.srtt(), Some(Duration::from_millis(6)));
}

#[test]
fn a_segment_skipped_by_two_later_ones_goes_out_at_once() {
    let (mut a, mut b) = (end(fast()), end(fast()));
    a.write(Time::ZERO, &[1; 1352 * 4]).expect("open");
    let mut sent = datagrams(&mut a, Time::ZERO);
    assert_eq!(sent.len(), 4);
    sent.remove(0);
    let now = Time::from_millis(20);
    deliver(&mut b, now, &sent);
    let later = now + Duration::from_millis(5);
    deliver(&mut a, later, &datagrams(&mut b, later));
    let again = datagrams(&mut a, later);
    assert_eq!(again.len(), 1);
    assert_eq!(a.counters().fast_retrans_segs, 1);
    deliver(&mut b, later, &again);
    assert_eq!(b.readable(), 1352 * 4);
}

#[test]
fn a_retransmission_that_is_lost_too_does_not_wait_for_the_timeout() {
    let (mut a, mut b) = (end(fast()), end(fast()));
    a.write(Time::ZERO, &[1; 1352 * 3]).expect("open");
    let sent = datagrams(&mut a, Time::ZERO);
    deliver(&mut b, Time::from_millis(50), &sent[1..]);
    let now = Time::from_millis(55);
    deliver(&mut a, now, &datagrams(&mut b, now));
    assert_eq!(datagrams(&mut a, now).len(), 1, "lost again");
    a.write(now, &[2; 1352 * 3]).expect("open");
    let sent = datagrams(&mut a, now);
    deliver(&mut b, Time::from_millis(105), &sent);
    let now = Time::from_millis(110);
    deliver(&mut a, now, &datagrams(&mut b, now));
    assert_eq!(datagrams(&mut a, now).len(), 1);
    assert_eq!(
        (a.counters().fast_retrans_segs, a.counters().lost_segs),
        (2, 0)
    );
}

#[test]
fn the_last_lost_segment_follows_after_the_reordering_time() {
    let (mut a, mut b) = (end(fast()), end(fast()));
    a.write(Time::ZERO, &[1; 1352 * 2]).expect("open");
    let sent = datagrams(&mut a, Time::ZERO);
    deliver(&mut b, Time::from_millis(40), &sent[1..]);
    let now = Time::from_millis(45);
    deliver(&mut a, now, &datagrams(&mut b, now));
    assert!(datagrams(&mut a, now).is_empty(), "it may only be late");
    let due = a.poll_timeout().expect("a deadline");
    assert!(due > now && due < Time::from_millis(60), "{due:?}");
    a.handle_timeout(due);
    assert_eq!(datagrams(&mut a, due).len(), 1);
    assert_eq!(a.counters().early_retrans_segs, 1);
}

#[test]
fn a_silent_peer_is_reported_dead() {
    let mut a = end(Config {
        dead_silence: Duration::ZERO,
        ..fast()
    });
    a.write(Time::ZERO, b"anyone?").expect("open");
    let mut now = Time::ZERO;
    let mut sent = 0;
    while !a.is_dead() {
        sent += datagrams(&mut a, now).len();
        now = a.poll_timeout().expect("it keeps trying");
        a.handle_timeout(now);
    }
    assert_eq!(sent, 20);
    assert_eq!(
        (a.poll_timeout(), a.write(now, b"x")),
        (None, Err(SendError::Closed))
    );
    assert!(datagrams(&mut a, now).is_empty());
}

#[test]
fn a_short_silence_is_not_death() {
    let (mut a, mut b) = (end(fast()), end(fast()));
    let mut now = Time::ZERO;
    for _ in 0..20 {
        a.write(now, b"x").expect("open");
        deliver(&mut b, now, &datagrams(&mut a, now));
        now = now + Duration::from_millis(10);
        deliver(&mut a, now, &datagrams(&mut b, now));
    }
    assert!(
        a.rto() <= Duration::from_millis(40),
        "twenty sends take less than five seconds: {:?}",
        a.rto()
    );
    let silent_since = now;
    a.write(now, b"anyone?").expect("open");
    while !a.is_dead() {
        datagrams(&mut a, now);
        now = a.poll_timeout().expect("it keeps trying");
        a.handle_timeout(now);
    }
    let silence = now.since(silent_since);
    assert!(
        silence >= Duration::from_secs(10) && silence < Duration::from_secs(12),
        "{silence:?}"
    );
}

#[test]
fn a_closed_window_is_probed_until_it_opens() {
    let config = Config {
        recv_window: 4,
        ..fast()
    };
    let (mut a, mut b) = (end(fast()), end(config));
    let mut now = Time::ZERO;
    a.write(now, &[3; 1352 * 40]).expect("open");
    // The peer's window is unknown at first: what lies beyond is dropped and repeated.
    for _ in 0..400 {
        deliver(&mut b, now, &datagrams(&mut a, now));
        now = now + Duration::from_millis(5);
        b.handle_timeout(now);
        deliver(&mut a, now, &datagrams(&mut b, now));
        a.handle_timeout(now);
    }
    let mut got = 0;
    let mut out = [0; 2000];
    let mut lose_the_tell = true;
    for _ in 0..20_000 {
        got += b.read(&mut out);
        let tell = datagrams(&mut b, now);
        if !std::mem::take(&mut lose_the_tell) {
            deliver(&mut a, now, &tell);
        }
        deliver(&mut b, now, &datagrams(&mut a, now));
        now = now + Duration::from_millis(5);
        a.handle_timeout(now);
        b.handle_timeout(now);
    }
    assert_eq!(got, 1352 * 40);
}

#[test]
fn write_delay_gathers_small_writes() {
    let mut a = end(Config {
        write_delay: true,
        ..fast()
    });
    for at in 0..5 {
        a.write(Time::from_millis(at), b"ab").expect("open");
        assert!(datagrams(&mut a, Time::from_millis(at)).is_empty());
    }
    assert_eq!(a.poll_timeout(), Some(Time::from_millis(10)));
    let sent = datagrams(&mut a, Time::from_millis(10));
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].len(), HEADER + 10);
}

#[test]
fn messages_arrive_whole() {
    let (mut a, mut b) = (end(fast()), end(fast()));
    let message: Vec<u8> = (0..5000u32).map(|i| i as u8).collect();
    a.write_message(Time::ZERO, &message).expect("room");
    a.write_message(Time::ZERO, b"second").expect("room");
    let sent = datagrams(&mut a, Time::ZERO);
    let mut out = Vec::new();
    deliver(&mut b, Time::ZERO, &sent[..2]);
    assert_eq!(b.read_message(&mut out), Ok(None));
    deliver(&mut b, Time::ZERO, &sent[2..]);
    assert_eq!(b.read_message(&mut out), Ok(Some(5000)));
    assert_eq!(out, message);
    assert_eq!(b.read_message(&mut out), Ok(Some(6)));
}

#[test]
fn a_message_that_the_window_cannot_hold_is_an_error_and_still_readable_as_bytes() {
    let mut b = end(Config {
        recv_window: 4,
        ..fast()
    });
    for sn in 0..4 {
        let push = Header {
            sn: Sn(sn),
            fragment: 200,
            ..header(Command::Push)
        };
        deliver(&mut b, Time::ZERO, &[datagram(&push, b"x")]);
    }
    assert_eq!(b.read_message(&mut Vec::new()), Err(SendError::Size));
    assert_eq!(b.read(&mut [0; 10]), 4);
}

#[test]
fn acknowledgements_of_numbers_never_sent_change_nothing() {
    let mut a = end(fast());
    a.write(Time::ZERO, b"x").expect("open");
    datagrams(&mut a, Time::ZERO);
    for sn in [1, 2, 1 << 31, u32::MAX] {
        let ack = Header {
            sn: Sn(sn),
            una: Sn(sn.max(2)),
            ..header(Command::Ack)
        };
        deliver(&mut a, Time::from_millis(1), &[datagram(&ack, b"")]);
    }
    assert_eq!(a.unacknowledged(), 1);
}

#[test]
fn another_conversation_is_refused() {
    let mut a = end(fast());
    let push = Header {
        conv: Conv(8),
        ..header(Command::Push)
    };
    assert_eq!(
        a.handle_input(Time::ZERO, &datagram(&push, b"x"), Origin::Wire),
        Err(InputError::Conversation)
    );
    assert_eq!(a.readable(), 0);
}

#[test]
fn a_small_window_throttles_without_loss_of_data() {
    let (mut a, mut b) = (end(fast()), end(fast()));
    let data: Vec<u8> = (0..600_000u32).map(|i| (i / 7) as u8).collect();
    let (mut written, mut got, mut now) = (0, Vec::new(), Time::ZERO);
    let mut out = vec![0; 100_000];
    while got.len() < data.len() {
        written += a.write(now, &data[written..]).expect("open");
        deliver(&mut b, now, &datagrams(&mut a, now));
        let count = b.read(&mut out);
        got.extend_from_slice(&out[..count]);
        now = now + Duration::from_millis(5);
        b.handle_timeout(now);
        deliver(&mut a, now, &datagrams(&mut b, now));
    }
    assert_eq!(got, data);
    assert_eq!(a.counters().retrans_segs, 0);
}

/// Payloads by number of the pushed segments in a datagram.
fn pushed(datagram: &[u8]) -> Vec<u32> {
    Segments::new(datagram)
        .map(|segment| segment.expect("our own"))
        .filter(|(header, _)| header.command == Command::Push)
        .map(|(header, _)| header.sn.0)
        .collect()
}

#[test]
fn after_a_loss_small_segments_ride_along_twice() {
    let config = Config {
        stream: false,
        ack_nodelay: true,
        ..fast()
    };
    let (mut a, mut b) = (end(config.clone()), end(config));
    let say = |a: &mut Arq, at: u64| {
        let now = Time::from_millis(at);
        a.handle_timeout(now);
        a.write(now, &[at as u8; 64]).expect("open");
        datagrams(a, now)
    };
    let first = say(&mut a, 0);
    assert_eq!(pushed(&say(&mut a, 10)[0]), [1], "nothing was lost yet");
    // The second one is lost: 0 and 2 come, and after the reordering time it goes out again.
    deliver(&mut b, Time::from_millis(50), &first);
    let third = say(&mut a, 20);
    deliver(&mut b, Time::from_millis(70), &third);
    deliver(
        &mut a,
        Time::from_millis(110),
        &datagrams(&mut b, Time::from_millis(70)),
    );
    a.handle_timeout(Time::from_millis(200));
    let again = datagrams(&mut a, Time::from_millis(200));
    assert_eq!(pushed(&again[0]), [1]);
    let sent: Vec<_> = (0..4)
        .map(|i| pushed(&say(&mut a, 210 + 10 * i)[0]))
        .collect();
    assert_eq!(
        sent,
        [vec![3, 1], vec![4, 3, 1], vec![5, 4, 3], vec![6, 5, 4]]
    );
    // Large ones do not, and take no small ones with them that have no room.
    a.write(Time::from_millis(250), &[0; 1352]).expect("open");
    let large = datagrams(&mut a, Time::from_millis(250));
    assert_eq!(pushed(&large[0]), [7]);
    a.write(Time::from_millis(260), &[0; 64]).expect("open");
    let small = datagrams(&mut a, Time::from_millis(260));
    assert_eq!(pushed(&small[0]), [8, 6, 5]);
}

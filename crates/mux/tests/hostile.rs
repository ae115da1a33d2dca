//! Peers that flood, lie or fall silent: output stays bounded for a caller that keeps the rules, nothing panics, death is noticed.

mod support;

use std::time::Duration;

use mux::{Config, Event, Key, Mux, Side, Turn};
use testkit::seeds;

use support::{Rng, drain, feed, fill, pair, windows};

const NOW: Duration = Duration::ZERO;
/// A caller's rule: it stops reading at so much output.
const STOP: usize = 4 * (64 << 10);
const READ: usize = 16 << 10;

/// Feeds `frame` for ever, as a caller does whose transport takes nothing; gives the output at which it stopped, and all it read.
fn flood(
    mux: &mut Mux,
    mut frame: impl FnMut(u32) -> Vec<u8>,
    on: impl Fn(&mut Mux, Key, usize),
) -> (usize, usize) {
    let mut read = 0;
    let mut count = 0;
    while mux.output_len() <= STOP && read < 20 << 20 {
        let mut wire = Vec::new();
        while wire.len() < READ {
            wire.extend(frame(count));
            count += 1;
        }
        read += wire.len();
        let mut input = &wire[..];
        while let Some(event) = mux.receive(&mut input, NOW).expect("legal so far") {
            if let Event::Data { key, bytes } = event {
                on(mux, key, bytes.len());
            }
        }
        while mux.next_turn().is_some() {}
        let _ = mux.output();
    }
    (mux.output_len(), read)
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut wire = vec![kind, flags];
    wire.extend((payload.len() as u16).to_be_bytes());
    wire.extend(stream.to_be_bytes());
    wire.extend(payload);
    wire
}

#[test]
fn a_flood_of_pings_costs_one_answer() {
    let (mut mux, _) = pair(Config::default());
    let (output, _) = flood(
        &mut mux,
        |i| frame(4, 0, 0, &u64::from(i).to_be_bytes()),
        |_, _, _| {},
    );
    assert_eq!(output, 16);
    // What was held back is sent when the first answer is gone, and only the newest.
    drain(&mut mux);
    assert!(mux.has_output());
    assert_eq!(drain(&mut mux).len(), 16);
    assert!(!mux.has_output());
}

#[test]
fn a_flood_of_answers_and_credit_costs_nothing() {
    let (mut mux, _) = pair(Config::default());
    let (key, _) = mux.open(&[], &[], NOW).expect("room");
    drain(&mut mux);
    mux.request(key);
    let (output, _) = flood(
        &mut mux,
        |i| frame(4, 1, 0, &u64::from(i).to_be_bytes()),
        |_, _, _| {},
    );
    assert_eq!(output, 0);
    let (output, _) = flood(
        &mut mux,
        |i| frame(2, (i % 2) as u8, i % 5, &0u32.to_be_bytes()),
        |_, _, _| {},
    );
    assert_eq!(output, 0);
}

#[test]
fn a_flood_of_openings_stops_at_the_bound() {
    let config = Config {
        max_streams: 100,
        ..Config::default()
    };
    let mut mux = Mux::new(Side::Acceptor, config, NOW);
    let (output, read) = flood(&mut mux, |i| frame(1, 0, 2 * i + 1, &[0, 0]), |_, _, _| {});
    assert!(output <= STOP + READ + 10, "{output}");
    assert!(output <= read);
    assert_eq!(mux.stream_count(), 100);
}

#[test]
fn a_flood_of_data_for_streams_that_are_gone_stops_at_the_bound() {
    let mut mux = Mux::new(Side::Acceptor, windows(1000, 4000), NOW);
    let (output, _) = flood(&mut mux, |i| frame(0, 0, 2 * i + 1, &[1]), |_, _, _| {});
    assert!(output <= STOP + 2 * READ, "{output}");
}

#[test]
fn a_flood_of_bytes_one_by_one_stops_at_the_bound() {
    let mut mux = Mux::new(Side::Acceptor, windows(1000, 4000), NOW);
    feed(&mut mux, &frame(1, 0, 1, &[0, 0]), NOW);
    let (output, _) = flood(
        &mut mux,
        |_| frame(0, 0, 1, &[1]),
        |mux, key, n| mux.consumed(key, n, NOW),
    );
    assert!(output <= STOP + 2 * READ, "{output}");
}

#[test]
fn openings_and_resets_leave_nothing_behind() {
    let mut mux = Mux::new(
        Side::Acceptor,
        Config {
            output_limit: 1,
            ..windows(1000, 64 << 10)
        },
        NOW,
    );
    let mut header = frame(1, 0, 1, &[0, 0]);
    header.extend(frame(0, 0, 1, &[1; 10]));
    mux.send_control(b"the output is full");
    for _ in 0..100_000 {
        let mut input = &header[..];
        while let Some(event) = mux.receive(&mut input, NOW).expect("legal") {
            if let Event::Data { key, bytes } = event {
                mux.consumed(key, bytes.len() / 2, NOW);
                assert_eq!(mux.request(key), Turn::Later);
            }
        }
        feed(&mut mux, &frame(3, 0, 1, &[0, 0]), NOW);
        assert_eq!(mux.stream_count(), 0);
    }
    // The schedule is swept, the credit given back: a mention of all streams would make this text very long.
    let memory = format!("{mux:?}");
    let queued = memory.matches("generation").count();
    assert!(queued < 200, "{queued} entries are left");
    assert!(!mux.has_waiting());
}

#[test]
fn a_byte_of_credit_does_not_wake_everybody() {
    let mut config = windows(1000, 1 << 20);
    config.peer_link_window = 2000;
    let (mut mux, _) = pair(config);
    for _ in 0..20_000 {
        let (key, _) = mux.open(&[], &[], NOW).expect("room");
        while let Turn::Now(n) = mux.request(key) {
            fill(&mut mux, key, n);
        }
        drain(&mut mux);
        while let Some((key, n)) = mux.next_turn() {
            fill(&mut mux, key, n);
            mux.request(key);
        }
    }
    let credit = frame(2, 0, 0, &1u32.to_be_bytes());
    for _ in 0..15_000 {
        feed(&mut mux, &credit, NOW);
        let mut turns = 0;
        while let Some((key, n)) = mux.next_turn() {
            assert_eq!(fill(&mut mux, key, n), 1);
            mux.request(key);
            turns += 1;
        }
        assert_eq!(turns, 1);
        drain(&mut mux);
    }
}

#[test]
fn silence_is_noticed_within_two_intervals() {
    for seed in seeds(200) {
        let mut rng = Rng::new(seed);
        let config = Config::default();
        let (mut mux, mut peer) = pair(config);
        let mut now = NOW;
        // A live link of some length, with pings and answers.
        let cut = Duration::from_millis(rng.below(200_000) as u64);
        let mut heard = now;
        while now < cut {
            for (a, b) in [(0, 1), (1, 0)] {
                let [from, to] = [&mut mux, &mut peer]
                    .map(Some)
                    .get_disjoint_mut([a, b])
                    .expect("two")
                    .map(Option::take);
                let (Some(from), Some(to)) = (from, to) else {
                    continue;
                };
                if from.next_timeout() <= now {
                    from.on_timeout(now).expect("alive");
                }
                let wire = drain(from);
                if a == 1 && !wire.is_empty() {
                    heard = now;
                }
                feed(to, &wire, now);
            }
            now += Duration::from_millis(1 + rng.below(3000) as u64);
        }
        drain(&mut mux);
        loop {
            let due = mux.next_timeout();
            assert!(due <= heard + config.keep_alive * 2);
            match mux.on_timeout(due) {
                Ok(()) => assert!(drain(&mut mux).len() <= 16),
                Err(dead) => {
                    assert_eq!(due, heard + config.keep_alive * 2);
                    assert_eq!(dead.silence, config.keep_alive * 2);
                    break;
                }
            }
        }
    }
}

#[test]
fn no_input_and_no_order_of_calls_panics() {
    for seed in seeds(300) {
        let mut rng = Rng::new(seed);
        let mut config = windows(rng.next() as u32, rng.next() as u32);
        config.max_stream_window = rng.next() as u32;
        config.max_streams = rng.size(20);
        config.output_limit = rng.size(5000);
        config.keep_alive = Duration::from_nanos(rng.next() >> rng.below(64));
        let mut mux = Mux::new(Side::Acceptor, config, NOW);
        let mut keys: Vec<Key> = Vec::new();
        for _ in 0..300 {
            let now = Duration::from_nanos(rng.next() >> rng.below(64));
            let payload: Vec<u8> = (0..rng.size(20))
                .map(|_| if rng.chance(2) { 0 } else { rng.next() as u8 })
                .collect();
            let mut wire = frame(
                rng.below(6) as u8,
                rng.below(3) as u8,
                rng.below(8) as u32,
                &payload,
            );
            if rng.chance(10) {
                let at = rng.below(wire.len());
                wire[at] = rng.next() as u8;
            }
            let mut input = &wire[..];
            while let Ok(Some(event)) = mux.receive(&mut input, now) {
                if let Event::Opened { key, .. } = event {
                    keys.push(key);
                }
            }
            keys.extend(mux.open(&payload, &payload, now).map(|(key, _)| key));
            let Some(key) = keys.get(rng.below(keys.len())).copied() else {
                continue;
            };
            match rng.below(8) {
                0 => mux.reset(key, mux::Reason(1)),
                1 => mux.finish(key),
                2 => mux.consumed(key, rng.next() as usize, now),
                3 => {
                    mux.send(key, &payload);
                }
                4 => {
                    fill(&mut mux, key, rng.next() as usize);
                }
                5 => {
                    mux.on_timeout(now).ok();
                }
                6 => mux.advance(rng.next() as usize),
                _ => {
                    if let Some((key, n)) = mux.next_turn() {
                        fill(&mut mux, key, n);
                    }
                }
            }
        }
        let _ = mux.next_timeout();
        assert!(mux.stream_count() <= config.max_streams);
    }
}

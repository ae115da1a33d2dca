//! smux on the wire: the bytes are Go's, what a peer may not do is fatal, what it does without need stays bounded, death is noticed.

mod support;

use std::time::Duration;

use mux::{
    Key, Side, Turn,
    smux::{Config, Event, INITIAL_WINDOW, OpenError, Smux, Version, Violation},
};
use testkit::seeds;

use support::Rng;

const NOW: Duration = Duration::ZERO;

fn end(side: Side, version: Version) -> Smux {
    let config = Config {
        version,
        stream_buffer: INITIAL_WINDOW,
        ..Config::default()
    };
    Smux::new(side, config, NOW)
}

fn drain(smux: &mut Smux) -> Vec<u8> {
    let wire = smux.output().to_vec();
    smux.advance(wire.len());
    wire
}

/// Sends zeros on one stream, the only one that sends, until it has to wait for window; tells how many.
fn fill(smux: &mut Smux, key: Key) -> usize {
    let zeros = vec![0; 65_536];
    let mut sent = smux.send(key, &zeros);
    loop {
        drain(smux);
        match smux.next_turn() {
            Some((turn, limit)) => {
                assert_eq!(turn, key);
                sent += smux.send_turn(key, limit, &zeros);
            }
            None => match smux.send(key, &zeros) {
                0 if !smux.has_waiting() => return sent,
                n => sent += n,
            },
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Got {
    Opened(Key),
    Data(Key, Vec<u8>),
    Finished(Key),
}

fn feed(smux: &mut Smux, wire: &[u8]) -> Result<Vec<Got>, Violation> {
    let mut input = wire;
    let mut got = Vec::new();
    while let Some(event) = smux.receive(&mut input, NOW)? {
        got.push(match event {
            Event::Opened { key } => Got::Opened(key),
            Event::Data { key, bytes } => Got::Data(key, bytes.to_vec()),
            Event::Finished { key } => Got::Finished(key),
        });
    }
    assert!(input.is_empty());
    Ok(got)
}

fn frame(version: u8, command: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut wire = vec![version, command];
    wire.extend((payload.len() as u16).to_le_bytes());
    wire.extend(stream.to_le_bytes());
    wire.extend(payload);
    wire
}

fn update(stream: u32, consumed: u32, window: u32) -> Vec<u8> {
    let payload = [consumed.to_le_bytes(), window.to_le_bytes()].concat();
    frame(2, 4, stream, &payload)
}

/// Opens stream 3 as the peer; gives its key.
fn open(smux: &mut Smux, version: u8) -> Key {
    let got = feed(smux, &frame(version, 0, 3, &[])).expect("legal");
    let [Got::Opened(key)] = got[..] else {
        panic!("{got:?}")
    };
    key
}

#[test]
fn frames_are_those_of_go() {
    let mut client = end(Side::Initiator, Version::V1);
    let first = client.open().expect("room");
    client.send(first, b"hi");
    client.finish(first);
    client.open().expect("room");
    let wire = drain(&mut client);
    let expected: [&[u8]; 4] = [
        &[1, 0, 0, 0, 3, 0, 0, 0],
        &[1, 2, 2, 0, 3, 0, 0, 0, b'h', b'i'],
        &[1, 1, 0, 0, 3, 0, 0, 0],
        &[1, 0, 0, 0, 5, 0, 0, 0],
    ];
    assert_eq!(wire, expected.concat());
    client
        .on_timeout(Duration::from_secs(10))
        .expect("not yet dead");
    assert_eq!(drain(&mut client), [1, 3, 0, 0, 0, 0, 0, 0]);

    let config = Config {
        stream_buffer: 0x0102_0304,
        receive_buffer: 1 << 30,
        ..Config::default()
    };
    let mut server = Smux::new(Side::Acceptor, config, NOW);
    server.open().expect("room");
    let expected: [&[u8]; 2] = [
        &[2, 0, 0, 0, 2, 0, 0, 0],
        &[2, 4, 8, 0, 2, 0, 0, 0, 0, 0, 0, 0, 4, 3, 2, 1],
    ];
    assert_eq!(drain(&mut server), expected.concat());
}

#[test]
fn frames_are_cut_at_the_largest_size() {
    let config = Config {
        version: Version::V1,
        max_frame: u16::MAX,
        output_limit: 1 << 20,
        ..Config::default()
    };
    let mut client = Smux::new(Side::Initiator, config, NOW);
    let key = client.open().expect("room");
    assert_eq!(client.send(key, &vec![7; 300_000]), 300_000);
    let wire = drain(&mut client);
    let mut server = end(Side::Acceptor, Version::V1);
    let got = feed(&mut server, &wire).expect("legal");
    let total: usize = got
        .iter()
        .map(|got| match got {
            Got::Data(_, bytes) => bytes.len(),
            _ => 0,
        })
        .sum();
    assert_eq!(total, 300_000);
    assert!(wire.len() <= 8 + 300_000 + 8 * 10, "{}", wire.len());
}

#[test]
fn what_a_peer_may_not_do_is_fatal() {
    let cases = [
        (
            1,
            frame(2, 0, 3, &[]),
            Violation::Version { ours: 1, theirs: 2 },
        ),
        (
            2,
            frame(1, 0, 3, &[]),
            Violation::Version { ours: 2, theirs: 1 },
        ),
        (
            2,
            b"GET / HTTP/1.1\r\n".to_vec(),
            Violation::Version {
                ours: 2,
                theirs: b'G',
            },
        ),
        (2, frame(2, 5, 3, &[]), Violation::UnknownCommand(5)),
        (1, frame(1, 4, 3, &[0; 8]), Violation::UnknownCommand(4)),
        (2, frame(2, 0, 0, &[]), Violation::BadStreamId(0)),
        (2, frame(2, 0, 2, &[]), Violation::BadStreamId(2)),
        (
            2,
            [frame(2, 0, 3, &[]), frame(2, 0, 3, &[])].concat(),
            Violation::BadStreamId(3),
        ),
        (
            2,
            [frame(2, 0, 3, &[]), update(3, 1, 1)].concat(),
            Violation::OverConsumed(3),
        ),
    ];
    for (version, wire, violation) in cases {
        let version = if version == 1 {
            Version::V1
        } else {
            Version::V2
        };
        for cut in 1..=wire.len() {
            let mut smux = end(Side::Acceptor, version);
            let result = wire
                .chunks(cut)
                .try_for_each(|part| feed(&mut smux, part).map(drop));
            assert_eq!(result, Err(violation), "{wire:?} by {cut}");
        }
    }
    for (command, length) in [(0, 1), (1, 8), (3, 4), (4, 7), (4, 9), (4, 0)] {
        let mut smux = end(Side::Acceptor, Version::V2);
        let wire = frame(2, command, 3, &vec![0; usize::from(length)]);
        let violation = Violation::BadLength { command, length };
        assert_eq!(feed(&mut smux, &wire), Err(violation));
    }
}

#[test]
fn a_window_that_is_passed_is_fatal_in_version_2() {
    for window in [1000, INITIAL_WINDOW, 1 << 20] {
        let config = Config {
            stream_buffer: window,
            receive_buffer: 64 << 20,
            ..Config::default()
        };
        let mut smux = Smux::new(Side::Acceptor, config, NOW);
        let key = open(&mut smux, 2);
        // What the peer assumes before it is told, then what it was told, or what it may still assume.
        for allowed in [INITIAL_WINDOW, window.max(INITIAL_WINDOW)] {
            for _ in 0..allowed / 32_768 {
                feed(&mut smux, &frame(2, 2, 3, &[0; 32_768])).expect("within the window");
            }
            if allowed == window.max(INITIAL_WINDOW) {
                break;
            }
            smux.consumed(key, allowed as usize, NOW);
        }
        assert_eq!(
            feed(&mut smux, &frame(2, 2, 3, &[0])),
            Err(Violation::OverWindow(3))
        );
    }
}

#[test]
fn a_sender_of_version_2_keeps_to_the_window() {
    let mut smux = end(Side::Initiator, Version::V2);
    let key = smux.open().expect("room");
    assert_eq!(fill(&mut smux, key), INITIAL_WINDOW as usize);
    assert_eq!(smux.request(key), Turn::Later);
    assert_eq!(smux.next_turn(), None);
    // More window, nothing consumed.
    feed(&mut smux, &update(3, 0, INITIAL_WINDOW + 10)).expect("legal");
    assert_eq!(smux.next_turn(), Some((key, 10)));
    assert_eq!(fill(&mut smux, key), 10);
    // Half is consumed; the window shrinks to less than what is on the way.
    feed(&mut smux, &update(3, 131_072, 1000)).expect("legal");
    assert_eq!(fill(&mut smux, key), 0);
    // Old news change nothing.
    feed(&mut smux, &update(3, 131_071, INITIAL_WINDOW)).expect("legal");
    assert_eq!(fill(&mut smux, key), 0);
    feed(&mut smux, &update(3, INITIAL_WINDOW + 10, 5 << 20)).expect("legal");
    assert_eq!(fill(&mut smux, key), 5 << 20);
}

#[test]
fn the_window_is_told_when_it_will_be_heard() {
    let mut opener = Smux::new(Side::Initiator, Config::default(), NOW);
    let key = opener.open().expect("room");
    let told = update(3, 0, 1 << 20);
    assert_eq!(drain(&mut opener), [frame(2, 0, 3, &[]), told].concat());
    feed(&mut opener, &frame(2, 2, 3, &[0; 10])).expect("legal");
    opener.consumed(key, 10, NOW);
    assert_eq!(drain(&mut opener), []);

    // Go does not know a stream that it opens until its call returns, and forgets what it hears of it.
    let mut acceptor = Smux::new(Side::Acceptor, Config::default(), NOW);
    let key = open(&mut acceptor, 2);
    assert_eq!(drain(&mut acceptor), []);
    feed(&mut acceptor, &frame(2, 2, 3, &[0; 10])).expect("legal");
    acceptor.consumed(key, 1, NOW);
    assert_eq!(drain(&mut acceptor), update(3, 1, 1 << 20));
    acceptor.consumed(key, 9, NOW);
    assert_eq!(drain(&mut acceptor), []);
}

#[test]
fn windows_together_fit_the_buffer_as_long_as_initial_ones_do() {
    let mut smux = Smux::new(Side::Acceptor, Config::default(), NOW);
    let mut total = 0;
    let mut first = None;
    for i in 0..10 {
        let id = 2 * i + 3;
        let wire = [frame(2, 0, id, &[]), frame(2, 2, id, &[0])].concat();
        let got = feed(&mut smux, &wire).expect("legal");
        let Got::Opened(key) = got[0] else {
            panic!("{got:?}")
        };
        smux.consumed(key, 1, NOW);
        let told = drain(&mut smux);
        let window: [u8; 4] = told[12..].try_into().expect("the window");
        total += u32::from_le_bytes(window);
        assert!(u32::from_le_bytes(window) >= INITIAL_WINDOW);
        first.get_or_insert(u32::from_le_bytes(window));
    }
    assert_eq!(first, Some(1 << 20));
    assert!(total <= 5 << 20, "{total}");
    assert!(total > 3 << 20, "{total}");
}

#[test]
fn a_session_that_nobody_reads_stops_reading_the_transport() {
    for (version, number) in [(Version::V1, 1), (Version::V2, 2)] {
        let config = Config {
            version,
            receive_buffer: 100_000,
            ..Config::default()
        };
        let mut smux = Smux::new(Side::Acceptor, config, NOW);
        let key = open(&mut smux, number);
        let wire = frame(number, 2, 3, &[0; 60_000]).repeat(4);
        let mut rest = &wire[..];
        while smux.read_budget() > 0 {
            let n = smux.read_budget().min(7777);
            feed(&mut smux, &rest[..n]).expect("legal");
            rest = &rest[n..];
        }
        assert_eq!(wire.len() - rest.len(), 100_000 + 2 * 8);
        // A peer that is not read from is not dead, however long that takes.
        let late = Duration::from_secs(500);
        smux.on_timeout(late).expect("not read from");
        smux.consumed(key, 1, late);
        assert_eq!(smux.read_budget(), 1);
        smux.on_timeout(late + Duration::from_secs(29))
            .expect("its silence began when it could be read again");
        assert!(smux.on_timeout(late + Duration::from_secs(30)).is_err());
        // What a closed stream held is free.
        smux.close(key, late);
        assert_eq!(smux.read_budget(), 100_000);
    }
}

#[test]
fn a_flood_of_openings_stops_at_the_bound() {
    let config = Config {
        max_streams: 100,
        ..Config::default()
    };
    let mut smux = Smux::new(Side::Acceptor, config, NOW);
    let mut read = 0;
    for i in 0..10_000 {
        let wire = frame(2, 0, 2 * i + 3, &[]);
        read += wire.len();
        feed(&mut smux, &wire).expect("legal");
    }
    assert_eq!(smux.stream_count(), 100);
    assert_eq!(smux.open(), Err(OpenError::TooManyStreams));
    // Those over the bound are answered by FIN.
    let output = drain(&mut smux);
    assert_eq!(output[..8], [2, 1, 0, 0, 203, 0, 0, 0]);
    assert_eq!(output.len(), 9900 * 8);
    assert!(output.len() <= read);
}

#[test]
fn a_flood_for_streams_that_are_gone_costs_nothing() {
    let mut smux = end(Side::Acceptor, Version::V2);
    let key = open(&mut smux, 2);
    smux.close(key, NOW);
    assert_eq!(drain(&mut smux), frame(2, 1, 3, &[]));
    for wire in [
        frame(2, 2, 3, &[0; 1000]),
        frame(2, 1, 3, &[]),
        update(3, 77, 77),
        frame(2, 3, 0, &[]),
        frame(2, 2, 3, &[]),
    ] {
        for _ in 0..1000 {
            assert_eq!(feed(&mut smux, &wire), Ok(vec![]));
        }
    }
    assert_eq!((smux.output_len(), smux.stream_count()), (0, 0));
    assert_eq!(smux.read_budget(), 4 << 20);
}

#[test]
fn openings_and_closings_leave_nothing_behind() {
    let mut smux = end(Side::Acceptor, Version::V2);
    for i in 0..50_000 {
        let id = 2 * i + 3;
        let wire = [frame(2, 0, id, &[]), frame(2, 2, id, &[1; 10])].concat();
        let got = feed(&mut smux, &wire).expect("legal");
        let Got::Opened(key) = got[0] else {
            panic!("{got:?}")
        };
        // It waits for window, or for its turn, when it is closed.
        feed(&mut smux, &update(id, 0, i % 2)).expect("legal");
        smux.request(key);
        smux.close(key, NOW);
        if i % 100 == 0 {
            drain(&mut smux);
            while smux.next_turn().is_some() {}
        }
    }
    drain(&mut smux);
    assert_eq!(smux.stream_count(), 0);
    assert_eq!(smux.read_budget(), 4 << 20);
    assert!(!smux.has_waiting());
    let entries = format!("{smux:?}").matches("generation").count();
    assert!(entries < 200, "{entries} entries are left");
}

#[test]
fn data_behind_the_end_is_ignored() {
    let mut smux = end(Side::Acceptor, Version::V2);
    let key = open(&mut smux, 2);
    let wire = [
        frame(2, 2, 3, b"last"),
        frame(2, 1, 3, &[]),
        frame(2, 2, 3, b"late"),
        frame(2, 1, 3, &[]),
    ];
    let expected = vec![Got::Data(key, b"last".to_vec()), Got::Finished(key)];
    assert_eq!(feed(&mut smux, &wire.concat()), Ok(expected));
    // This direction goes on.
    assert_eq!(smux.send(key, b"answer"), 6);
    smux.finish(key);
    smux.consumed(key, 4, NOW);
    assert_eq!(smux.stream_count(), 0);
}

#[test]
fn life_is_shown_every_interval_and_silence_is_death() {
    let mut smux = end(Side::Initiator, Version::V1);
    let mut now = NOW;
    for _ in 0..2 {
        now = smux.next_timeout();
        smux.on_timeout(now).expect("alive");
        assert_eq!(drain(&mut smux), frame(1, 3, 0, &[]));
    }
    assert_eq!(now, Duration::from_secs(20));
    let mut input = &frame(1, 3, 0, &[])[..];
    assert_eq!(smux.receive(&mut input, now), Ok(None));
    // A transport that takes nothing gathers no signs of life.
    for _ in 0..2 {
        now = smux.next_timeout();
        smux.on_timeout(now).expect("alive");
    }
    assert_eq!(smux.output_len(), 8);
    assert_eq!(smux.next_timeout(), Duration::from_secs(50));
    let dead = smux
        .on_timeout(Duration::from_secs(50))
        .expect_err("silent for 30 s");
    assert_eq!(dead.silence, Duration::from_secs(30));
}

#[test]
fn a_stream_that_its_peer_has_left_is_given_up() {
    let mut smux = end(Side::Initiator, Version::V2);
    let key = smux.open().expect("room");
    let left = smux.open().expect("room");
    assert_eq!(fill(&mut smux, key), INITIAL_WINDOW as usize);
    let tick = |smux: &mut Smux, seconds| {
        let now = Duration::from_secs(seconds);
        assert_eq!(smux.receive(&mut &frame(2, 3, 0, &[])[..], now), Ok(None));
        smux.on_timeout(now).expect("alive");
        smux.next_given_up()
    };
    // A peer that still reads may take its time.
    for seconds in (10..100).step_by(10) {
        assert_eq!(tick(&mut smux, seconds), None);
    }
    feed(&mut smux, &frame(2, 1, 3, &[])).expect("legal");
    // So may one that has finished and consumes.
    feed(&mut smux, &frame(2, 1, 5, &[])).expect("legal");
    for seconds in [100, 110, 120] {
        assert_eq!(tick(&mut smux, seconds), None);
    }
    assert_eq!(tick(&mut smux, 130), Some(key));
    assert_eq!(tick(&mut smux, 140), None);
    assert_eq!(smux.request(key), Turn::Gone);
    assert!(matches!(smux.request(left), Turn::Now(_)));
    assert_eq!(smux.stream_count(), 1);
}

#[test]
fn a_bulk_transfer_does_not_hold_up_a_small_one() {
    let mut smux = end(Side::Initiator, Version::V1);
    let bulk = smux.open().expect("room");
    let small = smux.open().expect("room");
    while smux.send(bulk, &[0; 65_536]) > 0 {}
    assert_eq!(smux.request(small), Turn::Later);
    drain(&mut smux);
    assert_eq!(smux.next_turn().map(|(key, _)| key), Some(small));
}

#[test]
fn no_input_and_no_order_of_calls_panics() {
    for seed in seeds(300) {
        let mut rng = Rng::new(seed);
        let version = if rng.chance(2) {
            Version::V1
        } else {
            Version::V2
        };
        let config = Config {
            version,
            receive_buffer: rng.size(5000),
            stream_buffer: rng.next() as u32,
            max_frame: rng.size(65_535) as u16,
            max_streams: rng.size(20),
            output_limit: rng.size(5000),
            keep_alive: Duration::from_nanos(rng.next() >> rng.below(64)),
            keep_alive_timeout: Duration::from_nanos(rng.next() >> rng.below(64)),
            linger: Duration::from_nanos(rng.next() >> rng.below(64)),
        };
        let mut smux = Smux::new(Side::Acceptor, config, NOW);
        let mut keys: Vec<Key> = Vec::new();
        for _ in 0..300 {
            let now = Duration::from_nanos(rng.next() >> rng.below(64));
            let payload: Vec<u8> = (0..rng.size(20)).map(|_| rng.next() as u8).collect();
            let id = rng.below(8) as u32;
            let mut wire = match rng.below(5) {
                4 => update(id, rng.size(50) as u32, rng.next() as u32),
                2 => frame(version as u8, 2, id, &payload),
                command => frame(version as u8, command as u8, id, &[]),
            };
            if rng.chance(20) {
                let at = rng.below(wire.len());
                wire[at] = rng.next() as u8;
            }
            let mut input = &wire[..];
            while let Ok(Some(event)) = smux.receive(&mut input, now) {
                if let Event::Opened { key } = event {
                    keys.push(key);
                }
            }
            keys.extend(smux.open());
            let Some(key) = keys.get(rng.below(keys.len())).copied() else {
                continue;
            };
            match rng.below(7) {
                0 => smux.close(key, now),
                1 => smux.finish(key),
                2 => smux.consumed(key, rng.next() as usize, now),
                3 => {
                    smux.send(key, &payload);
                }
                4 => {
                    smux.on_timeout(now).ok();
                    while smux.next_given_up().is_some() {}
                }
                5 => smux.advance(rng.next() as usize),
                _ => {
                    if let Some((key, n)) = smux.next_turn() {
                        smux.send_turn(key, n, &payload);
                    }
                }
            }
        }
        let _ = smux.next_timeout();
        assert!(smux.stream_count() <= config.max_streams);
    }
}

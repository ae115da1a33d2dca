//! Every kind of frame, byte for byte. docs/protocol/mux.md shows the same example; both change together or not at all.

mod support;

use std::time::Duration;

use mux::{Config, Mux, Reason, Side, Violation};
use support::{Got, drain, feed, fill, pair, windows};

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect::<Vec<_>>()
        .join(" ")
}

fn bytes(hex: &str) -> Vec<u8> {
    hex.split_whitespace()
        .map(|byte| u8::from_str_radix(byte, 16).expect("hex"))
        .collect()
}

/// The example of docs/protocol/mux.md: (what happens, who sends, the bytes).
const EXAMPLE: &[(&str, &str, &str)] = &[
    (
        "ping",
        "client",
        "04 00 00 08 00 00 00 00 00 00 00 00 3b 9a ca 00",
    ),
    (
        "pong",
        "server",
        "04 01 00 08 00 00 00 00 00 00 00 00 3b 9a ca 00",
    ),
    (
        "open",
        "client",
        "01 00 00 08 00 00 00 01 00 02 68 64 47 45 54 0a",
    ),
    ("control", "client", "05 00 00 03 00 00 00 00 61 62 63"),
    ("credit", "server", "02 00 00 04 00 00 00 01 00 00 00 04"),
    ("data", "server", "00 00 00 02 00 00 00 01 6f 6b"),
    ("fin", "server", "00 01 00 00 00 00 00 01"),
    ("open", "server", "01 00 00 02 00 00 00 02 00 00"),
    ("reset", "client", "03 00 00 02 00 00 00 02 00 0a"),
    (
        "credit of the link",
        "client",
        "02 00 00 04 00 00 00 00 00 00 00 02",
    ),
    ("growth", "server", "02 01 00 04 00 00 00 01 00 00 00 08"),
];

fn shown(kind: &str, nth: usize) -> String {
    EXAMPLE
        .iter()
        .filter(|(k, ..)| *k == kind)
        .nth(nth)
        .expect("in the example")
        .2
        .to_owned()
}

#[test]
fn the_documented_example_is_what_is_sent() {
    let now = Duration::from_secs(1);
    // 8 bytes of window: half of it is given back at once. A link of 64: a byte is held back.
    let mut config = windows(8, 64);
    config.max_stream_window = 16;
    let mut client = Mux::new(Side::Initiator, config, now);
    let mut server = Mux::new(Side::Acceptor, config, now);

    client.on_timeout(now).expect("alive");
    let ping = drain(&mut client);
    assert_eq!(hex(&ping), shown("ping", 0));
    feed(&mut server, &ping, now);
    let pong = drain(&mut server);
    assert_eq!(hex(&pong), shown("pong", 0));
    let later = now + Duration::from_secs(1);
    assert_eq!(feed(&mut client, &pong, later), [Got::Pong]);

    let (stream, sent) = client.open(b"hd", b"GET\n", now).expect("room");
    assert_eq!(sent, 4);
    let open = drain(&mut client);
    assert_eq!(hex(&open), shown("open", 0));
    let got = feed(&mut server, &open, now);
    let [Got::Opened(at_server, header), Got::Data(_, 4)] = &got[..] else {
        panic!("{got:?}");
    };
    assert_eq!(header, b"hd");

    client.send_control(b"abc");
    let control = drain(&mut client);
    assert_eq!(hex(&control), shown("control", 0));
    assert_eq!(
        feed(&mut server, &control, now),
        [Got::Control(b"abc".to_vec())]
    );

    server.consumed(*at_server, 4, now);
    let credit = drain(&mut server);
    let link = "02 00 00 04 00 00 00 00 00 00 00 04";
    assert_eq!(hex(&credit), format!("{} {link}", shown("credit", 0)));
    feed(&mut client, &credit, now);

    assert_eq!(server.send(*at_server, b"ok"), 2);
    server.finish(*at_server);
    let data = drain(&mut server);
    assert_eq!(
        hex(&data),
        format!("{} {}", shown("data", 0), shown("fin", 0))
    );
    assert_eq!(
        feed(&mut client, &data, now),
        [Got::Data(stream, 2), Got::Finished(stream)]
    );
    // After the end no credit of the stream is needed, only that of the link.
    client.consumed(stream, 2, now);
    assert_eq!(hex(&drain(&mut client)), shown("credit of the link", 0));

    server.open(&[], &[], now).expect("room");
    let open = drain(&mut server);
    assert_eq!(hex(&open), shown("open", 1));
    let got = feed(&mut client, &open, now);
    let [Got::Opened(refused, _)] = &got[..] else {
        panic!("{got:?}");
    };
    client.reset(*refused, Reason::OVERLOADED);
    let reset = drain(&mut client);
    assert_eq!(hex(&reset), shown("reset", 0));
    assert!(matches!(
        feed(&mut server, &reset, now)[..],
        [Got::Reset(_, 10)]
    ));
}

#[test]
fn growth_is_told_apart_from_returned_credit() {
    let now = Duration::from_secs(1);
    let mut config = windows(8, 4096);
    config.max_stream_window = 16;
    let mut client = Mux::new(Side::Initiator, config, now);
    let mut server = Mux::new(Side::Acceptor, config, now);
    server.on_timeout(now).expect("alive");
    support::carry(&mut server, &mut client, now);
    let later = now + Duration::from_secs(1);
    support::carry(&mut client, &mut server, later);
    assert_eq!(server.round_trip(), Duration::from_secs(1));

    let (opened, _) = client.open(b"hd", b"GET\n", later).expect("room");
    let got = support::carry(&mut client, &mut server, later);
    let [Got::Opened(key, _), _] = &got[..] else {
        panic!("{got:?}");
    };
    // Half a window tells nothing of the pace: a whole one within a round trip does.
    server.consumed(*key, 4, later);
    let credit = drain(&mut server);
    assert_eq!(hex(&credit), shown("credit", 0));
    feed(&mut client, &credit, later);
    assert_eq!(client.send(opened, b"more"), 4);
    support::carry(&mut client, &mut server, later);
    server.consumed(*key, 4, later);
    let credit = drain(&mut server);
    assert_eq!(
        hex(&credit),
        format!("{} {}", shown("credit", 0), shown("growth", 0))
    );
}

#[test]
fn every_frame_of_the_example_is_understood() {
    let (mut client, mut server) = pair(Config::default());
    for (what, sender, hex) in EXAMPLE {
        let receiver = if *sender == "client" {
            &mut server
        } else {
            &mut client
        };
        let mut rest = &bytes(hex)[..];
        while receiver
            .receive(&mut rest, Duration::from_secs(2))
            .unwrap_or_else(|e| panic!("{what}: {e}"))
            .is_some()
        {}
        assert!(rest.is_empty(), "{what}");
    }
}

#[test]
fn the_document_shows_the_example() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/protocol/mux.md");
    let document = std::fs::read_to_string(path).expect("the document is committed");
    for (what, _, hex) in EXAMPLE {
        assert!(document.contains(hex), "{what}: {hex}");
    }
}

#[test]
fn what_the_protocol_forbids_is_named() {
    let cases: &[(&str, Violation)] = &[
        ("06 00 00 00 00 00 00 00", Violation::UnknownFrame(6)),
        (
            "01 00 00 01 00 00 00 01",
            Violation::BadLength { kind: 1, length: 1 },
        ),
        (
            "01 00 00 04 00 00 00 01 00 03",
            Violation::BadLength { kind: 1, length: 4 },
        ),
        (
            "01 00 ff ff 00 00 00 01 04 01",
            Violation::BadLength {
                kind: 1,
                length: 0xFFFF,
            },
        ),
        (
            "02 00 00 03 00 00 00 00",
            Violation::BadLength { kind: 2, length: 3 },
        ),
        (
            "03 00 00 03 00 00 00 00",
            Violation::BadLength { kind: 3, length: 3 },
        ),
        (
            "04 00 00 07 00 00 00 00",
            Violation::BadLength { kind: 4, length: 7 },
        ),
        (
            "05 00 00 00 00 00 00 00",
            Violation::BadLength { kind: 5, length: 0 },
        ),
        ("01 00 00 02 00 00 00 00 00 00", Violation::BadStreamId(0)),
        ("01 00 00 02 00 00 00 02 00 00", Violation::BadStreamId(2)),
        (
            "01 00 00 02 00 00 00 01 00 00 01 00 00 02 00 00 00 01 00 00",
            Violation::BadStreamId(1),
        ),
        (
            "01 00 00 05 00 00 00 01 00 00 61 62 63",
            Violation::OverCredit(1),
        ),
        (
            "00 00 00 05 00 00 00 09 61 62 63 64 65",
            Violation::OverCredit(0),
        ),
        (
            "02 00 00 04 00 00 00 00 7f ff ff ff",
            Violation::CreditOverflow,
        ),
        (
            "01 00 00 02 00 00 00 01 00 00 02 00 00 04 00 00 00 01 ff ff ff ff",
            Violation::CreditOverflow,
        ),
        (
            "01 01 00 02 00 00 00 01 00 00 00 00 00 01 00 00 00 01 61",
            Violation::DataAfterFinish(1),
        ),
    ];
    for (wire, expected) in cases {
        let mut mux = Mux::new(Side::Acceptor, windows(2, 4), Duration::ZERO);
        let wire = bytes(wire);
        let mut input = &wire[..];
        let violation = loop {
            match mux.receive(&mut input, Duration::ZERO) {
                Ok(Some(_)) => {}
                Ok(None) => panic!("accepted: {}", hex(&wire)),
                Err(violation) => break violation,
            }
        };
        assert_eq!(violation, *expected, "{}", hex(&wire));
    }
}

#[test]
fn what_belongs_to_a_stream_that_was_reset_is_ignored() {
    let (mut client, mut server) = pair(windows(100, 1000));
    let (key, _) = client.open(&[], &[], Duration::ZERO).expect("room");
    let got = support::carry(&mut client, &mut server, Duration::ZERO);
    let [Got::Opened(at_server, _)] = &got[..] else {
        panic!("{got:?}");
    };
    // Both cross: data and the end on one side, the reset on the other.
    client.request(key);
    assert_eq!(fill(&mut client, key, 50), 50);
    client.finish(key);
    server.reset(*at_server, Reason(3));
    assert_eq!(support::carry(&mut client, &mut server, Duration::ZERO), []);
    assert_eq!(
        support::carry(&mut server, &mut client, Duration::ZERO),
        [Got::Reset(key, 3)]
    );
    assert_eq!((client.stream_count(), server.stream_count()), (0, 0));
}

#[test]
fn a_key_of_an_ended_stream_names_nothing() {
    let (mut client, _) = pair(Config::default());
    let (old, _) = client.open(&[], &[], Duration::ZERO).expect("room");
    client.request(old);
    client.reset(old, Reason(0));
    let (new, _) = client.open(&[], &[], Duration::ZERO).expect("room");
    assert_eq!(old.index(), new.index());
    assert_ne!(old, new);
    drain(&mut client);
    assert_eq!(client.request(old), mux::Turn::Gone);
    assert_eq!(fill(&mut client, old, 10), 0);
    client.finish(old);
    client.consumed(old, 10, Duration::ZERO);
    client.reset(old, Reason(0));
    assert!(!client.has_output());
    assert_eq!(client.next_turn(), None);
    assert_eq!(client.stream_count(), 1);
}

//! First requests of HTTP/2 connections, made by the h2 crate and by hand.

mod common;

use common::{for_seeds, mutate, same_however_split};
use rand::{Rng, rngs::StdRng, seq::IndexedRandom};
use sniff::{
    h2::{EMPTY_SETTINGS, H2Error, Head, HeadSniffer, HpackError, Limits, PREFACE, answer},
    host::AuthorityError,
    http::RoutedBy,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    tokio::task::LocalSet::new().block_on(&runtime, future)
}

/// Reads until `sniffer` answers.
async fn read_head(peer: &mut DuplexStream, sniffer: &mut HeadSniffer, buf: &mut Vec<u8>) -> Head {
    loop {
        if let Some(head) = sniffer.advance(buf).expect("a good request") {
            return head;
        }
        assert_ne!(peer.read_buf(buf).await.expect("bytes"), 0);
    }
}

/// The first bytes of an h2 client that sends `request`.
fn client_bytes(request: http::Request<()>) -> Vec<u8> {
    block_on(async {
        let (ours, mut peer) = tokio::io::duplex(1 << 20);
        let (mut client, connection) = h2::client::handshake(ours).await.expect("a handshake");
        tokio::task::spawn_local(connection);
        let (response, _body) = client.send_request(request, true).expect("a request");
        let mut buf = Vec::new();
        let mut sniffer = HeadSniffer::new(Limits {
            head: 1 << 20,
            list: 1 << 20,
        });
        read_head(&mut peer, &mut sniffer, &mut buf).await;
        drop(response);
        buf
    })
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A connection whose first header block is `block`.
fn connection(block: &[u8]) -> Vec<u8> {
    [&PREFACE[..], &EMPTY_SETTINGS, &frame(1, 0x5, 1, block)].concat()
}

fn sniff(bytes: &[u8]) -> Result<Option<Head>, H2Error> {
    HeadSniffer::new(Limits::default()).advance(bytes)
}

/// A literal field without indexing.
fn literal(name: &str, value: &str) -> Vec<u8> {
    let length = |text: &str| u8::try_from(text.len()).expect("short");
    [
        &[0, length(name)],
        name.as_bytes(),
        &[length(value)],
        value.as_bytes(),
    ]
    .concat()
}

#[test]
fn the_authority_of_a_real_client_is_found_however_it_is_split() {
    for_seeds(300, |rng| {
        let mut request = http::Request::builder()
            .method("POST")
            .uri("http://Alice.Example.com:81/svc/Method");
        for i in 0..rng.random_range(0..20) {
            // Every byte that a value may have goes through Huffman coding.
            let value: Vec<u8> = (0..rng.random_range(0..60))
                .map(|_| rng.random_range(b' '..=255))
                .filter(|&b| b != 127)
                .collect();
            let name = if rng.random() {
                "x-same".to_owned()
            } else {
                format!("x-{i}")
            };
            request = request.header(
                name,
                http::HeaderValue::from_bytes(&value).expect("a value"),
            );
        }
        let bytes = client_bytes(
            request
                .header("x-route", "bob.x")
                .body(())
                .expect("a request"),
        );
        let make = || HeadSniffer::new(Limits::default());
        let head = same_however_split(&bytes, rng, make, HeadSniffer::advance)
            .expect("good")
            .expect("whole");
        assert_eq!(
            head.authority.map(|a| a.to_string()).as_deref(),
            Some("alice.example.com:81")
        );
        assert_eq!(
            (head.routed_by, head.stream, head.settings_ack),
            (Some(RoutedBy::Target), 1, None)
        );
        // The last field shows that all before it were decoded.
        let named = make()
            .route_by("X-Route")
            .advance(&bytes)
            .expect("good")
            .expect("whole");
        assert_eq!(
            named.authority.as_ref().and_then(|a| a.first_label()),
            Some("bob")
        );
        assert_eq!(named.routed_by, Some(RoutedBy::NamedField));
    });
}

#[test]
fn a_block_over_continuation_frames_is_put_together() {
    for_seeds(50, |rng| {
        let request = http::Request::builder()
            .uri("http://a.example/")
            .header("x-long", "y".repeat(60_000));
        let bytes = client_bytes(request.body(()).expect("a request"));
        let limits = Limits {
            head: 1 << 20,
            list: 1 << 20,
        };
        let head = same_however_split(
            &bytes,
            rng,
            || HeadSniffer::new(limits),
            HeadSniffer::advance,
        );
        assert_eq!(
            head.expect("good")
                .expect("whole")
                .authority
                .and_then(|a| a.name().map(str::to_owned))
                .as_deref(),
            Some("a.example")
        );
        assert_eq!(sniff(&bytes), Err(H2Error::TooLong));
        let short = HeadSniffer::new(Limits {
            head: 1 << 20,
            list: 1 << 15,
        })
        .advance(&bytes);
        assert_eq!(short, Err(H2Error::Hpack(HpackError::TooLong)));
    });
}

#[test]
fn a_client_that_waits_for_settings_is_helped_and_its_acknowledgement_found() {
    block_on(async {
        let (ours, mut peer) = tokio::io::duplex(1 << 20);
        let (mut client, connection) = h2::client::handshake(ours).await.expect("a handshake");
        tokio::task::spawn_local(connection);
        let mut sniffer = HeadSniffer::new(Limits::default());
        let mut buf = Vec::new();
        while !sniffer.waits_for_server(&buf) {
            peer.read_buf(&mut buf).await.expect("bytes");
            assert_eq!(sniffer.advance(&buf), Ok(None));
        }
        peer.write_all(&EMPTY_SETTINGS).await.expect("room");
        while buf.len() < 9 || buf[buf.len() - 9..] != [0, 0, 0, 4, 1, 0, 0, 0, 0] {
            peer.read_buf(&mut buf).await.expect("bytes");
        }
        let request = http::Request::builder()
            .uri("http://a.example/")
            .body(())
            .expect("a request");
        let (response, _body) = client.send_request(request, true).expect("a request");
        let head = read_head(&mut peer, &mut sniffer, &mut buf).await;
        assert!(!sniffer.waits_for_server(&buf));
        assert_eq!(
            &buf[head.settings_ack.expect("found")],
            [0, 0, 0, 4, 1, 0, 0, 0, 0]
        );
        // Nobody to forward to: the answer is understood, though it repeats the SETTINGS.
        peer.write_all(&answer(head.stream, 503))
            .await
            .expect("room");
        assert_eq!(response.await.expect("a response").status(), 503);
    });
}

#[test]
fn a_refusal_gives_the_client_its_code() {
    block_on(async {
        let (ours, mut peer) = tokio::io::duplex(1 << 20);
        let (mut client, connection) = h2::client::handshake(ours).await.expect("a handshake");
        let connection = tokio::task::spawn_local(connection);
        let request = http::Request::builder()
            .uri("http://a.example/")
            .body(())
            .expect("a request");
        let (response, _body) = client.send_request(request, true).expect("a request");
        peer.write_all(&H2Error::HostMismatch.refusal())
            .await
            .expect("room");
        assert!(response.await.is_err());
        let error = connection.await.expect("no panic").expect_err("refused");
        assert_eq!(error.reason(), Some(h2::Reason::PROTOCOL_ERROR));
    });
}

#[test]
fn the_examples_of_rfc_7541_are_decoded() {
    // C.3.1 and C.4.1, then with a reference to the entry that was just added.
    let plain = b"\x82\x86\x84\x41\x0fwww.example.com";
    let huffman = b"\x82\x86\x84\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff";
    for block in [&plain[..], huffman] {
        let head = sniff(&connection(block)).expect("good").expect("whole");
        assert_eq!(
            head.authority.map(|a| a.to_string()).as_deref(),
            Some("www.example.com")
        );
        let twice = [block, b"\xbe"].concat();
        assert_eq!(sniff(&connection(&twice)), Err(H2Error::BadPseudoField));
    }
}

#[test]
fn host_stands_in_for_authority_and_must_agree_with_it() {
    let read = |fields: &[(&str, &str)]| {
        let block: Vec<u8> = fields
            .iter()
            .flat_map(|(name, value)| literal(name, value))
            .collect();
        sniff(&connection(&block)).map(|head| head.expect("whole"))
    };
    let by_host = read(&[(":method", "GET"), ("host", "B.c")]).expect("good");
    assert_eq!(
        (
            by_host.authority.map(|a| a.to_string()).as_deref(),
            by_host.routed_by
        ),
        (Some("b.c"), Some(RoutedBy::Host))
    );
    assert!(read(&[(":authority", "a:80"), ("host", "A")]).is_ok());
    assert_eq!(read(&[(":authority", "")]).expect("good").authority, None);
    assert_eq!(
        read(&[(":authority", "a"), ("host", "b")]),
        Err(H2Error::HostMismatch)
    );
    assert_eq!(
        read(&[("host", "a"), ("host", "a")]),
        Err(H2Error::SeveralHosts)
    );
    assert_eq!(
        read(&[("host", "a"), (":authority", "a")]),
        Err(H2Error::BadPseudoField)
    );
    assert_eq!(
        read(&[(":authority", "a"), (":authority", "a")]),
        Err(H2Error::BadPseudoField)
    );
    assert_eq!(read(&[(":status", "200")]), Err(H2Error::BadPseudoField));
    assert_eq!(
        read(&[(":authority", "u@a")]),
        Err(H2Error::BadHost(AuthorityError::BadCharacter))
    );
}

#[test]
fn broken_blocks_are_refused() {
    use HpackError::*;
    let long_update = [
        &[0x3F, 0xE1, 0x1F, 0x3F, 0xE1, 0x1F, 0x20, 0x82][..],
        &literal("host", "a"),
    ]
    .concat();
    assert!(
        sniff(&connection(&long_update)).expect("good").is_some(),
        "updates at the beginning"
    );
    for (block, error) in [
        (&[0x80][..], Index),
        (&[0xBE], Index),
        (&[0x7F], Truncated),
        (&[0x82, 0x20], TableSize),
        (&[0x3F, 0xE2, 0x1F], TableSize),
        (&[0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0x00], Integer),
        (&[0x41, 0x05, b'a'], Truncated),
        (&[0x41], Truncated),
        (&[0x41, 0x81, 0x00], Huffman),
        (&[0x41, 0x81, 0xFF], Huffman),
        (&[0x41, 0x84, 0xFF, 0xFF, 0xFF, 0xFF], Huffman),
        // After the table was emptied, the entry is not kept.
        (&[0x20, 0x41, 0x01, b'a', 0xBE], Index),
    ] {
        assert_eq!(
            sniff(&connection(block)),
            Err(H2Error::Hpack(error)),
            "{block:x?}"
        );
    }
    // 40 fields of 4 KiB names, from 40 pairs of bytes.
    let mut bomb = vec![0x40, 0x7F, 0x80 | 0x61, 0x1E];
    bomb.extend_from_slice(&[b'x'; 0x7F + 0x61 + (0x1E << 7)]);
    bomb.push(0);
    bomb.extend([0x7E, 0].repeat(40));
    assert_eq!(sniff(&connection(&bomb)), Err(H2Error::Hpack(TooLong)));
}

#[test]
fn the_dynamic_table_forgets_its_oldest_entries() {
    // An entry counts 32 bytes more than its name and value: three of 1365 fill 4095 of 4096 bytes.
    let entry = |name: u8| {
        [
            &[0x40, 1, name, 0x7F, 0xB5, 0x09][..],
            &[b'v'; 0x7F + 0x35 + (9 << 7)],
        ]
        .concat()
    };
    // 62 is the newest entry.
    let named = |index: u8| [0x0F, index - 15, 1, b'a'];
    let read = |newer: usize, index: u8| {
        let entries: Vec<u8> = (0..newer)
            .flat_map(|i| entry(b'b' + u8::try_from(i).expect("few")))
            .collect();
        let block = [&entry(b'n')[..], &entries, &named(index)].concat();
        sniff(&connection(&block)).map(|head| head.is_some())
    };
    assert_eq!(read(2, 64), Ok(true), "the oldest of three is still there");
    assert_eq!(
        read(3, 65),
        Err(H2Error::Hpack(HpackError::Index)),
        "and is not when a fourth comes"
    );
    // An entry that is larger than the table empties it.
    let large = [
        &[0x40, 1, b'l', 0x7F, 0x81, 0x1F][..],
        &[b'v'; 0x7F + 1 + (0x1F << 7)],
    ]
    .concat();
    let block = [&entry(b'b')[..], &large, &[0xBE]].concat();
    assert_eq!(
        sniff(&connection(&block)),
        Err(H2Error::Hpack(HpackError::Index))
    );
}

#[test]
fn of_several_acknowledgements_the_first_is_named() {
    let ack = frame(4, 1, 0, &[]);
    let bytes = [
        &PREFACE[..],
        &EMPTY_SETTINGS,
        &ack,
        &ack,
        &frame(1, 5, 1, &literal("host", "a")),
    ]
    .concat();
    assert_eq!(
        sniff(&bytes).expect("good").expect("whole").settings_ack,
        Some(33..42)
    );
}

#[test]
fn frames_out_of_place_are_refused() {
    let after = |start: &[&[u8]], kind: u8, flags: u8, stream: u32, payload: &[u8]| {
        sniff(
            &[
                &PREFACE[..],
                &start.concat(),
                &frame(kind, flags, stream, payload),
            ]
            .concat(),
        )
    };
    let settings = &[&EMPTY_SETTINGS[..]][..];
    let begun = frame(1, 0, 1, &[0x82]);
    let open = &[&EMPTY_SETTINGS[..], &begun][..];
    for (kind, stream, length) in [(0, 1, 0), (3, 1, 4), (5, 1, 4), (7, 0, 8), (9, 1, 0)] {
        assert_eq!(
            after(settings, kind, 4, stream, &vec![0; length]),
            Err(H2Error::UnexpectedFrame),
            "{kind}"
        );
    }
    assert_eq!(after(&[], 1, 4, 1, &[]), Err(H2Error::UnexpectedFrame));
    assert_eq!(after(&[], 4, 1, 0, &[]), Err(H2Error::UnexpectedFrame));
    assert_eq!(after(open, 9, 4, 3, &[]), Err(H2Error::UnexpectedFrame));
    assert_eq!(after(open, 8, 0, 0, &[0; 4]), Err(H2Error::UnexpectedFrame));
    for (kind, flags, stream, length) in [
        (4, 0, 0, 5),
        (4, 1, 0, 6),
        (4, 0, 1, 0),
        (6, 0, 0, 7),
        (8, 0, 0, 3),
        (2, 0, 1, 4),
        (2, 0, 0, 5),
        (1, 4, 2, 0),
        (1, 4, 0, 0),
        (1, 0xC, 1, 0),
        (1, 0x24, 1, 4),
        (99, 0, 0, 16_385),
    ] {
        assert_eq!(
            after(settings, kind, flags, stream, &vec![9; length]),
            Err(H2Error::BadFrame),
            "{kind} {length}"
        );
    }
    assert_eq!(sniff(b"PRI * HTTP/2.0\r\n\r\nXX"), Err(H2Error::NotPreface));
    // Padding, priority, and frames to be skipped.
    let padded = [&[2, 0, 0, 0, 0, 9][..], &literal("host", "a"), &[0, 0]].concat();
    let between = [
        frame(8, 0, 0, &[0, 0, 0, 9]),
        frame(2, 0, 3, &[0; 5]),
        frame(6, 0, 0, &[0; 8]),
        frame(0xBA, 9, 9, &[1]),
    ]
    .concat();
    let head = after(&[&EMPTY_SETTINGS, &between], 1, 0x2D, 1, &padded)
        .expect("good")
        .expect("whole");
    assert_eq!(head.authority.map(|a| a.to_string()).as_deref(), Some("a"));
}

#[test]
fn no_split_changes_the_answer() {
    let request = http::Request::builder()
        .uri("http://a.example/")
        .header("x-a", "bcd")
        .header("host", "a.example");
    let real = client_bytes(request.body(()).expect("a request"));
    let split = |rng: &mut StdRng| {
        let block = [
            literal(":authority", "a.example"),
            literal("x", "y"),
            literal("host", "a.example"),
        ]
        .concat();
        let (a, b) = block.split_at(rng.random_range(0..block.len()));
        let ack = frame(4, 1, 0, &[]);
        [
            &PREFACE[..],
            &EMPTY_SETTINGS,
            &ack,
            &frame(1, 0, 1, a),
            &frame(9, 0, 1, &[]),
            &frame(9, 4, 1, b),
        ]
        .concat()
    };
    let words: [&[u8]; 6] = [
        &EMPTY_SETTINGS,
        &[0x82],
        &[0x3F, 0xE1, 0x1F],
        &[0, 0, 0],
        &[0xBE],
        &[0x41, 1, b'b'],
    ];
    for_seeds(20_000, |rng| {
        let mut bytes = if rng.random() {
            real.clone()
        } else {
            split(rng)
        };
        mutate(&mut bytes, rng, &words);
        let limits = Limits {
            head: *[60, 150, 16_384].choose(rng).expect("some"),
            list: 200,
        };
        let _ = same_however_split(
            &bytes,
            rng,
            || HeadSniffer::new(limits),
            HeadSniffer::advance,
        );
    });
}

#[test]
fn a_megabyte_byte_by_byte_is_linear_work() {
    let mut bytes = [
        &PREFACE[..],
        &EMPTY_SETTINGS,
        &frame(1, 0, 1, &[0x82; 1000]),
    ]
    .concat();
    while bytes.len() < 1 << 20 {
        bytes.extend_from_slice(&frame(9, 0, 1, &[0x82; 1000]));
    }
    let started = std::time::Instant::now();
    let mut sniffer = HeadSniffer::new(Limits {
        head: 1 << 22,
        list: 1 << 22,
    });
    for n in 1..=bytes.len() {
        assert_eq!(sniffer.advance(&bytes[..n]), Ok(None));
    }
    // Linear: well below a second. Quadratic: 5 * 10^11 steps.
    assert!(started.elapsed().as_secs() < 20);
}

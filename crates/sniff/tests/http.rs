//! What `http::HeadSniffer` says about request heads.

mod common;

use common::{for_seeds, same_however_split};
use rand::Rng;
use sniff::{
    host::AuthorityError,
    http::{
        ContentLength, Flaw, Head, HeadError, HeadSniffer, Limits, RoutedBy, TransferEncoding,
        Version,
    },
};

fn sniff(bytes: &[u8]) -> Result<Option<Head>, HeadError> {
    HeadSniffer::new(Limits::default()).advance(bytes)
}

fn head(bytes: &[u8]) -> Head {
    sniff(bytes).expect("accepted").expect("complete")
}

fn error(bytes: &[u8]) -> HeadError {
    sniff(bytes).expect_err("refused")
}

#[test]
fn a_head_tells_where_everything_is() {
    let bytes = b"\r\nPOST /a?b HTTP/1.1\r\nX: 1\r\nhOST:  \tAlice.example.com:80\t \r\nContent-Length: 5\r\n\
                  expect: 100-Continue\r\nEmpty:\r\n\r\nhello";
    let head = head(bytes);
    assert_eq!(head.len(), bytes.len() - 5);
    assert_eq!(
        (head.method(bytes), head.target(bytes), head.version()),
        (&b"POST"[..], &b"/a?b"[..], Version::Http11)
    );
    assert_eq!(
        head.authority().map(ToString::to_string).as_deref(),
        Some("alice.example.com:80")
    );
    assert_eq!(head.routed_by(), Some(RoutedBy::Host));
    assert_eq!(
        &bytes[head.host_range().expect("a Host")],
        b"Alice.example.com:80"
    );
    assert_eq!(head.content_length(), ContentLength::Bytes(5));
    assert_eq!(head.transfer_encoding(), TransferEncoding::Absent);
    assert!(head.expects_continue());
    assert_eq!(head.websocket_key(bytes), None);
    let names: Vec<_> = head.fields(bytes).map(|f| f.name).collect();
    assert_eq!(
        names,
        [&b"X"[..], b"hOST", b"Content-Length", b"expect", b"Empty"]
    );
    for field in head.fields(bytes) {
        assert_eq!(&bytes[field.value_range], field.value);
    }
    assert_eq!(head.values(bytes, "empty").collect::<Vec<_>>(), [b""]);
}

#[test]
fn another_buffer_does_no_harm() {
    let bytes = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let head = head(bytes);
    for other in [&b""[..], b"GET", &bytes[..20]] {
        let _ = (
            head.method(other),
            head.target(other),
            head.websocket_key(other),
            head.fields(other).count(),
        );
    }
    let mut sniffer = HeadSniffer::new(Limits::default());
    assert_eq!(sniffer.advance(&bytes[..20]), Ok(None));
    assert_eq!(sniffer.advance(&bytes[..3]), Ok(None));
}

#[test]
fn the_target_wins_over_host_and_must_agree_with_it() {
    for (target, host) in [
        ("http://a.example/x", "A.example.:80"),
        ("HTTP://A.example:80?q", "a.example"),
        ("https://a.example", "a.example:443"),
        ("http://a.example/x", ""),
    ] {
        let bytes = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let head = head(bytes.as_bytes());
        assert_eq!(
            (head.authority().and_then(|a| a.name()), head.routed_by()),
            (Some("a.example"), Some(RoutedBy::Target))
        );
    }
    let old = head(b"GET http://b/ HTTP/1.0\r\n\r\n");
    assert_eq!(old.authority().and_then(|a| a.name()), Some("b"));
    let tunnel = head(b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n");
    assert_eq!(tunnel.authority().and_then(|a| a.port()), Some(443));
    for bytes in [
        &b"GET http://a/ HTTP/1.1\r\nHost: b\r\n\r\n"[..],
        b"GET http://a/ HTTP/1.1\r\nHost: a:81\r\n\r\n",
        b"CONNECT a:443 HTTP/1.1\r\nHost: a:80\r\n\r\n",
    ] {
        assert_eq!(error(bytes), HeadError::HostMismatch);
    }
}

#[test]
fn a_named_field_routes_instead_of_host() {
    let sniff = |bytes: &[u8]| {
        HeadSniffer::new(Limits::default())
            .route_by("X-Target")
            .advance(bytes)
    };
    let found = sniff(b"GET / HTTP/1.1\r\nHost: a\r\nx-target: B.c\r\n\r\n")
        .expect("good")
        .expect("whole");
    assert_eq!(
        (
            found.authority().and_then(|a| a.first_label()),
            found.routed_by()
        ),
        (Some("b"), Some(RoutedBy::NamedField))
    );
    let missing = sniff(b"GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n")
        .expect("good")
        .expect("whole");
    assert_eq!(missing.authority(), None);
    assert_eq!(
        sniff(b"GET / HTTP/1.1\r\nx-target: b\r\n\r\n"),
        Err(HeadError::NoHost)
    );
    assert_eq!(
        sniff(b"GET / HTTP/1.1\r\nHost: a\r\nx-target: b\r\nX-TARGET: b\r\n\r\n"),
        Err(HeadError::SeveralHosts)
    );
    let host = HeadSniffer::new(Limits::default())
        .route_by("HOST")
        .advance(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(
        host.expect("good").expect("whole").routed_by(),
        Some(RoutedBy::Host)
    );
}

#[test]
fn a_missing_host_is_for_old_versions_only() {
    assert_eq!(error(b"GET / HTTP/1.1\r\n\r\n"), HeadError::NoHost);
    assert_eq!(head(b"GET / HTTP/1.0\r\n\r\n").authority(), None);
    assert_eq!(head(b"GET / HTTP/1.1\r\nHost:\r\n\r\n").authority(), None);
    assert_eq!(
        head(b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n").routed_by(),
        Some(RoutedBy::Host)
    );
}

#[test]
fn a_websocket_handshake_shows_its_key() {
    let ask = |from: &str, to: &str| {
        let bytes = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n\
                     Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
            .replacen(from, to, 1);
        head(bytes.as_bytes())
            .websocket_key(bytes.as_bytes())
            .map(str::to_owned)
    };
    assert_eq!(ask("", "").as_deref(), Some("dGhlIHNhbXBsZSBub25jZQ=="));
    for (from, to) in [
        ("GET", "POST"),
        ("HTTP/1.1", "HTTP/1.0"),
        ("keep-alive, Upgrade", "close"),
        ("WebSocket\r\n", "h2c\r\n"),
        ("dGhl", "d\"hl"),
        ("==", "="),
        (
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        ),
    ] {
        assert_eq!(ask(from, to), None, "{from} -> {to}");
    }
}

#[test]
fn framing_is_reported_as_found() {
    let framing = |fields: &str| {
        let head = head(format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n").as_bytes());
        (head.content_length(), head.transfer_encoding())
    };
    use {ContentLength as C, TransferEncoding as T};
    assert_eq!(framing(""), (C::Absent, T::Absent));
    assert_eq!(
        framing("content-length: 18446744073709551615\r\n"),
        (C::Bytes(u64::MAX), T::Absent)
    );
    for odd in [
        "18446744073709551616",
        "+1",
        "1, 1",
        "",
        "0x1",
        "1\r\nContent-Length: 1",
    ] {
        assert_eq!(
            framing(&format!("Content-Length: {odd}\r\n")).0,
            C::Odd,
            "{odd}"
        );
    }
    assert_eq!(framing("Transfer-Encoding: Chunked\r\n").1, T::Chunked);
    for other in [
        "gzip, chunked",
        "chunked\r\nTransfer-Encoding: chunked",
        "",
        "identity",
    ] {
        assert_eq!(
            framing(&format!("Transfer-Encoding: {other}\r\n")).1,
            T::Other,
            "{other}"
        );
    }
}

#[test]
fn shapes_that_two_readers_take_differently_are_refused() {
    let after_host =
        |rest: &str| error(format!("GET / HTTP/1.1\r\nHost: a\r\n{rest}\r\n\r\n").as_bytes());
    assert_eq!(after_host("Host: a"), HeadError::SeveralHosts);
    assert_eq!(after_host(" b"), Flaw::Fold.into());
    assert_eq!(after_host("X: \0"), Flaw::Control.into());
    assert_eq!(after_host("X: a\rb"), Flaw::BareCr.into());
    assert_eq!(after_host("X: a\nY: b"), Flaw::BareLf.into());
    assert_eq!(after_host("X : a"), Flaw::FieldName.into());
    assert_eq!(after_host("X"), Flaw::FieldName.into());
    assert_eq!(after_host(": a"), Flaw::FieldName.into());
    let host = |host: &str| error(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes());
    assert_eq!(
        host("a, b"),
        HeadError::BadHost(AuthorityError::BadCharacter)
    );
    assert_eq!(
        host("u@a"),
        HeadError::BadHost(AuthorityError::BadCharacter)
    );
    assert_eq!(host("a:99999"), HeadError::BadHost(AuthorityError::BadPort));
    assert_eq!(
        host("\u{e4}"),
        HeadError::BadHost(AuthorityError::BadCharacter)
    );
    let line = |line: &str| error(format!("{line}\r\nHost: a\r\n\r\n").as_bytes());
    for bad in [
        "GET /",
        "GET  / HTTP/1.1",
        "GET / HTTP/1.1 ",
        " GET / HTTP/1.1",
        "GET /\tx HTTP/1.1",
        "GET / http/1.1",
        "\r\n\r\n\r\nGET / HTTP/1.1",
    ] {
        assert_eq!(line(bad), Flaw::RequestLine.into(), "{bad:?}");
    }
    for bad in [
        "GET x HTTP/1.1",
        "GET http:/a HTTP/1.1",
        "GET ://a HTTP/1.1",
        "CONNECT a HTTP/1.1",
    ] {
        assert_eq!(line(bad), Flaw::Target.into(), "{bad:?}");
    }
    assert_eq!(
        line("GET http://u@a/ HTTP/1.1"),
        HeadError::BadHost(AuthorityError::BadCharacter)
    );
    assert_eq!(
        error(b"GET /\xE4 HTTP/1.1\r\nHost: a\r\n\r\n"),
        Flaw::Target.into()
    );
    assert!(sniff("GET /ä HTTP/1.1\r\nHost: a\r\n\r\n".as_bytes()).is_ok());
    assert_eq!(line("GET / HTTP/2.0"), HeadError::Version);
    assert_eq!(line("GET / HTTP/2.0").status(), 505);
}

#[test]
fn limits_hold_to_the_byte() {
    let limits = Limits {
        head: 100,
        headers: 2,
    };
    let request = |fill: usize| {
        format!(
            "GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n",
            "x".repeat(fill)
        )
    };
    let fill = 100 - request(0).len();
    let sniff = |bytes: &str| HeadSniffer::new(limits).advance(bytes.as_bytes());
    assert_eq!(
        sniff(&request(fill)).expect("fits").map(|h| h.len()),
        Some(100)
    );
    assert_eq!(sniff(&request(fill + 1)), Err(HeadError::TooLong));
    assert_eq!(sniff(&"G".repeat(99)), Ok(None));
    assert_eq!(sniff(&"G".repeat(100)), Err(HeadError::TargetTooLong));
    assert_eq!(
        sniff("GET / HTTP/1.1\r\nHost: a\r\nb:\r\nc:\r\n\r\n"),
        Err(HeadError::TooManyHeaders)
    );
    assert_eq!(
        [
            HeadError::TooLong,
            HeadError::TargetTooLong,
            HeadError::NoHost
        ]
        .map(HeadError::status),
        [431, 414, 400]
    );
}

#[test]
fn a_megabyte_byte_by_byte_is_linear_work() {
    let mut bytes = b"GET / HTTP/1.1\r\nHost: a\r\n".to_vec();
    while bytes.len() < 1 << 20 {
        bytes.extend_from_slice(b"X-Header: some value of usual length\r\n");
    }
    bytes.extend_from_slice(&[b'y'; 1 << 20]);
    let started = std::time::Instant::now();
    let mut sniffer = HeadSniffer::new(Limits {
        head: 1 << 22,
        headers: 1 << 20,
    });
    for n in 1..=bytes.len() {
        assert_eq!(sniffer.advance(&bytes[..n]), Ok(None));
    }
    // Linear: well below a second. Quadratic: 2 * 10^12 steps.
    assert!(started.elapsed().as_secs() < 20);
}

#[test]
fn no_split_changes_the_answer() {
    let words: [&[u8]; 9] = [
        b"\r\n",
        b"\r",
        b"\n",
        b"Host: a\r\n",
        b"\r\n\r\n",
        b" ",
        b"http://b/",
        b"X-Target: c\r\n",
        b"\0",
    ];
    for_seeds(20_000, |rng| {
        let mut bytes =
            b"GET /index HTTP/1.1\r\nHost: a.example\r\nX-Target: b\r\nAccept: */*\r\n\r\nbody"
                .to_vec();
        common::mutate(&mut bytes, rng, &words);
        let limits = Limits {
            head: rng.random_range(20..100),
            headers: rng.random_range(0..5),
        };
        let named = rng.random::<bool>();
        let make = || {
            let sniffer = HeadSniffer::new(limits);
            if named {
                sniffer.route_by("x-target")
            } else {
                sniffer
            }
        };
        let _ = same_however_split(&bytes, rng, make, HeadSniffer::advance);
    });
}

//! Answers' heads: what is understood, what is refused, and what they mean to their request.

mod common;

use common::{for_seeds, growing, response_in_pieces};
use h1::{
    Answer, FieldError, Framing, Limits, RequestLine, ResponseBody, ResponseError, ResponseHead,
    Upstream, WriteError,
};
use rand::{Rng, seq::IndexedRandom};

/// What the answer is to a request.
fn answered(method: &str, upgrade: Option<&str>, text: &str) -> Result<Answer<()>, ResponseError> {
    let limits = Limits::default();
    let target: &[u8] = if method == "CONNECT" { b"a:1" } else { b"/" };
    let mut line =
        RequestLine::new(method.as_bytes(), target, b"a", Framing::None).expect("a good line");
    if let Some(protocol) = upgrade {
        line = line.with_upgrade(protocol.as_bytes()).expect("a protocol");
    }
    let sent = Upstream::new(&limits)
        .send(&line, (), &mut Vec::new())
        .finish();
    let whole = ResponseHead::default().parse(text.as_bytes(), &limits);
    let split = response_in_pieces(text.as_bytes(), 1..=text.len(), &limits);
    assert_eq!(whole, split, "{text:?}");
    let mut head = ResponseHead::default();
    assert_eq!(
        head.parse(text.as_bytes(), &limits)?,
        Some(text.len()),
        "{text:?}"
    );
    let response = head.view(text.as_bytes()).expect("a whole head");
    sent.awaiting.answer(response).map_err(|(error, ())| error)
}

fn body(method: &str, text: &str) -> ResponseBody {
    match answered(method, None, text) {
        Ok(Answer::Final { body, .. }) => body,
        other => panic!("{other:?}: {text:?}"),
    }
}

#[test]
fn an_answer_is_framed_by_its_request() {
    let long = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n";
    let cases = [
        ("GET", long, Framing::Length(5)),
        ("HEAD", long, Framing::None),
        (
            "CONNECT",
            "HTTP/1.1 407 No\r\nContent-Length: 5\r\n\r\n",
            Framing::Length(5),
        ),
        ("GET", chunked, Framing::Chunked),
        ("HEAD", chunked, Framing::None),
        (
            "GET",
            "HTTP/1.1 304 \r\nContent-Length: 5\r\n\r\n",
            Framing::None,
        ),
        ("GET", "HTTP/1.1 204\r\n\r\n", Framing::None),
        (
            "GET",
            "HTTP/1.1 204 X\r\nContent-Length: 5\r\n\r\n",
            Framing::None,
        ),
        (
            "GET",
            "HTTP/1.1 204 X\r\nTransfer-Encoding: chunked\r\n\r\n",
            Framing::None,
        ),
        ("GET", "HTTP/1.1 200 OK\r\n\r\n", Framing::UntilClose),
        ("GET", "HTTP/1.0 200 OK\r\n\r\n", Framing::UntilClose),
        (
            "GET",
            "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n",
            Framing::Length(1),
        ),
        (
            "GET",
            "HTTP/1.1 200 OK\r\nContent_Length: 1\r\n\r\n",
            Framing::UntilClose,
        ),
    ];
    for (method, text, expected) in cases {
        assert_eq!(
            body(method, text).decoder().framing(),
            expected,
            "{method} {text:?}"
        );
    }
}

#[test]
fn answers_that_can_be_read_in_two_ways_are_refused() {
    use ResponseError as E;
    let ok = "HTTP/1.1 200 OK\r\n";
    let cases = [
        (
            ok,
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            E::BothLengths,
        ),
        (
            ok,
            "Content-Length: 5\r\nContent-Length: 5\r\n\r\n",
            E::ContentLength,
        ),
        (ok, "Content-Length: 5,5\r\n\r\n", E::ContentLength),
        (ok, "Content-Length: +5\r\n\r\n", E::ContentLength),
        (
            ok,
            "Content-Length: 18446744073709551616\r\n\r\n",
            E::ContentLength,
        ),
        (ok, "Transfer-Encoding: gzip\r\n\r\n", E::Coding),
        (ok, "Transfer-Encoding: chunked, chunked\r\n\r\n", E::Coding),
        (
            ok,
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
            E::Coding,
        ),
        (ok, "Connection: content-length\r\n\r\n", E::Connection),
        (ok, "X: a\nY: b\r\n\r\n", E::Field(FieldError::BareLf)),
        (ok, "X: a\r\n b\r\n\r\n", E::Field(FieldError::Folded)),
        (ok, "X : a\r\n\r\n", E::Field(FieldError::SpaceInName)),
        (ok, "X: \0\r\n\r\n", E::Field(FieldError::Value)),
        (
            "HTTP/1.0 200 OK\r\n",
            "Transfer-Encoding: chunked\r\n\r\n",
            E::Coding,
        ),
        (
            "HTTP/1.1 200 O\rK\r\n",
            "\r\n",
            E::Field(FieldError::BareCr),
        ),
        ("HTTP/1.1 200 OK\n", "\n", E::Field(FieldError::BareLf)),
        ("HTTP/1.1 99 X\r\n", "\r\n", E::StatusLine),
        ("HTTP/1.1 099 X\r\n", "\r\n", E::StatusLine),
        ("HTTP/1.1 600 X\r\n", "\r\n", E::StatusLine),
        ("HTTP/1.1 2000 X\r\n", "\r\n", E::StatusLine),
        ("HTTP/1.1  200 X\r\n", "\r\n", E::StatusLine),
        ("HTTP/1.1 2x0 X\r\n", "\r\n", E::StatusLine),
        ("HTTP/2.0 200 X\r\n", "\r\n", E::Version),
        ("ICY 200 OK\r\n", "\r\n", E::StatusLine),
        ("\r\nHTTP/1.1 200 OK\r\n", "\r\n", E::StatusLine),
        ("HTTP/1.1 200 O\0K\r\n", "\r\n", E::StatusLine),
        ("SSH-2.0-x", "", E::StatusLine),
    ];
    for (start, rest, expected) in cases {
        let text = format!("{start}{rest}");
        assert_eq!(
            answered("GET", None, &text).err(),
            Some(expected),
            "{text:?}"
        );
    }
}

#[test]
fn only_what_was_asked_for_becomes_a_tunnel() {
    let to = |protocol: &str| {
        format!("HTTP/1.1 101 Go\r\nConnection: upgrade\r\nUpgrade: {protocol}\r\n\r\n")
    };
    let is_tunnel = |answer| matches!(answer, Ok(Answer::Tunnel { .. }));
    assert!(is_tunnel(answered(
        "GET",
        Some("websocket"),
        &to("WebSocket")
    )));
    assert!(is_tunnel(answered("GET", Some("x"), &to("x"))));
    assert!(is_tunnel(answered(
        "CONNECT",
        None,
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"
    )));
    let refused = Some(ResponseError::UnaskedUpgrade);
    assert_eq!(answered("GET", None, &to("websocket")).err(), refused);
    assert_eq!(answered("CONNECT", None, &to("websocket")).err(), refused);
    assert_eq!(
        answered("GET", Some("websocket"), &to("h2c")).err(),
        refused
    );
    assert_eq!(answered("GET", Some("x"), &to("websocket")).err(), refused);
    let bare = "HTTP/1.1 101 Go\r\n\r\n";
    assert_eq!(answered("GET", Some("websocket"), bare).err(), refused);
    let unnamed = "HTTP/1.1 101 Go\r\nUpgrade: websocket\r\n\r\n";
    assert_eq!(answered("GET", Some("websocket"), unnamed).err(), refused);
    assert!(matches!(
        answered("GET", Some("websocket"), "HTTP/1.1 200 OK\r\n\r\n"),
        Ok(Answer::Final { .. })
    ));
}

#[test]
fn interim_answers_come_before_the_answer_and_are_counted() {
    let limits = Limits {
        interim: 2,
        ..Limits::default()
    };
    let line = RequestLine::new(b"GET", b"/", b"", Framing::None).expect("a good line");
    let sent = Upstream::new(&limits)
        .send(&line, 7, &mut Vec::new())
        .finish();
    let mut head = ResponseHead::default();
    let text = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n";
    assert_eq!(head.parse(text, &limits), Ok(Some(text.len())));
    let response = head.view(text).expect("a whole head");
    assert!(response.is_interim());
    let mut awaiting = sent.awaiting;
    for _ in 0..2 {
        awaiting = match awaiting.answer(response) {
            Ok(Answer::Interim(awaiting)) => awaiting,
            other => panic!("{other:?}"),
        };
    }
    assert_eq!(*awaiting.payload(), 7);
    let refused = awaiting.answer(response).err();
    assert_eq!(
        refused,
        Some((ResponseError::TooManyInterim, 7)),
        "what was given comes back"
    );
}

#[test]
fn a_connection_is_used_again_only_when_nothing_is_in_doubt() {
    let reusable = |method: &str, text: &str, data: &[u8], leftover: usize| {
        let limits = Limits::default();
        let line = RequestLine::new(method.as_bytes(), b"/", b"", Framing::None).expect("good");
        let sent = Upstream::new(&limits)
            .send(&line, (), &mut Vec::new())
            .finish();
        let mut body = body(method, text);
        common::decode(body.decoder(), data).expect("a good body");
        body.finish(sent.body, leftover).is_some()
    };
    let length = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n";
    assert!(reusable("GET", length, b"ab", 0));
    assert!(
        !reusable("GET", length, b"a", 0),
        "the body is not complete"
    );
    assert!(
        !reusable("GET", length, b"ab", 1),
        "more came than was asked for"
    );
    assert!(reusable("HEAD", length, b"", 0));
    assert!(!reusable(
        "GET",
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        b"",
        0
    ));
    assert!(!reusable(
        "GET",
        "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"",
        0
    ));
    assert!(reusable(
        "GET",
        "HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n",
        b"",
        0
    ));
    assert!(
        !reusable("GET", "HTTP/1.1 200 OK\r\n\r\n", b"x", 0),
        "until the connection ends"
    );
    assert!(reusable("GET", "HTTP/1.1 204 No\r\n\r\n", b"", 0));
    assert!(!reusable(
        "GET",
        "HTTP/1.1 204 No\r\nContent-Length: 1\r\n\r\n",
        b"",
        0
    ));
    assert!(!reusable(
        "GET",
        "HTTP/1.1 204 No\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"",
        0
    ));
}

#[test]
fn a_connection_with_half_a_request_is_not_used_again() {
    let limits = Limits::default();
    let line = RequestLine::new(b"PUT", b"/", b"", Framing::Length(3)).expect("good");
    for written in 0..=3 {
        let mut sent = Upstream::new(&limits)
            .send(&line, (), &mut Vec::new())
            .finish();
        sent.body.encoder().data(written).expect("not too much");
        let ended = sent
            .body
            .encoder()
            .finish(h1::Trailers::NONE, &mut Vec::new());
        assert_eq!(ended.is_ok(), written == 3);
        let early = body("PUT", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(early.finish(sent.body, 0).is_some(), written == 3);
    }
}

#[test]
fn a_request_line_cannot_be_forged() {
    let line = |method: &'static str, target: &'static str, host: &'static str| {
        RequestLine::new(
            method.as_bytes(),
            target.as_bytes(),
            host.as_bytes(),
            Framing::None,
        )
        .err()
    };
    assert_eq!(line("GET", "/a?b", "a:1"), None);
    assert_eq!(line("OPTIONS", "*", ""), None);
    assert_eq!(line("CONNECT", "a:1", "a:1"), None);
    for method in ["", "G T", "GET\r\n", "ä"] {
        assert_eq!(line(method, "/", "a"), Some(WriteError::Method));
    }
    for target in [
        "",
        "a",
        "*",
        "/ HTTP/1.1\r\nX: y",
        "/a b",
        "/\t",
        "/#",
        "/ä",
        "http://a/",
    ] {
        assert_eq!(
            line("GET", target, "a"),
            Some(WriteError::Target),
            "{target:?}"
        );
    }
    assert_eq!(line("CONNECT", "/", "a"), Some(WriteError::Target));
    for host in ["a b", "a\r\nX: y", "a/b", "u@a"] {
        assert_eq!(line("GET", "/", host), Some(WriteError::Host), "{host:?}");
    }
    let with_body = RequestLine::new(b"POST", b"/", b"", Framing::Length(1)).expect("good");
    assert!(with_body.with_upgrade(b"websocket").is_err());
    let without = RequestLine::new(b"GET", b"/", b"", Framing::None).expect("good");
    for protocol in [&b"h2c"[..], b"", b"a, b", b"a\r\nb"] {
        assert!(without.with_upgrade(protocol).is_err(), "{protocol:?}");
    }
}

#[test]
fn no_answer_depends_on_the_pieces() {
    const LINES: [&str; 12] = [
        "Content-Length: 5\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Connection: close\r\n",
        "Connection: upgrade\r\n",
        "Set-Cookie: a=b\r\n",
        "X:\r\n",
        "X: \u{e4}\r\n",
        " fold\r\n",
        "nothing\r\n",
        "X : 1\r\n",
        "Date: now\r\n",
        "\r\n",
    ];
    for_seeds(20_000, |rng| {
        let start = *[
            "HTTP/1.1 200 OK",
            "HTTP/1.0 404 Not \u{e4}",
            "HTTP/1.1 204",
            "HTTP/1.1 101 ",
        ]
        .choose(rng)
        .expect("some");
        let mut bytes = format!("{start}\r\n").into_bytes();
        for _ in 0..rng.random_range(0..5) {
            bytes.extend_from_slice(LINES.choose(rng).expect("some").as_bytes());
        }
        bytes.extend_from_slice(b"\r\n");
        if rng.random() {
            let at = rng.random_range(0..bytes.len());
            bytes[at] = *b"\0\r\n :1\x7f\xff".choose(rng).expect("some");
        }
        let small = Limits {
            head: 40,
            fields: 2,
            ..Limits::default()
        };
        for limits in [Limits::default(), small] {
            let whole = ResponseHead::default().parse(&bytes, &limits);
            let text = String::from_utf8_lossy(&bytes);
            let ends = growing(bytes.len(), rng);
            assert_eq!(whole, response_in_pieces(&bytes, ends, &limits), "{text:?}");
            assert_eq!(
                whole,
                response_in_pieces(&bytes, 1..=bytes.len(), &limits),
                "{text:?}"
            );
        }
    });
}

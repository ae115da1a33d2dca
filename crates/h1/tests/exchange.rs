//! Whole exchanges on the visitor's side: what the answer's head says, and whether the connection goes on.

mod common;

use common::{begin, begin_on, decode};
use h1::{
    Answer, Drained, Framing, HeadWriter, Limits, Next, RequestBody, RequestLine, Responder,
    ResponseHead, ResponseWriter, Trailers, Upstream, WriteError,
};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const OLD: &str = "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
const HEAD: &str = "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n";

fn text(out: &[u8]) -> &str {
    std::str::from_utf8(out).expect("text")
}

/// The head and the body's bytes of an answer of `data` with framing `content`.
fn respond(request: &str, status: u16, content: Framing, data: &[u8]) -> (String, bool) {
    let limits = Limits::default();
    let (body, responder) = begin(request, &limits);
    let mut out = Vec::new();
    let head = responder
        .respond(&body, status, b"R", content, &mut out)
        .expect("good");
    let mut writer = head.finish();
    if !data.is_empty() {
        let (before, behind) = writer.encoder().data(data.len()).expect("has a body");
        for part in [before.as_bytes(), data, behind.as_bytes()] {
            out.extend_from_slice(part);
        }
    }
    writer
        .encoder()
        .finish(Trailers::NONE, &mut out)
        .expect("complete");
    let next = writer.finish(body);
    (text(&out).to_owned(), matches!(next, Next::Idle(_)))
}

/// Request, status, content, data, what follows the status line, and whether the connection goes on.
type Case = (
    &'static str,
    u16,
    Framing,
    &'static [u8],
    &'static str,
    bool,
);

#[test]
fn an_answer_is_framed_for_its_visitor() {
    let cases: [Case; 15] = [
        (
            GET,
            200,
            Framing::Length(2),
            b"hi",
            "Content-Length: 2\r\n\r\nhi",
            true,
        ),
        (
            GET,
            200,
            Framing::None,
            b"",
            "Content-Length: 0\r\n\r\n",
            true,
        ),
        (
            GET,
            200,
            Framing::Chunked,
            b"hi",
            "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
            true,
        ),
        (
            GET,
            200,
            Framing::UntilClose,
            b"hi",
            "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
            true,
        ),
        (GET, 204, Framing::Length(2), b"", "\r\n", true),
        (
            GET,
            304,
            Framing::Length(2),
            b"",
            "Content-Length: 2\r\n\r\n",
            true,
        ),
        (GET, 304, Framing::None, b"", "\r\n", true),
        (
            HEAD,
            200,
            Framing::Length(2),
            b"",
            "Content-Length: 2\r\n\r\n",
            true,
        ),
        (HEAD, 200, Framing::Chunked, b"", "\r\n", true),
        (
            HEAD,
            200,
            Framing::None,
            b"",
            "Content-Length: 0\r\n\r\n",
            true,
        ),
        (
            OLD,
            200,
            Framing::Length(2),
            b"hi",
            "Content-Length: 2\r\nConnection: keep-alive\r\n\r\nhi",
            true,
        ),
        (
            OLD,
            200,
            Framing::Chunked,
            b"hi",
            "Connection: close\r\n\r\nhi",
            false,
        ),
        (
            "GET / HTTP/1.0\r\n\r\n",
            200,
            Framing::Length(0),
            b"",
            "Content-Length: 0\r\nConnection: close\r\n\r\n",
            false,
        ),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
            200,
            Framing::None,
            b"",
            "Content-Length: 0\r\nConnection: close\r\n\r\n",
            false,
        ),
        (
            "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n",
            200,
            Framing::Length(0),
            b"",
            "Connection: close\r\n\r\n",
            false,
        ),
    ];
    for (request, status, content, data, expected, goes_on) in cases {
        let found = respond(request, status, content, data);
        let expected = format!("HTTP/1.1 {status} R\r\n{expected}");
        assert_eq!(
            found,
            (expected, goes_on),
            "{request:?} {status} {content:?}"
        );
    }
}

#[test]
fn an_answer_cannot_be_forged() {
    let limits = Limits::default();
    let mut out = Vec::new();
    for (status, reason) in [
        (99, &b""[..]),
        (100, b""),
        (101, b""),
        (600, b""),
        (200, b"a\r\nX: y"),
        (200, b"\0"),
    ] {
        let (body, responder) = begin(GET, &limits);
        let refused = responder.respond(&body, status, reason, Framing::None, &mut out);
        assert_eq!(refused.err(), Some(WriteError::Status));
    }
    assert!(out.is_empty());
    let (body, responder) = begin(GET, &limits);
    let mut head = responder
        .respond(&body, 200, b"", Framing::None, &mut out)
        .expect("good");
    for name in [
        "Content-Length",
        "content_length",
        "Transfer-Encoding",
        "Connection",
        "Upgrade",
        "Host",
        "TE",
        "Keep-Alive",
    ] {
        assert_eq!(
            head.field(name.as_bytes(), b"1"),
            Err(WriteError::NotYours),
            "{name}"
        );
        assert_eq!(
            head.field_with(name.as_bytes(), |_| {}),
            Err(WriteError::NotYours),
            "{name}"
        );
    }
    for name in ["", "a b", "a:", "a\r\n", "\u{e4}"] {
        assert_eq!(
            head.field(name.as_bytes(), b"1"),
            Err(WriteError::Name),
            "{name:?}"
        );
    }
    for value in ["a\r\nb", "a\n", "\0", "\x7f", "12345678\x01"] {
        assert_eq!(
            head.field(b"X", value.as_bytes()),
            Err(WriteError::Value),
            "{value:?}"
        );
        let written = head.field_with(b"X", |out| out.extend_from_slice(value.as_bytes()));
        assert_eq!(written, Err(WriteError::Value), "{value:?}");
    }
    head.field(b"X-Good", b"a\tb \xff").expect("good");
    head.field_with(b"Y", |out| out.extend_from_slice(b"c"))
        .expect("good");
    head.field(b"Proxy-Authenticate", b"Basic").expect("good");
    let _ = head.finish();
    let expected = b"HTTP/1.1 200 \r\nContent-Length: 0\r\nX-Good: a\tb \xff\r\nY: c\r\nProxy-Authenticate: Basic\r\n\r\n";
    assert_eq!(out, expected);
}

fn answer(body: &RequestBody, responder: Responder) -> (ResponseWriter, String) {
    let mut out = Vec::new();
    let head = responder.respond(body, 200, b"", Framing::None, &mut out);
    let writer = head.map(HeadWriter::finish).expect("good");
    (writer, text(&out).to_owned())
}

#[test]
fn pipelined_requests_are_answered_one_after_the_other() {
    let limits = Limits::default();
    let buffer = format!("{GET}POST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi{HEAD}");
    let mut visitor = h1::Visitor::new(&limits);
    let mut head = h1::RequestHead::default();
    let mut at = 0;
    let mut methods = Vec::new();
    while at < buffer.len() {
        let rest = &buffer.as_bytes()[at..];
        head.clear();
        at += head.parse(rest, &limits).expect("good").expect("whole");
        let request = head.view(rest).expect("whole");
        methods.push(text(request.method()).to_owned());
        let (mut body, responder) = visitor.begin(request);
        at += decode(body.decoder(), &buffer.as_bytes()[at..])
            .expect("good")
            .1;
        let (writer, _) = answer(&body, responder);
        visitor = match writer.finish(body) {
            Next::Idle(visitor) => visitor,
            other => panic!("{other:?}"),
        };
    }
    assert_eq!(methods, ["GET", "POST", "HEAD"]);
    assert_eq!(visitor.requests(), 3);
}

#[test]
fn an_early_answer_leaves_a_body_to_drain() {
    let limits = Limits {
        drain: 10,
        ..Limits::default()
    };
    let drain = |fields: &str| {
        let (body, responder) = begin(
            &format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n"),
            &limits,
        );
        let (writer, head) = answer(&body, responder);
        assert_eq!(writer.keeps_alive(), !head.contains("close"));
        writer.finish(body)
    };
    assert!(
        matches!(drain("Content-Length: 11\r\n"), Next::Close),
        "more than is worth reading"
    );
    let Next::Drain(drain_ten) = drain("Content-Length: 10\r\n") else {
        panic!("ten bytes are");
    };
    let (4, Drained::More(drain_ten)) = drain_ten.receive(b"0123") else {
        panic!("not all of it");
    };
    let (6, Drained::Idle(visitor)) = drain_ten.receive(b"456789GET /") else {
        panic!("all of it, and no more");
    };
    let (body, responder) = begin_on(visitor, GET);
    assert!(matches!(
        answer(&body, responder).0.finish(body),
        Next::Idle(_)
    ));
    let chunked = || match drain("Transfer-Encoding: chunked\r\n") {
        Next::Drain(drain) => drain,
        other => panic!("{other:?}"),
    };
    assert!(
        matches!(chunked().receive(b"3\r\nabc\r\n0\r\n"), (_, Drained::Close)),
        "eleven bytes"
    );
    assert!(matches!(
        chunked().receive(b"0\r\n\r\n"),
        (5, Drained::Idle(_))
    ));
    assert!(
        matches!(chunked().receive(b"x"), (0, Drained::Close)),
        "broken"
    );
}

#[test]
fn a_body_that_waited_in_vain_ends_the_connection() {
    let request = "PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n";
    let limits = Limits::default();
    let (body, responder) = begin(request, &limits);
    assert!(responder.awaits_continue());
    let (writer, head) = answer(&body, responder);
    assert!(
        head.contains("Connection: close"),
        "the next bytes may be either"
    );
    assert!(matches!(writer.finish(body), Next::Close));
    // With 100 it is sent for certain.
    let (body, mut responder) = begin(request, &limits);
    let mut out = Vec::new();
    responder
        .interim(100, &mut out)
        .expect("waited for")
        .finish();
    assert_eq!(text(&out), "HTTP/1.1 100 Continue\r\n\r\n");
    assert!(responder.interim(100, &mut out).is_none(), "once");
    let (writer, _) = answer(&body, responder);
    assert!(matches!(writer.finish(body), Next::Drain(_)));
    // Sent without waiting.
    let (mut body, responder) = begin(request, &limits);
    decode(body.decoder(), b"hi").expect("good");
    let (writer, _) = answer(&body, responder);
    assert!(matches!(writer.finish(body), Next::Idle(_)));
}

#[test]
fn interim_answers_go_to_those_who_understand_them() {
    let limits = Limits::default();
    let mut out = Vec::new();
    let (_, mut new) = begin(GET, &limits);
    let (_, mut old) = begin(OLD, &limits);
    for status in [100, 101, 200, 99] {
        assert!(new.interim(status, &mut out).is_none(), "{status}");
    }
    assert!(old.interim(103, &mut out).is_none());
    assert!(out.is_empty());
    let mut head = new.interim(103, &mut out).expect("for everybody");
    head.field(b"Link", b"</x>").expect("good");
    head.finish();
    assert_eq!(text(&out), "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n");
}

#[test]
fn an_answer_that_is_cut_short_ends_the_connection() {
    let limits = Limits::default();
    for content in [Framing::Length(2), Framing::Chunked] {
        let (body, responder) = begin(GET, &limits);
        let mut out = Vec::new();
        let head = responder
            .respond(&body, 200, b"", content, &mut out)
            .expect("good");
        let mut writer = head.finish();
        writer.encoder().data(1).expect("good");
        assert!(matches!(writer.finish(body), Next::Close), "{content:?}");
    }
}

#[test]
fn a_connection_ends_when_it_is_told_to() {
    let limits = Limits {
        requests: 2,
        ..Limits::default()
    };
    let (body, responder) = begin(GET, &limits);
    let Next::Idle(visitor) = answer(&body, responder).0.finish(body) else {
        panic!("one more is allowed");
    };
    let (body, responder) = begin_on(visitor, GET);
    let (writer, head) = answer(&body, responder);
    assert!(head.contains("Connection: close") && matches!(writer.finish(body), Next::Close));
    let (body, mut responder) = begin(GET, &Limits::default());
    responder.close();
    let (writer, head) = answer(&body, responder);
    assert!(head.contains("Connection: close") && matches!(writer.finish(body), Next::Close));
}

#[test]
fn only_what_was_asked_for_becomes_a_tunnel() {
    let limits = Limits::default();
    let upgrade = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    let connect = "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n";
    let tunnel = |request: &str, status: u16, protocol: &str| {
        let (body, responder) = begin(request, &limits);
        let mut out = Vec::new();
        let head = responder.tunnel(body, status, b"R", protocol.as_bytes(), &mut out);
        let _tunnel = head?.finish();
        Ok(text(&out).to_owned())
    };
    let agreed = "HTTP/1.1 101 R\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    assert_eq!(tunnel(upgrade, 101, "websocket").as_deref(), Ok(agreed));
    assert_eq!(
        tunnel(connect, 200, "").as_deref(),
        Ok("HTTP/1.1 200 R\r\n\r\n")
    );
    for (request, status, protocol) in [
        (GET, 101, "websocket"),
        (upgrade, 101, ""),
        (upgrade, 200, "websocket"),
        (connect, 101, "websocket"),
        (connect, 403, ""),
        (GET, 200, ""),
    ] {
        assert_eq!(
            tunnel(request, status, protocol),
            Err(WriteError::NoTunnel),
            "{request:?}"
        );
    }
    assert_eq!(tunnel(upgrade, 101, "a\r\nb"), Err(WriteError::Value));
}

#[test]
fn an_upstreams_answer_is_forwarded_as_its_visitor_needs_it() {
    let limits = Limits::default();
    let forward = |request: &str, answer: &str| {
        let mut head = h1::RequestHead::default();
        head.parse(request.as_bytes(), &limits).expect("good");
        let request = head.view(request.as_bytes()).expect("whole");
        let (body, responder) = h1::Visitor::new(&limits).begin(request);
        let line = RequestLine::of(request);
        let sent = Upstream::new(&limits)
            .send(&line, responder, &mut Vec::new())
            .finish();
        let mut head = ResponseHead::default();
        let len = head
            .parse(answer.as_bytes(), &limits)
            .expect("good")
            .expect("whole");
        let response = head.view(answer.as_bytes()).expect("whole");
        let Ok(Answer::Final {
            body: mut from,
            payload,
        }) = sent.awaiting.answer(response)
        else {
            panic!("an answer");
        };
        let mut out = Vec::new();
        let mut to = payload.forward(&body, response, &mut out).expect("good");
        to.copy(response.fields(), |field| field.known != h1::Known::Server);
        let mut writer = to.finish();
        let rest = &answer.as_bytes()[len..];
        let moved = writer
            .encoder()
            .relay_into(from.decoder(), rest, &mut out)
            .expect("good");
        if !moved.end {
            from.decoder()
                .end_of_input()
                .expect("until the connection ends");
            writer
                .encoder()
                .finish(from.decoder().trailers(), &mut out)
                .expect("complete");
        }
        text(&out).to_owned()
    };
    let length = "HTTP/1.1 200 OK\r\nServer: s\r\nA:  1\r\nContent-Length: 2\r\nConnection: x\r\nX: 1\r\n\r\nhi";
    assert_eq!(
        forward(GET, length),
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nA: 1\r\n\r\nhi"
    );
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n";
    assert_eq!(forward(HEAD, head), head);
    assert_eq!(
        forward(
            HEAD,
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        ),
        "HTTP/1.1 200 OK\r\n\r\n"
    );
    assert_eq!(
        forward(HEAD, "HTTP/1.1 200 OK\r\n\r\n"),
        "HTTP/1.1 200 OK\r\n\r\n"
    );
    let chunked =
        "HTTP/1.1 404 Not here\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nT: v\r\n\r\n";
    assert_eq!(forward(GET, chunked), chunked);
    assert_eq!(
        forward(OLD, chunked),
        "HTTP/1.1 404 Not here\r\nConnection: close\r\n\r\nhi"
    );
    let until_close = "HTTP/1.0 200 OK\r\n\r\nhi";
    let expected = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n";
    assert_eq!(forward(GET, until_close), expected);
    assert_eq!(
        forward(OLD, until_close),
        "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhi"
    );
    assert_eq!(
        forward(GET, "HTTP/1.1 304 N\r\nETag: x\r\n\r\n"),
        "HTTP/1.1 304 N\r\nETag: x\r\n\r\n"
    );
    assert_eq!(
        forward(GET, "HTTP/1.1 204 N\r\nContent-Length: 0\r\n\r\n"),
        "HTTP/1.1 204 N\r\n\r\n"
    );
}

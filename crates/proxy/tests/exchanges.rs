//! What passes between visitor and origin, and what does not.

mod common;

use std::{
    io::{Read, Write},
    net::Shutdown,
    thread,
    time::Duration,
};

use common::*;
use route::{Limits, Timeouts};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[test]
fn a_request_goes_on_without_what_was_for_the_proxy_and_with_who_sent_it() {
    let (origin, told) = Origin::answering(OK);
    let proxy = before(&origin);
    let request = b"GET /a?b=c HTTP/1.1\r\nHost: example.com\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nX-Forwarded-For: 6.6.6.6\r\n\
        X-Real-IP: 6.6.6.6\r\nForwarded: for=6.6.6.6\r\nTE: gzip\r\nUpgrade: h2c\r\nAccept: */*\r\n\r\n";
    let (answer, _) = exchange(&proxy, request);
    assert_eq!(
        text(&answer),
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
    );
    let seen = text(&told.recv_timeout(PATIENCE).expect("a request"));
    assert_eq!(
        seen,
        "GET /a?b=c HTTP/1.1\r\nHost: example.com\r\nAccept: */*\r\nx-forwarded-for: 127.0.0.1\r\nx-forwarded-proto: http\r\n\
         x-forwarded-host: example.com\r\nx-real-ip: 127.0.0.1\r\n\r\n"
    );
}

#[test]
fn requests_that_are_read_in_two_ways_reach_no_origin() {
    let (origin, told) = Origin::answering(OK);
    let proxy = before(&origin);
    let bad = [
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /x HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: a\n\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\n Host: a\r\n\r\n",
        "GET /a/%00 HTTP/1.1\r\nHost: a\r\n\r\n",
        "CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n",
        "GET / HTTP/3.0\r\nHost: a\r\n\r\n",
    ];
    for request in bad {
        let (answer, _) = exchange(
            &proxy,
            &[
                request,
                "GET /smuggled HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
            ]
            .concat()
            .into_bytes(),
        );
        let answer = text(&answer);
        let status = &answer[9..12];
        let refused = status.starts_with('4') || status.starts_with('5');
        assert!(refused, "{request:?}: {answer}");
        // A request that was understood and refused may be followed by another; one that was not may not.
        if !request.starts_with("CONNECT") && !request.contains("%00") {
            assert_eq!(
                answer.matches("HTTP/1.1 ").count(),
                1,
                "{request:?}: {answer}"
            );
            assert!(answer.contains("Connection: close\r\n"), "{answer}");
        }
    }
    while let Ok(seen) = told.try_recv() {
        assert!(text(&seen).starts_with("GET /smuggled"), "{}", text(&seen));
    }
}

#[test]
fn bad_chunks_end_the_exchange() {
    let (origin, told) = Origin::answering(OK);
    let proxy = before(&origin);
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    for body in [
        "5\r\nhelloX\r\n0\r\n\r\n",
        "zz\r\n",
        "5;\0\r\nhello\r\n0\r\n\r\n",
        "-1\r\n",
    ] {
        let (answer, _) = exchange(&proxy, [head, body].concat().as_bytes());
        assert!(
            text(&answer).starts_with("HTTP/1.1 400 "),
            "{body:?}: {}",
            text(&answer)
        );
    }
    assert!(
        told.try_recv().is_err(),
        "no whole request can have arrived"
    );
}

#[test]
fn chunks_and_trailers_pass_in_both_directions() {
    let (origin, told) = Origin::answering(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n002;x=y\r\nde\r\n0\r\nX-Sum: 1\r\nContent-Length: 9\r\n\r\n",
    );
    let proxy = before(&origin);
    let request = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4;ext\r\nwxyz\r\n0\r\nX-T: 2\r\nHost: b\r\n\r\n\
        GET /next HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let (answer, _) = exchange(&proxy, request);
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\nX-Sum: 1\r\n\r\n";
    let closing = chunked.replace("chunked\r\n", "chunked\r\nConnection: close\r\n");
    assert_eq!(text(&answer), [chunked, &closing].concat());
    let seen = text(&told.recv_timeout(PATIENCE).expect("a request"));
    assert!(
        seen.ends_with("\r\n\r\n4\r\nwxyz\r\n0\r\nX-T: 2\r\n\r\n"),
        "{seen}"
    );
    assert!(text(&told.recv_timeout(PATIENCE).expect("the next")).starts_with("GET /next "));
    assert_eq!(
        origin.accepted.load(std::sync::atomic::Ordering::SeqCst),
        1,
        "the connection was kept"
    );
}

/// Chunks of many sizes, some with lines that must not go on as they are: as sent, as they go on, and their data.
fn large_chunks() -> [Vec<u8>; 3] {
    let [mut sent, mut expected, mut data] = [Vec::new(), Vec::new(), Vec::new()];
    for (n, size) in (0u8..).zip([1000, 1, 255, 256, 257, 5000, 40_000, 300, 70_000, 3]) {
        let piece = vec![b'a' + n; size];
        let line = match n % 3 {
            0 => format!("{size:x}\r\n"),
            1 => format!("00{size:x}\r\n"),
            _ => format!("{size:x};x=y\r\n"),
        };
        sent.extend([line.as_bytes(), &piece, b"\r\n"].concat());
        expected.extend([format!("{size:x}\r\n").as_bytes(), &piece, b"\r\n"].concat());
        data.extend(piece);
    }
    sent.extend(b"0\r\nX-Sum: 1\r\n\r\n");
    expected.extend(b"0\r\nX-Sum: 1\r\n\r\n");
    [sent, expected, data]
}

#[test]
fn large_chunks_pass_in_both_directions_and_to_visitors_that_know_none() {
    let [sent, expected, data] = large_chunks();
    let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let answer: &'static [u8] = [&head[..], &sent].concat().leak();
    let (origin, told) = Origin::answering(answer);
    let proxy = before(&origin);
    let post = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let last = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let (got, clean) = exchange(&proxy, &[&post[..], &sent, last].concat());
    assert!(clean);
    let first = [&head[..], &expected].concat();
    assert!(got.starts_with(&first), "the first answer is whole");
    assert!(got[first.len()..].starts_with(b"HTTP/1.1 200 OK\r\n") && got.ends_with(&expected));
    let seen = told.recv_timeout(PATIENCE).expect("a request");
    assert!(
        seen.ends_with(&[b"\r\n\r\n", &expected[..]].concat()),
        "the request is whole"
    );
    let (got, _) = exchange(&proxy, b"GET / HTTP/1.0\r\n\r\n");
    assert!(
        got.ends_with(&[b"\r\n\r\n", &data[..]].concat()),
        "the data is whole"
    );
}

/// Bytes that tell where they are, and whose.
fn pattern(whose: usize, length: usize) -> Vec<u8> {
    let word = |n: usize| ((n * 31 + whose) as u32).to_le_bytes();
    (0..length / 4).flat_map(word).collect()
}

#[test]
fn more_large_bodies_than_there_are_large_buffers_pass_at_once_and_whole() {
    const LENGTH: usize = 4 << 20;
    const VISITORS: usize = 80;
    let origin = Origin::new(|mut stream, _| {
        while let Some(request) = read_message(&mut stream) {
            let whose = text(&request);
            let whose = whose.split([' ', '/']).nth(2).and_then(|n| n.parse().ok());
            let body = pattern(whose.expect("a number"), LENGTH);
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n");
            if stream
                .write_all(&[head.as_bytes(), &body].concat())
                .is_err()
            {
                return;
            }
        }
    });
    let proxy = before(&origin);
    // Each reads its head and lets the rest wait, so that all of them hold what the proxy gives them.
    let ask = |whose: usize| {
        let mut visitor = connect(&proxy);
        let request = format!("GET /{whose} HTTP/1.1\r\nHost: a\r\n\r\n");
        visitor.write_all(request.as_bytes()).expect("sent");
        let head = read_head(&mut visitor).expect("an answer");
        assert!(text(&head).starts_with("HTTP/1.1 200 OK\r\n"));
        visitor
    };
    let visitors: Vec<_> = (0..VISITORS).map(ask).collect();
    for (whose, mut visitor) in visitors.into_iter().enumerate() {
        let mut body = vec![0; LENGTH];
        visitor.read_exact(&mut body).expect("all of it");
        assert!(body == pattern(whose, LENGTH), "visitor {whose}");
    }
}

#[test]
fn requests_behind_a_large_upload_are_answered_in_turn() {
    let (origin, told) = Origin::answering(OK);
    let proxy = before(&origin);
    let body = pattern(1, 3 << 20);
    let head = format!(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let next = b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n".repeat(9);
    let last = b"GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let (answers, clean) = exchange(&proxy, &[head.as_bytes(), &body, &next, last].concat());
    assert!(clean);
    assert_eq!(text(&answers).matches("HTTP/1.1 200 OK").count(), 11);
    let first = told.recv_timeout(PATIENCE).expect("a request");
    assert!(first.ends_with(&body), "the upload is whole");
    for path in [vec!["/next"; 9], vec!["/last"]].concat() {
        let request = told.recv_timeout(PATIENCE).expect("a request");
        assert!(text(&request).starts_with(&format!("GET {path} ")));
    }
}

#[test]
fn an_http10_visitor_gets_a_body_without_chunks() {
    let (origin, _told) = Origin::answering(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    );
    let proxy = before(&origin);
    let (answer, clean) = exchange(&proxy, b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_eq!(
        text(&answer),
        "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabc"
    );
    assert!(clean);
}

#[test]
fn an_answer_that_ends_with_its_connection_is_put_into_chunks() {
    let origin = Origin::new(|mut stream, _| {
        let _ = read_message(&mut stream);
        let _ = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nall of it");
    });
    let proxy = before(&origin);
    let mut stream = connect(&proxy);
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .expect("sent");
    let answer = read_message(&mut stream).expect("an answer");
    assert_eq!(
        text(&answer),
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nall of it\r\n0\r\n\r\n"
    );
}

#[test]
fn requests_sent_ahead_are_answered_in_order() {
    let origin = Origin::new(|mut stream, _| {
        while let Some(request) = read_message(&mut stream) {
            let path = text(&request)
                .split(' ')
                .nth(1)
                .unwrap_or_default()
                .to_owned();
            if path == "/0" {
                thread::sleep(Duration::from_millis(50));
            }
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{path}",
                path.len()
            );
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    let proxy = before(&origin);
    let requests: String = (0..20)
        .map(|n| format!("GET /{n} HTTP/1.1\r\nHost: a\r\n\r\n"))
        .collect();
    let mut stream = connect(&proxy);
    stream.write_all(requests.as_bytes()).expect("sent");
    for n in 0..20 {
        let answer = text(&read_message(&mut stream).expect("an answer"));
        assert!(answer.ends_with(&format!("\r\n\r\n/{n}")), "{n}: {answer}");
    }
}

#[test]
fn interim_answers_pass_and_100_lets_the_body_come() {
    let origin = Origin::new(|mut stream, _| {
        let head = text(&read_head(&mut stream).expect("a head"));
        assert!(
            head.to_ascii_lowercase().contains("expect: 100-continue"),
            "{head}"
        );
        stream
            .write_all(
                b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n",
            )
            .expect("sent");
        let mut body = [0; 5];
        stream.read_exact(&mut body).expect("the body");
        stream
            .write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")
            .expect("sent");
    });
    let proxy = before(&origin);
    let mut stream = connect(&proxy);
    stream
        .write_all(
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n",
        )
        .expect("sent");
    assert_eq!(
        text(&read_head(&mut stream).expect("103")),
        "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    );
    assert_eq!(
        text(&read_head(&mut stream).expect("100")),
        "HTTP/1.1 100 Continue\r\n\r\n"
    );
    stream.write_all(b"hello").expect("sent");
    assert!(text(&read_head(&mut stream).expect("201")).starts_with("HTTP/1.1 201 Created\r\n"));
}

#[test]
fn an_early_answer_reaches_a_visitor_that_still_sends() {
    let origin = Origin::new(|mut stream, _| {
        let _ = read_head(&mut stream);
        let _ = stream.write_all(
            b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nno!",
        );
        let _ = stream.shutdown(Shutdown::Write);
        let mut unread = [0; 65536];
        while matches!(stream.read(&mut unread), Ok(1..)) {}
    });
    let proxy = before(&origin);
    let mut stream = connect(&proxy);
    stream
        .write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\nsome")
        .expect("sent");
    let answer = read_message(&mut stream).expect("an answer");
    assert!(text(&answer).ends_with("\r\n\r\nno!"), "{}", text(&answer));
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(rest.is_empty(), "nothing may follow");
}

#[test]
fn websockets_pass_with_their_first_bytes_and_half_closes() {
    let origin = Origin::new(|mut stream, _| {
        let head = text(&read_head(&mut stream).expect("a head")).to_ascii_lowercase();
        assert!(
            head.contains("connection: upgrade\r\nupgrade: websocket\r\n"),
            "{head}"
        );
        stream
            .write_all(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nfirst")
            .expect("sent");
        let mut all = Vec::new();
        stream.read_to_end(&mut all).expect("the visitor's bytes");
        stream.write_all(&all).expect("echoed");
    });
    let proxy = before(&origin);
    let mut stream = connect(&proxy);
    stream
        .write_all(b"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\nearly ")
        .expect("sent");
    let head = text(&read_head(&mut stream).expect("101"));
    assert!(
        head.starts_with("HTTP/1.1 101 ") && head.contains("Upgrade: websocket\r\n"),
        "{head}"
    );
    stream.write_all(b"late").expect("sent");
    stream.shutdown(Shutdown::Write).expect("half closed");
    let mut echoed = Vec::new();
    stream.read_to_end(&mut echoed).expect("a clean end");
    assert_eq!(text(&echoed), "firstearly late");
    await_metric(&proxy, "proxy_visitors_open", 0);
}

#[test]
fn an_upgrade_that_nobody_asked_for_is_no_tunnel() {
    let (origin, _told) =
        Origin::answering(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n");
    let proxy = before(&origin);
    let (answer, _) = exchange(
        &proxy,
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    );
    assert!(
        text(&answer).starts_with("HTTP/1.1 502 "),
        "{}",
        text(&answer)
    );
}

#[test]
fn limits_and_times_of_a_route_hold() {
    let origin = Origin::new(|mut stream, _| {
        let request = read_head(&mut stream);
        if request.is_some_and(|request| {
            text(&request).starts_with("GET /slow") || text(&request).starts_with("POST")
        }) {
            thread::sleep(PATIENCE);
        }
    });
    let mut limited = route();
    limited.limits = Limits {
        body_bytes: Some(4),
        ..Limits::default()
    };
    limited.timeouts = Timeouts {
        header: Duration::from_millis(300),
        body: Duration::from_millis(300),
        response: Duration::from_millis(300),
        keep_alive: Duration::from_millis(300),
        ..Timeouts::default()
    };
    let proxy = start(site(limited, vec![upstream(vec![server(origin.address)])]));
    for (request, status) in [
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
            "413",
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            "413",
        ),
        (
            "GET /slow HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
            "504",
        ),
        ("GET / HTTP/1.1\r\nHos", "408"),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nhe",
            "408",
        ),
    ] {
        let (answer, _) = exchange(&proxy, request.as_bytes());
        assert_eq!(
            text(&answer).get(9..12),
            Some(status),
            "{request:?}: {}",
            text(&answer)
        );
    }
    let (answer, clean) = exchange(&proxy, b"");
    assert!(
        answer.is_empty() && clean,
        "a connection without a request is just closed"
    );
}

#[test]
fn what_is_left_of_a_body_after_an_early_answer_is_read_and_the_next_request_served() {
    let early = Origin::new(|mut stream, _| {
        let _ = read_head(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno");
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let proxy = before(&early);
    let mut visitor = connect(&proxy);
    for _ in 0..2 {
        let head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 40000\r\n\r\n";
        visitor.write_all(head).expect("sent");
        let answer = text(&read_message(&mut visitor).expect("an answer"));
        assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
        assert!(!answer.contains("close"), "{answer}");
        visitor.write_all(&[b'x'; 40000]).expect("sent");
    }
    // Too much of it is not worth the wait.
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4000000\r\n\r\n";
    visitor.write_all(head).expect("sent");
    let answer = text(&read_message(&mut visitor).expect("an answer"));
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    let _ = visitor.write_all(&[b'x'; 200_000]);
    assert_eq!(visitor.read(&mut [0]).unwrap_or(0), 0, "it is closed");
}

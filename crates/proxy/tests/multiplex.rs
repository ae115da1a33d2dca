//! Requests that share a connection to their server: everybody gets the answer to what they asked, whatever becomes of the others.

mod common;

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::mpsc,
    thread,
    time::Duration,
};

use common::*;
use proxy::Proxy;
use rand::{Rng, SeedableRng, rngs::StdRng};
use route::{Action, Route, ToUpstream, UpstreamId};

/// A proxy whose one route shares connections.
fn sharing(origin: &Origin, behind: Duration) -> Proxy {
    let mut to = ToUpstream::new(UpstreamId(0));
    to.multiplex = true;
    let route = Route::new("all", Action::Upstream(to));
    let mut upstream = upstream(vec![server(origin.address)]);
    upstream.keep_alive.behind = behind;
    start(site(route, vec![upstream]))
}

fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes()
}

fn path_of(head: &[u8]) -> String {
    text(head)
        .split(' ')
        .nth(1)
        .expect("a request line")
        .to_owned()
}

fn answer(body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes()
}

/// A visitor whose request has been answered once, so that the proxy has a connection.
fn warmed(proxy: &Proxy) -> TcpStream {
    let mut visitor = connect(proxy);
    visitor.write_all(&get("/warm")).expect("sent");
    let got = read_message(&mut visitor).expect("an answer");
    assert!(text(&got).ends_with("/warm"), "{}", text(&got));
    visitor
}

#[test]
fn requests_of_one_moment_are_answered_over_one_connection_in_order() {
    let origin = Origin::new(|mut stream, n| {
        if n > 0 {
            // Whatever may not share comes here.
            while let Some(request) = read_message(&mut stream) {
                let _ = stream.write_all(&answer(&format!("alone {}", path_of(&request))));
            }
            return;
        }
        let warm = read_head(&mut stream).expect("a request");
        let _ = stream.write_all(&answer(&path_of(&warm)));
        // Nobody is answered before all have asked.
        let heads: Vec<_> = (0..8)
            .map(|_| read_head(&mut stream).expect("a request"))
            .collect();
        for head in heads {
            let _ = stream.write_all(&answer(&path_of(&head)));
        }
        let _ = stream.read(&mut [0]);
    });
    let proxy = sharing(&origin, PATIENCE);
    let _warm = warmed(&proxy);
    let mut visitors: Vec<_> = (0..8).map(|_| connect(&proxy)).collect();
    for (n, visitor) in visitors.iter_mut().enumerate() {
        visitor.write_all(&get(&format!("/{n}"))).expect("sent");
        if n == 4 {
            let mut other = connect(&proxy);
            let post = b"POST /post HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi";
            other.write_all(post).expect("sent");
            let got = read_message(&mut other).expect("an answer");
            assert!(text(&got).ends_with("alone /post"), "{}", text(&got));
        }
    }
    for (n, visitor) in visitors.iter_mut().enumerate() {
        let got = read_message(visitor).expect("an answer");
        assert!(
            text(&got).ends_with(&format!("\r\n\r\n/{n}")),
            "{}",
            text(&got)
        );
    }
    assert_eq!(origin.accepted.load(std::sync::atomic::Ordering::SeqCst), 2);
}

#[test]
fn who_got_no_answer_when_a_shared_connection_broke_is_served_on_another() {
    let origin = Origin::new(|mut stream, n| {
        if n > 0 {
            while let Some(request) = read_head(&mut stream) {
                let _ = stream.write_all(&answer(&format!("again {}", path_of(&request))));
            }
            return;
        }
        let warm = read_head(&mut stream).expect("a request");
        let _ = stream.write_all(&answer(&path_of(&warm)));
        let heads: Vec<_> = (0..4)
            .map(|_| path_of(&read_head(&mut stream).expect("a request")))
            .collect();
        let _ = stream.write_all(&answer(&heads[0]));
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\ncut");
        reset(stream);
    });
    let proxy = sharing(&origin, PATIENCE);
    let _warm = warmed(&proxy);
    let mut visitors: Vec<_> = (0..4).map(|_| connect(&proxy)).collect();
    for (n, visitor) in visitors.iter_mut().enumerate() {
        visitor.write_all(&get(&format!("/{n}"))).expect("sent");
    }
    let (mut first, mut cut, mut again) = (0, 0, 0);
    for (n, visitor) in visitors.iter_mut().enumerate() {
        match read_message(visitor).map(|got| text(&got)) {
            Some(got) if got.ends_with(&format!("\r\n\r\n/{n}")) => first += 1,
            Some(got) => {
                assert!(got.ends_with(&format!("again /{n}")), "{got}");
                again += 1;
            }
            None => cut += 1,
        }
    }
    // A reset may overtake what was sent before it, so that the first two may be sent again as well; the last two are never lost.
    assert_eq!(first + cut + again, 4);
    assert!(again >= 2 && cut <= 1, "{first} {cut} {again}");
}

/// What the origin says to a path, and how: `/FRAMING/LENGTH`.
fn framed(path: &str) -> (Vec<u8>, bool) {
    let mut parts = path.split('/').skip(1);
    let framing = parts.next().unwrap_or_default();
    let length: usize = parts
        .next()
        .and_then(|n| n.parse().ok())
        .unwrap_or_default();
    let body = body(length);
    let mut out = Vec::new();
    match framing {
        "length" => {
            out.extend_from_slice(
                format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n").as_bytes(),
            );
            out.extend_from_slice(&body);
        }
        "chunked" => {
            out.extend_from_slice(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
            for chunk in body.chunks(1000) {
                out.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                out.extend_from_slice(chunk);
                out.extend_from_slice(b"\r\n");
            }
            out.extend_from_slice(b"0\r\n\r\n");
        }
        "hints" => {
            out.extend_from_slice(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
            out.extend_from_slice(
                format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n").as_bytes(),
            );
            out.extend_from_slice(&body);
        }
        "head" => out.extend_from_slice(
            format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n").as_bytes(),
        ),
        "none" => out.extend_from_slice(b"HTTP/1.1 204 No Content\r\n\r\n"),
        "close" => {
            out.extend_from_slice(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
            out.extend_from_slice(&body);
            return (out, true);
        }
        other => panic!("no framing {other}"),
    }
    (out, false)
}

fn body(length: usize) -> Vec<u8> {
    (0..length).map(|n| b'a' + (n % 23) as u8).collect()
}

#[test]
fn everybody_gets_their_own_answer_however_answers_are_framed_and_cut() {
    let seed: u64 = std::env::var("SEED")
        .map_or_else(|_| rand::random(), |seed| seed.parse().expect("a number"));
    println!("replay with SEED={seed}");
    let origin = Origin::new(move |mut stream, n| {
        let mut rng = StdRng::seed_from_u64(seed ^ n as u64);
        while let Some(head) = read_head(&mut stream) {
            let (answer, ends) = framed(&path_of(&head));
            let mut rest = &answer[..];
            while !rest.is_empty() {
                let piece = rng.random_range(1..=rest.len().min(3000));
                if stream.write_all(&rest[..piece]).is_err() {
                    return;
                }
                rest = &rest[piece..];
            }
            if ends {
                // Requests that were sent ahead are unread: closing at once would reset the connection and take the answer along.
                let _ = stream.shutdown(std::net::Shutdown::Write);
                let _ = std::io::copy(&mut stream, &mut std::io::sink());
                return;
            }
        }
    });
    let proxy = sharing(&origin, PATIENCE);
    thread::scope(|scope| {
        for n in 0..24u64 {
            let address = proxy.addresses()[0];
            scope.spawn(move || visit(connect_to(address), seed ^ (n << 32)));
        }
    });
    let connections = origin.accepted.load(std::sync::atomic::Ordering::SeqCst);
    println!("{connections} connections for {} requests", 24 * ROUNDS);
    assert!(connections < 24 * ROUNDS / 4, "{connections} connections");
}

const ROUNDS: usize = 60;

fn visit(mut visitor: TcpStream, seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    for round in 0..ROUNDS {
        let framing = match rng.random_range(0..40) {
            0 => "close",
            1..8 => "head",
            8..12 => "none",
            12..15 => "hints",
            15..24 => "chunked",
            _ => "length",
        };
        let length = match rng.random_range(0..10) {
            0 => rng.random_range(0..200_000),
            _ => rng.random_range(0..2000),
        };
        let method = if framing == "head" { "HEAD" } else { "GET" };
        let request = format!("{method} /{framing}/{length} HTTP/1.1\r\nHost: a\r\n\r\n");
        visitor.write_all(request.as_bytes()).expect("sent");
        let mut head = text(&read_head(&mut visitor).expect("an answer"));
        if framing == "hints" {
            assert!(head.starts_with("HTTP/1.1 103 "), "{head}");
            head = text(&read_head(&mut visitor).expect("another answer"));
        }
        let good = match framing {
            "none" => head.starts_with("HTTP/1.1 204 "),
            _ => head.starts_with("HTTP/1.1 200 "),
        };
        assert!(good, "round {round}, {request:?}: {head}");
        let got = match framing {
            "none" | "head" => continue,
            "length" | "hints" => {
                let mut got = vec![0; length];
                visitor.read_exact(&mut got).expect("the body");
                got
            }
            _ => unchunked(&mut visitor),
        };
        assert_eq!(got.len(), length, "round {round}, {request:?}");
        assert!(got == body(length), "round {round}, {request:?}");
    }
}

fn unchunked(stream: &mut TcpStream) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let mut line = Vec::new();
        let mut byte = [0];
        while !line.ends_with(b"\r\n") {
            stream.read_exact(&mut byte).expect("a chunk's size");
            line.push(byte[0]);
        }
        let size = usize::from_str_radix(text(&line).trim_end(), 16).expect("a size");
        let mut chunk = vec![0; size + 2];
        stream.read_exact(&mut chunk).expect("a chunk");
        body.extend_from_slice(&chunk[..size]);
        if size == 0 {
            return body;
        }
    }
}

#[test]
fn nobody_is_put_behind_a_visitor_who_does_not_read() {
    const BIG: usize = 64 << 20;
    let (tell, told) = mpsc::channel();
    let origin = Origin::new(move |mut stream, _| {
        while let Some(head) = read_head(&mut stream) {
            let path = path_of(&head);
            if path != "/big" {
                let _ = stream.write_all(&answer(&path));
                continue;
            }
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {BIG}\r\n\r\n");
            let _ = stream.write_all(head.as_bytes());
            let _ = stream.set_write_timeout(Some(Duration::from_millis(200)));
            let piece = [b'x'; 64 << 10];
            let mut left = BIG;
            while left > 0 {
                match stream.write(&piece[..left.min(piece.len())]) {
                    Ok(n) => left -= n,
                    // Nobody takes any more.
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                        let _ = tell.send(());
                    }
                    Err(_) => return,
                }
            }
        }
    });
    let proxy = sharing(&origin, Duration::from_millis(300));
    let mut slow = warmed(&proxy);
    slow.write_all(&get("/big")).expect("sent");
    // One that came early stands behind it and is sent away; the others are not put there.
    let mut early = connect(&proxy);
    early.write_all(&get("/early")).expect("sent");
    let got = read_message(&mut early).expect("an answer");
    assert!(text(&got).ends_with("\r\n\r\n/early"), "{}", text(&got));
    told.recv_timeout(PATIENCE).expect("the answer waits");
    for n in 0..20 {
        let mut other = connect(&proxy);
        other.write_all(&get(&format!("/{n}"))).expect("sent");
        let got = read_message(&mut other).expect("an answer");
        assert!(
            text(&got).ends_with(&format!("\r\n\r\n/{n}")),
            "{}",
            text(&got)
        );
    }
    let head = read_head(&mut slow).expect("an answer");
    assert!(text(&head).starts_with("HTTP/1.1 200 "), "{}", text(&head));
    let mut left = BIG;
    let mut buffer = vec![0; 1 << 20];
    while left > 0 {
        let n = slow.read(&mut buffer).expect("the body");
        assert!(n > 0, "{left} bytes are missing");
        left -= n;
    }
}

#[test]
fn a_visitor_who_leaves_takes_nobody_along() {
    let (go, gate) = mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(gate);
    let (tell, told) = mpsc::channel();
    let origin = Origin::new(move |mut stream, _| {
        while let Some(head) = read_head(&mut stream) {
            let path = path_of(&head);
            if path == "/left" {
                let _ = tell.send(());
                let _ = gate.lock().expect("one at a time").recv_timeout(PATIENCE);
            }
            let long = "x".repeat(1 << 20);
            let _ = stream.write_all(&answer(if path == "/left" { &long } else { &path }));
        }
    });
    let proxy = sharing(&origin, PATIENCE);
    let mut stays = warmed(&proxy);
    let mut leaves = connect(&proxy);
    leaves.write_all(&get("/left")).expect("sent");
    told.recv_timeout(PATIENCE).expect("the request arrived");
    stays.write_all(&get("/stays")).expect("sent");
    await_metric(&proxy, "proxy_requests_total", 3);
    reset(leaves);
    go.send(()).expect("the origin waits");
    let got = read_message(&mut stays).expect("an answer");
    assert!(text(&got).ends_with("\r\n\r\n/stays"), "{}", text(&got));
    await_metric(&proxy, "proxy_visitors_lost_total", 1);
    assert_eq!(origin.accepted.load(std::sync::atomic::Ordering::SeqCst), 1);
}

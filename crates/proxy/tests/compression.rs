//! Answers that are compressed on their way.

mod common;

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
        mpsc,
    },
    time::Duration,
};

use common::*;
use proxy::Proxy;
use route::{Coding, Compress, HeaderEdits};

/// Compressible, and no two places alike.
fn prose(length: usize) -> Vec<u8> {
    let mut text = Vec::with_capacity(length + 64);
    for n in 0u64.. {
        if text.len() >= length {
            break;
        }
        let _ = writeln!(
            text,
            "line {n} of a text that says {} again",
            n * 7919 % 1000
        );
    }
    text.truncate(length);
    text
}

fn compressing(origin: &Origin) -> Proxy {
    let mut route = route();
    route.compress = Some(Arc::new(Compress::default()));
    start(site(route, vec![upstream(vec![server(origin.address)])]))
}

/// An origin that gives one answer to everything.
fn giving(head: &str, body: Vec<u8>) -> Origin {
    let answer = [head.as_bytes(), &body].concat();
    Origin::new(move |mut stream, _| {
        while let Some(request) = read_message(&mut stream) {
            let end = if request.starts_with(b"HEAD") {
                answer.len() - body.len()
            } else {
                answer.len()
            };
            if stream.write_all(&answer[..end]).is_err() {
                return;
            }
        }
    })
}

fn get(path: &str, fields: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n").into_bytes()
}

/// Head and body, out of its chunks.
fn parts(message: &[u8]) -> (String, Vec<u8>) {
    let at = message.windows(4).position(|four| four == b"\r\n\r\n");
    let (head, mut rest) = message.split_at(at.expect("a head") + 4);
    let head = text(head);
    if !head.contains("\r\nTransfer-Encoding: chunked\r\n") {
        return (head, rest.to_vec());
    }
    let mut body = Vec::new();
    loop {
        let line = rest
            .windows(2)
            .position(|two| two == b"\r\n")
            .expect("a line");
        let size = usize::from_str_radix(&text(&rest[..line]), 16).expect("a size");
        if size == 0 {
            return (head, body);
        }
        body.extend_from_slice(&rest[line + 2..line + 2 + size]);
        rest = &rest[line + 2 + size + 2..];
    }
}

fn decode(coding: Coding, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let read = match coding {
        Coding::Gzip => flate2::read::GzDecoder::new(bytes).read_to_end(&mut out),
        Coding::Brotli => brotli::Decompressor::new(bytes, 4096).read_to_end(&mut out),
        Coding::Zstd => zstd::stream::read::Decoder::new(bytes)
            .expect("a decoder")
            .read_to_end(&mut out),
    };
    read.expect("it can be decoded");
    out
}

const TEXT: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nETag: \"v1\"\r\nAccept-Ranges: bytes\r\nVary: Origin\r\n\
                    Content-Digest: sha-256=:AAAA:\r\n";

#[test]
fn what_comes_out_of_a_decoder_is_what_the_server_sent() {
    let body = prose(300_000);
    for framing in ["length", "chunks", "close"] {
        let (head, sent) = match framing {
            "length" => (
                format!("{TEXT}Content-Length: {}\r\n\r\n", body.len()),
                body.clone(),
            ),
            "chunks" => {
                let mut chunks = Vec::new();
                for piece in body.chunks(7777) {
                    let _ = write!(chunks, "{:x}\r\n", piece.len());
                    chunks.extend_from_slice(piece);
                    chunks.extend_from_slice(b"\r\n");
                }
                chunks.extend_from_slice(b"0\r\nX-Sum: 1\r\n\r\n");
                (format!("{TEXT}Transfer-Encoding: chunked\r\n\r\n"), chunks)
            }
            _ => (format!("{TEXT}Connection: close\r\n\r\n"), body.clone()),
        };
        let closes = framing == "close";
        let answer = [head.as_bytes(), &sent].concat();
        let origin = Origin::new(move |mut stream, _| {
            while read_message(&mut stream).is_some() {
                let _ = stream.write_all(&answer);
                if closes {
                    return;
                }
            }
        });
        let proxy = compressing(&origin);
        let mut visitor = connect(&proxy);
        for coding in Coding::ALL {
            let request = get("/", &format!("Accept-Encoding: {}\r\n", coding.as_str()));
            visitor.write_all(&request).expect("sent");
            let message = read_message(&mut visitor).expect("an answer");
            let (head, compressed) = parts(&message);
            assert!(decode(coding, &compressed) == body, "{framing} {coding:?}");
            assert!(compressed.len() < body.len() / 3, "{}", compressed.len());
            let line = format!("\r\nContent-Encoding: {}\r\n", coding.as_str());
            for field in [
                &line[..],
                "\r\nVary: Accept-Encoding\r\n",
                "\r\nVary: Origin\r\n",
                "\r\nETag: W/\"v1\"\r\n",
            ] {
                assert!(head.contains(field), "{field}: {head}");
            }
            for field in [
                "Content-Length",
                "Accept-Ranges",
                "Content-Digest",
                "ETag: \"v1\"",
            ] {
                assert!(!head.contains(field), "{field}: {head}");
            }
            let trailers = framing == "chunks";
            assert_eq!(text(&message).ends_with("0\r\nX-Sum: 1\r\n\r\n"), trailers);
        }
    }
}

#[test]
fn who_does_not_ask_gets_the_plain_answer_that_varies() {
    let body = prose(5000);
    let origin = giving(&format!("{TEXT}Content-Length: 5000\r\n\r\n"), body.clone());
    let proxy = compressing(&origin);
    for accept in [
        "",
        "Accept-Encoding: identity\r\n",
        "Accept-Encoding: gzip;q=0, *;q=0\r\n",
        "Accept-Encoding: compress\r\n",
    ] {
        let (answer, _) = exchange(&proxy, &get("/", &format!("{accept}Connection: close\r\n")));
        let (head, plain) = parts(&answer);
        assert!(plain == body, "{accept}");
        assert!(
            head.contains("\r\nVary: Accept-Encoding\r\n") && head.contains("\r\nETag: \"v1\"\r\n"),
            "{head}"
        );
        assert!(head.contains("\r\nContent-Length: 5000\r\n"), "{head}");
    }
}

#[test]
fn the_head_is_the_same_for_head_and_get() {
    let origin = giving(&format!("{TEXT}Content-Length: 5000\r\n\r\n"), prose(5000));
    let proxy = compressing(&origin);
    let mut visitor = connect(&proxy);
    for _ in 0..2 {
        visitor
            .write_all(b"HEAD / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n")
            .expect("sent");
        let head = text(&read_head(&mut visitor).expect("an answer"));
        assert!(
            head.contains("\r\nContent-Encoding: gzip\r\n")
                && head.contains("\r\nETag: W/\"v1\"\r\n"),
            "{head}"
        );
        assert!(!head.contains("Content-Length"), "{head}");
    }
    visitor
        .write_all(&get("/", "Accept-Encoding: gzip\r\n"))
        .expect("sent");
    let (_, body) = parts(&read_message(&mut visitor).expect("an answer"));
    assert!(decode(Coding::Gzip, &body) == prose(5000));
}

#[test]
fn what_may_not_be_compressed_passes_byte_for_byte() {
    let plain = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2000\r\n";
    for head in [
        plain.replace("text/plain", "image/png"),
        format!("{plain}Content-Encoding: gzip\r\n"),
        format!("{plain}Cache-Control: max-age=1, no-transform\r\n"),
        plain.replace("200 OK", "206 Partial Content") + "Content-Range: bytes 0-1999/9999\r\n",
        plain.replace("Content-Type: text/plain\r\n", ""),
    ] {
        let body = prose(2000);
        let origin = giving(&format!("{head}\r\n"), body.clone());
        let proxy = compressing(&origin);
        let (answer, _) = exchange(
            &proxy,
            &get(
                "/",
                "Accept-Encoding: gzip, br, zstd\r\nConnection: close\r\n",
            ),
        );
        let (found, passed) = parts(&answer);
        assert!(passed == body, "{head}");
        assert!(
            found.contains("Content-Length: 2000\r\n") && !found.contains("Vary"),
            "{found}"
        );
    }
    let origin = giving(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\n",
        b"short".to_vec(),
    );
    let (answer, _) = exchange(
        &compressing(&origin),
        &get("/", "Accept-Encoding: gzip\r\nConnection: close\r\n"),
    );
    assert!(
        text(&answer).ends_with("\r\n\r\nshort"),
        "{}",
        text(&answer)
    );
}

#[test]
fn an_event_arrives_while_the_stream_is_open() {
    for coding in Coding::ALL {
        let (seen, wait) = mpsc::channel::<()>();
        let wait = std::sync::Mutex::new(wait);
        let origin = Origin::new(move |mut stream, _| {
            read_message(&mut stream);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
            for _ in 0..3 {
                let _ = stream.write_all(b"d\r\ndata: hello\n\n\r\n");
                // The next one is sent when the visitor has this one.
                let _ = wait.lock().expect("not poisoned").recv_timeout(PATIENCE);
            }
            let _ = stream.write_all(b"0\r\n\r\n");
        });
        let proxy = compressing(&origin);
        let mut visitor = connect(&proxy);
        visitor
            .write_all(&get(
                "/",
                &format!("Accept-Encoding: {}\r\n", coding.as_str()),
            ))
            .expect("sent");
        let head = text(&read_head(&mut visitor).expect("a head"));
        assert!(head.contains("Content-Encoding"), "{head}");
        let chunks = Chunks { visitor, left: 0 };
        let mut decoder: Box<dyn Read> = match coding {
            Coding::Gzip => Box::new(flate2::read::GzDecoder::new(chunks)),
            Coding::Brotli => Box::new(brotli::Decompressor::new(chunks, 64)),
            Coding::Zstd => Box::new(zstd::stream::read::Decoder::new(chunks).expect("a decoder")),
        };
        for _ in 0..3 {
            let mut event = [0; 13];
            decoder
                .read_exact(&mut event)
                .expect("an event before the stream ends");
            assert_eq!(&event, b"data: hello\n\n");
            seen.send(()).expect("the origin waits");
        }
    }
}

/// Reads what is in chunks, a byte at most at a time where framing is concerned: it never waits for more than there is.
struct Chunks {
    visitor: TcpStream,
    left: usize,
}

impl Read for Chunks {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let mut byte = [0];
        if self.left == 0 {
            let mut line = String::new();
            loop {
                self.visitor.read_exact(&mut byte)?;
                match byte[0] {
                    b'\r' => {}
                    b'\n' if line.is_empty() => {}
                    b'\n' => break,
                    digit => line.push(char::from(digit)),
                }
            }
            self.left = usize::from_str_radix(&line, 16).expect("a size");
        }
        let room = buffer.len().min(self.left);
        let n = self.visitor.read(&mut buffer[..room])?;
        self.left -= n;
        Ok(n)
    }
}

#[test]
fn a_body_that_is_cut_off_is_not_taken_for_whole() {
    let origin = Origin::new(|mut stream, _| {
        read_message(&mut stream);
        let _ = stream.write_all(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 100000\r\n\r\n",
        );
        let _ = stream.write_all(&prose(50_000));
        let _ = stream.shutdown(Shutdown::Write);
        let _ = stream.read(&mut [0]);
    });
    for coding in Coding::ALL {
        let request = get("/", &format!("Accept-Encoding: {}\r\n", coding.as_str()));
        let (answer, clean) = exchange(&compressing(&origin), &request);
        assert!(!clean || !answer.ends_with(b"0\r\n\r\n"), "{coding:?}");
    }
}

#[test]
fn a_visitor_that_does_not_read_stops_the_server_and_nothing_grows() {
    let sent = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&sent);
    let origin = Origin::new(move |mut stream, _| {
        read_message(&mut stream);
        let _ = stream.set_write_timeout(Some(Duration::from_secs(1)));
        let _ = stream.write_all(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n",
        );
        // Random bytes: the encoders make nothing of them.
        let mut state = 1u64;
        let mut noise = vec![0; 65536];
        loop {
            for byte in &mut noise {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                *byte = (state >> 56) as u8;
            }
            if stream.write_all(b"10000\r\n").is_err()
                || stream.write_all(&noise).is_err()
                || stream.write_all(b"\r\n").is_err()
            {
                return;
            }
            count.fetch_add(65536, SeqCst);
        }
    });
    let proxy = compressing(&origin);
    let mut visitor = connect(&proxy);
    visitor
        .write_all(&get("/", "Accept-Encoding: gzip\r\n"))
        .expect("sent");
    read_head(&mut visitor).expect("a head");
    let mut before = u64::MAX;
    while before != sent.load(SeqCst) {
        before = sent.load(SeqCst);
        assert!(before < 64 << 20, "{before} bytes went somewhere");
        std::thread::sleep(Duration::from_millis(500));
    }
    // Others are served meanwhile.
    let mut other = connect(&proxy);
    other
        .write_all(&get("/", "Accept-Encoding: br\r\n"))
        .expect("sent");
    read_head(&mut other).expect("a head");
}

#[test]
fn what_the_route_says_of_fields_holds_for_compressed_answers_too() {
    let origin = giving(&format!("{TEXT}Content-Length: 5000\r\n\r\n"), prose(5000));
    let mut route = route();
    route.compress = Some(Arc::new(Compress::default()));
    route.response_headers = HeaderEdits::new([("etag", "\"mine\"")], [], ["vary"]).expect("edits");
    let proxy = start(site(route, vec![upstream(vec![server(origin.address)])]));
    let (answer, _) = exchange(
        &proxy,
        &get("/", "Accept-Encoding: br\r\nConnection: close\r\n"),
    );
    let (head, _) = parts(&answer);
    assert!(
        head.contains("\r\netag: \"mine\"\r\n") && !head.contains("W/"),
        "{head}"
    );
    assert!(
        head.contains("\r\nVary: Accept-Encoding\r\n") && !head.contains("Origin"),
        "{head}"
    );
}

#[test]
fn via_is_written_both_ways_where_it_is_wanted() {
    let (origin, told) =
        Origin::answering(b"HTTP/1.1 200 OK\r\nVia: 1.1 inner\r\nContent-Length: 2\r\n\r\nok");
    let mut site = site(route(), vec![upstream(vec![server(origin.address)])]);
    site.via = true;
    let proxy = start(site);
    let (answer, _) = exchange(
        &proxy,
        b"GET / HTTP/1.0\r\nHost: a\r\nVia: 1.1 outer\r\n\r\n",
    );
    let seen = text(&told.recv_timeout(PATIENCE).expect("a request"));
    assert!(
        seen.contains("\r\nVia: 1.1 outer\r\n") && seen.contains("\r\nvia: 1.0 gt\r\n"),
        "{seen}"
    );
    let answer = text(&answer);
    assert!(
        answer.contains("\r\nVia: 1.1 inner\r\nVia: 1.1 gt\r\n"),
        "{answer}"
    );
}

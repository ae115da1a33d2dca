//! What the head of a usual request costs: parsed and written anew with two fields more, beside httparse, which only parses. Prints nanoseconds, judges
//! nothing: `cargo bench -p h1`. With an argument (`h1` or `httparse`) it runs that one 100,000 times and prints nothing, for callgrind.

use std::{hint::black_box, time::Instant};

use h1::{Limits, RequestHead, RequestLine, Upstream, Visitor};

const REQUEST: &[u8] = b"GET /api/v1/items?page=2&size=50 HTTP/1.1\r\n\
    Host: app.example.com\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n\
    Accept-Language: en-US,en;q=0.5\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\n\
    Connection: keep-alive\r\n\
    Cookie: session=0123456789abcdef0123456789abcdef; theme=dark\r\n\
    Referer: https://app.example.com/\r\n\r\n";

fn main() {
    const RUNS: u32 = 100_000;
    match std::env::args().nth(1).as_deref() {
        Some("h1") => return rewrite(RUNS),
        Some("httparse") => return parse_only(RUNS),
        _ => {}
    }
    for (name, run) in [
        ("h1: parse and rewrite", rewrite as fn(u32)),
        ("httparse: parse", parse_only),
    ] {
        let best = (0..9).map(|_| {
            let started = Instant::now();
            run(RUNS);
            started.elapsed().as_nanos() / u128::from(RUNS)
        });
        println!("{name:<24} {:>5} ns", best.min().unwrap_or_default());
    }
}

fn rewrite(runs: u32) {
    let limits = Limits::default();
    let mut head = RequestHead::default();
    let mut out = Vec::with_capacity(4096);
    for _ in 0..runs {
        head.clear();
        out.clear();
        let parsed = head.parse(black_box(REQUEST), &limits);
        assert_eq!(parsed, Ok(Some(REQUEST.len())));
        let Some(request) = head.view(REQUEST) else {
            return;
        };
        let (body, responder) = Visitor::new(&limits).begin(request);
        let line = RequestLine::of(request);
        let mut writer = Upstream::new(&limits).send(&line, responder, &mut out);
        writer.copy(request.fields(), |field| !field.known.is_forwarding());
        let added = [
            (&b"X-Real-IP"[..], &b"192.0.2.1"[..]),
            (b"X-Forwarded-For", b"192.0.2.1"),
        ];
        for (name, value) in added {
            assert_eq!(writer.field(name, value), Ok(()));
        }
        black_box((writer.finish(), body));
        black_box(&out);
    }
}

fn parse_only(runs: u32) {
    for _ in 0..runs {
        let mut fields = [httparse::EMPTY_HEADER; 100];
        let mut request = httparse::Request::new(&mut fields);
        let parsed = request.parse(black_box(REQUEST));
        assert_eq!(parsed, Ok(httparse::Status::Complete(REQUEST.len())));
        black_box(&request);
    }
}

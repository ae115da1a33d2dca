//! Heads that are read one behind the other by one parser, which compares each with the one before: whatever came before, each reads and is
//! written as it would be by a parser that has seen nothing else.

mod common;

use common::{for_seeds, growing};
use h1::{Limits, RequestHead, RequestLine, ResponseHead, Upstream, Version, Visitor};
use rand::{Rng, rngs::StdRng, seq::IndexedRandom};

/// Field lines, of which some break a rule and some break one only beside others.
const LINES: [&str; 32] = [
    "Host: a\r\n",
    "Host: b.example.com:80\r\n",
    "host: a\r\n",
    "Host:a\r\n",
    "Host: a \r\n",
    "Connection: keep-alive\r\n",
    "Connection: close\r\n",
    "Connection: x-a, upgrade\r\n",
    "Connection: te\r\n",
    "Upgrade: websocket\r\n",
    "Content-Length: 2\r\n",
    "Content-Length: 3\r\n",
    "Content_Length: 3\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: gzip\r\n",
    "X-A: 1\r\n",
    "X-A: 12\r\n",
    "x-a:\t1\r\n",
    "X-A:\r\n",
    "X-Forwarded-For: 1\r\n",
    "X_Forwarded_For: 1\r\n",
    "TE: trailers\r\n",
    "Expect: 100-continue\r\n",
    "Accept: */*\r\n",
    "Cookie: a=b; c=d\r\n",
    "Cookie: a=b; c=e\r\n",
    "Server: x\r\n",
    "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
    "Date: Sun, 06 Nov 1994 08:49:38 GMT\r\n",
    "No colon\r\n",
    " folded\r\n",
    "X-B: a\x01b\r\n",
];

/// The lines of the next head, made of the last one's.
fn next(lines: &mut Vec<String>, rng: &mut StdRng) {
    for _ in 0..rng.random_range(0..3) {
        let at = rng.random_range(0..=lines.len());
        let line = match rng.random_range(0..40) {
            // Some heads are longer than what is kept.
            0 => format!("X-Long: {}\r\n", "l".repeat(rng.random_range(1000..3000))),
            _ => (*LINES.choose(rng).expect("some")).to_owned(),
        };
        match rng.random_range(0..3) {
            0 => lines.insert(at, line),
            1 if at < lines.len() => lines[at] = line,
            _ if at < lines.len() => drop(lines.remove(at)),
            _ => {}
        }
    }
    // Otherwise most heads would come to be wrong, and stay so.
    lines.retain(|line| LINES[..29].contains(&line.as_str()) || rng.random_bool(0.5));
}

/// Those that hold for one head: a configuration may change between two.
fn limits(rng: &mut StdRng) -> Limits {
    let usual = Limits::default();
    match rng.random_range(0..6) {
        0 => Limits { fields: 3, ..usual },
        1 => Limits { head: 60, ..usual },
        2 => Limits { target: 3, ..usual },
        _ => usual,
    }
}

/// Shows it what there is, whole or in pieces.
fn read<E: PartialEq + Copy>(
    bytes: &[u8],
    ends: &[usize],
    mut parse: impl FnMut(&[u8]) -> Result<Option<usize>, E>,
) -> Result<Option<usize>, E> {
    let mut answer = Ok(None);
    for end in ends {
        answer = parse(&bytes[..*end]);
        if answer != Ok(None) {
            break;
        }
    }
    answer
}

/// All that a request says, and how it is written.
fn request_says(head: &RequestHead, bytes: &[u8]) -> Option<String> {
    let request = head.view(bytes)?;
    let limits = Limits::default();
    let (body, responder) = Visitor::new(&limits).begin(request);
    let mut out = Vec::new();
    let line = RequestLine::of(request);
    let mut writer = Upstream::new(&limits).send(&line, responder, &mut out);
    writer.copy(request.fields(), |field| field.name != b"X-A");
    drop(writer.finish().awaiting.abandon());
    let fields: Vec<_> = request.fields().all().collect();
    let travel: Vec<_> = request.fields().end_to_end().collect();
    Some(format!(
        "{:?} {:?} {:?} {:?} {fields:?} {travel:?} {:?} {} {:?} {} {} {body:?} {}",
        request.method(),
        request.raw_target(),
        request.authority(),
        request.port(),
        request.framing(),
        request.keep_alive(),
        request.upgrade(),
        request.expects_continue(),
        request.accepts_trailers(),
        String::from_utf8_lossy(&out),
    ))
}

/// All that an answer says, and how it is passed on.
fn response_says(head: &ResponseHead, bytes: &[u8]) -> Option<String> {
    let response = head.view(bytes)?;
    let limits = Limits::default();
    let mut asked = RequestHead::default();
    let get = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    assert!(matches!(asked.parse(get, &limits), Ok(Some(_))));
    let (body, responder) = Visitor::new(&limits).begin(asked.view(get).expect("a whole head"));
    let mut out = Vec::new();
    if let Ok(mut writer) = responder.forward(&body, response, &mut out) {
        writer.copy(response.fields(), |field| field.name != b"X-A");
        let _ = writer.finish();
    }
    let fields: Vec<_> = response.fields().all().collect();
    let travel: Vec<_> = response.fields().end_to_end().collect();
    Some(format!(
        "{} {:?} {:?} {fields:?} {travel:?} {:?} {} {:?} {:?} {}",
        response.status(),
        response.reason(),
        response.version() == Version::Http11,
        response.framing(),
        response.keep_alive(),
        response.content_length(),
        response.upgrade(),
        String::from_utf8_lossy(&out),
    ))
}

#[test]
fn a_request_reads_the_same_whatever_came_before_it() {
    const STARTS: [&str; 6] = [
        "GET / HTTP/1.1\r\n",
        "GET /a?b HTTP/1.1\r\n",
        "POST /longer/than/that HTTP/1.1\r\n",
        "GET http://a/ HTTP/1.1\r\n",
        "GET / HTTP/1.0\r\n",
        "GET  / HTTP/1.1\r\n",
    ];
    let whole = std::cell::Cell::new(0u32);
    for_seeds(3000, |rng| {
        let mut head = RequestHead::default();
        let mut start = STARTS[0];
        let mut lines = vec![
            LINES[0].to_owned(),
            LINES[15].to_owned(),
            LINES[23].to_owned(),
        ];
        for _ in 0..12 {
            if rng.random_bool(0.5) {
                start = STARTS.choose(rng).expect("some");
            }
            let limits = limits(rng);
            let text = format!("{start}{}\r\nbehind", lines.concat()).into_bytes();
            let ends = growing(text.len(), rng);
            let mut fresh = RequestHead::default();
            head.clear();
            let alone = fresh.parse(&text, &limits);
            let behind = read(&text, &ends, |bytes| head.parse(bytes, &limits));
            assert_eq!(alone, behind, "{}", String::from_utf8_lossy(&text));
            assert_eq!(request_says(&fresh, &text), request_says(&head, &text));
            whole.set(whole.get() + u32::from(matches!(alone, Ok(Some(_)))));
            next(&mut lines, rng);
        }
    });
    assert!(whole.get() > 0 || std::env::var("GT_SEED").is_ok());
}

#[test]
fn an_answer_reads_the_same_whatever_came_before_it() {
    const STARTS: [&str; 6] = [
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 404 Not Found\r\n",
        "HTTP/1.1 200\r\n",
        "HTTP/1.1 200 \r\n",
        "HTTP/1.0 200 OK\r\n",
        "HTTP/1.1 20 OK\r\n",
    ];
    let whole = std::cell::Cell::new(0u32);
    for_seeds(3000, |rng| {
        let mut head = ResponseHead::default();
        let mut start = STARTS[0];
        let mut lines = vec![
            LINES[26].to_owned(),
            LINES[27].to_owned(),
            LINES[10].to_owned(),
        ];
        for _ in 0..12 {
            if rng.random_bool(0.5) {
                start = STARTS.choose(rng).expect("some");
            }
            let limits = limits(rng);
            let text = format!("{start}{}\r\nbehind", lines.concat()).into_bytes();
            let ends = growing(text.len(), rng);
            let mut fresh = ResponseHead::default();
            head.clear();
            let alone = fresh.parse(&text, &limits);
            let behind = read(&text, &ends, |bytes| head.parse(bytes, &limits));
            assert_eq!(alone, behind, "{}", String::from_utf8_lossy(&text));
            assert_eq!(response_says(&fresh, &text), response_says(&head, &text));
            whole.set(whole.get() + u32::from(matches!(alone, Ok(Some(_)))));
            next(&mut lines, rng);
        }
    });
    assert!(whole.get() > 0 || std::env::var("GT_SEED").is_ok());
}

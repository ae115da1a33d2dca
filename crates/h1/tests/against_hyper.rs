//! What is accepted here, hyper accepts and reads the same: every request of a pipeline with its body and trailers, and every answer. hyper takes
//! more than is taken here; never less.

mod common;

use std::{cell::RefCell, convert::Infallible, rc::Rc, time::Duration};

use common::for_seeds;
use h1::{
    Answer, BodyDecoder, Framing, Limits, RequestHead, RequestLine, ResponseHead, Upstream, Visitor,
};
use http_body_util::{BodyExt, Empty, Full};
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use rand::{Rng, rngs::StdRng, seq::IndexedRandom};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

/// What two readers of a message have to agree on.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    /// Method and target, or the status.
    start: String,
    fields: Vec<(String, Vec<u8>)>,
    data: Vec<u8>,
    trailers: Vec<(String, Vec<u8>)>,
}

fn sorted<'a>(fields: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Vec<(String, Vec<u8>)> {
    let lower = |name: &[u8]| String::from_utf8_lossy(name).to_ascii_lowercase();
    let mut list: Vec<_> = fields
        .map(|(name, value)| (lower(name), value.to_vec()))
        .collect();
    list.sort();
    list
}

/// What is data, and how much was taken; `None` unless the body is good and complete.
fn read_body(decoder: &mut BodyDecoder, input: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (data, consumed) = common::decode(decoder, input).ok()?;
    if !decoder.is_complete() {
        decoder.end_of_input().ok()?;
    }
    Some((data, consumed))
}

/// The requests that are accepted here, up to the first that is not.
fn our_requests(mut bytes: &[u8]) -> Vec<Seen> {
    let limits = Limits::default();
    let mut seen = Vec::new();
    let mut head = RequestHead::default();
    loop {
        head.clear();
        let Ok(Some(len)) = head.parse(bytes, &limits) else {
            return seen;
        };
        let request = head.view(bytes).expect("a whole head");
        let (mut body, _responder) = Visitor::new(&limits).begin(request);
        let Some((data, consumed)) = read_body(body.decoder(), &bytes[len..]) else {
            return seen;
        };
        let text = |part| String::from_utf8_lossy(part).into_owned();
        seen.push(Seen {
            start: format!("{} {}", text(request.method()), text(request.raw_target())),
            fields: sorted(
                request
                    .fields()
                    .all()
                    .map(|field| (field.name, field.value)),
            ),
            data,
            trailers: sorted(body.decoder().trailers().iter()),
        });
        if request.upgrade().is_some() || request.method() == b"CONNECT" || !request.keep_alive() {
            return seen;
        }
        bytes = &bytes[len + consumed..];
    }
}

async fn hyper_body(body: Incoming) -> Option<(Vec<u8>, Vec<(String, Vec<u8>)>)> {
    let collected = body.collect().await.ok()?;
    let trailers = collected.trailers().cloned().unwrap_or_default();
    let trailers = sorted(
        trailers
            .iter()
            .map(|(name, value)| (name.as_ref(), value.as_bytes())),
    );
    Some((collected.to_bytes().to_vec(), trailers))
}

async fn hyper_requests(bytes: &[u8]) -> Vec<Seen> {
    let (mut ours, theirs) = duplex(1 << 20);
    let seen = Rc::new(RefCell::new(Vec::new()));
    let service = service_fn(|request: Request<Incoming>| {
        let seen = seen.clone();
        async move {
            let (parts, body) = request.into_parts();
            let start = format!("{} {}", parts.method, parts.uri);
            let fields = parts.headers.iter();
            let fields = sorted(fields.map(|(name, value)| (name.as_ref(), value.as_bytes())));
            if let Some((data, trailers)) = hyper_body(body).await {
                seen.borrow_mut().push(Seen {
                    start,
                    fields,
                    data,
                    trailers,
                });
            }
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::new())))
        }
    });
    let serve = hyper::server::conn::http1::Builder::new()
        .half_close(true)
        .serve_connection(TokioIo::new(theirs), service);
    let send = async {
        ours.write_all(bytes).await.expect("room for all of it");
        ours.shutdown().await.expect("open");
        let mut answers = Vec::new();
        // hyper closes when it has had enough.
        let _ = ours.read_to_end(&mut answers).await;
    };
    let _ = tokio::join!(serve, send);
    seen.take()
}

/// Runs what hyper has to say to an end, however it goes.
fn wait<R>(future: impl Future<Output = R>) -> R {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    let limited = async { tokio::time::timeout(Duration::from_secs(20), future).await };
    runtime
        .expect("a runtime")
        .block_on(limited)
        .expect("hyper comes to an end")
}

/// hyper leaves fields out that may not be trailers; which ones differs a little.
fn without_forbidden(mut seen: Seen, ours: &Seen) -> Seen {
    seen.trailers.retain(|field| ours.trailers.contains(field));
    seen
}

fn chunks(rng: &mut StdRng, wrong: bool) -> Vec<u8> {
    const GOOD: [&str; 5] = [
        "3\r\nabc\r\n",
        "1\r\nx\r\n",
        "00a\r\n0123456789\r\n",
        "A;x=1\r\n0123456789\r\n",
        "2;a;b=\"c\"\r\n\r\n\r\n",
    ];
    const WRONG: [&str; 10] = [
        "3\nabc\n",
        "3 \r\nabc\r\n",
        "g\r\n",
        "3\r\nabcd\r\n",
        "0x1\r\na\r\n",
        "-1\r\n",
        "1;\0\r\na\r\n",
        "1\r\na\n",
        ";\r\n",
        "FFFFFFFFFFFFFFFFF\r\n",
    ];
    let mut out = Vec::new();
    for _ in 0..rng.random_range(0..4) {
        let list = if wrong && rng.random_ratio(1, 4) {
            &WRONG[..]
        } else {
            &GOOD
        };
        out.extend_from_slice(list.choose(rng).expect("some").as_bytes());
    }
    out.extend_from_slice(b"0\r\n");
    out.extend_from_slice(
        ["", "", "X-T: 1\r\n", "X-T: 1\r\nX-U:\r\n"]
            .choose(rng)
            .expect("some")
            .as_bytes(),
    );
    out.extend_from_slice(b"\r\n");
    out
}

fn fields(rng: &mut StdRng, wrong: bool, out: &mut Vec<u8>) {
    const GOOD: [&str; 8] = [
        "Accept: */*\r\n",
        "X-A:\tb c\t\r\n",
        "X-Empty:\r\n",
        "Cookie: a=\"\u{e4}\"; b\r\n",
        "User-Agent: x\r\n",
        "X_Y: z\r\n",
        "Via: 1.1 a\r\n",
        "TE: trailers\r\n",
    ];
    const WRONG: [&str; 22] = [
        "Content-Length: 1\r\n",
        "Content-Length: 2, 2\r\n",
        "Content-Length: +2\r\n",
        "Content-Length:\r\n",
        "Content-Length: 1 \r\n",
        "Transfer-Encoding: chunked\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: \x0bchunked\r\n",
        "Transfer-Encoding : chunked\r\n",
        "transfer-encoding:chunked\r\n",
        " Transfer-Encoding: chunked\r\n",
        "Host: other\r\n",
        "Host:\r\n",
        "X: a\rb\r\n",
        "X: a\nY: b\r\n",
        "X\0: 1\r\n",
        "X: \0\r\n",
        ": x\r\n",
        "x\r\n",
        "\r\n",
        "Connection: close\r\n",
    ];
    for _ in 0..rng.random_range(0..4) {
        let list = if wrong && rng.random_ratio(1, 3) {
            &WRONG[..]
        } else {
            &GOOD
        };
        out.extend_from_slice(list.choose(rng).expect("some").as_bytes());
    }
}

fn message(rng: &mut StdRng, wrong: bool, start: &str) -> Vec<u8> {
    let mut out = start.as_bytes().to_vec();
    fields(rng, wrong, &mut out);
    match rng.random_range(0..3) {
        0 => out.extend_from_slice(b"Content-Length: 0\r\n\r\n"),
        1 => {
            let data: Vec<u8> = (0..rng.random_range(1..50)).map(|_| rng.random()).collect();
            out.extend_from_slice(format!("Content-Length: {}\r\n\r\n", data.len()).as_bytes());
            out.extend_from_slice(&data);
        }
        _ => {
            out.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
            out.extend_from_slice(&chunks(rng, wrong));
        }
    }
    if wrong && rng.random_ratio(1, 5) {
        let at = rng.random_range(0..out.len());
        out[at] = *b"\0\r\n :;\t\x7f\xff0".choose(rng).expect("some");
    }
    out
}

fn pipeline(rng: &mut StdRng, wrong: bool) -> (Vec<u8>, usize) {
    const STARTS: [&str; 6] = [
        "GET /a?b=c HTTP/1.1\r\nHost: h\r\n",
        "POST / HTTP/1.1\r\nhOsT: h:80\r\n",
        "PUT http://h/x?y HTTP/1.1\r\nHost: h\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: h\r\n",
        "\r\nHEAD /%20 HTTP/1.1\r\nHost: [::1]:8\r\n",
        "M-SEARCH /|{} HTTP/1.1\r\nHost: h\r\n",
    ];
    let count = rng.random_range(1..4);
    let mut out = Vec::new();
    for _ in 0..count {
        let start = STARTS.choose(rng).expect("some");
        out.extend_from_slice(&message(rng, wrong, start));
    }
    (out, count)
}

#[test]
fn good_requests_are_read_alike() {
    for_seeds(1500, |rng| {
        let (bytes, count) = pipeline(rng, false);
        let ours = our_requests(&bytes);
        let theirs = wait(hyper_requests(&bytes));
        let text = String::from_utf8_lossy(&bytes);
        assert_eq!(ours.len(), count, "{text:?}");
        assert_eq!(ours, theirs, "{text:?}");
    });
}

#[test]
fn odd_requests_are_refused_or_read_alike() {
    let agreed = std::cell::Cell::new((0, 0));
    for_seeds(4000, |rng| {
        let (bytes, count) = pipeline(rng, true);
        let ours = our_requests(&bytes);
        let theirs = wait(hyper_requests(&bytes));
        let text = String::from_utf8_lossy(&bytes);
        assert!(
            theirs.len() >= ours.len(),
            "accepted here only: {text:?}\n{ours:?}\n{theirs:?}"
        );
        for (ours, theirs) in ours.iter().zip(theirs) {
            assert_eq!(*ours, without_forbidden(theirs, ours), "{text:?}");
        }
        let (all, refused) = agreed.get();
        agreed.set((all + 1, refused + usize::from(ours.len() < count)));
    });
    let (all, refused) = agreed.get();
    assert!(
        all < 100 || (refused > all / 10 && refused < all),
        "{refused} of {all} were refused"
    );
}

/// The answer as it is accepted here.
fn our_answer(method: &str, mut bytes: &[u8]) -> Option<Seen> {
    let limits = Limits::default();
    let line = RequestLine::new(method.as_bytes(), b"/", b"h", Framing::None).expect("good");
    let mut awaiting = Upstream::new(&limits)
        .send(&line, (), &mut Vec::new())
        .finish()
        .awaiting;
    let mut head = ResponseHead::default();
    loop {
        head.clear();
        let len = head.parse(bytes, &limits).ok().flatten()?;
        let response = head.view(bytes)?;
        bytes = &bytes[len..];
        match awaiting.answer(response).ok()? {
            Answer::Interim(again) => awaiting = again,
            Answer::Tunnel { .. } => return None,
            Answer::Final { mut body, .. } => {
                let (data, _) = read_body(body.decoder(), bytes)?;
                return Some(Seen {
                    start: response.status().to_string(),
                    fields: sorted(
                        response
                            .fields()
                            .all()
                            .map(|field| (field.name, field.value)),
                    ),
                    data,
                    trailers: sorted(body.decoder().trailers().iter()),
                });
            }
        }
    }
}

/// The origin that says just this once it was asked.
async fn origin(mut socket: DuplexStream, bytes: &[u8]) {
    let mut asked = [0; 1000];
    let n = socket.read(&mut asked).await.expect("open");
    assert!(asked[..n].ends_with(b"\r\n\r\n"));
    // hyper may have closed when it has had enough.
    let _ = socket.write_all(bytes).await;
    let _ = socket.shutdown().await;
}

async fn hyper_answer(method: &str, bytes: &[u8]) -> Option<Seen> {
    let (ours, theirs) = duplex(1 << 20);
    let handshake = hyper::client::conn::http1::handshake::<_, Empty<Bytes>>(TokioIo::new(theirs));
    let (mut sender, connection) = handshake.await.expect("no bytes needed");
    let request = Request::builder()
        .method(method)
        .uri("/")
        .header("Host", "h");
    let request = request.body(Empty::new()).expect("good");
    let ask = async move {
        let (parts, body) = sender.send_request(request).await.ok()?.into_parts();
        let (data, trailers) = hyper_body(body).await?;
        let fields = parts.headers.iter();
        Some(Seen {
            start: parts.status.as_str().to_owned(),
            fields: sorted(fields.map(|(name, value)| (name.as_ref(), value.as_bytes()))),
            data,
            trailers,
        })
    };
    let (_, _, seen) = tokio::join!(connection, origin(ours, bytes), ask);
    seen
}

#[test]
fn answers_are_refused_or_read_alike() {
    const STARTS: [&str; 7] = [
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 404 Not \u{e4} found\r\n",
        "HTTP/1.0 200 OK\r\n",
        "HTTP/1.1 204 No\r\n",
        "HTTP/1.1 304 Not Modified\r\n",
        "HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 500 \r\n",
        "HTTP/1.1 100\r\n\r\nHTTP/1.1 201\r\n",
    ];
    let accepted = std::cell::Cell::new((0, 0));
    for_seeds(5000, |rng| {
        let wrong = rng.random();
        let method = *["GET", "GET", "POST", "HEAD"].choose(rng).expect("some");
        let start = *STARTS.choose(rng).expect("some");
        let mut bytes = message(rng, wrong, start);
        if rng.random_ratio(1, 8) {
            bytes = format!("{start}\r\nuntil the end").into_bytes();
        }
        let text = String::from_utf8_lossy(&bytes);
        let ours = our_answer(method, &bytes);
        let theirs = wait(hyper_answer(method, &bytes));
        let (all, good) = accepted.get();
        accepted.set((all + 1, good + u32::from(ours.is_some())));
        let Some(ours) = ours else {
            return;
        };
        let theirs =
            theirs.unwrap_or_else(|| panic!("accepted here only: {method} {text:?}\n{ours:?}"));
        assert_eq!(ours, without_forbidden(theirs, &ours), "{method} {text:?}");
    });
    let (all, good) = accepted.get();
    assert!(
        all < 100 || (good > all / 4 && good < all),
        "{good} of {all} were accepted"
    );
}

//! Heads as httparse reads them: what is accepted here, it accepts and reads the same; what it accepts and is refused here, is
//! refused for one of the reasons that this crate adds.

mod common;

use common::{for_seeds, mutate};
use rand::{Rng, rngs::StdRng, seq::IndexedRandom};
use sniff::http::{Flaw, HeadError, HeadSniffer, Limits, Version};

const WORDS: [&[u8]; 16] = [
    b"\r\n",
    b"\n",
    b"\r",
    b":",
    b" ",
    b"\t",
    b"\0",
    b"\x7F",
    b"\xC3\xA4",
    b"HTTP/1.1",
    b"HTTP/1.0",
    b"Host: b\r\n",
    b"\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"X : y\r\n",
    b"\r\n ",
];

fn request(rng: &mut StdRng) -> Vec<u8> {
    let method = ["GET", "POST", "OPTIONS", "CONNECT", "M-SEARCH", "x!"]
        .choose(rng)
        .expect("some");
    let target = [
        "/",
        "*",
        "/a/b?c=d",
        "http://h.example:80/x",
        "h:1",
        "/\u{e4}",
        "/%00",
    ]
    .choose(rng)
    .expect("some");
    let version = if rng.random_ratio(4, 5) {
        "HTTP/1.1"
    } else {
        "HTTP/1.0"
    };
    let mut out = format!("{method} {target} {version}\r\n").into_bytes();
    for _ in 0..rng.random_range(0..6) {
        let line: &[u8] = [
            &b"Host: h.example\r\n"[..],
            b"hOst:h\r\n",
            b"Accept: */*\r\n",
            b"X-Empty:\r\n",
            b"X-Space: \t \r\n",
            b"Cookie: a=b; c=\"\xFF\"\r\n",
            b"Content-Length: 12\r\n",
            b"Connection: close \t\r\n",
            b"A:\tb\tc\r\n",
        ]
        .choose(rng)
        .copied()
        .expect("some");
        out.extend_from_slice(line);
    }
    out.extend_from_slice(b"\r\nbody");
    out
}

/// The reasons to refuse that httparse does not have.
fn is_own_rule(error: HeadError) -> bool {
    matches!(
        error,
        HeadError::NoHost
            | HeadError::SeveralHosts
            | HeadError::BadHost(_)
            | HeadError::HostMismatch
            | HeadError::Malformed(Flaw::BareLf | Flaw::Target | Flaw::RequestLine)
    )
}

#[test]
fn both_read_the_same() {
    let accepted = std::cell::Cell::new(0);
    for_seeds(60_000, |rng| {
        let mut bytes = request(rng);
        if rng.random_ratio(2, 3) {
            mutate(&mut bytes, rng, &WORDS);
        }
        let mut slots = [httparse::EMPTY_HEADER; 100];
        let mut theirs = httparse::Request::new(&mut slots);
        let result = theirs.parse(&bytes);
        let mut sniffer = HeadSniffer::new(Limits::default());
        let shown = bytes.escape_ascii().to_string();
        match common::feed(&bytes, rng, |b| sniffer.advance(b)) {
            Ok(Some(head)) => {
                accepted.set(accepted.get() + 1);
                assert_eq!(
                    result,
                    Ok(httparse::Status::Complete(head.len())),
                    "{shown}"
                );
                assert_eq!(
                    theirs.method.map(str::as_bytes),
                    Some(head.method(&bytes)),
                    "{shown}"
                );
                assert_eq!(
                    theirs.path.map(str::as_bytes),
                    Some(head.target(&bytes)),
                    "{shown}"
                );
                assert_eq!(
                    theirs.version,
                    Some(u8::from(head.version() == Version::Http11)),
                    "{shown}"
                );
                let ours: Vec<_> = head.fields(&bytes).map(|f| (f.name, f.value)).collect();
                let theirs: Vec<_> = theirs
                    .headers
                    .iter()
                    .map(|h| (h.name.as_bytes(), h.value))
                    .collect();
                assert_eq!(ours, theirs, "{shown}");
            }
            Ok(None) => {
                assert!(
                    !matches!(result, Ok(httparse::Status::Complete(_))),
                    "{shown}"
                );
                if result.is_err() {
                    // It told a broken line before its end; here the line's end tells it.
                    let closed = [&bytes[..], b"\r\n\r\n"].concat();
                    assert!(sniffer.advance(&closed).is_err(), "{shown}");
                }
            }
            Err(error) => assert!(
                is_own_rule(error) || result.is_err(),
                "{error:?} {result:?} {shown}"
            ),
        }
    });
    if std::env::var_os("GT_SEED").is_none() {
        assert!(
            accepted.get() > 10_000,
            "most inputs should not be garbage: {}",
            accepted.get()
        );
    }
}

//! What `classify` says about first bytes.

mod common;

use common::for_seeds;
use rand::Rng;
use sniff::{Classified, MAX_CLASSIFY, classify};

const MAGIC: &[u8] = b"\xF7gt1";

#[test]
fn each_protocol_is_told_at_its_first_telling_byte() {
    let cases: [(&[u8], usize, Classified); 16] = [
        (b"\xF7gt1hello", 4, Classified::Link),
        (b"\x16\x03\x01\x02\x00", 2, Classified::Tls),
        (b"GET / HTTP/1.1\r\n", 4, Classified::Http1),
        (b"\r\nGET / HTTP/1.1\r\n", 6, Classified::Http1),
        (b"PROXY /x HTTP/1.1\r\n", 7, Classified::Http1),
        (b"PROXY TCP4 1.2.3.4", 11, Classified::ProxyV1),
        (b"PROXY TCP4://x/ HTTP/1.1", 11, Classified::Http1),
        (b"PROXY UNKNOWN\r\n", 13, Classified::ProxyV1),
        (
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            12,
            Classified::Http2Preface,
        ),
        (b"PRI * HTTP/1.1\r\n", 12, Classified::Http1),
        (b"PRINT / HTTP/1.1\r\n", 6, Classified::Http1),
        (b"\r\n\r\n\0\r\nQUIT\n\x21\x11", 12, Classified::ProxyV2),
        (b"SSH-2.0-OpenSSH_9.9\r\n", 8, Classified::Ssh),
        (b"SSH / HTTP/1.1", 4, Classified::Http1),
        (b"\x80\x2e\x01\x03\x01", 1, Classified::Unknown),
        (b"\x16\x02", 2, Classified::Unknown),
    ];
    for (bytes, needed, answer) in cases {
        for n in 0..=bytes.len() {
            let expected = if n < needed {
                Classified::NeedMore
            } else {
                answer
            };
            assert_eq!(
                classify(&bytes[..n], MAGIC),
                expected,
                "{:?}",
                bytes[..n].escape_ascii().to_string()
            );
        }
    }
}

#[test]
fn nothing_is_undecided_for_long() {
    assert_eq!(
        classify(&[b'A'; MAX_CLASSIFY - 1], MAGIC),
        Classified::Unknown
    );
    assert_eq!(
        classify(b"\r\n\r\nAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", MAGIC),
        Classified::NeedMore
    );
    assert_eq!(
        classify(b"\r\n\r\nAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA ", MAGIC),
        Classified::Http1
    );
    assert_eq!(
        classify(b"\r\n\r\nAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", MAGIC),
        Classified::Unknown
    );
}

#[test]
fn without_a_magic_there_are_no_links_and_a_magic_comes_first() {
    assert_eq!(classify(MAGIC, b""), Classified::Unknown);
    assert_eq!(classify(b"GE", b"GET /gt"), Classified::NeedMore);
    assert_eq!(classify(b"GET /", b"GET /gt"), Classified::NeedMore);
    assert_eq!(classify(b"GET /x", b"GET /gt"), Classified::Http1);
}

#[test]
fn a_decision_is_never_taken_back() {
    for_seeds(20_000, |rng| {
        let starts: [&[u8]; 8] = [
            b"",
            b"PROXY ",
            b"PRI * HT",
            b"\r\n\r\n\0\r\n",
            b"SSH-",
            b"\r\n",
            b"\x16",
            b"\xF7g",
        ];
        let mut bytes = starts[rng.random_range(0..starts.len())].to_vec();
        let alphabet = b"\r\nGETPROXY TCP46SSH-2.0-*/\x16\x03\xF7gt1\0";
        for _ in 0..50 {
            bytes.push(alphabet[rng.random_range(0..alphabet.len())]);
        }
        let end = classify(&bytes, MAGIC);
        assert_ne!(end, Classified::NeedMore);
        let mut decided = false;
        for n in 0..=bytes.len() {
            match classify(&bytes[..n], MAGIC) {
                Classified::NeedMore => assert!(!decided),
                answer => {
                    decided = true;
                    assert_eq!(answer, end);
                }
            }
        }
    });
}

//! Hosts as crate `sniff` reads them, which routes by the same field before a request is parsed: what is accepted here is one there.

mod common;

use common::{for_seeds, parse_request};
use rand::{Rng, seq::IndexedRandom};
use sniff::host::Authority;

#[test]
fn a_host_that_is_accepted_is_one_for_the_sniffer_too() {
    const PARTS: [&str; 24] = [
        "a",
        "B",
        "0",
        "-",
        "_",
        ".",
        "..",
        ":",
        ":80",
        ":65536",
        ":+1",
        "[",
        "]",
        "::1",
        "1.2.3.4",
        "%41",
        "@",
        "/",
        " ",
        "~",
        "\u{e4}",
        "example.com",
        "a23456789012345678901234567890123456789012345678901234567890123",
        "x.",
    ];
    let both = std::cell::Cell::new(0);
    for_seeds(20_000, |rng| {
        let text: String = (0..rng.random_range(1..6))
            .map(|_| *PARTS.choose(rng).expect("some"))
            .collect();
        let request = format!("GET / HTTP/1.1\r\nHost: {text}\r\n\r\n");
        let here = parse_request(request.as_bytes()).is_ok();
        let there = Authority::parse(text.trim());
        assert!(!here || there.is_ok(), "{text:?}: {there:?}");
        // Empty ports are the one thing that only the sniffer takes.
        assert!(
            here || there.is_err() || text.trim().ends_with(':'),
            "{text:?}: {there:?}"
        );
        both.set(both.get() + u32::from(here));
    });
    assert!(both.get() != 0 || std::env::var("GT_SEED").is_ok());
}

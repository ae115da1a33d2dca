//! Replays the committed corpora through the fuzz checks, so that a finding stays found.

use std::{fs, path::Path};

fn replay(target: &str, check: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(target);
    let mut inputs = 0;
    for entry in fs::read_dir(&corpus).expect("the corpus is committed") {
        let path = entry.expect("a readable folder").path();
        eprintln!("{}", path.display());
        check(&fs::read(&path).expect("a readable input"));
        inputs += 1;
    }
    assert!(inputs > 0, "no corpus in {}", corpus.display());
}

#[test]
fn mux() {
    replay("mux", fuzz_checks::mux::check);
}

#[test]
fn smux() {
    replay("smux", fuzz_checks::smux::check);
}

#[test]
fn datagram_fec() {
    replay("datagram_fec", fuzz_checks::datagram_fec::check);
}

#[test]
fn tunnel() {
    replay("tunnel", fuzz_checks::tunnel::check);
}

#[test]
fn sniff() {
    replay("sniff", fuzz_checks::sniff::check);
}

#[test]
fn config() {
    replay("config", fuzz_checks::config::check);
}

#[test]
fn kcp() {
    replay("kcp", fuzz_checks::kcp::check);
}

#[test]
fn kcp_secure() {
    replay("kcp_secure", fuzz_checks::kcp_secure::check);
}

#[test]
fn h1_request() {
    replay("h1_request", fuzz_checks::h1::check_request);
}

#[test]
fn h1_response() {
    replay("h1_response", fuzz_checks::h1::check_response);
}

#[test]
fn h1_body() {
    replay("h1_body", fuzz_checks::h1::check_body);
}

#[test]
fn ws() {
    replay("ws", fuzz_checks::ws::check);
}

#[test]
fn route() {
    replay("route", fuzz_checks::route::check);
}

#[test]
fn h3_frames() {
    replay("h3_frames", fuzz_checks::h3::check_frames);
}

#[test]
fn h3_section() {
    replay("h3_section", fuzz_checks::h3::check_section);
}

#[test]
fn h3_huffman() {
    replay("h3_huffman", fuzz_checks::h3::check_huffman);
}

#[test]
fn h3_datagram() {
    replay("h3_datagram", fuzz_checks::h3::check_datagram);
}

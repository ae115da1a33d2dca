//! h2spec against the HTTP/2 side of the proxy, over TLS and by prior knowledge.

use std::{net::SocketAddr, process::Command};

use e2e::{Cert, Process, Service, TempDir};

use crate::tools;

/// On the port that it shares with HTTP/1.
#[test]
fn h2spec_finds_nothing_in_clear_text() {
    if !tools::has_go() {
        return;
    }
    let (gt, _service) = start("");
    let (said, failures) = h2spec(address(&gt), &[]);
    assert!(
        said.contains("146 tests, 146 passed, 0 skipped, 0 failed"),
        "{failures}"
    );
}

#[test]
fn h2spec_finds_nothing_over_tls() {
    if !tools::has_go() {
        return;
    }
    let cert = Cert::self_signed(&["localhost", "127.0.0.1"]);
    let (chain, key) = (cert.cert_file(), cert.key_file());
    let files = format!(
        ", certFile: {}, keyFile: {}",
        chain.display(),
        key.display()
    );
    let (gt, _service) = start(&files);
    let (said, failures) = h2spec(address(&gt), &["--tls", "--insecure"]);
    assert!(
        said.contains("146 tests, 146 passed, 0 skipped, 0 failed"),
        "{failures}"
    );
}

fn start(more: &str) -> (Process, Service) {
    let service = Service::http(|exchange| {
        exchange.discard()?;
        exchange.respond(200, "a body that is long enough to be cut into frames")
    });
    let dir = TempDir::new();
    let text = format!(
        "type: proxy\nproxy:\n  listeners: [{{addr: \"127.0.0.1:0\"{more}}}]\n  routes: [{{to: \"{}\"}}]\n",
        service.address()
    );
    let file = dir.file("proxy.yml", text);
    let gt = Process::gt(
        "gt",
        ["proxy".as_ref(), "-c".as_ref(), file.as_os_str()],
        dir,
    );
    (gt, service)
}

fn address(gt: &Process) -> SocketAddr {
    let line = gt.wait_log(&["listening", "option=\"listeners\""]);
    let text = line
        .split("address=")
        .nth(1)
        .and_then(|text| text.split_whitespace().next());
    text.and_then(|text| text.parse().ok()).expect("an address")
}

/// All that it says, and its words on failures. With its strict cases: 146 in all.
fn h2spec(at: SocketAddr, more: &[&str]) -> (String, String) {
    let mut command = Command::new(tools::h2spec());
    command
        .args([
            "--strict",
            "--host",
            "127.0.0.1",
            "--port",
            &at.port().to_string(),
        ])
        .args(more);
    let output = command.output().expect("h2spec runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let failures = said.split("Failures:").nth(1).unwrap_or(&said).to_owned();
    (said, failures)
}

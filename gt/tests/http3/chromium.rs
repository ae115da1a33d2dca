//! A browser: HTTP/3 at once where it is told to, by Alt-Svc where it is not; requests and a WebSocket of a page; a relayed service.

use std::{path::PathBuf, time::Instant};

use e2e::{Cert, PATIENCE, ServerSpec, Transport};
use serde_json::json;

use crate::{HOST, Site, browser::Browser, certificate, key_digest, listener, listening, pages};

fn chromium() -> Option<PathBuf> {
    e2e::tools::wanted("chromium", "Debian's chromium")
}

/// A browser that asks the host over QUIC at this port; it takes a certificate of nobody's for any port of that host then.
fn browser(chromium: &std::path::Path, cert: &Cert, quic_port: u16) -> Browser {
    let forced = format!("--origin-to-force-quic-on={HOST}:{quic_port}");
    Browser::start(chromium, HOST, &key_digest(cert), &[forced])
}

#[test]
fn a_page_and_its_requests_come_over_http3() {
    let Some(chromium) = chromium() else { return };
    let site = Site::start();
    let port = site.address.port();
    let mut browser = browser(&chromium, &site.cert, port);
    browser.open(&format!("https://{HOST}:{port}/"));
    assert_eq!(browser.protocol(), "h3");
    assert_eq!(
        browser.run("document.querySelector('p').textContent"),
        "a page"
    );
    // Thirty at once, of all lengths, and what was sent comes back.
    let many = "(async () => {
        const lengths = [...Array(30).keys()].map(n => n * n * 1000);
        const answers = await Promise.all(lengths.map(n => fetch('/bytes/' + n).then(a => a.arrayBuffer())));
        return answers.every((answer, n) => answer.byteLength == lengths[n]);
    })()";
    assert_eq!(browser.run(many), json!(true));
    let post =
        "fetch('/length', {method: 'POST', body: new Uint8Array(3000000)}).then(a => a.text())";
    assert_eq!(browser.run(post), "3000000");
    let delete = "fetch('/echo', {method: 'DELETE', body: 'it'}).then(a => a.text())";
    assert_eq!(browser.run(delete), "DELETE it");
    // Of a length that is not said before.
    let streamed = "(async () => {
        const parts = new ReadableStream({
            start(control) { for (const n of 'abcdef') control.enqueue(new TextEncoder().encode(n.repeat(1000))); control.close(); }
        });
        const answer = await fetch('/length', {method: 'POST', body: parts, duplex: 'half'});
        return answer.text();
    })()";
    assert_eq!(browser.run(streamed), "6000");
    let protocols = "[...new Set(performance.getEntriesByType('resource').map(entry => entry.nextHopProtocol))]";
    assert_eq!(browser.run(protocols), json!(["h3"]));
    // What it gives up is given up, and no more.
    let cancelled = "(async () => {
        const stop = new AbortController();
        const answer = await fetch('/bytes/50000000', {signal: stop.signal});
        stop.abort();
        return (await fetch('/bytes/7')).text();
    })()";
    assert_eq!(browser.run(cancelled), "xxxxxxx");
    assert_eq!(browser.run(WEBSOCKET), json!("grüße 100000"));
}

#[test]
fn a_page_moves_to_http3_when_it_is_told() {
    let Some(chromium) = chromium() else { return };
    let site = Site::start();
    let port = site.address.port();
    let url = format!("https://{HOST}:{port}/");
    let mut browser = browser(&chromium, &site.cert, 1);
    browser.open(&url);
    assert_eq!(browser.protocol(), "h2");
    let deadline = Instant::now() + PATIENCE * 3;
    while browser.protocol() != "h3" {
        assert!(
            Instant::now() < deadline,
            "it stays with TCP\n{}",
            site.gt.log()
        );
        browser.open(&url);
    }
    assert_eq!(browser.run(WEBSOCKET), json!("grüße 100000"));
}

#[test]
fn a_relayed_service_comes_over_http3() {
    let Some(chromium) = chromium() else { return };
    let (cert, pages) = (certificate(), pages());
    let server = ServerSpec::new()
        .user("web")
        .proxy(&format!(
            "{{listeners: [{}], routes: [{{host: {HOST}, service: web}}]}}",
            listener(&cert)
        ))
        .start();
    let port = listening(&server.process).port();
    let _client = server
        .client(Transport::Quic, "web")
        .service(pages.url("http"), "mode: http")
        .start_up();
    let mut browser = browser(&chromium, &cert, port);
    browser.open(&format!("https://{HOST}:{port}/"));
    assert_eq!(browser.protocol(), "h3");
    let post =
        "fetch('/length', {method: 'POST', body: new Uint8Array(1000000)}).then(a => a.text())";
    assert_eq!(browser.run(post), "1000000");
    let get = "fetch('/bytes/1000000').then(a => a.arrayBuffer()).then(a => a.byteLength)";
    assert_eq!(browser.run(get), json!(1_000_000));
}

const WEBSOCKET: &str = "new Promise((done, failed) => {
    const socket = new WebSocket(`wss://${location.host}/chat`);
    let first;
    socket.onerror = () => failed(new Error('no WebSocket'));
    socket.onopen = () => { socket.binaryType = 'arraybuffer'; socket.send('grüße'); };
    socket.onmessage = event => {
        if (typeof event.data == 'string') { first = event.data; socket.send(new Uint8Array(100000)); }
        else { done(`${first} ${event.data.byteLength}`); socket.close(); }
    };
})";

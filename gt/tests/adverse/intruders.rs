//! What comes from the open internet: scans, noise, the wrong protocol at the wrong port, peers that stall. Each gets a clear answer
//! or a close; nothing grows, little is logged, and the service goes on.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use e2e::{Client, HttpConn, Server, ServerSpec, Transport, http, pattern::Pattern, wait};

use crate::{
    origin::Origin,
    process::{descriptors, raise_files, wait_descriptors},
    raw,
};

/// A server with one client that serves, and what the server held when nobody was there.
struct Scene {
    server: Server,
    client: Client,
    api: SocketAddr,
    descriptors: usize,
    lines: usize,
}

impl Scene {
    fn new(spec: ServerSpec) -> Self {
        let origin = Origin::http();
        let server = spec
            .user("web")
            .option("apiAddr", "\"127.0.0.1:0\"")
            .start();
        let line = server
            .process
            .wait_log(&["listening", "option=\"apiAddr\""]);
        let api = e2e::relay::field(&line, "address").and_then(|address| address.parse().ok());
        let client = server
            .client(Transport::Tcp, "web")
            .service(format!("http://{}", origin.address()), "")
            .start_up();
        http::get_until(server.http(), "web.test", "/", 200);
        // The first visit is over on both sides.
        let mut before = usize::MAX;
        wait::until("the server is at rest", || {
            let now = descriptors(&server.process);
            let rest = now == std::mem::replace(&mut before, now);
            std::thread::sleep(Duration::from_millis(100));
            rest.then_some(())
        });
        let lines = server.process.log().lines().count();
        Self {
            descriptors: descriptors(&server.process),
            api: api.expect("an address"),
            server,
            client,
            lines,
        }
    }

    /// Everything is as it was: descriptors, gauges, the service, the link; and no more than `lines` new lines, none above info.
    #[track_caller]
    fn assert_at_rest(self, lines: usize) {
        wait_descriptors(&self.server.process, self.descriptors);
        for gauge in [
            "gt_visitors_open",
            "gt_streams_open",
            "gt_handshakes_open",
            "gt_pending_open",
        ] {
            wait::until(&format!("{gauge} is 0"), || {
                (self.gauge(gauge) == 0).then_some(())
            });
        }
        assert_eq!(self.gauge("gt_sessions_open"), 1);
        let response = http::get(self.server.http(), "web.test", "/").expect("an answer");
        assert_eq!(response.text(), "hello");
        assert_eq!(self.client.process.count_log(&["a link was lost"]), 0);
        let log = self.server.process.log();
        let new: Vec<&str> = log.lines().skip(self.lines).collect();
        assert!(
            new.len() <= lines,
            "{} lines:\n{}",
            new.len(),
            new.join("\n")
        );
        let loud = |line: &&&str| line.contains("WARN") || line.contains("ERROR");
        assert_eq!(new.iter().find(loud), None);
    }

    fn gauge(&self, name: &str) -> u64 {
        let metrics = http::get(self.api, "localhost", "/metrics").expect("metrics");
        assert_eq!(metrics.status, 200);
        let text = metrics.text();
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        value.unwrap_or_else(|| panic!("no {name} in\n{text}"))
    }

    fn ports(&self) -> [SocketAddr; 3] {
        [self.server.http(), self.server.https(), self.server.sni()]
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    http::connect(address).expect("accepts")
}

/// All that comes until the end, orderly or by reset.
fn read_all(mut stream: &TcpStream) -> Vec<u8> {
    let mut said = Vec::new();
    if let Err(error) = stream.read_to_end(&mut said) {
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "it must not hang");
    }
    said
}

#[test]
fn a_port_scan_leaves_no_trace() {
    let scene = Scene::new(ServerSpec::new());
    for port in scene.ports() {
        for _ in 0..100 {
            drop(connect(port));
        }
    }
    scene.assert_at_rest(0);
}

#[test]
fn random_bytes_are_closed_on_every_port() {
    let seed = 0x6774;
    println!("seed {seed}");
    let scene = Scene::new(ServerSpec::new().option("headerTimeout", "1s"));
    let mut noise = Pattern::new(seed);
    for round in 0..200_usize {
        for port in scene.ports() {
            let stream = connect(port);
            // The server may have closed in the middle.
            let _ = (&stream).write_all(&noise.bytes(1 + round * 37 % 4000));
            let said = read_all(&stream);
            assert!(said.len() < 4096, "{} bytes", said.len());
        }
    }
    scene.assert_at_rest(1);
}

#[test]
fn noise_after_the_magic_of_a_link_is_logged_once() {
    let scene = Scene::new(ServerSpec::new().option("handshakeTimeout", "1s"));
    let mut noise = Pattern::new(3);
    for round in 0..100_usize {
        let stream = connect(scene.server.http());
        let bytes = [&tunnel::MAGIC[..], &noise.bytes(1 + round * 131 % 9000)].concat();
        let _ = (&stream).write_all(&bytes);
        let said = read_all(&stream);
        assert!(said.len() < 4096, "{} bytes", said.len());
    }
    scene.assert_at_rest(1);
}

#[test]
fn tls_on_the_plain_port_gets_an_alert() {
    let scene = Scene::new(ServerSpec::new());
    for _ in 0..10 {
        let config = e2e::tls::client_config(&[scene.server.cert().der().clone()], &[]);
        let failed = e2e::tls::connect(scene.server.http(), "localhost", config);
        let error = failed.expect_err("no TLS there").to_string();
        assert!(error.to_lowercase().contains("alert"), "{error}");
    }
    scene.assert_at_rest(0);
}

#[test]
fn http_on_the_tls_ports_is_told_to_use_https() {
    let scene = Scene::new(ServerSpec::new());
    for port in [scene.server.https(), scene.server.sni()] {
        for _ in 0..10 {
            let response = http::get(port, "web.test", "/").expect("an answer in plain HTTP");
            assert_eq!(response.status, 400);
            assert!(
                response.text().to_lowercase().contains("https"),
                "{}",
                response.text()
            );
        }
    }
    scene.assert_at_rest(0);
}

#[test]
fn a_head_of_more_than_16_kib_is_refused_with_431_and_one_of_16_kib_passes() {
    let scene = Scene::new(ServerSpec::new());
    let ask = |length: usize| {
        let head = |pad: usize| {
            let pad = "x".repeat(pad);
            format!("GET / HTTP/1.1\r\nHost: web.test\r\nX-Pad: {pad}\r\n\r\n")
        };
        let request = head(length - head(0).len());
        assert_eq!(request.len(), length);
        let mut visitor = HttpConn::new(connect(scene.server.http()));
        visitor.send(request).expect("writable");
        visitor.response().expect("an answer").status
    };
    assert_eq!(ask(16 << 10), 200);
    for _ in 0..10 {
        assert_eq!(ask((16 << 10) + 1), 431);
        assert_eq!(ask(200 << 10), 431, "however much more comes");
    }
    scene.assert_at_rest(0);
}

#[test]
fn a_head_that_never_ends_is_ended_at_the_header_timeout() {
    let scene = Scene::new(ServerSpec::new().option("headerTimeout", "1s"));
    let mut slow = HttpConn::new(connect(scene.server.http()));
    let silent = connect(scene.server.http());
    let silent_tls = connect(scene.server.sni());
    let began = Instant::now();
    slow.send("GET / HTTP/1.1\r\nHost: web.test\r\n")
        .expect("writable");
    slow.stream()
        .set_read_timeout(Some(Duration::from_millis(100)))
        .expect("settable");
    // One byte at a time buys no time.
    let head = loop {
        match slow.head() {
            Ok(head) => break head,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => panic!("{error}"),
        }
        slow.send("x").expect("writable");
        assert!(began.elapsed() < Duration::from_secs(5), "no timeout");
    };
    assert_eq!(head.status, 408);
    let took = began.elapsed();
    assert!(
        took >= Duration::from_millis(900) && took < Duration::from_secs(3),
        "{took:?}"
    );
    assert_eq!(read_all(&silent), b"");
    assert_eq!(read_all(&silent_tls), b"");
    scene.assert_at_rest(0);
}

#[test]
fn thousands_of_half_open_handshakes_end_and_leave_nothing() {
    let spec = ServerSpec::new()
        .option("handshakeTimeout", "3s")
        .option("headerTimeout", "3s")
        // What happens when there are so many; that there are not is in `pending.rs`.
        .option("pendingConnections", 0)
        .option("pendingPerAddress", 0);
    let scene = Scene::new(spec);
    let files = raise_files(&scene.server.process, 10_000);
    let each = usize::try_from(files)
        .expect("fits")
        .saturating_sub(500)
        .min(3000)
        / 3;
    let memory = scene.server.process.rss_kib();
    let [plain, tls, _] = scene.ports();
    let hello = raw::hello("web");
    let mut held = Vec::new();
    for _ in 0..each {
        // A Hello without a proof, half a TLS record, and a word that begins a request.
        for (port, bytes) in [
            (plain, &hello[..]),
            (tls, &b"\x16\x03\x01\x02\x00\x01"[..]),
            (plain, b"GET"),
        ] {
            let stream = connect(port);
            let _ = (&stream).write_all(bytes);
            held.push(stream);
        }
    }
    let response = http::get(scene.server.http(), "web.test", "/").expect("an answer");
    assert_eq!(response.status, 200, "the service is there meanwhile");
    let peak = scene.server.process.rss_kib().saturating_sub(memory);
    println!(
        "{} half-open handshakes: {} bytes each",
        held.len(),
        (peak << 10) / held.len() as u64
    );
    // rustls holds a buffer for each handshake.
    assert!(peak < 32 * held.len() as u64, "{peak} KiB");
    for stream in &held {
        assert!(read_all(stream).len() < 4096);
    }
    drop(held);
    // One for all the Hellos.
    scene.assert_at_rest(1);
}

#[test]
fn a_visitor_of_an_unknown_name_gets_a_page_or_text_as_it_likes() {
    let scene = Scene::new(ServerSpec::new());
    let text = http::get(scene.server.http(), "nothing.test", "/").expect("an answer");
    assert_eq!(text.status, 404);
    assert!(
        text.header("content-type")
            .is_some_and(|kind| kind.starts_with("text/plain"))
    );
    let mut browser = HttpConn::new(connect(scene.server.http()));
    browser
        .send("GET /<script> HTTP/1.1\r\nHost: <script>.test\r\nAccept: text/html,*/*\r\n\r\n")
        .expect("writable");
    let page = browser.response().expect("an answer");
    assert!(!page.text().contains("<script>"), "{}", page.text());
    scene.assert_at_rest(0);
}

#[test]
fn requests_that_could_be_read_in_two_ways_are_refused() {
    let scene = Scene::new(ServerSpec::new());
    for request in [
        "GET / HTTP/1.1\r\nHost: web.test\r\nHost: other.test\r\n\r\n",
        "GET / HTTP/1.1\r\nHost : web.test\r\n\r\n",
        "GET / HTTP/1.1\r\n Host: web.test\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: web.test\0\r\n\r\n",
    ] {
        let mut visitor = HttpConn::new(connect(scene.server.http()));
        visitor.send(request).expect("writable");
        let response: io::Result<_> = visitor.response();
        assert_eq!(response.expect("an answer").status, 400, "{request:?}");
    }
    scene.assert_at_rest(0);
}

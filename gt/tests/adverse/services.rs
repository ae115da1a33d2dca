//! One bad service or visitor is a matter of its own: the link and everybody else on it go on.

use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use e2e::{
    Client, HttpConn, PATIENCE, PortRange, Server, ServerSpec, Transport, http,
    over_each_transport, pattern::Pattern, wait,
};

use crate::origin::Origin;

over_each_transport!(
    a_dead_service_answers_for_itself_and_does_not_harm_the_link,
    a_half_sent_request_is_harmless_and_can_still_be_finished,
    visitors_who_never_read_do_not_stop_the_others,
);

fn a_dead_service_answers_for_itself_and_does_not_harm_the_link(transport: Transport) {
    let origin = Origin::http();
    // Nobody listens there while the claim lives.
    let dead = PortRange::claim(1);
    let ports = PortRange::claim(2);
    let server = ServerSpec::new().user("web").ports(&ports).start();
    let nowhere = format!("127.0.0.1:{}", dead.first());
    let client = server
        .client(transport, "web")
        .service(format!("http://{}", origin.address()), "")
        .service(format!("http://{nowhere}"), "hostPrefix: dead")
        .service(
            format!("tcp://{nowhere}"),
            "name: deadtcp, remoteTCPRandom: true",
        )
        .start_up();
    let mut download = HttpConn::new(http::connect(server.http()).expect("accepts"));
    download
        .send("GET /gated/4000000/1 HTTP/1.1\r\nHost: web.test\r\n\r\n")
        .expect("writable");
    origin.wait_gated(1);
    for _ in 0..20 {
        let response = http::get(server.http(), "dead.test", "/").expect("an answer");
        assert_eq!(response.status, 502);
        assert!(response.text().contains("refuses"), "{}", response.text());
        let address = server.port(client.port_of("deadtcp"));
        // The reset may come before the system has told of the connection.
        let end = http::connect(address).and_then(|mut visitor| {
            visitor.write_all(b"hello")?;
            visitor.read(&mut [0; 16])
        });
        let kind = end.map_err(|error| error.kind());
        assert_eq!(kind, Err(ErrorKind::ConnectionReset));
    }
    origin.open_gate();
    let head = download.head().expect("a head");
    let mut pattern = Pattern::new(1);
    let body = download.body(&head, |piece| pattern.check(piece));
    body.expect("the other visitor's transfer is whole");
    assert_eq!(pattern.position(), 4_000_000);
    assert_no_link_was_lost(&server, &client);
}

fn assert_no_link_was_lost(server: &Server, client: &Client) {
    assert_eq!(server.process.count_log(&["a client's link is down"]), 0);
    assert_eq!(client.process.count_log(&["a link was lost"]), 0);
}

/// Half a head, and in another request half a body, for 12 s when the environment has `GT_E2E_BIG=1`.
fn a_half_sent_request_is_harmless_and_can_still_be_finished(transport: Transport) {
    let time = if e2e::big() > 64 << 20 { 12 } else { 2 };
    let origin = Origin::http();
    let server = ServerSpec::new()
        .user("web")
        .option("headerTimeout", "30s")
        .start();
    let client = server
        .client(transport, "web")
        .service(format!("http://{}", origin.address()), "")
        .start_up();
    let half = |bytes: &str| {
        let mut visitor = HttpConn::new(http::connect(server.http()).expect("accepts"));
        visitor.send(bytes).expect("writable");
        visitor
    };
    let mut half_head = half("GET / HTTP/1.1\r\nHost: web.te");
    let mut half_routed = half("GET / HTTP/1.1\r\nHost: web.test\r\n\r\nGET / HTTP/1.1\r\nHo");
    assert_eq!(half_routed.response().expect("the first").status, 200);
    let began = Instant::now();
    let mut others = 0;
    while began.elapsed() < Duration::from_secs(time) {
        let asked = Instant::now();
        let response = http::get(server.http(), "web.test", "/").expect("an answer");
        assert_eq!(response.status, 200);
        let took = asked.elapsed();
        assert!(took < Duration::from_secs(1), "another waited {took:?}");
        others += 1;
        thread::sleep(Duration::from_millis(20));
    }
    // Each takes some round trips.
    let least = if e2e::is_path_bad() { 4 } else { 20 };
    assert!(others > least, "{others}");
    half_head.send("st\r\n\r\n").expect("still open");
    assert_eq!(half_head.response().expect("an answer").text(), "hello");
    half_routed
        .send("st: web.test\r\n\r\n")
        .expect("still open");
    assert_eq!(half_routed.response().expect("an answer").text(), "hello");
    assert_no_link_was_lost(&server, &client);
}

/// Measured side by side on the same link; printed, and bounded loosely because the machine is shared.
fn visitors_who_never_read_do_not_stop_the_others(transport: Transport) {
    let origin = Origin::http();
    let server = ServerSpec::new().user("web").start();
    let client = server
        .client(transport, "web")
        .option("remoteConnections", 1)
        .service(format!("http://{}", origin.address()), "")
        .start_up();
    let alone = best(&server);
    let memory_before = server.process.rss_kib() + client.process.rss_kib();
    let unread: Vec<TcpStream> = (0..UNREAD)
        .map(|seed| {
            let mut visitor = http::connect(server.http()).expect("accepts");
            let request = format!("GET /bytes/67108864/{seed} HTTP/1.1\r\nHost: web.test\r\n\r\n");
            visitor.write_all(request.as_bytes()).expect("writable");
            visitor
        })
        .collect();
    for visitor in &unread {
        // The first byte is there; no more is ever read.
        visitor.set_read_timeout(Some(PATIENCE)).expect("settable");
        assert_eq!(visitor.peek(&mut [0]).expect("an answer begins"), 1);
    }
    // Until the buffers of all of them are full they take their fair share of the link.
    let begun = origin.sent();
    let mut before = begun;
    wait::until("the unread transfers stand still", || {
        let now = origin.sent();
        let still = now == std::mem::replace(&mut before, now);
        thread::sleep(Duration::from_millis(300));
        still.then_some(())
    });
    let stood = before;
    let beside = best(&server);
    let memory = server.process.rss_kib() + client.process.rss_kib();
    println!(
        "{transport:?}: {alone:.0} MB/s alone, {beside:.0} MB/s beside {UNREAD} visitors who never read; \
         {} MiB more were sent to them after their first bytes; memory of both processes {memory_before} KiB before, \
         {memory} KiB with them",
        (stood - begun) >> 20
    );
    assert!(
        beside > alone / 4.0,
        "{beside:.1} MB/s beside, {alone:.1} alone"
    );
    // Each may hold its stream's share on both ways, the link's window (64 MiB) at most.
    assert!(memory < memory_before + (100 << 10), "{memory} KiB");
    let asked = Instant::now();
    let response = http::get(server.http(), "web.test", "/").expect("an answer");
    assert_eq!(response.status, 200);
    assert!(
        asked.elapsed() < Duration::from_secs(2),
        "{:?}",
        asked.elapsed()
    );
    drop(unread);
    assert_no_link_was_lost(&server, &client);
}

/// Megabytes per second of the best of three checked downloads: the machine is shared.
fn best(server: &Server) -> f64 {
    (0..3).map(|_| measure(server)).fold(0.0, f64::max)
}

/// Megabytes per second of one checked download.
fn measure(server: &Server) -> f64 {
    const LENGTH: u64 = 32 << 20;
    let began = Instant::now();
    let mut visitor = HttpConn::new(http::connect(server.http()).expect("accepts"));
    visitor
        .send(format!(
            "GET /bytes/{LENGTH}/77 HTTP/1.1\r\nHost: web.test\r\n\r\n"
        ))
        .expect("writable");
    let head = visitor.head().expect("a head");
    let mut pattern = Pattern::new(77);
    let body = visitor.body(&head, |piece| pattern.check(piece));
    body.expect("whole");
    assert_eq!(pattern.position(), LENGTH);
    LENGTH as f64 / 1e6 / began.elapsed().as_secs_f64()
}

const UNREAD: u64 = 20;

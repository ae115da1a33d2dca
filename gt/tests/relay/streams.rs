//! Streams in which time and order matter: keystrokes, events, uploads to somebody slow, half-closed connections.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::Shutdown,
    sync::{Mutex, mpsc},
    time::Duration,
};

use e2e::{
    HttpConn, Service, Transport, http, over_each_transport,
    pattern::{Pattern, Sha256},
};

use crate::{server, server_with_ports};

over_each_transport!(
    keystrokes_come_back_one_by_one,
    a_service_that_speaks_first_is_heard,
    half_close_is_carried_in_each_direction,
    events_arrive_one_by_one,
    a_slow_service_stops_its_visitor_and_costs_no_memory,
);

fn keystrokes_come_back_one_by_one(transport: Transport) {
    let service = Service::echo();
    let (_ports, server) = server_with_ports(1);
    let client = server
        .client(transport, "web")
        .service(service.url("tcp"), "name: ssh, remoteTCPRandom: true")
        .start_up();
    let mut visitor = http::connect(server.port(client.port_of("ssh"))).expect("a connection");
    for key in Pattern::new(8).bytes(300) {
        visitor.write_all(&[key]).expect("sent");
        let mut echoed = [0];
        visitor.read_exact(&mut echoed).expect("an echo");
        assert_eq!(echoed, [key]);
    }
}

fn a_service_that_speaks_first_is_heard(transport: Transport) {
    let service = Service::tcp(|mut stream| {
        stream.write_all(b"SSH-2.0-banner\r\n")?;
        io::copy(&mut &stream, &mut &stream)?;
        Ok(())
    });
    let (_ports, server) = server_with_ports(1);
    let client = server
        .client(transport, "web")
        .service(service.url("tcp"), "name: ssh, remoteTCPRandom: true")
        .start_up();
    let mut visitor = http::connect(server.port(client.port_of("ssh"))).expect("a connection");
    let mut banner = [0; 16];
    visitor
        .read_exact(&mut banner)
        .expect("the banner, before the visitor has said anything");
    assert_eq!(&banner, b"SSH-2.0-banner\r\n");
}

fn half_close_is_carried_in_each_direction(transport: Transport) {
    // The service answers only when it has seen the end; then it closes its side first and still hears.
    let (heard, hear) = mpsc::channel();
    let heard = Mutex::new(heard);
    let after_end = Service::tcp(|mut stream| {
        let mut request = Vec::new();
        stream.read_to_end(&mut request)?;
        stream.write_all(&request)
    });
    let closes_first = Service::tcp(move |mut stream| {
        stream.write_all(b"that is all")?;
        stream.shutdown(Shutdown::Write)?;
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest)?;
        heard
            .lock()
            .expect("not poisoned")
            .send(rest)
            .map_err(io::Error::other)
    });
    let (_ports, server) = server_with_ports(2);
    let client = server
        .client(transport, "web")
        .service(after_end.url("tcp"), "name: after, remoteTCPRandom: true")
        .service(
            closes_first.url("tcp"),
            "name: first, remoteTCPRandom: true",
        )
        .start_up();
    let sent = Pattern::new(4).bytes(500_000);
    let mut visitor = http::connect(server.port(client.port_of("after"))).expect("a connection");
    visitor.write_all(&sent).expect("sent");
    visitor.shutdown(Shutdown::Write).expect("half closed");
    let mut answer = Vec::new();
    visitor.read_to_end(&mut answer).expect("an answer");
    assert!(answer == sent, "{} bytes came back", answer.len());

    let mut visitor = http::connect(server.port(client.port_of("first"))).expect("a connection");
    let mut answer = Vec::new();
    visitor.read_to_end(&mut answer).expect("an answer");
    assert_eq!(answer, b"that is all");
    visitor
        .write_all(&sent)
        .expect("sent after the service's end");
    drop(visitor);
    let rest = hear
        .recv_timeout(e2e::PATIENCE)
        .expect("the service hears the rest");
    assert!(rest == sent, "the service heard {} bytes", rest.len());
}

fn events_arrive_one_by_one(transport: Transport) {
    // The next event is sent only after the last one has been seen: an event that is held back anywhere ends the test.
    let (next, wanted) = mpsc::channel::<u32>();
    let wanted = Mutex::new(wanted);
    let service = Service::http(move |exchange| {
        exchange.write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        while let Ok(n) = wanted.lock().expect("not poisoned").recv() {
            let event = format!("id: {n}\ndata: event {n}\n\n");
            exchange.write(format!("{:x}\r\n{event}\r\n", event.len()))?;
        }
        exchange.write("0\r\n\r\n")
    });
    let server = server();
    let _client = server
        .client(transport, "web")
        .service(service.url("http"), "")
        .start_up();
    let mut visitor = HttpConn::new(http::connect(server.http()).expect("a connection"));
    visitor
        .send("GET /events HTTP/1.1\r\nHost: web.example.com\r\nAccept: text/event-stream\r\n\r\n")
        .expect("sent");
    let head = visitor.head().expect("the head, before any event");
    assert_eq!(head.header("content-type"), Some("text/event-stream"));
    for n in 0..50 {
        next.send(n).expect("the service waits");
        let event = visitor.chunk().expect("an event").expect("not the end");
        assert_eq!(
            String::from_utf8_lossy(&event),
            format!("id: {n}\ndata: event {n}\n\n")
        );
    }
    drop(next);
    assert!(visitor.chunk().expect("the end").is_none());
}

fn a_slow_service_stops_its_visitor_and_costs_no_memory(transport: Transport) {
    let (go, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let service = Service::http(move |exchange| {
        if exchange.target == "/slow" {
            gate.lock()
                .expect("not poisoned")
                .recv()
                .map_err(io::Error::other)?;
        }
        let (length, digest) = exchange.digest()?;
        exchange.respond(200, format!("{length} {digest}"))
    });
    let server = server();
    let client = server
        .client(transport, "web")
        .service(service.url("http"), "")
        .start_up();
    http::get_until(server.http(), "web.example.com", "/", 200);
    let before = [server.process.rss_kib(), client.process.rss_kib()];

    let length: usize = 64 << 20;
    let sent = Pattern::new(6).bytes(length);
    let mut visitor = HttpConn::new(http::connect(server.http()).expect("a connection"));
    visitor
        .send(format!(
            "POST /slow HTTP/1.1\r\nHost: web.example.com\r\nContent-Length: {length}\r\n\r\n"
        ))
        .expect("sent");
    // Back-pressure has reached the visitor when nothing more is taken from it for a while.
    visitor
        .stream()
        .set_write_timeout(Some(Duration::from_secs(1)))
        .expect("a timeout");
    let mut taken = 0;
    loop {
        match visitor.stream().write(&sent[taken..]) {
            Ok(n) => taken += n,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                break;
            }
            Err(error) => panic!("the visitor is cut off: {error}"),
        }
        assert!(
            taken < length,
            "a service that reads nothing was sent everything"
        );
    }
    let after = [server.process.rss_kib(), client.process.rss_kib()];
    for (name, before, after) in [
        ("server", before[0], after[0]),
        ("client", before[1], after[1]),
    ] {
        assert!(
            after < before + GROWTH_KIB,
            "the {name} grew from {before} to {after} KiB with {taken} bytes taken"
        );
    }
    // The others go on meanwhile.
    let other = http::get(server.http(), "web.example.com", "/").expect("an answer");
    assert_eq!(other.status, 200);

    visitor
        .stream()
        .set_write_timeout(Some(http::STUCK))
        .expect("a timeout");
    go.send(()).expect("the service waits");
    visitor.send(&sent[taken..]).expect("sent");
    let response = visitor.response().expect("an answer");
    assert_eq!(
        response.text(),
        format!("{length} {}", Sha256::of_pattern(6, length as u64))
    );
    let peak = [server.process.peak_rss_kib(), client.process.peak_rss_kib()];
    for (name, before, peak) in [
        ("server", before[0], peak[0]),
        ("client", before[1], peak[1]),
    ] {
        assert!(
            peak < before + GROWTH_KIB,
            "the {name} grew from {before} to {peak} KiB during an upload of {length} bytes"
        );
    }
}

/// A stream's window, which grows up to 8 MiB (`mux::Config::max_stream_window`) where a busy machine makes round trips long, and half of it again while what holds it
/// grows, and the buffers around it; an upload that is kept would take 65,536.
const GROWTH_KIB: u64 = 16 << 10;

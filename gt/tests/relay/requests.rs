//! Services in HTTP mode: the server looks at each request, and streams to the client are kept and shared like connections.

use std::{
    io::{self, Read},
    net::{Shutdown, SocketAddr, TcpStream},
    sync::mpsc,
    time::{Duration, Instant},
};

use e2e::{
    HttpConn, Nginx, ServerSpec, Service, Transport, http, pattern::Pattern, pattern::Sha256, tls,
    wait,
};
use socket2::{Domain, Socket, Type};

use crate::server;

/// Links over TCP and TLS: what is different between the modes is above the link.
macro_rules! over_tcp_and_tls {
    ($($name:ident),+ $(,)?) => {$(
        mod $name {
            #[test]
            fn tcp() {
                super::$name(e2e::Transport::Tcp);
            }
            #[test]
            fn tls() {
                super::$name(e2e::Transport::Tls);
            }
        }
    )+};
}

over_tcp_and_tls!(
    visitors_share_the_streams_to_a_service,
    the_service_learns_who_the_visitor_is,
    each_request_goes_where_its_host_says,
    bodies_pass_both_ways_unchanged,
    a_websocket_passes,
    a_link_that_dies_within_an_answer_cuts_only_that_answer,
    a_dead_service_is_named_and_harms_nobody,
    a_visitor_who_never_reads_stops_nobody,
    a_limited_client_gets_its_speed,
);

fn connect_from(source: [u8; 4], to: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((source, 0)).into())?;
    socket.connect(&to.into())?;
    socket.set_read_timeout(Some(http::STUCK))?;
    Ok(socket.into())
}

fn visitors_share_the_streams_to_a_service(transport: Transport) {
    let service = Service::text("hello");
    let server = server();
    let _client = server
        .client(transport, "web")
        .service(service.url("http"), "mode: http")
        .start_up();
    for _ in 0..12 {
        let mut visitor = HttpConn::new(http::connect(server.http()).expect("a connection"));
        for _ in 0..5 {
            let answer = visitor.get("web.test", "/").expect("an answer");
            assert_eq!((answer.status, answer.text().as_str()), (200, "hello"));
        }
    }
    // One visitor after the other: one connection per thread of the server, of which there are no more than processors.
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let connections = service.accepted();
    assert!(
        connections <= threads,
        "{connections} connections for 60 requests"
    );
}

fn the_service_learns_who_the_visitor_is(transport: Transport) {
    let block = "listen {listen}; location / { return 200 \"$http_x_forwarded_for|$http_x_real_ip|$http_x_forwarded_proto|$http_host\"; }";
    let nginx = Nginx::start(&[block], |_| {});
    let server = server();
    let _client = server
        .client(transport, "web")
        .service(nginx.url(0), "mode: http")
        .service(
            nginx.url(0),
            "mode: http, hostPrefix: local, useLocalAsHTTPHost: true",
        )
        .start_up();
    let forged = |host: &str| {
        format!(
            "GET / HTTP/1.1\r\nHost: {host}\r\nX-Forwarded-For: 192.0.2.66\r\nX-Real-IP: 192.0.2.66\r\n\r\n"
        )
    };
    for source in [[127, 0, 0, 9], [127, 0, 0, 10]] {
        let stream = connect_from(source, server.http()).expect("a connection");
        let ip = stream.local_addr().expect("an address").ip();
        let mut visitor = HttpConn::new(stream);
        for _ in 0..2 {
            visitor.send(forged("web.test")).expect("sent");
            let answer = visitor.response().expect("an answer").text();
            assert_eq!(answer, format!("{ip}|{ip}|http|web.test"));
        }
        visitor.send(forged("local.test")).expect("sent");
        let answer = visitor.response().expect("an answer").text();
        assert_eq!(answer, format!("{ip}|{ip}|http|{}", nginx.address(0)));
    }
    let config = tls::client_config(&[server.cert().der().clone()], &[b"http/1.1"]);
    let stream = tls::connect(server.https(), "localhost", config).expect("TLS");
    let mut visitor = HttpConn::new(stream);
    visitor.send(forged("web.test")).expect("sent");
    let answer = visitor.response().expect("an answer").text();
    assert_eq!(answer, "127.0.0.1|127.0.0.1|https|web.test");
}

fn each_request_goes_where_its_host_says(transport: Transport) {
    let (red, blue) = (Service::text("red"), Service::text("blue"));
    let server = ServerSpec::new().user("web").user("other").start();
    let _red = server
        .client(transport, "web")
        .service(red.url("http"), "mode: http")
        .start_up();
    let _blue = server
        .client(transport, "other")
        .service(blue.url("http"), "hostPrefix: blue, mode: stream")
        .start_up();
    let mut visitor = HttpConn::new(http::connect(server.http()).expect("a connection"));
    for _ in 0..4 {
        let mut ask = |host: &str| visitor.get(host, "/").expect("an answer");
        assert_eq!(ask("web.test").text(), "red");
        // It is in stream mode, and gets its own stream for each request that comes this way.
        assert_eq!(ask("blue.test").text(), "blue");
        assert_eq!(ask("nobody.test").status, 404);
    }
    assert_eq!(blue.accepted(), 4);
}

fn bodies_pass_both_ways_unchanged(transport: Transport) {
    const LENGTH: u64 = 24 << 20;
    let service = Service::http(|exchange| {
        let (length, digest) = exchange.digest()?;
        exchange.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        let said = format!("{length} {digest}");
        exchange.write(format!("{:x}\r\n{said}\r\n0\r\n\r\n", said.len()))
    });
    let nginx = Nginx::plain(|dir| {
        let file = std::fs::File::create(dir.path().join("files/big")).expect("a file");
        Pattern::new(7).write_to(file, LENGTH).expect("written");
    });
    let server = server();
    let _client = server
        .client(transport, "web")
        .service(service.url("http"), "mode: http")
        .service(nginx.url(0), "mode: http, hostPrefix: files")
        .start_up();
    let expected = Sha256::of_pattern(7, LENGTH);
    let mut visitor = HttpConn::new(http::connect(server.http()).expect("a connection"));
    for _ in 0..2 {
        visitor
            .send(format!(
                "POST / HTTP/1.1\r\nHost: web.test\r\nExpect: 100-continue\r\nContent-Length: {LENGTH}\r\n\r\n"
            ))
            .expect("sent");
        assert_eq!(visitor.head().expect("an interim answer").status, 100);
        Pattern::new(7)
            .write_to(visitor.stream(), LENGTH)
            .expect("sent");
        let answer = visitor.response().expect("an answer").text();
        assert_eq!(answer, format!("{LENGTH} {expected}"));
        visitor
            .send("GET /big HTTP/1.1\r\nHost: files.test\r\n\r\n")
            .expect("sent");
        let (head, length, digest) = visitor.digest().expect("an answer");
        assert_eq!((head.status, length), (200, LENGTH));
        assert_eq!(digest, expected);
    }
}

fn a_websocket_passes(transport: Transport) {
    use tungstenite::{Message, accept, client};
    let service = Service::tcp(|stream| {
        let mut socket = accept(stream).map_err(io::Error::other)?;
        loop {
            match socket.read().map_err(io::Error::other)? {
                message @ (Message::Text(_) | Message::Binary(_)) => {
                    socket.send(message).map_err(io::Error::other)?;
                }
                _ => socket.flush().map_err(io::Error::other)?,
            }
        }
    });
    let server = server();
    let _client = server
        .client(transport, "web")
        .service(service.url("http"), "mode: http")
        .start_up();
    let stream = http::connect(server.http()).expect("a connection");
    let (mut socket, response) = client("ws://web.test/chat", stream).expect("a WebSocket");
    assert_eq!(response.status(), 101);
    for text in ["one", "two", "three"] {
        socket.send(Message::text(text)).expect("sent");
        assert_eq!(socket.read().expect("an answer"), Message::text(text));
    }
    socket.close(None).expect("closed");
    while socket.read().is_ok() {}
}

fn a_link_that_dies_within_an_answer_cuts_only_that_answer(transport: Transport) {
    let (tell, told) = mpsc::channel();
    let tell = std::sync::Mutex::new(tell);
    // The first half of an answer, whose end is marked in the way that the target names; the rest never comes.
    let service = Service::http(move |exchange| {
        let framing = match exchange.target.as_str() {
            "/length" => "Content-Length: 10\r\n\r\nhello",
            "/chunks" => "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
            _ => "Connection: close\r\n\r\nhello",
        };
        exchange.write(format!("HTTP/1.1 200 OK\r\n{framing}"))?;
        let _ = tell.lock().map(|tell| tell.send(()));
        std::thread::sleep(Duration::from_secs(30));
        Ok(())
    });
    let other = Service::text("unharmed");
    let server = ServerSpec::new().user("web").user("other").start();
    let mut client = server
        .client(transport, "web")
        .service(service.url("http"), "mode: http")
        .start_up();
    let _other = server
        .client(transport, "other")
        .service(other.url("http"), "mode: http")
        .start_up();
    let mut witness = HttpConn::new(http::connect(server.http()).expect("a connection"));
    let mut visitors: Vec<TcpStream> = ["/length", "/chunks", "/close"]
        .iter()
        .map(|target| {
            let mut visitor = http::connect(server.http()).expect("a connection");
            io::Write::write_all(
                &mut visitor,
                format!("GET {target} HTTP/1.1\r\nHost: web.test\r\n\r\n").as_bytes(),
            )
            .expect("sent");
            told.recv_timeout(http::STUCK).expect("half an answer");
            let mut read = Vec::new();
            while !read.ends_with(b"hello") && !read.ends_with(b"hello\r\n") {
                let mut byte = [0];
                visitor.read_exact(&mut byte).expect("the first half");
                read.push(byte[0]);
            }
            visitor
        })
        .collect();
    assert_eq!(
        witness.get("other.test", "/").expect("an answer").status,
        200
    );
    client.process.kill();
    for visitor in &mut visitors {
        let end = visitor.read_to_end(&mut Vec::new());
        let kind = end.expect_err("the answer is not whole").kind();
        assert_eq!(kind, io::ErrorKind::ConnectionReset);
    }
    let answer = witness.get("other.test", "/").expect("an answer");
    assert_eq!(answer.text(), "unharmed");
    // Away: a short wait, then words.
    let began = Instant::now();
    let answer = http::get(server.http(), "web.test", "/").expect("an answer");
    assert_eq!(
        (answer.status, answer.header("retry-after")),
        (503, Some("5"))
    );
    assert!(began.elapsed() < Duration::from_secs(6));
    assert!(answer.text().contains("client is not connected"));
}

fn a_dead_service_is_named_and_harms_nobody(transport: Transport) {
    let dead = Service::echo().url("http");
    let alive = Service::text("alive");
    let server = server();
    let _client = server
        .client(transport, "web")
        .service(dead, "mode: http")
        .service(alive.url("http"), "mode: http, hostPrefix: alive")
        .start_up();
    let mut visitor = HttpConn::new(http::connect(server.http()).expect("a connection"));
    for method in ["GET", "POST"] {
        visitor
            .send(format!(
                "{method} / HTTP/1.1\r\nHost: web.test\r\nContent-Length: 0\r\n\r\n"
            ))
            .expect("sent");
        let answer = visitor.response().expect("an answer");
        assert_eq!(answer.status, 502);
        assert!(
            answer.text().contains("refuses connections"),
            "{}",
            answer.text()
        );
        assert_eq!(
            visitor.get("alive.test", "/").expect("an answer").text(),
            "alive"
        );
    }
}

fn a_visitor_who_never_reads_stops_nobody(transport: Transport) {
    let nginx = Nginx::plain(|dir| {
        let file = std::fs::File::create(dir.path().join("files/big")).expect("a file");
        file.set_len(256 << 20).expect("room");
        dir.file("files/small", "small");
    });
    let server = server();
    let _client = server
        .client(transport, "web")
        .service(nginx.url(0), "mode: http")
        .start_up();
    let mut idle = HttpConn::new(http::connect(server.http()).expect("a connection"));
    idle.send("GET /big HTTP/1.1\r\nHost: web.test\r\n\r\n")
        .expect("sent");
    assert_eq!(idle.head().expect("an answer").status, 200);
    let before = server.process.rss_kib();
    let mut visitor = HttpConn::new(http::connect(server.http()).expect("a connection"));
    for _ in 0..50 {
        let answer = visitor.get("web.test", "/small").expect("an answer");
        assert_eq!(answer.text(), "small");
    }
    let grown = server.process.rss_kib().saturating_sub(before);
    assert!(grown < 16 << 10, "{grown} KiB for one who does not read");
}

fn a_limited_client_gets_its_speed(transport: Transport) {
    let server = ServerSpec::new().user_with("web", "speed: 1024").start();
    let service = Service::http(|exchange| {
        exchange.discard()?;
        let body = match exchange.target.as_str() {
            "/down" => vec![b'x'; 4096],
            _ => b"ok".to_vec(),
        };
        exchange.respond(200, body)
    });
    let _client = server
        .client(transport, "web")
        .service(service.url("http"), "mode: http")
        .start_up();
    let took = |ask: &mut dyn FnMut(&mut HttpConn<TcpStream>)| {
        let mut visitor = HttpConn::new(http::connect(server.http()).expect("a connection"));
        let began = Instant::now();
        ask(&mut visitor);
        began.elapsed().as_secs_f64()
    };
    let down = took(&mut |visitor| {
        let answer = visitor.get("web.test", "/down").expect("an answer");
        assert_eq!(answer.body.len(), 4096);
    });
    assert!((3.9..6.0).contains(&down), "{down} s for 4 KiB down");
    let up = took(&mut |visitor| {
        let answer = visitor.post("web.test", "/up", &[b'x'; 4096]);
        assert_eq!(answer.expect("an answer").status, 200);
    });
    assert!((3.9..6.0).contains(&up), "{up} s for 4 KiB up");
}

/// Each client has one link and so one thread of the server: what the others' visitors want of it passes between threads.
#[test]
fn one_connection_reaches_the_services_of_several_clients() {
    let users: Vec<String> = (0..6).map(|n| format!("user{n}")).collect();
    let mut server = ServerSpec::new().option("workers", 2);
    for user in &users {
        server = server.user_with(user, "connections: 1");
    }
    let server = server.start();
    let service = Service::http(|exchange| {
        let host = exchange.header("host").unwrap_or_default().to_owned();
        let (length, digest) = exchange.digest()?;
        exchange.respond(200, format!("{host} {length} {digest}"))
    });
    let _clients: Vec<_> = users
        .iter()
        .map(|user| {
            server
                .client(Transport::Tcp, user)
                .service(service.url("http"), "mode: http")
                .start_up()
        })
        .collect();
    let body = Pattern::new(3).bytes(300_000);
    let digest = Sha256::of_pattern(3, 300_000);
    for first in 0..users.len() {
        let mut visitor = HttpConn::new(http::connect(server.http()).expect("a connection"));
        for n in 0..12 {
            let host = format!("{}.test", users[(first + n) % users.len()]);
            let answer = visitor.post(&host, "/", &body).expect("an answer");
            assert_eq!(answer.text(), format!("{host} 300000 {digest}"));
        }
    }
}

#[test]
fn http2_is_spoken_where_requests_are_looked_at() {
    let (by_request, by_stream) = (Service::text("by request"), Service::text("by stream"));
    let cert = e2e::Cert::self_signed(&["web.test", "stream.test", "localhost"]);
    let server = ServerSpec::new().user("web").cert(cert).start();
    let _client = server
        .client(Transport::Tcp, "web")
        .service(by_request.url("http"), "mode: http")
        .service(by_stream.url("http"), "hostPrefix: stream, mode: stream")
        .start_up();
    let config = || tls::client_config(&[server.cert().der().clone()], &[b"h2", b"http/1.1"]);
    let agreed = |name: &str| {
        let mut stream = tls::connect(server.https(), name, config()).expect("TLS");
        // The handshake is over when something was read or written.
        let _ = io::Write::flush(&mut stream);
        stream.conn.alpn_protocol().map(<[u8]>::to_vec)
    };
    assert_eq!(agreed("web.test"), Some(b"h2".to_vec()));
    assert_eq!(agreed("stream.test"), Some(b"http/1.1".to_vec()));
}

#[test]
fn a_visitor_of_whom_the_client_wants_nothing_is_turned_away() {
    let service = Service::text("hello");
    let server = server();
    let _client = server
        .client(Transport::Tcp, "web")
        .service(service.url("http"), "mode: http, deny: 127.0.0.5")
        .start_up();
    let visit = |source| {
        let stream = connect_from(source, server.http()).expect("a connection");
        HttpConn::new(stream)
            .get("web.test", "/")
            .expect("an answer")
    };
    assert_eq!(visit([127, 0, 0, 5]).status, 403);
    assert_eq!(visit([127, 0, 0, 6]).status, 200);
    assert_eq!(service.accepted(), 1);
}

#[test]
fn a_service_that_tells_its_visitors_apart_gets_a_stream_for_each() {
    let block = "listen {listen} proxy_protocol; location / { return 200 \"$proxy_protocol_addr $http_x_real_ip\"; }";
    let nginx = Nginx::start(&[block], |_| {});
    let server = server();
    let _client = server
        .client(Transport::Tcp, "web")
        .service(nginx.url(0), "mode: http, proxyProtocol: v2")
        .start_up();
    for source in [[127, 0, 0, 7], [127, 0, 0, 8], [127, 0, 0, 7]] {
        let stream = connect_from(source, server.http()).expect("a connection");
        let ip = stream.local_addr().expect("an address").ip();
        let mut visitor = HttpConn::new(stream);
        for _ in 0..2 {
            let answer = visitor.get("web.test", "/").expect("an answer").text();
            assert_eq!(answer, format!("{ip} {ip}"));
        }
    }
}

#[test]
fn a_connection_that_the_service_has_closed_is_not_used_again() {
    let service = Service::http(|exchange| {
        exchange.discard()?;
        exchange.respond(200, "once")?;
        exchange.close();
        Ok(())
    });
    let server = server();
    let _client = server
        .client(Transport::Tcp, "web")
        .service(service.url("http"), "mode: http")
        .start_up();
    let mut visitor = HttpConn::new(http::connect(server.http()).expect("a connection"));
    for n in 1..=10u64 {
        let answer = visitor.post("web.test", "/", b"not to be sent twice");
        assert_eq!(answer.expect("an answer").text(), "once");
        // What the service says of its connection travels to the server before the next request is sent.
        wait::until("the next connection", || {
            (service.accepted() >= n).then_some(())
        });
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_half_closed_visitor_gets_its_answer() {
    let service = Service::text("whole");
    let server = server();
    let _client = server
        .client(Transport::Tcp, "web")
        .service(service.url("http"), "mode: http")
        .start_up();
    let mut visitor = HttpConn::new(http::connect(server.http()).expect("a connection"));
    visitor
        .send("GET / HTTP/1.1\r\nHost: web.test\r\n\r\n")
        .expect("sent");
    visitor
        .stream()
        .shutdown(Shutdown::Write)
        .expect("half closed");
    assert_eq!(visitor.response().expect("an answer").text(), "whole");
}

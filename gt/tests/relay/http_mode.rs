//! Services in HTTP mode: the ways of HTTP that a relay must not break, and ends of server and client in the middle of a request.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    time::Duration,
};

use e2e::{
    HttpConn, Nginx, Process, Server, ServerSpec, Service, TempDir, Transport, big, http,
    pattern::{Pattern, Sha256},
    relay::field,
};

use crate::{server, silence};

fn visitor(server: &Server) -> HttpConn<TcpStream> {
    HttpConn::new(http::connect(server.http()).expect("a connection"))
}

/// All that comes back until the end.
fn said(server: &Server, request: &str) -> String {
    let mut stream = http::connect(server.http()).expect("a connection");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut back = Vec::new();
    stream.read_to_end(&mut back).expect("an answer");
    String::from_utf8_lossy(&back).into_owned()
}

#[test]
fn old_visitors_and_questions_for_the_head_alone_are_answered() {
    let nginx = Nginx::plain(|dir| {
        dir.file("files/page", "a page");
    });
    let server = server();
    let _client = server
        .client(Transport::Tcp, "web")
        .service(nginx.url(0), "mode: http")
        .start_up();
    // HTTP/1.0 ends with the connection, and names no host by itself.
    let old = said(&server, "GET /page HTTP/1.0\r\nHost: web.test\r\n\r\n");
    assert!(
        old.starts_with("HTTP/1.1 200 ") || old.starts_with("HTTP/1.0 200 "),
        "{old}"
    );
    assert!(
        old.ends_with("\r\n\r\na page") && !old.contains("chunked"),
        "{old}"
    );
    let mut visitor = visitor(&server);
    for _ in 0..3 {
        // A body behind it would be taken for the next answer.
        visitor
            .send("HEAD /page HTTP/1.1\r\nHost: web.test\r\n\r\n")
            .expect("sent");
        let head = visitor.head().expect("a head");
        assert_eq!(
            (head.status, head.header("content-length")),
            (200, Some("6"))
        );
        assert_eq!(
            visitor.get("web.test", "/page").expect("an answer").text(),
            "a page"
        );
    }
}

#[test]
fn an_answer_that_comes_before_the_body_was_sent_reaches_its_visitor() {
    // It answers at once, and goes on reading for a while, so that no reset overtakes its answer.
    let block = "listen {listen}; client_max_body_size 1k; location / { return 200 \"took it\"; }";
    let nginx = Nginx::start(&[block], |_| {});
    let server = server();
    let _client = server
        .client(Transport::Tcp, "web")
        .service(nginx.url(0), "mode: http")
        .start_up();
    let mut visitor = visitor(&server);
    visitor
        .send("POST / HTTP/1.1\r\nHost: web.test\r\nExpect: 100-continue\r\nContent-Length: 1000000\r\n\r\n")
        .expect("sent");
    let answer = visitor.response().expect("an answer");
    assert_eq!(answer.status, 413);
    // Without waiting for a word.
    let mut stream = http::connect(server.http()).expect("a connection");
    let head = "POST / HTTP/1.1\r\nHost: web.test\r\nContent-Length: 400000\r\n\r\n";
    stream.write_all(head.as_bytes()).expect("sent");
    let _ = stream.write_all(&vec![b'x'; 400_000]);
    let answer = HttpConn::new(stream).response().expect("an answer");
    assert_eq!(answer.status, 413);
}

/// 64 MiB each way at once; `GT_E2E_BIG=1` 1 GiB.
#[test]
fn large_bodies_pass_unchanged() {
    let length = big();
    let service = Service::http(|exchange| {
        let (length, digest) = exchange.digest()?;
        exchange.respond(200, format!("{length} {digest}"))
    });
    let nginx = Nginx::plain(|dir| {
        let file = std::fs::File::create(dir.path().join("files/big")).expect("a file");
        Pattern::new(5).write_to(file, big()).expect("written");
    });
    let server = server();
    let _client = server
        .client(Transport::Tls, "web")
        .service(service.url("http"), "mode: http")
        .service(nginx.url(0), "mode: http, hostPrefix: files")
        .start_up();
    let expected = Sha256::of_pattern(5, length);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut up = visitor(&server);
            let head =
                format!("POST / HTTP/1.1\r\nHost: web.test\r\nContent-Length: {length}\r\n\r\n");
            up.send(head).expect("sent");
            Pattern::new(5).write_to(up.stream(), length).expect("sent");
            let answer = up.response().expect("an answer").text();
            assert_eq!(answer, format!("{length} {expected}"));
        });
        let mut down = visitor(&server);
        down.send("GET /big HTTP/1.1\r\nHost: files.test\r\n\r\n")
            .expect("sent");
        let (head, got, digest) = down.digest().expect("an answer");
        assert_eq!((head.status, got), (200, length));
        assert_eq!(digest, expected);
    });
}

/// Two proxies that are trusted, one after the other, and a visitor who claims to be somebody else.
#[test]
fn the_visitor_is_named_across_several_proxies() {
    let block = "listen {listen}; location / { return 200 \"$http_x_forwarded_for|$http_x_real_ip|$http_x_forwarded_proto|$http_x_forwarded_host\"; }";
    let nginx = Nginx::start(&[block], |_| {});
    let port = e2e::PortRange::claim(1);
    let addr = format!("127.0.0.1:{}", port.first());
    let server = ServerSpec::new()
        .user("web")
        .option("addr", format!("\"{addr}\""))
        .proxy(&format!(
            "{{listeners: [{{addr: \"{addr}\"}}], routes: [{{host: none.test, respond: {{}}}}], trustedProxies: 127.0.0.1}}"
        ))
        .start();
    let _client = server
        .client(Transport::Tls, "web")
        .service(nginx.url(0), "mode: http")
        .start_up();
    let proxy = |to: String, trusted: &str| {
        let dir = TempDir::new();
        let text = format!(
            "type: proxy\nproxy: {{listeners: [{{addr: \"127.0.0.1:0\"}}], trustedProxies: {trusted}, routes: [{{to: \"{to}\"}}]}}\n"
        );
        let file = dir.file("proxy.yml", text);
        let gt = Process::gt(
            "gt proxy",
            ["proxy".as_ref(), "-c".as_ref(), file.as_os_str()],
            dir,
        );
        let line = gt.wait_log(&["listening", "option=\"listeners\""]);
        let at = field(&line, "address").expect("an address").to_owned();
        (gt, at)
    };
    let (_inner, inner) = proxy(server.http().to_string(), "127.0.0.1");
    let (_outer, outer) = proxy(inner, "192.0.2.1");
    let ask = |at: &str, fields: &str| {
        let source = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)
            .expect("a socket");
        let from: std::net::SocketAddr = "127.0.0.9:0".parse().expect("an address");
        source.bind(&from.into()).expect("bound");
        let at: std::net::SocketAddr = at.parse().expect("an address");
        source.connect(&at.into()).expect("connected");
        let mut visitor = HttpConn::new(TcpStream::from(source));
        let request = format!("GET / HTTP/1.1\r\nHost: web.test\r\n{fields}\r\n");
        visitor.send(request).expect("sent");
        visitor.response().expect("an answer").text()
    };
    let forged = "X-Forwarded-For: 192.0.2.66\r\nX-Real-IP: 192.0.2.66\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: evil.test\r\n";
    for fields in ["", forged] {
        let said = ask(&outer, fields);
        assert_eq!(
            said,
            "127.0.0.9, 127.0.0.1, 127.0.0.1|127.0.0.9|http|web.test"
        );
        // Straight to the server: it trusts 127.0.0.1 only.
        let said = ask(&addr, fields);
        assert_eq!(said, "127.0.0.9|127.0.0.9|http|web.test");
    }
}

/// Visitors' requests after the server, or the client, was killed and is back.
#[test]
fn requests_are_served_again_after_server_or_client_were_killed() {
    let service = Service::text("hello");
    let port = e2e::PortRange::claim(1);
    let spec = || {
        ServerSpec::new()
            .user("web")
            .option("addr", format!("\"127.0.0.1:{}\"", port.first()))
    };
    let mut server = spec().start();
    let mut client = server
        .client(Transport::Tcp, "web")
        .service(service.url("http"), "mode: http")
        .start_up();
    let mut kept = visitor(&server);
    assert_eq!(
        kept.get("web.test", "/").expect("an answer").text(),
        "hello"
    );
    server.process.kill();
    // A clean end: nothing that could be taken for an answer.
    assert!(kept.get("web.test", "/").is_err());
    drop(server);
    let server = spec().start();
    assert_eq!(
        http::get_until(server.http(), "web.test", "/", 200).text(),
        "hello"
    );
    let mut kept = visitor(&server);
    assert_eq!(
        kept.get("web.test", "/").expect("an answer").text(),
        "hello"
    );
    client.process.kill();
    // The visitor's connection is the server's, and outlives the client.
    let away = kept.get("web.test", "/").expect("an answer");
    assert_eq!(away.status, 503, "{}", away.text());
    let _client = server
        .client(Transport::Tcp, "web")
        .service(service.url("http"), "mode: http")
        .start_up();
    assert_eq!(
        kept.get("web.test", "/").expect("an answer").text(),
        "hello"
    );
}

#[test]
fn a_websocket_is_there_after_silence_and_half_closes() {
    // Whatever follows an upgrade is bytes; here they come back.
    let service = Service::tcp(|mut stream| {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            head.push(byte[0]);
        }
        stream.write_all(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")?;
        std::io::copy(&mut &stream, &mut &stream)?;
        stream.shutdown(Shutdown::Write)
    });
    let server = server();
    let _client = server
        .client(Transport::Tcp, "web")
        .service(service.url("http"), "mode: http")
        .start_up();
    let mut visitor = visitor(&server);
    visitor
        .send("GET /chat HTTP/1.1\r\nHost: web.test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
        .expect("sent");
    assert_eq!(visitor.head().expect("an answer").status, 101);
    let (mut stream, rest) = visitor.into_parts();
    assert!(rest.is_empty());
    // The silence itself is what is tested.
    std::thread::sleep(silence());
    let sent = Pattern::new(6).bytes(300_000);
    let mut back = Vec::new();
    std::thread::scope(|scope| {
        let mut out = stream.try_clone().expect("a second handle");
        let sent = &sent;
        scope.spawn(move || {
            out.write_all(sent).expect("sent");
            out.shutdown(Shutdown::Write).expect("half closed");
        });
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .expect("set");
        stream.read_to_end(&mut back).expect("an echo");
    });
    assert!(back == sent, "{} bytes came back", back.len());
}

//! HTTP/1.1 through the relay: bodies of every framing and size, connections that are kept, hosts that are rewritten.

use std::{fs::File, io, thread};

use e2e::{
    HttpConn, Nginx, Service, Transport, big, http, over_each_transport,
    pattern::{Pattern, Sha256},
};

use crate::server;

over_each_transport!(
    many_requests_share_one_connection,
    chunked_bodies_pass_both_ways,
    a_visitor_waits_for_100_continue,
    a_final_answer_instead_of_100_continue_passes,
    big_bodies_pass_both_ways_at_once_unchanged,
    an_answer_without_a_length_ends_with_the_connection,
    the_local_address_stands_as_host_where_it_is_asked_for,
    unix_sockets_are_services,
    status_pages_tell_unknown_hosts_from_dead_services,
);

fn many_requests_share_one_connection(transport: Transport) {
    let nginx = Nginx::plain(|dir| {
        for n in 0..10 {
            dir.file(&format!("files/{n}"), format!("file {n}"));
        }
    });
    let server = server();
    let _client = server
        .client(transport, "web")
        .service(nginx.url(0), "")
        .start_up();
    let mut visitor = HttpConn::new(http::connect(server.http()).expect("a connection"));
    for round in 0..100 {
        let n = round % 10;
        let response = visitor
            .get("web.example.com", &format!("/{n}"))
            .expect("an answer");
        assert_eq!(
            (response.status, response.text()),
            (200, format!("file {n}"))
        );
    }
    // Requests that are sent without waiting are answered in order.
    let pipelined: String = (0..10)
        .map(|n| format!("GET /{n} HTTP/1.1\r\nhost: WEB.example.com:80\r\n\r\n"))
        .collect();
    visitor.send(pipelined).expect("sent");
    for n in 0..10 {
        assert_eq!(
            visitor.response().expect("an answer").text(),
            format!("file {n}")
        );
    }
    let missing = visitor.get("web.example.com", "/none").expect("an answer");
    assert_eq!(missing.status, 404);
}

/// Answers with length and SHA-256 of the request's content, in chunks.
fn summing() -> Service {
    Service::http(|exchange| {
        let (length, digest) = exchange.digest()?;
        exchange.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        for part in [length.to_string(), " ".to_owned(), digest] {
            exchange.write(format!("{:x}\r\n{part}\r\n", part.len()))?;
        }
        exchange.write("0\r\n\r\n")
    })
}

fn chunked_bodies_pass_both_ways(transport: Transport) {
    let service = summing();
    let server = server();
    let _client = server
        .client(transport, "web")
        .service(service.url("http"), "")
        .start_up();
    let mut visitor = HttpConn::new(http::connect(server.http()).expect("a connection"));
    for seed in 0..3 {
        visitor
            .send("POST / HTTP/1.1\r\nHost: web.example.com\r\nTransfer-Encoding: chunked\r\n\r\n")
            .expect("sent");
        let (mut pattern, mut total) = (Pattern::new(seed), 0);
        for size in [1, 7, 4096, 65_537, 300_000, 2] {
            visitor.send(format!("{size:x}\r\n")).expect("sent");
            visitor.send(pattern.bytes(size)).expect("sent");
            visitor.send("\r\n").expect("sent");
            total += size as u64;
        }
        visitor.send("0\r\n\r\n").expect("sent");
        let response = visitor.response().expect("an answer");
        assert_eq!(response.header("transfer-encoding"), Some("chunked"));
        assert_eq!(
            response.text(),
            format!("{total} {}", Sha256::of_pattern(seed, total))
        );
    }
    assert_eq!(service.accepted(), 1);
}

fn a_visitor_waits_for_100_continue(transport: Transport) {
    let service = summing();
    let server = server();
    let _client = server
        .client(transport, "web")
        .service(service.url("http"), "")
        .start_up();
    let mut visitor = HttpConn::new(http::connect(server.http()).expect("a connection"));
    let length = 100_000;
    visitor
        .send(format!("POST / HTTP/1.1\r\nHost: web.example.com\r\nExpect: 100-continue\r\nContent-Length: {length}\r\n\r\n"))
        .expect("sent");
    assert_eq!(visitor.head().expect("an interim answer").status, 100);
    visitor.send(Pattern::new(5).bytes(length)).expect("sent");
    let response = visitor.response().expect("an answer");
    let length = length as u64;
    assert_eq!(
        response.text(),
        format!("{length} {}", Sha256::of_pattern(5, length))
    );
}

fn a_final_answer_instead_of_100_continue_passes(transport: Transport) {
    let service = Service::http(|exchange| {
        exchange.close();
        exchange.respond(417, "no")
    });
    let server = server();
    let _client = server
        .client(transport, "web")
        .service(service.url("http"), "")
        .start_up();
    let mut visitor = HttpConn::new(http::connect(server.http()).expect("a connection"));
    visitor
        .send("POST / HTTP/1.1\r\nHost: web.example.com\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n")
        .expect("sent");
    let response = visitor.response().expect("an answer");
    assert_eq!((response.status, response.text().as_str()), (417, "no"));
}

fn big_bodies_pass_both_ways_at_once_unchanged(transport: Transport) {
    let length = big();
    let nginx = Nginx::plain(|dir| {
        let file = File::create(dir.path().join("files/big")).expect("a file");
        Pattern::new(11).write_to(file, length).expect("written");
    });
    let service = summing();
    let server = server();
    let _client = server
        .client(transport, "web")
        .service(nginx.url(0), "")
        .service(service.url("http"), "hostPrefix: sum")
        .start_up();
    let address = server.http();
    let download = thread::spawn(move || {
        let mut visitor = HttpConn::new(http::connect(address)?);
        visitor.send("GET /big HTTP/1.1\r\nHost: web.example.com\r\n\r\n")?;
        visitor.digest()
    });
    let upload = move || -> io::Result<String> {
        let mut visitor = HttpConn::new(http::connect(address)?);
        visitor.send(format!(
            "POST / HTTP/1.1\r\nHost: sum.example.com\r\nContent-Length: {length}\r\n\r\n"
        ))?;
        Pattern::new(12).write_to(visitor.stream(), length)?;
        Ok(visitor.response()?.text())
    };
    let uploaded = upload().expect("an answer");
    let (head, downloaded, digest) = download.join().expect("no panic").expect("an answer");
    assert_eq!(
        uploaded,
        format!("{length} {}", Sha256::of_pattern(12, length))
    );
    assert_eq!(
        (head.status, downloaded, digest),
        (200, length, Sha256::of_pattern(11, length))
    );
}

fn an_answer_without_a_length_ends_with_the_connection(transport: Transport) {
    let service = Service::http(|exchange| {
        exchange.close();
        exchange.write("HTTP/1.0 200 OK\r\n\r\n")?;
        exchange.write(Pattern::new(3).bytes(200_000))
    });
    let server = server();
    let _client = server
        .client(transport, "web")
        .service(service.url("http"), "")
        .start_up();
    let response = http::get(server.http(), "web.example.com", "/").expect("an answer");
    assert_eq!(response.body.len(), 200_000);
    Pattern::new(3).check(&response.body);
}

fn the_local_address_stands_as_host_where_it_is_asked_for(transport: Transport) {
    let nginx = Nginx::plain(|_| {});
    let server = server();
    let _client = server
        .client(transport, "web")
        .service(nginx.url(0), "useLocalAsHTTPHost: true")
        .service(nginx.url(0), "hostPrefix: plain")
        .start_up();
    let host = |visited: &str| {
        http::get(server.http(), visited, "/host")
            .expect("an answer")
            .text()
    };
    assert_eq!(host("web.example.com"), nginx.address(0).to_string());
    assert_eq!(host("plain.example.com"), "plain.example.com");
}

fn unix_sockets_are_services(transport: Transport) {
    let dir = e2e::TempDir::new();
    let path = dir.path().join("service.sock");
    Service::unix_http(&path, |exchange| {
        let (length, digest) = exchange.digest()?;
        exchange.respond(200, format!("{length} {digest}"))
    });
    let server = server();
    let _client = server
        .client(transport, "web")
        .service(format!("unix:{}", path.display()), "")
        .start_up();
    let mut visitor = HttpConn::new(http::connect(server.http()).expect("a connection"));
    let response = visitor
        .post("web.example.com", "/", &Pattern::new(1).bytes(1_000_000))
        .expect("an answer");
    assert_eq!(
        response.text(),
        format!("1000000 {}", Sha256::of_pattern(1, 1_000_000))
    );
}

fn status_pages_tell_unknown_hosts_from_dead_services(transport: Transport) {
    let dead = Service::echo().url("http");
    let server = server();
    let _client = server.client(transport, "web").service(dead, "").start_up();
    let unknown = http::get(server.http(), "nobody.example.com", "/").expect("an answer");
    assert_eq!(
        (unknown.status, unknown.header("content-type")),
        (404, Some("text/plain; charset=utf-8"))
    );
    let dead = http::get(server.http(), "web.example.com", "/").expect("an answer");
    assert_eq!(dead.status, 502, "{}", dead.text());
    let mut browser = HttpConn::new(http::connect(server.http()).expect("a connection"));
    browser
        .send("GET / HTTP/1.1\r\nHost: nobody.example.com\r\nAccept: text/html,*/*\r\n\r\n")
        .expect("sent");
    let page = browser.response().expect("an answer");
    assert_eq!(
        (page.status, page.header("content-type")),
        (404, Some("text/html; charset=utf-8"))
    );
}

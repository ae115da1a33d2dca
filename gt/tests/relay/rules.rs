//! What a service in HTTP mode asks of the server for its requests (`headers`, `basicAuth`, `protocol`), and checks of services by their
//! client (`healthCheck`).

use std::{
    io::Read,
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering::SeqCst},
    },
};

use e2e::{HttpConn, Nginx, PortRange, ServerSpec, Service, Transport, http, wait};

use crate::{grpc, server};

/// Answers with the request's fields, one a line.
fn mirror() -> Service {
    Service::http(|exchange| {
        exchange.discard()?;
        let line = |(name, value): &(String, String)| format!("{name}={value}\n");
        let body: String = exchange.headers.iter().map(line).collect();
        let length = body.len();
        exchange.write(format!(
            "HTTP/1.1 200 OK\r\nServer: secret/1.0\r\nX-Kept: kept\r\nContent-Length: {length}\r\n\r\n{body}"
        ))
    })
}

fn visitor(server: &e2e::Server) -> HttpConn<TcpStream> {
    HttpConn::new(http::connect(server.http()).expect("a connection"))
}

#[test]
fn fields_are_changed_in_requests_and_answers() {
    let service = mirror();
    let server = server();
    let _client = server
        .client(Transport::Tcp, "web")
        .service(
            service.url("http"),
            "headers: {request: {set: {X-From: '{clientIp} {scheme}', X-Real-IP: none}, add: {X-More: more}, remove: [Cookie]}, \
             response: {set: {X-Frame-Options: DENY}, remove: [Server]}}",
        )
        .start_up();
    let mut visitor = visitor(&server);
    for _ in 0..2 {
        let request =
            "GET / HTTP/1.1\r\nHost: web.test\r\nCookie: a=b\r\nX-From: me\r\nX-More: mine\r\n\r\n";
        visitor.send(request).expect("sent");
        let answer = visitor.response().expect("an answer");
        assert_eq!(answer.header("x-frame-options"), Some("DENY"));
        assert_eq!(
            (answer.header("server"), answer.header("x-kept")),
            (None, Some("kept"))
        );
        let said = answer.text();
        let count = |line: &str| said.lines().filter(|other| *other == line).count();
        for line in [
            "x-from=127.0.0.1 http",
            "x-more=mine",
            "x-more=more",
            "x-real-ip=none",
            "x-forwarded-for=127.0.0.1",
        ] {
            assert_eq!(count(line), 1, "{line} in {said}");
        }
        assert!(
            !said.contains("cookie") && !said.contains("=me\n"),
            "{said}"
        );
        assert_eq!(said.matches("x-real-ip").count(), 1, "{said}");
    }
}

/// `U*U`, of the vectors that come with bcrypt.
const HASH: &str = "$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW";

#[test]
fn a_service_asks_its_visitors_for_a_password() {
    let service = mirror();
    let server = server();
    let client = server
        .client(Transport::Tcp, "web")
        .service(
            service.url("http"),
            &format!("basicAuth: {{realm: 'the shed', passwords: {{ann: \"{HASH}\", bob: hunter2}}, userHeader: X-User}}"),
        )
        .start_up();
    let mut visitor = visitor(&server);
    let mut ask = |credentials: &str| {
        let request = format!(
            "GET / HTTP/1.1\r\nHost: web.test\r\nX-User: root\r\nX_User: root\r\n{credentials}\r\n"
        );
        visitor.send(request).expect("sent");
        visitor.response().expect("an answer")
    };
    let refused = ask("");
    assert_eq!(refused.status, 401);
    let challenge = refused.header("www-authenticate");
    assert_eq!(
        challenge,
        Some("Basic realm=\"the shed\", charset=\"UTF-8\"")
    );
    // bob:wrong, nobody:hunter2, and a user whose password is the hash that the server knows.
    for wrong in ["Ym9iOndyb25n", "bm9ib2R5Omh1bnRlcjI=", "%%%"] {
        assert_eq!(
            ask(&format!("Authorization: Basic {wrong}\r\n")).status,
            401
        );
    }
    // Once with the check, once from the table of good ones.
    for _ in 0..2 {
        for (user, right) in [("bob", "Ym9iOmh1bnRlcjI="), ("ann", "YW5uOlUqVQ==")] {
            let answer = ask(&format!("Authorization: Basic {right}\r\n"));
            let said = answer.text();
            assert_eq!(answer.status, 200, "{said}");
            assert!(said.contains(&format!("x-user={user}\n")), "{said}");
            assert!(
                !said.contains("root") && !said.contains("authorization"),
                "{said}"
            );
        }
    }
    for log in [client.process.log(), server.process.log()] {
        assert!(!log.contains("hunter2") && !log.contains(HASH));
    }
}

/// What was passed through untouched would reach the service without a password.
#[test]
fn a_service_with_a_password_is_not_reached_by_passthrough() {
    let authority = e2e::cert::Authority::new();
    let cert = authority.sign(&["localhost", "web.test"]);
    let secure = Service::https(&cert, |exchange| {
        exchange.discard()?;
        exchange.respond(200, "in")
    });
    let file = cert.cert_file().display().to_string();
    let server = server();
    let _client = server
        .client(Transport::Tcp, "web")
        .service(
            secure.url("https").replace("127.0.0.1", "localhost"),
            &format!(
                "hostPrefix: web, localCert: \"{file}\", basicAuth: {{passwords: {{bob: hunter2}}}}"
            ),
        )
        .start_up();
    assert_eq!(
        http::get(server.http(), "web.test", "/")
            .expect("an answer")
            .status,
        401
    );
    let mut visitor = visitor(&server);
    let request =
        "GET / HTTP/1.1\r\nHost: web.test\r\nAuthorization: Basic Ym9iOmh1bnRlcjI=\r\n\r\n";
    visitor.send(request).expect("sent");
    assert_eq!(visitor.response().expect("an answer").text(), "in");
    let config = e2e::tls::client_config(&[authority.der().clone()], &[]);
    let passed = e2e::tls::connect(server.sni(), "web.test", config).and_then(|mut stream| {
        std::io::Write::flush(&mut stream).and_then(|()| stream.read(&mut [0]))
    });
    assert!(passed.is_err(), "TLS was passed through");
}

/// A service whose health is a status that the test sets.
fn patient(word: &'static str) -> (Arc<AtomicU16>, Service) {
    let health = Arc::new(AtomicU16::new(200));
    let told = Arc::clone(&health);
    let service = Service::http(move |exchange| {
        exchange.discard()?;
        match exchange.target.as_str() {
            "/up" => exchange.respond(told.load(SeqCst), ""),
            _ => exchange.respond(200, word),
        }
    });
    (health, service)
}

const CHECK: &str = "healthCheck: {path: /up, interval: 100ms, fall: 2, rise: 2}";

#[test]
fn visitors_are_told_that_a_service_fails_its_checks() {
    let (health, service) = patient("well");
    for mode in ["http", "stream"] {
        let server = server();
        let client = server
            .client(Transport::Tcp, "web")
            .service(service.url("http"), &format!("mode: {mode}, {CHECK}"))
            .start_up();
        let get = || http::get(server.http(), "web.test", "/").expect("an answer");
        assert_eq!(get().text(), "well");
        health.store(500, SeqCst);
        client.process.wait_log(&["fails its checks", "status 500"]);
        let answer = http::get_until(server.http(), "web.test", "/", 503);
        assert_eq!(answer.header("retry-after"), Some("5"));
        assert!(
            answer.text().contains("fails the checks"),
            "{}",
            answer.text()
        );
        health.store(204, SeqCst);
        assert_eq!(
            http::get_until(server.http(), "web.test", "/", 200).text(),
            "well"
        );
        client.process.wait_log(&["fit again"]);
    }
}

#[test]
fn of_several_clients_those_whose_service_is_fit_get_the_visitors() {
    let (sick, red) = patient("red");
    let (_health, blue) = patient("blue");
    let ports = PortRange::claim(1);
    let server = ServerSpec::new()
        .user_with("web", "loadBalance: true")
        .ports(&ports)
        .start();
    let start = |service: &Service| {
        let by_port = format!(
            "remoteTCPPort: {}, loadBalance: all, {CHECK}",
            ports.first()
        );
        server
            .client(Transport::Tcp, "web")
            .service(
                service.url("http"),
                &format!("hostPrefix: web, mode: http, loadBalance: all, {CHECK}"),
            )
            .service(service.url("http").replace("http:", "tcp:"), &by_port)
            .start_up()
    };
    let (client, _other) = (start(&red), start(&blue));
    let ask = || {
        let by_host = http::get(server.http(), "web.test", "/").expect("an answer");
        let by_port = http::get(server.port(ports.first()), "any", "/").expect("an answer");
        [by_host.text(), by_port.text()]
    };
    let both = || (0..6).flat_map(|_| ask()).collect::<Vec<_>>();
    assert!(both().contains(&"red".to_owned()));
    sick.store(503, SeqCst);
    // The service by host and the one by port.
    client.process.wait_log_times(&["fails its checks"], 2);
    server
        .process
        .wait_log_times(&["fails its client's checks"], 2);
    assert!(both().iter().all(|word| word == "blue"), "{:?}", both());
    sick.store(200, SeqCst);
    server.process.wait_log_times(&["fit again"], 2);
    wait::until("red is asked again", || {
        both().contains(&"red".to_owned()).then_some(())
    });
}

#[test]
fn a_service_that_accepts_no_connections_fails_its_check() {
    let server = server();
    let dead = Service::echo().url("http");
    let client = server
        .client(Transport::Tcp, "web")
        .service(dead, "healthCheck: {interval: 100ms}")
        .start_up();
    client.process.wait_log(&["fails its checks", "refused"]);
    assert_eq!(
        http::get_until(server.http(), "web.test", "/", 503).status,
        503
    );
}

#[test]
fn requests_of_many_visitors_share_a_connection_to_a_service_that_speaks_http2() {
    let block = "listen {listen} http2; location / { return 200 \"$server_protocol $connection $http_x_real_ip $http_host\"; }";
    let nginx = Nginx::start(&[block], |_| {});
    let server = ServerSpec::new().option("workers", 1).user("web").start();
    let _client = server
        .client(Transport::Tcp, "web")
        .service(nginx.url(0), "protocol: h2c")
        .service("http://127.0.0.1:1", "hostPrefix: dead, protocol: h2c")
        .start_up();
    let mut connections = std::collections::HashSet::new();
    for _ in 0..5 {
        let mut visitor = visitor(&server);
        for _ in 0..5 {
            let said = visitor.get("web.test", "/").expect("an answer").text();
            let mut words = said.split(' ');
            assert_eq!(words.next(), Some("HTTP/2.0"), "{said}");
            connections.insert(words.next().map(str::to_owned));
            assert_eq!(words.collect::<Vec<_>>(), ["127.0.0.1", "web.test"]);
        }
    }
    assert_eq!(connections.len(), 1, "{connections:?}");
    let answer = http::get(server.http(), "dead.test", "/").expect("an answer");
    assert_eq!(answer.status, 502);
    assert!(
        answer.text().contains("refuses connections"),
        "{}",
        answer.text()
    );
}

/// gRPC needs HTTP/2 on both sides: trailers, and bytes both ways at once.
#[test]
fn calls_stream_both_ways_at_once_through_http_mode() {
    let service = grpc::echo();
    let server = server();
    let _client = server
        .client(Transport::Tls, "web")
        .service(format!("http://{service}"), "protocol: h2c")
        .start_up();
    grpc::visit_in_time(server.http());
}

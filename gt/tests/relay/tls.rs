//! TLS of visitors: ended at the server, passed through by name, and begun again towards the service.

use std::{
    io::{Read, Write},
    net::SocketAddr,
    process::{Command, Stdio},
};

use e2e::{
    Cert, HttpConn, Nginx, ServerSpec, Service, Transport, cert::Authority, http,
    over_each_transport, pattern::Pattern, tls,
};
use rustls::NamedGroup;

use crate::server;

over_each_transport!(
    https_visitors_get_the_certificate_of_the_name_they_ask_for,
    tls_is_passed_through_to_openssl_s_client,
    a_post_quantum_hello_is_passed_through,
    an_unknown_name_gets_the_alert_for_it,
    a_local_https_service_that_nobody_vouches_for_is_refused,
    a_local_https_service_of_a_private_authority_is_reached_with_its_certificate,
);

fn https_visitors_get_the_certificate_of_the_name_they_ask_for(transport: Transport) {
    let nginx = Nginx::plain(|dir| {
        dir.file("files/page", "a page");
    });
    let [a, b] = ["a.example.com", "b.example.com"].map(|name| Cert::self_signed(&[name]));
    let files = |cert: &Cert| {
        format!(
            "{{certFile: {}, keyFile: {}}}",
            cert.cert_file().display(),
            cert.key_file().display()
        )
    };
    let server = ServerSpec::new()
        .user("web")
        .option("certificates", format!("[{}, {}]", files(&a), files(&b)))
        .start();
    let _client = server
        .client(transport, "web")
        .service(nginx.url(0), "hostPrefix: a")
        .service(nginx.url(0), "hostPrefix: b")
        .start_up();
    for (cert, other, name) in [(&a, &b, "a.example.com"), (&b, &a, "b.example.com")] {
        let config = tls::client_config(&[cert.der().clone()], &[b"http/1.1"]);
        let stream = tls::connect(server.https(), name, config)
            .expect("a handshake with the name's own certificate");
        assert_eq!(stream.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
        let mut visitor = HttpConn::new(stream);
        for _ in 0..5 {
            let response = visitor.get(name, "/page").expect("an answer");
            assert_eq!((response.status, response.text().as_str()), (200, "a page"));
        }
        let wrong = tls::client_config(&[other.der().clone()], &[]);
        tls::connect(server.https(), name, wrong)
            .expect_err("the other name's certificate is not shown");
    }
}

/// An HTTPS service with a certificate of an authority of its own.
fn secured(name: &str) -> (Authority, Service) {
    let authority = Authority::new();
    let cert = authority.sign(&[name, "127.0.0.1"]);
    let service = Service::https(&cert, |exchange| {
        let content = exchange.content()?;
        exchange.close();
        exchange.write("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")?;
        exchange.write(if content.is_empty() {
            b"from behind".to_vec()
        } else {
            content
        })
    });
    (authority, service)
}

fn tls_is_passed_through_to_openssl_s_client(transport: Transport) {
    let (authority, service) = secured("web.example.com");
    let server = server();
    let _client = server
        .client(transport, "web")
        .service(service.url("https"), "hostPrefix: web")
        .start_up();
    let mut openssl = Command::new("openssl")
        .args([
            "s_client",
            "-quiet",
            "-verify_return_error",
            "-servername",
            "web.example.com",
        ])
        .args([
            "-verify_hostname",
            "web.example.com",
            "-connect",
            &server.sni().to_string(),
            "-CAfile",
        ])
        .arg(authority.file())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("install openssl");
    let mut stdin = openssl.stdin.take().expect("its input");
    stdin
        .write_all(b"GET / HTTP/1.1\r\nHost: web.example.com\r\n\r\n")
        .expect("sent");
    let output = openssl.wait_with_output().expect("its end");
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        out.starts_with("HTTP/1.1 200 OK") && out.ends_with("from behind"),
        "{out}\n{err}"
    );
    drop(stdin);
}

fn a_post_quantum_hello_is_passed_through(transport: Transport) {
    let (authority, service) = secured("web.example.com");
    let server = server();
    let _client = server
        .client(transport, "web")
        .service(service.url("https"), "hostPrefix: web")
        .start_up();
    let visit = |address: SocketAddr, anchor| {
        let mut stream = tls::connect(
            address,
            "web.example.com",
            tls::client_config(&[anchor], &[]),
        )
        .expect("a handshake");
        let group = stream
            .conn
            .negotiated_key_exchange_group()
            .map(|group| group.name());
        // Its key share alone is longer than a packet.
        assert_eq!(group, Some(NamedGroup::X25519MLKEM768));
        let content = Pattern::new(1).bytes(300_000);
        let head = format!(
            "POST / HTTP/1.1\r\nHost: web.example.com\r\nContent-Length: {}\r\n\r\n",
            content.len()
        );
        stream.write_all(head.as_bytes()).expect("sent");
        stream.write_all(&content).expect("sent");
        let mut answer = Vec::new();
        // A service that closes without close_notify is its own matter.
        let _ = stream.read_to_end(&mut answer);
        assert!(
            answer.ends_with(&content),
            "{} bytes came back",
            answer.len()
        );
    };
    visit(server.sni(), authority.der().clone());
}

fn an_unknown_name_gets_the_alert_for_it(transport: Transport) {
    let (authority, service) = secured("web.example.com");
    let server = server();
    let _client = server
        .client(transport, "web")
        .service(service.url("https"), "hostPrefix: web")
        .start_up();
    let config = tls::client_config(&[authority.der().clone()], &[]);
    let error = tls::connect(server.sni(), "nobody.example.com", config)
        .expect_err("no service has this name");
    assert!(error.to_string().contains("UnrecognisedName"), "{error}");
}

fn a_local_https_service_that_nobody_vouches_for_is_refused(transport: Transport) {
    let (_authority, service) = secured("localhost");
    let server = server();
    let _client = server
        .client(transport, "web")
        .service(service.url("https"), "hostPrefix: web")
        .start_up();
    let anchor = server.cert().der().clone();
    let plain = http::get(server.http(), "web.example.com", "/").expect("an answer");
    let stream = tls::connect(
        server.https(),
        "localhost",
        tls::client_config(&[anchor], &[]),
    );
    let mut encrypted = HttpConn::new(stream.expect("a handshake"));
    let encrypted = encrypted.get("web.example.com", "/").expect("an answer");
    for refused in [plain, encrypted] {
        assert_eq!(refused.status, 502, "{}", refused.text());
        assert!(
            refused
                .text()
                .contains("does not trust the TLS certificate"),
            "{}",
            refused.text()
        );
    }
}

fn a_local_https_service_of_a_private_authority_is_reached_with_its_certificate(
    transport: Transport,
) {
    let authority = Authority::new();
    let service = Service::https(&authority.sign(&["127.0.0.1"]), |exchange| {
        exchange.discard()?;
        exchange.respond(200, "from behind")
    });
    let stranger = Authority::new();
    let server = server();
    let trusting = |prefix: &str, file: &std::path::Path| {
        format!("hostPrefix: {prefix}, localCert: {}", file.display())
    };
    let _client = server
        .client(transport, "web")
        .service(service.url("https"), &trusting("known", &authority.file()))
        .service(
            service.url("https"),
            &trusting("stranger", &stranger.file()),
        )
        .start_up();
    // Over plain HTTP and over TLS that ends at the server, the client begins TLS anew towards the service.
    let plain = http::get(server.http(), "known.example.com", "/").expect("an answer");
    let anchor = server.cert().der().clone();
    let stream = tls::connect(
        server.https(),
        "localhost",
        tls::client_config(&[anchor], &[]),
    );
    let mut encrypted = HttpConn::new(stream.expect("a handshake"));
    let encrypted = encrypted.get("known.example.com", "/").expect("an answer");
    for response in [plain, encrypted] {
        assert_eq!(
            (response.status, response.text().as_str()),
            (200, "from behind")
        );
    }
    let refused = http::get(server.http(), "stranger.example.com", "/").expect("an answer");
    assert_eq!(refused.status, 502, "{}", refused.text());
}

/// A `wss://` link passes whatever ends TLS on its way only if it is not bound to that TLS, which is safe only where the certificate
/// was checked: both kinds come up against a server that ends TLS itself.
#[test]
fn a_websocket_link_over_tls_comes_up_with_a_checked_and_with_an_unchecked_certificate() {
    let origin = Service::text("behind wss");
    for insecure in [false, true] {
        let server = ServerSpec::new().user("web").start();
        let client = server
            .client(Transport::Tls, "web")
            .option("remote", format!("wss://{}/link", server.https()));
        let client = if insecure {
            client
                .without("remoteCert")
                .option("remoteCertInsecure", true)
        } else {
            client
        };
        let _client = client
            .service(format!("http://{}", origin.address()), "")
            .start_up();
        let response = http::get(server.http(), "web.test", "/").expect("an answer");
        assert_eq!(
            (response.status, response.text().as_str()),
            (200, "behind wss")
        );
    }
}

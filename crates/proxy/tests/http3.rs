//! HTTP/3 visitors in front of HTTP/1.1 origins, on the port of an https listener.

mod common;

use std::{
    io::{Read, Write},
    net::SocketAddr,
    time::{Duration, Instant},
};

use bytes::Bytes;
use common::*;
use http::{Method, Request, Response, StatusCode, Version};
use net::tls::{TlsAcceptor, TlsClientOptions, TlsServerOptions, Trust, self_signed};
use proxy::{Listener, Options, Protocol, Proxy, Site};
use quic::{
    ALPN_H3,
    h3::{Piece, Settings, client::Connection},
    http::{Body, Client, ClientOptions, Received, Versions},
};
use route::IpSet;

/// A proxy that speaks HTTPS and HTTP/3 before one origin, with two workers.
fn secure(origin: &Origin) -> Proxy {
    secure_with(site(route(), vec![upstream(vec![server(origin.address)])]))
}

fn secure_with(site: Site) -> Proxy {
    let acceptor = TlsAcceptor::new(&TlsServerOptions {
        certificates: vec![self_signed(&["localhost".into()]).expect("a certificate")],
        alpn: vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        ..TlsServerOptions::default()
    });
    Proxy::start(Options {
        workers: Some(2),
        listeners: vec![Listener {
            address: free_port(),
            protocol: Protocol::Https(acceptor.expect("TLS")),
            proxy_from: IpSet::default(),
            http3: true,
        }],
        site,
        access_log: None,
    })
    .expect("a free port")
}

/// A port that is free over TCP and UDP: asked for any, the proxy takes one of TCP's, and another program may have that over UDP.
fn free_port() -> SocketAddr {
    loop {
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let address = udp.local_addr().expect("its address");
        if std::net::TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}

/// Runs `visit` with a client that knows no certificates; `versions` it speaks.
fn visit<F>(proxy: &Proxy, versions: Versions, visit: impl FnOnce(Client, String) -> F)
where
    F: Future<Output = ()>,
{
    let address = proxy.addresses()[0];
    local(async {
        let client = Client::with(ClientOptions {
            tls: trusting(),
            versions,
            early_data: false,
            ..ClientOptions::default()
        });
        let base = format!("https://localhost:{}", address.port());
        visit(client.expect("a client"), base).await;
    });
}

fn trusting() -> TlsClientOptions {
    TlsClientOptions {
        trust: Trust::InsecureNoVerification,
        ..TlsClientOptions::default()
    }
}

fn local(visit: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let local = tokio::task::LocalSet::new();
    runtime.block_on(async {
        let visit = tokio::time::timeout(PATIENCE * 2, local.run_until(visit));
        visit.await.expect("in time");
    });
}

async fn whole(response: Response<Received>) -> Bytes {
    let read = response.into_body().collect_up_to(64 << 20).await;
    read.expect("a body").0
}

#[test]
fn a_get_arrives_as_http1_and_comes_back() {
    let (origin, told) = Origin::answering(
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-A: b\r\nConnection: keep-alive\r\n\r\nok",
    );
    let proxy = secure(&origin);
    visit(&proxy, Versions::OnlyHttp3, |client, base| async move {
        for _ in 0..3 {
            let answer = client.get(&format!("{base}/a?b")).await.expect("an answer");
            assert_eq!(
                (answer.status(), answer.version()),
                (StatusCode::OK, Version::HTTP_3)
            );
            assert_eq!(answer.headers()["x-a"], "b");
            assert!(!answer.headers().contains_key("connection"));
            // Who is there already need not be told.
            assert!(!answer.headers().contains_key("alt-svc"));
            assert_eq!(whole(answer).await, "ok");
        }
    });
    let seen = text(&told.recv_timeout(PATIENCE).expect("a request"));
    let port = proxy.addresses()[0].port();
    let start = format!("GET /a?b HTTP/1.1\r\nHost: localhost:{port}\r\n");
    assert!(seen.starts_with(&start), "{seen}");
    let seen = seen.to_lowercase();
    assert!(seen.contains("x-forwarded-proto: https\r\n"), "{seen}");
    assert!(seen.contains("x-forwarded-for: 127.0.0.1\r\n"), "{seen}");
    assert!(!seen.contains("transfer-encoding"), "{seen}");
}

#[test]
fn answers_over_tcp_tell_of_http3() {
    let (origin, _told) = Origin::answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let proxy = secure(&origin);
    let port = proxy.addresses()[0].port();
    visit(&proxy, Versions::OnlyTcp, |client, base| async move {
        let answer = client.get(&base).await.expect("an answer");
        assert_eq!(answer.version(), Version::HTTP_2);
        let expected = format!("h3=\":{port}\"; ma=86400");
        assert_eq!(answer.headers()["alt-svc"], expected.as_str());
        assert_eq!(whole(answer).await, "ok");
    });
}

#[test]
fn an_origins_own_alternative_stands() {
    let (origin, _told) =
        Origin::answering(b"HTTP/1.1 200 OK\r\nAlt-Svc: clear\r\nContent-Length: 2\r\n\r\nok");
    let proxy = secure(&origin);
    visit(&proxy, Versions::OnlyTcp, |client, base| async move {
        let answer = client.get(&base).await.expect("an answer");
        let all: Vec<_> = answer.headers().get_all("alt-svc").iter().collect();
        assert_eq!(all, ["clear"]);
    });
}

#[test]
fn bodies_pass_both_ways_whatever_their_framing() {
    let origin = Origin::new(|mut stream, _| {
        while let Some(request) = read_message(&mut stream) {
            let at = request.windows(4).position(|four| four == b"\r\n\r\n");
            let body = request.len() - at.map_or(0, |at| at + 4);
            let answer = format!(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\nX-Sum: 7\r\n\r\n",
                body.to_string().len()
            );
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    let proxy = secure(&origin);
    visit(&proxy, Versions::OnlyHttp3, |client, base| async move {
        let data = vec![7u8; 3_000_000];
        let answer = client.post(&base, data).await.expect("an answer");
        let (said, trailers) = answer.into_body().collect_up_to(100).await.expect("a body");
        assert_eq!(said, "3000000");
        assert_eq!(trailers.expect("trailers")["x-sum"], "7");
        // Of unknown length: "5\r\nhello\r\n0\r\n\r\n" is what the origin gets.
        let stream = Body::stream(Once(Some("hello")));
        let answer = client.post(&base, stream).await.expect("an answer");
        assert_eq!(whole(answer).await, "15");
    });
}

struct Once(Option<&'static str>);

impl http_body::Body for Once {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        let next = self.0.take();
        std::task::Poll::Ready(next.map(|text| Ok(http_body::Frame::data(Bytes::from(text)))))
    }
}

#[test]
fn large_answers_wait_for_whoever_is_slow() {
    const LENGTH: usize = 24 << 20;
    let origin = Origin::new(|mut stream, _| {
        while read_message(&mut stream).is_some() {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n");
            let _ = stream.write_all(head.as_bytes());
            let _ = stream.write_all(&vec![7; LENGTH]);
        }
    });
    let proxy = secure(&origin);
    visit(&proxy, Versions::OnlyHttp3, |client, base| async move {
        let slow = client.get(&base).await.expect("an answer");
        // Held back at its beginning, it stops nobody else.
        let fast = client.get(&base).await.expect("an answer");
        assert_eq!(whole(fast).await.len(), LENGTH);
        assert_eq!(whole(slow).await.len(), LENGTH);
    });
}

#[test]
fn an_answer_that_breaks_off_is_reset() {
    let origin = Origin::new(|mut stream, _| {
        let _ = read_message(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this");
    });
    let proxy = secure(&origin);
    visit(&proxy, Versions::OnlyHttp3, |client, base| async move {
        match client.get(&base).await {
            Ok(answer) => assert!(answer.into_body().collect_up_to(200).await.is_err()),
            Err(error) => assert!(error.to_string().contains("0x102"), "{error}"),
        }
    });
}

#[test]
fn a_websocket_goes_through_as_an_extended_connect() {
    let origin = Origin::new(|mut stream, _| {
        let request = text(&read_head(&mut stream).expect("a request")).to_lowercase();
        assert!(request.starts_with("get /chat http/1.1\r\n"), "{request}");
        assert!(request.contains("upgrade: websocket\r\n"), "{request}");
        assert!(request.contains("sec-websocket-key: "), "{request}");
        let _ = stream.write_all(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n",
        );
        let mut buffer = [0; 100];
        while let Ok(n @ 1..) = stream.read(&mut buffer) {
            let _ = stream.write_all(&buffer[..n]);
        }
    });
    let proxy = secure(&origin);
    let address = proxy.addresses()[0];
    local(async {
        let connection = connection(address, false).await.0;
        let request = Request::builder()
            .method(Method::CONNECT)
            .uri("https://localhost/chat")
            .header("sec-websocket-version", "13")
            .extension(quic::h3::Protocol("websocket".into()))
            .body(());
        let pending = connection.begin(&request.expect("a request")).await;
        let (mut send, mut response) = pending.expect("a stream").split();
        let head = response.head().await.expect("an answer");
        assert_eq!(head.status(), 200);
        assert!(!head.headers().contains_key("sec-websocket-accept"));
        let mut body = response.into_body();
        for text in ["one", "two"] {
            send.data(Bytes::from(text));
            send.flush().await.expect("sent");
            let piece = body.piece().await.expect("a piece");
            assert_eq!(piece, Some(Piece::Data(Bytes::from(text))));
        }
        send.finish();
        assert_eq!(body.piece().await.expect("the end"), None);
    });
}

async fn connection(
    address: SocketAddr,
    early: bool,
) -> (
    Connection,
    quic::Client,
    Option<quic::quinn::ZeroRttAccepted>,
) {
    let client = quic::Client::new(quic::ClientConfig {
        tls: trusting(),
        early_data: early,
        ..quic::ClientConfig::default()
    });
    let client = client.expect("a client");
    let (connection, accepted) = again(&client, address).await;
    (connection, client, accepted)
}

async fn again(
    client: &quic::Client,
    address: SocketAddr,
) -> (Connection, Option<quic::quinn::ZeroRttAccepted>) {
    let connecting = client.connect_early(address, "localhost", &[ALPN_H3]);
    let (quinn, accepted) = connecting.await.expect("a connection");
    let connection = Connection::start(quinn, Settings::default()).await;
    (connection.expect("HTTP/3"), accepted)
}

#[test]
fn early_requests_are_marked_and_unsafe_ones_refused() {
    let (origin, told) = Origin::answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let proxy = secure(&origin);
    let address = proxy.addresses()[0];
    local(async {
        let client = connection(address, true).await.1;
        let ask = async |method: Method, connection: &Connection| {
            let request = Request::builder().method(method).uri("https://localhost/");
            let pending = connection
                .begin(&request.body(()).expect("a request"))
                .await;
            let (mut send, mut response) = pending.expect("a stream").split();
            send.finish();
            let status = response.head().await.expect("an answer").status();
            let mut body = response.into_body();
            while body.piece().await.expect("a piece").is_some() {}
            status
        };
        // What is sent early is early where it is read before the handshake's end: nearly always, and never without a session.
        let mut refused = 0;
        for _ in 0..50 {
            let (connection, accepted) = again(&client, address).await;
            let (get, post) = (
                ask(Method::GET, &connection),
                ask(Method::POST, &connection),
            );
            let (get, post) = tokio::join!(get, post);
            assert_eq!(get, 200);
            match post.as_u16() {
                200 => {}
                425 if accepted.is_some() => refused += 1,
                other => panic!("{other}"),
            }
            if refused == 2 {
                return;
            }
        }
        panic!("no request was early");
    });
    let seen: Vec<_> = told.try_iter().map(|request| text(&request)).collect();
    let marked = |request: &&String| request.contains("early-data: 1\r\n");
    assert!(seen.iter().any(|request| marked(&request)), "{seen:?}");
    let early: Vec<_> = seen.iter().filter(marked).collect();
    assert!(
        early.iter().all(|request| request.starts_with("GET ")),
        "{early:?}"
    );
}

#[test]
fn a_proxy_that_leaves_lets_exchanges_end() {
    let origin = Origin::new(|mut stream, _| {
        while let Some(request) = read_message(&mut stream) {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\none");
            // The rest comes when the visitor has asked again, and was refused.
            if request.starts_with(b"GET /slow") {
                std::thread::sleep(Duration::from_millis(700));
            }
            let _ = stream.write_all(b"two");
        }
    });
    let proxy = secure(&origin);
    let leaving = &proxy;
    visit(&proxy, Versions::OnlyHttp3, |client, base| async move {
        let slow = client
            .get(&format!("{base}/slow"))
            .await
            .expect("an answer");
        leaving.leave();
        assert_eq!(whole(slow).await, "onetwo");
        let until = Instant::now() + PATIENCE;
        while leaving.left() > 0 {
            assert!(Instant::now() < until, "a connection is left");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    proxy.stop(PATIENCE);
}

#[test]
fn a_connection_goes_on_when_its_visitors_address_changes() {
    let (origin, _told) = Origin::answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let proxy = secure(&origin);
    visit(&proxy, Versions::OnlyHttp3, |client, base| async move {
        for _ in 0..10 {
            let answer = client.get(&base).await.expect("an answer");
            assert_eq!(whole(answer).await, "ok");
            client.rebind().expect("another port");
        }
    });
    assert_eq!(metric(&proxy, "proxy_visitors_total"), 1);
}

/// RFC 9114 §4.1.2.
#[test]
fn a_body_that_contradicts_its_length_ends_its_stream() {
    let origin = Origin::new(|mut stream, _| while read_message(&mut stream).is_some() {});
    let proxy = secure(&origin);
    let address = proxy.addresses()[0];
    local(async {
        let client = quic::Client::new(quic::ClientConfig {
            tls: trusting(),
            ..quic::ClientConfig::default()
        });
        let client = client.expect("a client");
        let connecting = client.connect(address, "localhost", &[ALPN_H3]);
        let connection = connecting.await.expect("a connection");
        let mut control = connection.open_uni().await.expect("a stream");
        control.write_all(b"\x00\x04\x00").await.expect("settings");
        // POST https://localhost/ with a length of 5: less, and more.
        let head = b"\x01\x13\x00\x00\xd4\xd7\x50\x09localhost\xc1\x54\x015";
        for body in [&b"\x00\x03abc"[..], b"\x00\x06abcdef"] {
            let (mut send, mut receive) = connection.open_bi().await.expect("a stream");
            send.write_all(head).await.expect("a head");
            send.write_all(body).await.expect("a body");
            let _ = send.finish();
            match receive.read_to_end(1000).await {
                Err(quic::quinn::ReadToEndError::Read(quic::quinn::ReadError::Reset(code))) => {
                    assert_eq!(code.into_inner(), 0x10e);
                }
                other => panic!("{other:?}"),
            }
        }
    });
}

//! A server and a client over HTTP/3, and over TCP where that fails.
#![allow(clippy::unwrap_used, reason = "a test ends where its helpers fail")]

mod common;

use std::{
    cell::RefCell,
    collections::VecDeque,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    time::{Duration, Instant},
};

use common::{
    LONG, on_worker,
    site::{Part, Parts, client, pipe, server},
};
use e2e::lossy::{LossyPath, Path};
use http::{HeaderValue, Method, Request, Response, StatusCode, Version, header};
use quic::{
    bytes::Bytes,
    http::{Body, BodyError, Datagrams, Protocol, Received, RequestError, Versions},
};

async fn text(response: Response<Received>) -> String {
    let (data, _) = response.into_body().collect_up_to(1 << 20).await.unwrap();
    String::from_utf8(data.to_vec()).unwrap()
}

#[test]
fn any_method_is_served_over_http3() {
    let server = server(|_| {});
    let uri = format!("https://localhost:{}/about", server.local_addr().port());
    on_worker(move || async move {
        let client = client(|options| options.early_data = false);
        for method in [
            "GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PURGE",
        ] {
            let request = Request::builder()
                .method(method)
                .uri(&uri)
                .body(Body::empty());
            let response = client.request(request.unwrap()).await.unwrap();
            assert_eq!(response.version(), Version::HTTP_3);
            assert!(response.headers().contains_key(header::DATE));
            assert_eq!(text(response).await, format!("{method} HTTP/3.0 -"));
        }
        let head = Request::head(&uri).body(Body::empty()).unwrap();
        let head = client.request(head).await.unwrap();
        assert_eq!(head.headers()[header::CONTENT_LENGTH], "15");
        assert_eq!(text(head).await, "");
        let missing = client.get(&uri.replace("about", "none")).await.unwrap();
        assert_eq!(missing.status(), StatusCode::NOT_FOUND);
    });
    // All on one connection.
    assert_eq!(server.stats().accepted, 1);
}

#[test]
fn bodies_stream_both_ways_at_once() {
    let server = server(|_| {});
    let uri = format!("https://localhost:{}/echo", server.local_addr().port());
    on_worker(move || async move {
        let (sender, body) = pipe();
        let response = client(|_| {}).post(&uri, body).await.unwrap();
        let mut body = response.into_body();
        for n in 0..100 {
            let part = Bytes::from(format!("part {n}"));
            sender.send(part.clone()).await.unwrap();
            assert_eq!(body.chunk().await.unwrap().unwrap(), part);
        }
        drop(sender);
        assert_eq!(body.chunk().await.unwrap(), None);
    });
}

#[test]
fn large_bodies_arrive_whole() {
    let server = server(|_| {});
    let base = format!("https://localhost:{}", server.local_addr().port());
    on_worker(move || async move {
        let client = client(|_| {});
        let data: Vec<u8> = (0..20_000_000u32).map(|n| (n % 251) as u8).collect();
        let sum: u64 = data.iter().copied().map(u64::from).sum();
        let response = client
            .post(&format!("{base}/sum"), data.clone())
            .await
            .unwrap();
        assert_eq!(text(response).await, format!("{} {sum} -", data.len()));
        let response = client
            .post(&format!("{base}/echo"), data.clone())
            .await
            .unwrap();
        let (back, _) = response
            .into_body()
            .collect_up_to(data.len())
            .await
            .unwrap();
        assert!(back == data);
    });
}

#[test]
fn trailers_pass_both_ways() {
    let server = server(|_| {});
    let base = format!("https://localhost:{}", server.local_addr().port());
    on_worker(move || async move {
        let client = client(|_| {});
        let response = client.get(&format!("{base}/trailers")).await.unwrap();
        let (data, trailers) = response.into_body().collect_up_to(100).await.unwrap();
        assert_eq!(data, "one two");
        assert_eq!(trailers.unwrap()["x-end"], "yes");
        let parts = VecDeque::from([Part::Data("ab"), Part::Trailer]);
        let response = client
            .post(&format!("{base}/sum"), Body::stream(Parts(parts)))
            .await;
        assert_eq!(text(response.unwrap()).await, "2 195 yes");
    });
}

#[test]
fn a_body_that_breaks_off_is_never_taken_for_whole() {
    let server = server(|_| {});
    let base = format!("https://localhost:{}", server.local_addr().port());
    on_worker(move || async move {
        let client = client(|_| {});
        // What was not yet sent when it broke off is not sent any more: the head may be missing too.
        match client.get(&format!("{base}/broken")).await {
            Ok(response) => {
                let read = response.into_body().collect_up_to(100).await;
                assert!(matches!(read, Err(BodyError::Http3(_))), "{read:?}");
            }
            Err(error) => assert!(matches!(error, RequestError::Http3(_)), "{error:?}"),
        }
    });
}

#[test]
fn a_panic_ends_its_exchange_and_nothing_else() {
    let server = server(|_| {});
    let base = format!("https://localhost:{}", server.local_addr().port());
    on_worker(move || async move {
        let client = client(|options| options.early_data = false);
        let broken = client.get(&format!("{base}/panic")).await;
        assert!(matches!(broken, Err(RequestError::Http3(_))), "{broken:?}");
        let fine = client.get(&format!("{base}/about")).await.unwrap();
        assert_eq!(fine.status(), 200);
    });
    assert_eq!(server.stats().accepted, 1);
}

#[test]
fn early_data_is_marked_and_unsafe_methods_are_never_early() {
    let server = server(|_| {});
    let base = format!("https://localhost:{}", server.local_addr().port());
    on_worker(move || async move {
        let client = client(|_| {});
        let about = format!("{base}/about");
        let first = text(client.get(&about).await.unwrap()).await;
        assert_eq!(first, "GET HTTP/3.0 -");
        // Sessions come behind the handshake.
        let mut early = false;
        for _ in 0..20 {
            client.close(LONG).await;
            let said = text(client.get(&about).await.unwrap()).await;
            early |= said == "GET HTTP/3.0 1";
            if early {
                break;
            }
        }
        assert!(early, "no request was early data");
        let posted = text(client.post(&about, "x").await.unwrap()).await;
        assert_eq!(posted, "POST HTTP/3.0 -");
    });
}

#[test]
fn an_unsafe_request_as_early_data_is_answered_425() {
    let server = server(|_| {});
    let address = server.local_addr();
    on_worker(move || async move {
        let connector = common::client(|config| config.early_data = true);
        let settings = quic::h3::Settings::default();
        let mut status = None;
        for _ in 0..20 {
            let (quinn, accepted) = connector
                .connect_early(address, "localhost", &[quic::ALPN_H3])
                .await
                .unwrap();
            let connection = quic::h3::client::Connection::start(quinn, settings.clone());
            let connection = connection.await.unwrap();
            let request = Request::post("https://localhost/about").body(()).unwrap();
            let (mut send, mut response) = connection.begin(&request).await.unwrap().split();
            send.finish();
            let head = response.head().await.unwrap();
            // Early is what is read before the handshake's end: nearly always, and never without a session.
            if head.status() == StatusCode::TOO_EARLY {
                assert!(accepted.is_some());
                status = Some(head.status());
                break;
            }
            assert_eq!(head.status(), 200);
            let mut body = response.into_body();
            while body.piece().await.unwrap().is_some() {}
        }
        assert_eq!(status, Some(StatusCode::TOO_EARLY));
    });
}

#[test]
fn an_extended_connect_is_a_tunnel_with_datagrams() {
    let server = server(|_| {});
    let uri = format!("https://localhost:{}/tunnel", server.local_addr().port());
    on_worker(move || async move {
        let (sender, body) = pipe();
        let request = Request::builder()
            .method(Method::CONNECT)
            .uri(&uri)
            .extension(Protocol("echo".into()))
            .body(body);
        let response = client(|_| {}).request(request.unwrap()).await.unwrap();
        assert_eq!(response.status(), 200);
        let datagrams = response.extensions().get::<Datagrams>().cloned().unwrap();
        let mut body = response.into_body();
        sender.send(Bytes::from_static(b"through")).await.unwrap();
        assert_eq!(body.chunk().await.unwrap().unwrap(), "through");
        // One may be lost; not all of them.
        let mut back = None;
        for _ in 0..50 {
            datagrams.send(b"and").unwrap();
            let wait = tokio::time::timeout(Duration::from_millis(200), datagrams.receive());
            if let Ok(payload) = wait.await {
                back = payload;
                break;
            }
        }
        assert_eq!(back.unwrap(), "back and");
        drop(sender);
        assert_eq!(body.chunk().await.unwrap(), None);
    });
}

#[test]
fn fields_beyond_the_limits_are_answered_431() {
    let server = server(|options| options.http3.fields = 20);
    let uri = format!("https://localhost:{}/about", server.local_addr().port());
    on_worker(move || async move {
        let client = client(|_| {});
        let mut request = Request::get(&uri).body(Body::empty()).unwrap();
        for n in 0..30 {
            let name = http::HeaderName::try_from(format!("x-{n}")).unwrap();
            request
                .headers_mut()
                .insert(name, HeaderValue::from_static("1"));
        }
        let response = client.request(request).await.unwrap();
        assert_eq!(response.status(), 431);
        // The peer's settings are known by now: nothing is sent that it would refuse.
        let mut request = Request::get(&uri).body(Body::empty()).unwrap();
        let long = HeaderValue::try_from("x".repeat(70_000)).unwrap();
        request.headers_mut().insert("x-long", long);
        let refused = client.request(request).await;
        let too_large = quic::h3::Error::TooLargeForPeer {
            size: 0,
            allowed: 0,
        };
        match refused {
            Err(RequestError::Http3(error)) => assert_eq!(
                std::mem::discriminant(&error),
                std::mem::discriminant(&too_large)
            ),
            other => panic!("{other:?}"),
        }
        assert_eq!(client.get(&uri).await.unwrap().status(), 200);
    });
}

#[test]
fn the_same_port_speaks_http2_and_1_over_tcp_and_tells_of_http3() {
    let server = server(|_| {});
    let port = server.local_addr().port();
    let uri = format!("https://localhost:{port}/about");
    on_worker(move || async move {
        let client = client(|options| options.versions = Versions::OnlyTcp);
        for _ in 0..3 {
            let response = client.get(&uri).await.unwrap();
            assert_eq!(response.version(), Version::HTTP_2);
            let alternative = response.headers()[header::ALT_SVC].to_str().unwrap();
            assert_eq!(alternative, format!("h3=\":{port}\"; ma=86400"));
            assert_eq!(text(response).await, "GET HTTP/2.0 -");
        }
        let posted = client
            .post(&uri.replace("about", "echo"), "abc")
            .await
            .unwrap();
        assert_eq!(text(posted).await, "abc");
    });
}

#[test]
fn where_udp_is_blocked_tcp_is_used_soon() {
    let server = server(|_| {});
    let door = tcp_only(server.local_addr());
    on_worker(move || async move {
        let client = client(|options| options.versions = Versions::All);
        let uri = format!("https://localhost:{}/about", door.port());
        let begun = Instant::now();
        let response = client.get(&uri).await.unwrap();
        assert_eq!(text(response).await, "GET HTTP/2.0 -");
        assert!(
            begun.elapsed() < Duration::from_secs(3),
            "{:?}",
            begun.elapsed()
        );
        let begun = Instant::now();
        let again = client.get(&uri).await.unwrap();
        assert_eq!(again.version(), Version::HTTP_2);
        assert!(
            begun.elapsed() < Duration::from_millis(250),
            "{:?}",
            begun.elapsed()
        );
    });
}

#[test]
fn a_client_comes_back_to_quic_where_udp_works_again() {
    let server = server(|_| {});
    let (door, path) = closed_to_udp(server.local_addr());
    on_worker(move || async move {
        let client = client(|options| {
            options.versions = Versions::All;
            options.connect_time = Duration::from_secs(5);
            options.avoid_time = Duration::from_millis(200);
        });
        let uri = format!("https://localhost:{}/about", door.port());
        let response = client.get(&uri).await.unwrap();
        assert_eq!(response.version(), Version::HTTP_2);
        path.block(false);
        // Its connection over TCP stays, and is used until there is a better one.
        loop {
            let response = client.get(&uri).await.unwrap();
            if response.version() == Version::HTTP_3 {
                assert_eq!(text(response).await, "GET HTTP/3.0 -");
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
}

#[test]
fn requests_go_on_when_the_clients_address_changes() {
    let server = server(|_| {});
    let uri = format!("https://localhost:{}/echo", server.local_addr().port());
    on_worker(move || async move {
        let client = client(|_| {});
        let (sender, body) = pipe();
        let response = client.post(&uri, body).await.unwrap();
        let mut body = response.into_body();
        for n in 0..10 {
            let part = Bytes::from(format!("part {n}"));
            sender.send(part.clone()).await.unwrap();
            assert_eq!(body.chunk().await.unwrap().unwrap(), part);
            client.rebind().unwrap();
        }
    });
    assert_eq!(server.stats().accepted, 1);
}

#[test]
fn a_shutdown_lets_what_is_under_way_end() {
    let server = RefCell::new(Some(server(|_| {})));
    let uri = format!(
        "https://localhost:{}/echo",
        server.borrow().as_ref().unwrap().local_addr().port()
    );
    let (begun, has_begun) = std::sync::mpsc::channel();
    let asking = std::thread::spawn(move || {
        on_worker(move || async move {
            let client = client(|_| {});
            let (sender, body) = pipe();
            let response = client.post(&uri, body).await.unwrap();
            let mut body = response.into_body();
            sender.send(Bytes::from_static(b"one")).await.unwrap();
            assert_eq!(body.chunk().await.unwrap().unwrap(), "one");
            begun.send(()).unwrap();
            // GOAWAY has come when no request is taken any more.
            let until = Instant::now() + LONG;
            while client.get(&uri).await.is_ok() {
                assert!(Instant::now() < until);
            }
            sender.send(Bytes::from_static(b"two")).await.unwrap();
            assert_eq!(body.chunk().await.unwrap().unwrap(), "two");
            drop(sender);
            assert_eq!(body.chunk().await.unwrap(), None);
        });
    });
    has_begun.recv().unwrap();
    let server = server.borrow_mut().take().unwrap();
    server.shutdown(LONG);
    asking.join().unwrap();
}

#[test]
fn a_shutdown_cuts_what_takes_too_long() {
    let server = server(|_| {});
    let uri = format!("https://localhost:{}/forever", server.local_addr().port());
    let asking = std::thread::spawn(move || {
        on_worker(move || async move {
            let asked = client(|_| {}).get(&uri).await;
            assert!(asked.is_err());
        });
    });
    while server.stats().accepted == 0 {
        std::thread::yield_now();
    }
    let begun = Instant::now();
    server.shutdown(Duration::from_millis(100));
    assert!(begun.elapsed() < Duration::from_secs(5));
    asking.join().unwrap();
}

/// A port whose TCP leads to `target` and whose UDP is silent.
fn tcp_only(target: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let silent = std::net::UdpSocket::bind(address).unwrap();
    pass_tcp(listener, target, silent);
    address
}

/// The same with a way for UDP that can be opened.
fn closed_to_udp(target: SocketAddr) -> (SocketAddr, LossyPath) {
    let path = Path {
        delay: Duration::ZERO,
        loss_per_mille: 0,
        seed: 1,
    };
    // The port is free for UDP, but TCP may have it.
    for _ in 0..100 {
        let path = LossyPath::to(target, path);
        path.block(true);
        if let Ok(listener) = TcpListener::bind(path.address()) {
            pass_tcp(listener, target, ());
            return (path.address(), path);
        }
    }
    panic!("no port is free for both");
}

/// Lets TCP pass, and keeps something for as long.
fn pass_tcp(listener: TcpListener, target: SocketAddr, kept: impl Send + 'static) {
    std::thread::spawn(move || {
        let _kept = kept;
        for stream in listener.incoming() {
            let (one, other) = (stream.unwrap(), TcpStream::connect(target).unwrap());
            for (mut from, mut to) in [
                (one.try_clone().unwrap(), other.try_clone().unwrap()),
                (other, one),
            ] {
                std::thread::spawn(move || {
                    let mut buffer = [0; 16 << 10];
                    while let Ok(n @ 1..) = from.read(&mut buffer) {
                        if to.write_all(&buffer[..n]).is_err() {
                            break;
                        }
                    }
                    let _ = to.shutdown(std::net::Shutdown::Write);
                });
            }
        }
    });
}

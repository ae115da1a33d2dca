//! HTTP/2 visitors in front of HTTP/1.1 origins.

mod common;

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use bytes::Bytes;
use common::*;
use h2::client;
use http::{Method, Request, Version};
use proxy::Proxy;

type Sender = client::SendRequest<Bytes>;

/// Runs `visit` with an HTTP/2 connection to the proxy.
fn visit<F: Future<Output = ()>>(proxy: &Proxy, visit: impl FnOnce(Sender) -> F) {
    let address = proxy.addresses()[0];
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(address)
            .await
            .expect("connected");
        let (sender, connection) = client::handshake(stream).await.expect("a handshake");
        let task = async {
            let _ = connection.await;
        };
        let local = tokio::task::LocalSet::new();
        local.spawn_local(task);
        tokio::time::timeout(PATIENCE, local.run_until(visit(sender)))
            .await
            .expect("in time");
    });
}

fn request(method: Method, path: &str) -> http::request::Builder {
    Request::builder()
        .version(Version::HTTP_2)
        .method(method)
        .uri(format!("http://example.com{path}"))
}

async fn body(mut stream: h2::RecvStream) -> Result<(Vec<u8>, Option<http::HeaderMap>), h2::Error> {
    let mut all = Vec::new();
    while let Some(data) = stream.data().await {
        let data = data?;
        let _ = stream.flow_control().release_capacity(data.len());
        all.extend_from_slice(&data);
    }
    let trailers = stream.trailers().await?;
    Ok((all, trailers))
}

#[test]
fn a_get_arrives_as_http1_and_comes_back() {
    let (origin, told) = Origin::answering(
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-A: b\r\nConnection: keep-alive\r\n\r\nok",
    );
    let proxy = before(&origin);
    visit(&proxy, |sender| async {
        let mut sender = sender.ready().await.expect("ready");
        let get = request(Method::GET, "/a?b")
            .header("cookie", "a=1")
            .header("cookie", "b=2")
            .body(())
            .expect("a request");
        let (answer, _) = sender.send_request(get, true).expect("sent");
        let answer = answer.await.expect("an answer");
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.headers()["x-a"], "b");
        assert!(!answer.headers().contains_key("connection"));
        assert_eq!(body(answer.into_body()).await.expect("a body").0, b"ok");
    });
    let seen = text(&told.recv_timeout(PATIENCE).expect("a request"));
    assert!(
        seen.starts_with("GET /a?b HTTP/1.1\r\nHost: example.com\r\ncookie: a=1; b=2\r\n"),
        "{seen}"
    );
}

#[test]
fn bodies_and_trailers_pass_both_ways() {
    let (origin, told) = Origin::answering(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x\r\nde\r\n0\r\nX-Sum: 7\r\n\r\n",
    );
    let proxy = before(&origin);
    visit(&proxy, |sender| async {
        let mut sender = sender.ready().await.expect("ready");
        let post = request(Method::POST, "/").body(()).expect("a request");
        let (answer, mut upload) = sender.send_request(post, false).expect("sent");
        upload
            .send_data(Bytes::from_static(b"hello "), false)
            .expect("sent");
        upload
            .send_data(Bytes::from_static(b"world"), false)
            .expect("sent");
        let mut trailers = http::HeaderMap::new();
        trailers.insert("x-t", "1".parse().expect("a value"));
        upload.send_trailers(trailers).expect("sent");
        let answer = answer.await.expect("an answer");
        let (data, trailers) = body(answer.into_body()).await.expect("a body");
        assert_eq!(data, b"abcde");
        assert_eq!(trailers.expect("trailers")["x-sum"], "7");
    });
    let seen = text(&told.recv_timeout(PATIENCE).expect("a request"));
    assert!(
        seen.matches("Transfer-Encoding: chunked\r\n").count() == 1,
        "{seen}"
    );
    assert!(
        seen.contains("hello ") && seen.ends_with("0\r\nx-t: 1\r\n\r\n"),
        "{seen}"
    );
}

#[test]
fn large_bodies_wait_for_whoever_is_slow() {
    const LENGTH: usize = 8 << 20;
    let origin = Origin::new(|mut stream, _| {
        while let Some(request) = read_message(&mut stream) {
            let head = request
                .windows(4)
                .position(|four| four == b"\r\n\r\n")
                .map_or(0, |at| at + 4);
            let length = request.len() - head;
            let answer =
                format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\nX-Got: {length}\r\n\r\n");
            let _ = stream.write_all(answer.as_bytes());
            let _ = stream.write_all(&vec![7; LENGTH]);
        }
    });
    let proxy = before(&origin);
    visit(&proxy, |sender| async {
        let mut sender = sender.ready().await.expect("ready");
        let post = request(Method::POST, "/")
            .header("content-length", "300000")
            .body(())
            .expect("a request");
        let (answer, mut upload) = sender.send_request(post, false).expect("sent");
        upload
            .send_data(Bytes::from(vec![1; 300_000]), true)
            .expect("sent");
        let answer = answer.await.expect("an answer");
        assert_eq!(answer.headers()["x-got"], "300000");
        assert_eq!(
            body(answer.into_body()).await.expect("a body").0.len(),
            LENGTH
        );
    });
}

#[test]
fn what_breaks_off_is_reset_and_what_is_refused_is_answered() {
    let origin = Origin::new(|mut stream, _| {
        let _ = read_message(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome");
    });
    let proxy = before(&origin);
    visit(&proxy, |sender| async {
        let mut sender = sender.ready().await.expect("ready");
        let (answer, _) = sender
            .send_request(request(Method::GET, "/").body(()).expect("a request"), true)
            .expect("sent");
        // The reset may overtake the head.
        let error = match answer.await {
            Ok(answer) => body(answer.into_body()).await.expect_err("cut off"),
            Err(error) => error,
        };
        assert!(error.is_reset(), "{error}");
        let mut sender = sender.ready().await.expect("ready");
        let (answer, _) = sender
            .send_request(
                request(Method::GET, "/%00").body(()).expect("a request"),
                true,
            )
            .expect("sent");
        assert_eq!(answer.await.expect("an answer").status(), 400);
    });
    await_metric(&proxy, "proxy_visitors_open", 0);
}

#[test]
fn several_hosts_are_refused_whether_they_agree_or_not() {
    let (origin, told) = Origin::answering(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let proxy = before(&origin);
    visit(&proxy, |sender| async {
        let mut sender = sender.ready().await.expect("ready");
        for hosts in [
            ["example.com", "example.com"],
            ["example.com", "other.test"],
            ["other.test", "example.com"],
        ] {
            let get = request(Method::GET, "/")
                .header("host", hosts[0])
                .header("host", hosts[1]);
            let (answer, _) = sender
                .send_request(get.body(()).expect("a request"), true)
                .expect("sent");
            assert_eq!(answer.await.expect("an answer").status(), 400, "{hosts:?}");
        }
    });
    assert!(told.try_recv().is_err(), "the origin was asked");
}

#[test]
fn a_body_that_is_said_to_be_empty_and_is_not_never_arrives() {
    let (origin, told) = Origin::answering(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let proxy = before(&origin);
    visit(&proxy, |sender| async {
        let mut sender = sender.ready().await.expect("ready");
        let post = |length| {
            request(Method::POST, "/")
                .header("content-length", length)
                .body(())
                .expect("a request")
        };
        let (answer, mut upload) = sender.send_request(post("0"), false).expect("sent");
        upload
            .send_data(Bytes::from_static(b"abc"), true)
            .expect("sent");
        assert!(answer.await.is_err(), "answered");
        let (answer, mut upload) = sender.send_request(post("0"), false).expect("sent");
        upload.send_data(Bytes::new(), true).expect("sent");
        assert_eq!(answer.await.expect("an answer").status(), 200);
    });
    let whole =
        std::iter::from_fn(|| told.try_recv().ok()).filter(|seen| seen.ends_with(b"\r\n0\r\n\r\n"));
    assert_eq!(whole.count(), 1);
}

#[test]
fn many_streams_are_answered_each_with_its_own() {
    let origin = Origin::new(|mut stream, _| {
        while let Some(request) = read_message(&mut stream) {
            let path = text(&request)
                .split(' ')
                .nth(1)
                .unwrap_or_default()
                .to_owned();
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{path}",
                path.len()
            );
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    let proxy = before(&origin);
    visit(&proxy, |sender| async {
        let mut sender = sender;
        // As many at one time as a client may open before it has seen any settings.
        for round in 0..3 {
            let mut answers = Vec::new();
            for n in 0..100 {
                sender = sender.ready().await.expect("ready");
                let get = request(Method::GET, &format!("/{round}/{n}"))
                    .body(())
                    .expect("a request");
                let (answer, _) = sender.send_request(get, true).expect("sent");
                answers.push(answer);
            }
            for (n, answer) in answers.into_iter().enumerate() {
                let answer = answer.await.expect("an answer");
                let expected = format!("/{round}/{n}").into_bytes();
                assert_eq!(body(answer.into_body()).await.expect("a body").0, expected);
            }
        }
    });
}

#[test]
fn a_websocket_over_http2_is_one_over_http1_at_the_origin() {
    let origin = Origin::new(|mut stream, _| {
        let head = text(&read_head(&mut stream).expect("a head")).to_ascii_lowercase();
        assert!(head.starts_with("get /chat http/1.1\r\n"), "{head}");
        assert!(
            head.contains("upgrade: websocket\r\n") && head.contains("sec-websocket-key: "),
            "{head}"
        );
        assert!(head.contains("sec-websocket-version: 13\r\n"), "{head}");
        stream
            .write_all(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\n")
            .expect("sent");
        let mut all = [0; 5];
        stream.read_exact(&mut all).expect("the visitor's bytes");
        stream.write_all(&all).expect("echoed");
    });
    let proxy = before(&origin);
    visit(&proxy, |sender| async {
        let mut sender = sender.ready().await.expect("ready");
        let mut connect = request(Method::CONNECT, "/chat")
            .header("sec-websocket-version", "13")
            .body(())
            .expect("a request");
        connect
            .extensions_mut()
            .insert(h2::ext::Protocol::from_static("websocket"));
        // The server's settings must have come first.
        while !sender.is_extended_connect_protocol_enabled() {
            tokio::task::yield_now().await;
        }
        let (answer, mut up) = sender.send_request(connect, false).expect("sent");
        let answer = answer.await.expect("an answer");
        assert_eq!(answer.status(), 200);
        assert!(!answer.headers().contains_key("sec-websocket-accept"));
        up.send_data(Bytes::from_static(b"hello"), false)
            .expect("sent");
        let mut down = answer.into_body();
        let mut all = Vec::new();
        while all.len() < 5 {
            all.extend_from_slice(&down.data().await.expect("data").expect("data"));
        }
        assert_eq!(all, b"hello");
    });
}

#[test]
fn http1_and_http2_are_told_apart_on_one_port() {
    let (origin, _told) = Origin::answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let proxy = before(&origin);
    let (answer, _) = exchange(
        &proxy,
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    );
    assert!(text(&answer).starts_with("HTTP/1.1 200 "));
    let mut stream: TcpStream = connect(&proxy);
    stream
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .expect("sent");
    let mut frame = [0; 9];
    stream.read_exact(&mut frame).expect("settings");
    assert_eq!(frame[3], 4, "the first frame is SETTINGS (RFC 9113 §3.4)");
}

#[test]
fn waves_of_requests_on_one_connection_are_answered_also_after_a_rest() {
    let (origin, _told) = Origin::answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let proxy = before(&origin);
    visit(&proxy, |mut sender| async move {
        for wave in 0..4 {
            let mut under_way = Vec::new();
            // More than there are tasks that wait, and fewer.
            for _ in 0..[60, 3, 60, 3][wave] {
                sender = sender.ready().await.expect("ready");
                let get = request(Method::GET, "/").body(()).expect("a request");
                under_way.push(sender.send_request(get, true).expect("sent").0);
            }
            for answer in under_way {
                let answer = answer.await.expect("an answer");
                assert_eq!(answer.status(), 200);
                assert_eq!(body(answer.into_body()).await.expect("a body").0, b"ok");
            }
            if wave == 1 {
                // Nothing announces that a connection rests: longer than it takes until it does.
                tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
            }
        }
    });
}

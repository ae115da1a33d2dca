//! Every mistake of one step that RFC 9114 §4 to §7, RFC 9204, RFC 9220 and RFC 9297 name and a peer can make, of clients before this server and of
//! servers before this client: the wanted code, on the stream or the connection as wanted, and nobody else harmed.
#![allow(clippy::unwrap_used, reason = "a test ends where its helpers fail")]

mod common;

use std::sync::{Arc, Mutex};

use common::{
    LONG,
    mistakes::{BEHIND_POST, EXCHANGES, OF_CLIENTS, OF_SERVERS, REQUESTS, RESPONSES, STREAMS},
    on_worker,
    raw::{GET, SETTINGS, answer, ask, connect, ends_with, request, uni},
    site::server,
};
use http::{Method, Request};
use quic::{
    ALPN_H3, Connection, ConnectionError,
    bytes::Bytes,
    h3::{self, Code, Protocol},
};

/// A connection that has done nothing wrong, for as long as all the others do.
struct Witness(Connection);

impl Witness {
    async fn new(server: std::net::SocketAddr) -> Self {
        Self(connect(server).await)
    }

    async fn is_served(&self, what: &str) {
        let (_send, recv) = ask(&self.0, GET, true).await;
        let said = answer(recv).await;
        assert!(
            said.is_ok_and(|said| said.ends_with(b"GET HTTP/3.0 -")),
            "{what}"
        );
    }
}

#[test]
fn clients_that_break_the_protocol_lose_their_connection() {
    let server = server(|_| {});
    let address = server.local_addr();
    on_worker(move || async move {
        let witness = Witness::new(address).await;
        for (clause, what, bytes, code) in STREAMS.iter().chain(OF_CLIENTS) {
            let connection = connect(address).await;
            let _stream = uni(&connection, bytes).await;
            ends_with(&connection, *code, &format!("{clause}: {what}")).await;
            witness.is_served(what).await;
        }
        let push = (
            "9114 §7.2.5",
            "PUSH_PROMISE",
            &b"\x05\x01\x00"[..],
            Code::FRAME_UNEXPECTED,
        );
        for (clause, what, bytes, code) in EXCHANGES.iter().chain([&push]) {
            let connection = connect(address).await;
            let _control = uni(&connection, SETTINGS).await;
            let _stream = ask(&connection, bytes, true).await;
            ends_with(&connection, *code, &format!("{clause}: {what}")).await;
            witness.is_served(what).await;
        }
        let post = request(b"\xd4\xd7\x50\x01a\x51\x05/echo");
        for (clause, what, bytes, code) in BEHIND_POST {
            let connection = connect(address).await;
            let _control = uni(&connection, SETTINGS).await;
            let _stream = ask(&connection, &[&post, *bytes].concat(), true).await;
            ends_with(&connection, *code, &format!("{clause}: {what}")).await;
            witness.is_served(what).await;
        }
    });
}

#[test]
fn requests_that_are_none_end_their_stream_and_nothing_else() {
    let server = server(|_| {});
    let address = server.local_addr();
    on_worker(move || async move {
        let connection = connect(address).await;
        let _control = uni(&connection, SETTINGS).await;
        for (clause, what, block) in REQUESTS {
            let (_send, recv) = ask(&connection, &request(block), true).await;
            let what = format!("{clause}: {what}");
            assert_eq!(answer(recv).await, Err(Code::MESSAGE_ERROR), "{what}");
        }
        // Trailers with a pseudo-field (§4.3), behind an echo that has begun.
        let post = request(b"\xd4\xd7\x50\x01a\x51\x05/echo");
        let bad = [&post, &b"\x00\x01x"[..], &request(b"\xc1")].concat();
        let (_send, recv) = ask(&connection, &bad, true).await;
        assert!(answer(recv).await.is_err());
        let (_send, recv) = ask(&connection, GET, true).await;
        assert!(answer(recv).await.is_ok());
    });
    assert_eq!(server.stats().accepted, 1);
}

#[test]
fn what_nobody_knows_means_nothing() {
    let server = server(|_| {});
    let address = server.local_addr();
    on_worker(move || async move {
        let connection = connect(address).await;
        // Settings, frames and streams for the future (§9), settings of HTTP/3's own that are large, cancelled streams of QPACK.
        let control = b"\x00\x04\x0b\x21\x01\x06\xff\xff\xff\xff\xff\xff\xff\xff\x21\x03abc\x0d\x01\x05\x0d\x01\x05\x07\x01\x00";
        let _control = uni(&connection, control).await;
        let _encoder = uni(&connection, b"\x02\x20\x20").await;
        let _decoder = uni(&connection, b"\x03\x40\x7f\x81\x01").await;
        let mut short = uni(&connection, b"\x40").await;
        short.finish().unwrap();
        let mut odd = uni(&connection, b"\x21abc").await;
        odd.finish().unwrap();
        let framed = [b"\x21\x03abc", GET, b"\x40\x52\x02xy\x00\x00"].concat();
        for _ in 0..3 {
            let (_send, recv) = ask(&connection, &framed, true).await;
            let said = answer(recv).await.unwrap();
            assert!(said.ends_with(b"GET HTTP/3.0 -"), "{said:?}");
        }
    });
}

#[test]
fn a_tunnel_has_data_and_nothing_else() {
    let server = server(|_| {});
    let address = server.local_addr();
    on_worker(move || async move {
        let connection = connect(address).await;
        let _control = uni(&connection, SETTINGS).await;
        // RFC 9114 §4.4, RFC 9220 §3: CONNECT with `:protocol` echo, to /tunnel.
        let head = request(b"\xcf\xd7\x50\x01a\x51\x07/tunnel\x27\x02:protocol\x04echo");
        let bytes = [&head, &b"\x00\x01x"[..], &request(b"\x21x\x011")].concat();
        let _stream = ask(&connection, &bytes, false).await;
        ends_with(&connection, Code::FRAME_UNEXPECTED, "trailers in a tunnel").await;
    });
}

#[test]
fn nobody_may_stop_a_control_stream() {
    let server = server(|_| {});
    let address = server.local_addr();
    on_worker(move || async move {
        let connection = connect(address).await;
        let _control = uni(&connection, SETTINGS).await;
        let mut control = connection.accept_uni().await.unwrap();
        control.stop(0x100u32.into()).unwrap();
        ends_with(&connection, Code::CLOSED_CRITICAL_STREAM, "§6.2.1").await;
        let connection = connect(address).await;
        let _control = uni(&connection, SETTINGS).await;
        // RFC 9297 §2.1: no number, and one beyond all streams.
        connection.send_datagram(Bytes::new()).unwrap();
        ends_with(&connection, Code::DATAGRAM_ERROR, "9297 §2.1").await;
        let connection = connect(address).await;
        let beyond = Bytes::from_static(b"\xff\xff\xff\xff\xff\xff\xff\xffx");
        connection.send_datagram(beyond).unwrap();
        ends_with(&connection, Code::DATAGRAM_ERROR, "9297 §2.1").await;
    });
}

/// What a server does wrong.
#[derive(Clone, Copy)]
enum Wrong {
    /// A stream of one direction.
    Uni(&'static [u8]),
    /// In answer to a request.
    Answer(&'static [u8]),
    /// A stream of its own for an exchange.
    Bidi,
    /// It stops the client's control stream.
    Stop,
    /// A datagram without a number.
    Datagram,
}

/// Lets a client ask a server that does this: how the request ends, and the connection on the server's side.
fn asked(method: Method, wrong: Wrong) -> (Result<(), h3::Error>, ConnectionError) {
    let (tell, told) = std::sync::mpsc::channel();
    let tell = Arc::new(Mutex::new(tell));
    let running = common::start(
        1,
        common::tls(&[ALPN_H3]),
        quic::Config::default(),
        move |_, incoming| {
            let tell = tell.lock().unwrap().clone();
            async move {
                let connection = incoming.connection;
                let _streams = err_on_purpose(&connection, wrong).await;
                let _ = tell.send(connection.closed().await);
            }
        },
    );
    let address = running.address();
    let result = on_worker(move || async move {
        let client = common::client(|_| {});
        let quinn = client
            .connect(address, "localhost", &[ALPN_H3])
            .await
            .unwrap();
        let connection = h3::client::Connection::start(quinn, h3::Settings::default())
            .await
            .unwrap();
        let result = tokio::time::timeout(LONG, exchange(&connection, method)).await;
        // What is wrong beside the request comes when it comes.
        if !matches!(wrong, Wrong::Answer(_)) {
            let _ = tokio::time::timeout(LONG, connection.quinn().closed()).await;
        }
        // Said, if nothing else has ended the connection by now, and waited for.
        client.close(0x100u32.into(), b"", LONG).await;
        result.expect("an end")
    });
    (result, told.recv_timeout(LONG).unwrap())
}

async fn exchange(connection: &h3::client::Connection, method: Method) -> Result<(), h3::Error> {
    let mut request = Request::builder()
        .method(method.clone())
        .uri("https://localhost/");
    if method == Method::CONNECT {
        request = request.extension(Protocol("echo".into()));
    }
    let (mut send, mut response) = connection.begin(&request.body(()).unwrap()).await?.split();
    send.finish();
    while response.head().await?.status().is_informational() {}
    let mut body = response.into_body();
    while body.piece().await?.is_some() {}
    Ok(())
}

async fn err_on_purpose(connection: &Connection, wrong: Wrong) -> Vec<quic::SendStream> {
    let control: &[u8] = b"\x00\x04\x02\x08\x01";
    let mut kept = Vec::new();
    match wrong {
        Wrong::Uni(bytes) => {
            if bytes[0] != 0 {
                kept.push(uni(connection, control).await);
            }
            kept.push(uni(connection, bytes).await);
        }
        _ => kept.push(uni(connection, control).await),
    }
    match wrong {
        Wrong::Uni(_) => {}
        Wrong::Answer(bytes) => {
            let Ok((mut send, _receive)) = connection.accept_bi().await else {
                return kept;
            };
            let _ = send.write_all(bytes).await;
            let _ = send.finish();
            kept.push(send);
        }
        Wrong::Bidi => kept.push(ask(connection, b"\x00", false).await.0),
        Wrong::Stop => {
            let mut control = connection.accept_uni().await.unwrap();
            control.stop(0x100u32.into()).unwrap();
        }
        Wrong::Datagram => connection.send_datagram(Bytes::new()).unwrap(),
    }
    kept
}

#[track_caller]
fn closed_with(ended: &ConnectionError, code: Code, what: &str) {
    match ended {
        ConnectionError::ApplicationClosed(close) => {
            assert_eq!(Code(close.error_code.into_inner()), code, "{what}");
        }
        other => panic!("{what}: {other}"),
    }
}

#[test]
fn servers_that_break_the_protocol_lose_their_connection() {
    for (clause, what, bytes, code) in STREAMS.iter().chain(OF_SERVERS) {
        let (_, ended) = asked(Method::GET, Wrong::Uni(bytes));
        closed_with(&ended, *code, &format!("{clause}: {what}"));
    }
    for (wrong, code, what) in [
        (
            Wrong::Bidi,
            Code::STREAM_CREATION_ERROR,
            "§6.1: an exchange of the server's",
        ),
        (
            Wrong::Stop,
            Code::CLOSED_CRITICAL_STREAM,
            "§6.2.1: a stopped control stream",
        ),
        (
            Wrong::Datagram,
            Code::DATAGRAM_ERROR,
            "9297 §2.1: an empty datagram",
        ),
    ] {
        closed_with(&asked(Method::GET, wrong).1, code, what);
    }
    let push = (
        "9114 §7.2.5",
        "PUSH_PROMISE",
        &b"\x05\x01\x00"[..],
        Code::ID_ERROR,
    );
    for (clause, what, bytes, code) in EXCHANGES.iter().chain([&push]) {
        let (result, ended) = asked(Method::GET, Wrong::Answer(bytes));
        let what = format!("{clause}: {what}");
        closed_with(&ended, *code, &what);
        assert!(
            matches!(result, Err(h3::Error::Protocol(seen)) if seen == *code),
            "{what}: {result:?}"
        );
    }
    for (method, what, bytes) in [
        (
            Method::GET,
            "§4.1: DATA behind trailers",
            &b"\x01\x03\x00\x00\xd9\x01\x02\x00\x00\x00\x01x"[..],
        ),
        (
            Method::CONNECT,
            "§4.4: trailers in a tunnel",
            b"\x01\x03\x00\x00\xd9\x01\x02\x00\x00",
        ),
    ] {
        let (_, ended) = asked(method, Wrong::Answer(bytes));
        closed_with(&ended, Code::FRAME_UNEXPECTED, what);
    }
}

#[test]
fn responses_that_are_none_are_malformed_and_end_nothing_else() {
    let mut bad: Vec<(String, Vec<u8>)> = RESPONSES
        .iter()
        .map(|(clause, what, block)| (format!("{clause}: {what}"), request(block)))
        .collect();
    bad.push(("§4.1: no response".into(), Vec::new()));
    bad.push(("§4.1: an interim one only".into(), request(b"\xff\x00")));
    let sized = request(b"\xd9\x54\x013");
    bad.push((
        "§4.1.2: too short".into(),
        [&sized, &b"\x00\x02ab"[..]].concat(),
    ));
    bad.push((
        "§4.1.2: too long".into(),
        [&sized, &b"\x00\x04abcd"[..]].concat(),
    ));
    let trailers = [request(b"\xd9"), request(b"\xd9")].concat();
    bad.push(("§4.3: a status in trailers".into(), trailers));
    for (what, bytes) in bad {
        let (result, ended) = asked(Method::GET, Wrong::Answer(bytes.leak()));
        assert!(
            matches!(result, Err(h3::Error::Malformed)),
            "{what}: {result:?}"
        );
        // The client's own farewell.
        closed_with(&ended, Code::NO_ERROR, &what);
    }
    // As it should be: an interim response, one of no length, one of the length it said.
    for good in [
        [request(b"\xff\x00"), request(b"\xd9")].concat(),
        [
            request(b"\xd9"),
            b"\x00\x02ab".to_vec(),
            request(b"\x21x\x011"),
        ]
        .concat(),
        [sized, b"\x00\x01a\x00\x02bc".to_vec()].concat(),
    ] {
        let (result, _) = asked(Method::GET, Wrong::Answer(good.leak()));
        assert!(result.is_ok(), "{result:?}");
    }
}

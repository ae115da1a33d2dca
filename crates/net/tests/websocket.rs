//! WebSocket as others speak it: handshake, control frames, violations.
#![allow(clippy::unwrap_used, reason = "a test ends where its helpers fail")]

mod common;

use std::io::ErrorKind;
use std::net::TcpStream;

use common::{on_worker, tcp_pair, ws_over};
use net::Stream;
use net::ws::{self, MAX_HEAD, WsError};
use rand::Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use tungstenite::{Bytes, Message, WebSocket};

const REQUEST: &str = "GET /x HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n\
Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

#[test]
fn the_sample_handshake_of_the_rfc_is_answered_as_the_rfc_says() {
    for given in [0, 10, REQUEST.len()] {
        on_worker(async {
            let (mut client, server) = tcp_pair().await;
            client
                .write_all(&REQUEST.as_bytes()[given..])
                .await
                .unwrap();
            let _server = ws::accept(server, &REQUEST.as_bytes()[..given])
                .await
                .unwrap();
            let mut answer = vec![0; 1024];
            let n = client.read(&mut answer).await.unwrap();
            let answer = String::from_utf8_lossy(&answer[..n]).into_owned();
            assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
            assert!(
                answer
                    .to_ascii_lowercase()
                    .contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo="),
                "{answer}"
            );
        });
    }
}

#[test]
fn frames_that_came_with_the_head_are_not_lost() {
    on_worker(async {
        let (_client, server) = tcp_pair().await;
        let mut early = REQUEST.as_bytes().to_vec();
        early.extend(frame(0x82, b"early"));
        let mut server = ws::accept(server, &early).await.unwrap();
        let mut got = [0; 5];
        server.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"early");
    });
}

#[test]
fn requests_that_are_no_upgrade_are_answered() {
    let cases = [
        (REQUEST.replace("13", "8"), "HTTP/1.1 426", 426),
        (
            REQUEST.replace("Sec-WebSocket-Key", "X"),
            "HTTP/1.1 400",
            400,
        ),
        (REQUEST.replace("GET", "POST"), "HTTP/1.1 400", 400),
        ("\u{1}\u{2}\r\n\r\n".to_owned(), "HTTP/1.1 400", 400),
    ];
    for (request, expected, code) in cases {
        on_worker(async {
            let (mut client, server) = tcp_pair().await;
            client.write_all(request.as_bytes()).await.unwrap();
            let error = ws::accept(server, b"").await.unwrap_err();
            assert!(
                matches!(error, WsError::BadRequest { status, .. } if status == code),
                "{error}"
            );
            let mut answer = String::new();
            client.read_to_string(&mut answer).await.unwrap();
            assert!(answer.starts_with(expected), "{answer}");
        });
    }
}

#[test]
fn endless_heads_are_cut_off() {
    on_worker(async {
        let (mut client, server) = tcp_pair().await;
        let flood = async {
            client.write_all(b"GET / HTTP/1.1\r\nA: ").await.unwrap();
            let _ = client.write_all(&vec![b'a'; 2 * MAX_HEAD]).await;
        };
        let (_, outcome) = tokio::join!(flood, ws::accept(server, b""));
        assert!(matches!(outcome.unwrap_err(), WsError::HeadTooLong));
    });
}

#[test]
fn a_client_refuses_answers_that_are_no_upgrade() {
    let answers = [
        (
            "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
            "status 404",
        ),
        (
            "HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Accept: no\r\n\r\n",
            "does not fit",
        ),
        (
            "HTTP/1.1 101 X\r\nConnection: upgrade\r\n\r\n",
            "no `Upgrade",
        ),
        ("nonsense\r\n\r\n", "wrong"),
    ];
    for (answer, expected) in answers {
        on_worker(async {
            let (client, mut server) = tcp_pair().await;
            server.write_all(answer.as_bytes()).await.unwrap();
            let error = ws::connect(client, "h:1", "/p?q")
                .await
                .unwrap_err()
                .to_string();
            assert!(error.contains(expected), "{error}");
        });
    }
}

#[test]
fn a_target_cannot_smuggle_headers() {
    on_worker(async {
        for (host, path) in [
            ("h\r\nX: y", "/"),
            ("h", "/ HTTP/1.1\r\nX: y"),
            ("", "/"),
            ("h", "no-slash"),
        ] {
            let (client, _server) = tcp_pair().await;
            let error = ws::connect(client, host, path).await.unwrap_err();
            assert!(matches!(error, WsError::BadTarget { .. }), "{error}");
        }
    });
}

/// A server end of ours and a raw connection to it, past the handshake.
async fn raw_client() -> (Stream, Stream) {
    let (client, server) = tcp_pair().await;
    let server = ws::accept(server, REQUEST.as_bytes()).await.unwrap();
    let mut client = client;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(client.read_u8().await.unwrap());
    }
    (client, server)
}

/// A frame as a client sends it: `first` is FIN, RSV and opcode.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [0x11, 0x22, 0x33, 0x44];
    let mut bytes = vec![first];
    match payload.len() {
        len @ 0..126 => bytes.push(0x80 | len as u8),
        len => {
            bytes.push(0x80 | 126);
            bytes.extend((len as u16).to_be_bytes());
        }
    }
    bytes.extend(mask);
    bytes.extend(
        payload
            .iter()
            .zip(mask.iter().cycle())
            .map(|(byte, mask)| byte ^ mask),
    );
    bytes
}

#[test]
fn fragments_and_control_frames_in_any_pieces_give_the_same_bytes() {
    let mut wire = Vec::new();
    wire.extend(frame(0x02, b"one "));
    wire.extend(frame(0x89, b"ping in between"));
    wire.extend(frame(0x00, b""));
    wire.extend(frame(0x8a, b"unasked pong"));
    wire.extend(frame(0x80, &[b'x'; 300]));
    wire.extend(frame(0x82, b""));
    wire.extend(frame(0x82, b" end"));
    wire.extend(frame(0x89, b""));
    wire.extend(frame(0x88, &1000_u16.to_be_bytes()));
    let expected = format!("one {} end", "x".repeat(300));
    for piece in [1, 2, 3, 7, 100, wire.len()] {
        on_worker(async {
            let (mut client, mut server) = raw_client().await;
            let send = async {
                for piece in wire.chunks(piece) {
                    client.write_all(piece).await.unwrap();
                    tokio::task::yield_now().await;
                }
                let mut pongs = vec![0; 2 + 15 + 2];
                client.read_exact(&mut pongs).await.unwrap();
                assert_eq!(pongs, b"\x8a\x0fping in between\x8a\x00");
            };
            let mut got = Vec::new();
            let read = async { server.read_to_end(&mut got).await.unwrap() };
            tokio::join!(send, read);
            assert_eq!(String::from_utf8_lossy(&got), expected, "pieces of {piece}");
        });
    }
}

#[test]
fn violations_are_answered_with_a_close_and_reported() {
    let mut unmasked = frame(0x82, b"x");
    unmasked[1] &= 0x7f;
    let huge = [&[0x82_u8, 0xff][..], &[0xff; 8], &[0; 4]].concat();
    let cases = [
        (frame(0x81, b"text"), 1003),
        (unmasked, 1002),
        (frame(0xc2, b"rsv"), 1002),
        (frame(0x83, b"opcode"), 1002),
        (frame(0x09, b"fragmented ping"), 1002),
        (frame(0x89, &[0; 126]), 1002),
        (frame(0x80, b"nothing to continue"), 1002),
        ([frame(0x02, b"a"), frame(0x82, b"b")].concat(), 1002),
        (huge, 1002),
    ];
    for (wire, code) in cases {
        on_worker(async {
            let (mut client, mut server) = raw_client().await;
            client.write_all(&wire).await.unwrap();
            let mut got = Vec::new();
            let error = server.read_to_end(&mut got).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidData, "{wire:x?}");
            assert!(error.to_string().contains("WebSocket peer"), "{error}");
            let mut close = [0; 4];
            client.read_exact(&mut close).await.unwrap();
            assert_eq!(
                (
                    close[..2].to_vec(),
                    u16::from_be_bytes([close[2], close[3]])
                ),
                (vec![0x88, 2], code)
            );
            assert_eq!(
                server.read(&mut [0; 8]).await.unwrap_err().kind(),
                ErrorKind::InvalidData
            );
        });
    }
}

#[test]
fn a_flood_of_pings_from_a_peer_that_does_not_read_stops_nothing() {
    on_worker(async {
        let (mut client, mut server) = raw_client().await;
        let pings = frame(0x89, &[b'p'; 100]).repeat(1000);
        let flood = async {
            for _ in 0..500 {
                client.write_all(&pings).await.unwrap();
            }
            client.write_all(&frame(0x82, b"after")).await.unwrap();
        };
        let mut got = vec![0; 16_384];
        let read = async { server.read(&mut got).await.unwrap() };
        let (_, n) = tokio::join!(flood, read);
        assert_eq!(&got[..n], b"after");
    });
}

#[test]
fn another_implementation_is_understood_as_client_and_as_server() {
    on_worker(async {
        let (client, server) = ws_over(tcp_pair().await).await;
        drop((client, server));
        let (acceptor, addr) = common::listener();
        let mut acceptor = acceptor;
        let peer = std::thread::spawn(move || {
            let tcp = TcpStream::connect(addr).unwrap();
            let (mut peer, _) = tungstenite::client::client("ws://localhost/", tcp).unwrap();
            exchange(&mut peer);
        });
        let (stream, _) = acceptor.accept().await.unwrap();
        let stream = ws::accept(stream, b"").await.unwrap();
        echo(stream).await;
        tokio::task::spawn_blocking(move || peer.join().unwrap())
            .await
            .unwrap();

        let listener = std::net::TcpListener::bind(common::loopback()).unwrap();
        let addr = listener.local_addr().unwrap();
        let peer = std::thread::spawn(move || {
            let mut peer = tungstenite::accept(listener.accept().unwrap().0).unwrap();
            exchange(&mut peer);
        });
        let stream = net::connect_tcp(&[addr], None).await.unwrap();
        let stream = ws::connect(stream, "localhost", "/").await.unwrap();
        echo(stream).await;
        tokio::task::spawn_blocking(move || peer.join().unwrap())
            .await
            .unwrap();
    });
}

fn exchange(peer: &mut WebSocket<TcpStream>) {
    peer.send(Message::Ping(Bytes::from_static(b"are you there")))
        .unwrap();
    let sent: Vec<u8> = (0..300_000).map(common::pattern).collect();
    peer.send(Message::Binary(sent.clone().into())).unwrap();
    let (mut got, mut ponged) = (Vec::new(), false);
    while got.len() < sent.len() {
        match peer.read().unwrap() {
            Message::Binary(bytes) => got.extend_from_slice(&bytes),
            Message::Pong(data) => ponged = data.as_ref() == b"are you there",
            other => panic!("{other:?}"),
        }
    }
    assert!(got == sent && ponged);
    peer.close(None).unwrap();
    // Reads until the other end's Close has come.
    while peer.read().is_ok() {}
}

async fn echo(mut stream: Stream) {
    let mut buf = vec![0; 10_000];
    loop {
        let n = stream.read(&mut buf).await.unwrap();
        if n == 0 {
            break;
        }
        stream.write_all(&buf[..n]).await.unwrap();
        stream.flush().await.unwrap();
    }
    stream.shutdown().await.unwrap();
}

#[test]
fn random_bytes_end_in_an_error_and_never_in_a_panic() {
    let mut rng = common::seeded("random_bytes_end_in_an_error_and_never_in_a_panic");
    for _ in 0..300 {
        on_worker(async {
            let (mut client, mut server) = raw_client().await;
            let mut wire = Vec::new();
            for _ in 0..rng.random_range(0..20) {
                let opcode = [0x82, 0x02, 0x00, 0x80, 0x89, 0x8a][rng.random_range(0..6)];
                let len = rng.random_range(0..200);
                wire.extend(frame(opcode, &vec![rng.random(); len]));
            }
            for _ in 0..rng.random_range(1..100) {
                wire.push(rng.random());
            }
            client.write_all(&wire).await.unwrap();
            client.shutdown().await.unwrap();
            let mut got = Vec::new();
            // A Close among the random bytes is the only good end.
            if let Err(error) = server.read_to_end(&mut got).await {
                assert!(
                    matches!(
                        error.kind(),
                        ErrorKind::InvalidData | ErrorKind::UnexpectedEof
                    ),
                    "{error}"
                );
            }
            assert!(got.len() <= wire.len());
        });
    }
}

//! Peers that break HTTP/3: each mistake ends its stream or its connection with the code that the RFCs name, and never anything else.
#![allow(clippy::unwrap_used, reason = "a test ends where its helpers fail")]

mod common;

use std::{net::SocketAddr, time::Duration};

use common::{LONG, on_worker, site::server};
use quic::{
    ALPN_H3, Connection, ConnectionError,
    h3::Code,
    quinn::{ReadError, RecvStream, WriteError},
};

const SETTINGS: &[u8] = b"\x00\x04\x00";
/// GET https://a/about, by the static table: 17, 23, a literal authority and path.
const GET: &[u8] = b"\x01\x0f\x00\x00\xd1\xd7\x50\x01a\x51\x06/about";

async fn connect(address: SocketAddr) -> Connection {
    let client = common::client(|_| {});
    client
        .connect(address, "localhost", &[ALPN_H3])
        .await
        .unwrap()
}

async fn uni(connection: &Connection, bytes: &[u8]) -> quic::SendStream {
    let mut stream = connection.open_uni().await.unwrap();
    stream.write_all(bytes).await.unwrap();
    stream
}

async fn ask(connection: &Connection, bytes: &[u8], ends: bool) -> (quic::SendStream, RecvStream) {
    let (mut send, recv) = connection.open_bi().await.unwrap();
    let _ = send.write_all(bytes).await;
    if ends {
        let _ = send.finish();
    }
    (send, recv)
}

async fn ends_with(connection: &Connection, code: Code, what: &str) {
    let ended = tokio::time::timeout(LONG, connection.closed()).await;
    match ended.unwrap_or_else(|_| panic!("{what}: still there")) {
        ConnectionError::ApplicationClosed(close) => {
            assert_eq!(Code(close.error_code.into_inner()), code, "{what}");
        }
        other => panic!("{what}: {other}"),
    }
}

/// The whole of what comes back.
async fn answer(mut recv: RecvStream) -> Result<Vec<u8>, Code> {
    let mut all = Vec::new();
    loop {
        match recv.read_chunk(4096, true).await {
            Ok(Some(chunk)) => all.extend_from_slice(&chunk.bytes),
            Ok(None) => return Ok(all),
            Err(ReadError::Reset(code)) => return Err(Code(code.into_inner())),
            Err(other) => panic!("{other}"),
        }
    }
}

fn request(block: &[u8]) -> Vec<u8> {
    let mut bytes = vec![1, u8::try_from(block.len() + 2).unwrap(), 0, 0];
    assert!(block.len() < 62);
    bytes.extend_from_slice(block);
    bytes
}

#[test]
fn what_breaks_the_connection_ends_it() {
    let server = server(|_| {});
    let address = server.local_addr();
    on_worker(move || async move {
        let streams: &[(&str, &[u8], Code)] = &[
            ("no settings", b"\x00\x07\x01\x00", Code::MISSING_SETTINGS),
            (
                "settings twice",
                b"\x00\x04\x00\x04\x00",
                Code::FRAME_UNEXPECTED,
            ),
            (
                "a setting twice",
                b"\x00\x04\x04\x06\x10\x06\x10",
                Code::SETTINGS_ERROR,
            ),
            (
                "a setting of HTTP/2",
                b"\x00\x04\x02\x02\x01",
                Code::SETTINGS_ERROR,
            ),
            ("a flag of 2", b"\x00\x04\x02\x33\x02", Code::SETTINGS_ERROR),
            ("cut settings", b"\x00\x04\x01\x06", Code::FRAME_ERROR),
            (
                "huge settings",
                b"\x00\x04\x80\x10\x00\x00",
                Code::FRAME_ERROR,
            ),
            ("DATA", b"\x00\x04\x00\x00\x01x", Code::FRAME_UNEXPECTED),
            ("HEADERS", b"\x00\x04\x00\x01\x01x", Code::FRAME_UNEXPECTED),
            (
                "PING of HTTP/2",
                b"\x00\x04\x00\x06\x01x",
                Code::FRAME_UNEXPECTED,
            ),
            (
                "a long GOAWAY",
                b"\x00\x04\x00\x07\x02\x00\x00",
                Code::FRAME_ERROR,
            ),
            (
                "a growing GOAWAY",
                b"\x00\x04\x00\x07\x01\x00\x07\x01\x04",
                Code::ID_ERROR,
            ),
            ("a push", b"\x01\x00", Code::STREAM_CREATION_ERROR),
            ("an insertion", b"\x02\x4a\x01x", Code::ENCODER_STREAM_ERROR),
            (
                "an acknowledgement",
                b"\x03\x80",
                Code::DECODER_STREAM_ERROR,
            ),
        ];
        for (what, bytes, code) in streams {
            let connection = connect(address).await;
            let _stream = uni(&connection, bytes).await;
            ends_with(&connection, *code, what).await;
        }
        let requests: &[(&str, &[u8], Code)] = &[
            ("DATA first", b"\x00\x01x", Code::FRAME_UNEXPECTED),
            ("SETTINGS", b"\x04\x00", Code::FRAME_UNEXPECTED),
            ("PUSH_PROMISE", b"\x05\x01\x00", Code::FRAME_UNEXPECTED),
            ("GOAWAY", b"\x07\x01\x00", Code::FRAME_UNEXPECTED),
            ("a frame of HTTP/2", b"\x09\x00", Code::FRAME_UNEXPECTED),
            (
                "2^60 bytes of HEADERS",
                b"\x01\xd0\x00\x00\x00\x00\x00\x00\x00",
                Code::EXCESSIVE_LOAD,
            ),
            ("an end within HEADERS", b"\x01\x05\x00", Code::FRAME_ERROR),
            ("an end within a length", b"\x01\x40", Code::FRAME_ERROR),
            (
                "the dynamic table",
                b"\x01\x03\x01\x00\x80",
                Code::DECOMPRESSION_FAILED,
            ),
            (
                "no such index",
                b"\x01\x04\x00\x00\xff\x40",
                Code::DECOMPRESSION_FAILED,
            ),
            (
                "a cut string",
                b"\x01\x04\x00\x00\x51\x7f",
                Code::DECOMPRESSION_FAILED,
            ),
            (
                "bad Huffman",
                b"\x01\x05\x00\x00\x51\x81\x00",
                Code::DECOMPRESSION_FAILED,
            ),
        ];
        for (what, bytes, code) in requests {
            let connection = connect(address).await;
            let _control = uni(&connection, SETTINGS).await;
            let _stream = ask(&connection, bytes, true).await;
            ends_with(&connection, *code, what).await;
        }
    });
}

#[test]
fn critical_streams_come_once_and_stay() {
    let server = server(|_| {});
    let address = server.local_addr();
    on_worker(move || async move {
        for kind in [0u8, 2, 3] {
            let bytes: &[u8] = if kind == 0 { SETTINGS } else { &[kind] };
            let connection = connect(address).await;
            let (_one, _two) = (uni(&connection, bytes).await, uni(&connection, bytes).await);
            ends_with(&connection, Code::STREAM_CREATION_ERROR, "a second").await;
            let connection = connect(address).await;
            uni(&connection, bytes).await.finish().unwrap();
            ends_with(&connection, Code::CLOSED_CRITICAL_STREAM, "an end").await;
            let connection = connect(address).await;
            let mut stream = uni(&connection, bytes).await;
            // The first bytes must have arrived: a reset does away with them.
            tokio::time::sleep(Duration::from_millis(100)).await;
            stream.reset(7u32.into()).unwrap();
            ends_with(&connection, Code::CLOSED_CRITICAL_STREAM, "a reset").await;
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
        let bad: &[(&str, &[u8])] = &[
            ("nothing", b""),
            ("no path", b"\xd1\xd7\x50\x01a"),
            ("no authority", b"\xd1\xd7\xc1"),
            ("a method twice", b"\xd1\xd1\xd7\x50\x01a\xc1"),
            ("a status", b"\xd1\xd7\x50\x01a\xc1\xd9"),
            ("upper case", b"\xd1\xd7\x50\x01a\xc1\x21X\x011"),
            ("a line's end", b"\xd1\xd7\x50\x01a\xc1\x21x\x03a\x0ab"),
            ("pseudo behind", b"\xd1\xd7\x50\x01a\x21x\x011\xc1"),
        ];
        for (what, block) in bad {
            let (_send, recv) = ask(&connection, &request(block), true).await;
            assert_eq!(answer(recv).await, Err(Code::MESSAGE_ERROR), "{what}");
        }
        let (_send, recv) = ask(&connection, b"", true).await;
        assert_eq!(answer(recv).await, Err(Code::REQUEST_INCOMPLETE));
        // Unknown frames and streams mean nothing.
        let mut odd = uni(&connection, b"\x21whatever").await;
        let stopped = async {
            loop {
                match odd.write(b"more").await {
                    Ok(_) => tokio::time::sleep(Duration::from_millis(5)).await,
                    Err(error) => break error,
                }
            }
        };
        let expected = WriteError::Stopped(quic::VarInt::from_u64(0x103).unwrap());
        assert_eq!(stopped.await, expected);
        let fine = [b"\x21\x03abc", GET, b"\x40\x52\x02xy"].concat();
        let (_send, recv) = ask(&connection, &fine[..fine.len()], true).await;
        let said = answer(recv).await.unwrap();
        assert!(said.ends_with(b"GET HTTP/3.0 -"), "{said:?}");
    });
    assert_eq!(server.stats().accepted, 1);
}

#[test]
fn a_body_that_is_not_as_long_as_it_said_is_refused() {
    let server = server(|_| {});
    let address = server.local_addr();
    on_worker(move || async move {
        // POST /sum with a length of 5: the static table's 20 is POST, 4 the name of the length.
        let head = request(b"\xd4\xd7\x50\x01a\x51\x04/sum\x54\x015");
        for body in [
            &b"\x00\x03abc"[..],
            b"\x00\x06abcdef",
            b"\x00\x03abc\x00\x03abc",
        ] {
            let connection = connect(address).await;
            let _control = uni(&connection, SETTINGS).await;
            let (_send, recv) = ask(&connection, &[&head, body].concat(), true).await;
            // The handler, which wants all of it, panics: an answer would be one too many.
            assert!(answer(recv).await.is_err());
        }
        let connection = connect(address).await;
        let _control = uni(&connection, SETTINGS).await;
        let (_send, recv) = ask(&connection, &[&head, &b"\x00\x05abcde"[..]].concat(), true).await;
        let said = answer(recv).await.unwrap();
        assert!(said.ends_with(b"5 495 -"), "{said:?}");
        // An end within DATA is none.
        let connection = connect(address).await;
        let _control = uni(&connection, SETTINGS).await;
        let post = request(b"\xd4\xd7\x50\x01a\x51\x05/echo");
        let _stream = ask(&connection, &[&post, &b"\x00\x05abc"[..]].concat(), true).await;
        ends_with(&connection, Code::FRAME_ERROR, "an end within DATA").await;
    });
}

#[test]
fn a_head_that_does_not_come_is_not_waited_for() {
    let server = server(|options| options.http3.head_time = Duration::from_millis(300));
    let address = server.local_addr();
    on_worker(move || async move {
        let connection = connect(address).await;
        let _control = uni(&connection, SETTINGS).await;
        let (_send, recv) = ask(&connection, &GET[..5], false).await;
        assert_eq!(answer(recv).await, Err(Code::REQUEST_INCOMPLETE));
        let (_send, recv) = ask(&connection, GET, true).await;
        assert!(answer(recv).await.is_ok());
    });
}

#[test]
fn any_bytes_end_in_an_answer_or_a_code() {
    let seed: u64 =
        std::env::var("GT_SEED").map_or_else(|_| rand::random(), |seed| seed.parse().unwrap());
    println!("again with GT_SEED={seed}");
    let server = server(|_| {});
    let address = server.local_addr();
    on_worker(move || async move {
        let mut state = seed | 1;
        let mut next = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for _ in 0..150 {
            let connection = connect(address).await;
            let _control = uni(&connection, SETTINGS).await;
            // A good request with some bytes changed, and a body of anything.
            let mut bytes = GET.to_vec();
            bytes.extend(
                (0..next() % 40)
                    .map(|_| (next() & 0xff) as u8)
                    .collect::<Vec<_>>(),
            );
            for _ in 0..next() % 4 {
                let at = (next() % bytes.len() as u64) as usize;
                bytes[at] = (next() & 0xff) as u8;
            }
            let (_send, mut recv) = ask(&connection, &bytes, true).await;
            let end = tokio::time::timeout(LONG, recv.read_to_end(1 << 20)).await;
            let _ = end.expect("an end");
        }
        // The server is as well as before.
        let connection = connect(address).await;
        let (_send, recv) = ask(&connection, GET, true).await;
        assert!(answer(recv).await.unwrap().ends_with(b"GET HTTP/3.0 -"));
    });
}

/// What came whole is not asked to end: that would be a frame in each answer, and where the body is dropped later, a packet.
#[test]
fn a_whole_request_is_answered_without_a_word_about_its_rest() {
    let server = server(|_| {});
    let address = server.local_addr();
    on_worker(move || async move {
        let connection = connect(address).await;
        let _control = uni(&connection, SETTINGS).await;
        for _ in 0..20 {
            let (_send, recv) = ask(&connection, GET, true).await;
            assert!(answer(recv).await.unwrap().len() > 10);
        }
        assert_eq!(connection.stats().frame_rx.stop_sending, 0);
    });
}

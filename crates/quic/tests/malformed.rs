//! Peers that break HTTP/3 in ways that take more than one step (those of one step are in `errors.rs`): the code that the RFCs name, and nobody else harmed.
#![allow(clippy::unwrap_used, reason = "a test ends where its helpers fail")]

mod common;

use std::time::Duration;

use common::{
    LONG, on_worker,
    raw::{GET, SETTINGS, answer, ask, connect, ends_with, request, uni},
    site::server,
};
use quic::{h3::Code, quinn::WriteError};

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
fn a_request_that_is_cut_ends_its_stream_and_unknown_frames_nothing() {
    let server = server(|_| {});
    let address = server.local_addr();
    on_worker(move || async move {
        let connection = connect(address).await;
        let _control = uni(&connection, SETTINGS).await;
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

//! What every kind of stream does alike.
#![allow(clippy::unwrap_used, reason = "a test ends where its helpers fail")]

mod common;

use std::future::poll_fn;
use std::io::{ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Waker};

use common::{ALL, Transport, expect_pattern, on_worker, pair, pattern, seeded, send_pattern};
use net::{Detached, Stream, tune_link, tune_visitor};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

#[test]
fn a_stream_is_small_and_can_change_threads() {
    fn assert_send<T: Send>() {}
    assert_send::<Stream>();
    assert_send::<Detached>();
    assert!(size_of::<Stream>() <= 64, "{}", size_of::<Stream>());
}

#[test]
fn big_transfers_arrive_unchanged_both_ways() {
    for (transport, total) in [
        (Transport::Tcp, 64 << 20),
        (Transport::Tls, 64 << 20),
        (Transport::Ws, 64 << 20),
        (Transport::Wss, 16 << 20),
        (Transport::TlsOverUnix, 16 << 20),
    ] {
        println!("{transport:?}");
        let mut rng = seeded("big_transfers_arrive_unchanged_both_ways");
        on_worker(async {
            let (client, server) = pair(transport).await;
            let (mut client_rx, mut client_tx) = tokio::io::split(client);
            let (mut server_rx, mut server_tx) = tokio::io::split(server);
            let mut next = || StdRng::seed_from_u64(rng.random());
            tokio::join!(
                send_pattern(&mut client_tx, total, next()),
                send_pattern(&mut server_tx, total / 2, next()),
                expect_pattern(&mut server_rx, total, next()),
                expect_pattern(&mut client_rx, total / 2, next()),
            );
        });
    }
}

#[test]
fn half_close_ends_one_direction_only() {
    for transport in ALL {
        on_worker(async {
            let (mut client, mut server) = pair(transport).await;
            client.write_all(b"question").await.unwrap();
            client.shutdown().await.unwrap();
            let mut got = Vec::new();
            server.read_to_end(&mut got).await.unwrap();
            assert_eq!(got, b"question", "{transport:?}");

            server.write_all(b"a long answer").await.unwrap();
            server.flush().await.unwrap();
            let mut answer = [0; 13];
            client.read_exact(&mut answer).await.unwrap();
            assert_eq!(&answer, b"a long answer", "{transport:?}");
            server.shutdown().await.unwrap();
            assert_eq!(client.read(&mut answer).await.unwrap(), 0, "{transport:?}");
        });
    }
}

#[test]
fn writing_after_shutdown_is_refused() {
    for transport in ALL {
        on_worker(async {
            let (mut client, _server) = pair(transport).await;
            client.shutdown().await.unwrap();
            let error = client.write_all(b"more").await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BrokenPipe, "{transport:?}");
        });
    }
}

#[test]
fn abort_reaches_the_peer_as_a_reset() {
    for transport in [
        Transport::Tcp,
        Transport::Tls,
        Transport::Ws,
        Transport::Wss,
    ] {
        on_worker(async {
            let (client, mut server) = pair(transport).await;
            client.abort();
            let error = server.read(&mut [0; 10]).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{transport:?}");
        });
    }
}

#[test]
fn an_end_without_goodbye_is_told_from_a_clean_one() {
    for transport in [
        Transport::Tls,
        Transport::Ws,
        Transport::Wss,
        Transport::TlsOverUnix,
    ] {
        on_worker(async {
            let (mut client, mut server) = pair(transport).await;
            // A TCP socket closed with unread bytes (session tickets, here) resets; the client reads them first.
            server.write_all(b"!").await.unwrap();
            server.flush().await.unwrap();
            client.read_exact(&mut [0]).await.unwrap();
            client.write_all(b"cut").await.unwrap();
            client.flush().await.unwrap();
            drop(client);
            let mut got = Vec::new();
            let error = server.read_to_end(&mut got).await.unwrap_err();
            assert_eq!(
                (got.as_slice(), error.kind()),
                (&b"cut"[..], ErrorKind::UnexpectedEof),
                "{transport:?}"
            );
        });
    }
}

#[test]
fn a_prefix_is_read_first_and_prefixes_stack() {
    on_worker(async {
        let (mut client, server) = pair(Transport::Tcp).await;
        client.write_all(b"end").await.unwrap();
        client.shutdown().await.unwrap();
        let mut server = server
            .with_prefix(&b"middle "[..])
            .with_prefix(b"start ".to_vec())
            .with_prefix(Vec::new());
        assert!(server.has_buffered_input());
        let mut got = String::new();
        server.read_to_string(&mut got).await.unwrap();
        assert_eq!(got, "start middle end");
        assert!(!server.has_buffered_input());
    });
}

#[test]
fn plaintext_that_did_not_fit_is_read_without_the_socket() {
    for transport in [Transport::Tls, Transport::TlsOverUnix] {
        on_worker(async {
            let (mut client, mut server) = pair(transport).await;
            let sent: Vec<u8> = (0..60_000).map(pattern).collect();
            client.write_all(&sent).await.unwrap();
            client.flush().await.unwrap();
            let mut got = vec![0; 1];
            server.read_exact(&mut got).await.unwrap();
            assert!(server.has_buffered_input());
            // Nothing more comes from the peer, and no waker would be called: it has to be there already.
            while got.len() < sent.len() && server.has_buffered_input() {
                let mut room = [0; 777];
                let mut buf = ReadBuf::new(&mut room);
                let mut cx = Context::from_waker(Waker::noop());
                assert!(
                    Pin::new(&mut server)
                        .poll_read(&mut cx, &mut buf)
                        .is_ready(),
                    "{transport:?} {}",
                    got.len()
                );
                got.extend_from_slice(buf.filled());
            }
            let rest = sent.len() - got.len();
            let mut tail = vec![0; rest];
            server.read_exact(&mut tail).await.unwrap();
            got.extend_from_slice(&tail);
            assert!(got == sent);
        });
    }
}

#[test]
fn try_write_stops_at_a_full_socket_and_flush_delivers_the_rest() {
    for transport in ALL {
        on_worker(async {
            let (mut client, mut server) = pair(transport).await;
            // One awaited write makes sure that the socket's readiness has been reported.
            client.write_all(&[pattern(0)]).await.unwrap();
            client.flush().await.unwrap();
            let mut taken = 1_u64;
            loop {
                let piece: Vec<u8> = (taken..taken + 30_001).map(pattern).collect();
                let (front, back) = piece.split_at(11);
                match client.try_write_vectored(&[IoSlice::new(front), IoSlice::new(back)]) {
                    Ok(n) => taken += n as u64,
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::WouldBlock);
                        break;
                    }
                }
            }
            assert_eq!(
                client.try_write(b"x").unwrap_err().kind(),
                ErrorKind::WouldBlock,
                "{transport:?}"
            );
            assert!(
                client.needs_flush() || matches!(transport, Transport::Tcp | Transport::Unix),
                "{transport:?}"
            );
            let finish = async {
                client.flush().await.unwrap();
                assert!(!client.needs_flush());
                client.shutdown().await.unwrap();
            };
            let rng = StdRng::seed_from_u64(1);
            tokio::join!(finish, expect_pattern(&mut server, taken, rng));
        });
    }
}

#[test]
fn try_write_leaves_the_wake_up_of_a_waiting_writer_alone() {
    on_worker(async {
        let (client, mut server) = pair(Transport::Tcp).await;
        let client = std::rc::Rc::new(std::cell::RefCell::new(client));
        let writer = client.clone();
        let waiting = tokio::task::spawn_local(async move {
            let block = [7; 65_536];
            let mut total = 0;
            while total < 16 << 20 {
                total += poll_fn(|cx| Pin::new(&mut *writer.borrow_mut()).poll_write(cx, &block))
                    .await
                    .unwrap();
            }
            total
        });
        // Let the writer run into the full socket, then poke it from another task before the peer reads.
        tokio::task::yield_now().await;
        let mut poked = 0;
        for _ in 0..100 {
            poked += client.borrow_mut().try_write(&[7; 10]).unwrap_or(0);
            tokio::task::yield_now().await;
        }
        let mut seen = 0;
        let mut buf = vec![0; 65_536];
        while !waiting.is_finished() {
            seen += server.read(&mut buf).await.unwrap();
        }
        let total = waiting.await.unwrap() + poked;
        while seen < total {
            seen += server.read(&mut buf).await.unwrap();
        }
        assert_eq!(seen, total);
    });
}

#[test]
fn streams_can_be_tuned_whatever_they_are() {
    for transport in ALL {
        on_worker(async {
            let (client, server) = pair(transport).await;
            tune_visitor(&server).unwrap();
            let tuning = net::LinkTuning {
                notsent_lowat: Some(128 * 1024),
                ..net::LinkTuning::default()
            };
            tune_link(&client, &tuning).unwrap();
            let tcp = !matches!(transport, Transport::Unix | Transport::TlsOverUnix);
            assert_eq!(client.peer_addr().is_ok(), tcp, "{transport:?}");
            assert_eq!(server.local_addr().ok(), client.peer_addr().ok());
            let encrypted = matches!(
                transport,
                Transport::Tls | Transport::Wss | Transport::TlsOverUnix
            );
            assert_eq!(server.is_encrypted(), encrypted, "{transport:?}");
        });
    }
}

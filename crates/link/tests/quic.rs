//! Links over QUIC on this machine's loopback: both ends in one thread, without the handshake of the relay protocol.

mod common;

use std::time::Duration;

use common::{EndOfLink, connect, pair, run};
use link::{End, JoinOptions, LinkEnd, Side, Transport};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tunnel::ResetReason;

#[test]
fn bytes_and_ends_pass_in_both_directions_with_the_first_bytes_in_front() {
    run(async {
        let (mut client, server) = pair(100).await;
        let (mut visitor, socket) = net::Stream::pair().expect("a pair");
        let opened = server.link.open(
            b"header",
            b"first ".to_vec(),
            socket,
            JoinOptions::default(),
        );
        let join = opened.map_err(|_| ()).expect("open");
        let joined = tokio::task::spawn_local(join);
        let (header, mut stream) = client.next().await;
        assert_eq!(header, b"header");
        visitor.write_all(b"and more").await.expect("written");
        visitor.shutdown().await.expect("half closed");
        let mut asked = String::new();
        stream.read_to_string(&mut asked).await.expect("to the end");
        assert_eq!(asked, "first and more");
        // The other direction goes on.
        stream.write_all(b"answer").await.expect("written");
        stream.shutdown().await.expect("finished");
        let mut answer = String::new();
        visitor
            .read_to_string(&mut answer)
            .await
            .expect("to the end");
        assert_eq!(answer, "answer");
        let outcome = joined.await.expect("no panic");
        assert_eq!(
            (outcome.end, outcome.sent, outcome.received),
            (End::Finished, 14, 6)
        );
        assert_eq!(server.link.stream_count(), 0);
    });
}

#[test]
fn a_reason_to_give_up_reaches_the_visitors_end_which_keeps_its_socket() {
    run(async {
        let (mut client, server) = pair(100).await;
        let (_visitor, socket) = net::Stream::pair().expect("a pair");
        let opened = server
            .link
            .open(b"h", Vec::new(), socket, JoinOptions::default());
        let joined = tokio::task::spawn_local(opened.map_err(|_| ()).expect("open"));
        let (_, stream) = client.next().await;
        stream.reset(ResetReason::Refused);
        let outcome = joined.await.expect("no panic");
        assert_eq!(outcome.end, End::Reset(ResetReason::Refused));
        assert!(outcome.socket.is_some(), "to say so in its own language");
    });
}

#[test]
fn a_visitor_that_breaks_off_resets_the_other_end_although_nothing_is_sent() {
    run(async {
        let (mut client, server) = pair(100).await;
        let (visitor, socket) = net::Stream::pair().expect("a pair");
        let opened = server
            .link
            .open(b"h", Vec::new(), socket, JoinOptions::default());
        let join = opened.map_err(|_| ()).expect("open");
        let joined = tokio::task::spawn_local(join);
        let (_, mut stream) = client.next().await;
        // The service is done sending; only the visitor's direction is left.
        stream.shutdown().await.expect("finished");
        joined.abort();
        let read = stream.read(&mut [0]).await;
        let kind = read.map_err(|error| error.kind());
        assert_eq!(kind, Err(std::io::ErrorKind::ConnectionReset));
        drop(visitor);
    });
}

#[test]
fn a_closing_link_delivers_what_ended_before_and_its_last_message() {
    run(async {
        let (mut client, server) = pair(100).await;
        let bytes: Vec<u8> = (0..1_000_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        let mut stream = server.link.open_stream(b"h", None).expect("open");
        let (_, mut arriving) = {
            stream.write_all(b"x").await.expect("written");
            client.next().await
        };
        let reading = tokio::task::spawn_local(async move {
            let mut all = Vec::new();
            arriving.shutdown().await.expect("finished");
            arriving.read_to_end(&mut all).await.map(|_| all)
        });
        stream.write_all(&bytes).await.expect("written");
        stream.shutdown().await.expect("finished");
        // Its own direction ends, so it ends in order.
        assert_eq!(stream.read(&mut [0]).await.expect("an end"), 0);
        drop(stream);
        server.link.send_control(b"last words");
        server.link.close();
        let all = reading.await.expect("no panic").expect("all of it");
        assert_eq!(all.len(), 1 + bytes.len());
        assert!(matches!(
            client.ended.await.expect("no panic"),
            LinkEnd::PeerClosed
        ));
        assert!(matches!(
            server.ended.await.expect("no panic"),
            LinkEnd::Closed
        ));
        assert_eq!(client.told.messages.borrow().as_slice(), [b"last words"]);
    });
}

#[test]
fn datagrams_go_as_datagrams_where_they_fit_and_keep_their_bounds_where_not() {
    run(async {
        let (mut client, server) = pair(100).await;
        let stream = server.link.open_stream(b"h", None).expect("open");
        let (mut from, mut to) = stream.datagrams();
        to.send(b"first").await.expect("sent");
        let (_, stream) = client.next().await;
        let (mut arriving, mut answering) = stream.datagrams();
        let mut got = Vec::new();
        arriving.receive(&mut got).await.expect("a datagram");
        assert_eq!(got, b"first");
        for length in [0, 1, 1000, 1100, 9000, 65_535] {
            let sent = vec![7; length];
            to.send(&sent).await.expect("sent");
            arriving.receive(&mut got).await.expect("a datagram");
            assert_eq!(got, sent);
            answering.send(&got).await.expect("sent");
            from.receive(&mut got).await.expect("a datagram");
            assert_eq!(got, sent);
        }
        let frames = server.connection.stats().frame_tx.datagram;
        assert!(frames >= 4, "{frames} datagrams");
        assert!(to.send(&vec![0; 65_536]).await.is_err());
    });
}

#[test]
fn a_link_admits_no_more_streams_than_agreed_and_more_when_some_have_ended() {
    run(async {
        let (mut client, server) = pair(2).await;
        let open = || server.link.open_stream(b"h", None);
        let (mut one, _two) = (open().expect("open"), open().expect("open"));
        one.flush().await.expect("sent");
        assert!(open().is_err());
        let (_, stream) = client.next().await;
        drop(stream);
        drop(one);
        assert!(open().is_ok());
    });
}

#[test]
fn headers_that_are_none_are_refused_with_a_reason() {
    run(async {
        let (near, far) = connect(|address| address).await;
        let mut near = Transport::quic_open(near).await.expect("open");
        near.write_all(b"!").await.expect("written");
        let client = EndOfLink::start(near, Side::Initiator, 100, None);
        let _control = far.accept_bi().await.expect("the first stream");
        let protocol = quic::VarInt::from_u32(u16::from(ResetReason::Protocol).into());
        for wrong in [&[0xff_u8, 0xff, 1, 2][..], &[0, 9, 1], &[0]] {
            let (mut send, mut receive) = far.open_bi().await.expect("open");
            send.write_all(wrong).await.expect("written");
            let _ = send.finish();
            let read = receive.read(&mut [0]).await;
            let code = match read {
                Err(quic::quinn::ReadError::Reset(code)) => code,
                other => panic!("{other:?}"),
            };
            assert_eq!(code, protocol, "{wrong:?}");
        }
        assert!(client.link.is_open(), "the link is unharmed");
    });
}

#[test]
fn a_peer_that_is_gone_ends_the_link_and_its_streams() {
    run(async {
        let (mut client, server) = pair(100).await;
        let (_visitor, socket) = net::Stream::pair().expect("a pair");
        let opened = server
            .link
            .open(b"h", Vec::new(), socket, JoinOptions::default());
        let joined = tokio::task::spawn_local(opened.map_err(|_| ()).expect("open"));
        let (_, _stream) = client.next().await;
        client.ended.abort();
        let outcome = joined.await.expect("no panic");
        assert!(
            matches!(outcome.end, End::LinkLost | End::Reset(_)),
            "{:?}",
            outcome.end
        );
        assert!(matches!(
            server.ended.await.expect("no panic"),
            LinkEnd::PeerClosed
        ));
        assert!(!server.link.is_open());
    });
}

#[test]
fn a_stranger_that_says_nothing_is_closed_when_nobody_waits_for_it_any_more() {
    run(async {
        let (near, far) = connect(|address| address).await;
        // Somebody else may hold it, to read its figures.
        let _watching = far.clone();
        let accepted = Transport::quic_accept(far);
        let given_up = tokio::time::timeout(Duration::from_millis(100), accepted).await;
        assert!(given_up.is_err());
        assert!(matches!(
            near.closed().await,
            quic::ConnectionError::ApplicationClosed(_)
        ));
    });
}

//! Sessions and listeners over loopback.

use std::{
    io::ErrorKind,
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroU32,
    sync::Arc,
    time::Duration,
};

use kcp::{
    Config, Mode, SendError, Shards,
    seal::{Cipher, Seal, derive_key},
    udp::{Listener, Options, Session},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::{Instant, timeout},
};

const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
/// Far beyond what any step takes; only a hang reaches it.
const HANG: Duration = Duration::from_secs(60);

fn options(cipher: Cipher) -> Options {
    let config = Config {
        mode: Mode::FAST3,
        send_window: 256,
        recv_window: 256,
        ..Config::default()
    };
    Options::new(
        config,
        Arc::new(Seal::new(cipher, &derive_key(b"udp tests")).expect("a key of 32 bytes")),
    )
}

fn pattern(count: usize) -> Vec<u8> {
    (0..count).map(|i| (i * 31 + i / 251) as u8).collect()
}

async fn pair(options: &Options) -> (Listener, Session, Session) {
    let mut listener = Listener::bind(LOOPBACK, options.clone()).expect("a port");
    let mut client = Session::connect(listener.local_addr(), options.clone()).expect("a socket");
    client.write_all(b"!").await.expect("open");
    let mut server = timeout(HANG, listener.accept())
        .await
        .expect("in time")
        .expect("a session");
    assert_eq!(server.read_u8().await.expect("the first byte"), b'!');
    (listener, client, server)
}

async fn echo(mut session: Session) {
    let mut buffer = vec![0; 65_536];
    while let Ok(count) = session.read(&mut buffer).await {
        if session.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn bytes_go_both_ways_with_and_without_fec() {
    for fec in [None, Shards::new(10, 3).ok()] {
        for cipher in [
            Cipher::Null,
            Cipher::Aes128,
            Cipher::Aes128Gcm,
            Cipher::Salsa20,
        ] {
            let mut options = options(cipher);
            options.config.fec = fec;
            let (_listener, client, server) = pair(&options).await;
            tokio::spawn(echo(server));
            let data = pattern(2_000_000);
            let (mut reader, mut writer) = tokio::io::split(client);
            let mut got = vec![0; data.len()];
            let (written, read) = timeout(HANG, async {
                tokio::join!(writer.write_all(&data), reader.read_exact(&mut got))
            })
            .await
            .expect("in time");
            written.expect("written");
            read.expect("read");
            assert!(got == data, "{cipher} {fec:?}");
        }
    }
}

#[tokio::test]
async fn many_sessions_share_a_listener() {
    let options = options(Cipher::Aes128);
    let mut listener = Listener::bind(LOOPBACK, options.clone()).expect("a port");
    let address = listener.local_addr();
    tokio::spawn(async move {
        while let Ok(session) = listener.accept().await {
            tokio::spawn(echo(session));
        }
    });
    let mut clients = tokio::task::JoinSet::new();
    for i in 0..60 {
        let options = options.clone();
        clients.spawn(async move {
            let mut session = Session::connect(address, options).expect("a socket");
            let data = pattern(10_000 + i);
            session.write_all(&data).await.expect("open");
            let mut got = vec![0; data.len()];
            session.read_exact(&mut got).await.expect("the echo");
            assert_eq!(got, data);
        });
    }
    timeout(HANG, clients.join_all()).await.expect("in time");
}

#[tokio::test]
async fn what_a_dropped_session_wrote_still_arrives() {
    let (_listener, mut client, mut server) = pair(&options(Cipher::Aes128)).await;
    let data = pattern(300_000);
    client.write_all(&data).await.expect("open");
    drop(client);
    let mut got = vec![0; data.len()];
    timeout(HANG, server.read_exact(&mut got))
        .await
        .expect("in time")
        .expect("all of it");
    assert_eq!(got, data);
}

#[tokio::test]
async fn a_session_that_is_dropped_acknowledges_what_it_has_read() {
    let (_listener, mut client, mut server) = pair(&options(Cipher::Aes128)).await;
    client.write_all(b"goodbye").await.expect("a live session");
    server.read_exact(&mut [0; 7]).await.expect("what was sent");
    drop(server);
    timeout(Duration::from_secs(5), client.shutdown())
        .await
        .expect("the acknowledgement, at once")
        .expect("a live session");
}

#[tokio::test]
async fn shutting_down_waits_for_the_acknowledgement_and_ends_writing() {
    let (_listener, mut client, mut server) = pair(&options(Cipher::Null)).await;
    client.write_all(&pattern(100_000)).await.expect("open");
    timeout(HANG, client.shutdown())
        .await
        .expect("in time")
        .expect("acknowledged");
    assert_eq!(client.counters().ring_buffer_snd_buffer, 0);
    assert_eq!(
        client.write(b"more").await.expect_err("shut").kind(),
        ErrorKind::BrokenPipe
    );
    let mut got = vec![0; 100_000];
    timeout(HANG, server.read_exact(&mut got))
        .await
        .expect("in time")
        .expect("all of it");
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_never_answers_is_reported() {
    let silent = std::net::UdpSocket::bind(LOOPBACK).expect("a port");
    let mut client = Session::connect(silent.local_addr().expect("bound"), options(Cipher::Null))
        .expect("a socket");
    client.write_all(b"anyone?").await.expect("queued");
    let start = Instant::now();
    assert_eq!(
        client.read(&mut [0; 10]).await.expect_err("dead").kind(),
        ErrorKind::TimedOut
    );
    assert!(start.elapsed() >= Duration::from_secs(10));
    assert_eq!(
        client.write(b"x").await.expect_err("dead").kind(),
        ErrorKind::TimedOut
    );
}

#[tokio::test]
async fn deadlines_end_waiting() {
    let (_listener, mut client, _server) = pair(&options(Cipher::Null)).await;
    client.set_read_deadline(Some(Instant::now() + Duration::from_millis(20)));
    assert_eq!(
        client.read(&mut [0; 10]).await.expect_err("late").kind(),
        ErrorKind::TimedOut
    );
    client.set_read_deadline(None);
    // Nobody reads: the queues fill up.
    client.set_write_deadline(Some(Instant::now() + Duration::from_millis(200)));
    let full = timeout(HANG, client.write_all(&pattern(10_000_000)))
        .await
        .expect("in time");
    assert_eq!(full.expect_err("full").kind(), ErrorKind::TimedOut);
}

#[tokio::test]
async fn a_slow_reader_holds_the_writer_and_loses_nothing() {
    let (_listener, mut client, mut server) = pair(&options(Cipher::Null)).await;
    let data = pattern(3_000_000);
    let expected = data.clone();
    let writer = tokio::spawn(async move { client.write_all(&data).await.map(|()| client) });
    let mut got = Vec::new();
    let mut buffer = [0; 40_000];
    while got.len() < expected.len() {
        let count = timeout(HANG, server.read(&mut buffer))
            .await
            .expect("in time")
            .expect("open");
        got.extend_from_slice(&buffer[..count]);
        assert!(server.counters().ring_buffer_rcv_queue <= 256);
    }
    assert_eq!(got, expected);
    writer.await.expect("no panic").expect("written");
}

#[tokio::test]
async fn out_of_band_messages_go_beside_the_stream() {
    let mut options = options(Cipher::Aes128);
    let (_listener, client, _server) = pair(&options).await;
    assert_eq!(client.send_oob(b"x"), Err(SendError::NeedsFec));
    options.config.fec = Shards::new(3, 1).ok();
    let (_listener, client, server) = pair(&options).await;
    client.send_oob(b"beside").expect("room");
    client
        .send_oob(&pattern(client.oob_max()))
        .expect("the largest");
    assert_eq!(
        client.send_oob(&pattern(client.oob_max() + 1)),
        Err(SendError::Size)
    );
    assert_eq!(
        timeout(HANG, server.recv_oob())
            .await
            .expect("in time")
            .expect("open"),
        b"beside"
    );
    assert_eq!(
        timeout(HANG, server.recv_oob())
            .await
            .expect("in time")
            .expect("open")
            .len(),
        client.oob_max()
    );
}

#[tokio::test]
async fn another_key_is_not_let_in_and_disturbs_nobody() {
    let (mut listener, mut client, mut server) = pair(&options(Cipher::Aes128)).await;
    let mut other = options(Cipher::Aes128);
    other.seal = Arc::new(Seal::new(Cipher::Aes128, &[9; 16]).expect("a key"));
    let mut stranger = Session::connect(listener.local_addr(), other).expect("a socket");
    stranger.write_all(b"let me in").await.expect("queued");
    client.write_all(b"still here").await.expect("open");
    let mut got = [0; 10];
    timeout(HANG, server.read_exact(&mut got))
        .await
        .expect("in time")
        .expect("open");
    while listener.counters().in_csum_errors == 0 {
        tokio::task::yield_now().await;
    }
    assert!(
        timeout(Duration::from_millis(1), listener.accept())
            .await
            .is_err()
    );
}

#[tokio::test]
async fn a_session_that_is_gone_does_not_come_back_by_late_datagrams() {
    // The client's datagrams pass through a relay that keeps the first one and plays it again later.
    let options = options(Cipher::Aes128);
    let mut listener = Listener::bind(LOOPBACK, options.clone()).expect("a port");
    let relay = tokio::net::UdpSocket::bind(LOOPBACK).await.expect("a port");
    let mut client =
        Session::connect(relay.local_addr().expect("bound"), options).expect("a socket");
    client.write_all(b"hello").await.expect("queued");
    let mut first = vec![0; 2000];
    let (length, _) = timeout(HANG, relay.recv_from(&mut first))
        .await
        .expect("in time")
        .expect("a datagram");
    relay
        .send_to(&first[..length], listener.local_addr())
        .await
        .expect("sent");
    let server = timeout(HANG, listener.accept())
        .await
        .expect("in time")
        .expect("a session");
    drop(server);
    while listener.counters().curr_estab > 0 {
        tokio::task::yield_now().await;
    }
    relay
        .send_to(&first[..length], listener.local_addr())
        .await
        .expect("sent");
    assert!(
        timeout(Duration::from_millis(50), listener.accept())
            .await
            .is_err()
    );
    assert_eq!(listener.counters().passive_opens, 1);
}

#[tokio::test]
async fn sessions_beyond_the_backlog_wait_for_their_retransmission() {
    let mut options = options(Cipher::Null);
    options.backlog = 1;
    let mut listener = Listener::bind(LOOPBACK, options.clone()).expect("a port");
    let mut clients = Vec::new();
    for _ in 0..3 {
        let mut client =
            Session::connect(listener.local_addr(), options.clone()).expect("a socket");
        client.write_all(b"x").await.expect("queued");
        clients.push(client);
    }
    for _ in 0..3 {
        timeout(HANG, listener.accept())
            .await
            .expect("in time")
            .expect("a session");
    }
}

#[tokio::test]
async fn the_rate_limit_is_kept() {
    let mut options = options(Cipher::Null);
    options.rate_limit = NonZeroU32::new(1_000_000);
    let (_listener, mut client, mut server) = pair(&options).await;
    let data = pattern(400_000);
    let start = Instant::now();
    let mut got = vec![0; data.len()];
    let (written, read) = tokio::join!(client.write_all(&data), server.read_exact(&mut got));
    written.expect("written");
    read.expect("read");
    // 96 kB go at once, the rest at 1 MB/s.
    assert!(
        start.elapsed() >= Duration::from_millis(280),
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test]
async fn options_that_cannot_work_are_errors() {
    let mut wrong = options(Cipher::Null);
    wrong.config.mtu = 9000;
    assert_eq!(
        Listener::bind(LOOPBACK, wrong)
            .expect_err("too large")
            .kind(),
        ErrorKind::InvalidInput
    );
    let (_listener, client, _server) = pair(&options(Cipher::Null)).await;
    assert_eq!(
        client.set_mtu(20).expect_err("too small").kind(),
        ErrorKind::InvalidInput
    );
    assert_eq!(
        client.set_window(0, 10).expect_err("too small").kind(),
        ErrorKind::InvalidInput
    );
    client.set_mtu(600).expect("fine");
    client.set_mode(Mode::NORMAL);
}

#[tokio::test]
async fn a_dropped_listener_leaves_its_sessions() {
    let (listener, mut client, server) = pair(&options(Cipher::Null)).await;
    drop(listener);
    tokio::spawn(echo(server));
    client.write_all(b"still there?").await.expect("open");
    let mut got = [0; 12];
    timeout(HANG, client.read_exact(&mut got))
        .await
        .expect("in time")
        .expect("open");
    assert_eq!(&got, b"still there?");
}

#[test]
fn a_stopped_runtime_ends_its_sessions_and_frees_the_port() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime")
    };
    let first = runtime();
    let (listener, mut client, mut server) = first.block_on(pair(&options(Cipher::Null)));
    drop(first);
    let address = listener.local_addr();
    runtime().block_on(async {
        assert_eq!(
            client.write(b"x").await.expect_err("over").kind(),
            ErrorKind::NotConnected
        );
        assert_eq!(
            server.read(&mut [0; 1]).await.expect_err("over").kind(),
            ErrorKind::NotConnected
        );
    });
    drop((listener, client, server));
    std::net::UdpSocket::bind(address).expect("nothing holds the socket");
}

#[tokio::test]
async fn writes_of_all_sizes_share_send_calls_without_mixing_up() {
    let mut options = options(Cipher::Aes128);
    options.config.stream = false;
    options.config.fec = Shards::new(4, 2).ok();
    let (listener, mut client, mut server) = pair(&options).await;
    let data = pattern(200_000);
    let expected = data.clone();
    let writer = tokio::spawn(async move {
        let mut rest = &data[..];
        let mut step = 1;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(step.min(rest.len()));
            client.write_all(now).await?;
            rest = later;
            step = step * 7 % 1301 + 1;
        }
        Ok::<_, std::io::Error>(client)
    });
    let mut got = vec![0; expected.len()];
    timeout(HANG, server.read_exact(&mut got))
        .await
        .expect("in time")
        .expect("open");
    assert_eq!(got, expected);
    writer.await.expect("no panic").expect("written");
    // A datagram cut at the wrong place would not open.
    assert_eq!(listener.counters().in_csum_errors, 0);
    let came = server.counters();
    assert_eq!((came.in_errs, came.kcp_in_errors, came.fec_errs), (0, 0, 0));
}

/// The traffic-class byte of the next datagram at `socket`.
#[cfg(target_os = "linux")]
fn class_of_next(socket: &std::net::UdpSocket) -> u8 {
    use std::{io::IoSliceMut, os::fd::AsRawFd};

    use nix::sys::socket::{
        ControlMessageOwned, MsgFlags, SockaddrIn, recvmsg, setsockopt, sockopt::IpRecvTos,
    };

    setsockopt(socket, IpRecvTos, &true).expect("classes are told");
    let mut buffer = [0; 1500];
    let mut parts = [IoSliceMut::new(&mut buffer)];
    let mut control = nix::cmsg_space!(u8);
    let message = recvmsg::<SockaddrIn>(
        socket.as_raw_fd(),
        &mut parts,
        Some(&mut control),
        MsgFlags::empty(),
    )
    .expect("a datagram");
    let mut told = message.cmsgs().expect("what is told fits");
    told.find_map(|message| match message {
        ControlMessageOwned::Ipv4Tos(class) => Some(class),
        _ => None,
    })
    .expect("a class")
}

/// Full datagrams of one write would share a segmented send, which says a class of its own.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn every_datagram_carries_the_code_point() {
    const EXPEDITED: u8 = 46;
    let socket = std::net::UdpSocket::bind(LOOPBACK).expect("a port");
    let remote = socket.local_addr().expect("bound");
    socket.set_read_timeout(Some(HANG)).expect("a timeout");
    let options = Options {
        dscp: Some(EXPEDITED),
        ..options(Cipher::Null)
    };
    let mut session = Session::connect(remote, options).expect("a socket");
    let classes = tokio::task::spawn_blocking(move || {
        std::array::from_fn::<_, 4, _>(|_| class_of_next(&socket))
    });
    session.write_all(&pattern(5000)).await.expect("room");
    assert_eq!(classes.await.expect("no panic"), [EXPEDITED << 2; 4]);
}

//! Streams of gt's own mode on real sockets of the loopback interface.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use kcp::{
    secure::{GateLimits, Options},
    udp::secure::{Elsewhere, Entrance, Limits, Listener, Stream, Totals, connect, shards},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const PATIENCE: Duration = Duration::from_secs(20);

fn listener(options: &Options) -> (Listener, Arc<Totals>) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let totals = Arc::default();
    let mut made = shards(vec![socket], options, Limits::default(), &totals);
    (made.remove(0).listen().expect("a listener"), totals)
}

async fn pair() -> (Stream, Stream, Listener) {
    let (mut listener, _) = listener(&Options::default());
    let (client, server) = tokio::join!(
        connect(listener.local_addr(), Options::default()),
        listener.accept()
    );
    (
        client.expect("connected"),
        server.expect("accepted"),
        listener,
    )
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .expect("in time")
}

#[tokio::test]
async fn both_directions_carry_bytes_and_end_by_themselves() {
    let (mut client, mut server, _listener) = soon(pair()).await;
    assert_eq!(client.binding(), server.binding());
    server.admit();
    let sent: Vec<u8> = (0..1_000_000_u32).map(|i| ((i * 7) >> 3) as u8).collect();
    let expected = sent.clone();
    let serving = tokio::spawn(async move {
        let mut read = Vec::new();
        server.read_to_end(&mut read).await?;
        server.write_all(&read).await?;
        server.shutdown().await?;
        io::Result::Ok(())
    });
    let mut answer = Vec::new();
    soon(async {
        client.write_all(&sent).await.expect("written");
        client.shutdown().await.expect("ended");
        client.read_to_end(&mut answer).await.expect("read");
    })
    .await;
    assert!(answer == expected, "{} bytes came back", answer.len());
    soon(serving).await.expect("no panic").expect("served");
    let error = client
        .write_all(b"x")
        .await
        .expect_err("this direction has ended");
    assert!(matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::NotConnected
    ));
}

#[tokio::test]
async fn a_dropped_stream_ends_after_its_last_bytes() {
    let (mut client, mut server, _listener) = soon(pair()).await;
    client.write_all(b"last words").await.expect("written");
    drop(client);
    let mut read = Vec::new();
    soon(server.read_to_end(&mut read))
        .await
        .expect("the end, not an error");
    assert_eq!(read, b"last words");
    // Nobody reads any more: the peer is told.
    let told = soon(async {
        loop {
            if let Err(error) = server.write_all(&[0; 1000]).await {
                return error.kind();
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(
        matches!(
            told,
            io::ErrorKind::ConnectionReset | io::ErrorKind::NotConnected
        ),
        "{told:?}"
    );
}

#[tokio::test]
async fn an_aborted_stream_is_a_reset() {
    let (client, mut server, _listener) = soon(pair()).await;
    client.abort();
    let error = soon(server.read(&mut [0; 10])).await.expect_err("a reset");
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_writer_waits_for_a_reader() {
    let (mut client, mut server, _listener) = soon(pair()).await;
    let (mut taken, block) = (0, vec![1; 64 << 10]);
    // What fits into the window of a stranger, and what may wait behind it.
    while let Ok(count) =
        tokio::time::timeout(Duration::from_millis(500), client.write(&block)).await
    {
        taken += count.expect("taken");
        assert!(taken < 1 << 20, "{taken} bytes taken and none read");
    }
    let mut read = vec![0; taken];
    soon(server.read_exact(&mut read))
        .await
        .expect("all that was taken");
    soon(client.write_all(b"more")).await.expect("room again");
}

#[tokio::test]
async fn strangers_do_not_disturb() {
    let (mut listener, totals) = listener(&Options::default());
    let (client, server) = tokio::join!(
        connect(listener.local_addr(), Options::default()),
        listener.accept()
    );
    let (mut client, mut server) = (client.expect("connected"), server.expect("accepted"));
    let flood = UdpSocket::bind("127.0.0.1:0").expect("a port");
    for i in 0..3000_u32 {
        let mut datagram = vec![(0xc0 + i % 6) as u8; 40 + (i % 1200) as usize];
        datagram[1..5].copy_from_slice(&i.to_le_bytes());
        let _ = flood.send_to(&datagram, listener.local_addr());
        if i % 100 == 0 {
            client.write_all(&i.to_le_bytes()).await.expect("written");
            let mut read = [0; 4];
            soon(server.read_exact(&mut read)).await.expect("read");
            assert_eq!(read, i.to_le_bytes());
        }
    }
    assert!(totals.strays() + totals.handshakes() > 0);
}

#[tokio::test]
async fn a_session_is_found_by_its_id_on_another_socket_of_the_group() {
    let first = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let second = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let addrs = [&first, &second].map(|socket| socket.local_addr().expect("an address"));
    let mut made = shards(
        vec![first, second],
        &Options::default(),
        Limits::default(),
        &Arc::default(),
    );
    let _other = made.pop().expect("two").listen().expect("a listener");
    let mut listener = made.pop().expect("two").listen().expect("a listener");
    let nat = Switch::start(addrs[0]).await;
    let (client, server) = tokio::join!(connect(nat.front, Options::default()), listener.accept());
    let (mut client, mut server) = (client.expect("connected"), server.expect("accepted"));
    for (round, addr) in [addrs[1], addrs[0], addrs[1]].into_iter().enumerate() {
        // The client's address and the socket that gets its datagrams change at once.
        nat.switch(addr);
        let word = [round as u8; 100];
        soon(client.write_all(&word)).await.expect("written");
        let mut read = [0; 100];
        soon(server.read_exact(&mut read)).await.expect("read");
        soon(server.write_all(&read)).await.expect("written");
        soon(client.read_exact(&mut read)).await.expect("read");
        assert_eq!(read, word);
    }
    assert!(server.monitor().stats().moves >= 3);
}

/// Passes on to the process before.
#[derive(Debug)]
struct Before {
    epoch: u8,
    entrance: Entrance,
    passed: Arc<AtomicUsize>,
}

impl Elsewhere for Before {
    fn pass(&mut self, epoch: u8, from: SocketAddr, datagram: &[u8]) {
        assert_eq!(epoch, self.epoch);
        self.passed.fetch_add(1, Relaxed);
        self.entrance.give(from, datagram);
    }

    fn flush(&mut self) {}
}

/// Nobody else.
#[derive(Debug)]
struct Nobody;

impl Elsewhere for Nobody {
    fn pass(&mut self, _: u8, _: SocketAddr, _: &[u8]) {}
    fn flush(&mut self) {}
}

#[tokio::test]
async fn sessions_of_a_retired_listener_go_on_with_what_the_next_one_passes_on() {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let next = socket.try_clone().expect("another handle");
    let (options, totals) = (Options::default(), Arc::default());
    let mut made = shards(vec![socket], &options, Limits::default(), &totals);
    let old = made.remove(0).with_epoch(1, Box::new(Nobody));
    let entrance = old.entrance();
    let mut old = old.listen().expect("a listener");
    let addr = old.local_addr();
    let (client, server) = tokio::join!(connect(addr, Options::default()), old.accept());
    let (mut client, mut server) = (client.expect("connected"), server.expect("accepted"));
    server.admit();
    old.retire();
    let passed = Arc::<AtomicUsize>::default();
    let before = Before {
        epoch: 1,
        entrance,
        passed: Arc::clone(&passed),
    };
    let mut made = shards(vec![next], &options, Limits::default(), &totals);
    let new = made.remove(0).with_epoch(2, Box::new(before));
    let mut new = new.listen().expect("a listener");
    // The old session, in both directions.
    let sent: Vec<u8> = (0..500_000_u32).map(|i| ((i * 7) >> 3) as u8).collect();
    let expected = sent.clone();
    let serving = tokio::spawn(async move {
        let mut read = Vec::new();
        server.read_to_end(&mut read).await?;
        server.write_all(&read).await?;
        server.shutdown().await?;
        io::Result::Ok(())
    });
    soon(async {
        client.write_all(&sent).await.expect("written");
        client.shutdown().await.expect("ended");
        let mut back = Vec::new();
        client.read_to_end(&mut back).await.expect("read");
        assert!(back == expected);
    })
    .await;
    soon(serving).await.expect("ran").expect("served");
    assert!(passed.load(Relaxed) > 100);
    // Who comes now is the new one's.
    let (client, server) =
        soon(async { tokio::join!(connect(addr, Options::default()), new.accept()) }).await;
    let (mut client, mut server) = (client.expect("connected"), server.expect("accepted"));
    soon(client.write_all(b"new")).await.expect("written");
    let mut read = [0; 3];
    soon(server.read_exact(&mut read)).await.expect("read");
    assert_eq!(&read, b"new");
}

#[tokio::test]
async fn sessions_beyond_the_limit_are_refused() {
    let limits = Limits {
        sessions: 2,
        gate: GateLimits::default(),
    };
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let mut made = shards(vec![socket], &Options::default(), limits, &Arc::default());
    let mut listener = made.remove(0).listen().expect("a listener");
    let addr = listener.local_addr();
    let mut held = Vec::new();
    for _ in 0..2 {
        held.push(
            soon(connect(addr, Options::default()))
                .await
                .expect("connected"),
        );
        held.push(soon(listener.accept()).await.expect("accepted"));
    }
    let error = soon(connect(addr, Options::default()))
        .await
        .expect_err("no room");
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    held.clear();
    soon(async {
        while connect(addr, Options::default()).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Between a client and a server: hands datagrams on to one address from one port, until told of another, for which it takes a new port.
struct Switch {
    front: SocketAddr,
    to: tokio::sync::watch::Sender<SocketAddr>,
}

impl Switch {
    async fn start(target: SocketAddr) -> Self {
        let front = tokio::net::UdpSocket::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let (to, mut changes) = tokio::sync::watch::channel(target);
        let addr = front.local_addr().expect("an address");
        tokio::spawn(async move {
            let bind = || tokio::net::UdpSocket::bind("127.0.0.1:0");
            let (mut back, mut target) = (bind().await.expect("a port"), target);
            let (mut client, mut inward, mut outward) = (None, [0; 2000], [0; 2000]);
            loop {
                tokio::select! {
                    biased;
                    changed = changes.changed() => {
                        if changed.is_err() {
                            return;
                        }
                        target = *changes.borrow();
                        back = bind().await.expect("a port");
                    }
                    Ok((length, from)) = front.recv_from(&mut inward) => {
                        client = Some(from);
                        let _ = back.send_to(&inward[..length], target).await;
                    }
                    Ok((length, _)) = back.recv_from(&mut outward) => {
                        if let Some(client) = client {
                            let _ = front.send_to(&outward[..length], client).await;
                        }
                    }
                }
            }
        });
        Self { front: addr, to }
    }

    fn switch(&self, target: SocketAddr) {
        self.to.send(target).expect("it runs");
    }
}

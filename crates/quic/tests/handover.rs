//! Processes that follow one another on the same sockets: connections of each go on, new ones are the newest's, and strangers gain nothing.
#![allow(clippy::unwrap_used, reason = "a test ends where its helpers fail")]

mod common;

use std::{
    net::{SocketAddr, UdpSocket},
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::Duration,
};

use common::{LONG, client, loopback, on_worker, tls};
use net::{Steering, Workers};
use quic::{Client, Config, Incoming, Server, VarInt};

const SOCKETS: usize = 3;

/// A name that no other test has.
fn stem() -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Relaxed);
    std::env::temp_dir().join(format!("gt-handover-{}-{number}", std::process::id()))
}

/// What a process has: workers of its own, and the sockets that all have.
struct Generation {
    workers: Workers,
    server: Server,
}

impl Generation {
    fn start(sockets: &[UdpSocket], stem: &std::path::Path, number: u32) -> Self {
        // Another number of threads each.
        let workers = Workers::start(1 + number as usize % 3, "generation").unwrap();
        let sockets = sockets.iter().map(|socket| socket.try_clone().unwrap());
        let steering = Steering::new(stem.to_path_buf(), number);
        let server = Server::from_sockets(
            sockets.collect(),
            tls(&[b"test"]),
            Config::default(),
            Some(steering),
        )
        .unwrap();
        Self { workers, server }
    }

    fn serve(&self) {
        let handles = self.workers.handles();
        for shard in self.server.shards().unwrap() {
            handles[shard.index() % handles.len()]
                .spawn(move || async move {
                    let endpoint = shard.start().unwrap();
                    while let Some(incoming) = endpoint.accept().await {
                        tokio::task::spawn_local(echo(incoming));
                    }
                    endpoint.drained(LONG).await;
                })
                .unwrap();
        }
    }

    fn hand_over(&self) {
        self.server.hand_over(&self.workers.handles()[0]).unwrap();
        let until = std::time::Instant::now() + LONG;
        while self.server.is_reading() {
            assert!(std::time::Instant::now() < until, "it goes on reading");
            std::thread::yield_now();
        }
    }
}

/// Gives back what comes, stream by stream.
async fn echo(incoming: Incoming) {
    while let Ok((mut send, mut recv)) = incoming.connection.accept_bi().await {
        tokio::task::spawn_local(async move {
            while let Ok(Some(chunk)) = recv.read_chunk(64 << 10, true).await {
                if send.write_chunk(chunk.bytes).await.is_err() {
                    return;
                }
            }
            let _ = send.finish();
        });
    }
}

/// Something that goes there and back on a stream of its own.
async fn say(connection: &quic::Connection, length: usize) {
    let (mut send, mut recv) = connection.open_bi().await.unwrap();
    let words: Vec<u8> = (0..length).map(|n| (n * 7 + n / 251) as u8).collect();
    let sending = async {
        send.write_all(&words).await.unwrap();
        send.finish().unwrap();
    };
    let (heard, ()) = tokio::join!(recv.read_to_end(length + 1), sending);
    assert!(heard.unwrap() == words, "other bytes came back");
}

async fn connect(address: SocketAddr) -> (Client, quic::Connection) {
    let client = client(|_| {});
    let connection = client.connect(address, "localhost", &[b"test"]).await;
    (client, connection.unwrap())
}

#[test]
fn connections_of_several_generations_go_on_side_by_side() {
    let sockets = net::bind_udp_group(loopback(), SOCKETS).unwrap();
    let address = sockets[0].local_addr().unwrap();
    let stem = stem();
    on_worker(move || async move {
        let mut generations: Vec<Generation> = Vec::new();
        let mut connections = Vec::new();
        // Past the number at which epochs begin again.
        for number in 253..260 {
            let next = Generation::start(&sockets, &stem, number);
            let mut under_way = Vec::new();
            if let Some(last) = generations.last() {
                // Transfers run while the sockets change hands.
                for (_, connection) in &connections {
                    let connection: quic::Connection = Clone::clone(connection);
                    under_way.push(tokio::task::spawn_local(async move {
                        say(&connection, 2 << 20).await;
                    }));
                }
                tokio::task::yield_now().await;
                last.hand_over();
            }
            next.serve();
            generations.push(next);
            for _ in 0..2 {
                let (client, connection) = connect(address).await;
                say(&connection, 1000).await;
                connections.push((client, connection));
            }
            for transfer in under_way {
                transfer.await.unwrap();
            }
            for (client, connection) in &connections {
                // Whatever its address.
                client.rebind().unwrap();
                say(connection, 1000).await;
            }
        }
        for generation in &generations {
            assert_eq!(generation.server.stats().accepted, 2);
        }
        for (client, _) in connections {
            client.close(VarInt::from_u32(0), b"done", LONG).await;
        }
    });
}

#[test]
fn a_process_that_dies_takes_its_own_connections_and_no_others() {
    let sockets = net::bind_udp_group(loopback(), SOCKETS).unwrap();
    let address = sockets[0].local_addr().unwrap();
    let stem = stem();
    on_worker(move || async move {
        let first = Generation::start(&sockets, &stem, 1);
        first.serve();
        let (_one, connection) = connect(address).await;
        say(&connection, 1000).await;
        let second = Generation::start(&sockets, &stem, 2);
        first.hand_over();
        second.serve();
        let (_two, other) = connect(address).await;
        // It says no last words, as one that was killed.
        let Generation { workers, server } = first;
        workers.shutdown(LONG).unwrap();
        drop(server);
        let third = Generation::start(&sockets, &stem, 3);
        second.hand_over();
        third.serve();
        for _ in 0..10 {
            say(&other, 10_000).await;
            let (_three, newest) = connect(address).await;
            say(&newest, 10_000).await;
        }
        let stuck = tokio::time::timeout(Duration::from_millis(300), say(&connection, 10));
        assert!(stuck.await.is_err() || connection.close_reason().is_some());
    });
}

#[test]
fn made_up_ids_get_no_answer_and_do_no_harm() {
    let sockets = net::bind_udp_group(loopback(), SOCKETS).unwrap();
    let address = sockets[0].local_addr().unwrap();
    let stem = stem();
    on_worker(move || async move {
        let old = Generation::start(&sockets, &stem, 8);
        old.serve();
        let (_one, connection) = connect(address).await;
        let new = Generation::start(&sockets, &stem, 9);
        old.hand_over();
        new.serve();
        say(&connection, 1000).await;
        let stranger = UdpSocket::bind(loopback()).unwrap();
        stranger.set_nonblocking(true).unwrap();
        let mut packet = [0x55; 1200];
        for n in 0..20_000_u32 {
            let [a, b, c, d] = n.wrapping_mul(2_654_435_761).to_le_bytes();
            let (socket, epoch) = (n % 5, [8, 9, 7, 200][n as usize % 4]);
            let id = [a, a ^ socket as u8, a ^ epoch, b, c, d, b ^ d, c ^ d, a ^ d];
            // Short headers, Initial packets, Handshake packets.
            let (first, at) = [(0x40, 1), (0xc0, 6), (0xe0, 6)][n as usize % 3];
            packet[0] = first;
            packet[1..5].copy_from_slice(&1_u32.to_be_bytes());
            packet[5] = 9;
            packet[at..at + 9].copy_from_slice(&id);
            let _ = stranger.send_to(&packet, address);
            if n % 2000 == 0 {
                say(&connection, 1000).await;
            }
        }
        say(&connection, 100_000).await;
        let (_two, other) = connect(address).await;
        say(&other, 100_000).await;
        let answer = stranger.recv_from(&mut packet);
        assert!(answer.is_err(), "a stranger was answered: {answer:?}");
        assert_eq!(old.server.stats().accepted, 1);
        assert_eq!(new.server.stats().accepted, 1);
    });
}

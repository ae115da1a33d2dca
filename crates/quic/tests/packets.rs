//! How large packets become: as the route allows, and no larger than the path carries, whatever the route says.
#![allow(clippy::unwrap_used, reason = "a test ends where its helpers fail")]

mod common;

use std::{
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use common::{LONG, client, loopback, on_worker, start, tls};
use quic::{Config, Connection, Incoming, Transport, VarInt};

/// A path that drops datagrams of more than so many bytes: what is seen of one whose links in the middle have a smaller MTU than both ends.
struct Narrow {
    address: SocketAddr,
    inner: Arc<Inside>,
    threads: Vec<thread::JoinHandle<()>>,
}

#[derive(Default)]
struct Inside {
    most: AtomicUsize,
    dropped: AtomicU64,
    passed: AtomicU64,
    over: AtomicBool,
}

impl Narrow {
    fn towards(server: SocketAddr, most: usize) -> Self {
        let (near, far) = (UdpSocket::bind(loopback()), UdpSocket::bind(loopback()));
        let (near, far) = (near.unwrap(), far.unwrap());
        let address = near.local_addr().unwrap();
        far.connect(server).unwrap();
        let inner = Arc::new(Inside {
            most: AtomicUsize::new(most),
            ..Inside::default()
        });
        for socket in [&near, &far] {
            net::raise_udp_buffers(socket, 4 << 20).unwrap();
            let wait = Some(Duration::from_millis(100));
            socket.set_read_timeout(wait).unwrap();
        }
        // The client is who spoke first; it is told to the way back through the connection of the near socket.
        let (back, up) = (
            (near.try_clone().unwrap(), far.try_clone().unwrap()),
            Arc::clone(&inner),
        );
        let forth = thread::spawn(move || {
            let mut buffer = vec![0; 65_536];
            let mut known = false;
            while !up.over.load(SeqCst) {
                let Ok((n, from)) = near.recv_from(&mut buffer) else {
                    continue;
                };
                if !known {
                    near.connect(from).unwrap();
                    known = true;
                }
                if up.passes(n) {
                    let _ = far.send(&buffer[..n]);
                }
            }
        });
        let down = Arc::clone(&inner);
        let back = thread::spawn(move || {
            let (near, far) = back;
            let mut buffer = vec![0; 65_536];
            while !down.over.load(SeqCst) {
                let Ok(n) = far.recv(&mut buffer) else {
                    continue;
                };
                if down.passes(n) {
                    let _ = near.send(&buffer[..n]);
                }
            }
        });
        Self {
            address,
            inner,
            threads: vec![forth, back],
        }
    }
}

impl Inside {
    fn passes(&self, bytes: usize) -> bool {
        let passes = bytes <= self.most.load(SeqCst);
        let counter = if passes { &self.passed } else { &self.dropped };
        counter.fetch_add(1, SeqCst);
        passes
    }
}

impl Drop for Narrow {
    fn drop(&mut self) {
        self.inner.over.store(true, SeqCst);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Answers each stream with as much as came on it.
async fn answer(_: usize, incoming: Incoming) {
    while let Ok((mut send, mut recv)) = incoming.connection.accept_bi().await {
        let Ok(read) = recv.read_to_end(64 << 20).await else {
            continue;
        };
        if send.write_all(&read).await.is_ok() {
            let _ = send.finish();
        }
    }
}

async fn exchange(connection: &Connection, length: usize) {
    let (mut send, mut recv) = connection.open_bi().await.unwrap();
    send.write_all(&vec![7; length]).await.unwrap();
    send.finish().unwrap();
    let came = recv.read_to_end(64 << 20).await.unwrap();
    assert_eq!(came.len(), length);
}

/// Exchanges until packets are as large as they ever become.
async fn grow(connection: &Connection) {
    let mut rounds = 0;
    while connection.stats().path.current_mtu < largest() {
        exchange(connection, 1 << 20).await;
        rounds += 1;
        assert!(rounds < 50, "{:?}", connection.stats().path);
    }
}

fn config(largest_packet: u16) -> Config {
    Config {
        transport: transport(largest_packet),
        ..Config::default()
    }
}

fn transport(largest_packet: u16) -> Transport {
    Transport {
        largest_packet,
        ..Transport::default()
    }
}

fn largest() -> u16 {
    Transport::default().largest_packet
}

#[test]
fn packets_grow_to_what_the_route_takes() {
    let mtu = std::fs::read_to_string("/sys/class/net/lo/mtu").unwrap();
    let mtu: u32 = mtu.trim().parse().unwrap();
    assert!(mtu >= 16_500, "a loopback interface of {mtu} shows nothing");
    let server = start(1, tls(&[b"test"]), Config::default(), answer);
    let address = server.address();
    let (wide, usual) = on_worker(move || async move {
        let client = client(|_| {});
        let connection = client.connect(address, "localhost", &[b"test"]).await;
        let connection = connection.unwrap();
        grow(&connection).await;
        let wide = connection.stats();
        client.close(VarInt::from_u32(0), b"done", LONG).await;

        let narrow = common::client(|config| config.transport = transport(1452));
        let connection = narrow.connect(address, "localhost", &[b"test"]).await;
        let connection = connection.unwrap();
        let mut rounds = 0;
        while rounds < 4 || (connection.stats().path.current_mtu < 1452 && rounds < 50) {
            exchange(&connection, 1 << 20).await;
            rounds += 1;
        }
        let usual = connection.stats();
        narrow.close(VarInt::from_u32(0), b"done", LONG).await;
        (wide.path.current_mtu, usual.path.current_mtu)
    });
    assert_eq!(wide, largest());
    assert_eq!(usual, 1452);
}

/// What transfers of 1 MiB and back take over a path of Ethernet's packets: datagrams that pass for each, and the packet size in the end.
fn over_usual_path(largest: u16) -> (u64, u16) {
    let server = start(1, tls(&[b"test"]), config(largest), answer);
    let path = Narrow::towards(server.address(), 1472);
    let address = path.address;
    let (rounds, mtu) = on_worker(move || async move {
        let client = client(|config| config.transport = transport(largest));
        let connection = client.connect(address, "localhost", &[b"test"]).await;
        let connection = connection.unwrap();
        let (mut rounds, mut mtu) = (0, 0);
        // The search takes round trips, of which a transfer has more or fewer.
        while rounds < 8 || (mtu < 1400 && rounds < 60) {
            exchange(&connection, 1 << 20).await;
            rounds += 1;
            mtu = connection.stats().path.current_mtu;
        }
        client.close(VarInt::from_u32(0), b"done", LONG).await;
        (rounds, mtu)
    });
    (path.inner.passed.load(SeqCst) / rounds, mtu)
}

#[test]
fn a_path_that_carries_less_than_the_route_costs_no_more_packets_than_before() {
    let (before, usual) = over_usual_path(1452);
    assert!((1400..=1452).contains(&usual), "{usual}");
    let (now, found) = over_usual_path(largest());
    assert!((1400..=1472).contains(&found), "{found}");
    assert!(now < before + before / 4, "{now} packets, {before} before");
}

#[test]
fn a_path_that_becomes_smaller_holds_nothing_up_for_long() {
    let server = start(1, tls(&[b"test"]), Config::default(), answer);
    let path = Narrow::towards(server.address(), 65_535);
    let (address, inside) = (path.address, Arc::clone(&path.inner));
    on_worker(move || async move {
        let client = client(|_| {});
        let connection = client.connect(address, "localhost", &[b"test"]).await;
        let connection = connection.unwrap();
        grow(&connection).await;
        inside.most.store(1472, SeqCst);
        exchange(&connection, 2 << 20).await;
        assert!(connection.stats().path.current_mtu <= 1472);
        assert!(inside.dropped.load(SeqCst) > 0);
        client.close(VarInt::from_u32(0), b"done", LONG).await;
    });
}

#[test]
fn packets_stay_as_usual_where_a_few_large_ones_would_fill_the_buffer() {
    let small = Config {
        socket_buffer: USUAL_BUFFER,
        ..Config::default()
    };
    let server = start(1, tls(&[b"test"]), small, answer);
    let address = server.address();
    on_worker(move || async move {
        let client = client(|_| {});
        let connection = client.connect(address, "localhost", &[b"test"]).await;
        let connection = connection.unwrap();
        let (mut rounds, mut mtu) = (0, 0);
        while rounds < 8 || (mtu < 1400 && rounds < 50) {
            exchange(&connection, 1 << 20).await;
            rounds += 1;
            mtu = connection.stats().path.current_mtu;
        }
        assert!((1400..=1472).contains(&mtu), "{mtu}");
        client.close(VarInt::from_u32(0), b"done", LONG).await;
    });
}

/// `net.core.rmem_default` of most systems.
const USUAL_BUFFER: usize = 212_992;

//! The UDP forwarder with real sockets: who talks to whom, and that times and losses are those of the path.

#![allow(
    clippy::unwrap_used,
    reason = "a failure of a helper is a failure of the test"
)]

use std::{
    collections::HashSet,
    io::ErrorKind,
    net::{SocketAddr, UdpSocket},
    time::{Duration, Instant},
};

use netem::{Direction, Options, Plan, UdpForwarder, UdpOptions};

const WAIT: Duration = Duration::from_secs(10);

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(WAIT)).unwrap();
    socket
}

fn forwarder(to: SocketAddr, up: &str, down: &str, seed: u64) -> UdpForwarder {
    let path = Options {
        up: Plan::parse(up).unwrap(),
        down: Plan::parse(down).unwrap(),
        seed,
        spin: Duration::ZERO,
    };
    let listen = "127.0.0.1:0".parse().unwrap();
    UdpForwarder::start(&UdpOptions::new(listen, to, path)).unwrap()
}

fn client(forwarder: &UdpForwarder) -> UdpSocket {
    let client = socket();
    client.connect(forwarder.local_addr()).unwrap();
    client
}

#[test]
fn each_client_gets_its_own_answers() {
    let server = socket();
    let forwarder = forwarder(server.local_addr().unwrap(), "delay=1ms", "delay=1ms", 1);
    let clients: Vec<_> = (0..20).map(|_| client(&forwarder)).collect();
    for (number, client) in clients.iter().enumerate() {
        client.send(&[number as u8]).unwrap();
    }
    let mut buffer = [0; 10];
    let mut sources = HashSet::new();
    for _ in &clients {
        let (length, from) = server.recv_from(&mut buffer).unwrap();
        sources.insert(from);
        buffer[length] = !buffer[0];
        server.send_to(&buffer[..=length], from).unwrap();
    }
    assert_eq!(sources.len(), 20, "the server tells clients apart");
    for (number, client) in clients.iter().enumerate() {
        let length = client.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], &[number as u8, !(number as u8)]);
    }
    let report = forwarder.running.stop().unwrap();
    assert_eq!((report.up.packets_out, report.down.packets_out), (20, 20));
}

#[test]
fn each_direction_has_its_own_delay_and_nothing_is_early() {
    let server = socket();
    let forwarder = forwarder(server.local_addr().unwrap(), "delay=30ms", "delay=70ms", 1);
    let client = client(&forwarder);
    let mut buffer = [0; 10];
    for _ in 0..5 {
        let begun = Instant::now();
        client.send(b"ping").unwrap();
        let (length, from) = server.recv_from(&mut buffer).unwrap();
        let up = begun.elapsed();
        server.send_to(&buffer[..length], from).unwrap();
        client.recv(&mut buffer).unwrap();
        let both = begun.elapsed();
        assert!(up >= Duration::from_millis(30), "{up:?}");
        assert!(both >= Duration::from_millis(100), "{both:?}");
        // A busy machine may be late, but not by as much as the other direction's delay.
        assert!(up < Duration::from_millis(70), "{up:?}");
    }
}

#[test]
fn the_seed_decides_what_is_lost() {
    let lost = |seed| {
        let server = socket();
        let forwarder = forwarder(server.local_addr().unwrap(), "loss=20%", "delay=0", seed);
        let client = client(&forwarder);
        server.set_nonblocking(true).unwrap();
        let mut seen = Vec::new();
        let mut buffer = [0; 2];
        let deadline = Instant::now() + WAIT;
        for number in 0..500u16 {
            client.send(&number.to_be_bytes()).unwrap();
            // One at a time: sockets hold fewer than 500. What the counters know of is in the server's socket or lost.
            loop {
                let up = forwarder.running.report().up;
                if up.packets_out + up.lost > u64::from(number) {
                    break;
                }
                assert!(Instant::now() < deadline, "{up}");
                std::thread::yield_now();
            }
            match server.recv(&mut buffer) {
                Ok(_) => seen.push(u16::from_be_bytes(buffer)),
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
        assert_eq!(forwarder.running.report().up.lost, 500 - seen.len() as u64);
        seen
    };
    let once = lost(5);
    assert!((300..490).contains(&once.len()), "{}", once.len());
    assert_eq!(once, lost(5));
    assert_ne!(once, lost(6));
}

#[test]
fn a_running_path_can_be_changed() {
    let server = socket();
    let forwarder = forwarder(server.local_addr().unwrap(), "delay=0", "delay=0", 1);
    let client = client(&forwarder);
    let mut buffer = [0; 10];
    client.send(b"a").unwrap();
    server.recv_from(&mut buffer).unwrap();
    forwarder
        .running
        .change(Direction::Up, &[("loss=100%").parse().unwrap()]);
    client.send(b"b").unwrap();
    while forwarder.running.report().up.lost < 1 {
        std::thread::yield_now();
    }
    forwarder
        .running
        .change(Direction::Up, &["loss=0".parse().unwrap()]);
    client.send(b"c").unwrap();
    let length = server.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"c");
}

#[test]
fn clients_beyond_the_limit_are_turned_away_and_counted() {
    let server = socket();
    let listen = "127.0.0.1:0".parse().unwrap();
    let mut options = UdpOptions::new(listen, server.local_addr().unwrap(), Options::default());
    options.clients = 2;
    let forwarder = UdpForwarder::start(&options).unwrap();
    let clients: Vec<_> = (0..3).map(|_| client(&forwarder)).collect();
    let mut buffer = [0; 10];
    for (number, client) in clients.iter().enumerate() {
        client.send(&[number as u8]).unwrap();
        if number < 2 {
            server.recv(&mut buffer).unwrap();
        }
    }
    while forwarder.running.report().turned_away < 1 {
        std::thread::yield_now();
    }
    // The others go on.
    clients[0].send(b"again").unwrap();
    let length = server.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"again");
}

#[test]
fn a_target_that_is_not_there_yet_is_reached_later() {
    let server = socket();
    let address = server.local_addr().unwrap();
    drop(server);
    let forwarder = forwarder(address, "delay=0", "delay=0", 1);
    let client = client(&forwarder);
    client.send(b"early").unwrap();
    while forwarder.running.report().up.packets_out < 1 {
        std::thread::yield_now();
    }
    let server = UdpSocket::bind(address).unwrap();
    server.set_read_timeout(Some(WAIT)).unwrap();
    client.send(b"later").unwrap();
    let mut buffer = [0; 10];
    let length = server.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"later");
}

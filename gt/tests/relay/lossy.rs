//! KCP links over a path of 100 ms and 10 % loss: what works on a good path works here, and a client may change its address.

use std::{
    io::{Read, Write},
    net::Shutdown,
    time::{Duration, Instant},
};

use e2e::{
    Client, PortRange, Server, Service, Transport, http,
    lossy::{LossyPath, Path},
    pattern::Pattern,
};

use crate::server_with_ports;

/// Seeded: GT_E2E_SEED=n runs another one.
fn path(server: &Server, loss_per_mille: u64) -> LossyPath {
    let seed = std::env::var("GT_E2E_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or(1);
    println!("replay: GT_E2E_SEED={seed}");
    let path = Path {
        delay: Duration::from_millis(50),
        loss_per_mille,
        seed,
    };
    LossyPath::to(server.kcp(), path)
}

/// A client with an echo service behind the path.
fn echo(loss_per_mille: u64) -> (PortRange, Server, LossyPath, Client, Service) {
    let service = Service::echo();
    let (ports, server) = server_with_ports(1);
    let path = path(&server, loss_per_mille);
    let client = server
        .client(Transport::Kcp, "web")
        .option("remote", format!("kcp://{}", path.address()))
        .service(service.url("tcp"), "name: echo, remoteTCPRandom: true")
        .start_up();
    (ports, server, path, client, service)
}

fn transfer(server: &Server, client: &Client, length: usize) {
    let sent = Pattern::new(4).bytes(length);
    let mut visitor = http::connect(server.port(client.port_of("echo"))).expect("a connection");
    let mut writer = visitor.try_clone().expect("a clone");
    let bytes = sent.clone();
    let writing = std::thread::spawn(move || {
        writer.write_all(&bytes).expect("sent");
        writer.shutdown(Shutdown::Write).expect("half closed");
    });
    let mut answer = Vec::new();
    visitor.read_to_end(&mut answer).expect("an answer");
    writing.join().expect("written");
    assert!(
        answer == sent,
        "{} of {length} bytes came back",
        answer.len()
    );
}

#[test]
fn what_is_sent_comes_back_whole() {
    let (_ports, server, _path, client, _service) = echo(100);
    let began = Instant::now();
    transfer(&server, &client, 2 << 20);
    println!("2 MiB there and back within {:?}", began.elapsed());
}

#[test]
fn keystrokes_come_back_beside_a_transfer() {
    let (_ports, server, _path, client, _service) = echo(100);
    let address = server.port(client.port_of("echo"));
    std::thread::scope(|scope| {
        let bulk = scope.spawn(|| transfer(&server, &client, 2 << 20));
        let mut visitor = http::connect(address).expect("a connection");
        let mut slowest = Duration::ZERO;
        for key in Pattern::new(8).bytes(20) {
            let began = Instant::now();
            visitor.write_all(&[key]).expect("sent");
            let mut echoed = [0];
            visitor.read_exact(&mut echoed).expect("an echo");
            assert_eq!(echoed, [key]);
            slowest = slowest.max(began.elapsed());
        }
        println!("slowest keystroke: {slowest:?}");
        assert!(slowest < Duration::from_secs(5), "{slowest:?}");
        bulk.join().expect("whole");
    });
}

#[test]
fn a_client_that_changes_its_address_keeps_its_visitors() {
    let (_ports, server, path, client, _service) = echo(20);
    let mut visitor = http::connect(server.port(client.port_of("echo"))).expect("a connection");
    for round in 0..3_u8 {
        for key in 0..5 {
            visitor.write_all(&[round, key]).expect("sent");
            let mut echoed = [0; 2];
            visitor.read_exact(&mut echoed).expect("an echo");
            assert_eq!(echoed, [round, key]);
        }
        path.rebind();
    }
    let log = client.process.log();
    assert!(!log.contains("a link was lost"), "{log}");
}

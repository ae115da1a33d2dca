//! Clients whose address changes below a QUIC or KCP link, and paths on which UDP is blocked: visitors do not notice.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use e2e::{
    Client, PortRange, Server, ServerSpec, Service, Transport, big, http,
    lossy::{LossyPath, Path},
    netns::{Cable, SERVER},
    over_transports,
    pattern::Pattern,
    wait,
};

use crate::{server_with_ports, silence};

over_transports! {
    a_client_that_changes_its_network_keeps_a_transfer_and_an_idle_stream: quic Quic, kcp Kcp
}

/// What goes in comes out again, with a pause in which `change` is called when a part has come back.
fn transfer(address: SocketAddr, length: u64, changes: u64, change: impl Fn()) {
    let visitor = http::connect(address).expect("a connection");
    let came = AtomicU64::new(0);
    thread::scope(|scope| {
        let (writer, reader, came) = (&visitor, &visitor, &came);
        scope.spawn(move || {
            Pattern::new(4).write_to(writer, length).expect("sent");
            writer
                .shutdown(std::net::Shutdown::Write)
                .expect("half closed");
        });
        let reading = scope.spawn(move || {
            Pattern::new(4)
                .read_from(Counted(reader, came), length)
                .expect("all of it");
        });
        for number in 1..=changes {
            let part = length / (changes + 1) * number;
            while came.load(Relaxed) < part && !reading.is_finished() {
                thread::sleep(Duration::from_millis(2));
            }
            change();
        }
        reading.join().expect("whole");
    });
}

struct Counted<'a>(&'a TcpStream, &'a AtomicU64);

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let n = (&mut &*self.0).read(buffer)?;
        self.1.fetch_add(n as u64, Relaxed);
        Ok(n)
    }
}

pub(crate) fn key(visitor: &mut TcpStream, key: u8) {
    visitor.write_all(&[key]).expect("sent");
    let mut echoed = [0];
    visitor.read_exact(&mut echoed).expect("an echo");
    assert_eq!(echoed, [key]);
}

pub(crate) fn clear_path(to: SocketAddr) -> LossyPath {
    LossyPath::to(
        to,
        Path {
            delay: Duration::ZERO,
            loss_per_mille: 0,
            seed: 1,
        },
    )
}

fn no_link_was_lost(client: &Client) {
    let log = client.process.log();
    assert!(!log.contains("a link was lost"), "{log}");
}

#[test]
fn a_nat_that_gives_out_another_port_ends_no_stream() {
    let service = Service::echo();
    let (_ports, server) = server_with_ports(1);
    let path = clear_path(server.quic());
    let client = server
        .client(Transport::Quic, "web")
        .option("remote", format!("quic://{}", path.address()))
        .service(service.url("tcp"), "name: echo, remoteTCPRandom: true")
        .start_up();
    let address = server.port(client.port_of("echo"));
    let mut idle = http::connect(address).expect("a connection");
    key(&mut idle, 1);
    transfer(address, 16 << 20, 3, || path.rebind());
    key(&mut idle, 2);
    path.rebind();
    key(&mut idle, 3);
    no_link_was_lost(&client);
}

/// 64 MiB there and back; `GT_E2E_BIG=1` 1 GiB. The client's address changes four times meanwhile, and once in silence
/// (a second, 20 s with `GT_E2E_LONG=1`).
fn a_client_that_changes_its_network_keeps_a_transfer_and_an_idle_stream(transport: Transport) {
    let cable = match Cable::new() {
        Ok(cable) => cable,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    let ports = PortRange::claim(1);
    let server: Server = cable.at_server(|| {
        ServerSpec::new()
            .user("web")
            .ports(&ports)
            .option("quicAddr", format!("\"{SERVER}:0\""))
            .option("kcpAddr", format!("\"{SERVER}:0\""))
            .start()
    });
    let (service, client) = cable.at_client(|| {
        let service = Service::echo();
        let client = server
            .client(transport, "web")
            // A sign of life after a third of it.
            .option("remoteTimeout", "9s")
            .service(service.url("tcp"), "name: echo, remoteTCPRandom: true")
            .start_up();
        (service, client)
    });
    let address = server.port(client.port_of("echo"));
    cable.at_server(|| {
        let mut idle = http::connect(address).expect("a connection");
        key(&mut idle, 1);
        let began = Instant::now();
        transfer(address, big(), 4, || {
            cable.change_address();
            println!("another address after {:?}", began.elapsed());
        });
        let mebibytes = big() >> 20;
        println!("{mebibytes} MiB there and back in {:?}", began.elapsed());
        key(&mut idle, 2);
        // Nobody speaks: the server hears of the new address with the client's next sign of life.
        thread::sleep(silence());
        cable.change_address();
        let began = Instant::now();
        key(&mut idle, 3);
        println!("a key after a change in silence: {:?}", began.elapsed());
    });
    assert_eq!(service.accepted(), 2);
    no_link_was_lost(&client);
}

/// A client that may come by QUIC through `path` or by TLS.
pub(crate) fn two_ways(
    server: &Server,
    path: &LossyPath,
    service: &Service,
    more: &[(&str, &str)],
) -> Client {
    let ways = format!(
        "[\"quic://{}\", \"tls://{}\"]",
        path.address(),
        server.https()
    );
    let spec = server.client(Transport::Quic, "web");
    let options = more.iter();
    let spec = options.fold(spec, |spec, (name, value)| spec.option(name, value));
    spec.option("remote", ways)
        .option("remoteChoice", "best")
        .option("logLevel", "debug")
        .option("remoteConnections", 1)
        .service(service.url("tcp"), "name: echo, remoteTCPRandom: true")
        .start()
}

#[test]
fn links_leave_udp_when_it_is_blocked_and_come_back_when_it_works() {
    let service = Service::echo();
    let (_ports, server) = server_with_ports(1);
    let path = clear_path(server.quic());
    let client = two_ways(&server, &path, &service, &[]);
    client.wait_up();
    server
        .process
        .wait_log(&["a client's link is up", "transport=quic"]);
    // A busy machine may have made it begin over TLS.
    let over = |transport| ["a client's link is up", transport];
    if server.process.count_log(&over("transport=tls")) > 0 {
        server.process.wait_log(&["a client leaves a link"]);
    }
    let address = server.port(client.port_of("echo"));
    // Is there before UDP is blocked, and goes on when it works again.
    let mut idle = http::connect(address).expect("a connection");
    key(&mut idle, 1);
    let (quic, tls, left) = (
        server.process.count_log(&over("transport=quic")),
        server.process.count_log(&over("transport=tls")),
        server.process.count_log(&["a client leaves a link"]),
    );
    let to_quic = ["the links go another way", "to=quic://"];
    let back_before = client.process.count_log(&to_quic);
    path.block(true);
    let began = Instant::now();
    server
        .process
        .wait_log_times(&over("transport=tls"), tls + 1);
    // From here on visitors are not sent to the link that hears nothing.
    server
        .process
        .wait_log_times(&["a client leaves a link"], left + 1);
    let mut visitor = http::connect(address).expect("a connection");
    key(&mut visitor, 2);
    let took = began.elapsed();
    println!("over TLS after {took:?}");
    assert!(took < Duration::from_secs(3), "{took:?}");
    client
        .process
        .wait_log(&["the links go another way", "to=tls://", "does not work"]);
    path.block(false);
    let began = Instant::now();
    key(&mut idle, 3);
    wait::until_within("a link over QUIC again", Duration::from_secs(150), || {
        // A probe that a busy machine makes fail is repeated after 5, 10, 20 and 40 s.
        // Preferred, or even clearly better: as it happens to be measured.
        (client.process.count_log(&to_quic) > back_before).then_some(())
    });
    println!("over QUIC again after {:?}", began.elapsed());
    server
        .process
        .wait_log_times(&over("transport=quic"), quic + 1);
    // What began over TLS ends there.
    key(&mut visitor, 4);
    let mut visitor = http::connect(address).expect("a connection");
    key(&mut visitor, 5);
}

#[test]
fn a_client_behind_a_firewall_without_udp_is_up_within_three_seconds() {
    let service = Service::echo();
    let (_ports, server) = server_with_ports(1);
    let path = clear_path(server.quic());
    path.block(true);
    let began = Instant::now();
    let client = two_ways(&server, &path, &service, &[]);
    client.wait_up();
    let took = began.elapsed();
    println!("up after {took:?}");
    assert!(took < Duration::from_secs(3), "{took:?}");
    let mut visitor = http::connect(server.port(client.port_of("echo"))).expect("a connection");
    key(&mut visitor, 1);
}

#[test]
fn auto_stands_for_quic_tls_and_websocket_on_one_port_number() {
    let service = Service::echo();
    let ports = PortRange::claim(2);
    let secure = format!("\"127.0.0.1:{}\"", ports.first());
    let server = ServerSpec::new()
        .user("web")
        .ports(&ports)
        .option("tlsAddr", &secure)
        .option("quicAddr", &secure)
        .start();
    let client = server
        .client(Transport::Quic, "web")
        .option("remote", format!("auto://127.0.0.1:{}", ports.first()))
        .service(service.url("tcp"), "name: echo, remoteTCPRandom: true")
        .start_up();
    server
        .process
        .wait_log(&["a client's link is up", "transport=quic"]);
    let mut visitor = http::connect(server.port(client.port_of("echo"))).expect("a connection");
    key(&mut visitor, 1);
}

//! Speed limits hold in each direction, and again after a pause: what was not used is not saved up.

use std::{
    io::{Read, Write},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use e2e::{PortRange, ServerSpec, Service, Transport, http, over_each_transport, pattern::Pattern};

over_each_transport!(
    a_user_gets_the_speed_of_the_server,
    a_service_gets_its_bandwidth
);

/// A service that sends what it is asked for and tells when it has got what it was promised: `d` = send 4096 bytes, `u` = read 4096 and
/// answer with one byte.
fn counterpart() -> Service {
    Service::tcp(|mut stream| {
        let mut order = [0];
        while stream.read_exact(&mut order).is_ok() {
            if order == *b"d" {
                stream.write_all(&Pattern::new(1).bytes(BYTES))?;
            } else {
                Pattern::new(2).read_from(&stream, BYTES as u64)?;
                stream.write_all(b"!")?;
            }
        }
        Ok(())
    })
}

fn down(visitor: &mut TcpStream) -> Duration {
    let began = Instant::now();
    visitor.write_all(b"d").expect("sent");
    Pattern::new(1)
        .read_from(visitor, BYTES as u64)
        .expect("4096 bytes");
    began.elapsed()
}

fn up(visitor: &mut TcpStream) -> Duration {
    let began = Instant::now();
    visitor.write_all(b"u").expect("sent");
    visitor
        .write_all(&Pattern::new(2).bytes(BYTES))
        .expect("sent");
    visitor.read_exact(&mut [0]).expect("an answer");
    began.elapsed()
}

/// Both directions at once, because each has its own limit; then again after a pause.
fn check(address: std::net::SocketAddr) {
    for round in ["at first", "after a pause"] {
        let mut visitors = [
            http::connect(address).expect("a connection"),
            http::connect(address).expect("a connection"),
        ];
        let (downloading, uploading) = visitors.split_at_mut(1);
        let [down, up] = thread::scope(|scope| {
            let down = scope.spawn(|| down(&mut downloading[0]));
            let up = scope.spawn(|| up(&mut uploading[0]));
            [down.join().expect("no panic"), up.join().expect("no panic")]
        });
        for (name, took) in [("down", down), ("up", up)] {
            let right = Duration::from_millis(3900)..Duration::from_millis(5000);
            assert!(
                right.contains(&took),
                "{BYTES} bytes {name} took {took:?} {round}"
            );
        }
        // The pause itself is what is tested: it must not be saved up.
        thread::sleep(Duration::from_secs(2));
    }
}

fn a_user_gets_the_speed_of_the_server(transport: Transport) {
    let service = counterpart();
    let ports = PortRange::claim(1);
    let server = ServerSpec::new()
        .ports(&ports)
        .option("speed", 1024)
        .user("web")
        .start();
    let _client = server
        .client(transport, "web")
        .service(
            service.url("tcp"),
            &format!("remoteTCPPort: {}", ports.first()),
        )
        .start_up();
    check(server.port(ports.first()));
}

fn a_service_gets_its_bandwidth(transport: Transport) {
    let service = counterpart();
    let ports = PortRange::claim(1);
    let server = ServerSpec::new().ports(&ports).user("web").start();
    let more = format!("remoteTCPPort: {}, bandwidth: 1024", ports.first());
    let _client = server
        .client(transport, "web")
        .service(service.url("tcp"), &more)
        .start_up();
    check(server.port(ports.first()));
}

const BYTES: usize = 4096;

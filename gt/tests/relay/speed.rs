//! Speed limits hold in each direction, and again after a pause: what was not used is not saved up.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use e2e::{PortRange, ServerSpec, Service, Transport, http, over_each_transport, pattern::Pattern};

over_each_transport!(
    users_get_the_speed_of_the_server,
    services_get_their_bandwidth,
    the_directions_of_one_user_do_not_share_a_limit,
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

/// Both directions at the same time, each by a user or service of its own; then again after a pause.
fn check(down_address: SocketAddr, up_address: SocketAddr) {
    for round in ["at first", "after a pause"] {
        let [down, up] = thread::scope(|scope| {
            let down =
                scope.spawn(|| down(&mut http::connect(down_address).expect("a connection")));
            let up = scope.spawn(|| up(&mut http::connect(up_address).expect("a connection")));
            [down.join().expect("no panic"), up.join().expect("no panic")]
        });
        for (name, took) in [("down", down), ("up", up)] {
            let right = Duration::from_millis(4000)..Duration::from_millis(5000);
            assert!(
                right.contains(&took),
                "{BYTES} bytes {name} took {took:?} {round}"
            );
        }
        // The pause itself is what is tested: it must not be saved up.
        if round == "at first" {
            thread::sleep(Duration::from_secs(2));
        }
    }
}

fn users_get_the_speed_of_the_server(transport: Transport) {
    let service = counterpart();
    let ports = PortRange::claim(2);
    let server = ServerSpec::new()
        .ports(&ports)
        .option("speed", 1024)
        .user("one")
        .user_with("two", "speed: 1KiB")
        .start();
    let client = |id: &str, port: u16| {
        let place = format!("remoteTCPPort: {port}");
        let spec = server.client(transport, id);
        spec.service(service.url("tcp"), &place).start_up()
    };
    let _clients = [client("one", ports.first()), client("two", ports.last())];
    check(server.port(ports.first()), server.port(ports.last()));
}

fn services_get_their_bandwidth(transport: Transport) {
    let service = counterpart();
    let ports = PortRange::claim(2);
    let server = ServerSpec::new().user("web").ports(&ports).start();
    let mut spec = server.client(transport, "web");
    for port in [ports.first(), ports.last()] {
        let more = format!("remoteTCPPort: {port}, bandwidth: 1024");
        spec = spec.service(service.url("tcp"), &more);
    }
    let _client = spec.start_up();
    check(server.port(ports.first()), server.port(ports.last()));
}

const BYTES: usize = 4096;

fn the_directions_of_one_user_do_not_share_a_limit(transport: Transport) {
    let service = counterpart();
    let ports = PortRange::claim(1);
    let server = ServerSpec::new()
        .ports(&ports)
        .option("speed", 1024)
        .user("one")
        .start();
    let _client = server
        .client(transport, "one")
        .service(
            service.url("tcp"),
            &format!("remoteTCPPort: {}", ports.first()),
        )
        .start_up();
    check(server.port(ports.first()), server.port(ports.first()));
}

//! Visitors that are silent for too long, in both directions or in one.

use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use e2e::{Client, PortRange, Server, ServerSpec, Transport, http, over_each_transport};

use crate::origin::Origin;

over_each_transport!(
    a_visitor_that_is_silent_both_ways_is_ended_and_one_with_traffic_is_not,
    one_silent_direction_is_enough_if_so_configured,
);

const TIMEOUT: Duration = Duration::from_secs(2);

fn pair(transport: Transport, one_way: bool) -> (Server, Client, PortRange) {
    let (origin, ports) = (Origin::tcp(), PortRange::claim(2));
    let server = ServerSpec::new()
        .user("web")
        .ports(&ports)
        .option("timeout", "2s")
        .option("timeoutOnUnidirectionalTraffic", one_way)
        .start();
    let client = server
        .client(transport, "web")
        .service(
            format!("tcp://{}", origin.address()),
            "name: tcp, remoteTCPRandom: true",
        )
        .start_up();
    (server, client, ports)
}

/// A visitor that has said `line` to the service.
fn visitor(server: &Server, client: &Client, line: &str) -> TcpStream {
    let mut visitor = http::connect(server.port(client.port_of("tcp"))).expect("accepts");
    visitor.write_all(line.as_bytes()).expect("writable");
    visitor
}

/// How long the visitor's connection lives, at most `most`.
fn lives(mut visitor: TcpStream, most: Duration) -> Duration {
    let began = Instant::now();
    visitor
        .set_read_timeout(Some(Duration::from_millis(200)))
        .expect("settable");
    while began.elapsed() < most {
        match visitor.read(&mut [0; 64]) {
            Ok(0) => panic!("a service that says nothing has not ended in order"),
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::ConnectionReset);
                break;
            }
        }
    }
    began.elapsed()
}

fn a_visitor_that_is_silent_both_ways_is_ended_and_one_with_traffic_is_not(transport: Transport) {
    let (server, client, _ports) = pair(transport, false);
    let silent = visitor(&server, &client, "echo\n");
    let listening = visitor(&server, &client, "drip 300\n");
    let lived = lives(silent, TIMEOUT * 4);
    assert!(
        (TIMEOUT.mul_f64(0.9)..TIMEOUT.mul_f64(1.9)).contains(&lived),
        "{lived:?}"
    );
    let lived = lives(listening, TIMEOUT);
    assert!(lived >= TIMEOUT, "bytes came all the time: {lived:?}");
}

fn one_silent_direction_is_enough_if_so_configured(transport: Transport) {
    let (server, client, _ports) = pair(transport, true);
    let listening = visitor(&server, &client, "drip 300\n");
    let lived = lives(listening, TIMEOUT * 4);
    assert!(
        (TIMEOUT.mul_f64(0.9)..TIMEOUT.mul_f64(1.9)).contains(&lived),
        "{lived:?}"
    );
    let mut talking = visitor(&server, &client, "echo\n");
    let began = Instant::now();
    while began.elapsed() < TIMEOUT * 2 {
        talking.write_all(b"x").expect("alive");
        talking.read_exact(&mut [0]).expect("echoed");
        std::thread::sleep(Duration::from_millis(100));
    }
}

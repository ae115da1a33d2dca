//! UDP services: each visitor's address is a conversation of its own.

use std::{
    net::{SocketAddr, UdpSocket},
    time::Duration,
};

use e2e::{Transport, UdpService, over_each_transport, pattern::Pattern, wait};

use crate::server_with_ports;

over_each_transport!(
    two_visitors_get_their_own_answers,
    datagrams_of_all_sizes_keep_their_bounds
);

fn visitor(address: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.connect(address).expect("an address");
    socket
        .set_read_timeout(Some(Duration::from_millis(500)))
        .expect("a timeout");
    socket
}

/// Sends until the answer to this datagram comes: UDP may lose any of them.
fn ask(visitor: &UdpSocket, datagram: &[u8]) -> Vec<u8> {
    wait::until("an answer to a datagram", || {
        visitor.send(datagram).ok()?;
        let mut answer = vec![0; 1 << 16];
        loop {
            let n = visitor.recv(&mut answer).ok()?;
            if answer[..n].ends_with(datagram) {
                answer.truncate(n);
                return Some(answer);
            }
        }
    })
}

fn two_visitors_get_their_own_answers(transport: Transport) {
    let service = UdpService::echo("echo ");
    let (ports, server) = server_with_ports(1);
    let client = server
        .client(transport, "web")
        .service(
            format!("udp://{}", service.address()),
            "name: echo, remoteUDPRandom: true",
        )
        .start_up();
    let port = client.port_of("echo");
    assert!(ports.contains(port));
    let visitors = [visitor(server.port(port)), visitor(server.port(port))];
    for round in 0..20 {
        for (name, visitor) in ["one", "two"].iter().zip(&visitors) {
            let said = format!("{name} {round}");
            assert_eq!(
                ask(visitor, said.as_bytes()),
                format!("echo {said}").into_bytes()
            );
        }
    }
    // Nobody got what was meant for the other, not even late.
    for (other, visitor) in ["two", "one"].iter().zip(&visitors) {
        let mut late = [0; 100];
        while let Ok(n) = visitor.recv(&mut late) {
            let late = String::from_utf8_lossy(&late[..n]).into_owned();
            assert!(!late.contains(other), "{late:?} went to the wrong visitor");
        }
    }
}

fn datagrams_of_all_sizes_keep_their_bounds(transport: Transport) {
    let service = UdpService::echo("");
    let (ports, server) = server_with_ports(1);
    let more = format!("remoteUDPPort: {}", ports.first());
    let _client = server
        .client(transport, "web")
        .service(format!("udp://{}", service.address()), &more)
        .start_up();
    let visitor = visitor(server.port(ports.first()));
    let mut pattern = Pattern::new(9);
    for size in [1, 2, 512, 1200, 1472, 9000, 65_000] {
        let datagram = pattern.bytes(size);
        assert!(
            ask(&visitor, &datagram) == datagram,
            "a datagram of {size} bytes came back changed"
        );
    }
}

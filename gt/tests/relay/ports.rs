//! TCP ports of services: named ones, random ones, and who may have how many.

use std::{collections::HashSet, io};

use e2e::{PortRange, ServerSpec, Service, Transport, http, over_each_transport};

use crate::server_with_ports;

over_each_transport!(
    named_and_random_ports_lead_to_their_services,
    a_taken_port_is_refused_or_replaced,
    tcp_number_bounds_the_ports_of_a_client,
    tcp_range_decides_which_ports_are_allowed,
    without_a_range_nobody_gets_a_port,
);

fn said(address: std::net::SocketAddr) -> io::Result<String> {
    Ok(http::get(address, "any", "/")?.text())
}

fn named_and_random_ports_lead_to_their_services(transport: Transport) {
    let services: Vec<_> = (0..4)
        .map(|n| Service::text(&format!("service {n}")))
        .collect();
    let (ports, server) = server_with_ports(8);
    let mut spec = server.client(transport, "web");
    for (n, service) in services.iter().enumerate() {
        let place = match n {
            0 => format!("remoteTCPPort: {}", ports.first() + 3),
            _ => "remoteTCPRandom: true".to_owned(),
        };
        spec = spec.service(service.url("tcp"), &format!("name: s{n}, {place}"));
    }
    let client = spec.start_up();
    let given: Vec<u16> = (0..4).map(|n| client.port_of(&format!("s{n}"))).collect();
    assert_eq!(given[0], ports.first() + 3);
    assert_eq!(given.iter().collect::<HashSet<_>>().len(), 4, "{given:?}");
    for (n, port) in given.iter().enumerate() {
        assert!(ports.contains(*port));
        assert_eq!(
            said(server.port(*port)).expect("an answer"),
            format!("service {n}")
        );
    }
}

fn a_taken_port_is_refused_or_replaced(transport: Transport) {
    let (first, second) = (Service::text("first"), Service::text("second"));
    let ports = PortRange::claim(3);
    let server = ServerSpec::new()
        .user("one")
        .user("two")
        .ports(&ports)
        .start();
    let port = ports.first();
    let _one = server
        .client(transport, "one")
        .service(first.url("tcp"), &format!("remoteTCPPort: {port}"))
        .start_up();
    let mut two = server
        .client(transport, "two")
        .service(
            second.url("tcp"),
            &format!("name: strict, remoteTCPPort: {port}"),
        )
        .start();
    let line = two.wait_refused("strict");
    assert!(
        line.contains(&format!("port {port} is already used by another service")),
        "{line}"
    );
    // In order: over UDP a killed client keeps its id for a while.
    two.process.signal("TERM");
    two.wait_exit();
    let two = server
        .client(transport, "two")
        .service(
            second.url("tcp"),
            &format!("name: easy, remoteTCPPort: {port}, remoteTCPRandom: true"),
        )
        .start();
    two.wait_up();
    let given = two.port_of("easy");
    assert!(given != port && ports.contains(given));
    assert_eq!(said(server.port(port)).expect("an answer"), "first");
    assert_eq!(said(server.port(given)).expect("an answer"), "second");
}

fn tcp_number_bounds_the_ports_of_a_client(transport: Transport) {
    let service = Service::text("here");
    let ports = PortRange::claim(8);
    let server = ServerSpec::new()
        .ports(&ports)
        .option("tcpNumber", 2)
        .user("few")
        .user_with("more", "tcpNumber: 3")
        .start();
    for (id, allowed) in [("few", 2), ("more", 3)] {
        let mut spec = server.client(transport, id);
        for n in 0..4 {
            spec = spec.service(
                service.url("tcp"),
                &format!("name: s{n}, remoteTCPRandom: true"),
            );
        }
        let client = spec.start();
        for n in 0..4 {
            if n < allowed {
                assert_eq!(
                    said(server.port(client.port_of(&format!("s{n}")))).expect("an answer"),
                    "here"
                );
            } else {
                let line = client.wait_refused(&format!("s{n}"));
                assert!(
                    line.contains(&format!("{allowed} ports (tcpNumber)")),
                    "{line}"
                );
            }
        }
    }
}

fn tcp_range_decides_which_ports_are_allowed(transport: Transport) {
    let service = Service::text("here");
    let ports = PortRange::claim(4);
    let (low, high) = (ports.first(), ports.last());
    let server = ServerSpec::new()
        .option("tcpRange", format!("{low}-{}", low + 1))
        .user("low")
        .user_with("high", &format!("tcp: {{range: [{}, {high}]}}", high - 1))
        .start();
    for (id, allowed, forbidden) in [("low", low, high), ("high", high, low)] {
        let client = server
            .client(transport, id)
            .service(
                service.url("tcp"),
                &format!("name: inside, remoteTCPPort: {allowed}"),
            )
            .service(
                service.url("tcp"),
                &format!("name: outside, remoteTCPPort: {forbidden}"),
            )
            .service(service.url("tcp"), "name: random, remoteTCPRandom: true")
            .start();
        let line = client.wait_refused("outside");
        assert!(
            line.contains(&format!("port {forbidden} is not in")) && line.contains("(tcpRange)"),
            "{line}"
        );
        assert_eq!(client.port_of("inside"), allowed);
        let random = client.port_of("random");
        assert_eq!(said(server.port(random)).expect("an answer"), "here");
        assert_eq!(random, if id == "low" { low + 1 } else { high - 1 });
        // The first client's own ports stay open for a while after it has gone.
        if id == "low" {
            http::connect(server.port(forbidden))
                .expect_err("nobody listens on a port that was refused");
        }
    }
}

fn without_a_range_nobody_gets_a_port(transport: Transport) {
    let server = crate::server();
    let client = server
        .client(transport, "web")
        .service("tcp://127.0.0.1:1", "name: ssh, remoteTCPRandom: true")
        .start();
    let line = client.wait_refused("ssh");
    assert!(line.contains("tcpRange is empty"), "{line}");
}

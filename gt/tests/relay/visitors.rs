//! Where visitors come from: what services are told of it, and who is let in.

use std::{
    io::{self, Read},
    net::{Ipv4Addr, SocketAddr, TcpStream},
};

use e2e::{HttpConn, Nginx, PortRange, ServerSpec, Service, Transport, http, over_each_transport};
use socket2::{Domain, Socket, Type};

use crate::server;

over_each_transport!(
    proxy_protocol_tells_the_visitors_address,
    proxy_protocol_v2_goes_before_tls_that_is_passed_through,
    allow_and_deny_decide_who_comes,
    allow_and_deny_hold_for_tcp_ports,
);

/// Connects from an address of the loopback network.
fn connect_from(source: [u8; 4], to: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((source, 0)).into())?;
    socket.connect(&to.into())?;
    socket.set_read_timeout(Some(http::STUCK))?;
    Ok(socket.into())
}

fn get_from(
    source: [u8; 4],
    to: SocketAddr,
    host: &str,
) -> io::Result<(SocketAddr, e2e::Response)> {
    let stream = connect_from(source, to)?;
    let from = stream.local_addr()?;
    let response = HttpConn::new(stream).get(host, "/")?;
    Ok((from, response))
}

fn proxy_protocol_tells_the_visitors_address(transport: Transport) {
    // nginx understands both versions, and refuses connections without a header.
    let block = "listen {listen} proxy_protocol; location / { return 200 \"$proxy_protocol_addr $proxy_protocol_port $proxy_protocol_server_port\"; }";
    let nginx = Nginx::start(&[block], |_| {});
    let ports = PortRange::claim(2);
    let server = ServerSpec::new().user("web").ports(&ports).start();
    let mut spec = server.client(transport, "web");
    for (n, version) in (0..).zip(["v1", "v2"]) {
        spec = spec.service(
            nginx.url(0),
            &format!("name: {version}, hostPrefix: {version}, proxyProtocol: {version}"),
        );
        let place = format!(
            "name: tcp-{version}, remoteTCPPort: {}, proxyProtocol: {version}",
            ports.first() + n
        );
        spec = spec.service(nginx.url(0).replace("http:", "tcp:"), &place);
    }
    let _client = spec.start_up();
    for (n, version) in (0..).zip(["v1", "v2"]) {
        for to in [server.http(), server.port(ports.first() + n)] {
            let (from, response) =
                get_from([127, 0, 0, 9], to, &format!("{version}.example.com")).expect("an answer");
            assert_eq!(
                (response.status, response.text()),
                (200, format!("127.0.0.9 {} {}", from.port(), to.port()))
            );
        }
    }
}

fn proxy_protocol_v2_goes_before_tls_that_is_passed_through(transport: Transport) {
    let authority = e2e::cert::Authority::new();
    let cert = authority.sign(&["web.example.com"]);
    let block = format!(
        "listen {{listen}} ssl proxy_protocol; ssl_certificate {}; ssl_certificate_key {}; location / {{ return 200 $proxy_protocol_addr; }}",
        cert.cert_file().display(),
        cert.key_file().display()
    );
    let nginx = Nginx::start(&[&block], |_| {});
    let server = server();
    let local = nginx.url(0).replace("http:", "https:");
    let _client = server
        .client(transport, "web")
        .service(local, "hostPrefix: web, proxyProtocol: v2")
        .start_up();
    let config = e2e::tls::client_config(&[authority.der().clone()], &[]);
    let stream = e2e::tls::connect(server.sni(), "web.example.com", config).expect("a handshake");
    let response = HttpConn::new(stream)
        .get("web.example.com", "/")
        .expect("an answer");
    assert_eq!(response.text(), Ipv4Addr::LOCALHOST.to_string());
}

fn allow_and_deny_decide_who_comes(transport: Transport) {
    let service = Service::text("here");
    let server = server();
    let _client = server
        .client(transport, "web")
        .service(
            service.url("http"),
            "hostPrefix: allowed, allow: [127.0.1.0/24, 127.0.2.2]",
        )
        .service(
            service.url("http"),
            "hostPrefix: denied, deny: 127.0.1.0/24",
        )
        .service(
            service.url("http"),
            "hostPrefix: both, allow: 127.0.0.0/16, deny: [127.0.1.1]",
        )
        .start_up();
    let rules = [
        (
            "allowed",
            [
                (1, 1, 200),
                (1, 9, 200),
                (2, 2, 200),
                (2, 3, 403),
                (3, 1, 403),
            ],
        ),
        (
            "denied",
            [
                (1, 1, 403),
                (1, 9, 403),
                (2, 2, 200),
                (2, 3, 200),
                (3, 1, 200),
            ],
        ),
        (
            "both",
            [
                (1, 1, 403),
                (1, 9, 200),
                (2, 2, 200),
                (2, 3, 200),
                (3, 1, 200),
            ],
        ),
    ];
    for (prefix, visits) in rules {
        for (c, d, status) in visits {
            let (from, response) = get_from(
                [127, 0, c, d],
                server.http(),
                &format!("{prefix}.example.com"),
            )
            .expect("an answer");
            assert_eq!(response.status, status, "{prefix} from {from}");
        }
    }
}

fn closed_without_a_byte(mut stream: TcpStream) -> bool {
    !matches!(stream.read(&mut [0]), Ok(n) if n > 0)
}

fn allow_and_deny_hold_for_tcp_ports(transport: Transport) {
    let service = Service::tcp(|mut stream| io::Write::write_all(&mut stream, b"welcome"));
    let (ports, server) = crate::server_with_ports(1);
    let more = format!("remoteTCPPort: {}, allow: 127.0.5.0/24", ports.first());
    let _client = server
        .client(transport, "web")
        .service(service.url("tcp"), &more)
        .start_up();
    let address = server.port(ports.first());
    assert!(!closed_without_a_byte(
        connect_from([127, 0, 5, 1], address).expect("a connection")
    ));
    assert!(closed_without_a_byte(
        connect_from([127, 0, 6, 1], address).expect("a connection")
    ));
    assert_eq!(
        service.accepted(),
        1,
        "a visitor who may not come does not reach the service"
    );
}

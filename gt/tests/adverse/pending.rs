//! Connections that do not show what they are: strangers may hold so many and no more, and what they do wrong fills no disk.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    time::Duration,
};

use e2e::{HttpConn, Server, ServerSpec, Transport, http, relay::field, wait};
use socket2::{Domain, Socket, Type};
use tunnel::{HandshakeError, RejectCode};

use crate::{origin::Origin, raw};

/// A server that waits for long, and its API.
fn server(spec: ServerSpec) -> (Server, SocketAddr) {
    let server = spec
        .user("web")
        .option("headerTimeout", "60s")
        .option("handshakeTimeout", "60s")
        .option("apiAddr", "\"127.0.0.1:0\"")
        .start();
    let line = server
        .process
        .wait_log(&["listening", "option=\"apiAddr\""]);
    let api = field(&line, "address").and_then(|address| address.parse().ok());
    (server, api.expect("an address"))
}

fn metric(api: SocketAddr, name: &str) -> u64 {
    let text = http::get(api, "localhost", "/metrics")
        .expect("metrics")
        .text();
    let found = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    found.unwrap_or_else(|| panic!("no {name} in\n{text}"))
}

/// Connections that are no visit and no link yet, in the ways there are: silent ones on each port, half a request, a Hello without a
/// proof.
fn hold(server: &Server, count: usize) -> Vec<TcpStream> {
    let hello = raw::hello("web");
    let kinds: [(SocketAddr, &[u8]); 5] = [
        (server.http(), b""),
        (server.https(), b""),
        (server.sni(), b""),
        (server.http(), b"GET / HTTP/1.1\r\n"),
        (server.http(), &hello),
    ];
    let begin = |(address, said): &(SocketAddr, &[u8])| {
        let mut stream = http::connect(*address).expect("accepts");
        stream.write_all(said).expect("sent");
        stream
    };
    kinds.iter().cycle().take(count).map(begin).collect()
}

/// Whether the server has closed the connection by now or within a second.
fn is_closed(mut stream: &TcpStream) -> bool {
    stream
        .set_read_timeout(Some(Duration::from_secs(1)))
        .expect("settable");
    match stream.read(&mut [0]) {
        Ok(n) => n == 0,
        Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
    }
}

/// A connection from another address of this machine.
fn connect_from(source: [u8; 4], address: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let source = SocketAddr::from((Ipv4Addr::from(source), 0));
    socket.bind(&source.into()).expect("a loopback address");
    socket.connect(&address.into()).expect("accepts");
    let stream = TcpStream::from(socket);
    stream
        .set_read_timeout(Some(e2e::PATIENCE))
        .expect("settable");
    stream
}

/// The status that a visitor with a whole request gets.
fn visit(stream: TcpStream) -> u16 {
    let mut visitor = HttpConn::new(stream);
    visitor
        .send("GET / HTTP/1.1\r\nHost: web.test\r\n\r\n")
        .expect("sent");
    visitor.response().expect("an answer").status
}

#[test]
fn one_address_holds_its_places_and_others_are_served_meanwhile() {
    let (server, api) = server(ServerSpec::new().option("pendingPerAddress", 20));
    let origin = Origin::http();
    let client = server
        .client(Transport::Tcp, "web")
        .service(format!("http://{}", origin.address()), "")
        .start_up();
    wait::until("the link holds no place", || {
        (metric(api, "gt_pending_open ") == 0).then_some(())
    });
    let held = hold(&server, 20);
    wait::until("all places are taken", || {
        (metric(api, "gt_pending_open ") == 20).then_some(())
    });
    let more = hold(&server, 40);
    assert!(more.iter().all(is_closed), "one too many was kept");
    assert_eq!(metric(api, "gt_limit_pending_total "), 40);
    assert_eq!(metric(api, "gt_pending_open "), 20);
    let line = server
        .process
        .wait_log(&["a connection was closed at once", "pendingPerAddress"]);
    assert!(line.contains("peer=127.0.0.1"), "{line}");
    assert_eq!(
        server
            .process
            .count_log(&["a connection was closed at once"]),
        1,
        "one line for all of them"
    );
    assert_eq!(visit(connect_from([127, 0, 0, 2], server.http())), 200);
    // Places are free again as soon as they are left.
    drop(held);
    wait::until("the places are free", || {
        (metric(api, "gt_pending_open ") == 0).then_some(())
    });
    assert_eq!(visit(http::connect(server.http()).expect("accepts")), 200);
    assert_eq!(client.process.count_log(&["a link was lost"]), 0);
}

#[test]
fn visitors_hold_no_place_once_they_have_shown_what_they_are() {
    let (server, _api) = server(ServerSpec::new().option("pendingPerAddress", 2));
    let origin = Origin::http();
    let _client = server
        .client(Transport::Tcp, "web")
        .service(format!("http://{}", origin.address()), "")
        .start_up();
    let mut visitors: Vec<_> = (0..20)
        .map(|_| {
            let mut visitor = HttpConn::new(http::connect(server.http()).expect("accepts"));
            let response = visitor.get("web.test", "/").expect("an answer");
            assert_eq!(response.status, 200);
            visitor
        })
        .collect();
    for visitor in &mut visitors {
        assert_eq!(visitor.get("web.test", "/").expect("alive").status, 200);
    }
}

#[test]
fn all_addresses_together_hold_no_more_than_there_are_places() {
    let spec = ServerSpec::new()
        .option("pendingConnections", 10)
        .option("pendingPerAddress", 0);
    let (server, api) = server(spec);
    let held: Vec<_> = (1..=10)
        .map(|last| connect_from([127, 0, 1, last], server.http()))
        .collect();
    wait::until("all places are taken", || {
        (metric(api, "gt_pending_open ") == 10).then_some(())
    });
    assert!(is_closed(&connect_from([127, 0, 1, 11], server.http())));
    server
        .process
        .wait_log(&["a connection was closed at once", "pendingConnections"]);
    assert!(!is_closed(&held[0]));
}

#[test]
fn refused_clients_are_counted_each_and_logged_once() {
    let (server, api) = server(ServerSpec::new().option("reconnectTimes", 0));
    let refuse = |id: &str| match raw::attempt(server.http(), raw::client(id, "guess")) {
        Err(HandshakeError::Rejected(rejection)) => {
            assert_eq!(rejection.code, RejectCode::AuthFailed);
        }
        other => panic!("{other:?}"),
    };
    for round in 0..30 {
        refuse("web");
        refuse(&format!("stranger-{round}"));
    }
    assert_eq!(metric(api, "gt_auth_failures_total "), 60);
    for line in ["its secret is wrong", "no user has this id"] {
        server.process.wait_log(&[line]);
        assert_eq!(server.process.count_log(&[line]), 1);
    }
    // What another does is news.
    let mut other = connect_from([127, 0, 0, 2], server.http());
    other.write_all(&raw::hello("web")).expect("sent");
    drop(other);
    let line = server.process.wait_log(&["a link was not established"]);
    assert!(line.contains("peer=127.0.0.2"), "{line}");
    wait::until("the handshake that broke off is counted", || {
        (metric(api, "gt_handshake_failures_total ") == 1).then_some(())
    });
}

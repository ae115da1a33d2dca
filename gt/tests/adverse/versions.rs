//! Peers that are something else: another version of gt, or no gt at all.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    thread,
};

use e2e::{ClientSpec, ServerSpec, Transport, http, over_each_tcp_transport, wait};
use tunnel::{HandshakeError, RejectCode};

use crate::{WATCH, raw, wire::Wire};

over_each_tcp_transport!(a_server_that_is_no_gt_server_is_named_as_such_and_not_stormed);

#[test]
fn a_client_of_another_version_is_told_both_versions() {
    let server = ServerSpec::new().user("web").start();
    let refused = raw::attempt(server.http(), raw::client_of_another_version("web"));
    let Err(HandshakeError::Rejected(rejection)) = refused else {
        panic!("not refused");
    };
    assert_eq!(rejection.code, RejectCode::UnsupportedVersion);
    let message = rejection.message.as_str();
    assert!(message.contains('9') && message.contains('1'), "{message}");
    let line = server
        .process
        .wait_log(&["a link was not established", "version"]);
    assert!(line.contains("INFO") && line.contains('9'), "{line}");
}

#[test]
fn a_client_says_which_versions_do_not_fit_and_gives_up() {
    let address = raw::server_of_another_version();
    let mut client = ClientSpec::new("web")
        .option("remote", format!("tcp://{address}"))
        .service("http://127.0.0.1:1", "")
        .start();
    assert_eq!(client.wait_exit().code(), Some(1));
    let log = client.process.log();
    assert!(log.contains("unsupported protocol version"), "{log}");
    assert!(log.contains("update the older"), "{log}");
}

#[test]
fn what_a_server_is_too_old_for_is_not_declared_to_it_and_the_client_says_so() {
    let (address, served) = raw::server_without_features("web");
    let client = ClientSpec::new("web")
        .option("remote", format!("tcp://{address}"))
        .service("http://127.0.0.1:1", "name: open, mode: http")
        .service(
            "http://127.0.0.1:1",
            "name: guarded, mode: http, hostPrefix: guarded, basicAuth: {passwords: {me: a-password}}",
        )
        .service(
            "http://127.0.0.1:1",
            "name: calls, mode: http, hostPrefix: calls, protocol: h2c",
        )
        .start();
    let services = served.join().expect("no panic").expect("services");
    let names: Vec<_> = services
        .services
        .iter()
        .map(|service| service.name.as_str())
        .collect();
    assert_eq!(names, ["open"]);
    for name in ["guarded", "calls"] {
        let line = client
            .process
            .wait_log(&["a service is not declared", name]);
        assert!(line.contains("ERROR"), "{line}");
        assert!(line.contains("the server is too old for"), "{line}");
    }
}

/// Over TCP the handshake finds out and the client gives up; TLS and WebSocket fail in a way that may pass, so it tries again, with
/// pauses.
fn a_server_that_is_no_gt_server_is_named_as_such_and_not_stormed(transport: Transport) {
    let wire = Wire::to(http_server());
    let scheme = match transport {
        Transport::Tcp => "tcp",
        Transport::Tls => "tls",
        Transport::Ws => "ws",
        Transport::Kcp => "kcp",
        Transport::Quic => "quic",
    };
    let mut client = ClientSpec::new("web")
        .option("remote", format!("{scheme}://{}", wire.address()))
        .option("reconnectDelay", "5s")
        .service("http://127.0.0.1:1", "")
        .start();
    match transport {
        Transport::Tcp => {
            assert_eq!(client.wait_exit().code(), Some(1));
            let log = client.process.log();
            assert!(log.contains("the peer is not a gt server"), "{log}");
            assert!(log.contains("HTTP/1.1"), "says what it heard: {log}");
            assert_eq!(wire.attempts(), 1);
        }
        Transport::Tls | Transport::Ws | Transport::Kcp | Transport::Quic => {
            let what = if transport == Transport::Tls {
                "TLS: "
            } else {
                "WebSocket: "
            };
            client.process.wait_log(&["WARN", "no link", what]);
            thread::sleep(WATCH);
            assert!(wire.attempts() <= 3, "{} attempts", wire.attempts());
        }
    }
}

/// Answers whatever comes like a web server that does not understand.
fn http_server() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("bound");
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(
                b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            );
        }
    });
    address
}

#[test]
fn a_peer_that_begins_like_a_link_and_is_none_is_closed_and_logged_once() {
    let server = ServerSpec::new().user("web").start();
    let mut stream = http::connect(server.http()).expect("accepts");
    stream
        .write_all(&[&tunnel::MAGIC[..], &[0xee; 64]].concat())
        .expect("writable");
    let _ = stream.read_to_end(&mut Vec::new());
    let line = server.process.wait_log(&["a link was not established"]);
    assert!(line.contains("INFO"), "{line}");
    let lines = || server.process.count_log(&["a link was not established"]);
    assert_eq!(lines(), 1);
}

#[test]
fn a_handshake_that_stops_half_way_is_ended_in_time() {
    let server = ServerSpec::new()
        .user("web")
        .option("handshakeTimeout", "1s")
        .start();
    let mut stream = http::connect(server.http()).expect("accepts");
    stream.write_all(&raw::hello("web")).expect("writable");
    let mut said = Vec::new();
    stream.read_to_end(&mut said).expect("closed, not hung");
    assert_eq!(said.first(), Some(&2), "a Challenge");
    wait::until("the server says why", || {
        (server.process.count_log(&["INFO", "took longer than 1s"]) == 1).then_some(())
    });
}

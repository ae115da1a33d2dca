//! Clients that are not let in: both sides say why, nobody tries again and again, and guessing costs time.

use std::{
    collections::HashSet,
    net::SocketAddr,
    time::{Duration, Instant},
};

use e2e::{Server, ServerSpec, Transport, http, over_each_tcp_transport, relay::SECRET, wait};
use tunnel::{HandshakeError, RejectCode, Rejection};

use crate::{WATCH, client_through, origin::Origin, raw, way_in, wire::Wire};

over_each_tcp_transport!(
    a_wrong_secret_ends_the_client_with_a_reason_on_both_sides,
    an_unknown_id_ends_the_client_with_a_reason_on_both_sides,
    a_client_whose_secret_became_wrong_does_not_storm_the_server,
);

fn a_wrong_secret_ends_the_client_with_a_reason_on_both_sides(transport: Transport) {
    let server = ServerSpec::new().user("web").start();
    let server_line = refused_client(&server, transport, "web");
    assert!(server_line.contains("its secret is wrong"), "{server_line}");
}

fn an_unknown_id_ends_the_client_with_a_reason_on_both_sides(transport: Transport) {
    let server = ServerSpec::new().user("web").start();
    let server_line = refused_client(&server, transport, "nobody");
    assert!(server_line.contains("no user has this id"), "{server_line}");
}

/// A client with a secret of its own fails once, says so, and exits; returns the server's line.
fn refused_client(server: &Server, transport: Transport, id: &str) -> String {
    let mut client = server
        .client(transport, id)
        .option("secret", "another")
        .service("http://127.0.0.1:1", "")
        .start();
    let status = client.wait_exit();
    assert_eq!(status.code(), Some(1));
    let log = client.process.log();
    assert!(log.contains("authentication failed"), "{log}");
    assert!(log.contains("check id and secret"), "{log}");
    assert!(
        !log.contains("no client has this id"),
        "the wire must not tell which: {log}"
    );
    let parts = ["a client was refused", &format!("id=\"{id}\"")];
    let line = server.process.wait_log(&parts);
    assert_eq!(server.process.count_log(&parts), 1, "one attempt, one line");
    assert!(line.contains("WARN"), "{line}");
    line
}

fn a_client_whose_secret_became_wrong_does_not_storm_the_server(transport: Transport) {
    let origin = Origin::http();
    let mut server = ServerSpec::new().user("web").start();
    let cert = e2e::Cert::self_signed(&["localhost", "127.0.0.1"]);
    let changed = ServerSpec::new()
        .user_with("other", "")
        .option("id", "web")
        .option("secret", "changed")
        .cert(cert)
        .start();
    let wire = Wire::to(way_in(&server, transport));
    let mut client = client_through(&wire, &server, transport, "web")
        .option("remoteCertInsecure", "true")
        .option("remoteConnections", 1)
        .without("remoteCert")
        .service(format!("http://{}", origin.address()), "")
        .start_up();
    wire.turn_to(way_in(&changed, transport));
    server.process.kill();
    client
        .process
        .wait_log(&["ERROR", "the server refuses this client"]);
    let attempts = wire.attempts();
    std::thread::sleep(WATCH);
    assert_eq!(wire.attempts(), attempts, "it must wait for minutes");
    assert_eq!(
        client.process.try_exit(),
        None,
        "it was good once: it stays"
    );
}

#[test]
fn repeated_failures_are_throttled_with_growing_pauses_and_the_right_secret_pays_them_off() {
    let server = ServerSpec::new()
        .user("web")
        .option("reconnectTimes", 3)
        .start();
    let code = |secret| match raw::attempt(server.http(), raw::client("web", secret)) {
        Ok(_) => None,
        Err(HandshakeError::Rejected(rejection)) => Some(rejection),
        Err(other) => panic!("{other}"),
    };
    for _ in 0..3 {
        let rejection = code("guess").expect("refused");
        assert_eq!(rejection.code, RejectCode::AuthFailed);
    }
    let first = throttled(code("guess"));
    assert!(
        (Duration::from_millis(500)..=Duration::from_secs(1)).contains(&first),
        "{first:?}"
    );
    assert_eq!(
        code(SECRET).map(|rejection| rejection.code),
        Some(RejectCode::Throttled),
        "the address waits, whatever it says"
    );
    let began = Instant::now();
    wait::until("the pause is over", || {
        (code("guess")?.code == RejectCode::AuthFailed).then_some(())
    });
    assert!(
        began.elapsed() >= first.mul_f64(0.8),
        "{:?}",
        began.elapsed()
    );
    let second = throttled(code("guess"));
    assert!(second > Duration::from_secs(1), "{second:?}");
    wait::until("the right secret is let in after the pause", || {
        code(SECRET).is_none().then_some(())
    });
    assert_eq!(
        code("guess").map(|rejection| rejection.code),
        Some(RejectCode::AuthFailed),
        "the count began anew"
    );
}

fn throttled(rejection: Option<Rejection>) -> Duration {
    let rejection = rejection.expect("refused");
    assert_eq!(rejection.code, RejectCode::Throttled);
    rejection.retry_after.expect("says when")
}

#[test]
fn a_service_that_may_not_be_is_refused_on_both_sides_and_others_are_served() {
    let origin = Origin::http();
    let server = ServerSpec::new().user("web").start();
    let client = server
        .client(Transport::Tcp, "web")
        .service(format!("http://{}", origin.address()), "name: good")
        .service(
            format!("tcp://{}", origin.address()),
            "name: bad, remoteTCPPort: 14999",
        )
        .start();
    let line = client.wait_refused("bad");
    assert!(line.contains("port"), "{line}");
    let line = server
        .process
        .wait_log(&["a service was refused", "service=\"bad\""]);
    assert!(line.contains("WARN"), "{line}");
    let response = http::get_until(server.http(), "web.test", "/", 200);
    assert_eq!(response.text(), "hello");
    let unknown = http::get(server.http(), "unknown.test", "/").expect("an answer");
    assert_eq!(unknown.status, 404);
}

#[test]
fn a_stream_for_an_unknown_service_is_reset_by_the_client() {
    let header = {
        let mut header = Vec::new();
        tunnel::StreamHeader {
            service: tunnel::ServiceId(99),
            protocol: tunnel::StreamProtocol::Tcp,
            visitor: None,
            local: None,
            server_name: None,
        }
        .encode(&mut header);
        header
    };
    let (address, served) = raw::server_that_opens("web", header);
    let client = client_of(address).service("tcp://127.0.0.1:1", "remoteTCPRandom: true");
    let client = client.start();
    let reason = served.join().expect("no panic").expect("a reset");
    assert_eq!(
        tunnel::ResetReason::from(reason),
        tunnel::ResetReason::NoService
    );
    client.process.wait_log(&["WARN", "no such service"]);
}

#[test]
fn a_stream_header_that_cannot_be_read_is_reset_by_the_client() {
    let (address, served) = raw::server_that_opens("web", vec![0xff; 40]);
    let _client = client_of(address)
        .service("tcp://127.0.0.1:1", "remoteTCPRandom: true")
        .start();
    let reason = served.join().expect("no panic").expect("a reset");
    assert_eq!(
        tunnel::ResetReason::from(reason),
        tunnel::ResetReason::Protocol
    );
}

fn client_of(address: SocketAddr) -> e2e::ClientSpec {
    e2e::ClientSpec::new("web").option("remote", format!("tcp://{address}"))
}

#[test]
fn session_ids_are_not_given_out_twice() {
    let server = ServerSpec::new()
        .user_with("web", "loadBalance: true")
        .start();
    let links: Vec<_> = (0..5)
        .map(|_| raw::attempt(server.http(), raw::client("web", SECRET)).expect("let in"))
        .collect();
    let sessions: HashSet<_> = links
        .iter()
        .map(|(_, link)| format!("{:?}", link.grant.session))
        .collect();
    assert_eq!(sessions.len(), links.len());
}

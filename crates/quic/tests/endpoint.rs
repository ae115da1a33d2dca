//! Endpoints: steering, address changes, protocols, admission, shutdown.
#![allow(clippy::unwrap_used, reason = "a test ends where its helpers fail")]

mod common;

use std::{collections::HashSet, time::Duration};

use common::{LONG, client, on_worker, start, tls};
use quic::{Config, ConnectError, Incoming, VarInt};

/// Says on which worker it runs, as often as it is asked.
async fn say_worker(worker: usize, incoming: Incoming) {
    while let Ok((mut send, mut recv)) = incoming.connection.accept_bi().await {
        let asked = recv.read_to_end(64).await.unwrap_or_default();
        let answer = format!("{worker} {}", String::from_utf8_lossy(&asked));
        let _ = send.write_all(answer.as_bytes()).await;
        let _ = send.finish();
    }
}

async fn ask(connection: &quic::Connection, what: &str) -> String {
    let (mut send, mut recv) = connection.open_bi().await.unwrap();
    send.write_all(what.as_bytes()).await.unwrap();
    send.finish().unwrap();
    String::from_utf8(recv.read_to_end(64).await.unwrap()).unwrap()
}

#[test]
fn a_connection_stays_on_its_worker_whatever_its_clients_address() {
    let server = start(4, tls(&[b"test"]), Config::default(), say_worker);
    let address = server.address();
    on_worker(move || async move {
        let mut used = HashSet::new();
        for _ in 0..24 {
            let client = client(|_| {});
            let connection = client
                .connect(address, "localhost", &[b"test"])
                .await
                .unwrap();
            let first = ask(&connection, "one").await;
            used.insert(first.split(' ').next().unwrap().to_owned());
            for _ in 0..4 {
                client.rebind().unwrap();
                assert_eq!(ask(&connection, "one").await, first);
            }
            client.close(VarInt::from_u32(0), b"done", LONG).await;
        }
        assert!(used.len() > 1, "all on {used:?}");
    });
    assert_eq!(server.server.stats().accepted, 24);
    assert_eq!(server.server.stats().failed, 0);
}

#[test]
fn the_protocol_and_the_name_are_told() {
    let server = start(
        1,
        tls(&[b"one", b"two"]),
        Config::default(),
        |_, incoming: Incoming| async move {
            let said = format!(
                "{} {}",
                String::from_utf8_lossy(&incoming.alpn),
                incoming.server_name.unwrap_or_default()
            );
            incoming
                .connection
                .close(VarInt::from_u32(7), said.as_bytes());
        },
    );
    let address = server.address();
    on_worker(move || async move {
        let client = client(|_| {});
        let connection = client
            .connect(address, "localhost", &[b"two"])
            .await
            .unwrap();
        let end = connection.closed().await.to_string();
        assert!(end.contains("two localhost"), "{end}");
        let other = client.connect(address, "localhost", &[b"three"]).await;
        assert!(
            matches!(other, Err(ConnectError::Connection(_))),
            "{other:?}"
        );
    });
}

#[test]
fn under_load_clients_prove_their_address_first() {
    let config = Config {
        retry_from: 0,
        ..Config::default()
    };
    let server = start(2, tls(&[b"test"]), config, say_worker);
    let address = server.address();
    on_worker(move || async move {
        let client = client(|_| {});
        let connection = client
            .connect(address, "localhost", &[b"test"])
            .await
            .unwrap();
        assert!(ask(&connection, "x").await.ends_with(" x"));
    });
    let stats = server.server.stats();
    assert_eq!((stats.retried, stats.accepted), (1, 1));
}

#[test]
fn too_many_connections_are_refused_and_nobody_elses_suffers() {
    let config = Config {
        connections: 2,
        ..Config::default()
    };
    let server = start(1, tls(&[b"test"]), config, say_worker);
    let address = server.address();
    on_worker(move || async move {
        let client = client(|_| {});
        let one = client
            .connect(address, "localhost", &[b"test"])
            .await
            .unwrap();
        let two = client
            .connect(address, "localhost", &[b"test"])
            .await
            .unwrap();
        let three = client.connect(address, "localhost", &[b"test"]).await;
        assert!(
            matches!(three, Err(ConnectError::Connection(_))),
            "{three:?}"
        );
        assert!(ask(&one, "x").await.ends_with(" x"));
        assert!(ask(&two, "x").await.ends_with(" x"));
    });
    assert_eq!(server.server.stats().refused, 1);
}

#[test]
fn silence_is_an_error_in_bounded_time() {
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    on_worker(move || async move {
        let client = client(|config| config.connect_time = Duration::from_millis(300));
        let result = client.connect(address, "localhost", &[b"test"]).await;
        assert!(
            matches!(result, Err(ConnectError::Silence { .. })),
            "{result:?}"
        );
    });
}

#[test]
fn a_server_that_takes_no_more_lets_its_connections_go_on() {
    let server = start(2, tls(&[b"test"]), Config::default(), say_worker);
    let address = server.address();
    let handle = server.server.clone();
    on_worker(move || async move {
        let client = client(|config| config.connect_time = Duration::from_millis(300));
        let old = client
            .connect(address, "localhost", &[b"test"])
            .await
            .unwrap();
        handle.refuse_new();
        // The endpoints hear of it on their own threads: a connection may just have come in.
        while client
            .connect(address, "localhost", &[b"test"])
            .await
            .is_ok()
        {}
        assert!(ask(&old, "x").await.ends_with(" x"));
    });
}

//! Options of a transport that peers cannot see: that each does what it says.
#![allow(clippy::unwrap_used, reason = "a test ends where its helpers fail")]

mod common;

use common::{LONG, client, on_worker, start, tls};
use quic::{
    Config, Congestion, Connection, Incoming, Transport, VarInt,
    quinn::congestion::{Bbr, Cubic, NewReno},
};

/// How a connection finds its rate.
fn control(connection: &Connection) -> &'static str {
    let state = connection.congestion_state().into_any();
    match state {
        state if state.is::<Cubic>() => "cubic",
        state if state.is::<Bbr>() => "bbr",
        state if state.is::<NewReno>() => "newreno",
        _ => "something else",
    }
}

/// Answers each stream with its own way to find its rate, after it has read all of it.
async fn say_control(_: usize, incoming: Incoming) {
    while let Ok((mut send, mut recv)) = incoming.connection.accept_bi().await {
        let read = recv.read_to_end(64 << 20).await;
        let name = control(&incoming.connection);
        if read.is_ok() && send.write_all(name.as_bytes()).await.is_ok() {
            let _ = send.finish();
        }
    }
}

async fn ask(connection: &Connection, length: usize) -> String {
    let (mut send, mut recv) = connection.open_bi().await.unwrap();
    send.write_all(&vec![7; length]).await.unwrap();
    send.finish().unwrap();
    String::from_utf8(recv.read_to_end(64).await.unwrap()).unwrap()
}

#[test]
fn each_end_controls_congestion_as_it_was_told() {
    for (near, far) in [("cubic", "bbr"), ("bbr", "newreno"), ("newreno", "cubic")] {
        let transport = |name| Transport {
            congestion: Congestion::named(name).unwrap(),
            ..Transport::default()
        };
        let config = Config {
            transport: transport(far),
            ..Config::default()
        };
        let server = start(1, tls(&[b"test"]), config, say_control);
        let address = server.address();
        on_worker(move || async move {
            let client = client(|config| config.transport = transport(near));
            let connection = client.connect(address, "localhost", &[b"test"]).await;
            let connection = connection.unwrap();
            assert_eq!(control(&connection), near);
            assert_eq!(ask(&connection, 3 << 20).await, far);
            assert_eq!(control(&connection), near);
            client.close(VarInt::from_u32(0), b"done", LONG).await;
        });
    }
    assert_eq!(Congestion::named("reno"), None);
}

/// Datagrams that a client sends with a transfer, and the system calls that takes.
fn sent(offload: bool) -> (u64, u64) {
    let server = start(1, tls(&[b"test"]), Config::default(), say_control);
    let address = server.address();
    on_worker(move || async move {
        let client = client(|config| {
            config.transport.offload = offload;
            config.transport.largest_packet = 1452;
        });
        let connection = client.connect(address, "localhost", &[b"test"]).await;
        let connection = connection.unwrap();
        ask(&connection, 4 << 20).await;
        let sent = connection.stats().udp_tx;
        client.close(VarInt::from_u32(0), b"done", LONG).await;
        (sent.datagrams, sent.ios)
    })
}

#[test]
fn packets_share_system_calls_only_where_that_was_asked_for() {
    let (datagrams, calls) = sent(false);
    assert!(datagrams > 2000, "{datagrams}");
    assert_eq!(calls, datagrams);
    let (datagrams, calls) = sent(true);
    assert!(calls * 2 < datagrams, "{calls} calls for {datagrams}");
}

//! When what is sent is acknowledged: as the sender asks, where it asks.
#![allow(clippy::unwrap_used, reason = "a test ends where its helpers fail")]

mod common;

use std::time::{Duration, Instant};

use common::{LONG, client, on_worker, start, tls};
use quic::{Acks, Config, Incoming, Transport, VarInt};

/// Says nothing and reads nothing, so that nothing but acknowledgements leaves.
async fn listen(_: usize, incoming: Incoming) {
    incoming.connection.closed().await;
}

/// Sends one packet after another, each when the one before is acknowledged: the times that this took, sorted, and how often the server was asked.
fn acknowledged(acks: Option<Acks>) -> (Vec<Duration>, u64) {
    let server = start(1, tls(&[b"test"]), Config::default(), listen);
    let address = server.address();
    on_worker(move || async move {
        let client = client(|config| {
            config.transport = Transport {
                acks,
                // No probes for larger packets: those are acknowledged at once.
                largest_packet: 1200,
                ..Transport::default()
            }
        });
        let connection = client.connect(address, "localhost", &[b"test"]).await;
        let connection = connection.unwrap();
        let mut times = Vec::new();
        for _ in 0..20 {
            let (mut send, _recv) = connection.open_bi().await.unwrap();
            let began = Instant::now();
            send.write_all(b"one packet").await.unwrap();
            send.finish().unwrap();
            send.stopped().await.unwrap();
            times.push(began.elapsed());
        }
        let asked = connection.stats().frame_tx.ack_frequency;
        client.close(VarInt::from_u32(0), b"done", LONG).await;
        times.sort();
        (times, asked)
    })
}

#[test]
fn who_does_not_ask_waits_as_long_as_peers_may_wait() {
    let (times, asked) = acknowledged(None);
    assert_eq!(asked, 0);
    // RFC 9000 §18.2: max_ack_delay. Those beside the handshake's last words may be faster.
    let median = times[times.len() / 2];
    assert!(median >= Duration::from_millis(25), "{times:?}");
}

#[test]
fn a_peer_acknowledges_a_lone_packet_as_soon_as_it_is_asked_to() {
    for (every, delay) in [(1, 25), (10, 2)] {
        let delay = Duration::from_millis(delay);
        let (times, asked) = acknowledged(Some(Acks {
            every,
            delay,
            packets_from: 0,
        }));
        assert!(asked > 0, "it was never asked");
        let soon = times[times.len() / 4];
        assert!(
            soon < Duration::from_millis(20),
            "after {every} packets or {delay:?}: {times:?}"
        );
    }
}

#[test]
fn a_peer_waits_for_as_many_packets_as_it_is_asked_to() {
    let delay = Duration::from_millis(15);
    let (times, _) = acknowledged(Some(Acks {
        every: 10,
        delay,
        packets_from: 0,
    }));
    assert!(times[times.len() / 2] >= delay, "{times:?}");
}

#[test]
fn nobody_is_asked_where_packets_are_smaller_than_was_said() {
    let delay = Duration::from_millis(2);
    let acks = Acks {
        every: 10,
        delay,
        packets_from: 4096,
    };
    assert_eq!(acknowledged(Some(acks)).1, 0);
}

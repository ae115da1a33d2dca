//! Moving streams between workers while bytes flow.
#![allow(clippy::unwrap_used, reason = "a test ends where its helpers fail")]

mod common;

use common::{ALL, expect_pattern, on_worker, pair, seeded, send_pattern};
use net::{Detached, Workers};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

const TOTAL: u64 = 8 << 20;

#[test]
fn moving_under_traffic_loses_no_byte() {
    for transport in ALL {
        println!("{transport:?}");
        let mut rng = seeded("moving_under_traffic_loses_no_byte");
        let workers = Workers::start(2, "move").unwrap();
        on_worker(async {
            let (client, server) = pair(transport).await;
            let (mut rx, mut tx) = tokio::io::split(client);
            let (back, mut returned) = mpsc::unbounded_channel();
            let mut next = || StdRng::seed_from_u64(rng.random());
            // The server end echoes, and changes its worker after every so many bytes.
            let hops = next();
            workers.handles()[0]
                .spawn({
                    let handles = workers.handles().to_vec();
                    let start = server.detach().unwrap();
                    move || echo_and_hop(handles, 0, start, 0, hops, back)
                })
                .unwrap();
            let (send, read) = (next(), next());
            tokio::join!(
                send_pattern(&mut tx, TOTAL, send),
                expect_pattern(&mut rx, TOTAL, read)
            );
            let hops: u32 = returned.recv().await.unwrap();
            assert!(hops > 10, "{hops}");
        });
        workers.shutdown(Duration::from_secs(10)).unwrap();
    }
}

async fn echo_and_hop(
    handles: Vec<net::WorkerHandle>,
    here: usize,
    moved: Detached,
    hops: u32,
    mut rng: StdRng,
    back: mpsc::UnboundedSender<u32>,
) {
    assert!(handles[here].is_current());
    let mut stream = moved.attach().unwrap();
    let mut left = rng.random_range(1..200_000_i64);
    let mut buf = vec![0; 50_000];
    while left > 0 {
        let room = rng.random_range(1..50_000);
        let n = stream.read(&mut buf[..room]).await.unwrap();
        if n == 0 {
            stream.shutdown().await.unwrap();
            back.send(hops).unwrap();
            // Gone only after the peer has read everything: a close with unread bytes would reset.
            let _ = stream.read(&mut buf).await;
            return;
        }
        // Not flushed on purpose before moving: what TLS or WebSocket still hold has to travel with the stream.
        stream.write_all(&buf[..n]).await.unwrap();
        left -= n as i64;
    }
    let there = 1 - here;
    let moved = stream.detach().unwrap();
    let worker = handles[there].clone();
    worker
        .spawn(move || echo_and_hop(handles, there, moved, hops + 1, rng, back))
        .unwrap();
}

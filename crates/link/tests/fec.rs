//! Datagrams of UDP visitors over QUIC links that lose packets (crate `netem`), with and without forward error correction.
//!
//! `cargo test -p link --test fec -- --ignored --nocapture measured` measures for about two minutes and prints the table of
//! `bench/results`; `GT_SEED=n` takes another seed.

mod common;

use std::{
    net::SocketAddr,
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};

use common::{pair_through, run};
use link::Fec;
use netem::{Options, Plan, UdpForwarder, UdpOptions};

/// What one direction of a link did with the datagrams of a visitor.
struct Outcome {
    sent: usize,
    /// Milliseconds from sending to arrival, by number; those that did not arrive are missing.
    delays: Vec<f64>,
    repaired: u64,
    /// Of the sender's connection.
    packets: u64,
    lost: u64,
    bytes: u64,
}

impl Outcome {
    /// With what did not arrive as endless.
    fn quantile(&self, share: f64) -> f64 {
        let mut delays = self.delays.clone();
        delays.sort_by(f64::total_cmp);
        let at = (share * self.sent as f64).ceil() as usize;
        delays
            .get(at.saturating_sub(1))
            .copied()
            .unwrap_or(f64::INFINITY)
    }

    fn missing(&self) -> f64 {
        (self.sent - self.delays.len()) as f64 * 100.0 / self.sent as f64
    }
}

fn seed() -> u64 {
    let seed = std::env::var("GT_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or(1);
    println!("replay: GT_SEED={seed}");
    seed
}

fn forwarder(to: SocketAddr, loss: u32, seed: u64) -> UdpForwarder {
    let plan = |text: &str| Plan::parse(text).expect("a plan");
    let path = Options {
        // The visitor's datagrams go up; what acknowledges them comes back over the same kind of path.
        up: plan(&format!("delay=20ms,jitter=3ms,loss={loss}%")),
        down: plan(&format!("delay=20ms,jitter=3ms,loss={loss}%")),
        seed,
        spin: Duration::ZERO,
    };
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    UdpForwarder::start(&UdpOptions::new(listen, to, path)).expect("a forwarder")
}

/// What a visitor sends.
#[derive(Clone, Copy)]
struct Traffic {
    count: usize,
    /// From one burst to the next.
    gap: Duration,
    /// Bytes of a datagram, 16 or more.
    size: usize,
    /// Datagrams that are sent at once.
    burst: usize,
    /// From the server's end to the client's.
    down: bool,
    /// Congestion control that takes no loss for a full path, rather than CUBIC.
    bbr: bool,
}

impl Traffic {
    /// One by one, up.
    const fn steady(count: usize, gap: Duration, size: usize) -> Self {
        Self {
            count,
            gap,
            size,
            burst: 1,
            down: false,
            bbr: true,
        }
    }
}

/// Sends datagrams from one end of a stream to the other.
async fn carry(loss: u32, fec: Option<Fec>, traffic: Traffic) -> Outcome {
    let Traffic { count, size, .. } = traffic;
    let mut path = None;
    let via = |address| {
        let forwarder = path.insert(forwarder(address, loss, seed()));
        forwarder.local_addr()
    };
    let (mut client, server) = pair_through(via, 10, fec, traffic.bbr).await;
    let stream = server.link.open_stream(b"h", None).expect("open");
    let (mut arriving, mut first) = stream.datagrams();
    first.send(b"first").await.expect("sent");
    let (_, stream) = client.next().await;
    let (mut got_first, mut sending) = stream.datagrams();
    let mut got = Vec::new();
    got_first.receive(&mut got).await.expect("a datagram");
    // The first one goes on the stream.
    sending.send(b"first").await.expect("sent");
    arriving.receive(&mut got).await.expect("a datagram");
    let (sender, receiver) = if traffic.down {
        std::mem::swap(&mut sending, &mut first);
        std::mem::swap(&mut arriving, &mut got_first);
        (&server, &client)
    } else {
        (&client, &server)
    };
    let before = sender.connection.stats();
    let origin = Instant::now();
    let send = async {
        let mut ticks = tokio::time::interval(traffic.gap);
        // A machine that was busy for a while must not find all at once what it missed.
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        for number in 0..count {
            if number % traffic.burst == 0 {
                ticks.tick().await;
            }
            let mut datagram = vec![0; size];
            let now = origin.elapsed().as_micros() as u64;
            datagram[..8].copy_from_slice(&(number as u64).to_be_bytes());
            datagram[8..16].copy_from_slice(&now.to_be_bytes());
            sending.send(&datagram).await.expect("sent");
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    };
    let mut seen = vec![false; count];
    let mut delays = Vec::new();
    let receive = async {
        while delays.len() < count {
            arriving.receive(&mut got).await.expect("a datagram");
            let number = u64::from_be_bytes(got[..8].try_into().expect("8 bytes")) as usize;
            let then = u64::from_be_bytes(got[8..16].try_into().expect("8 bytes"));
            assert_eq!(got.len(), size);
            assert!(
                !std::mem::replace(&mut seen[number], true),
                "{number} twice"
            );
            delays.push((origin.elapsed().as_micros() as u64 - then) as f64 / 1000.0);
        }
    };
    tokio::select! {
        () = send => {}
        () = receive => {}
    }
    let after = sender.connection.stats();
    Outcome {
        sent: count,
        delays,
        repaired: receiver.link.repaired().load(Relaxed),
        packets: after.path.sent_packets - before.path.sent_packets,
        lost: after.path.lost_packets - before.path.lost_packets,
        bytes: after.udp_tx.bytes - before.udp_tx.bytes,
    }
}

#[test]
fn datagrams_that_are_lost_are_repaired_and_their_loss_is_seen_by_congestion_control() {
    run(async {
        let traffic = Traffic::steady(1000, Duration::from_millis(2), 200);
        let with = carry(5, Fec::new(6, 3), traffic).await;
        assert!(with.repaired > 20, "{} repaired", with.repaired);
        assert!(with.missing() < 1.0, "{} % did not arrive", with.missing());
        assert!(
            with.lost > 20,
            "QUIC saw {} of {} lost",
            with.lost,
            with.packets
        );
    });
}

#[test]
fn small_datagrams_that_are_sent_at_once_are_repaired_in_either_direction() {
    for down in [false, true] {
        run(async {
            let traffic = Traffic {
                burst: 16,
                down,
                ..Traffic::steady(1600, Duration::from_millis(20), 20)
            };
            let with = carry(5, Fec::new(4, 4), traffic).await;
            assert!(
                with.missing() < 0.5,
                "{} % did not arrive, down: {down}",
                with.missing()
            );
            // In one packet with its parity none would be.
            assert!(with.repaired > 20, "{} repaired", with.repaired);
        });
    }
}

#[test]
fn parity_that_congestion_control_has_no_room_for_does_not_hold_datagrams_up() {
    run(async {
        // CUBIC gives way on this path until little more than the datagrams themselves has room.
        let traffic = Traffic {
            bbr: false,
            ..Traffic::steady(1000, Duration::from_millis(2), 200)
        };
        let with = carry(5, Fec::new(4, 4), traffic).await;
        assert!(with.missing() < 10.0, "{} % did not arrive", with.missing());
        let median = with.quantile(0.5);
        assert!(median < 100.0, "{median} ms in the middle");
    });
}

#[test]
fn a_sender_without_parity_sends_none() {
    run(async {
        let traffic = Traffic::steady(500, Duration::from_millis(2), 200);
        let without = carry(5, None, traffic).await;
        assert_eq!(without.repaired, 0);
        assert!(
            without.missing() > 1.0,
            "{} % did not arrive",
            without.missing()
        );
    });
}

#[test]
#[ignore = "measures for two minutes"]
fn measured() {
    println!(
        "| loss each way | traffic | parity | congestion control | not arrived | median | p99 | p99.9 | bytes sent | repaired | lost, as QUIC counts |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    let ms = Duration::from_millis;
    let kinds = [
        ("200 B every 2 ms", Traffic::steady(7500, ms(2), 200)),
        ("200 B every 20 ms", Traffic::steady(750, ms(20), 200)),
        (
            "16 of 20 B at once every 20 ms",
            Traffic {
                burst: 16,
                ..Traffic::steady(12_000, ms(20), 20)
            },
        ),
    ];
    for loss in [5, 10] {
        for (name, traffic) in kinds {
            let row = |bbr, form| move || row(loss, name, Traffic { bbr, ..traffic }, form);
            std::thread::scope(|scope| {
                let mut rows = Vec::new();
                for bbr in [true, false] {
                    for form in [None, Some((10, 3)), Some((6, 3)), Some((4, 4))] {
                        rows.push(scope.spawn(row(bbr, form)));
                    }
                }
                for row in rows {
                    println!("{}", row.join().expect("measured"));
                }
            });
        }
    }
}

/// Of the table.
fn row(loss: u32, name: &str, traffic: Traffic, form: Option<(u8, u8)>) -> String {
    let fec = form.and_then(|(data, parity)| Fec::new(data, parity));
    let form = form.map_or("off".to_owned(), |(data, parity)| {
        format!("{data}/{parity}")
    });
    let control = if traffic.bbr { "BBR" } else { "CUBIC" };
    let mut row = String::new();
    run(async {
        let got = carry(loss, fec, traffic).await;
        let ms = |share| match got.quantile(share) {
            delay if delay.is_finite() => format!("{delay:.1} ms"),
            _ => "never".to_owned(),
        };
        row = format!(
            "| {loss} % | {name} | {form} | {control} | {:.2} % | {} | {} | {} | {} | {} | {} of {} |",
            got.missing(),
            ms(0.5),
            ms(0.99),
            ms(0.999),
            got.bytes,
            got.repaired,
            got.lost,
            got.packets
        );
    });
    row
}

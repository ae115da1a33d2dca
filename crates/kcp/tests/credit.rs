//! Paced sessions below a protocol that lets only so many bytes go unread, as streams of a link do, on paths that lose by chance and between
//! hosts that are late: what they carry must not collapse, however long they go on.

#[expect(dead_code, reason = "other tests use the rest of it")]
mod sim;

use std::{sync::Arc, time::Duration};

use kcp::{
    Config, Control, Mode,
    seal::{Cipher, Seal, derive_key},
};
use sim::{Path, Random, World, seeds};

/// 20 Mbit/s, a round trip of 100 ms, a queue of 100 ms.
fn path(loss_percent: u64, jitter_ms: u64) -> Path {
    Path {
        delay_ms: 50,
        jitter_ms,
        loss_percent,
        burst_percent: loss_percent,
        rate: 2_500_000,
        queue: 250_000,
        ..Path::default()
    }
}

/// As links are.
fn config() -> Config {
    Config {
        mode: Mode::FAST2,
        control: Control::Paced,
        send_window: 4096,
        recv_window: 4096,
        mtu: 1350,
        ..Config::default()
    }
}

/// Mbit/s in each three seconds, of downloads of 2.5 s with a pause between them.
fn downloads(seed: u64, path: Path, credit: u64, rounds: u64) -> Vec<f64> {
    let seal = Arc::new(Seal::new(Cipher::Null, &derive_key(b"credit")).expect("a key"));
    let apps = [(0, 30_000, 1_000_000), (0, 1, 1_000_000)];
    let mut world = World::new(Random::new(seed), path, &seal, [config(), config()], apps);
    let start = world.now;
    let (mut fed, mut before) = (0, 0);
    let mut rates = Vec::new();
    for step in 0..rounds * 600 {
        let read = world.ends[1].arrivals.last().map_or(0, |(_, bytes)| *bytes);
        let more = (read + credit).saturating_sub(fed);
        if step % 600 < 500 && more > credit / 8 {
            world.feed(0, more);
            fed += more;
        }
        world.run_until(start + Duration::from_millis(5 * (step + 1)));
        if step % 600 == 599 {
            rates.push((read - before) as f64 * 8.0 / 2.5e6);
            before = read;
        }
    }
    rates
}

/// An application that stands still until something has been sent again has little out, and some of that is lost too.
#[test]
fn what_is_carried_does_not_collapse() {
    for (loss, jitter, rounds) in [(5, 0, 20), (5, 5, 24), (10, 5, 20)] {
        for seed in seeds(1) {
            let rates = downloads(seed, path(loss, jitter), 256 << 10, rounds);
            let shown: Vec<String> = rates.iter().map(|rate| format!("{rate:.1}")).collect();
            println!(
                "{loss} % lost, jitter of {jitter} ms, Mbit/s: {}",
                shown.join(" ")
            );
            let least = rates.iter().copied().fold(f64::MAX, f64::min);
            assert!(least > 4.0, "seed {seed}: {least:.1} Mbit/s");
        }
    }
}

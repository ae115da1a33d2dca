//! What a small frame costs: nanoseconds for turn, send, receive and return of credit together, over one and many streams. Prints
//! figures, judges nothing: `cargo bench -p mux`.

use std::{
    convert::Infallible,
    hint::black_box,
    time::{Duration, Instant},
};

use mux::{Config, Event, Key, Mux, Side, Turn};

const NOW: Duration = Duration::ZERO;
/// Long enough to be steady, short enough to be run often.
const FRAMES: usize = 2_000_000;

fn main() {
    println!(
        "{:>8} {:>8} {:>12} {:>14}",
        "streams", "bytes", "ns/frame", "bytes on wire"
    );
    for (streams, bytes) in [
        (1, 16),
        (1, 1024),
        (100, 16),
        (100, 100),
        (100, 1024),
        (10_000, 100),
    ] {
        let best = (0..5)
            .map(|_| run(streams, bytes))
            .min_by(|a, b| a.0.total_cmp(&b.0));
        let (nanoseconds, wire) = best.unwrap_or_default();
        println!("{streams:>8} {bytes:>8} {nanoseconds:>12.1} {wire:>14.1}");
    }
    let short = (0..5)
        .map(|_| short_streams())
        .fold(f64::INFINITY, f64::min);
    println!("open, answer and end a stream: {short:.0} ns");
}

/// Nanoseconds and bytes on the wire per frame.
fn run(streams: usize, bytes: usize) -> (f64, f64) {
    let mut from = Mux::new(Side::Initiator, Config::default(), NOW);
    let mut to = Mux::new(Side::Acceptor, Config::default(), NOW);
    let keys: Vec<Key> = (0..streams)
        .filter_map(|_| from.open(b"header", &[], NOW).ok())
        .map(|(key, _)| key)
        .collect();
    carry(&mut from, &mut to);
    let mut frames = 0;
    let mut wire = 0;
    let started = Instant::now();
    while frames < FRAMES {
        for key in &keys {
            send(&mut from, *key, bytes, &mut frames);
        }
        wire += carry(&mut from, &mut to);
        while let Some((key, n)) = from.next_turn() {
            fill(&mut from, key, n.min(bytes));
            frames += 1;
            if from.output_len() >= 64 << 10 {
                wire += carry(&mut from, &mut to);
            }
        }
        wire += carry(&mut from, &mut to) + carry(&mut to, &mut from);
    }
    let time = started.elapsed();
    (
        time.as_nanos() as f64 / frames as f64,
        wire as f64 / frames as f64,
    )
}

fn send(mux: &mut Mux, key: Key, bytes: usize, frames: &mut usize) {
    if let Turn::Now(n) = mux.request(key) {
        fill(mux, key, n.min(bytes));
        *frames += 1;
    }
}

fn fill(mux: &mut Mux, key: Key, n: usize) {
    let filled = mux.send_with(key, n, |room| {
        black_box(&mut *room).fill(7);
        Ok::<usize, Infallible>(room.len())
    });
    black_box(filled).ok();
}

/// Everything from one end to the other, where bytes are passed on at once; how many went.
fn carry(from: &mut Mux, to: &mut Mux) -> usize {
    let mut input = from.output();
    let n = input.len();
    while let Ok(Some(event)) = to.receive(&mut input, NOW) {
        match black_box(event) {
            Event::Data { key, bytes } => to.consumed(key, bytes.len(), NOW),
            Event::Finished { key } => to.finish(key),
            _ => {}
        }
    }
    from.advance(n);
    n
}

/// Nanoseconds for a stream of one request: what a new visitor connection costs.
fn short_streams() -> f64 {
    const STREAMS: usize = 300_000;
    let mut from = Mux::new(Side::Initiator, Config::default(), NOW);
    let mut to = Mux::new(Side::Acceptor, Config::default(), NOW);
    let started = Instant::now();
    for _ in 0..STREAMS / 100 {
        for _ in 0..100 {
            if let Ok((key, _)) = from.open(b"header of 24 bytes or so", &[7; 100], NOW) {
                from.finish(key);
            }
        }
        carry(&mut from, &mut to);
        carry(&mut to, &mut from);
    }
    assert_eq!(from.stream_count() + to.stream_count(), 0);
    started.elapsed().as_nanos() as f64 / STREAMS as f64
}

//! What the tests share: seeds that can be replayed, random splitting, mutation.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test file uses a part of it"
)]

use std::fmt::Debug;

use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};

/// Runs `check` with `count` seeds, or as [`testkit::seeds`] is told.
pub fn for_seeds(count: u64, check: impl Fn(&mut StdRng)) {
    for seed in testkit::seeds(count) {
        check(&mut StdRng::seed_from_u64(seed));
    }
}

/// Gives `advance` growing prefixes of `bytes` until it answers.
pub fn feed<T, E>(
    bytes: &[u8],
    rng: &mut StdRng,
    mut advance: impl FnMut(&[u8]) -> Result<Option<T>, E>,
) -> Result<Option<T>, E> {
    let longest = *[1, 2, 7, 100, 2000].choose(rng).expect("some");
    let mut n = 0;
    while n < bytes.len() {
        n = bytes.len().min(n + rng.random_range(1..=longest));
        if let Some(answer) = advance(&bytes[..n])? {
            return Ok(Some(answer));
        }
    }
    Ok(None)
}

/// Asserts that the whole, single bytes and random pieces of `bytes` get one answer; returns it.
pub fn same_however_split<T: PartialEq + Debug, E: PartialEq + Debug, A>(
    bytes: &[u8],
    rng: &mut StdRng,
    sniffer: impl Fn() -> A,
    advance: impl Fn(&mut A, &[u8]) -> Result<Option<T>, E>,
) -> Result<Option<T>, E> {
    let mut one = sniffer();
    let whole = advance(&mut one, bytes);
    assert_eq!(whole, advance(&mut one, bytes), "asked again");
    let mut pieces = sniffer();
    assert_eq!(
        whole,
        feed(bytes, rng, |b| advance(&mut pieces, b)),
        "in random pieces"
    );
    whole
}

/// Changes a few bytes, now and then in a way that matters to a parser.
pub fn mutate(bytes: &mut Vec<u8>, rng: &mut StdRng, words: &[&[u8]]) {
    for _ in 0..rng.random_range(0..4) {
        let at = rng.random_range(0..=bytes.len());
        match rng.random_range(0..6) {
            0 if at < bytes.len() => bytes[at] = rng.random(),
            1 if at < bytes.len() => bytes[at] ^= 1 << rng.random_range(0..8),
            2 if at < bytes.len() => {
                bytes.remove(at);
            }
            3 => bytes.truncate(at),
            4 => {
                let to = rng.random_range(at..=bytes.len()).min(at + 40);
                let copy = bytes[at..to].to_vec();
                let into = rng.random_range(0..=bytes.len());
                bytes.splice(into..into, copy);
            }
            _ => {
                if let Some(word) = words.choose(rng) {
                    bytes.splice(at..at, word.iter().copied());
                }
            }
        }
    }
}

//! The examples with seeded damage: every outcome is a configuration or errors in words, never a panic.
//!
//! `GT_SEED=N cargo test -p config --test mutations` replays one seed.

mod common;

use std::{fs, path::Path};

use common::World;
use config::check_text;

#[test]
fn damaged_files_never_panic() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/config");
    let mut texts: Vec<_> = fs::read_dir(folder)
        .expect("the examples are committed")
        .map(|entry| fs::read(entry.expect("readable").path()).expect("readable"))
        .collect();
    texts.sort();
    let seeds = match std::env::var("GT_SEED") {
        Ok(seed) => vec![seed.parse().expect("a number")],
        Err(_) => (1..1500).collect(),
    };
    for seed in seeds {
        let text = damaged(&texts, seed);
        let outcome = std::panic::catch_unwind(|| {
            if let Err(errors) =
                check_text(Path::new("damaged.yml"), &text, None, &World::default())
            {
                assert!(!errors.problems().is_empty() && !errors.to_string().is_empty());
            }
        });
        assert!(
            outcome.is_ok(),
            "replay with GT_SEED={seed} cargo test -p config --test mutations"
        );
    }
}

fn damaged(texts: &[Vec<u8>], seed: u64) -> String {
    const PIECES: [&[u8]; 12] = [
        b"\n",
        b": ",
        b"- ",
        b"{",
        b"]",
        b"\"",
        b"${",
        b"&a ",
        b"*a",
        b"\xff",
        b"\x1b[2J",
        b"99999999999999999999",
    ];
    // The constant keeps neighbouring seeds apart (splitmix64).
    let mut state = seed;
    let mut random = |below: usize| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        usize::try_from((mixed ^ (mixed >> 27)) % below.max(1) as u64).unwrap_or(0)
    };
    let mut text = texts[random(texts.len())].clone();
    for _ in 0..=random(6) {
        let at = random(text.len());
        match random(3) {
            0 => drop(text.splice(at..at, PIECES[random(PIECES.len())].iter().copied())),
            1 => drop(text.drain(at..(at + random(12)).min(text.len()))),
            _ => text.insert(at, u8::try_from(random(256)).unwrap_or(0)),
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

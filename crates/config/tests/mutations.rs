//! The examples with seeded damage: every outcome is a configuration or errors in words, never a panic.
//!
//! `GT_SEED=N cargo test -p config --test mutations` replays one seed.

mod common;

use std::{fs, path::Path};

use common::World;
use config::check_text;
use testkit::{Random, seeds};

#[test]
fn damaged_files_never_panic() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/config");
    let mut texts: Vec<_> = fs::read_dir(folder)
        .expect("the examples are committed")
        .map(|entry| fs::read(entry.expect("readable").path()).expect("readable"))
        .collect();
    texts.sort();
    for seed in seeds(1500) {
        let text = damaged(&texts, seed);
        if let Err(errors) = check_text(Path::new("damaged.yml"), &text, None, &World::default()) {
            assert!(!errors.problems().is_empty() && !errors.to_string().is_empty());
        }
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
    let mut random = Random::new(seed);
    let mut random = |below: usize| usize::try_from(random.below(below as u64)).unwrap_or(0);
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

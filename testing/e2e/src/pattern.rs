//! Bytes that can be checked one by one without being kept: a seeded sequence that writer and reader make independently, so that a
//! lost, doubled or swapped byte is found with its position. Also SHA-256, for content that passes through programs.

use std::io::{self, Read, Write};

use aws_lc_rs::digest::{Context, SHA256};
use testkit::Random;

/// A sequence of bytes; equal seeds give equal sequences.
#[derive(Clone, Debug)]
pub struct Pattern {
    seed: u64,
    random: Random,
    word: [u8; 8],
    used: usize,
    position: u64,
}

impl Pattern {
    /// The sequence of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            random: Random::new(seed),
            word: [0; 8],
            used: 8,
            position: 0,
        }
    }

    /// Puts the next bytes into `out`.
    pub fn fill(&mut self, out: &mut [u8]) {
        self.position += out.len() as u64;
        for byte in out {
            if self.used == 8 {
                self.word = self.next_word();
                self.used = 0;
            }
            *byte = self.word[self.used];
            self.used += 1;
        }
    }

    /// The next `length` bytes.
    #[must_use]
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.fill(&mut bytes);
        bytes
    }

    /// Compares `got` with the next bytes.
    ///
    /// # Panics
    /// At the first byte that differs, with its position and the seed.
    pub fn check(&mut self, got: &[u8]) {
        let start = self.position;
        let expected = self.bytes(got.len());
        if let Some(at) = expected.iter().zip(got).position(|(a, b)| a != b) {
            panic!(
                "byte {} of the pattern with seed {} is wrong",
                start + at as u64,
                self.seed
            );
        }
    }

    /// How many bytes were made or checked.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Writes the next `length` bytes in pieces of 64 KiB.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_to(&mut self, mut to: impl Write, length: u64) -> io::Result<()> {
        let mut piece = vec![0; PIECE];
        let mut left = length;
        while left > 0 {
            let n = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
            self.fill(&mut piece[..n]);
            to.write_all(&piece[..n])?;
            left -= n as u64;
        }
        to.flush()
    }

    /// Reads and checks exactly `length` bytes.
    ///
    /// # Errors
    /// Those of the reader; its early end is `UnexpectedEof`.
    pub fn read_from(&mut self, mut from: impl Read, length: u64) -> io::Result<()> {
        let mut piece = vec![0; PIECE];
        let mut left = length;
        while left > 0 {
            let n = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
            let n = from.read(&mut piece[..n])?;
            if n == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.check(&piece[..n]);
            left -= n as u64;
        }
        Ok(())
    }

    fn next_word(&mut self) -> [u8; 8] {
        self.random.number().to_le_bytes()
    }
}

/// SHA-256 of what comes in pieces.
#[derive(Clone)]
pub struct Sha256(Context);

impl Sha256 {
    /// Of nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self(Context::new(&SHA256))
    }

    /// Adds a piece.
    pub fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    /// The digest in hexadecimal.
    #[must_use]
    pub fn hex(self) -> String {
        self.0
            .finish()
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }

    /// The digest of the first `length` bytes of the pattern with `seed`.
    #[must_use]
    pub fn of_pattern(seed: u64, length: u64) -> String {
        let mut digest = Self::new();
        let _ = Pattern::new(seed).write_to(&mut digest, length);
        digest.hex()
    }
}

impl Default for Sha256 {
    fn default() -> Self {
        Self::new()
    }
}

impl Write for Sha256 {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        self.update(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

const PIECE: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_byte_is_found_at_its_place() {
        let mut bytes = Pattern::new(7).bytes(100);
        Pattern::new(7)
            .read_from(bytes.as_slice(), 100)
            .expect("equal");
        bytes[60] ^= 1;
        let found =
            std::panic::catch_unwind(|| Pattern::new(7).check(&bytes)).expect_err("differs");
        let message = found.downcast_ref::<String>().cloned().unwrap_or_default();
        assert_eq!(message, "byte 60 of the pattern with seed 7 is wrong");
    }

    #[test]
    fn pieces_do_not_change_the_sequence() {
        let whole = Pattern::new(1).bytes(31);
        let mut pieces = Pattern::new(1);
        let joined = [pieces.bytes(3), pieces.bytes(20), pieces.bytes(8)].concat();
        assert_eq!(whole, joined);
    }
}

//! Bytes that follow from a seed, so that a receiver knows every one of them without being told.

use crate::rng::Rng;

/// A stream of bytes with a position.
#[derive(Clone, Debug)]
pub struct Pattern {
    rng: Rng,
    word: [u8; 8],
    used: usize,
    at: u64,
}

/// The place of the first byte that was not the expected one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch(pub u64);

impl Pattern {
    /// The stream of a seed, from its start.
    pub fn new(seed: u64) -> Self {
        Self {
            rng: Rng::new(seed),
            word: [0; 8],
            used: 8,
            at: 0,
        }
    }

    /// Writes the next bytes of the stream.
    pub fn fill(&mut self, buffer: &mut [u8]) {
        for byte in buffer {
            *byte = self.next_byte();
        }
    }

    /// Compares with the next bytes of the stream.
    ///
    /// # Errors
    /// The position of the first difference.
    pub fn check(&mut self, bytes: &[u8]) -> Result<(), Mismatch> {
        for &byte in bytes {
            let at = self.at;
            if byte != self.next_byte() {
                return Err(Mismatch(at));
            }
        }
        Ok(())
    }

    /// How many bytes were written or compared.
    pub fn position(&self) -> u64 {
        self.at
    }

    fn next_byte(&mut self) -> u8 {
        if self.used == self.word.len() {
            self.word = self.rng.draw().to_le_bytes();
            self.used = 0;
        }
        let byte = self.word[self.used];
        self.used += 1;
        self.at += 1;
        byte
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_the_same_however_it_is_cut() {
        let mut whole = [0; 100];
        Pattern::new(5).fill(&mut whole);
        let mut check = Pattern::new(5);
        for piece in whole.chunks(7) {
            check.check(piece).unwrap();
        }
        assert_eq!(check.position(), 100);
    }

    #[test]
    fn a_wrong_lost_or_doubled_byte_is_found_where_it_is() {
        let mut bytes = vec![0; 64];
        Pattern::new(9).fill(&mut bytes);
        let mut flipped = bytes.clone();
        flipped[40] ^= 1;
        assert_eq!(Pattern::new(9).check(&flipped), Err(Mismatch(40)));
        assert_eq!(
            Pattern::new(8).check(&bytes).map_err(|Mismatch(at)| at < 3),
            Err(true)
        );
        bytes.remove(10);
        assert!(
            Pattern::new(9)
                .check(&bytes)
                .is_err_and(|Mismatch(at)| (10..16).contains(&at))
        );
    }
}

//! Packet nonces from a seed: AES-128 in counter mode, so that a session needs random bytes once, from its caller.

use std::fmt;

use aes::Aes128;
use cipher::{BlockCipherEncrypt, KeyInit};

/// Blocks made at a time: what AES-NI computes in parallel.
const BATCH: usize = 8;

/// A source of nonces that do not repeat for 2^128 packets and that nobody without the seed can tell from random.
pub struct Nonces {
    cipher: Aes128,
    counter: u128,
    batch: [[u8; 16]; BATCH],
    used: usize,
}

impl fmt::Debug for Nonces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nonces").finish_non_exhaustive()
    }
}

impl Nonces {
    /// A source; two sessions under one key must not have the same `seed`.
    pub fn new(seed: [u8; 32]) -> Self {
        let (key, start) = seed.split_at(16);
        let key: [u8; 16] = std::array::from_fn(|i| key[i]);
        let start: [u8; 16] = std::array::from_fn(|i| start[i]);
        Self {
            cipher: Aes128::new(&key.into()),
            counter: u128::from_le_bytes(start),
            batch: [[0; 16]; BATCH],
            used: BATCH,
        }
    }

    /// The next nonce.
    pub fn next_nonce(&mut self) -> [u8; 16] {
        if self.used == BATCH {
            let mut blocks = std::array::from_fn::<_, BATCH, _>(|i| {
                self.counter.wrapping_add(i as u128).to_le_bytes().into()
            });
            self.counter = self.counter.wrapping_add(BATCH as u128);
            self.cipher.encrypt_blocks(&mut blocks);
            self.batch = blocks.map(Into::into);
            self.used = 0;
        }
        let nonce = self.batch[self.used];
        self.used += 1;
        nonce
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonces_differ_and_follow_from_the_seed() {
        let take = |seed| {
            let mut nonces = Nonces::new([seed; 32]);
            std::array::from_fn::<_, 100, _>(|_| nonces.next_nonce())
        };
        let mut all = [take(1), take(2)].concat();
        assert_eq!(take(1), take(1));
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 200);
    }
}

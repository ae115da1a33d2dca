//! A set of servers of one upstream: 64 bytes, no allocation.

use super::{MAX_SERVERS, ServerIndex};

/// Servers that have been tried for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tried([u64; MAX_SERVERS / 64]);

impl Tried {
    /// Puts a server in.
    pub fn insert(&mut self, server: ServerIndex) {
        if let Some(word) = self.0.get_mut(server.at() / 64) {
            *word |= 1 << (server.at() % 64);
        }
    }

    /// A server is in it.
    pub fn has(&self, server: ServerIndex) -> bool {
        self.0
            .get(server.at() / 64)
            .is_some_and(|word| word & 1 << (server.at() % 64) != 0)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// There is none.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    pub(super) fn remove(&mut self, server: ServerIndex) {
        if let Some(word) = self.0.get_mut(server.at() / 64) {
            *word &= !(1 << (server.at() % 64));
        }
    }

    pub(super) fn retain(&mut self, keep: impl Fn(usize) -> bool) {
        let before = *self;
        for n in before.iter().filter(|n| !keep(*n)) {
            self.0[n / 64] &= !(1 << (n % 64));
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = usize> + use<> {
        self.0.into_iter().enumerate().flat_map(|(at, mut word)| {
            std::iter::from_fn(move || {
                let bit = (word != 0).then(|| word.trailing_zeros() as usize)?;
                word &= word - 1;
                Some(at * 64 + bit)
            })
        })
    }
}

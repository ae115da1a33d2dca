//! Sessions that a server remembers, so that clients who come back need no certificate: put and taken in constant time, oldest forgotten first.

use std::{
    collections::HashMap,
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
};

use rustls::server::StoresServerSessions;

/// A bounded store of sessions, shared by the workers of a process.
///
/// rustls' own `ServerSessionMemoryCache` goes through all of its entries to take one: with the 16,384 that QUIC keeps this was a tenth of a millisecond
/// for each resumed handshake, under a lock. Here there are two generations; when the younger is full it becomes the older, whose sessions are
/// forgotten together.
pub struct Sessions {
    generations: Mutex<Generations>,
    /// In one generation.
    most: usize,
}

#[derive(Default)]
struct Generations {
    young: HashMap<Vec<u8>, Vec<u8>>,
    old: HashMap<Vec<u8>, Vec<u8>>,
}

impl Sessions {
    /// Remembers at least half of `most` sessions, the last ones, and never more than `most` (about 1 KiB each).
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self {
            generations: Mutex::default(),
            most: most.div_ceil(2).max(1),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Generations> {
        self.generations
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl StoresServerSessions for Sessions {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        let mut generations = self.lock();
        let mut forgotten = HashMap::new();
        if generations.young.len() >= self.most {
            let full = std::mem::take(&mut generations.young);
            forgotten = std::mem::replace(&mut generations.old, full);
        }
        generations.young.insert(key, value);
        // Thousands are freed while nobody waits for the lock.
        drop(generations);
        drop(forgotten);
        true
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        let generations = self.lock();
        let found = generations.young.get(key);
        found.or_else(|| generations.old.get(key)).cloned()
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        let mut generations = self.lock();
        let found = generations.young.remove(key);
        found.or_else(|| generations.old.remove(key))
    }

    fn can_cache(&self) -> bool {
        true
    }
}

/// Says how many, and never which: they are secrets.
impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let generations = self.lock();
        f.debug_struct("Sessions")
            .field("young", &generations.young.len())
            .field("old", &generations.old.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u32) -> Vec<u8> {
        n.to_be_bytes().to_vec()
    }

    #[test]
    fn the_last_half_is_there_and_never_more_than_the_bound() {
        let sessions = Sessions::new(100);
        for n in 0..1000 {
            assert!(sessions.put(key(n), vec![n as u8]));
            for kept in n.saturating_sub(49)..=n {
                assert_eq!(sessions.get(&key(kept)), Some(vec![kept as u8]));
            }
            let generations = sessions.lock();
            assert!(generations.young.len() + generations.old.len() <= 100);
        }
        assert_eq!(sessions.get(&key(800)), None);
    }

    #[test]
    fn a_session_is_taken_once_whichever_generation_it_is_in() {
        let sessions = Sessions::new(4);
        for n in 0..3 {
            sessions.put(key(n), vec![7]);
        }
        for n in 0..3 {
            assert_eq!(sessions.take(&key(n)), Some(vec![7]));
            assert_eq!(sessions.take(&key(n)), None);
            assert_eq!(sessions.get(&key(n)), None);
        }
    }
}

//! Failed authentications cost time: per address and per id, after a few failures, with growing delay.

use std::{
    collections::HashMap,
    hash::Hash,
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::network::Network;

/// Remembers who failed. Bounded: when full, the entries that are nearest to being forgiven go.
#[derive(Debug)]
pub(crate) struct Throttle {
    settings: Mutex<config::Throttle>,
    addresses: Mutex<HashMap<Network, Record>>,
    ids: Mutex<HashMap<String, Record>>,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    failures: u32,
    blocked_until: Instant,
    forget_at: Instant,
}

impl Throttle {
    /// `failures` of 0 turns it off.
    pub(crate) fn new(config: &config::Throttle) -> Self {
        Self {
            settings: Mutex::new(*config),
            addresses: Mutex::default(),
            ids: Mutex::default(),
        }
    }

    /// Other numbers from now on; what is remembered stays.
    pub(crate) fn set(&self, config: &config::Throttle) {
        *lock(&self.settings) = *config;
    }

    /// How long this address or id must still wait, if it must. An id waits only after ten times as many failures as an address, and
    /// never for long: otherwise anybody could lock a client out.
    pub(crate) fn wait(&self, address: IpAddr, id: &str, now: Instant) -> Option<Duration> {
        if lock(&self.settings).failures == 0 {
            return None;
        }
        let blocked = |record: Option<&Record>| {
            record.and_then(|record| record.blocked_until.checked_duration_since(now))
        };
        let by_address = blocked(lock(&self.addresses).get(&Network::of(address)));
        let by_id = blocked(lock(&self.ids).get(id));
        by_address.max(by_id).filter(|wait| !wait.is_zero())
    }

    /// The proof was wrong.
    pub(crate) fn failed(&self, address: IpAddr, id: &str, now: Instant) {
        let settings = *lock(&self.settings);
        if settings.failures == 0 {
            return;
        }
        self.record(
            &mut lock(&self.addresses),
            Network::of(address),
            settings.failures,
            settings.block,
            now,
        );
        self.record(
            &mut lock(&self.ids),
            id.to_owned(),
            settings.failures.saturating_mul(10),
            ID_BLOCK,
            now,
        );
    }

    /// The proof was right: the address has paid. The id's count stays, because the owner's success says nothing about the guesser.
    pub(crate) fn succeeded(&self, address: IpAddr) {
        lock(&self.addresses).remove(&Network::of(address));
    }

    fn record<K: Hash + Eq + Clone>(
        &self,
        records: &mut HashMap<K, Record>,
        key: K,
        allowed: u32,
        longest: Duration,
        now: Instant,
    ) {
        if records.len() >= MOST_RECORDS {
            records.retain(|_, record| record.forget_at > now);
        }
        if records.len() >= MOST_RECORDS
            && !records.contains_key(&key)
            && let Some(oldest) = records
                .iter()
                .min_by_key(|(_, record)| record.forget_at)
                .map(|(key, _)| key.clone())
        {
            records.remove(&oldest);
        }
        let fresh = Record {
            failures: 0,
            blocked_until: now,
            forget_at: now,
        };
        let record = records.entry(key).or_insert(fresh);
        if record.forget_at < now {
            *record = fresh;
        }
        record.failures = record.failures.saturating_add(1);
        if record.failures >= allowed {
            let doublings = (record.failures - allowed).min(16);
            let delay = FIRST_BLOCK.saturating_mul(1 << doublings).min(longest);
            record.blocked_until = now + delay;
        }
        record.forget_at = record.blocked_until.max(now) + lock(&self.settings).block;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Doubles with each further failure.
const FIRST_BLOCK: Duration = Duration::from_secs(1);
/// An id that is guessed at is slowed down for everybody, its owner included, so never for long.
const ID_BLOCK: Duration = Duration::from_secs(5);
const MOST_RECORDS: usize = 16_384;

#[cfg(test)]
mod tests {
    use super::*;

    fn throttle() -> Throttle {
        Throttle::new(&config::Throttle {
            failures: 3,
            block: Duration::from_secs(300),
        })
    }

    #[test]
    fn an_address_waits_after_its_third_failure_and_longer_after_each_more() {
        let (throttle, now, address) = (throttle(), Instant::now(), IpAddr::from([192, 0, 2, 1]));
        throttle.failed(address, "a", now);
        throttle.failed(address, "b", now);
        assert_eq!(throttle.wait(address, "c", now), None);
        throttle.failed(address, "c", now);
        let first = throttle.wait(address, "d", now).expect("blocked");
        throttle.failed(address, "d", now);
        assert!(throttle.wait(address, "d", now).expect("blocked") > first);
        assert_eq!(
            throttle.wait(address, "d", now + Duration::from_secs(301)),
            None
        );
    }

    #[test]
    fn guessing_at_an_id_from_many_addresses_slows_the_id_for_seconds_only() {
        let (throttle, now) = (throttle(), Instant::now());
        for last in 0..60 {
            throttle.failed(IpAddr::from([198, 51, 100, last]), "victim", now);
        }
        let elsewhere = IpAddr::from([192, 0, 2, 9]);
        let wait = throttle.wait(elsewhere, "victim", now).expect("slowed");
        assert!(wait <= ID_BLOCK);
        assert_eq!(throttle.wait(elsewhere, "another", now), None);
    }

    #[test]
    fn records_are_bounded() {
        let (throttle, now) = (throttle(), Instant::now());
        for n in 0..20_000_u32 {
            throttle.failed(IpAddr::from(n.to_be_bytes()), &n.to_string(), now);
        }
        assert!(lock(&throttle.addresses).len() <= MOST_RECORDS);
        assert!(lock(&throttle.ids).len() <= MOST_RECORDS);
    }
}

//! Rate limits: a token bucket per key, in a table of fixed size.
//!
//! A bucket is kept as the moment at which it will be full again (GCRA): one number. A full bucket is the same as none, so its place is
//! free. The table is split into sets of eight; when all eight are in use, the one that is nearest to full makes room, which gives its owner the
//! least. Keys are hashed with a secret seed, so that nobody can choose to meet somebody else's set.

use std::{net::IpAddr, time::Duration};

use crate::{Headers, hash::mix, hash_bytes, request::plain_ip};

/// What a bucket belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RateKey {
    /// The visitor's address; of an IPv6 address its first 64 bits, because one visitor has all the rest.
    Ip,
    /// The value of this field (name in lower case); requests without it share one bucket.
    Header(Box<str>),
    /// All visitors together.
    All,
}

/// A limit: `burst` requests at once, then `per` for each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateLimit {
    key: RateKey,
    /// Nanoseconds for one request.
    per: u64,
    burst: u32,
    keys: usize,
}

impl RateLimit {
    /// `requests` in each `period`, with at most `burst` at once. Both counts are at least 1 and the period at most a day; what is outside is
    /// brought inside.
    pub fn new(key: RateKey, requests: u32, period: Duration, burst: u32) -> Self {
        let day = Duration::from_secs(86_400);
        let nanos = nanos(period.clamp(Duration::from_millis(1), day));
        Self {
            key,
            per: (nanos / u64::from(requests.max(1))).max(1),
            burst: burst.max(1),
            keys: RateTable::DEFAULT_CAPACITY,
        }
    }

    /// How many buckets a worker keeps, for [`RateTable::new`].
    #[must_use]
    pub fn with_keys(self, keys: usize) -> Self {
        Self { keys, ..self }
    }

    /// How many buckets a worker keeps.
    pub fn keys(&self) -> usize {
        self.keys
    }

    /// What a bucket belongs to.
    pub fn key(&self) -> &RateKey {
        &self.key
    }

    /// Requests at once.
    pub fn burst(&self) -> u32 {
        self.burst
    }

    /// From one request to the next, in the long run.
    pub fn interval(&self) -> Duration {
        Duration::from_nanos(self.per)
    }
}

/// Whether a request is within the rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RateDecision {
    /// It is.
    Allowed,
    /// It is not; the same request would be after this time (for `Retry-After`).
    Limited {
        /// How long to wait.
        retry_after: Duration,
    },
}

/// The buckets of one route on one worker.
#[derive(Debug)]
pub struct RateTable {
    sets: Box<[[Slot; WAYS]]>,
    seed: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    key: u64,
    /// Nanoseconds at which the bucket is full.
    full_at: u64,
}

const WAYS: usize = 8;

impl RateTable {
    /// Buckets that are kept at one time when nobody says it; 16 bytes each.
    pub const DEFAULT_CAPACITY: usize = 16_384;
    /// Most buckets.
    pub const MAX_CAPACITY: usize = 1 << 20;

    /// A table for about `capacity` keys (a power of two is made of it, at most [`Self::MAX_CAPACITY`]); `seed` is random and secret.
    pub fn new(capacity: usize, seed: u64) -> Self {
        let sets = capacity.clamp(WAYS, Self::MAX_CAPACITY).next_power_of_two() / WAYS;
        Self {
            sets: vec![[Slot::default(); WAYS]; sets].into(),
            seed,
        }
    }

    /// Takes one request of `ip` off its bucket. `now` never goes back.
    pub fn check(
        &mut self,
        limit: &RateLimit,
        now: Duration,
        ip: IpAddr,
        headers: &dyn Headers,
    ) -> RateDecision {
        let key = match &limit.key {
            RateKey::All => 1,
            RateKey::Ip => match plain_ip(ip) {
                IpAddr::V4(ip) => hash_bytes(self.seed, &ip.octets()),
                IpAddr::V6(ip) => hash_bytes(self.seed, &ip.octets()[..8]),
            },
            RateKey::Header(name) => headers
                .nth(name, 0)
                .map_or(2, |value| hash_bytes(self.seed, value)),
        };
        self.take(limit, nanos(now), key)
    }

    fn take(&mut self, limit: &RateLimit, now: u64, key: u64) -> RateDecision {
        let set = mix(key ^ self.seed) as usize & (self.sets.len() - 1);
        let set = &mut self.sets[set];
        // Key 0 marks a place that was never used; its bucket is full, so that a key of 0 is right there as well.
        let at = set
            .iter()
            .position(|slot| slot.key == key)
            .unwrap_or_else(|| {
                let fullest = (0..WAYS).min_by_key(|n| set[*n].full_at).unwrap_or(0);
                set[fullest] = Slot { key, full_at: 0 };
                fullest
            });
        let slot = &mut set[at];
        let next = slot.full_at.max(now).saturating_add(limit.per);
        let room = limit.per.saturating_mul(u64::from(limit.burst));
        match next.checked_sub(now.saturating_add(room)) {
            None | Some(0) => {
                slot.full_at = next;
                RateDecision::Allowed
            }
            Some(wait) => RateDecision::Limited {
                retry_after: Duration::from_nanos(wait),
            },
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

//! How many connections may be there that have not shown yet what they are: first bytes, TLS handshakes, and links until they are let
//! in. A connection takes a [`Place`] when it is accepted and gives it back when it is a visit or a link; whoever finds none is closed
//! at once. Left to others: what a visit or a link may cost after that (`session`), and time (`headerTimeout`, `handshakeTimeout`).

use std::{
    collections::{HashMap, hash_map::RandomState},
    hash::BuildHasher,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{metrics::Metrics, network::Network};

/// Counts, shared by all workers. Addresses are spread over several locks, so that workers hardly ever meet at one.
#[derive(Debug)]
pub(crate) struct Gate {
    /// Most in all; `None` = not limited.
    most: Option<u64>,
    /// Most of one address; `None` = not limited.
    most_each: Option<u32>,
    networks: [Mutex<HashMap<Network, u32>>; SHARDS],
    hasher: RandomState,
    metrics: Arc<Metrics>,
}

/// A connection that is counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    gate: Arc<Gate>,
    network: Network,
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Full {
    #[error("too many connections that have not shown yet what they are (pendingConnections)")]
    InAll,
    #[error(
        "too many connections of one address that have not shown yet what they are (pendingPerAddress)"
    )]
    OfOne,
}

impl Gate {
    /// `files` is how many files the process may open: half of them are kept for visits, links and the rest.
    pub(crate) fn new(limits: config::Pending, files: u64, metrics: Arc<Metrics>) -> Self {
        Self {
            most: (limits.total > 0).then(|| u64::from(limits.total).min((files / 2).max(1))),
            most_each: (limits.per_address > 0).then_some(limits.per_address),
            networks: Default::default(),
            hasher: RandomState::new(),
            metrics,
        }
    }

    /// Takes a place for a connection that was just accepted. A refusal is counted.
    pub(crate) fn enter(self: &Arc<Self>, address: IpAddr) -> Result<Place, Full> {
        let network = Network::of(address);
        let refused = |full| {
            self.metrics.limit_pending_total.add_one();
            Err(full)
        };
        if !self.metrics.pending_open.add_below(self.most) {
            return refused(Full::InAll);
        }
        if let Some(most) = self.most_each {
            let mut shard = self.shard(network);
            let count = shard.entry(network).or_default();
            if *count >= most {
                drop(shard);
                self.metrics.pending_open.remove();
                return refused(Full::OfOne);
            }
            *count += 1;
        }
        Ok(Place {
            gate: Arc::clone(self),
            network,
        })
    }

    fn shard(&self, network: Network) -> MutexGuard<'_, HashMap<Network, u32>> {
        let hash = self.hasher.hash_one(network);
        let index = usize::try_from(hash % SHARDS as u64).unwrap_or(0);
        self.networks[index]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Self { gate, network } = self;
        gate.metrics.pending_open.remove();
        if gate.most_each.is_none() {
            return;
        }
        let mut shard = gate.shard(*network);
        if let Some(count) = shard.get_mut(network) {
            *count -= 1;
            if *count == 0 {
                shard.remove(network);
            }
        }
    }
}

const SHARDS: usize = 16;

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    fn gate(total: u32, per_address: u32, files: u64) -> Arc<Gate> {
        let limits = config::Pending { total, per_address };
        Arc::new(Gate::new(limits, files, Arc::default()))
    }

    fn v4(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[test]
    fn a_place_is_free_again_when_it_is_given_back() {
        let gate = gate(2, 0, 1000);
        let (first, _second) = (gate.enter(v4(1)), gate.enter(v4(2)));
        assert_eq!(gate.enter(v4(3)).err(), Some(Full::InAll));
        drop(first);
        assert!(gate.enter(v4(3)).is_ok());
        assert_eq!(gate.metrics.limit_pending_total.get(), 1);
    }

    #[test]
    fn one_address_cannot_take_the_places_of_others() {
        let gate = gate(100, 2, 1000);
        let held: Vec<_> = (0..4).map(|_| gate.enter(v4(1))).collect();
        assert_eq!(held.iter().filter(|place| place.is_ok()).count(), 2);
        assert!(matches!(held[3], Err(Full::OfOne)));
        assert!(gate.enter(v4(2)).is_ok());
        drop(held);
        assert!(gate.enter(v4(1)).is_ok());
        assert_eq!(gate.metrics.pending_open.get(), 0);
        assert!(
            gate.networks
                .iter()
                .all(|shard| shard.lock().expect("sound").is_empty()),
            "an address that is gone is forgotten"
        );
    }

    #[test]
    fn the_addresses_of_an_ipv6_network_count_as_one() {
        let gate = gate(0, 1, 1000);
        let address =
            |host| IpAddr::from(Ipv6Addr::new(0x2001, 0xdb8, 0, 1, host, host, host, host));
        let _first = gate.enter(address(1)).expect("a place");
        assert_eq!(gate.enter(address(2)).err(), Some(Full::OfOne));
        let _v4 = gate.enter(v4(1)).expect("a place");
        let IpAddr::V4(same) = v4(1) else {
            panic!("an IPv4 address")
        };
        let mapped = IpAddr::from(same.to_ipv6_mapped());
        assert_eq!(gate.enter(mapped).err(), Some(Full::OfOne));
    }

    #[test]
    fn half_of_the_files_are_kept_for_others_and_0_is_no_limit() {
        let few = gate(1000, 0, 4);
        let _held = [few.enter(v4(1)), few.enter(v4(2))];
        assert_eq!(few.enter(v4(3)).err(), Some(Full::InAll));
        let none = gate(0, 0, 4);
        let held: Vec<_> = (0..100).map(|_| none.enter(v4(1))).collect();
        assert!(held.iter().all(Result::is_ok));
    }
}

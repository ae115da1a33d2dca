//! Log lines about strangers, throttled: the first of a kind and address is written at once, those after it are counted and told in one
//! line a minute, so that nobody outside can fill the disk. What is counted exactly is in the metrics.

use std::{
    collections::HashMap,
    fmt,
    net::IpAddr,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use crate::network::Network;

/// What strangers do wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Complaint {
    /// A place before the handshake was not to be had.
    Pending,
    WrongSecret,
    UnknownId,
    /// Throttled, or the authentication service did not answer.
    Refused,
    AuthApi,
    /// The proof was right, but there is no room.
    NotAdmitted,
    /// The handshake of a link broke off or took too long.
    Handshake,
    WebSocket,
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pending => "connections closed for want of a place",
            Self::WrongSecret => "clients refused for a wrong secret",
            Self::UnknownId => "clients refused for an unknown id",
            Self::Refused => "clients refused",
            Self::AuthApi => "answers of authAPI missing",
            Self::NotAdmitted => "links refused",
            Self::Handshake => "link handshakes broken off",
            Self::WebSocket => "links over WebSocket not established",
        })
    }
}

/// What was written lately; bounded.
#[derive(Debug, Default)]
pub(crate) struct Complaints {
    entries: Mutex<HashMap<Key, Entry>>,
    unwritten: AtomicU64,
}

/// The address is `None` for all that find no room of their own.
type Key = (Complaint, Option<Network>);

#[derive(Debug)]
struct Entry {
    since: Instant,
    unwritten: u64,
}

/// Lines that were not written.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unwritten {
    pub(crate) complaint: Complaint,
    /// `None` = several addresses.
    pub(crate) network: Option<Network>,
    pub(crate) count: u64,
}

impl Complaints {
    /// Whether a line about it is to be written now; else it is counted.
    pub(crate) fn hear(&self, complaint: Complaint, address: IpAddr) -> bool {
        self.hear_at(complaint, address, Instant::now())
    }

    fn hear_at(&self, complaint: Complaint, address: IpAddr, now: Instant) -> bool {
        let mut entries = self.lock();
        let own = (complaint, Some(Network::of(address)));
        let key = if entries.contains_key(&own) || entries.len() < MOST_ENTRIES {
            own
        } else {
            (complaint, None)
        };
        match entries.get_mut(&key) {
            Some(entry) => {
                entry.unwritten += 1;
                self.unwritten.fetch_add(1, Relaxed);
                false
            }
            None => {
                let unwritten = 0;
                entries.insert(
                    key,
                    Entry {
                        since: now,
                        unwritten,
                    },
                );
                true
            }
        }
    }

    /// Lines that were counted instead of written, since the start.
    pub(crate) fn unwritten(&self) -> u64 {
        self.unwritten.load(Relaxed)
    }

    /// Writes what was not written in the last minute; to be called about once a second.
    pub(crate) fn write_due(&self) {
        for due in self.take_due(Instant::now()) {
            let Unwritten {
                complaint, count, ..
            } = due;
            let from = due.network.map_or_else(
                || "several addresses".to_owned(),
                |network| network.to_string(),
            );
            tracing::warn!(%from, count, "more of the same within a minute: {complaint}");
        }
    }

    /// An entry without more of its kind is forgotten after its minute, the others begin another.
    fn take_due(&self, now: Instant) -> Vec<Unwritten> {
        let mut due = Vec::new();
        self.lock().retain(|(complaint, network), entry| {
            if now.saturating_duration_since(entry.since) < EACH {
                return true;
            }
            let count = std::mem::take(&mut entry.unwritten);
            if count == 0 {
                return false;
            }
            entry.since = now;
            due.push(Unwritten {
                complaint: *complaint,
                network: *network,
                count,
            });
            true
        });
        due
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const EACH: Duration = Duration::from_secs(60);
/// Kinds and addresses with lines of their own: with the one line of each kind for the rest at most 144 lines a minute, some 40 MB a day.
const MOST_ENTRIES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn address(n: u32) -> IpAddr {
        IpAddr::from(n.to_be_bytes())
    }

    #[test]
    fn the_first_is_written_at_once_and_the_rest_counted_each_minute() {
        let (complaints, now) = (Complaints::default(), Instant::now());
        let hear = |address, at| complaints.hear_at(Complaint::WrongSecret, address, at);
        assert!(hear(address(1), now));
        assert!(!hear(address(1), now));
        assert!(!hear(address(1), now));
        assert!(hear(address(2), now), "another address");
        assert!(
            complaints.hear_at(Complaint::UnknownId, address(1), now),
            "another kind"
        );
        assert_eq!(complaints.take_due(now + EACH / 2), []);
        let told = |count| Unwritten {
            complaint: Complaint::WrongSecret,
            network: Some(Network::of(address(1))),
            count,
        };
        assert_eq!(complaints.take_due(now + EACH), [told(2)]);
        // The next minute of one that goes on.
        assert!(!hear(address(1), now + EACH));
        assert_eq!(complaints.take_due(now + EACH * 2), [told(1)]);
        // A quiet minute, and it is news again.
        assert_eq!(complaints.take_due(now + EACH * 3), []);
        assert!(hear(address(1), now + EACH * 3));
    }

    #[test]
    fn a_running_server_writes_what_is_due() {
        let config = config::Server {
            allow_any_client: true,
            ..config::Server::default()
        };
        let server = crate::Server::start(config).expect("a server");
        let complaints = &server.shared.complaints;
        let before = Instant::now() - EACH;
        for _ in 0..3 {
            complaints.hear_at(Complaint::Refused, address(1), before);
        }
        let unwritten = || -> u64 {
            complaints
                .lock()
                .values()
                .map(|entry| entry.unwritten)
                .sum()
        };
        let deadline = Instant::now() + Duration::from_secs(10);
        while unwritten() > 0 {
            assert!(Instant::now() < deadline, "nobody writes it");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    #[test]
    fn many_addresses_are_told_in_bounded_lines() {
        let (complaints, now) = (Complaints::default(), Instant::now());
        let written = (0..10_000)
            .filter(|n| complaints.hear_at(Complaint::Handshake, address(*n), now))
            .count();
        assert_eq!(written, MOST_ENTRIES + 1);
        let due = complaints.take_due(now + EACH);
        assert_eq!(due.len(), 1);
        assert_eq!(due[0].network, None);
        assert_eq!(due[0].count as usize + written, 10_000);
    }
}

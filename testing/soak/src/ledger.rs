//! Who was killed when. A transfer may fail only if something on its way was killed while it ran.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// What a kill hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A client or its links: all of its services.
    Client(usize),
    /// One service behind a client.
    Service(usize, Service),
}

/// The services behind each client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Transfers over a TCP service.
    Data,
    /// Requests over an HTTP service.
    Http,
}

/// All kills of a run.
#[derive(Debug, Default)]
pub struct Ledger {
    kills: Mutex<Vec<Kill>>,
}

/// A kill that has not been recovered from; closing it says that the target is whole again.
#[derive(Debug)]
#[must_use = "a kill that is never closed excuses every later failure"]
pub struct Open(usize);

#[derive(Debug)]
struct Kill {
    target: Target,
    from: Instant,
    to: Option<Instant>,
}

impl Ledger {
    /// To be called before the kill.
    pub fn open(&self, target: Target) -> Open {
        let mut kills = self.kills();
        kills.push(Kill {
            target,
            from: Instant::now(),
            to: None,
        });
        Open(kills.len() - 1)
    }

    /// To be called once visitors get through again.
    pub fn close(&self, open: Open) {
        if let Some(kill) = self.kills().get_mut(open.0) {
            kill.to = Some(Instant::now());
        }
    }

    /// Whether a visit to a service between two instants met a kill.
    pub fn touched(&self, client: usize, service: Service, from: Instant, to: Instant) -> bool {
        let on_the_way = |target| match target {
            Target::Client(killed) => killed == client,
            Target::Service(killed, what) => killed == client && what == service,
        };
        let overlaps = |kill: &Kill| kill.from <= to && kill.to.is_none_or(|end| end >= from);
        self.kills()
            .iter()
            .any(|kill| on_the_way(kill.target) && overlaps(kill))
    }

    /// Number of kills so far.
    pub fn count(&self) -> usize {
        self.kills().len()
    }

    fn kills(&self) -> MutexGuard<'_, Vec<Kill>> {
        self.kills.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_on_the_way_while_it_was_killed_is_touched() {
        let ledger = Ledger::default();
        let before = Instant::now();
        let earlier_end = Instant::now();
        std::thread::sleep(std::time::Duration::from_millis(2));
        let open = ledger.open(Target::Service(1, Service::Http));
        let during = Instant::now();
        assert!(ledger.touched(1, Service::Http, before, during));
        assert!(
            ledger.touched(1, Service::Http, during, Instant::now()),
            "an open kill has no end"
        );
        assert!(!ledger.touched(1, Service::Http, before, earlier_end));
        assert!(!ledger.touched(1, Service::Data, before, during));
        assert!(!ledger.touched(0, Service::Http, before, during));
        ledger.close(open);
        std::thread::sleep(std::time::Duration::from_millis(2));
        let after = Instant::now();
        assert!(!ledger.touched(1, Service::Http, after, Instant::now()));
        assert!(
            ledger.touched(1, Service::Http, before, after),
            "a kill within the visit counts after its end"
        );
    }

    #[test]
    fn a_killed_client_touches_all_its_services() {
        let ledger = Ledger::default();
        let from = Instant::now();
        let _open = ledger.open(Target::Client(2));
        assert!(ledger.touched(2, Service::Data, from, Instant::now()));
        assert!(ledger.touched(2, Service::Http, from, Instant::now()));
        assert_eq!(ledger.count(), 1);
    }
}

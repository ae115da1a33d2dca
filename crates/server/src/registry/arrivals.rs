//! Clients that a process before this one had, and that are on their way here.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use arc_swap::ArcSwapOption;

/// Who is still awaited, and until when; nobody, mostly.
#[derive(Default)]
pub(super) struct Arrivals(ArcSwapOption<Awaited>);

struct Awaited {
    until: Instant,
    /// Their ids, if they are known.
    missing: Option<HashSet<String>>,
}

impl Arrivals {
    /// These come within `patience`; any client if the ids are not known.
    pub(super) fn expect(&self, ids: Option<HashSet<String>>, patience: Duration) {
        if ids.as_ref().is_some_and(HashSet::is_empty) {
            return;
        }
        self.0.store(Some(Arc::new(Awaited {
            until: Instant::now() + patience,
            missing: ids,
        })));
    }

    /// How long the rest has left; nothing if nobody is awaited.
    pub(super) fn left(&self) -> Option<Duration> {
        let awaited = self.0.load();
        let until = awaited.as_ref().map(|awaited| awaited.until);
        until.map(|until| until.saturating_duration_since(Instant::now()))
    }

    /// A client has said what it serves, and the table has it; returns whether it was awaited. Called by one thread at a time: the
    /// registry's lock is held.
    pub(super) fn has_come(&self, id: &str) -> bool {
        let awaited = self.0.load_full();
        let Some(Awaited {
            until,
            missing: Some(missing),
        }) = awaited.as_deref()
        else {
            return false;
        };
        let awaited = missing.contains(id);
        if awaited {
            let mut rest = missing.clone();
            rest.remove(id);
            let rest = (!rest.is_empty()).then(|| {
                Arc::new(Awaited {
                    until: *until,
                    missing: Some(rest),
                })
            });
            self.0.store(rest);
        }
        awaited
    }
}

//! The live snapshot: which service answers for a host name. Data threads load it without waiting; the registry replaces it.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use config::HostPrefix;
use sniff::host::{Authority, Host};

use crate::session::Service;

/// What kind of visitor asks; one name may be claimed for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// Plain or decrypted HTTP.
    Http,
    /// TLS to be passed through.
    Tls,
}

/// Names and who serves them. Keys are lower case.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) hosts: HashMap<(Kind, String), Route>,
    pub(crate) prefixes: HashMap<(Kind, String), Route>,
    /// Ids that may connect but are not connected; asking for them is a matter of time, not a mistake.
    pub(crate) expected: Arc<dyn Expected>,
    /// Ids of clients that are connected: what they do not serve does not exist.
    pub(crate) connected: HashSet<String>,
    /// HTTP visitors of this prefix see the status page.
    pub(crate) status_prefix: Option<HostPrefix>,
}

/// Which ids could come.
pub(crate) trait Expected: std::fmt::Debug + Send + Sync {
    fn expects(&self, prefix: &str) -> bool;
}

/// The services that share one name.
#[derive(Debug, Default)]
pub(crate) struct Route {
    pub(crate) services: Vec<Arc<Service>>,
    turn: AtomicUsize,
}

impl Clone for Route {
    fn clone(&self) -> Self {
        Self {
            services: self.services.clone(),
            turn: AtomicUsize::new(self.turn.load(Relaxed)),
        }
    }
}

impl Route {
    /// The next service in turn: one that is fit if there is any, else one whose client is connected.
    pub(crate) fn pick(&self) -> Option<&Arc<Service>> {
        let first = if self.services.len() > 1 {
            self.turn.fetch_add(1, Relaxed)
        } else {
            0
        };
        self.from(first)
    }

    /// Whom [`Route::pick`] would name now; the turn stays.
    fn peek(&self) -> Option<&Arc<Service>> {
        self.from(self.turn.load(Relaxed))
    }

    fn from(&self, first: usize) -> Option<&Arc<Service>> {
        let n = self.services.len();
        let in_turn = || (0..n).map(|step| &self.services[(first.wrapping_add(step)) % n]);
        in_turn()
            .find(|service| service.is_fit())
            .or_else(|| in_turn().find(|service| service.session.link_count() > 0))
            .or_else(|| in_turn().next())
    }
}

/// The host in lower case and its first label.
pub(crate) fn names(authority: Option<&Authority>) -> (String, Option<String>) {
    let Some(authority) = authority else {
        return (String::new(), None);
    };
    let host = match authority.host() {
        Host::Name(name) => name.to_string(),
        Host::Ip(address) => address.to_string(),
    };
    (host, authority.first_label().map(str::to_owned))
}

/// The answer to a visitor's name.
#[derive(Debug)]
pub(crate) enum Found {
    Service(Arc<Service>),
    /// The server's own status page.
    Status,
    /// The name belongs to a client that is not connected now.
    Away,
    Nothing,
}

impl Table {
    pub(crate) fn new(expected: Arc<dyn Expected>, status_prefix: Option<HostPrefix>) -> Self {
        Self {
            hosts: HashMap::new(),
            prefixes: HashMap::new(),
            expected,
            connected: HashSet::new(),
            status_prefix,
        }
    }

    /// The status page wins over all, then a full host name over a prefix. `prefix` is the first label.
    pub(crate) fn find(&self, kind: Kind, host: &str, prefix: Option<&str>) -> Found {
        self.find_by(kind, host, prefix, Route::pick)
    }

    /// The same, for whoever only wants to know what kind of service answers: nobody's turn is over.
    pub(crate) fn peek(&self, kind: Kind, host: &str, prefix: Option<&str>) -> Found {
        self.find_by(kind, host, prefix, Route::peek)
    }

    fn find_by(
        &self,
        kind: Kind,
        host: &str,
        prefix: Option<&str>,
        choose: impl FnOnce(&Route) -> Option<&Arc<Service>>,
    ) -> Found {
        let status = self.status_prefix.as_ref().map(HostPrefix::as_str);
        if kind == Kind::Http && prefix.is_some() && prefix == status {
            return Found::Status;
        }
        let route = self
            .hosts
            .get(&(kind, host.to_owned()))
            .or_else(|| self.prefixes.get(&(kind, prefix?.to_owned())));
        match route.and_then(choose) {
            Some(service) => Found::Service(Arc::clone(service)),
            None if prefix.is_some_and(|prefix| {
                self.expected.expects(prefix) && !self.connected.contains(prefix)
            }) =>
            {
                Found::Away
            }
            None => Found::Nothing,
        }
    }
}

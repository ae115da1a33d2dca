//! Who is connected and what was granted to whom: the one writer of the routing snapshot. Runs when clients come, go or declare
//! services, never for a visitor. What may be granted is decided in `grant`, who is on the way here in `arrivals`.

use std::{
    collections::{HashMap, HashSet},
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use arc_swap::{ArcSwap, ArcSwapOption};
use config::HostPrefix;
use tokio::sync::Notify;
use tunnel::{Endpoint, Granted, RejectCode, ServiceDecl, ServiceId, ServiceResult, SessionId};

use crate::{
    auth::Users,
    metrics::Metrics,
    ports::{Ports, Protocol},
    routing::{Expected, Found, Kind, Table},
    session::{Account, Service, Session, SessionKey},
};

mod arrivals;
mod fitness;
mod grant;

use arrivals::Arrivals;
use fitness::apart;

/// What the registry needs to know of the configuration.
pub(crate) struct Rules {
    pub(crate) workers: usize,
    /// Ids of the configured users: nobody else may claim them as a prefix.
    pub(crate) expected: Arc<Users>,
    /// Public addresses for the endpoints told to clients.
    pub(crate) http: Option<SocketAddr>,
    pub(crate) https: Option<SocketAddr>,
    pub(crate) sni: Option<SocketAddr>,
    /// Belongs to the server itself.
    pub(crate) status_prefix: ArcSwapOption<HostPrefix>,
}

pub(crate) struct Registry {
    rules: Rules,
    table: ArcSwap<Table>,
    inner: Mutex<Inner>,
    next_key: AtomicU64,
    metrics: Arc<Metrics>,
    /// The table was replaced.
    changed: Notify,
    /// While they come, whoever asks for a name that is not there yet waits for it.
    arrivals: Arrivals,
}

#[derive(Default)]
struct Inner {
    sessions: HashMap<SessionId, Held>,
    accounts: HashMap<String, Arc<Account>>,
    ports: Ports,
}

/// A session and what it was granted.
struct Held {
    session: Arc<Session>,
    /// The client has said what it serves.
    declared: bool,
    /// What it said and was answered, if all of it was granted.
    granted: Option<(Vec<ServiceDecl>, Vec<ServiceResult>)>,
    services: Vec<Arc<Service>>,
    names: Vec<(Name, ServiceId)>,
    ports: Vec<(Protocol, u16, ServiceId)>,
}

/// A name in the routing table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Name {
    Host(Kind, String),
    Prefix(Kind, String),
}

impl Rules {
    fn empty_table(&self) -> Table {
        let status_prefix = self.status_prefix.load();
        Table::new(
            Arc::clone(&self.expected) as Arc<dyn Expected>,
            status_prefix.as_deref().cloned(),
        )
    }
}

/// Why a link is not let in although its proof was right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotAdmitted {
    TooManyLinks,
    IdInUse,
}

impl NotAdmitted {
    pub(crate) fn code(self) -> RejectCode {
        match self {
            Self::TooManyLinks => RejectCode::TooManyLinks,
            Self::IdInUse => RejectCode::IdInUse,
        }
    }
}

impl Registry {
    pub(crate) fn new(rules: Rules, ports: Ports, metrics: Arc<Metrics>) -> Self {
        let table = ArcSwap::from_pointee(rules.empty_table());
        let inner = Mutex::new(Inner {
            ports,
            ..Inner::default()
        });
        Self {
            rules,
            table,
            inner,
            next_key: AtomicU64::new(1),
            metrics,
            changed: Notify::new(),
            arrivals: Arrivals::default(),
        }
    }

    /// What kind of service answers for a name at this moment; nobody's turn is over.
    pub(crate) fn look(&self, kind: Kind, host: &str, prefix: Option<&str>) -> Found {
        self.table.load().peek(kind, host, prefix)
    }

    /// Who answers for a name. Just after another process has handed over, its clients are on their way, and a name that is not there
    /// yet is waited for.
    pub(crate) async fn find(&self, kind: Kind, host: &str, prefix: Option<&str>) -> Found {
        loop {
            // Made before the look: every change after it is noticed. So is who is awaited: whoever is not any more is in the table.
            let changed = self.changed.notified();
            let left = self.arrivals.left();
            let found = self.table.load().find(kind, host, prefix);
            match (found, left) {
                (Found::Away | Found::Nothing, Some(left)) if !left.is_zero() => {
                    let _ = tokio::time::timeout(left, changed).await;
                }
                (found, _) => return found,
            }
        }
    }

    /// The clients with these ids come from a process before this one, within `patience`; any client if the ids are not known.
    pub(crate) fn expect_arrivals(&self, ids: Option<HashSet<String>>, patience: Duration) {
        self.arrivals.expect(ids, patience);
    }

    /// Whether all of them have come, or their time is over.
    pub(crate) fn have_arrived(&self) -> bool {
        self.arrivals.left().is_none_or(|left| left.is_zero())
    }

    /// Ids of the clients that are connected, or were a moment ago.
    pub(crate) fn ids(&self) -> HashSet<String> {
        let inner = self.lock();
        let held = inner.sessions.values();
        held.map(|held| held.session.account.id.clone()).collect()
    }

    /// Runs by another configuration from now on; `account` says what an id may do by it.
    pub(crate) fn reconfigure(
        &self,
        config: &config::Server,
        account: impl Fn(&str) -> Option<(config::Limits, bool)>,
    ) {
        let inner = self.lock();
        self.rules.expected.replace(config);
        let status = config.status_prefix.clone().map(Arc::new);
        self.rules.status_prefix.store(status);
        for known in inner.accounts.values() {
            if let Some((limits, load_balance)) = account(&known.id) {
                known.set(&limits, load_balance);
            }
        }
        self.publish(&inner);
    }

    /// The account of an id; made with `make` when it is new.
    pub(crate) fn account(&self, id: &str, make: impl FnOnce() -> Account) -> Arc<Account> {
        let mut inner = self.lock();
        Arc::clone(
            inner
                .accounts
                .entry(id.to_owned())
                .or_insert_with(|| Arc::new(make())),
        )
    }

    /// All accounts, for metrics.
    pub(crate) fn accounts(&self) -> Vec<Arc<Account>> {
        self.lock().accounts.values().cloned().collect()
    }

    /// All sessions with their services, for status.
    pub(crate) fn sessions(&self) -> Vec<(Arc<Session>, Vec<Arc<Service>>)> {
        self.lock()
            .sessions
            .values()
            .map(|held| (Arc::clone(&held.session), held.services.clone()))
            .collect()
    }

    /// Lets a link in: into the session that it wants to join if that lives, else into a new one. That has the id which the link named, so that
    /// a session outlives the server's process, or `fresh`. The session counts the link as arriving until [`Session::arrival_ended`].
    pub(crate) fn admit(
        &self,
        account: &Arc<Account>,
        join: Option<SessionId>,
        fresh: SessionId,
    ) -> Result<Arc<Session>, NotAdmitted> {
        let mut inner = self.lock();
        if let Some(held) = join.and_then(|id| inner.sessions.get(&id))
            && held.session.account.id == account.id
        {
            if held.session.link_claims() >= u32::from(account.limits().connections) {
                return Err(NotAdmitted::TooManyLinks);
            }
            held.session.link_arrives();
            return Ok(Arc::clone(&held.session));
        }
        let others: Vec<_> = inner
            .sessions
            .values()
            .filter(|held| held.session.account.id == account.id)
            .map(|held| Arc::clone(&held.session))
            .collect();
        let (here, away): (Vec<_>, Vec<_>) = others
            .into_iter()
            .partition(|other| other.link_claims() > 0);
        // With load balancing, as many clients as one may have links: without a bound one user could hold any number of sessions.
        let most = usize::from(account.limits().connections);
        if !account.load_balance() && !here.is_empty() {
            return Err(NotAdmitted::IdInUse);
        }
        if here.len() >= most {
            return Err(NotAdmitted::TooManyLinks);
        }
        // The same client, started again: what it had is free for it now.
        if !account.load_balance() || here.len() + away.len() >= most {
            for other in away {
                inner.end(&other, self);
            }
        }
        let key = SessionKey(self.next_key.fetch_add(1, Relaxed));
        // Another client's session is never taken over, whatever id is named.
        let id = join
            .filter(|id| !inner.sessions.contains_key(id))
            .unwrap_or(fresh);
        let session = Arc::new(Session::new(
            key,
            id,
            Arc::clone(account),
            self.rules.workers,
        ));
        session.link_arrives();
        let held = Held {
            session: Arc::clone(&session),
            declared: false,
            granted: None,
            services: Vec::new(),
            names: Vec::new(),
            ports: Vec::new(),
        };
        inner.sessions.insert(id, held);
        Ok(session)
    }

    /// Ends a session that has no link and waits for none; returns whether it did.
    pub(crate) fn end_if_away(&self, session: &Arc<Session>) -> bool {
        let mut inner = self.lock();
        if session.link_claims() > 0 {
            return false;
        }
        inner.end(session, self);
        true
    }

    /// Closes the ports that nobody took over after their session ended.
    pub(crate) fn close_unused_ports(&self) {
        self.lock().ports.close_unused();
    }

    /// Replaces what the session declared before. The same set again, which each further link brings, changes nothing: taking it back
    /// for a moment would refuse the visitors of that moment.
    pub(crate) fn declare(
        &self,
        session: &Arc<Session>,
        declared: &[ServiceDecl],
    ) -> Vec<ServiceResult> {
        let mut inner = self.lock();
        let Some(held) = inner.sessions.get(&session.id) else {
            return Vec::new();
        };
        let (wanted, down) = apart(declared);
        if let Some((before, answers)) = &held.granted
            && *before == wanted
        {
            held.tell_fitness(&down);
            return answers.clone();
        }
        let kept = inner.keep(session, &wanted);
        let results: Vec<ServiceResult> = wanted
            .iter()
            .map(|declared| ServiceResult {
                id: declared.id,
                result: match kept.get(&declared.id) {
                    Some(granted) => Ok(granted.clone()),
                    None => inner.grant(session, declared, self),
                },
            })
            .collect();
        if let Some(held) = inner.sessions.get_mut(&session.id) {
            held.tell_fitness(&down);
            held.declared = true;
            let all = results.iter().all(|result| result.result.is_ok());
            held.granted = all.then(|| (wanted, results.clone()));
        }
        self.publish(&inner);
        // Behind the table: a name must not be neither there nor awaited. Who waits for another name may have waited for this client alone.
        if self.arrivals.has_come(&session.account.id) {
            self.changed.notify_waiters();
        }
        results
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, inner: &Inner) {
        let mut table = self.rules.empty_table();
        for held in inner.sessions.values() {
            if held.declared {
                table
                    .connected
                    .insert(held.session.account.id.to_ascii_lowercase());
            }
            for (name, id) in &held.names {
                let Some(service) = held
                    .services
                    .iter()
                    .find(|service| service.declared.id == *id)
                else {
                    continue;
                };
                let route = match name {
                    Name::Host(kind, host) => table.hosts.entry((*kind, host.clone())),
                    Name::Prefix(kind, prefix) => table.prefixes.entry((*kind, prefix.clone())),
                };
                route.or_default().services.push(Arc::clone(service));
            }
        }
        self.table.store(Arc::new(table));
        self.changed.notify_waiters();
    }
}

impl Inner {
    fn end(&mut self, session: &Arc<Session>, registry: &Registry) {
        session.ended.store(true, Relaxed);
        session.change();
        self.withdraw(session);
        self.sessions.remove(&session.id);
        let id = &session.account.id;
        let last = !self
            .sessions
            .values()
            .any(|held| held.session.account.id == *id);
        if last && !registry.rules.expected.expects(id) {
            self.accounts.remove(id);
        }
        registry.publish(self);
    }

    /// Withdraws what the session serves and does not want any more in the same way; returns what was granted to the rest.
    fn keep(&mut self, session: &Session, wanted: &[ServiceDecl]) -> HashMap<ServiceId, Granted> {
        let Some(held) = self.sessions.get_mut(&session.id) else {
            return HashMap::new();
        };
        held.services
            .retain(|service| wanted.contains(&service.declared));
        let granted = |service: &Arc<Service>| {
            let id = service.declared.id;
            let endpoints = service.endpoints.get().into_iter().flatten();
            let port = held.ports.iter().find(|(.., of)| *of == id);
            let granted = Granted {
                endpoints: endpoints.map(|text| Endpoint::new(text)).collect(),
                port: port.map(|(_, port, _)| *port),
            };
            (id, granted)
        };
        let kept: HashMap<ServiceId, Granted> = held.services.iter().map(granted).collect();
        held.names.retain(|(_, id)| kept.contains_key(id));
        let (ports, gone) = std::mem::take(&mut held.ports)
            .into_iter()
            .partition(|(.., id)| kept.contains_key(id));
        held.ports = ports;
        let gone: Vec<(Protocol, u16, ServiceId)> = gone;
        for (protocol, port, id) in gone {
            self.ports.withdraw(protocol, port, session.key, id);
        }
        kept
    }

    fn withdraw(&mut self, session: &Session) {
        let Some(held) = self.sessions.get_mut(&session.id) else {
            return;
        };
        held.services.clear();
        held.names.clear();
        for (protocol, port, id) in std::mem::take(&mut held.ports) {
            self.ports.withdraw(protocol, port, session.key, id);
        }
    }
}

#[cfg(test)]
mod tests;

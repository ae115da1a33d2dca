//! Who is connected and what was granted to whom: the one writer of the routing snapshot. Runs when clients come, go or declare
//! services, never for a visitor.

use std::{
    collections::{HashMap, HashSet},
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use arc_swap::{ArcSwap, ArcSwapOption};
use config::HostPrefix;
use link::{Pacer, Traffic};
use tokio::sync::Notify;
use tunnel::{
    Endpoint, Granted, Message, Refusal, RefusalCode, RejectCode, ServiceDecl, ServiceId,
    ServiceKind, ServiceResult, SessionId,
};

use crate::{
    auth::Users,
    metrics::Metrics,
    ports::{Ports, Protocol},
    routing::{Expected, Found, Kind, Table},
    session::{Account, Service, Session, SessionKey},
};

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

/// Clients of a process before this one, which are on their way.
struct Arrivals {
    until: Instant,
    /// Their ids, if they are known.
    missing: Option<HashSet<String>>,
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
    arrivals: ArcSwapOption<Arrivals>,
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
            arrivals: ArcSwapOption::empty(),
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
            // Made before the look: every change after it is noticed.
            let changed = self.changed.notified();
            let found = self.table.load().find(kind, host, prefix);
            let arrivals = self.arrivals.load();
            let until = arrivals.as_ref().map(|arrivals| arrivals.until);
            drop(arrivals);
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
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
        if ids.as_ref().is_some_and(HashSet::is_empty) {
            return;
        }
        self.arrivals.store(Some(Arc::new(Arrivals {
            until: Instant::now() + patience,
            missing: ids,
        })));
    }

    /// Whether all of them have come, or their time is over.
    pub(crate) fn have_arrived(&self) -> bool {
        let arrivals = self.arrivals.load();
        arrivals
            .as_ref()
            .is_none_or(|arrivals| Instant::now() >= arrivals.until)
    }

    /// A client has said what it serves.
    fn has_arrived(&self, id: &str) {
        let arrivals = self.arrivals.load_full();
        let Some(Arrivals {
            until,
            missing: Some(missing),
        }) = arrivals.as_deref()
        else {
            return;
        };
        if missing.contains(id) {
            let rest: HashSet<String> = missing
                .iter()
                .filter(|other| *other != id)
                .cloned()
                .collect();
            let rest = (!rest.is_empty()).then(|| {
                Arc::new(Arrivals {
                    until: *until,
                    missing: Some(rest),
                })
            });
            self.arrivals.store(rest);
        }
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
        // That a service is not fit now makes it no other service.
        let (wanted, down) = apart(declared);
        let wanted = &wanted[..];
        if let Some((before, answers)) = &held.granted
            && before == wanted
        {
            let answers = answers.clone();
            held.tell_fitness(&down);
            return answers;
        }
        let kept = inner.keep(session, wanted);
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
            held.granted = all.then(|| (wanted.to_vec(), results.clone()));
        }
        // Before the table is there: who is told of the table finds that nothing else is to be waited for.
        self.has_arrived(&session.account.id);
        self.publish(&inner);
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
        session.changed.notify_waiters();
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

    fn grant(
        &mut self,
        session: &Arc<Session>,
        declared: &ServiceDecl,
        registry: &Registry,
    ) -> Result<Granted, Refusal> {
        let service = Arc::new(service(session, declared)?);
        let mut granted = Granted {
            endpoints: Vec::new(),
            port: None,
        };
        let names = names(&session.account, declared)?;
        for name in &names {
            self.check_name(session, name, declared, registry)?;
        }
        let protocol = match declared.kind {
            ServiceKind::Udp => Protocol::Udp,
            _ => Protocol::Tcp,
        };
        if declared.port.is_some() || declared.port_random {
            let held = self
                .sessions
                .get(&session.id)
                .map_or(0, |held| held.ports.len());
            let port = self
                .ports
                .grant(protocol, &service, held)
                .inspect_err(|_| registry.metrics.limit_ports_total.add_one())?;
            granted.port = Some(port);
            let scheme = if protocol == Protocol::Udp {
                "udp"
            } else {
                "tcp"
            };
            let address = SocketAddr::new(self.ports.address(), port);
            granted
                .endpoints
                .push(Endpoint::new(&format!("{scheme}://{address}")));
        }
        granted.endpoints.extend(
            names
                .iter()
                .flat_map(|name| registry.endpoints(name))
                .map(|url| Endpoint::new(&url)),
        );
        let _ = service.endpoints.set(
            granted
                .endpoints
                .iter()
                .map(|endpoint| endpoint.as_str().to_owned())
                .collect(),
        );
        if let Some(held) = self.sessions.get_mut(&session.id) {
            held.names
                .extend(names.into_iter().map(|name| (name, declared.id)));
            held.ports
                .extend(granted.port.map(|port| (protocol, port, declared.id)));
            held.services.push(service);
        }
        Ok(granted)
    }

    fn check_name(
        &self,
        session: &Session,
        name: &Name,
        declared: &ServiceDecl,
        registry: &Registry,
    ) -> Result<(), Refusal> {
        let refuse = |code, message: String| {
            registry.metrics.limit_hosts_total.add_one();
            Err(Refusal {
                code,
                message: Message::new(&message),
            })
        };
        let taken = match name {
            Name::Host(..) => RefusalCode::HostTaken,
            Name::Prefix(..) => RefusalCode::PrefixTaken,
        };
        let account = &session.account;
        let (text, label) = match name {
            Name::Host(_, host) => (host, host.split('.').next().unwrap_or(host)),
            Name::Prefix(_, prefix) => (prefix, prefix.as_str()),
        };
        let status = registry.rules.status_prefix.load();
        if status.as_deref().map(HostPrefix::as_str) == Some(label) {
            return refuse(
                taken,
                format!("{text:?} is the server's status page (statusHostPrefix)"),
            );
        }
        let own = label.eq_ignore_ascii_case(&account.id);
        let limits = account.limits();
        if !own && registry.rules.expected.expects(label) {
            return refuse(
                taken,
                format!("{text:?} is reserved for the client with that id"),
            );
        }
        if !own
            && !limits.host_regex.is_empty()
            && !limits.host_regex.iter().any(|regex| regex.is_match(text))
        {
            return refuse(
                RefusalCode::HostNotAllowed,
                format!("{text:?} does not match any hostRegex of this client"),
            );
        }
        let number = limits.host_number as usize;
        let mut distinct: Vec<&str> = self.names_of(&account.id).collect();
        distinct.sort_unstable();
        distinct.dedup();
        if number > 0 && !distinct.contains(&text.as_str()) && distinct.len() >= number {
            return refuse(
                RefusalCode::TooMany,
                format!("this client may hold {number} host names or prefixes (hostNumber)"),
            );
        }
        let others = self
            .sessions
            .values()
            .flat_map(|held| held.names.iter().map(move |(name, id)| (held, name, id)));
        for (held, other, id) in others {
            let clash = match (name, other) {
                (Name::Host(a, x), Name::Prefix(b, y)) | (Name::Prefix(b, y), Name::Host(a, x)) => {
                    a == b
                        && x.split('.').next() == Some(y)
                        && held.session.account.id != account.id
                }
                (name, other) => name == other && !shares(session, declared, held, *id),
            };
            if clash {
                return refuse(
                    taken,
                    format!("{text:?} is already used by another service"),
                );
            }
        }
        Ok(())
    }

    fn names_of<'a>(&'a self, id: &'a str) -> impl Iterator<Item = &'a str> {
        let held = self
            .sessions
            .values()
            .filter(move |held| held.session.account.id == id);
        held.flat_map(|held| &held.names)
            .map(|(name, _)| match name {
                Name::Host(_, text) | Name::Prefix(_, text) => text.as_str(),
            })
    }
}

/// Whether the new service may stand beside the one that has the name already.
fn shares(session: &Session, declared: &ServiceDecl, held: &Held, id: ServiceId) -> bool {
    if held.session.key == session.key || held.session.account.id != session.account.id {
        return false;
    }
    let other = held
        .services
        .iter()
        .find(|service| service.declared.id == id);
    session.account.load_balance()
        || declared.load_balance.is_some()
            && other.is_some_and(|other| other.declared.load_balance == declared.load_balance)
}

impl Registry {
    /// What to tell the client. `*` stands for the name under which the server is reached, which only the client knows.
    fn endpoints(&self, name: &Name) -> Vec<String> {
        let (kind, host) = match name {
            Name::Host(kind, host) => (kind, host.clone()),
            Name::Prefix(kind, prefix) => (kind, format!("{prefix}.*")),
        };
        let url = |scheme: &str, usual: u16, address: SocketAddr| match address.port() {
            port if port == usual => format!("{scheme}://{host}"),
            port => format!("{scheme}://{host}:{port}"),
        };
        match kind {
            Kind::Http => {
                let http = self.rules.http.map(|address| url("http", 80, address));
                http.into_iter()
                    .chain(self.rules.https.map(|address| url("https", 443, address)))
                    .collect()
            }
            Kind::Tls => self
                .rules
                .sni
                .map(|address| url("https", 443, address))
                .into_iter()
                .collect(),
        }
    }
}

/// The names a service asks for, with the account's rules applied.
fn names(account: &Account, declared: &ServiceDecl) -> Result<Vec<Name>, Refusal> {
    let invalid = |message| {
        Err(Refusal {
            code: RefusalCode::Invalid,
            message: Message::new(message),
        })
    };
    let kinds: &[Kind] = match declared.kind {
        ServiceKind::Http => &[Kind::Http],
        // The client can also dial TLS itself for visitors whose TLS ended at the server.
        ServiceKind::Tls => &[Kind::Tls, Kind::Http],
        ServiceKind::Tcp | ServiceKind::Udp => &[],
        ServiceKind::Unknown(_) => {
            return invalid("this server does not know this kind of service; update it");
        }
    };
    let named = declared.host.is_some() || declared.host_prefix.is_some();
    if kinds.is_empty() && named {
        return invalid("only http and https services are reached by host name");
    }
    if !named && declared.port.is_none() && !declared.port_random {
        return invalid("the service asks for no host name, prefix or port");
    }
    let prefix = declared.host_prefix.as_ref().map(|prefix| {
        let id = account.id.to_ascii_lowercase();
        let with_id = account.limits().host_with_id && prefix.as_str() != id;
        if with_id {
            format!("{id}-{}", prefix.as_str())
        } else {
            prefix.as_str().to_owned()
        }
    });
    let mut names = Vec::new();
    for kind in kinds {
        names.extend(
            declared
                .host
                .as_ref()
                .map(|host| Name::Host(*kind, host.as_str().to_owned())),
        );
        names.extend(prefix.clone().map(|prefix| Name::Prefix(*kind, prefix)));
    }
    Ok(names)
}

/// The services as they are when all is well, and which of them are not.
fn apart(declared: &[ServiceDecl]) -> (Vec<ServiceDecl>, HashSet<ServiceId>) {
    let down = declared.iter().filter(|service| service.down);
    let down = down.map(|service| service.id).collect();
    let wanted = declared.iter().map(|service| ServiceDecl {
        down: false,
        ..service.clone()
    });
    (wanted.collect(), down)
}

impl Held {
    fn tell_fitness(&self, down: &HashSet<ServiceId>) {
        let id = &self.session.account.id;
        for service in &self.services {
            let is = down.contains(&service.declared.id);
            if service.down.swap(is, Relaxed) != is {
                let name = service.declared.name.as_str();
                match is {
                    true => {
                        tracing::warn!(id, service = name, "a service fails its client's checks")
                    }
                    false => tracing::info!(id, service = name, "a service is fit again"),
                }
            }
        }
    }
}

fn service(session: &Arc<Session>, declared: &ServiceDecl) -> Result<Service, Refusal> {
    let rules = proxy::ServiceRules::new(&declared.rules);
    let rules = rules.map_err(|error| Refusal {
        code: RefusalCode::Invalid,
        message: Message::new(&error.to_string()),
    })?;
    if rules.is_some() && (declared.http.is_none() || declared.kind != ServiceKind::Http) {
        return Err(Refusal {
            code: RefusalCode::Invalid,
            message: Message::new("rules for requests are for http services in HTTP mode only"),
        });
    }
    let account = &session.account;
    let pacer = |whole: &Option<Arc<Pacer>>| {
        declared
            .bandwidth
            .map(|bandwidth| Arc::new(Pacer::new(bandwidth, whole.clone())))
            .or_else(|| whole.clone())
    };
    Ok(Service {
        session: Arc::clone(session),
        upload: pacer(&account.upload),
        download: pacer(&account.download),
        traffic: Arc::new(Traffic {
            parent: Some(Arc::clone(&account.traffic)),
            ..Traffic::default()
        }),
        visitors_total: AtomicU64::new(0),
        endpoints: OnceLock::new(),
        rules: rules.map(Arc::new),
        down: AtomicBool::new(false),
        declared: declared.clone(),
    })
}

//! A client that is connected: its links' places, its services, its shares of the limits. Shared by all workers; the links themselves
//! stay on their workers.

use std::{
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{
            AtomicBool, AtomicU32, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::Instant,
};

use arc_swap::{ArcSwap, Guard};
use config::Limits;
use link::{Link, Pacer, Traffic};
use tokio::sync::Notify;
use tunnel::{Assembler, ServiceDecl, SessionId};

/// Names a session in the tables of the workers; never given out twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SessionKey(pub(crate) u64);

/// What a client's sessions share: limits and counters belong to the id, not to a session.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) id: String,
    limits: ArcSwap<Limits>,
    load_balance: AtomicBool,
    /// From visitors to the client.
    pub(crate) upload: Option<Arc<Pacer>>,
    /// From the client to visitors.
    pub(crate) download: Option<Arc<Pacer>>,
    pub(crate) traffic: Arc<Traffic>,
    pub(crate) streams: AtomicU32,
    pub(crate) streams_total: AtomicU64,
}

impl Account {
    pub(crate) fn new(id: &str, limits: Limits, load_balance: bool) -> Self {
        let pacer = || {
            limits
                .speed
                .map(|speed| Arc::new(Pacer::new(speed.get(), None)))
        };
        Self {
            id: id.to_owned(),
            upload: pacer(),
            download: pacer(),
            load_balance: AtomicBool::new(load_balance),
            traffic: Arc::default(),
            streams: AtomicU32::new(0),
            streams_total: AtomicU64::new(0),
            limits: ArcSwap::from_pointee(limits),
        }
    }

    pub(crate) fn limits(&self) -> Guard<Arc<Limits>> {
        self.limits.load()
    }

    pub(crate) fn load_balance(&self) -> bool {
        self.load_balance.load(Relaxed)
    }

    /// Other limits from now on; what is over them stays. A speed can change here but not come or go.
    pub(crate) fn set(&self, limits: &Limits, load_balance: bool) {
        if let Some(speed) = limits.speed {
            for pacer in self.upload.iter().chain(&self.download) {
                pacer.set(speed.get());
            }
        }
        self.limits.store(Arc::new(limits.clone()));
        self.load_balance.store(load_balance, Relaxed);
    }

    /// Takes a place for one stream, if there is one.
    pub(crate) fn enter(self: &Arc<Self>) -> Option<StreamPlace> {
        self.take_place().then(|| StreamPlace(Arc::clone(self)))
    }

    /// Takes a place; each success is followed by one [`Account::give_place`].
    pub(crate) fn take_place(&self) -> bool {
        let limit = self.limits().streams;
        let add = |n| (n < limit).then_some(n + 1);
        let taken = self.streams.fetch_update(Relaxed, Relaxed, add).is_ok();
        if taken {
            self.streams_total.fetch_add(1, Relaxed);
        }
        taken
    }

    pub(crate) fn give_place(&self) {
        self.streams.fetch_sub(1, Relaxed);
    }
}

/// One of the account's streams, until dropped.
#[derive(Debug)]
pub(crate) struct StreamPlace(Arc<Account>);

impl Drop for StreamPlace {
    fn drop(&mut self) {
        self.0.give_place();
    }
}

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) key: SessionKey,
    pub(crate) id: SessionId,
    pub(crate) account: Arc<Account>,
    /// How many links each worker holds.
    links: Box<[AtomicU32]>,
    link_numbers: AtomicU32,
    /// Grows when a link ends or is left.
    pub(crate) links_ended: AtomicU32,
    /// Links that are let in and whose handshake is not done: they count against the limit, and keep the session.
    arriving_links: AtomicU32,
    /// How often a link has come up, or the session has ended.
    changes: AtomicU64,
    /// One more of them.
    changed: Notify,
    pub(crate) ended: AtomicBool,
    /// The client has said that it stops: what it holds is free once its last link is gone.
    pub(crate) said_goodbye: AtomicBool,
    /// Parts of the service set that the client is declaring.
    pub(crate) arriving: Mutex<Assembler<ServiceDecl>>,
    /// Links over UDP by number.
    monitors: Mutex<Vec<(u16, Monitor)>>,
}

/// Reads a link's figures from any thread.
#[derive(Clone, Debug)]
pub(crate) enum Monitor {
    Kcp(net::kcp::Monitor),
    /// With the count of datagrams from the client that were repaired.
    Quic(quic::Connection, Arc<AtomicU64>),
}

impl Monitor {
    /// `None` where there are no figures. Those of the link itself come with [`Self::with`].
    pub(crate) fn of(transport: &link::Transport) -> Option<Self> {
        let kcp = transport
            .as_stream()
            .and_then(net::Stream::kcp_monitor)
            .map(Self::Kcp);
        let quic = || transport.as_quic().cloned();
        kcp.or_else(|| Some(Self::Quic(quic()?, Arc::default())))
    }

    /// Now that the transport has become a link.
    pub(crate) fn with(self, link: &Link) -> Self {
        match self {
            Self::Quic(connection, _) => Self::Quic(connection, link.repaired()),
            kcp @ Self::Kcp(_) => kcp,
        }
    }
}

impl Session {
    pub(crate) fn new(
        key: SessionKey,
        id: SessionId,
        account: Arc<Account>,
        workers: usize,
    ) -> Self {
        Self {
            key,
            id,
            account,
            links: (0..workers).map(|_| AtomicU32::new(0)).collect(),
            link_numbers: AtomicU32::new(0),
            links_ended: AtomicU32::new(0),
            arriving_links: AtomicU32::new(0),
            changes: AtomicU64::new(0),
            changed: Notify::new(),
            ended: AtomicBool::new(false),
            said_goodbye: AtomicBool::new(false),
            arriving: Mutex::default(),
            monitors: Mutex::default(),
        }
    }

    /// A link has come up and is at its worker, or the session has ended.
    pub(crate) fn change(&self) {
        self.changes.fetch_add(1, SeqCst);
        self.changed.notify_waiters();
    }

    /// To be taken before a look for a link, for [`Session::changed_since`].
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(SeqCst)
    }

    /// Waits for the next change; at once where there was one since `seen`, on whichever thread the look was.
    pub(crate) async fn changed_since(&self, seen: u64) {
        // Made before the count is read, so that no change is missed between the two.
        let changed = self.changed.notified();
        if self.changes() == seen {
            changed.await;
        }
    }

    /// As [`Session::changed_since`], until `until` at most. Whether another look for a link is worth it: not where nothing changed in time, nor
    /// where the session has ended, before this or meanwhile.
    pub(crate) async fn has_changed_by(&self, seen: u64, until: Instant) -> bool {
        // Its end is written down before it is counted as a change: one that `seen` counts is seen here.
        let gone = || self.ended.load(Relaxed);
        if gone() {
            return false;
        }
        let changed = tokio::time::timeout_at(until.into(), self.changed_since(seen)).await;
        changed.is_ok() && !gone()
    }

    /// Links on all workers.
    pub(crate) fn link_count(&self) -> u32 {
        self.links.iter().map(|links| links.load(Relaxed)).sum()
    }

    /// Links that are up and links that are on their way.
    pub(crate) fn link_claims(&self) -> u32 {
        self.link_count() + self.arriving_links.load(Relaxed)
    }

    /// A link was let in; each call is followed by one of [`Session::arrival_ended`].
    pub(crate) fn link_arrives(&self) {
        self.arriving_links.fetch_add(1, Relaxed);
    }

    /// The link has its place now, or its handshake failed.
    pub(crate) fn arrival_ended(&self) {
        self.arriving_links.fetch_sub(1, Relaxed);
    }

    pub(crate) fn has_link_on(&self, worker: usize) -> bool {
        self.links[worker].load(Relaxed) > 0
    }

    /// The workers that hold a link, in the order of the ring that begins at `from`, so that work spreads.
    pub(crate) fn workers_with_links(&self, from: usize) -> impl Iterator<Item = usize> {
        let n = self.links.len();
        (0..n)
            .map(move |step| (from + step) % n)
            .filter(|worker| self.has_link_on(*worker))
    }

    /// The first of them after `here`, which is left out.
    pub(crate) fn next_with_link(&self, here: usize) -> Option<usize> {
        self.workers_with_links(here + 1)
            .find(|other| *other != here)
    }

    /// The worker that should get the next link: the one with the fewest, `here` if it is among them. The link is counted at once.
    pub(crate) fn place_link(&self, here: usize) -> LinkPlace<'_> {
        let fewest = self
            .links
            .iter()
            .map(|links| links.load(Relaxed))
            .min()
            .unwrap_or(0);
        let fits = |worker: &usize| self.links[*worker].load(Relaxed) == fewest;
        let worker = Some(here)
            .filter(fits)
            .or_else(|| (0..self.links.len()).find(fits))
            .unwrap_or(here);
        self.links[worker].fetch_add(1, Relaxed);
        LinkPlace {
            session: self,
            worker,
        }
    }

    /// A place on this worker, for a link that cannot move. The link is counted at once.
    pub(crate) fn place_link_at(&self, worker: usize) -> LinkPlace<'_> {
        self.links[worker].fetch_add(1, Relaxed);
        LinkPlace {
            session: self,
            worker,
        }
    }

    /// A link over UDP whose figures status pages show.
    pub(crate) fn watch(&self, number: u16, monitor: Monitor) {
        self.monitors().push((number, monitor));
    }

    /// The link has ended.
    pub(crate) fn unwatch(&self, number: u16) {
        self.monitors().retain(|(other, _)| *other != number);
    }

    pub(crate) fn monitors(&self) -> MutexGuard<'_, Vec<(u16, Monitor)>> {
        self.monitors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the session's links, for the log.
    pub(crate) fn next_link_number(&self) -> u32 {
        self.link_numbers.fetch_add(1, Relaxed)
    }

    pub(crate) fn link_ended(&self, worker: usize) {
        self.links_ended.fetch_add(1, Relaxed);
        self.links[worker].fetch_sub(1, Relaxed);
    }
}

/// Where a new link goes.
#[derive(Debug)]
pub(crate) struct LinkPlace<'a> {
    session: &'a Session,
    pub(crate) worker: usize,
}

impl LinkPlace<'_> {
    /// The link could not be brought there.
    pub(crate) fn give_back(self) {
        self.session.link_ended(self.worker);
    }
}

/// One service of one session.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) session: Arc<Session>,
    pub(crate) declared: ServiceDecl,
    /// What is done to its requests in HTTP mode.
    pub(crate) rules: Option<Arc<proxy::ServiceRules>>,
    /// Its client says that it fails its checks. Of `declared` this is no part: it comes and goes.
    pub(crate) down: AtomicBool,
    /// The service's own limits, before the account's.
    pub(crate) upload: Option<Arc<Pacer>>,
    pub(crate) download: Option<Arc<Pacer>>,
    pub(crate) traffic: Arc<Traffic>,
    pub(crate) visitors_total: AtomicU64,
    /// Where visitors reach it; set when it was granted.
    pub(crate) endpoints: OnceLock<Vec<String>>,
}

impl Service {
    /// Its client has a link, and has not said that its checks fail.
    pub(crate) fn is_fit(&self) -> bool {
        !self.down.load(Relaxed) && self.session.link_count() > 0
    }

    /// Whether the visitor may come: `deny` goes before `allow`; no `allow` allows all.
    pub(crate) fn admits(&self, visitor: IpAddr) -> bool {
        let visitor = visitor.to_canonical();
        let ServiceDecl { allow, deny, .. } = &self.declared;
        !deny.iter().any(|net| net.contains(visitor))
            && (allow.is_empty() || allow.iter().any(|net| net.contains(visitor)))
    }
}

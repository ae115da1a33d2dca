//! What one data thread has of the proxy: its view of the site, its counters, its clock.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use route::{AuthTable, RateTable, UpstreamId};

use crate::{
    aside::Aside,
    clock::Clock,
    compress::Places,
    log::Lines,
    metrics::Metrics,
    relay::{Pool, Relay},
    site::SharedSite,
    upstream::Upstream,
};

/// Lives on its thread; nothing in it is locked.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) clock: Rc<Clock>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) lines: Option<Lines>,
    /// Services of relay clients, where this is a server's.
    pub(crate) relay: Option<Arc<dyn Relay>>,
    pub(crate) relayed: Pool,
    /// Shared by all workers.
    pub(crate) aside: Aside,
    pub(crate) encoders: Places,
    local: RefCell<Rc<Local>>,
    /// How long kept connections wait for one more request, once no new ones are taken.
    draining: Cell<Option<Duration>>,
}

/// A site and what this worker keeps for it. Exchanges hold the one that they began with.
#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) site: SharedSite,
    upstreams: Vec<Option<Rc<Upstream>>>,
    /// Stands in for an upstream where a request goes to a relayed service.
    pub(crate) relay: Option<Rc<Upstream>>,
    /// By route; empty where the route has no limit.
    rates: Vec<Option<RefCell<RateTable>>>,
    pub(crate) passwords: RefCell<AuthTable>,
    pub(crate) heads: Heads,
    /// A route bounds the time of its exchanges.
    pub(crate) timed: bool,
}

/// What holds before a route is known: the most that any route allows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heads {
    pub(crate) limits: h1::Limits,
    pub(crate) header: Duration,
}

thread_local! {
    static CURRENT: RefCell<Option<Rc<Worker>>> = const { RefCell::new(None) };
}

impl Worker {
    /// The worker of this thread.
    pub(crate) fn current() -> Option<Rc<Self>> {
        CURRENT.with_borrow(Option::clone)
    }

    /// Makes it this thread's, and begins what it does by itself.
    pub(crate) fn install(self: &Rc<Self>) {
        CURRENT.with_borrow_mut(|current| *current = Some(Rc::clone(self)));
        tokio::task::spawn_local(Rc::clone(&self.clock).run());
        tokio::task::spawn_local(Rc::clone(self).housekeeping());
    }

    pub(crate) fn new(
        site: SharedSite,
        metrics: Arc<Metrics>,
        lines: Option<Lines>,
        aside: Aside,
        relay: Option<Arc<dyn Relay>>,
    ) -> Rc<Self> {
        let clock = Clock::new();
        let local = Local::new(site, relay.is_some(), clock.precise());
        Rc::new(Self {
            clock,
            metrics,
            lines,
            relay,
            relayed: Pool::default(),
            aside,
            encoders: Places::default(),
            local: RefCell::new(Rc::new(local)),
            draining: Cell::new(None),
        })
    }

    pub(crate) fn local(&self) -> Rc<Local> {
        Rc::clone(&self.local.borrow())
    }

    /// From now on requests are served by another site; those under way end with theirs.
    pub(crate) fn set_site(&self, site: SharedSite) {
        let local = Local::new(site, self.relay.is_some(), self.clock.precise());
        *self.local.borrow_mut() = Rc::new(local);
    }

    /// Connections end with the exchange that is under way; where none is, with the next one, if it comes within `last`.
    pub(crate) fn drain(&self, last: Duration) {
        self.draining.set(Some(last));
        // Links whose streams have ended can go.
        self.relayed.clear();
        self.clock.wake_all();
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.get().is_some()
    }

    /// How long a kept connection may still wait, if connections are to end.
    pub(crate) fn last_request(&self) -> Option<Duration> {
        self.draining.get()
    }

    /// What must be done now and then; runs for as long as the worker does.
    pub(crate) async fn housekeeping(self: Rc<Self>) {
        let mut rounds = 0u32;
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if let Some(lines) = &self.lines {
                lines.flush();
            }
            rounds = rounds.wrapping_add(1);
            let local = self.local();
            let now = self.clock.coarse();
            for upstream in local.upstreams.iter().flatten() {
                upstream.sweep(now);
            }
            self.relayed.sweep(now);
        }
    }
}

impl Local {
    /// `relays`: visitors may also be those of relay services.
    fn new(site: SharedSite, relays: bool, now: Duration) -> Self {
        let upstreams = (0..site.upstreams.len())
            .map(|index| Upstream::new(&site, index, now).map(Rc::new))
            .collect();
        let rates = site
            .routes
            .iter()
            .map(|route| {
                route
                    .access
                    .rate
                    .as_ref()
                    .map(|limit| RefCell::new(RateTable::new(limit.keys(), rand::random())))
            })
            .collect();
        let timed = |route: &route::Route| route.timeouts.total.is_some();
        let timed = timed(&site.relay.route) || site.routes.iter().any(timed);
        Self {
            upstreams,
            relay: Upstream::new(&site, usize::MAX, now).map(Rc::new),
            rates,
            passwords: RefCell::new(AuthTable::new(&rand::random())),
            heads: Heads::of(&site, relays),
            timed,
            site,
        }
    }

    pub(crate) fn upstreams(&self) -> impl Iterator<Item = (usize, &Rc<Upstream>)> {
        let upstreams = self.upstreams.iter().enumerate();
        upstreams.filter_map(|(index, upstream)| Some((index, upstream.as_ref()?)))
    }

    pub(crate) fn upstream(&self, id: UpstreamId) -> Option<&Rc<Upstream>> {
        self.upstreams.get(usize::try_from(id.0).ok()?)?.as_ref()
    }

    pub(crate) fn rate(&self, route: route::RouteId) -> Option<&RefCell<RateTable>> {
        self.rates.get(usize::try_from(route.0).ok()?)?.as_ref()
    }
}

impl Heads {
    fn of(site: &SharedSite, relays: bool) -> Self {
        let routes = || {
            let others = relays.then_some(&site.relay.route);
            site.routes.iter().chain(others)
        };
        let bytes = routes().map(|route| route.limits.header_bytes).max();
        let fields = routes().map(|route| route.limits.header_fields).max();
        let header = routes().map(|route| route.timeouts.header).max();
        let (limits, times) = (route::Limits::default(), route::Timeouts::default());
        let head = bytes.unwrap_or(limits.header_bytes) as usize;
        Self {
            limits: h1::Limits {
                head,
                fields: usize::from(fields.unwrap_or(limits.header_fields)),
                target: head / 2,
                // How many requests, and whether what is left of a body is worth reading, is the route's to say.
                drain: u64::MAX,
                requests: u64::MAX,
                ..h1::Limits::default()
            },
            header: header.unwrap_or(times.header),
        }
    }
}

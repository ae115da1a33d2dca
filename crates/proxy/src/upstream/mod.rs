//! An upstream on one worker: which server is next, connections that wait for a request, and how its servers do.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    io,
    net::SocketAddr,
    rc::Rc,
    time::Duration,
};

use route::{
    Admission, Balancer, Breaker, Change, Health, Outcome, PickRequest, Report, RetryBudget,
    ServerIndex, Ticket,
};
use tokio::sync::oneshot;

use crate::{
    clock::Clock,
    conn::Conn,
    h2_server::{self, ServerStream},
    pipeline::Pipe,
    relay::{NoStream, RelayStream},
    site::{SharedSite, UpstreamServer, UpstreamSpec},
};

mod connect;

/// One upstream; all requests of a worker share it.
#[derive(Debug)]
pub(crate) struct Upstream {
    site: SharedSite,
    index: usize,
    balancer: RefCell<Balancer>,
    pub(crate) health: RefCell<Health>,
    breaker: RefCell<Breaker>,
    /// Requests in the breaker's queue.
    waiting: RefCell<HashMap<Ticket, oneshot::Sender<()>>>,
    retry: RefCell<RetryBudget>,
    servers: Vec<Server>,
}

/// What a worker keeps for one server.
#[derive(Debug, Default)]
struct Server {
    /// Connections that wait, the one used last at the end.
    idle: RefCell<Vec<Idle>>,
    /// Connections that several requests share.
    pipes: RefCell<Vec<Pipe>>,
    resolved: RefCell<Option<Resolved>>,
    /// Connections over HTTP/2.
    http2: Rc<h2_server::Pool>,
    /// It was asked by ALPN and has chosen HTTP/1.1.
    chose_http1: Cell<bool>,
}

#[derive(Debug)]
struct Idle {
    conn: Conn,
    since: Duration,
    requests: u32,
}

#[derive(Clone, Debug)]
struct Resolved {
    at: Duration,
    addresses: Rc<[SocketAddr]>,
}

/// A connection for one exchange.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) conn: Conn,
    /// Requests it carried before.
    pub(crate) requests: u32,
}

/// Why there is no connection.
#[derive(Debug)]
pub(crate) enum NoConnection {
    /// The server refused or could not be reached.
    Failed(io::Error),
    /// Not within the time.
    TimedOut,
    /// A relayed service's client has no stream for it.
    Relay(NoStream),
}

impl Lease {
    fn socket(stream: net::Stream) -> Self {
        Self {
            conn: Conn::Socket(stream),
            requests: 0,
        }
    }

    pub(crate) fn http2(stream: ServerStream) -> Self {
        Self {
            requests: stream.requests_before(),
            conn: Conn::H2Server(Box::new(stream)),
        }
    }

    /// A new stream to a relayed service.
    pub(crate) fn relayed(stream: RelayStream) -> Self {
        Self {
            conn: Conn::Relay(Box::new(stream)),
            requests: 0,
        }
    }
}

/// A request that is under way; leaves when dropped.
#[derive(Debug)]
pub(crate) struct Admitted(Rc<Upstream>);

impl Drop for Admitted {
    fn drop(&mut self) {
        let upstream = &self.0;
        loop {
            let Some(ticket) = upstream.breaker.borrow_mut().leave() else {
                return;
            };
            let waiting = upstream.waiting.borrow_mut().remove(&ticket);
            // One that no longer listens is in all the same, and leaves at once.
            if waiting.is_some_and(|waiting| waiting.send(()).is_ok()) {
                return;
            }
        }
    }
}

/// A server that was picked, counted until the exchange is over.
#[derive(Debug)]
pub(crate) struct Picked {
    upstream: Rc<Upstream>,
    pub(crate) server: ServerIndex,
    /// The visitor is on the server its cookie names.
    pub(crate) sticky: bool,
    open: bool,
}

impl Upstream {
    pub(crate) fn new(site: &SharedSite, index: usize, now: Duration) -> Option<Self> {
        let spec = site.upstream(index);
        let specs: Vec<_> = spec
            .servers
            .iter()
            .map(|server| server.spec.clone())
            .collect();
        let mut balancer = Balancer::new(spec.policy, spec.slow_start, &specs).ok()?;
        if let Some((_, sticky)) = &spec.sticky {
            balancer = balancer.with_sticky(sticky, &specs);
        }
        Some(Self {
            index,
            balancer: RefCell::new(balancer),
            health: RefCell::new(Health::new(&spec.health, specs.len(), now, rand::random)),
            breaker: RefCell::new(Breaker::new(spec.breaker)),
            waiting: RefCell::default(),
            retry: RefCell::new(RetryBudget::new(spec.retry)),
            servers: specs.iter().map(|_| Server::default()).collect(),
            site: SharedSite::clone(site),
        })
    }

    pub(crate) fn spec(&self) -> &UpstreamSpec {
        self.site.upstream(self.index)
    }

    pub(crate) fn server(&self, server: ServerIndex) -> &UpstreamServer {
        &self.spec().servers[usize::from(server.0)]
    }

    /// Whether there is more than one server to pick from.
    pub(crate) fn has_choice(&self) -> bool {
        self.servers.len() > 1
    }

    /// A place among the requests under way, if there is one now.
    pub(crate) fn try_enter(
        self: &Rc<Self>,
        now: Duration,
    ) -> Result<Admitted, Option<Box<Queued>>> {
        self.retry.borrow_mut().request(now);
        let admission = self.breaker.borrow_mut().enter(now);
        match admission {
            Admission::Go => Ok(Admitted(Rc::clone(self))),
            Admission::Refused => Err(None),
            Admission::Wait(ticket, until) => {
                let (tell, told) = oneshot::channel();
                self.waiting.borrow_mut().insert(ticket, tell);
                Err(Some(Box::new(Queued {
                    upstream: Rc::clone(self),
                    ticket: Some(ticket),
                    told,
                    patience: until.saturating_sub(now),
                })))
            }
        }
    }

    /// Picks a server, or `None` if there is none to try.
    pub(crate) fn pick(self: &Rc<Self>, request: &PickRequest<'_>) -> Option<Picked> {
        self.readmit(request.now);
        let health = self.health.borrow();
        let pick = self
            .balancer
            .borrow_mut()
            .pick(request, |server| health.available(server, request.now))?;
        self.balancer.borrow_mut().started(pick.server);
        Some(Picked {
            upstream: Rc::clone(self),
            server: pick.server,
            sticky: pick.sticky,
            open: true,
        })
    }

    /// The cookie's value for a server.
    pub(crate) fn write_sticky_tag(&self, server: ServerIndex, out: &mut Vec<u8>) {
        if let Some(tag) = self.balancer.borrow().sticky_tag(server) {
            out.extend_from_slice(tag.as_bytes());
        }
    }

    pub(crate) fn may_retry(&self, now: Duration) -> bool {
        self.retry.borrow_mut().try_retry(now)
    }

    /// Says how a server did.
    pub(crate) fn report(&self, server: ServerIndex, report: Report, now: Duration) {
        let change = self.health.borrow_mut().report(server, report, now);
        self.apply(change, now);
    }

    pub(crate) fn apply(&self, change: Option<Change>, now: Duration) {
        match change {
            Some(Change::Down(server)) => {
                let name = &self.server(server).spec.name;
                tracing::warn!(upstream = %self.spec().name, server = %name, "a server is taken out: its requests or checks fail");
                let kept = &self.servers[usize::from(server.0)];
                kept.idle.borrow_mut().clear();
                kept.pipes.borrow_mut().clear();
                kept.http2.clear();
            }
            Some(Change::Up(server)) => {
                let name = &self.server(server).spec.name;
                tracing::info!(upstream = %self.spec().name, server = %name, "a server is back");
                self.balancer.borrow_mut().came_up(server, now);
            }
            None => {}
        }
    }

    fn readmit(&self, now: Duration) {
        loop {
            let change = self.health.borrow_mut().readmit(now);
            if change.is_none() {
                return;
            }
            self.apply(change, now);
        }
    }

    /// A connection that waited and is still there.
    pub(crate) fn waiting_connection(&self, server: ServerIndex, now: Duration) -> Option<Lease> {
        let keep = self.spec().keep_alive;
        let known = &self.servers[usize::from(server.0)];
        if self.speaks_http2(server)
            && let Some(stream) = known.http2.stream(keep, now)
        {
            return Some(Lease::http2(stream));
        }
        let mut idle = known.idle.borrow_mut();
        while let Some(mut waiting) = idle.pop() {
            if now.saturating_sub(waiting.since) < keep.idle && waiting.conn.is_quiet() {
                return Some(Lease {
                    conn: waiting.conn,
                    requests: waiting.requests,
                });
            }
        }
        None
    }

    /// A place on a connection that others share; the fullest that has one, so that much goes in one write.
    pub(crate) fn shared_connection(&self, server: ServerIndex, head_only: bool) -> Option<Lease> {
        let mut pipes = self.servers[usize::from(server.0)].pipes.borrow_mut();
        let found = pipes.iter().find_map(|pipe| pipe.enter(head_only));
        if found.is_none() {
            pipes.retain(Pipe::is_open);
        }
        found.map(|stream| Lease {
            conn: Conn::Piped(stream),
            requests: 1,
        })
    }

    /// Makes a connection one that others share, and gives its first place.
    pub(crate) fn share(
        &self,
        server: ServerIndex,
        lease: Lease,
        head_only: bool,
        limits: &h1::Limits,
        clock: &Rc<Clock>,
    ) -> Option<Lease> {
        let keep = self.spec().keep_alive;
        let most = keep.max_requests.saturating_sub(lease.requests);
        let pipe = Pipe::new(lease.conn, limits, keep, most, clock);
        let stream = pipe.enter(head_only)?;
        self.servers[usize::from(server.0)]
            .pipes
            .borrow_mut()
            .push(pipe);
        Some(Lease {
            conn: Conn::Piped(stream),
            requests: lease.requests,
        })
    }

    /// Keeps a connection for the next request.
    pub(crate) fn keep(&self, server: ServerIndex, lease: Lease, now: Duration) {
        if lease.conn.is_shared() || lease.conn.is_http2() {
            // Their connections stay where they are.
            return;
        }
        let keep = self.spec().keep_alive;
        let requests = lease.requests + 1;
        let mut idle = self.servers[usize::from(server.0)].idle.borrow_mut();
        if requests < keep.max_requests && idle.len() < keep.max_idle {
            idle.push(Idle {
                conn: lease.conn,
                since: now,
                requests,
            });
        }
    }

    /// Closes connections that waited for too long or were closed by the server. Called now and then.
    pub(crate) fn sweep(&self, now: Duration) {
        let keep = self.spec().keep_alive;
        for server in &self.servers {
            server.pipes.borrow_mut().retain(Pipe::is_open);
            server.idle.borrow_mut().retain_mut(|waiting| {
                now.saturating_sub(waiting.since) < keep.idle && waiting.conn.is_quiet()
            });
            server.http2.sweep(keep, now);
        }
        self.readmit(now);
    }
}

/// A place in the queue, given up when dropped.
#[derive(Debug)]
pub(crate) struct Queued {
    upstream: Rc<Upstream>,
    ticket: Option<Ticket>,
    told: oneshot::Receiver<()>,
    patience: Duration,
}

impl Queued {
    /// Waits its turn; `None` when that took too long.
    pub(crate) async fn wait(mut self) -> Option<Admitted> {
        let told = tokio::time::timeout(self.patience, &mut self.told).await;
        matches!(told, Ok(Ok(()))).then(|| {
            self.ticket = None;
            Admitted(Rc::clone(&self.upstream))
        })
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        self.upstream.waiting.borrow_mut().remove(&ticket);
        if !self.upstream.breaker.borrow_mut().give_up(ticket) {
            // It was let in as it gave up.
            drop(Admitted(Rc::clone(&self.upstream)));
        }
    }
}

impl Picked {
    pub(crate) fn upstream(&self) -> &Rc<Upstream> {
        &self.upstream
    }

    /// The exchange is over.
    pub(crate) fn finish(mut self, now: Duration, outcome: Outcome) {
        self.open = false;
        self.upstream
            .balancer
            .borrow_mut()
            .finished(self.server, now, outcome);
    }
}

impl Drop for Picked {
    fn drop(&mut self) {
        if self.open {
            self.upstream.balancer.borrow_mut().finished(
                self.server,
                Duration::ZERO,
                Outcome::Failed,
            );
        }
    }
}

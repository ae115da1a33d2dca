//! A request for an upstream: a place among those under way, a server, a connection, and another server if that one fails.

use std::{cell::Cell, rc::Rc, time::Duration};

use ::tunnel::ResetReason;
use h1::{Framing, Request};
use route::{Outcome, PickRequest, Report as Health, Route, ServerIndex, ToUpstream, Tried};

use super::{
    Context, FieldView, Next, Refusal,
    attempt::{Done, Why},
    relayed::{self, Relayed},
};
use crate::{
    log::Phase,
    upstream::{Admitted, Lease, NoConnection, Picked, Queued, Upstream},
    visitor::Connection,
    work::Work,
};

/// A request on its way to an upstream.
pub(super) struct Forward<'a> {
    pub(super) context: &'a Context<'a>,
    pub(super) route: &'a Route,
    pub(super) to: &'a ToUpstream,
    /// A stand-in, where a relayed service is the target.
    pub(super) upstream: &'a Rc<Upstream>,
    pub(super) relayed: Option<Relayed>,
}

/// Why the attempt before this one failed.
enum Last {
    NoConnection(ServerIndex, NoConnection),
    Unanswered(ServerIndex, Why),
}

impl Forward<'_> {
    pub(super) async fn run(&self, connection: &mut Connection, work: &mut Work) -> Next {
        let worker = self.context.worker;
        let admitted = match self.upstream.try_enter(worker.clock.coarse()) {
            Ok(admitted) => Some(admitted),
            Err(None) => None,
            Err(Some(queued)) => Box::pin(self.queue(*queued)).await,
        };
        let Some(_admitted) = admitted else {
            worker.metrics.proxy_unavailable_total.add_one();
            let text = "The service has as many requests as it can take. Try again soon.";
            let refusal = match self.context.is_too_late() {
                true => Refusal::too_late(Phase::Queue, ""),
                false => Refusal::unavailable(text),
            };
            return self.refuse(connection, work, refusal).await;
        };
        let _inside = match self.relayed.as_ref().map(Relayed::enter) {
            None => None,
            Some(Ok(inside)) => Some(inside),
            Some(Err(refusal)) => {
                worker.metrics.proxy_unavailable_total.add_one();
                return self.refuse(connection, work, refusal).await;
            }
        };
        let mut tried = Tried::default();
        let mut retries = 0;
        // The server that failed last, and why if it was not reached at all.
        let mut failed: Option<Last> = None;
        let mut shares = self.sharing(work);
        loop {
            let Some(picked) = self.pick(work, tried) else {
                let refusal = match &failed {
                    Some(Last::NoConnection(server, failed)) => self.no_connection(*server, failed),
                    Some(Last::Unanswered(server, why)) => self.unanswered(*server, *why),
                    None => {
                        worker.metrics.proxy_unavailable_total.add_one();
                        Refusal::unavailable("No server of this service is available now.")
                    }
                };
                return self.refuse(connection, work, refusal).await;
            };
            let server = picked.server;
            let now = worker.clock.coarse();
            let lease = match self.at_hand(server, shares, now) {
                Some(lease) => Ok(lease),
                None => Box::pin(self.open(&picked, work, shares)).await,
            };
            let lease = match lease {
                Ok(lease) => lease,
                Err(error) => {
                    self.upstream.report(server, Health::Unreachable, now);
                    picked.finish(now, Outcome::Failed);
                    tried.insert(server);
                    if self.may_retry(&mut retries) {
                        failed = Some(Last::NoConnection(server, error));
                        continue;
                    }
                    let refusal = self.no_connection(server, &error);
                    return self.refuse(connection, work, refusal).await;
                }
            };
            let reused = lease.requests > 0;
            let shared = lease.conn.is_shared();
            if reused {
                worker.metrics.proxy_upstream_reused_total.add_one();
            }
            let why = match self.exchange(connection, work, &picked, lease).await {
                Done::Over(next) => return next,
                Done::Unanswered(why) => why,
            };
            let now = worker.clock.coarse();
            picked.finish(now, Outcome::Failed);
            // One that was kept and closed meanwhile says nothing of the server, nor does a link that was lost.
            let stale = reused || why.unprocessed || why.reason == Some(ResetReason::LinkLost);
            if !stale {
                self.upstream.report(server, Health::ServerError, now);
                tried.insert(server);
            }
            // Those who share a connection also share its end, whosever fault that was: once more, alone.
            if shared {
                shares = None;
                continue;
            }
            // A relayed service that could not be reached now will not be a moment later.
            let repeatable = work.request.view(&work.saved).is_some_and(is_repeatable);
            if (stale || self.relayed.is_none())
                && (repeatable || why.unprocessed)
                && self.may_retry(&mut retries)
            {
                failed = Some(Last::Unanswered(server, why));
                continue;
            }
            let refusal = self.unanswered(server, why);
            return self.refuse(connection, work, refusal).await;
        }
    }

    /// Waits for a place among the requests under way; `None` if there is none in time.
    async fn queue(&self, queued: Queued) -> Option<Admitted> {
        let patience = self.context.within_total(Duration::MAX);
        let waiting = tokio::time::timeout(patience, queued.wait());
        waiting.await.ok().flatten()
    }

    fn pick(&self, work: &Work, tried: Tried) -> Option<Picked> {
        let request = work.request.view(&work.saved)?;
        let fields = FieldView(request.fields());
        let spec = self.upstream.spec();
        let key = spec
            .hash_key
            .as_ref()
            .and_then(|key| key.of(self.context.visitor.addr.ip(), &fields));
        let sticky = spec
            .sticky
            .as_ref()
            .and_then(|(cookie, _)| route::cookie(&fields, &cookie.name));
        self.upstream.pick(&PickRequest {
            now: self.context.worker.clock.coarse(),
            key,
            sticky,
            tried,
            random: match self.upstream.has_choice() {
                true => random(),
                false => 0,
            },
        })
    }

    /// Whether this request may share a connection with others, and how.
    fn sharing(&self, work: &Work) -> Option<Sharing> {
        // Streams to a relayed service, and those of HTTP/2, share a connection as it is.
        if !self.to.multiplex || self.relayed.is_some() {
            return None;
        }
        let request = work.request.view(&work.saved)?;
        let plain = request.framing() == Framing::None && request.upgrade().is_none();
        match request.method() {
            b"GET" if plain => Some(Sharing { head_only: false }),
            b"HEAD" if plain => Some(Sharing { head_only: true }),
            _ => None,
        }
    }

    /// A connection that is there already, or a place on one that others share.
    fn at_hand(
        &self,
        server: ServerIndex,
        shares: Option<Sharing>,
        now: Duration,
    ) -> Option<Lease> {
        let Some(Sharing { head_only }) = self.may_share(server, shares) else {
            return self.waiting(server, now);
        };
        if let Some(lease) = self.upstream.shared_connection(server, head_only) {
            return Some(lease);
        }
        let lease = self.waiting(server, now)?;
        self.share(server, lease, shares).ok()
    }

    /// A new connection, or a place on it.
    async fn open(
        &self,
        picked: &Picked,
        work: &Work,
        shares: Option<Sharing>,
    ) -> Result<Lease, NoConnection> {
        let lease = self.connect(picked, work).await?;
        self.share(picked.server, lease, shares)
    }

    /// Makes a connection one that others share, if they may.
    fn share(
        &self,
        server: ServerIndex,
        lease: Lease,
        shares: Option<Sharing>,
    ) -> Result<Lease, NoConnection> {
        let shares = self.may_share(server, shares);
        let Some(Sharing { head_only }) = shares.filter(|_| !lease.conn.is_http2()) else {
            return Ok(lease);
        };
        let limits = &self.context.local.heads.limits;
        let clock = &self.context.worker.clock;
        let shared = self.upstream.share(server, lease, head_only, limits, clock);
        shared.ok_or_else(|| NoConnection::Failed(std::io::ErrorKind::InvalidInput.into()))
    }

    /// A connection that has told its server of a visitor carries nobody else's requests.
    fn may_share(&self, server: ServerIndex, shares: Option<Sharing>) -> Option<Sharing> {
        shares.filter(|_| self.upstream.server(server).send_proxy.is_none())
    }

    /// A connection that waited and is still there.
    fn waiting(&self, server: ServerIndex, now: Duration) -> Option<Lease> {
        match &self.relayed {
            None => self.upstream.waiting_connection(server, now),
            Some(relayed) if relayed.service.one_visitor() => None,
            Some(Relayed { service, tag }) if service.speaks_http2() => {
                let place = self.context.worker.relayed.place(service, *tag, now);
                place.map(Lease::http2)
            }
            Some(relayed) => self
                .context
                .worker
                .relayed
                .take(&*relayed.service, relayed.tag, now),
        }
    }

    /// Keeps a connection for the next request, where one may use it.
    pub(super) fn keep(&self, server: ServerIndex, lease: Lease, now: Duration) {
        match &self.relayed {
            None if self.upstream.server(server).send_proxy.is_none() => {
                self.upstream.keep(server, lease, now);
            }
            Some(Relayed { service, tag }) if !service.one_visitor() && !lease.conn.is_http2() => {
                let worker = self.context.worker;
                if !worker.is_draining() {
                    worker.relayed.keep(service, *tag, lease, now);
                }
            }
            _ => {}
        }
    }

    /// What was asked, for the log.
    pub(super) fn server_name(&self, server: ServerIndex) -> &str {
        match &self.relayed {
            Some(relayed) => relayed.service.name(),
            None => &self.upstream.server(server).spec.name,
        }
    }

    /// What a relayed service's client says about a stream that it gave up.
    pub(super) fn words(&self, reason: Option<ResetReason>) -> Option<(u16, &'static str)> {
        let relayed = self.relayed.as_ref()?;
        reason.map(|reason| relayed.service.explain(reason))
    }

    async fn connect(&self, picked: &Picked, work: &Work) -> Result<Lease, NoConnection> {
        if let Some(relayed) = &self.relayed {
            let host = work
                .request
                .view(&work.saved)
                .map(|request| String::from_utf8_lossy(request.host()).into());
            return relayed.open(self, host.unwrap_or_default()).await;
        }
        let Context {
            worker,
            about,
            visitor,
            ..
        } = self.context;
        let patience = self.context.within_total(self.route.timeouts.connect);
        let visitor = Some((visitor.addr, about.local));
        self.upstream
            .connect(
                picked.server,
                visitor,
                patience,
                &worker.clock,
                &worker.metrics,
            )
            .await
    }

    fn may_retry(&self, retries: &mut u8) -> bool {
        let worker = self.context.worker;
        let may = *retries < self.to.retries
            && !self.context.is_too_late()
            && self.upstream.may_retry(worker.clock.coarse());
        if may {
            *retries += 1;
            worker.metrics.proxy_upstream_retries_total.add_one();
        }
        may
    }

    pub(super) async fn refuse(
        &self,
        connection: &mut Connection,
        work: &mut Work,
        refusal: Refusal<'_>,
    ) -> Next {
        self.context.refuse(connection, work, refusal).await
    }

    /// The connection ended before an answer.
    fn unanswered(&self, server: ServerIndex, why: Why) -> Refusal<'_> {
        let metrics = &self.context.worker.metrics;
        metrics.proxy_upstream_broken_total.add_one();
        let text = "The server behind this proxy closed the connection without an answer.";
        let (status, text) = self.words(why.reason).unwrap_or((502, text));
        Refusal::failed(Phase::Answer, status, text, self.server_name(server))
    }

    fn no_connection(&self, server: ServerIndex, failed: &NoConnection) -> Refusal<'_> {
        let name = self.server_name(server);
        let (status, text) = match failed {
            NoConnection::Relay(why) => return relayed::no_stream(*why),
            NoConnection::Failed(error) => {
                tracing::debug!(%error, upstream = %self.upstream.spec().name, "no server could be reached");
                (502, "The server behind this proxy cannot be reached.")
            }
            NoConnection::TimedOut if self.context.is_too_late() => {
                return Refusal::too_late(Phase::Connect, name);
            }
            NoConnection::TimedOut => {
                let metrics = &self.context.worker.metrics;
                metrics.proxy_upstream_timeouts_total.add_one();
                let text = "The server behind this proxy could not be reached in time.";
                (504, text)
            }
        };
        Refusal::failed(Phase::Connect, status, text, name)
    }
}

/// How a request shares a connection.
#[derive(Clone, Copy)]
struct Sharing {
    head_only: bool,
}

/// Safe to send twice (RFC 9110 §9.2.2), and all of it still here.
fn is_repeatable(request: Request<'_>) -> bool {
    request.framing() == Framing::None
        && matches!(
            request.method(),
            b"GET" | b"HEAD" | b"OPTIONS" | b"TRACE" | b"PUT" | b"DELETE"
        )
}

/// For balancing: fast, and good enough for choices nobody gains from guessing.
fn random() -> u64 {
    thread_local! {
        static STATE: Cell<u64> = Cell::new(rand::random::<u64>() | 1);
    }
    STATE.with(|state| {
        // xorshift64* (Marsaglia 2003; Vigna 2016).
        let mut x = state.get();
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        state.set(x);
        x.wrapping_mul(0x2545_F491_4F6C_DD1D)
    })
}

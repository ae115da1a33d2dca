//! HTTP mode: services as targets of the proxy, whose requests go over streams of their clients' links.
//!
//! A visitor's connection stays on its thread, because its next request may be for somebody else. Where this thread has no link of the
//! service's client, the stream is opened on one that has, and bytes pass between the two threads.

use std::{
    net::IpAddr,
    rc::Rc,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use link::Link;
use proxy::{
    FarEnd, Found, LocalFuture, NoStream, Page, Relay, RelayService, RelayStream, ServiceRules,
    Tag, Visit, Wanted,
};
use sniff::host::Authority;
use tokio::sync::oneshot;
use tunnel::{ResetReason, ServerName, StreamHeader, StreamProtocol};

use super::{AWAY, AWAY_PATIENCE, unreachable};
use crate::{
    routing::{self, Kind, names},
    server::Shared,
    session::Service,
    worker::Worker,
};

/// The services of the server on whose threads it is asked.
#[derive(Debug)]
pub(crate) struct Services;

impl Relay for Services {
    fn find(&self, wanted: Wanted<'_>) -> LocalFuture<Found> {
        let Some(worker) = Worker::current() else {
            return Box::pin(std::future::ready(Found::Nothing));
        };
        let (host, prefix) = match wanted {
            Wanted::Request { host, fields } => asked(&worker.server, host, fields),
            Wanted::Name(name) => names(Authority::parse(name).ok().as_ref()),
        };
        Box::pin(async move {
            let server = &worker.server;
            let found = server.registry.find(Kind::Http, &host, prefix.as_deref());
            match found.await {
                routing::Found::Service(service) => Found::Service(service),
                routing::Found::Status => Found::Page(Page {
                    content_type: "text/html; charset=utf-8",
                    body: server.status_page.get(server),
                }),
                routing::Found::Away => {
                    server.metrics.client_away_total.add_one();
                    Found::Away
                }
                routing::Found::Nothing => Found::Nothing,
            }
        })
    }
}

/// The name that a request asks for, by the field that `httpMUXHeader` says.
fn asked(server: &Shared, host: &[u8], fields: &dyn route::Headers) -> (String, Option<String>) {
    let live = server.live();
    let header = &live.config.http_mux_header;
    let text = if header.eq_ignore_ascii_case("host") {
        Some(host)
    } else {
        fields.nth(header, 0)
    };
    let authority = text
        .and_then(|text| std::str::from_utf8(text).ok())
        .and_then(|text| Authority::parse(text.trim()).ok());
    names(authority.as_ref())
}

impl RelayService for Service {
    fn tag(&self) -> Tag {
        let behind = self.declared.http.as_ref().map_or(0, |http| http.behind);
        // Streams of a link that its client has left, or that is dead, are not used again.
        let generation = self.session.links_ended.load(Relaxed) & 0xFFFF;
        Tag(
            self.session.key.0,
            u64::from(self.declared.id.0) << 48 | u64::from(behind) << 16 | u64::from(generation),
        )
    }

    fn name(&self) -> &str {
        self.declared.name.as_str()
    }

    fn admits(&self, visitor: IpAddr) -> bool {
        Self::admits(self, visitor)
    }

    fn enter(&self) -> bool {
        let Some(worker) = Worker::current() else {
            return false;
        };
        let metrics = &worker.server.metrics;
        if !self.session.account.take_place() {
            metrics.limit_streams_total.add_one();
            return false;
        }
        metrics.streams_open.add_below(None);
        metrics.streams_total.add_one();
        self.visitors_total.fetch_add(1, Relaxed);
        true
    }

    fn leave(&self) {
        self.session.account.give_place();
        if let Some(worker) = Worker::current() {
            worker.server.metrics.streams_open.remove();
        }
    }

    fn one_visitor(&self) -> bool {
        // Of a service in stream mode nothing is known: its first visitor may be told to it.
        let http = self.declared.http.as_ref();
        http.is_none_or(|http| http.one_visitor)
    }

    fn speaks_http2(&self) -> bool {
        let http = self.declared.http.as_ref();
        // Where streams are told apart by visitor, they cannot be shared.
        http.is_some_and(|http| http.http2 && !http.one_visitor)
    }

    fn is_fit(&self) -> bool {
        let fit = !self.down.load(Relaxed);
        if !fit && let Some(worker) = Worker::current() {
            worker.server.metrics.services_unfit_total.add_one();
        }
        fit
    }

    fn rules(&self) -> Option<&Arc<ServiceRules>> {
        self.rules.as_ref()
    }

    fn host(&self) -> Option<&str> {
        self.declared.http.as_ref()?.host.as_deref()
    }

    fn open(self: Arc<Self>, visit: Visit) -> LocalFuture<Result<RelayStream, NoStream>> {
        Box::pin(async move {
            let worker = Worker::current().ok_or(NoStream::Away)?;
            let opened = open(&worker, &self, &visit).await;
            match opened {
                Err(NoStream::Away) => worker.server.metrics.client_away_total.add_one(),
                Err(NoStream::Overloaded) => worker.server.metrics.limit_streams_total.add_one(),
                Ok(_) => {}
            }
            opened
        })
    }

    fn explain(&self, reason: ResetReason) -> (u16, &'static str) {
        let answer = match reason {
            ResetReason::LinkLost | ResetReason::ShuttingDown => AWAY,
            reason => unreachable(reason),
        };
        (answer.status, answer.text)
    }
}

/// A stream on this thread's link, or on another's. What the counts say of links may be ahead of them or behind, so all are looked at again
/// whenever something changes, as for visitors in stream mode.
async fn open(
    worker: &Rc<Worker>,
    service: &Arc<Service>,
    visit: &Visit,
) -> Result<RelayStream, NoStream> {
    let session = &service.session;
    let until = Instant::now() + AWAY_PATIENCE;
    loop {
        let seen = session.changes();
        if let Some(link) = worker.link(session.key) {
            return open_on(&link, service, visit);
        }
        for other in session.workers_with_links(worker.index + 1) {
            match open_at(worker, other, service, visit).await {
                Err(NoStream::Away) => {}
                opened => return opened,
            }
        }
        if !session.has_changed_by(seen, until).await {
            return Err(NoStream::Away);
        }
    }
}

/// A stream on a link of another thread.
async fn open_at(
    worker: &Worker,
    other: usize,
    service: &Arc<Service>,
    visit: &Visit,
) -> Result<RelayStream, NoStream> {
    let handle = worker.server.handle(other).ok_or(NoStream::Away)?;
    let (near, far) = RelayStream::there();
    let (tell, told) = oneshot::channel();
    let (service, visit) = (Arc::clone(service), visit.clone());
    let _ = handle.spawn(move || async move {
        let opened = match Worker::current().and_then(|worker| worker.link(service.session.key)) {
            Some(link) => open_on(&link, &service, &visit),
            None => Err(NoStream::Away),
        };
        carry(opened, tell, far).await;
    });
    let patience = tokio::time::timeout(AWAY_PATIENCE, told);
    match patience.await {
        Ok(Ok(Ok(()))) => Ok(near),
        Ok(Ok(Err(why))) => Err(why),
        _ => Err(NoStream::Away),
    }
}

async fn carry(
    opened: Result<RelayStream, NoStream>,
    tell: oneshot::Sender<Result<(), NoStream>>,
    far: FarEnd,
) {
    match opened {
        // Whoever does not listen any more has dropped its end, which ends this one.
        Ok(stream) => {
            let _ = tell.send(Ok(()));
            far.carry(stream).await;
        }
        Err(why) => {
            let _ = tell.send(Err(why));
        }
    }
}

fn open_on(link: &Link, service: &Service, visit: &Visit) -> Result<RelayStream, NoStream> {
    let mut header = Vec::with_capacity(64);
    StreamHeader {
        service: service.declared.id,
        protocol: StreamProtocol::Http1,
        visitor: Some(visit.visitor),
        local: Some(visit.local),
        server_name: ServerName::new(&visit.host).ok(),
    }
    .encode(&mut header);
    let stream = link
        .open_stream(&header, Some(Arc::clone(&service.traffic)))
        .map_err(|_| NoStream::Overloaded)?;
    Ok(RelayStream::here(
        stream,
        service.upload.clone(),
        service.download.clone(),
    ))
}

/// Times of requests that no route of the configuration is for: silence is bounded as for other visitors (`timeout`).
pub(crate) fn timeouts(config: &config::Server) -> route::Timeouts {
    let times = config.timeouts;
    let silent = times.idle.after.unwrap_or(FOREVER);
    route::Timeouts {
        header: times.header,
        body: silent,
        response: silent,
        tunnel_idle: silent,
        ..route::Timeouts::default()
    }
}

/// For what has no limit.
const FOREVER: Duration = Duration::from_secs(365 * 86_400);

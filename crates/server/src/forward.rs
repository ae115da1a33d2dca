//! Joins a visitor with a stream of its service's client: the stream mode, which copies bytes untouched.

pub(crate) mod http;

use std::{
    net::SocketAddr,
    rc::Rc,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use link::{End, Join, JoinOptions, Link, Outcome};
use tunnel::{ResetReason, ServerName, StreamHeader, StreamProtocol};

use crate::{
    answer::{Answer, Form, send_and_close},
    metrics::Counted,
    server::Shared,
    session::{Service, StreamPlace},
    worker::Worker,
};

/// A visitor whose first bytes have been understood.
pub(crate) struct Visit {
    pub(crate) stream: net::Stream,
    /// What was read to understand it; goes to the service first.
    pub(crate) head: Vec<u8>,
    /// Boxed: it outlives every step, and each step's state would hold a place for it.
    pub(crate) about: Box<About>,
}

/// What is known of a visitor.
pub(crate) struct About {
    pub(crate) visitor: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) protocol: StreamProtocol,
    /// How it wants to be answered, if it is HTTP.
    pub(crate) form: Form,
    /// The host it asked for.
    pub(crate) server_name: Option<Box<str>>,
    /// Counts it for as long as it is there.
    pub(crate) _counted: Counted,
}

impl Visit {
    /// A visit that is counted from now on. `head` is what was read of the stream.
    pub(crate) fn new(
        server: &Shared,
        stream: net::Stream,
        head: Vec<u8>,
        visitor: SocketAddr,
        protocol: StreamProtocol,
    ) -> Self {
        let about = About {
            visitor,
            local: stream.local_addr().unwrap_or(visitor),
            protocol,
            form: Form::default(),
            server_name: None,
            _counted: Counted::new(&server.metrics),
        };
        Self {
            stream,
            head,
            about: Box::new(about),
        }
    }

    /// Ends the visit with words its protocol has for it; else with a reset.
    pub(crate) async fn refuse(self, answer: &Answer<'_>) {
        refuse(self.stream, &self.about, answer).await;
    }
}

async fn refuse(mut stream: net::Stream, about: &About, answer: &Answer<'_>) {
    match about.protocol {
        StreamProtocol::Http1 => send_and_close(&mut stream, &answer.render(about.form)).await,
        StreamProtocol::H2c => {
            let response = sniff::h2::answer(about.form.http2_stream, answer.status);
            send_and_close(&mut stream, &response).await;
        }
        _ => stream.abort(),
    }
}

/// Brings a visitor to the proxy, which looks at each request by itself. `listener` is the proxy's on this address. If the first request is
/// for `service`, the connection goes to a thread with a link to it, where there is none on this.
pub(crate) async fn by_requests(
    worker: Rc<Worker>,
    visit: Visit,
    listener: Option<u16>,
    service: Option<Arc<Service>>,
) {
    let session = service.as_ref().map(|service| &service.session);
    let elsewhere = session
        .filter(|session| visit.stream.can_move() && worker.link(session.key).is_none())
        .and_then(|session| session.next_with_link(worker.index))
        .and_then(|other| worker.server.handle(other));
    let Some(handle) = elsewhere else {
        return serve_requests(&worker.server, visit, listener).await;
    };
    let Visit {
        stream,
        head,
        about,
    } = visit;
    let Ok(stream) = stream.detach() else { return };
    let _ = handle.spawn(move || async move {
        let (Some(worker), Ok(stream)) = (Worker::current(), stream.attach()) else {
            return;
        };
        let visit = Visit {
            stream,
            head,
            about,
        };
        serve_requests(&worker.server, visit, listener).await;
    });
}

async fn serve_requests(server: &Shared, visit: Visit, listener: Option<u16>) {
    let Visit {
        stream,
        head,
        about,
    } = visit;
    let arrival = proxy::Arrival {
        peer: about.visitor,
        local: about.local,
        scheme: scheme(&stream),
        listener,
        http3: server.http3.filter(|_| stream.is_encrypted()),
    };
    let serving = server.doorway.serve(stream.with_prefix(head), arrival);
    Box::pin(serving).await;
    drop(about);
}

/// How a visitor came.
pub(crate) fn scheme(stream: &net::Stream) -> route::Scheme {
    if stream.is_encrypted() {
        route::Scheme::Https
    } else {
        route::Scheme::Http
    }
}

/// Brings the visit to the service, on this worker or on one that has a link; returns when it is over or has moved.
///
/// What happens before the bytes flow is in a future of its own, so that a visitor that idles for hours does not hold its state.
pub(crate) async fn carry(worker: Rc<Worker>, visit: Visit, service: Arc<Service>) {
    if let Some(carried) = Box::pin(begin(&worker, visit, service)).await {
        carried.run(&worker).await;
    }
}

async fn begin(worker: &Rc<Worker>, visit: Visit, service: Arc<Service>) -> Option<Carried> {
    let metrics = &worker.server.metrics;
    if !service.admits(visit.about.visitor.ip()) {
        metrics.denied_total.add_one();
        visit.refuse(&DENIED).await;
        return None;
    }
    if service.down.load(Relaxed) {
        metrics.services_unfit_total.add_one();
        visit.refuse(&UNFIT).await;
        return None;
    }
    let Some(place) = service.session.account.enter() else {
        metrics.limit_streams_total.add_one();
        visit.refuse(&OVERLOADED).await;
        return None;
    };
    let search = Search {
        until: Instant::now() + AWAY_PATIENCE,
        seen: service.session.changes(),
        moves: worker.server.worker_count(),
    };
    begin_here(worker, visit, service, place, search).await
}

/// A visit's way over the workers, to one that has a link.
struct Search {
    /// The end of the visitor's patience.
    until: Instant,
    /// Changes of the session when this round began.
    seen: u64,
    /// How often the visit may still move in this round: once around the ring.
    moves: usize,
}

/// Opens the stream on this worker, or sends the visit to another. What the counts say of links may be ahead of them, when a link is on
/// its way to its worker, or behind, when it is dead and its worker does not know yet: so a round over all of them is made whenever
/// something changes.
async fn begin_here(
    worker: &Rc<Worker>,
    visit: Visit,
    service: Arc<Service>,
    place: StreamPlace,
    mut search: Search,
) -> Option<Carried> {
    let session = &service.session;
    let handle = loop {
        if let Some(link) = worker.link(session.key) {
            return open(worker, &link, visit, &service, place).await;
        }
        let elsewhere = session
            .next_with_link(worker.index)
            .filter(|_| search.moves > 0)
            .and_then(|other| worker.server.handle(other));
        if let Some(handle) = elsewhere {
            search.moves -= 1;
            break handle;
        }
        let again = session.has_changed_by(search.seen, search.until).await;
        search.seen = session.changes();
        search.moves = worker.server.worker_count();
        if !again {
            worker.server.metrics.client_away_total.add_one();
            visit.refuse(&AWAY).await;
            return None;
        }
    };
    let Visit {
        stream,
        head,
        about,
    } = visit;
    let stream = stream.detach().ok()?;
    let _ = handle.spawn(move || async move {
        let (Some(worker), Ok(stream)) = (Worker::current(), stream.attach()) else {
            return;
        };
        let visit = Visit {
            stream,
            head,
            about,
        };
        let begun = begin_here(&worker, visit, service, place, search);
        if let Some(carried) = Box::pin(begun).await {
            carried.run(&worker).await;
        }
    });
    None
}

async fn open(
    worker: &Worker,
    link: &Link,
    visit: Visit,
    service: &Service,
    place: StreamPlace,
) -> Option<Carried> {
    let Visit {
        stream,
        head,
        mut about,
    } = visit;
    let mut header = Vec::with_capacity(64);
    let server_name = about.server_name.take();
    StreamHeader {
        service: service.declared.id,
        protocol: about.protocol,
        visitor: Some(about.visitor),
        local: Some(about.local),
        server_name: server_name
            .as_deref()
            .and_then(|name| ServerName::new(name).ok()),
    }
    .encode(&mut header);
    match link.open(&header, head, stream, options(worker, service)) {
        Ok(join) => {
            service.visitors_total.fetch_add(1, Relaxed);
            Some(Carried { join, place, about })
        }
        Err((stream, _)) => {
            worker.server.metrics.limit_streams_total.add_one();
            refuse(stream, &about, &OVERLOADED).await;
            None
        }
    }
}

/// A visit whose bytes flow.
struct Carried {
    join: Join,
    place: StreamPlace,
    about: Box<About>,
}

impl Carried {
    async fn run(self, worker: &Worker) {
        let Self { join, place, about } = self;
        let metrics = &worker.server.metrics;
        metrics.streams_total.add_one();
        let outcome = {
            let _open = metrics.streams_open.enter();
            join.await
        };
        drop(place);
        note(worker, &outcome);
        if let Some(stream) = outcome.socket {
            let answer = match outcome.end {
                End::Reset(reason) => unreachable(reason),
                _ => AWAY,
            };
            Box::pin(refuse(stream, &about, &answer)).await;
        }
    }
}

/// What the client said about the service, in words for its visitor.
fn unreachable(reason: ResetReason) -> Answer<'static> {
    let (status, name, text) = match reason {
        ResetReason::DialTimeout => (
            504,
            "Gateway Timeout",
            "The service did not answer its client in time.",
        ),
        ResetReason::Denied => (403, "Forbidden", "The client does not accept this visit."),
        ResetReason::Overloaded => (
            503,
            "Service Unavailable",
            "The client has as many visitors as it can carry. Try again soon.",
        ),
        ResetReason::Refused => (
            502,
            "Bad Gateway",
            "The client is connected, but the service behind it refuses connections.",
        ),
        ResetReason::DialTls => (
            502,
            "Bad Gateway",
            "The client does not trust the TLS certificate of the service behind it.",
        ),
        _ => (
            502,
            "Bad Gateway",
            "The client could not bring the visit to the service behind it.",
        ),
    };
    Answer {
        status,
        reason: name,
        text,
        retry_after: None,
    }
}

fn options(worker: &Worker, service: &Service) -> JoinOptions {
    let idle = worker.server.timeouts().idle;
    JoinOptions {
        send: service.upload.clone(),
        receive: service.download.clone(),
        idle: idle.after.filter(|_| !idle.one_way),
        idle_one_way: idle.after.filter(|_| idle.one_way),
        traffic: Some(Arc::clone(&service.traffic)),
    }
}

fn note(worker: &Worker, outcome: &Outcome) {
    let metrics = &worker.server.metrics;
    match outcome.end {
        End::Idle => metrics.idle_timeouts_total.add_one(),
        End::Reset(_) | End::LinkLost | End::Socket(_) => metrics.streams_broken_total.add_one(),
        End::Finished | End::Cancelled => {}
    }
    tracing::debug!(sent = outcome.sent, received = outcome.received, end = ?outcome.end, "a visit ended");
}

/// How long a visitor waits for a client that has just lost its links.
const AWAY_PATIENCE: Duration = Duration::from_secs(3);

const DENIED: Answer<'static> = Answer {
    status: 403,
    reason: "Forbidden",
    text: "This service does not accept visitors from your address.",
    retry_after: None,
};
const UNFIT: Answer<'static> = Answer {
    status: 503,
    reason: "Service Unavailable",
    text: "The service fails the checks of its client. Try again soon.",
    retry_after: Some(5),
};
const OVERLOADED: Answer<'static> = Answer {
    status: 503,
    reason: "Service Unavailable",
    text: "The service has as many visitors as it may have. Try again soon.",
    retry_after: Some(5),
};
/// The route is known, its client is not connected.
pub(crate) const AWAY: Answer<'static> = Answer {
    status: 503,
    reason: "Service Unavailable",
    text: "The service exists, but its client is not connected now. If it is yours, see whether gt client runs.",
    retry_after: Some(5),
};

#[cfg(test)]
mod tests;

//! Joins a visitor with a stream of its service's client: the stream mode, which copies bytes untouched.

use std::{net::SocketAddr, rc::Rc, sync::Arc, time::Duration};

use link::{End, JoinOptions, Outcome};
use tunnel::{ResetReason, ServerName, StreamHeader, StreamProtocol};

use crate::{
    answer::{Answer, Form, send_and_close},
    session::{Service, StreamPlace},
    worker::Worker,
};

/// A visitor whose first bytes have been understood.
pub(crate) struct Visit {
    pub(crate) stream: net::Stream,
    /// What was read to understand it; goes to the service first.
    pub(crate) head: Vec<u8>,
    pub(crate) visitor: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) protocol: StreamProtocol,
    /// How it wants to be answered, if it is HTTP.
    pub(crate) form: Form,
    /// The host it asked for.
    pub(crate) server_name: Option<Box<str>>,
}

/// A visit on its way to another worker.
struct Travelling {
    stream: net::Detached,
    visit: Facts,
}

struct Facts {
    head: Vec<u8>,
    visitor: SocketAddr,
    local: SocketAddr,
    protocol: StreamProtocol,
    form: Form,
    server_name: Option<Box<str>>,
}

impl Visit {
    fn depart(self) -> std::io::Result<Travelling> {
        let Self {
            stream,
            head,
            visitor,
            local,
            protocol,
            form,
            server_name,
        } = self;
        let visit = Facts {
            head,
            visitor,
            local,
            protocol,
            form,
            server_name,
        };
        Ok(Travelling {
            stream: stream.detach()?,
            visit,
        })
    }

    /// Ends the visit with words its protocol has for it; else with a reset.
    pub(crate) async fn refuse(mut self, answer: &Answer<'_>) {
        match self.protocol {
            StreamProtocol::Http1 => {
                send_and_close(&mut self.stream, &answer.render(self.form)).await
            }
            StreamProtocol::H2c => {
                let response = sniff::h2::answer(self.form.http2_stream, answer.status);
                send_and_close(&mut self.stream, &response).await;
            }
            _ => self.stream.abort(),
        }
    }
}

impl Travelling {
    fn arrive(self) -> std::io::Result<Visit> {
        let Facts {
            head,
            visitor,
            local,
            protocol,
            form,
            server_name,
        } = self.visit;
        Ok(Visit {
            stream: self.stream.attach()?,
            head,
            visitor,
            local,
            protocol,
            form,
            server_name,
        })
    }
}

/// Brings the visit to the service, on this worker or on one that has a link; returns when it is over or has moved.
pub(crate) async fn carry(worker: &Rc<Worker>, visit: Visit, service: Arc<Service>) {
    let metrics = &worker.server.metrics;
    if !service.admits(visit.visitor.ip()) {
        metrics.denied_total.add_one();
        return Box::pin(visit.refuse(&DENIED)).await;
    }
    let Some(place) = service.session.account.enter() else {
        metrics.limit_streams_total.add_one();
        return Box::pin(visit.refuse(&OVERLOADED)).await;
    };
    if service.session.link_count() == 0 {
        Box::pin(service.session.wait_for_link(AWAY_PATIENCE)).await;
    }
    carry_placed(worker, visit, service, place, MOVES).await;
}

async fn carry_placed(
    worker: &Rc<Worker>,
    visit: Visit,
    service: Arc<Service>,
    place: StreamPlace,
    moves: u8,
) {
    let metrics = &worker.server.metrics;
    if worker.link(service.session.key).is_some() {
        return carry_here(worker, visit, &service, place).await;
    }
    let elsewhere = service
        .session
        .worker_with_link(worker.index)
        .filter(|other| moves > 0 && *other != worker.index);
    let Some(other) = elsewhere else {
        metrics.client_away_total.add_one();
        return Box::pin(visit.refuse(&AWAY)).await;
    };
    let Ok(travelling) = visit.depart() else {
        return;
    };
    let Some(handle) = worker.server.handle(other) else {
        return;
    };
    let _ = handle.spawn(move || async move {
        if let (Some(worker), Ok(visit)) = (Worker::current(), travelling.arrive()) {
            let _open = worker.server.metrics.visitors_open.enter();
            Box::pin(carry_placed(&worker, visit, service, place, moves - 1)).await;
        }
    });
}

async fn carry_here(worker: &Rc<Worker>, visit: Visit, service: &Service, place: StreamPlace) {
    let metrics = &worker.server.metrics;
    let Some(link) = worker.link(service.session.key) else {
        return Box::pin(visit.refuse(&AWAY)).await;
    };
    let mut header = Vec::with_capacity(64);
    StreamHeader {
        service: service.declared.id,
        protocol: visit.protocol,
        visitor: Some(visit.visitor),
        local: Some(visit.local),
        server_name: visit
            .server_name
            .as_deref()
            .and_then(|name| ServerName::new(name).ok()),
    }
    .encode(&mut header);
    let Visit {
        stream,
        head,
        visitor,
        local,
        protocol,
        form,
        server_name,
    } = visit;
    let join = match link.open(&header, head, stream, options(worker, service)) {
        Ok(join) => join,
        Err((stream, _)) => {
            metrics.limit_streams_total.add_one();
            let visit = Visit {
                stream,
                head: Vec::new(),
                visitor,
                local,
                protocol,
                form,
                server_name,
            };
            return Box::pin(visit.refuse(&OVERLOADED)).await;
        }
    };
    drop((header, server_name));
    service
        .visitors_total
        .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    metrics.streams_total.add_one();
    let _open = metrics.streams_open.enter();
    let outcome = join.await;
    drop(place);
    note(worker, &outcome);
    if let Some(stream) = outcome.socket {
        let answer = match outcome.end {
            End::Reset(reason) => unreachable(reason),
            _ => AWAY,
        };
        let visit = Visit {
            stream,
            head: Vec::new(),
            visitor,
            local,
            protocol,
            form,
            server_name: None,
        };
        Box::pin(visit.refuse(&answer)).await;
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
    let idle = worker.server.config.timeouts.idle;
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
/// A visit follows the links at most so often, if they move while it does.
const MOVES: u8 = 3;

const DENIED: Answer<'static> = Answer {
    status: 403,
    reason: "Forbidden",
    text: "This service does not accept visitors from your address.",
    retry_after: None,
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

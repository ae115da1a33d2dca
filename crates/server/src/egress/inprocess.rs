//! Services inside the server: a visit is answered over its own stream, with the sniffed head in front; no socket, no client.
//!
//! The status page (`statusHostPrefix`) is public: anyone who can reach the server may read it. So it tells totals and the names of
//! services (which are made from prefixes, and so from ids, where users gave none), never secrets, addresses or what one client does.
//! It is made at most once a second, however many ask.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{self, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use page::{HTML, TEXT, answer, document, duration, escape};
use tunnel::StreamProtocol;

use crate::{answer::Answer, forward::Visit, server::Shared, snapshot::Snapshot};

/// The page as last made.
#[derive(Debug, Default)]
pub(crate) struct StatusPage(Mutex<Option<(Instant, Bytes)>>);

impl StatusPage {
    pub(crate) fn get(&self, server: &Shared) -> Bytes {
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*made {
            Some((at, page)) if at.elapsed() < FRESH => page.clone(),
            _ => {
                let body = status_page(&server.snapshot());
                let page = Bytes::from(document("gt server", &body));
                *made = Some((Instant::now(), page.clone()));
                page
            }
        }
    }
}

/// Answers one request with the status page, then closes.
pub(crate) async fn status(server: &Shared, visit: Visit) {
    if visit.about.protocol != StreamProtocol::Http1 {
        return visit.refuse(&HTTP1_ONLY).await;
    }
    let Visit {
        stream,
        head,
        about: _about,
    } = visit;
    let serving = http1::Builder::new().keep_alive(false).serve_connection(
        TokioIo::new(stream.with_prefix(head)),
        service_fn(|request: Request<Incoming>| {
            let answer = respond(server, request.method(), request.uri().path());
            std::future::ready(Ok::<_, Infallible>(answer))
        }),
    );
    // The head has been read: what may take time is a visitor that does not take the answer.
    match tokio::time::timeout(PATIENCE, serving).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a visit to the status page ended"),
        Err(_) => tracing::debug!("a visit to the status page took too long"),
    }
}

fn respond(server: &Shared, method: &Method, path: &str) -> Response<Full<Bytes>> {
    if path != "/" {
        return answer(StatusCode::NOT_FOUND, TEXT, "There is only /.\n");
    }
    if !matches!(*method, Method::GET | Method::HEAD) {
        let text = "The status page is only read: use GET or HEAD.\n";
        let mut refusal = answer(StatusCode::METHOD_NOT_ALLOWED, TEXT, text);
        let allowed = HeaderValue::from_static("GET, HEAD");
        refusal.headers_mut().insert(header::ALLOW, allowed);
        return refusal;
    }
    answer(StatusCode::OK, HTML, server.status_page.get(server))
}

/// What anyone may know of the server, as the body of an HTML page: totals, and the names of services with whether a client serves
/// them now. At most 200 services are listed.
#[must_use]
pub fn status_page(snapshot: &Snapshot) -> String {
    let metric = |wanted: &str| {
        let found = snapshot.metrics.iter().find(|(name, ..)| *name == wanted);
        found.map_or(0, |(.., value)| *value)
    };
    let mut services: BTreeMap<(&str, &str), bool> = BTreeMap::new();
    for session in &snapshot.sessions {
        for service in &session.services {
            let up = services.entry((&service.name, &service.kind)).or_default();
            *up |= session.links > 0;
        }
    }
    let more = match services.len().saturating_sub(MOST_SERVICES) {
        0 => String::new(),
        more => format!("<p>… and {more} more.</p>"),
    };
    let row = |((name, kind), up): (&(&str, &str), &bool)| {
        let state = if *up { "up" } else { "away" };
        format!("<tr><td>{}<td>{}<td>{state}", escape(name), escape(kind))
    };
    let state = if snapshot.stopping {
        "<p>The server is about to stop.</p>"
    } else {
        "<p class=\"ok\">The server works.</p>"
    };
    format!(
        "{state}<p>Up for {}. {} client(s) connected over {} link(s); {} visitor(s) now, {} since start.</p>\
         <h2>Services</h2><table><tr><th>Service<th>Kind<th>State{}</table>{more}",
        duration(snapshot.uptime),
        metric("sessions_open"),
        metric("links_open"),
        metric("visitors_open"),
        metric("visitors_total"),
        services
            .iter()
            .take(MOST_SERVICES)
            .map(row)
            .collect::<String>(),
    )
}

/// Visitors share one page for so long: what a flood of them can make the server do is one snapshot in that time.
const FRESH: Duration = Duration::from_secs(1);
/// For one answer, of some 20 KiB at most.
const PATIENCE: Duration = Duration::from_secs(20);
const MOST_SERVICES: usize = 200;

const HTTP1_ONLY: Answer<'static> = Answer {
    status: 505,
    reason: "HTTP Version Not Supported",
    text: "The status page speaks HTTP/1.1.",
    retry_after: None,
};

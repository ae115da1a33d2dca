//! Services inside the process: the demo page and the client's status. Visitors' streams are served as they are, without a socket.

use std::convert::Infallible;

use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header,
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use link::Stream;
use page::{HTML, TEXT, answer, document, escape};

use crate::{
    agent::{Agent, Status},
    ways::WayStatus,
};

type Answer = Result<Response<Full<Bytes>>, Infallible>;

/// A page that shows that the way works, and a few paths to try it with.
pub(crate) async fn demo(agent: &Agent, stream: Stream) {
    let status = agent.shared.status_now();
    serve(stream, |request| demo_answer(request, &status)).await;
}

/// The client's state, as a page and as JSON.
pub(crate) async fn status(agent: &Agent, stream: Stream) {
    let status = agent.shared.status_now();
    serve(stream, |request| {
        std::future::ready(status_answer(&request, &status))
    })
    .await;
}

async fn serve<F>(stream: Stream, answer: impl Fn(Request<Incoming>) -> F)
where
    F: Future<Output = Answer>,
{
    if let Err(error) = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service_fn(answer))
        .await
    {
        tracing::debug!(%error, "a visit to a built-in page ended");
    }
}

async fn demo_answer(request: Request<Incoming>, status: &Status) -> Answer {
    let html = |text: String| answer(StatusCode::OK, HTML, text);
    Ok(match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/") => html(demo_page(&request, status)),
        (&Method::GET | &Method::HEAD, "/headers") => {
            let lines = request.headers().iter().map(|(name, value)| {
                format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes()))
            });
            answer(StatusCode::OK, TEXT, lines.collect::<String>())
        }
        (&Method::POST, "/echo") => {
            match Limited::new(request.into_body(), MOST_ECHO).collect().await {
                Ok(body) => Response::new(Full::new(body.to_bytes())),
                Err(_) => answer(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    TEXT,
                    "The echo takes up to 1 MiB.\n".to_owned(),
                ),
            }
        }
        (_, "/" | "/headers" | "/echo") => answer(
            StatusCode::METHOD_NOT_ALLOWED,
            TEXT,
            "Not with this method.\n".to_owned(),
        ),
        _ => answer(
            StatusCode::NOT_FOUND,
            TEXT,
            "There is /, /headers and /echo (POST).\n".to_owned(),
        ),
    })
}

fn status_answer(request: &Request<Incoming>, status: &Status) -> Answer {
    Ok(match request.uri().path() {
        "/" => answer(
            StatusCode::OK,
            HTML,
            document("gt client", &status_page(status)),
        ),
        _ => answer(StatusCode::NOT_FOUND, TEXT, "There is only /.\n".to_owned()),
    })
}

fn demo_page(request: &Request<Incoming>, status: &Status) -> String {
    let host = request
        .headers()
        .get(header::HOST)
        .map(|host| String::from_utf8_lossy(host.as_bytes()).into_owned());
    let body = format!(
        "<p class=\"ok\">This page came through the relay.</p>\
         <p>You asked for <b>{}</b>. The request went to the server, over a link to a client that only dials out, and was answered \
         inside that client.</p>\
         <h2>Try next</h2><ul><li><a href=\"/headers\">/headers</a> shows what the service sees of you</li>\
         <li><code>curl --data hello {}/echo</code></li>\
         <li>put your own service here: <code>gt client -local http://127.0.0.1:3000 …</code></li></ul>{}",
        escape(host.as_deref().unwrap_or("")),
        escape(
            &host
                .as_deref()
                .map(|host| format!("http://{host}"))
                .unwrap_or_default()
        ),
        status_page(status),
    );
    document("gt works", &body)
}

/// What a client can tell about itself, as the body of an HTML page.
#[must_use]
pub fn status_page(status: &Status) -> String {
    let row = |(name, local, outcome): &(String, String, Result<Vec<String>, String>)| {
        let shown = match outcome {
            Ok(endpoints) => endpoints
                .iter()
                .map(|endpoint| escape(endpoint))
                .collect::<Vec<_>>()
                .join("<br>"),
            Err(reason) => format!("<em>{}</em>", escape(reason)),
        };
        format!("<tr><td>{}<td>{}<td>{shown}", escape(name), escape(local))
    };
    format!(
        "<h2>Client</h2><p>Server {}, {} link(s), {} visits, {} that did not reach their service.</p>\
         <table><tr><th>Service<th>Local<th>Reachable at{}</table>",
        escape(status.server.as_deref().unwrap_or("none")),
        status.links,
        status.visits.0,
        status.visits.1,
        status.services.iter().map(row).collect::<String>(),
    )
}

/// The ways to the server with their figures, and why the links go the one they do, as a part of an HTML page; empty where there is one way only. For
/// pages that only the client's owner sees.
#[must_use]
pub fn ways_table(status: &Status) -> String {
    if status.ways.is_empty() {
        return String::new();
    }
    let row = |way: &WayStatus| {
        let works = match way.works {
            _ if way.in_use => "in use",
            Some(true) => "works",
            Some(false) => "does not work",
            None => "not tried yet",
        };
        let known = |value: Option<String>| value.unwrap_or_default();
        format!(
            "<tr><td>{}<td>{works}<td>{}<td>{}<td>{}",
            escape(&way.remote),
            known(
                way.rtt
                    .map(|rtt| format!("{:.1} ms", rtt.as_secs_f64() * 1e3))
            ),
            known(way.loss.map(|loss| format!("{:.1} %", loss * 100.0))),
            known(
                way.goodput
                    .map(|bytes| format!("{:.1} Mbit/s", bytes * 8.0 / 1e6))
            ),
        )
    };
    let last = match &status.last_move {
        Some(last) => format!(
            "Moved {} time(s), the last {} s ago: {}.",
            status.moves,
            last.ago.as_secs(),
            escape(&last.reason)
        ),
        None => "Not moved since the start.".to_owned(),
    };
    format!(
        "<h2>Ways to the server</h2><p>{last}</p><table><tr><th>Way<th>State<th>Round trip<th>Lost<th>Carried{}</table>",
        status.ways.iter().map(row).collect::<String>()
    )
}

const MOST_ECHO: usize = 1 << 20;

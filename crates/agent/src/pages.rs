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

use crate::agent::{Agent, Status};

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
    let html = |text: String| answer(StatusCode::OK, "text/html; charset=utf-8", text);
    Ok(match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/") => html(demo_page(&request, status)),
        (&Method::GET | &Method::HEAD, "/headers") => {
            let lines = request.headers().iter().map(|(name, value)| {
                format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes()))
            });
            answer(StatusCode::OK, "text/plain; charset=utf-8", lines.collect())
        }
        (&Method::POST, "/echo") => {
            match Limited::new(request.into_body(), MOST_ECHO).collect().await {
                Ok(body) => Response::new(Full::new(body.to_bytes())),
                Err(_) => answer(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    "text/plain",
                    "The echo takes up to 1 MiB.\n".to_owned(),
                ),
            }
        }
        (_, "/" | "/headers" | "/echo") => answer(
            StatusCode::METHOD_NOT_ALLOWED,
            "text/plain",
            "Not with this method.\n".to_owned(),
        ),
        _ => answer(
            StatusCode::NOT_FOUND,
            "text/plain",
            "There is /, /headers and /echo (POST).\n".to_owned(),
        ),
    })
}

fn status_answer(request: &Request<Incoming>, status: &Status) -> Answer {
    Ok(match request.uri().path() {
        "/" => answer(
            StatusCode::OK,
            "text/html; charset=utf-8",
            page("gt client", &services_table(status)),
        ),
        _ => answer(
            StatusCode::NOT_FOUND,
            "text/plain",
            "There is only /.\n".to_owned(),
        ),
    })
}

fn answer(status: StatusCode, kind: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    headers.insert(
        header::CACHE_CONTROL,
        header::HeaderValue::from_static("no-store"),
    );
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        header::HeaderValue::from_static("nosniff"),
    );
    response
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
        services_table(status),
    );
    page("gt works", &body)
}

fn services_table(status: &Status) -> String {
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

fn page(title: &str, body: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title>\
         <style>:root{{color-scheme:light dark}}body{{font:16px/1.6 system-ui,sans-serif;max-width:46rem;margin:8vh auto;padding:0 1rem}}\
         h1{{font-size:1.6rem}}h2{{font-size:1.1rem;margin-top:2rem}}.ok{{font-size:1.15rem}}.ok::before{{content:\"✓ \";color:#2a9d4a}}\
         code{{background:#8882;padding:.1em .3em;border-radius:.2em}}table{{border-collapse:collapse;width:100%}}\
         th,td{{text-align:left;padding:.3rem .6rem;border-bottom:1px solid #8884;vertical-align:top}}</style>\
         <h1>{title}</h1>{body}</html>\n"
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

const MOST_ECHO: usize = 1 << 20;

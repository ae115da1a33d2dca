//! Which path gets which answer. Pure, but for looking at the source.

use http_body_util::Full;
use hyper::{
    Method, Response, StatusCode,
    body::Bytes,
    header::{self, HeaderValue},
};
use page::{HTML, TEXT, answer as respond, document};

use crate::{Source, access::Refused, metrics, status};

/// The answer to a request for `path`; the body of a HEAD is left out by the connection.
pub(crate) fn answer(source: &Source, method: &Method, path: &str) -> Response<Full<Bytes>> {
    let make: fn(&Source) -> Response<Full<Bytes>> = match path {
        "/" => |source| {
            let (title, body) = status::page(source);
            respond(StatusCode::OK, HTML, document(title, &body))
        },
        "/status" => |source| respond(StatusCode::OK, JSON, status::json(source)),
        "/metrics" => |source| respond(StatusCode::OK, METRICS, metrics::text(source)),
        "/health" | "/healthz" | "/livez" => health,
        _ => {
            let text = "There is /, /status, /metrics and /health (or /healthz, /livez).\n";
            return respond(StatusCode::NOT_FOUND, TEXT, text);
        }
    };
    if !matches!(*method, Method::GET | Method::HEAD) {
        let text = "The API is only read: use GET or HEAD.\n";
        let mut refusal = respond(StatusCode::METHOD_NOT_ALLOWED, TEXT, text);
        let allowed = HeaderValue::from_static("GET, HEAD");
        refusal.headers_mut().insert(header::ALLOW, allowed);
        return refusal;
    }
    make(source)
}

/// The answer to a request that is not let in.
pub(crate) fn refusal(refused: Refused) -> Response<Full<Bytes>> {
    let (status, text) = match refused {
        Refused::Name => (
            StatusCode::FORBIDDEN,
            "The API does not answer to this host name. Ask it as localhost or by its IP address, or add the name to apiHosts.\n",
        ),
        Refused::NoPassword => (
            StatusCode::UNAUTHORIZED,
            "The API asks for a password (apiPassword): as Basic, with any user name, or as Bearer.\n",
        ),
        Refused::WrongPassword => (
            StatusCode::UNAUTHORIZED,
            "The password is wrong (apiPassword).\n",
        ),
    };
    let mut response = respond(status, TEXT, text);
    if status == StatusCode::UNAUTHORIZED {
        let challenge = HeaderValue::from_static("Basic realm=\"gt\", charset=\"UTF-8\"");
        let headers = response.headers_mut();
        headers.insert(header::WWW_AUTHENTICATE, challenge);
        headers.append(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

fn health(source: &Source) -> Response<Full<Bytes>> {
    let problem = match source {
        Source::Server(server) => server.is_stopping().then_some("stopping\n"),
        Source::Proxy(proxy) => proxy.is_stopping().then_some("stopping\n"),
        Source::Client(client) => match client.status() {
            status if status.stopping => Some("stopping\n"),
            status if status.links == 0 => Some("no link to a server\n"),
            _ => None,
        },
    };
    match problem {
        None => respond(StatusCode::OK, TEXT, "ok\n"),
        Some(problem) => respond(StatusCode::SERVICE_UNAVAILABLE, TEXT, problem),
    }
}

const JSON: &str = "application/json";
/// Prometheus text format 0.0.4.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

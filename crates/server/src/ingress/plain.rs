//! The shared port: HTTP visitors and links, told apart by their first bytes. Also what comes out of TLS.

use std::{net::SocketAddr, rc::Rc};

use sniff::{
    Classified, classify,
    http::{Head, HeadError, HeadSniffer, Limits},
};
use tunnel::StreamProtocol;

use super::{
    counted,
    first::{Unread, read_until},
};
use crate::{
    answer::{Answer, Form, http2_goaway, send_and_close},
    forward::{AWAY, Visit, carry},
    links,
    routing::{Found, Kind},
    worker::Worker,
};

/// A connection on `addr`.
pub(crate) async fn visit(worker: Rc<Worker>, stream: net::Stream, address: SocketAddr) {
    serve(worker, stream, address).await;
}

/// A connection whose bytes are readable: from the plain port or out of TLS.
pub(crate) async fn serve(worker: Rc<Worker>, stream: net::Stream, address: SocketAddr) {
    // The sniffing's state is freed before the long wait of the visit.
    match Box::pin(understand(&worker, stream, address)).await {
        Understood::Nothing => {}
        Understood::Link(stream) => Box::pin(links::accept(&worker, stream, address)).await,
        Understood::Visit(visit, service) => {
            let rest = Rc::clone(&worker);
            counted(worker, async move { carry(&rest, *visit, service).await }).await;
        }
    }
}

enum Understood {
    /// It has been answered or closed.
    Nothing,
    Link(net::Stream),
    Visit(Box<Visit>, std::sync::Arc<crate::session::Service>),
}

async fn understand(
    worker: &Rc<Worker>,
    mut stream: net::Stream,
    address: SocketAddr,
) -> Understood {
    let server = &worker.server;
    let mut read = Vec::new();
    let magic = &tunnel::MAGIC;
    let sniff = |bytes: &[u8]| match classify(bytes, magic) {
        Classified::NeedMore => Ok(None),
        classified => Ok::<_, ()>(Some(classified)),
    };
    let classified =
        match read_until(&mut stream, &mut read, server.config.timeouts.header, sniff).await {
            Ok(classified) => classified,
            Err(Unread::TooSlow) => {
                server.metrics.header_timeouts_total.add_one();
                return Understood::Nothing;
            }
            Err(_) => return Understood::Nothing,
        };
    match classified {
        Classified::Link => Understood::Link(stream.with_prefix(read)),
        Classified::Http1 => http1(worker, stream, read, address).await,
        Classified::Http2Preface => http2(worker, stream, read, address).await,
        Classified::Tls => {
            server.metrics.unknown_protocol_total.add_one();
            tracing::debug!(peer = %address, "TLS was sent to the plain port");
            let alert = sniff::tls::alert(sniff::tls::AlertDescription::HandshakeFailure);
            send_and_close(&mut stream, &alert).await;
            Understood::Nothing
        }
        _ => {
            server.metrics.unknown_protocol_total.add_one();
            tracing::debug!(peer = %address, "the first bytes are no protocol that this port serves");
            Understood::Nothing
        }
    }
}

async fn http1(
    worker: &Rc<Worker>,
    mut stream: net::Stream,
    mut read: Vec<u8>,
    address: SocketAddr,
) -> Understood {
    let server = &worker.server;
    let mut sniffer = HeadSniffer::new(Limits::default(), &server.config.http_mux_header);
    let sniffed = read_until(
        &mut stream,
        &mut read,
        server.config.timeouts.header,
        |bytes| sniffer.advance(bytes),
    )
    .await;
    let head = match sniffed {
        Ok(head) => head,
        Err(Unread::Gone) => return Understood::Nothing,
        Err(Unread::TooSlow) => {
            server.metrics.header_timeouts_total.add_one();
            let answer = Answer {
                status: 408,
                reason: "Request Timeout",
                text: "The request head did not come in time.",
                retry_after: None,
            };
            send_and_close(&mut stream, &answer.render(Form::default())).await;
            return Understood::Nothing;
        }
        Err(Unread::Bad(error)) => {
            if matches!(error, HeadError::TooLong | HeadError::TooManyHeaders) {
                server.metrics.header_too_large_total.add_one();
            }
            let text = error.to_string();
            let answer = Answer {
                status: error.status(),
                reason: reason(error.status()),
                text: &text,
                retry_after: None,
            };
            send_and_close(&mut stream, &answer.render(Form::default())).await;
            return Understood::Nothing;
        }
    };
    if is_link(&head, &read) {
        let head = std::mem::take(&mut read);
        return match net::ws::accept_protocol(stream, &head, Some(tunnel::WEBSOCKET_PROTOCOL)).await
        {
            Ok(stream) => Understood::Link(stream),
            Err(error) => {
                tracing::info!(%error, peer = %address, "a link over WebSocket was not established");
                Understood::Nothing
            }
        };
    }
    let form = Form {
        html: head.accepts_html(&read),
        head_only: head.method(&read) == "HEAD",
    };
    let (host, prefix) = names(&head);
    let found = server
        .registry
        .table()
        .find(Kind::Http, &host, prefix.as_deref());
    let visit = Visit {
        local: stream.local_addr().unwrap_or(address),
        stream,
        head: read,
        visitor: address,
        protocol: StreamProtocol::Http1,
        form,
        server_name: Some(host.into()),
    };
    decide(worker, visit, found).await
}

async fn http2(
    worker: &Rc<Worker>,
    mut stream: net::Stream,
    mut read: Vec<u8>,
    address: SocketAddr,
) -> Understood {
    let server = &worker.server;
    let mut sniffer = sniff::h2::HeadersSniffer::default();
    let sniffed = read_until(
        &mut stream,
        &mut read,
        server.config.timeouts.header,
        |bytes| sniffer.advance(bytes),
    )
    .await;
    let authority = match sniffed {
        Ok(authority) => authority,
        Err(Unread::Gone) => return Understood::Nothing,
        Err(Unread::TooSlow) => {
            server.metrics.header_timeouts_total.add_one();
            return Understood::Nothing;
        }
        Err(Unread::Bad(error)) => {
            send_and_close(&mut stream, &http2_goaway(&error.to_string())).await;
            return Understood::Nothing;
        }
    };
    let (host, prefix) = (
        authority.host().to_owned(),
        authority.first_label().map(str::to_owned),
    );
    let found = server
        .registry
        .table()
        .find(Kind::Http, &host, prefix.as_deref());
    let visit = Visit {
        local: stream.local_addr().unwrap_or(address),
        stream,
        head: read,
        visitor: address,
        protocol: StreamProtocol::H2c,
        form: Form::default(),
        server_name: Some(host.into()),
    };
    decide(worker, visit, found).await
}

async fn decide(worker: &Worker, visit: Visit, found: Found) -> Understood {
    let metrics = &worker.server.metrics;
    match found {
        Found::Service(service) => Understood::Visit(Box::new(visit), service),
        Found::Away => {
            metrics.client_away_total.add_one();
            visit.refuse(&AWAY).await;
            Understood::Nothing
        }
        Found::Nothing => {
            metrics.no_route_total.add_one();
            let host = visit.server_name.clone().unwrap_or_default();
            let text = format!(
                "No service here answers for the host {host:?}. Check the name, or whether its client is connected."
            );
            visit
                .refuse(&Answer {
                    status: 404,
                    reason: "Not Found",
                    text: &text,
                    retry_after: None,
                })
                .await;
            Understood::Nothing
        }
    }
}

fn names(head: &Head) -> (String, Option<String>) {
    match head.authority() {
        Some(authority) => (
            authority.host().to_owned(),
            authority.first_label().map(str::to_owned),
        ),
        None => (String::new(), None),
    }
}

/// A link over WebSocket names its subprotocol.
fn is_link(head: &Head, read: &[u8]) -> bool {
    head.is_websocket()
        && head.headers(read).any(|(name, value)| {
            name.eq_ignore_ascii_case("sec-websocket-protocol")
                && value == tunnel::WEBSOCKET_PROTOCOL.as_bytes()
        })
}

fn reason(status: u16) -> &'static str {
    match status {
        400 => "Bad Request",
        414 => "URI Too Long",
        431 => "Request Header Fields Too Large",
        501 => "Not Implemented",
        505 => "HTTP Version Not Supported",
        _ => "Error",
    }
}

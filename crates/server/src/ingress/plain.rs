//! The shared port: HTTP visitors and links, told apart by their first bytes. Also what comes out of TLS.

use std::{net::SocketAddr, rc::Rc, sync::Arc, time::Duration};

use route::Claim;
use sniff::{
    Classified, classify, h2,
    host::Authority,
    http::{Head, HeadError, HeadSniffer, Limits},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tunnel::StreamProtocol;

use super::{
    Arrival,
    first::{Unread, read_until},
};
use crate::{
    answer::{Answer, Form, send_and_close},
    complaints::Complaint,
    egress::inprocess,
    forward::{AWAY, Visit, by_requests, carry, scheme},
    gate::Place,
    links,
    routing::{Found, Kind, names},
    session::Service,
    worker::Worker,
};

/// A connection whose bytes are readable: from the plain port or out of TLS.
pub(crate) async fn visit(worker: Rc<Worker>, arrival: Arrival) {
    let address = arrival.address;
    // The sniffing's state is freed before the long wait of the visit.
    let understood = {
        let _open = worker.server.sniffing.enter();
        Box::pin(understand(&worker, arrival)).await
    };
    match understood {
        Understood::Nothing => {}
        Understood::Link(stream, place) => {
            Box::pin(links::accept(&worker, stream, address, place)).await;
        }
        Understood::Visit(visit, service) => {
            carry(worker, visit, service).await;
        }
        Understood::Requests(visit, listener, service) => {
            Box::pin(by_requests(worker, visit, listener, service)).await;
        }
        Understood::Status(visit) => {
            Box::pin(inprocess::status(&worker.server, visit)).await;
        }
    }
}

enum Understood {
    /// It has been answered or closed.
    Nothing,
    /// It keeps its place until it is let in.
    Link(net::Stream, Place),
    Status(Visit),
    Visit(Visit, Arc<Service>),
    /// Each request is looked at by itself: the proxy's listener on this address, and the service of the first request.
    Requests(Visit, Option<u16>, Option<Arc<Service>>),
}

async fn understand(worker: &Rc<Worker>, arrival: Arrival) -> Understood {
    let Arrival {
        mut stream,
        address,
        place,
    } = arrival;
    let server = &worker.server;
    let mut read = Vec::new();
    let magic = &tunnel::MAGIC;
    let sniff = |bytes: &[u8]| match classify(bytes, magic) {
        Classified::NeedMore => Ok(None),
        classified => Ok::<_, ()>(Some(classified)),
    };
    let classified = match read_until(&mut stream, &mut read, server.timeouts().header, sniff).await
    {
        Ok(classified) => classified,
        Err(Unread::TooSlow) => {
            server.metrics.header_timeouts_total.add_one();
            return Understood::Nothing;
        }
        Err(_) => return Understood::Nothing,
    };
    match classified {
        Classified::Link => Understood::Link(stream.with_prefix(read), place),
        Classified::Http1 => http1(worker, stream, read, address, place).await,
        Classified::Http2Preface => http2(worker, stream, read, address).await,
        Classified::Tls => {
            server.metrics.unknown_protocol_total.add_one();
            tracing::debug!(peer = %address, "TLS was sent to the plain port");
            let alert = sniff::tls::alert(sniff::tls::AlertDescription::UnexpectedMessage);
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
    place: Place,
) -> Understood {
    let server = &worker.server;
    let live = server.live();
    let mut sniffer = HeadSniffer::new(Limits::default()).route_by(&live.config.http_mux_header);
    let sniffed = read_until(&mut stream, &mut read, server.timeouts().header, |bytes| {
        sniffer.advance(bytes)
    })
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
                reason: error.reason_phrase(),
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
            Ok(stream) => Understood::Link(stream, place),
            Err(error) => {
                server.metrics.handshake_failures_total.add_one();
                if server.complaints.hear(Complaint::WebSocket, address.ip()) {
                    tracing::info!(%error, peer = %address, "a link over WebSocket was not established");
                }
                Understood::Nothing
            }
        };
    }
    let html = head
        .values(&read, "accept")
        .any(|value| value.windows(HTML.len()).any(|part| part == HTML));
    let form = Form {
        html,
        head_only: head.method(&read) == b"HEAD",
        http2_stream: 0,
    };
    let visit = Visit::new(server, stream, read, address, StreamProtocol::Http1);
    decide(worker, visit, form, head.authority()).await
}

async fn http2(
    worker: &Rc<Worker>,
    mut stream: net::Stream,
    mut read: Vec<u8>,
    address: SocketAddr,
) -> Understood {
    let server = &worker.server;
    let live = server.live();
    let sniffing = tokio::time::timeout(
        server.timeouts().header,
        http2_head(&mut stream, &mut read, &live.config.http_mux_header),
    );
    let head = match sniffing.await.unwrap_or(Err(Unread::TooSlow)) {
        Ok(head) => head,
        Err(Unread::Gone) => return Understood::Nothing,
        Err(Unread::TooSlow) => {
            server.metrics.header_timeouts_total.add_one();
            return Understood::Nothing;
        }
        Err(Unread::Bad(error)) => {
            tracing::debug!(peer = %address, %error, "an HTTP/2 connection is refused");
            send_and_close(&mut stream, &error.refusal()).await;
            return Understood::Nothing;
        }
    };
    if let Some(acknowledged) = head.settings_ack {
        read.drain(acknowledged);
    }
    let form = Form {
        http2_stream: head.stream,
        ..Form::default()
    };
    let visit = Visit::new(server, stream, read, address, StreamProtocol::H2c);
    decide(worker, visit, form, head.authority.as_ref()).await
}

/// The first request's head. A client that waits for the server's settings gets some; `settings_ack` then says where it acknowledged
/// them, which the service, whose settings those were not, must not see.
async fn http2_head(
    stream: &mut net::Stream,
    read: &mut Vec<u8>,
    route_by: &str,
) -> Result<h2::Head, Unread<h2::H2Error>> {
    let mut sniffer = h2::HeadSniffer::new(h2::Limits::default()).route_by(route_by);
    let mut settings_sent = false;
    loop {
        if let Some(mut head) = sniffer.advance(read).map_err(Unread::Bad)? {
            head.settings_ack = head.settings_ack.filter(|_| settings_sent);
            return Ok(head);
        }
        let waits = !settings_sent && sniffer.waits_for_server(read);
        let more = if waits {
            tokio::time::timeout(SETTINGS_PATIENCE, stream.read_buf(read))
                .await
                .ok()
        } else {
            Some(stream.read_buf(read).await)
        };
        match more {
            Some(Ok(0) | Err(_)) => return Err(Unread::Gone),
            Some(Ok(_)) => {}
            None => {
                settings_sent = true;
                stream
                    .write_all(&h2::EMPTY_SETTINGS)
                    .await
                    .map_err(|_| Unread::Gone)?;
                stream.flush().await.map_err(|_| Unread::Gone)?;
            }
        }
    }
}

/// Who answers for the name that the visitor asked for.
async fn decide(
    worker: &Worker,
    mut visit: Visit,
    form: Form,
    asked: Option<&Authority>,
) -> Understood {
    let (host, prefix) = names(asked);
    let server = &worker.server;
    let scheme = scheme(&visit.stream);
    let listener = server.live().shared_listener(scheme);
    let claim = listener.map_or(Claim::Nothing, |listener| {
        server.doorway.claim(listener, scheme, host.as_bytes())
    });
    if claim == Claim::Named {
        return Understood::Requests(visit, listener, None);
    }
    // What was agreed on in TLS is spoken, whoever is asked for.
    let over_h2 = visit.stream.alpn() == Some(b"h2");
    // Where requests are looked at, each of them takes its own turn among services of one name.
    let found = match server.registry.look(Kind::Http, &host, prefix.as_deref()) {
        Found::Service(service) if over_h2 || service.declared.http.is_some() => {
            Found::Service(service)
        }
        _ => {
            let registry = &server.registry;
            registry.find(Kind::Http, &host, prefix.as_deref()).await
        }
    };
    visit.about.form = form;
    visit.about.server_name = Some(host.into());
    let metrics = &worker.server.metrics;
    match found {
        Found::Service(service) if over_h2 || service.declared.http.is_some() => {
            Understood::Requests(visit, listener, Some(service))
        }
        Found::Service(service) => Understood::Visit(visit, service),
        Found::Status if over_h2 => Understood::Requests(visit, listener, None),
        Found::Status => Understood::Status(visit),
        Found::Nothing if claim == Claim::Any => Understood::Requests(visit, listener, None),
        Found::Away => {
            metrics.client_away_total.add_one();
            visit.refuse(&AWAY).await;
            Understood::Nothing
        }
        Found::Nothing => {
            metrics.no_route_total.add_one();
            let host = visit.about.server_name.clone().unwrap_or_default();
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

/// A link over WebSocket names its subprotocol.
fn is_link(head: &Head, read: &[u8]) -> bool {
    head.websocket_key(read).is_some()
        && head
            .values(read, "sec-websocket-protocol")
            .any(|value| value == tunnel::WEBSOCKET_PROTOCOL.as_bytes())
}

const HTML: &[u8] = b"text/html";
/// How long an HTTP/2 client may seem to wait for settings before it gets some.
const SETTINGS_PATIENCE: Duration = Duration::from_millis(50);

//! The passthrough port: TLS is routed by the server name in its ClientHello and never decrypted.

use std::{net::SocketAddr, rc::Rc, sync::Arc};

use sniff::{
    host::Authority,
    tls::{AlertDescription, HelloSniffer, Limits, alert},
};
use tunnel::StreamProtocol;

use super::first::{Unread, read_until};
use crate::{
    answer::{Form, send_and_close},
    forward::{About, Visit, carry},
    metrics::Counted,
    routing::{Found, Kind},
    session::Service,
    worker::Worker,
};

/// A connection on `sniAddr`.
pub(crate) async fn visit(worker: Rc<Worker>, stream: net::Stream, address: SocketAddr) {
    let understood = {
        let _open = worker.server.sniffing.enter();
        Box::pin(understand(&worker, stream, address)).await
    };
    if let Some((visit, service)) = understood {
        carry(worker, visit, service).await;
    }
}

async fn understand(
    worker: &Worker,
    mut stream: net::Stream,
    address: SocketAddr,
) -> Option<(Visit, Arc<Service>)> {
    let server = &worker.server;
    let mut sniffer = HelloSniffer::new(Limits::default());
    let mut read = Vec::new();
    let sniffed = read_until(&mut stream, &mut read, server.timeouts().header, |bytes| {
        sniffer.advance(bytes)
    })
    .await;
    let hello = match sniffed {
        Ok(hello) => hello,
        Err(Unread::Gone) => return None,
        Err(Unread::TooSlow) => {
            server.metrics.header_timeouts_total.add_one();
            return None;
        }
        Err(Unread::Bad(error)) => {
            server.metrics.unknown_protocol_total.add_one();
            tracing::debug!(peer = %address, %error, "no ClientHello on the passthrough port");
            if net::tls::looks_like_http(&read) {
                send_and_close(&mut stream, net::tls::PLAIN_HTTP_ANSWER).await;
            } else if let Some(description) = error.alert() {
                send_and_close(&mut stream, &alert(description)).await;
            }
            return None;
        }
    };
    let authority = hello
        .server_name
        .as_deref()
        .and_then(|name| Authority::parse(name).ok());
    let found = match &authority {
        Some(name) => {
            let host = name.name().unwrap_or_default();
            server
                .registry
                .find(Kind::Tls, host, name.first_label())
                .await
        }
        None => Found::Nothing,
    };
    let refusal = match found {
        Found::Service(service) => {
            let about = About {
                local: stream.local_addr().unwrap_or(address),
                visitor: address,
                protocol: StreamProtocol::Tls,
                form: Form::default(),
                server_name: hello.server_name.map(String::into_boxed_str),
                _counted: Counted::new(&server.metrics),
            };
            let visit = Visit {
                stream,
                head: read,
                about: Box::new(about),
            };
            return Some((visit, service));
        }
        Found::Away => {
            server.metrics.client_away_total.add_one();
            AlertDescription::InternalError
        }
        Found::Nothing | Found::Status => {
            server.metrics.no_route_total.add_one();
            AlertDescription::UnrecognizedName
        }
    };
    send_and_close(&mut stream, &alert(refusal)).await;
    None
}

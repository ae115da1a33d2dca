//! The passthrough port: TLS is routed by the server name in its ClientHello and never decrypted.

use std::{rc::Rc, sync::Arc};

use sniff::{
    host::Authority,
    tls::{AlertDescription, HelloSniffer, Limits, alert},
};
use tunnel::StreamProtocol;

use super::{
    Arrival,
    first::{Unread, read_until},
};
use crate::{
    answer::send_and_close,
    forward::{Visit, carry},
    routing::{Found, Kind},
    session::Service,
    worker::Worker,
};

/// A connection on `sniAddr`.
pub(crate) async fn visit(worker: Rc<Worker>, arrival: Arrival) {
    let understood = {
        let _open = worker.server.sniffing.enter();
        Box::pin(understand(&worker, arrival)).await
    };
    if let Some((visit, service)) = understood {
        carry(worker, visit, service).await;
    }
}

async fn understand(worker: &Worker, arrival: Arrival) -> Option<(Visit, Arc<Service>)> {
    let Arrival {
        mut stream,
        address,
        // Until it is a visit, or has been answered.
        place: _place,
    } = arrival;
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
            let mut visit = Visit::new(server, stream, read, address, StreamProtocol::Tls);
            visit.about.server_name = hello.server_name.map(String::into_boxed_str);
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

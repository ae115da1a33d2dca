//! The TLS port: ends TLS, then goes on as on the plain port.

use std::rc::Rc;

use net::tls::{PLAIN_HTTP_ANSWER, TlsAcceptor, TlsError};
use route::{Claim, Scheme};
use sniff::host::Authority;

use super::{Arrival, plain};
use crate::{
    answer::send_and_close,
    routing::{Found, Kind, names},
    server::Shared,
    worker::Worker,
};

/// Whether requests for a name are looked at one by one, so that HTTP/2 can be spoken. Where bytes are only copied, the service may not know it.
fn by_requests(server: &Shared, name: &str) -> bool {
    let (host, prefix) = names(Authority::parse(name).ok().as_ref());
    let claim = server
        .live()
        .shared_listener(Scheme::Https)
        .map_or(Claim::Nothing, |listener| {
            let doorway = &server.doorway;
            doorway.claim(listener, Scheme::Https, host.as_bytes())
        });
    let found = || {
        let registry = &server.registry;
        registry.look(Kind::Http, &host, prefix.as_deref())
    };
    match claim {
        Claim::Named => true,
        Claim::Any | Claim::Nothing => match found() {
            Found::Service(service) => service.declared.http.is_some(),
            Found::Nothing => claim == Claim::Any,
            Found::Status | Found::Away => false,
        },
    }
}

/// A connection on `tlsAddr`.
pub(crate) async fn visit(worker: Rc<Worker>, arrival: Arrival) {
    if let Some(arrival) = Box::pin(open(&worker, arrival)).await {
        plain::visit(worker, arrival).await;
    }
}

async fn open(worker: &Worker, arrival: Arrival) -> Option<Arrival> {
    let Arrival {
        stream,
        address,
        place,
    } = arrival;
    let server = &worker.server;
    let _open = server.sniffing.enter();
    let live = server.live();
    let (acceptor, with_http2) = (live.tls.as_ref()?, live.tls_http2.as_ref()?);
    let choose = |name: Option<&str>| match name {
        Some(name) if by_requests(server, name) => with_http2.clone(),
        _ => acceptor.clone(),
    };
    let accepting = TlsAcceptor::accept_with(stream, choose);
    match tokio::time::timeout(server.timeouts().handshake, accepting).await {
        Ok(Ok(stream)) => {
            return Some(Arrival {
                stream,
                address,
                place,
            });
        }
        Ok(Err(TlsError::PlainHttp(mut stream))) => {
            tracing::debug!(peer = %address, "plain HTTP was sent to the TLS port");
            send_and_close(&mut stream, PLAIN_HTTP_ANSWER).await;
        }
        Ok(Err(error)) => tracing::debug!(peer = %address, %error, "a TLS handshake failed"),
        Err(_) => tracing::debug!(peer = %address, "a TLS handshake took too long"),
    }
    server.metrics.tls_failures_total.add_one();
    None
}

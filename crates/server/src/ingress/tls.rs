//! The TLS port: ends TLS, then goes on as on the plain port.

use std::rc::Rc;

use net::tls::{PLAIN_HTTP_ANSWER, TlsError};

use super::{Arrival, plain};
use crate::{answer::send_and_close, worker::Worker};

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
    let acceptor = live.tls.as_ref()?;
    match tokio::time::timeout(server.timeouts().handshake, acceptor.accept(stream)).await {
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

//! The TLS port: ends TLS, then goes on as on the plain port.

use std::{net::SocketAddr, rc::Rc};

use net::tls::{PLAIN_HTTP_ANSWER, TlsError};

use super::plain;
use crate::{answer::send_and_close, worker::Worker};

/// A connection on `tlsAddr`.
pub(crate) async fn visit(worker: Rc<Worker>, stream: net::Stream, address: SocketAddr) {
    if let Some(stream) = Box::pin(open(&worker, stream, address)).await {
        plain::serve(worker, stream, address).await;
    }
}

async fn open(worker: &Worker, stream: net::Stream, address: SocketAddr) -> Option<net::Stream> {
    let server = &worker.server;
    let _open = server.sniffing.enter();
    let live = server.live();
    let acceptor = live.tls.as_ref()?;
    match tokio::time::timeout(server.timeouts().handshake, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => return Some(stream),
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

//! QUIC links: connections on `quicAddr` that agreed on gt's protocol. A connection stays on the worker where it arrived, also when its client
//! changes its address (crate `quic`).

use std::rc::Rc;

use ::quic::{Incoming, VarInt};

use crate::{
    complaints::Complaint,
    gate::{Full, Place},
    links,
    network::Network,
    worker::Worker,
};

/// Serves one socket of `quicAddr` until another process takes over; links go on with what that passes on. A server that stops refuses clients in so many words, so that
/// they try another at once: who says nothing over UDP is waited for.
pub(crate) async fn serve(worker: Rc<Worker>, server: ::quic::Server, shard: ::quic::Shard) {
    let endpoint = match shard.start() {
        Ok(endpoint) => endpoint,
        Err(error) => return tracing::error!(%error, "a listener cannot be served"),
    };
    let stop = worker.server.replaced.clone();
    loop {
        let incoming = tokio::select! {
            biased;
            () = stop.wait() => break,
            incoming = endpoint.accept() => incoming,
        };
        let Some(incoming) = incoming else { break };
        let address = incoming.connection.remote_address();
        let place = match enter(&worker, &incoming) {
            Ok(place) => place,
            Err(full) => {
                if worker
                    .server
                    .complaints
                    .hear(Complaint::Pending, address.ip())
                {
                    tracing::warn!(peer = %Network::of(address.ip()), reason = %full, "a connection was closed at once");
                }
                incoming.connection.close(BUSY, b"too many connections");
                continue;
            }
        };
        let worker = Rc::clone(&worker);
        tokio::task::spawn_local(async move {
            let limit = worker.server.timeouts().handshake;
            let accepted = link::Transport::quic_accept(incoming.connection);
            match tokio::time::timeout(limit, accepted).await {
                Ok(Ok(transport)) => {
                    Box::pin(links::accept(&worker, transport, address, place)).await;
                }
                // It came and went, or said nothing: one that looks whether UDP passes.
                Ok(Err(error)) => {
                    tracing::debug!(%error, "a QUIC connection did not become a link")
                }
                Err(_) => worker.server.metrics.header_timeouts_total.add_one(),
            }
        });
    }
    // What is in its handshake now must be told to come again: the other process does not know it.
    server.refuse_new();
    while let Some(incoming) = endpoint.accept().await {
        incoming.connection.close(GONE, b"another process serves");
    }
}

/// Counted with the others that have not shown who they are.
fn enter(worker: &Worker, incoming: &Incoming) -> Result<Place, Full> {
    worker
        .server
        .gate
        .enter(incoming.connection.remote_address().ip())
}

/// What a client is told that finds no place.
const BUSY: VarInt = VarInt::from_u32(1);
/// What a client is told that has to come again.
const GONE: VarInt = VarInt::from_u32(2);

//! What comes over QUIC: links, which agreed on gt's protocol, and HTTP/3 visitors, which go to the proxy. A connection stays on the worker where it
//! arrived, also when its client changes its address (crate `quic`).

use std::{net::SocketAddr, rc::Rc};

use ::quic::{Incoming, VarInt};
use route::Scheme;

use crate::{
    complaints::Complaint,
    gate::{Full, Place},
    links,
    network::Network,
    worker::Worker,
};

/// Serves one socket until another process takes over; links go on with what that passes on. A server that stops refuses clients in so many words, so that
/// they try another at once: who says nothing over UDP is waited for.
pub(crate) async fn serve(worker: Rc<Worker>, server: ::quic::Server, shard: ::quic::Shard) {
    let endpoint = match shard.start() {
        Ok(endpoint) => endpoint,
        Err(error) => return tracing::error!(%error, "a listener cannot be served"),
    };
    let stop = worker.server.replaced.clone();
    let local = server.local_addr();
    loop {
        let incoming = tokio::select! {
            biased;
            () = stop.wait() => break,
            incoming = endpoint.accept() => incoming,
        };
        let Some(incoming) = incoming else { break };
        if incoming.alpn == ::quic::ALPN_H3 {
            tokio::task::spawn_local(visit(Rc::clone(&worker), incoming, local));
            continue;
        }
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
    // A client that is in its handshake now must be told to come again: the other process does not know it. A visitor is answered, and then told.
    server.refuse_new();
    while let Some(incoming) = endpoint.accept().await {
        if incoming.alpn == ::quic::ALPN_H3 {
            tokio::task::spawn_local(visit(Rc::clone(&worker), incoming, local));
        } else {
            incoming.connection.close(GONE, b"another process serves");
        }
    }
}

/// Its requests are looked at one by one, for services in either mode.
async fn visit(worker: Rc<Worker>, incoming: Incoming, local: SocketAddr) {
    let server = &worker.server;
    let listener = server.live().shared_listener(Scheme::Https);
    server.doorway.serve_http3(incoming, local, listener).await;
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

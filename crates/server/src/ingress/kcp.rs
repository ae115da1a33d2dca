//! KCP links: UDP sessions, each of which is a link and nothing else. A session stays on the worker where it arrived, and in the process: when
//! another one takes over, that passes on what comes for it.

use std::rc::Rc;

use super::Arrival;
use crate::{links, worker::Worker};

/// Serves one socket of `kcpAddr` until the server stops, or another process reads it; links go on.
pub(crate) async fn serve(worker: Rc<Worker>, shard: net::kcp::Shard) {
    let mut acceptor = match shard.listen() {
        Ok(acceptor) => acceptor,
        Err(error) => return tracing::error!(%error, "a listener cannot be served"),
    };
    let stop = worker.server.stopping.clone();
    let _accepting = worker.server.accepting.enter();
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.wait() => {
                if worker.server.kcp.steered.is_triggered() {
                    acceptor.retire();
                }
                return;
            }
            accepted = acceptor.accept() => accepted,
        };
        match accepted {
            Ok((stream, address)) => {
                // Counted with the others that have not shown who they are.
                let Some(arrival) = Arrival::new(&worker, stream, address) else {
                    continue;
                };
                let worker = Rc::clone(&worker);
                tokio::task::spawn_local(async move {
                    Box::pin(links::accept(
                        &worker,
                        arrival.stream,
                        arrival.address,
                        arrival.place,
                    ))
                    .await;
                });
            }
            Err(error) => {
                return tracing::error!(%error, "a listener has failed and accepts no more");
            }
        }
    }
}

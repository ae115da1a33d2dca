//! Ports of TCP services: whoever connects is brought to the service; not a byte is read before.

use std::{net::SocketAddr, rc::Rc, sync::Arc};

use net::WorkerHandle;
use tunnel::StreamProtocol;

use super::{accept_until, udp};
use crate::{
    forward::{Visit, carry},
    ports::{Opened, Port},
    worker::Worker,
};

/// Serves a port that was just opened for a service.
pub(crate) fn serve_port(workers: &[WorkerHandle], port: &Arc<Port>, sockets: Opened) {
    match sockets {
        Opened::Tcp(listeners) => {
            for (handle, listener) in workers.iter().zip(listeners) {
                let port = Arc::clone(port);
                let _ = handle.spawn(move || async move {
                    let Some(worker) = Worker::current() else {
                        return;
                    };
                    let (closed, stopping) = (port.closed.clone(), worker.server.stopping.clone());
                    let visit = |worker, stream, address| visit(worker, &port, stream, address);
                    tokio::select! {
                        () = accept_until(&worker, listener, &closed, visit) => {}
                        () = stopping.wait() => {}
                    }
                });
            }
        }
        Opened::Udp(socket) => udp::serve(workers, Arc::clone(port), socket),
    }
}

/// Not an `async fn`: its state would be one more layer around that of every idle visitor.
fn visit(
    worker: Rc<Worker>,
    port: &Port,
    stream: net::Stream,
    address: SocketAddr,
) -> Option<impl Future<Output = ()> + use<>> {
    let Some(service) = port.route.load().pick().cloned() else {
        worker.server.metrics.client_away_total.add_one();
        stream.abort();
        return None;
    };
    let visit = Visit::new(
        &worker.server,
        stream,
        Vec::new(),
        address,
        StreamProtocol::Tcp,
    );
    Some(carry(worker, visit, service))
}

//! Ports of TCP services: whoever connects is brought to the service; not a byte is read before.

use std::{net::SocketAddr, rc::Rc, sync::Arc};

use net::WorkerHandle;
use tunnel::StreamProtocol;

use super::{accept_until, counted, udp};
use crate::{
    answer::Form,
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
                    let visit =
                        |worker, stream, address| visit(worker, Arc::clone(&port), stream, address);
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

async fn visit(worker: Rc<Worker>, port: Arc<Port>, stream: net::Stream, address: SocketAddr) {
    let service = port.route.load().pick().cloned();
    drop(port);
    let Some(service) = service else {
        worker.server.metrics.client_away_total.add_one();
        return stream.abort();
    };
    let visit = Visit {
        local: stream.local_addr().unwrap_or(address),
        stream,
        head: Vec::new(),
        visitor: address,
        protocol: StreamProtocol::Tcp,
        form: Form::default(),
        server_name: None,
    };
    let rest = Rc::clone(&worker);
    counted(worker, async move { carry(&rest, visit, service).await }).await;
}

//! Ports of TCP services: whoever connects is brought to the service; not a byte is read before.

use std::{net::SocketAddr, rc::Rc, sync::Arc, time::Duration};

use net::WorkerHandle;
use tunnel::StreamProtocol;

use super::{accept_until, shares, udp};
use crate::{
    forward::{Visit, carry},
    ports::{Opened, Port},
    session::Service,
    worker::Worker,
};

/// Serves a port that was just opened for a service.
pub(crate) fn serve_port(workers: &[WorkerHandle], port: &Arc<Port>, sockets: Opened) {
    match sockets {
        Opened::Tcp(listeners) => {
            for (handle, listener) in shares(workers, &listeners) {
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
    port: &Arc<Port>,
    stream: net::Stream,
    address: SocketAddr,
) -> Option<impl Future<Output = ()> + use<>> {
    let Some(service) = port.route.load().pick().cloned() else {
        tokio::task::spawn_local(wait(worker, Arc::clone(port), stream, address));
        return None;
    };
    Some(begin(worker, stream, address, service))
}

/// A client that changes its services leaves a port without one for a moment.
async fn wait(worker: Rc<Worker>, port: Arc<Port>, stream: net::Stream, address: SocketAddr) {
    let open = worker.server.sniffing.enter();
    for _ in 0..LOOKS {
        tokio::time::sleep(LOOK_AFTER).await;
        let service = port.route.load().pick().cloned();
        if let Some(service) = service {
            let begun = begin(Rc::clone(&worker), stream, address, service);
            drop(open);
            return begun.await;
        }
    }
    worker.server.metrics.client_away_total.add_one();
    stream.abort();
}

fn begin(
    worker: Rc<Worker>,
    stream: net::Stream,
    address: SocketAddr,
    service: Arc<Service>,
) -> impl Future<Output = ()> + use<> {
    let visit = Visit::new(
        &worker.server,
        stream,
        Vec::new(),
        address,
        StreamProtocol::Tcp,
    );
    carry(worker, visit, service)
}

const LOOKS: u32 = 10;
const LOOK_AFTER: Duration = Duration::from_millis(10);

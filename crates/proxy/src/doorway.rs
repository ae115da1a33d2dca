//! The way in for visitors that a server has accepted: on addresses that both serve, and for services in HTTP mode. Makes a server's thread a
//! part of the proxy when it is first used.

use std::{net::SocketAddr, rc::Rc, sync::Arc};

use arc_swap::ArcSwap;
use net::Shutdown;
use route::{Claim, Scheme};

use crate::{
    aside::Aside,
    h3, ingress,
    log::Lines,
    metrics::Metrics,
    relay::Relay,
    site::Site,
    visitor::{About, Entry},
    worker::Worker,
};

/// What every thread of a proxy has in common. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Doorway {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) site: ArcSwap<Site>,
    /// By thread.
    pub(crate) metrics: Vec<Arc<Metrics>>,
    pub(crate) stopping: Shutdown,
    relay: Option<Arc<dyn Relay>>,
    aside: Aside,
}

/// A visitor's connection, as the server knows it.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// The other end.
    pub peer: SocketAddr,
    /// Where it came in.
    pub local: SocketAddr,
    /// Whether it came with TLS.
    pub scheme: Scheme,
    /// The place of the proxy's listener on that address; `None` where there is none, and only relay services answer.
    pub listener: Option<u16>,
    /// The UDP port where the same is to be had over HTTP/3.
    pub http3: Option<u16>,
}

impl Doorway {
    pub(crate) fn new(site: Site, threads: usize, relay: Option<Arc<dyn Relay>>) -> Self {
        Self {
            shared: Arc::new(Shared {
                site: ArcSwap::from_pointee(site),
                metrics: (0..threads).map(|_| Arc::default()).collect(),
                stopping: Shutdown::new(),
                relay,
                aside: Aside::new(),
            }),
        }
    }

    /// What routes say of a host on a listener of the proxy.
    #[must_use]
    pub fn claim(&self, listener: u16, scheme: Scheme, host: &[u8]) -> Claim {
        self.shared.site.load().routes.claim(listener, scheme, host)
    }

    /// Serves a connection until it ends. Runs on one of the threads.
    pub async fn serve(&self, stream: net::Stream, arrival: Arrival) {
        let Some(worker) = self.worker() else {
            return;
        };
        let about = About {
            peer: arrival.peer,
            local: arrival.local,
            scheme: arrival.scheme,
            listener: arrival.listener.unwrap_or(u16::MAX),
            entry: Entry::of_server(arrival.listener),
            certificate: None,
            http3: arrival.http3,
            preface: true,
        };
        ingress::visit_of_server(worker, stream, about).await;
    }

    /// Serves an HTTP/3 connection until it ends. Runs on one of the threads. `local` and `listener` are as in [`Arrival`].
    pub async fn serve_http3(
        &self,
        incoming: quic::Incoming,
        local: SocketAddr,
        listener: Option<u16>,
    ) {
        let Some(worker) = self.worker() else {
            return;
        };
        let entrance = h3::Entrance {
            local,
            listener: listener.unwrap_or(u16::MAX),
            entry: Entry::of_server(listener),
        };
        h3::serve(worker, entrance, incoming).await;
    }

    /// This thread's worker.
    fn worker(&self) -> Option<Rc<Worker>> {
        Worker::current().or_else(|| self.install(None))
    }

    /// Makes this thread a part of the proxy, if it is one of its threads.
    pub(crate) fn install(&self, lines: Option<Lines>) -> Option<Rc<Worker>> {
        let shared = &self.shared;
        let metrics = shared.metrics.get(net::current_worker()?)?;
        let (site, metrics) = (shared.site.load_full(), Arc::clone(metrics));
        let worker = Worker::new(
            site,
            metrics,
            lines,
            shared.aside.clone(),
            shared.relay.clone(),
        );
        worker.install();
        if shared.stopping.is_triggered() {
            worker.drain(crate::proxy::LAST_REQUEST);
        }
        Some(worker)
    }
}

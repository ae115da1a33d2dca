//! Starts and stops a server: workers, listeners, and what they share. What becomes of them when another process takes over is in `handover`.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use arc_swap::{ArcSwap, ArcSwapOption};
use net::{
    ListenSource, OwnSockets, Shutdown, WorkerHandle, Workers,
    tls::{TlsConfigError, TlsFileError},
};
use proxy::{Doorway, Proxy};
use tunnel::{ControlMessage, Drain, Message};

use crate::{
    auth::{Throttle, Users},
    complaints::Complaints,
    egress::inprocess::StatusPage,
    forward,
    gate::Gate,
    handover::Passing,
    ingress, links,
    live::{Live, proxy_options},
    metrics::{Gauge, Metrics},
    ports::Ports,
    registry::{Registry, Rules},
    snapshot::Snapshot,
    worker::Worker,
};

/// Why a server did not start. Nothing is left running.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address cannot be listened on.
    #[error("{option}: cannot listen on {address}: {error}")]
    Listen {
        /// The option that names the address.
        option: &'static str,
        /// The address.
        address: SocketAddr,
        /// The system's answer.
        error: io::Error,
    },
    /// A certificate or key cannot be used.
    #[error("{0}")]
    Certificate(#[from] TlsFileError),
    /// TLS cannot be set up.
    #[error("{0}")]
    Tls(#[from] TlsConfigError),
    /// A user's id or secret cannot be used.
    #[error("a user's {0}")]
    User(#[from] tunnel::InvalidValue),
    /// The proxy's listeners cannot be opened.
    #[error(transparent)]
    Proxy(#[from] proxy::StartError),
    /// What the proxy's configuration names cannot be used.
    #[error(transparent)]
    Configured(#[from] proxy::ConfiguredError),
    /// Threads cannot be started.
    #[error("worker threads cannot be started: {0}")]
    Workers(io::Error),
}

/// What all workers share.
pub(crate) struct Shared {
    live: ArcSwap<Live>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) registry: Registry,
    pub(crate) throttle: Throttle,
    /// Connections that are not understood yet.
    pub(crate) sniffing: Gauge,
    /// Accept loops that run.
    pub(crate) accepting: Gauge,
    pub(crate) gate: Arc<Gate>,
    pub(crate) complaints: Complaints,
    /// No new visitors and links.
    pub(crate) stopping: Shutdown,
    /// Another process takes over: it reads the UDP sockets.
    pub(crate) replaced: Shutdown,
    /// What that means for KCP links.
    pub(crate) kcp: Passing,
    /// And for QUIC links.
    pub(crate) quic: Passing,
    pub(crate) started: Instant,
    /// Where HTTP/3 is served, for those who came over TLS.
    pub(crate) http3: Option<u16>,
    /// Option and address of each listener.
    pub(crate) listeners: Vec<(&'static str, SocketAddr)>,
    pub(crate) status_page: StatusPage,
    pub(crate) kcp_totals: Arc<net::kcp::Totals>,
    /// The way to the proxy on this server's threads.
    pub(crate) doorway: Doorway,
    pub(crate) proxy: proxy::Observer,
    workers: OnceLock<Vec<WorkerHandle>>,
    /// Ids that were connected when another process took over.
    pub(crate) went: OnceLock<Vec<String>>,
}

impl Shared {
    /// The configuration of this moment.
    pub(crate) fn live(&self) -> Arc<Live> {
        self.live.load_full()
    }

    pub(crate) fn timeouts(&self) -> config::ServerTimeouts {
        self.live.load().config.timeouts
    }

    pub(crate) fn replace_live(&self, live: Live) {
        self.live.store(Arc::new(live));
    }

    pub(crate) fn handle(&self, worker: usize) -> Option<&WorkerHandle> {
        self.workers.get()?.get(worker)
    }

    pub(crate) fn worker_count(&self) -> usize {
        self.workers.get().map_or(1, Vec::len)
    }

    /// Runs `task` on every worker.
    pub(crate) fn on_each(&self, task: impl Fn(&Worker) + Clone + Send + 'static) {
        for handle in self.workers.get().into_iter().flatten() {
            let task = task.clone();
            let _ = handle.spawn(move || async move {
                if let Some(worker) = Worker::current() {
                    task(&worker);
                }
            });
        }
    }
}

/// A running server. Dropping it ends it at once; [`Server::stop`] ends it in order.
pub struct Server {
    pub(crate) shared: Arc<Shared>,
    pub(crate) proxy: Proxy,
    pub(crate) workers: Workers,
    /// Opened, and not served before [`Server::serve`].
    waiting: Option<ingress::Listeners>,
    /// Listeners over UDP, which another process will read.
    pub(crate) over_udp: ingress::OverUdp,
}

impl Server {
    /// Listens on everything the configuration names, or on nothing: after an error no socket is left open.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(config: config::Server) -> Result<Self, StartError> {
        let mut server = Self::prepare(config, Arc::new(OwnSockets))?;
        server.serve();
        Ok(server)
    }

    /// Opens everything with the sockets of `sockets`; accepts nobody before [`Server::serve`].
    ///
    /// # Errors
    /// [`StartError`].
    pub fn prepare(
        config: config::Server,
        sockets: Arc<dyn ListenSource>,
    ) -> Result<Self, StartError> {
        let count = config
            .workers
            .map_or_else(net::default_worker_count, usize::from);
        // Files are read before any socket is opened.
        let live = Live::new(config)?;
        let config = &live.config;
        let listeners = ingress::Listeners::bind(config, count, &*sockets)?;
        let options = proxy_options(config)?;
        let metrics = Arc::new(Metrics::default());
        let workers = Workers::start(count, "gt-server").map_err(StartError::Workers)?;
        let handles = workers.handles().to_vec();
        let services = Arc::new(forward::http::Services);
        let proxy = Proxy::prepare_on(handles.clone(), options, services, &*sockets)?;
        let address = [
            config.listeners.plain,
            config.listeners.tls,
            config.listeners.sni,
        ]
        .into_iter()
        .flatten()
        .next();
        let address = address.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |address| address.ip());
        let serve_on = handles.clone();
        let ports = Ports::new(
            address,
            count,
            sockets,
            Box::new(move |port, sockets| ingress::serve_port(&serve_on, &port, sockets)),
        );
        let rules = Rules {
            workers: count,
            expected: Arc::new(Users::new(config)),
            http: listeners.plain_address(),
            https: listeners.tls_address(),
            sni: listeners.sni_address(),
            status_prefix: ArcSwapOption::from(config.status_prefix.clone().map(Arc::new)),
        };
        let shared = Arc::new(Shared {
            registry: Registry::new(rules, ports, Arc::clone(&metrics)),
            throttle: Throttle::new(&config.throttle),
            gate: Arc::new(Gate::new(
                config.pending,
                net::open_files_limit(),
                Arc::clone(&metrics),
            )),
            complaints: Complaints::default(),
            metrics,
            stopping: Shutdown::new(),
            replaced: Shutdown::new(),
            kcp: Passing::default(),
            quic: Passing::default(),
            started: Instant::now(),
            http3: (listeners.tls_address())
                .filter(|_| live.config.listeners.http3)
                .map(|tls| tls.port()),
            listeners: listeners
                .addresses()
                .into_iter()
                .chain(proxy.addresses().iter().map(|at| ("listeners", *at)))
                .collect(),
            doorway: proxy.doorway(),
            proxy: proxy.observer(),
            status_page: StatusPage::default(),
            kcp_totals: Arc::default(),
            workers: OnceLock::new(),
            went: OnceLock::new(),
            sniffing: Gauge::default(),
            accepting: Gauge::default(),
            live: ArcSwap::from_pointee(live),
        });
        let _ = shared.workers.set(handles);
        for (index, handle) in workers.handles().iter().enumerate() {
            let shared = Arc::clone(&shared);
            let _ = handle.spawn(move || async move { Worker::install(index, shared) });
        }
        if let Some(first) = workers.handles().first() {
            let shared = Arc::clone(&shared);
            let _ = first.spawn(move || housekeeping(shared));
        }
        Ok(Self {
            shared,
            proxy,
            workers,
            waiting: Some(listeners),
            over_udp: ingress::OverUdp::default(),
        })
    }

    /// Opens the proxy's access log again by its name, after it was renamed.
    pub fn reopen_logs(&self) {
        self.proxy.reopen_logs();
    }

    /// Begins to accept.
    pub fn serve(&mut self) {
        if let Some(listeners) = self.waiting.take() {
            let shared = &self.shared;
            let live = shared.live();
            let config::Kcp { mode, fec, mtu } = live.config.kcp;
            let udp = ingress::UdpOptions {
                kcp: net::kcp::options(mode, fec, usize::from(mtu)),
                kcp_totals: &shared.kcp_totals,
                quic: live.quic.clone(),
                http3: live.http3.clone(),
                http3_port: shared.http3,
                bbr: live.config.bbr,
            };
            self.over_udp = listeners.serve(self.workers.handles(), udp);
            self.proxy.serve();
        }
    }

    /// The server's state, for status and metrics; callable from any thread.
    #[must_use]
    pub fn observer(&self) -> Observer {
        Observer(Arc::clone(&self.shared))
    }

    /// Ends in order: takes no more visitors and links, asks clients to move, waits up to `patience` for visits to end, then closes
    /// every link.
    pub fn stop(self, patience: Duration) {
        let Self {
            shared,
            workers,
            proxy,
            ..
        } = self;
        shared.stopping.trigger();
        proxy.leave();
        let drain = ControlMessage::Drain(Drain {
            deadline: patience,
            reason: Message::new("the server stops"),
        });
        shared.on_each(move |worker| links::broadcast(worker, &drain));
        let deadline = Instant::now() + patience;
        let busy = || shared.metrics.streams_open.get() > 0 || proxy.left() > 0;
        while busy() && Instant::now() < deadline {
            std::thread::sleep(POLL);
        }
        shared.on_each(|worker| worker.all_links().iter().for_each(link::Link::close));
        let deadline = Instant::now() + LAST_WORDS;
        while shared.metrics.links_open.get() > 0 && Instant::now() < deadline {
            std::thread::sleep(POLL);
        }
        if let Err(error) = workers.shutdown(LAST_WORDS) {
            tracing::warn!(%error, "the server ends although workers are still busy");
        }
    }
}

/// Reads a server's state from any thread.
#[derive(Clone)]
pub struct Observer(Arc<Shared>);

impl Observer {
    /// The state now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.0.snapshot()
    }

    /// Whether the server is about to stop; cheaper than a snapshot.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.0.stopping.is_triggered()
    }
}

/// What must be done now and then, off every path.
async fn housekeeping(shared: Arc<Shared>) {
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    loop {
        ticks.tick().await;
        shared.registry.close_unused_ports();
        shared.complaints.write_due();
    }
}

const POLL: Duration = Duration::from_millis(10);
/// What closing links and threads may take.
const LAST_WORDS: Duration = Duration::from_secs(2);

//! Starts and stops a server: workers, listeners, and what they share.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use net::{
    Shutdown, WorkerHandle, Workers,
    tls::{
        MinVersion, TlsAcceptor, TlsClientOptions, TlsConfigError, TlsConnector, TlsFileError,
        TlsServerOptions, UnknownName,
    },
};
use tunnel::{ControlMessage, Drain, Message};

use crate::{
    auth::{AuthApi, Keys, Throttle, Users},
    complaints::Complaints,
    egress::inprocess::StatusPage,
    gate::Gate,
    ingress, links,
    metrics::Metrics,
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
    /// Threads cannot be started.
    #[error("worker threads cannot be started: {0}")]
    Workers(io::Error),
}

/// What all workers share.
pub(crate) struct Shared {
    pub(crate) config: config::Server,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) registry: Registry,
    pub(crate) throttle: Throttle,
    pub(crate) gate: Arc<Gate>,
    pub(crate) complaints: Complaints,
    pub(crate) keys: Keys,
    pub(crate) auth_api: Option<AuthApi>,
    pub(crate) tls: Option<TlsAcceptor>,
    /// No new visitors and links.
    pub(crate) stopping: Shutdown,
    pub(crate) started: Instant,
    /// Option and address of each listener.
    pub(crate) listeners: Vec<(&'static str, SocketAddr)>,
    pub(crate) status_page: StatusPage,
    pub(crate) kcp_totals: Arc<net::kcp::Totals>,
    workers: OnceLock<Vec<WorkerHandle>>,
}

impl Shared {
    pub(crate) fn handle(&self, worker: usize) -> Option<&WorkerHandle> {
        self.workers.get()?.get(worker)
    }

    pub(crate) fn worker_count(&self) -> usize {
        self.workers.get().map_or(1, Vec::len)
    }

    /// Runs `task` on every worker.
    fn on_each(&self, task: impl Fn(&Worker) + Clone + Send + 'static) {
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
    workers: Workers,
}

impl Server {
    /// Listens on everything the configuration names, or on nothing: after an error no socket is left open.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(config: config::Server) -> Result<Self, StartError> {
        let count = config
            .workers
            .map_or_else(net::default_worker_count, usize::from);
        let tls = acceptor(&config)?;
        let listeners = ingress::Listeners::bind(&config, count)?;
        let keys = Keys::new(&config)?;
        let auth_api = match &config.auth_api {
            Some(url) => Some(AuthApi::new(
                url.clone(),
                TlsConnector::new(&TlsClientOptions::default())?,
            )),
            None => None,
        };
        let metrics = Arc::new(Metrics::default());
        let workers = Workers::start(count, "gt-server").map_err(StartError::Workers)?;
        let handles = workers.handles().to_vec();
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
            Box::new(move |port, sockets| ingress::serve_port(&serve_on, &port, sockets)),
        );
        let rules = Rules {
            workers: count,
            expected: Arc::new(Users::new(&config)),
            http: listeners.plain_address(),
            https: listeners.tls_address(),
            sni: listeners.sni_address(),
            status_prefix: config.status_prefix.clone(),
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
            keys,
            auth_api,
            tls,
            stopping: Shutdown::new(),
            started: Instant::now(),
            listeners: listeners.addresses(),
            status_page: StatusPage::default(),
            kcp_totals: Arc::default(),
            workers: OnceLock::new(),
            config,
        });
        let _ = shared.workers.set(handles);
        for (index, handle) in workers.handles().iter().enumerate() {
            let shared = Arc::clone(&shared);
            let _ = handle.spawn(move || async move { Worker::install(index, shared) });
        }
        let config::Kcp { mode, fec, mtu } = shared.config.kcp;
        let kcp = net::kcp::options(mode, fec, usize::from(mtu));
        listeners.serve(workers.handles(), &kcp, &shared.kcp_totals);
        if let Some(first) = workers.handles().first() {
            let shared = Arc::clone(&shared);
            let _ = first.spawn(move || housekeeping(shared));
        }
        Ok(Self { shared, workers })
    }

    /// The server's state, for status and metrics; callable from any thread.
    #[must_use]
    pub fn observer(&self) -> Observer {
        Observer(Arc::clone(&self.shared))
    }

    /// Ends in order: takes no more visitors and links, asks clients to move, waits up to `patience` for visits to end, then closes
    /// every link.
    pub fn stop(self, patience: Duration) {
        let Self { shared, workers } = self;
        shared.stopping.trigger();
        let drain = ControlMessage::Drain(Drain {
            deadline: patience,
            reason: Message::new("the server stops"),
        });
        shared.on_each(move |worker| links::broadcast(worker, &drain));
        let deadline = Instant::now() + patience;
        while shared.metrics.streams_open.get() > 0 && Instant::now() < deadline {
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

fn acceptor(config: &config::Server) -> Result<Option<TlsAcceptor>, StartError> {
    if config.listeners.tls.is_none() {
        return Ok(None);
    }
    let load = |files: &config::Certificate| {
        net::tls::load_certificates(&files.cert_file, &files.key_file)
    };
    let options = TlsServerOptions {
        certificates: config
            .certificates
            .iter()
            .map(load)
            .collect::<Result<_, _>>()?,
        min_version: match config.tls_min_version {
            config::TlsVersion::V1_2 => MinVersion::Tls12,
            config::TlsVersion::V1_3 => MinVersion::Tls13,
        },
        // Streams are copied untouched, so what is agreed here must suit services that know HTTP/1 only.
        alpn: vec![b"http/1.1".to_vec(), tunnel::ALPN.to_vec()],
        unknown_name: UnknownName::ServeDefault,
    };
    Ok(Some(TlsAcceptor::new(&options)?))
}

const POLL: Duration = Duration::from_millis(10);
/// What closing links and threads may take.
const LAST_WORDS: Duration = Duration::from_secs(2);

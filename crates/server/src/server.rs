//! Starts and stops a server: workers, listeners, and what they share.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use arc_swap::{ArcSwap, ArcSwapOption};
use config::ListenerProtocol;
use net::{
    ListenSource, OwnSockets, Shutdown, WorkerHandle, Workers,
    tls::{TlsAcceptor, TlsClientOptions, TlsConfigError, TlsConnector, TlsFileError},
};
use proxy::{Doorway, Proxy};
use route::Scheme;
use tunnel::{ControlMessage, Drain, Message};

use crate::{
    auth::{AuthApi, Keys, Throttle, Users},
    complaints::Complaints,
    egress::inprocess::StatusPage,
    forward,
    gate::Gate,
    ingress, links,
    metrics::{Gauge, Metrics},
    ports::Ports,
    registry::{Registry, Rules},
    reload::certificates,
    snapshot::Snapshot,
    tls::{acceptor, quic_protocols, quic_tls},
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
    went: OnceLock<Vec<String>>,
}

/// What becomes of links over one protocol on UDP when another process takes over.
#[derive(Default)]
pub(crate) struct Passing {
    /// It passes on what is for this one: links go on.
    pub(crate) steered: Shutdown,
    /// It does not: they end.
    pub(crate) cut: Shutdown,
}

impl Passing {
    fn decide(&self, steered: bool) {
        if steered {
            self.steered.trigger();
        } else {
            self.cut.trigger();
        }
    }
}

/// What another configuration replaces while the server runs.
pub(crate) struct Live {
    pub(crate) config: config::Server,
    pub(crate) keys: Keys,
    pub(crate) auth_api: Option<AuthApi>,
    pub(crate) tls: Option<TlsAcceptor>,
    /// Certificates and protocols at `quicAddr`.
    pub(crate) quic: Option<quic::ServerTls>,
    /// And at the address of `tlsAddr`, where that is another one and HTTP/3 is served.
    pub(crate) http3: Option<quic::ServerTls>,
    /// As `tls` with HTTP/2, for names whose requests are looked at one by one.
    pub(crate) tls_http2: Option<TlsAcceptor>,
    /// What the certificate files held.
    pub(crate) certificates: Vec<Vec<u8>>,
}

impl Live {
    pub(crate) fn new(config: config::Server) -> Result<Self, StartError> {
        let auth_api = match &config.auth_api {
            Some(url) => Some(AuthApi::new(
                url.clone(),
                TlsConnector::new(&TlsClientOptions::default())?,
            )),
            None => None,
        };
        Ok(Self {
            keys: Keys::new(&config)?,
            quic: quic_tls(
                &config,
                config.listeners.quic.is_some(),
                &quic_protocols(&config),
            )?,
            http3: quic_tls(&config, ingress::has_http3_alone(&config), &[quic::ALPN_H3])?,
            tls: acceptor(&config, false)?,
            tls_http2: acceptor(&config, true)?,
            certificates: certificates(&config),
            auth_api,
            config,
        })
    }

    /// The place of the proxy's listener on the address where visitors come with this scheme.
    pub(crate) fn shared_listener(&self, scheme: Scheme) -> Option<u16> {
        let tls = scheme == Scheme::Https;
        let listeners = &self.config.proxy.as_ref()?.listeners;
        let here = |listener: &config::ProxyListener| matches!(listener.protocol, ListenerProtocol::OfServer { tls: its } if its == tls);
        let place = listeners.iter().position(here)?;
        u16::try_from(place).ok()
    }
}

/// What the proxy of a server runs: its `proxy` section, and relay services.
fn proxy_options(config: &config::Server) -> Result<proxy::Options, proxy::ConfiguredError> {
    let mut options = match &config.proxy {
        Some(proxy) => proxy::options(proxy, None)?,
        None => proxy::Options {
            workers: None,
            listeners: Vec::new(),
            site: proxy::Site::default(),
            access_log: None,
        },
    };
    options.site.relay.route.timeouts = forward::http::timeouts(config);
    Ok(options)
}

/// The site alone, for a reload.
pub(crate) fn proxy_site(config: &config::Server) -> Result<proxy::Site, proxy::ConfiguredError> {
    let mut site = match &config.proxy {
        Some(proxy) => proxy::site(proxy)?,
        None => proxy::Site::default(),
    };
    site.relay.route.timeouts = forward::http::timeouts(config);
    Ok(site)
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
    workers: Workers,
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

    /// As [`Server::serve`], where another process served until now: whoever asks for a name whose client has not come over yet waits
    /// for it, up to 5 s from now. `clients` are the ids that the other process had ([`Server::clients`]), if it could say.
    pub fn take_over(&mut self, clients: Option<Vec<String>>) {
        let clients = clients.map(|clients| clients.into_iter().collect());
        self.shared.registry.expect_arrivals(clients, ARRIVALS);
        self.serve();
    }

    /// Ids of the clients that are connected, or were a moment ago.
    #[must_use]
    pub fn clients(&self) -> Vec<String> {
        let mut ids = self.shared.registry.ids();
        ids.extend(self.shared.went.get().into_iter().flatten().cloned());
        ids.into_iter().collect()
    }

    /// Whether the clients of the process before this one have come over, or are not waited for any more. To replace this process
    /// before would lose visitors that wait for them here.
    #[must_use]
    pub fn has_settled(&self) -> bool {
        self.shared.registry.have_arrived()
    }

    /// Stops accepting, and asks clients to open other links before these end, within `deadline`. Returns when nobody new is accepted,
    /// after half a second at most. What runs goes on: [`Server::left`] tells what is left, [`Server::stop`] ends it.
    pub fn leave(&self, deadline: Duration) {
        let shared = &self.shared;
        shared.kcp.decide(self.let_datagrams_in());
        shared.quic.decide(self.hand_quic_over());
        shared.replaced.trigger();
        let _ = shared.went.set(shared.registry.ids().into_iter().collect());
        shared.stopping.trigger();
        self.proxy.leave();
        let until = Instant::now() + LEAVE_TIME;
        let reads_quic = || {
            let mut over_quic = self.over_udp.over_quic();
            shared.quic.steered.is_triggered() && over_quic.any(::quic::Server::is_reading)
        };
        while (shared.accepting.get() > 0 || reads_quic()) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        let drain = ControlMessage::Drain(Drain {
            deadline,
            reason: Message::new("another process of this server takes over"),
        });
        shared.on_each(move |worker| links::broadcast(worker, &drain));
    }

    /// Whether the next process can pass on datagrams of the sessions that are left here.
    fn let_datagrams_in(&self) -> bool {
        let Some(entrance) = &self.over_udp.kcp else {
            return false;
        };
        let entrance = match entrance.open() {
            Ok(entrance) => entrance,
            Err(error) => {
                tracing::warn!(%error, "links over KCP end now: the next process has no way to pass on what comes for them");
                return false;
            }
        };
        let Some(first) = self.workers.handles().first() else {
            return false;
        };
        let served = first.spawn(move || async move {
            if let Err(error) = entrance.serve().await {
                tracing::error!(%error, "nothing more comes from the process that took over");
            }
        });
        served.is_ok()
    }

    /// The same for QUIC, whose sockets are not read any more then.
    fn hand_quic_over(&self) -> bool {
        let Some(first) = self.workers.handles().first() else {
            return false;
        };
        let mut handed_over = false;
        for quic in self.over_udp.over_quic() {
            if let Err(error) = quic.hand_over(first) {
                tracing::warn!(%error, address = %quic.local_addr(), "connections over QUIC end now: the next process has no way to pass on what comes for them");
                return false;
            }
            handed_over = true;
        }
        handed_over
    }

    /// Visits that run, and links.
    #[must_use]
    pub fn left(&self) -> (u64, u64) {
        let shared = &self.shared;
        // A UDP visitor has no connection, but a stream.
        let visits = shared
            .metrics
            .visitors_open
            .get()
            .max(shared.metrics.streams_open.get())
            .max(self.proxy.left());
        (
            visits + shared.sniffing.get(),
            shared.metrics.links_open.get(),
        )
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

/// How long the clients of a process before this one are expected: they are told to come, or notice a broken link, at once.
const ARRIVALS: Duration = Duration::from_secs(5);
/// What accept loops may take to stop.
const LEAVE_TIME: Duration = Duration::from_millis(500);
const POLL: Duration = Duration::from_millis(10);
/// What closing links and threads may take.
const LAST_WORDS: Duration = Duration::from_secs(2);

//! Starts and stops a proxy: workers, listeners, and the site that they serve.

use std::{
    io,
    net::SocketAddr,
    path::PathBuf,
    pin::pin,
    sync::{
        Arc,
        atomic::{
            AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
        mpsc,
    },
    time::{Duration, Instant},
};

use net::{Acceptor, ListenSource, OwnSockets, Shutdown, WorkerHandle, Workers, tls::TlsAcceptor};
use route::IpSet;

use crate::{
    checks,
    crew::Crew,
    doorway::Doorway,
    h3,
    ingress::{self, Door, Protocol},
    log::{AccessLog, AccessLogSpec},
    metrics::Metrics,
    relay::Relay,
    site::{SharedSite, Site},
    worker::Worker,
};

/// What a proxy is started with.
#[derive(Debug)]
pub struct Options {
    /// Data threads; one per core if `None`.
    pub workers: Option<usize>,
    /// Where visitors come in.
    pub listeners: Vec<Listener>,
    /// What is served.
    pub site: Site,
    /// Where and how exchanges are logged.
    pub access_log: Option<AccessLogSpec>,
}

/// One listener.
#[derive(Debug)]
pub struct Listener {
    /// Where.
    pub address: SocketAddr,
    /// What it speaks.
    pub protocol: Protocol,
    /// Peers that begin with a PROXY header.
    pub proxy_from: IpSet,
    /// HTTP/3 too, on the UDP port of the same number; only with [`Protocol::Https`].
    pub http3: bool,
}

/// Why a proxy did not start. Nothing is left running.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's answer.
        error: io::Error,
    },
    /// The access log cannot be opened.
    #[error("the access log {path} cannot be opened: {error}")]
    AccessLog {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        error: io::Error,
    },
    /// HTTP/3 cannot be had on a listener's port.
    #[error("HTTP/3 on {address}: {error}")]
    Http3 {
        /// The address.
        address: SocketAddr,
        /// Why.
        error: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Threads cannot be started.
    #[error("worker threads cannot be started: {0}")]
    Workers(io::Error),
}

/// A running proxy. Dropping it ends it at once; [`Proxy::stop`] ends it in order.
#[derive(Debug)]
pub struct Proxy {
    /// `None` where it works on the threads of a server.
    threads: Option<Workers>,
    workers: Vec<WorkerHandle>,
    core: Doorway,
    metrics: Vec<Arc<Metrics>>,
    stopping: Shutdown,
    /// Accept loops that run.
    accepting: Arc<AtomicU64>,
    addresses: Vec<SocketAddr>,
    access_log: Option<AccessLog>,
    /// Bound, and not served yet.
    waiting: Vec<(Door, Vec<(usize, std::net::TcpListener)>)>,
    /// HTTP/3 of those that have it.
    quic: Vec<(Door, quic::Server)>,
    started: Instant,
}

/// Reads a proxy's state.
#[derive(Clone, Debug)]
pub struct Observer {
    metrics: Vec<Arc<Metrics>>,
    stopping: Shutdown,
    addresses: Vec<SocketAddr>,
    lost: Option<Arc<AtomicU64>>,
    started: Instant,
}

impl Observer {
    /// Every metric of all workers together: name without the `gt_` prefix, help text, Prometheus type, value.
    #[must_use]
    pub fn metrics(&self) -> Vec<(&'static str, &'static str, &'static str, u64)> {
        let mut sums = Metrics::default().list();
        for worker in &self.metrics {
            for (sum, one) in sums.iter_mut().zip(worker.list()) {
                sum.3 = sum.3.wrapping_add(one.3);
            }
        }
        if let Some(lost) = &self.lost {
            let help =
                "Lines of the access log that were lost because the disk was full or too slow.";
            sums.push((
                "proxy_access_log_lost_total",
                help,
                "counter",
                lost.load(Relaxed),
            ));
        }
        sums
    }

    /// Whether it takes no more visitors.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stopping.is_triggered()
    }

    /// Where it listens.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// How long it has been there.
    #[must_use]
    pub fn uptime(&self) -> Duration {
        self.started.elapsed()
    }
}

impl Proxy {
    /// Listens on everything, or on nothing: after an error no socket is left open.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(options: Options) -> Result<Self, StartError> {
        let mut proxy = Self::prepare(options, &OwnSockets)?;
        proxy.serve();
        Ok(proxy)
    }

    /// Opens everything with the sockets of `sockets`; accepts nobody before [`Proxy::serve`].
    ///
    /// # Errors
    /// [`StartError`].
    pub fn prepare(options: Options, sockets: &dyn ListenSource) -> Result<Self, StartError> {
        let count = options
            .workers
            .unwrap_or_else(net::default_worker_count)
            .max(1);
        let (waiting, quic, access_log) =
            open(options.listeners, options.access_log, sockets, count)?;
        let threads = Workers::start(count, "gt-proxy").map_err(StartError::Workers)?;
        let workers = threads.handles().to_vec();
        let core = Doorway::new(options.site, count, None);
        let proxy = Self::on(workers, core, (waiting, quic, access_log), Some(threads));
        proxy.install();
        Ok(proxy)
    }

    /// As [`Proxy::prepare`], on the threads of a server, which brings visitors through [`Proxy::doorway`] and services through `relay`.
    /// Without listeners, a thread becomes part of it when it is first used.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn prepare_on(
        workers: Vec<WorkerHandle>,
        options: Options,
        relay: Arc<dyn Relay>,
        sockets: &dyn ListenSource,
    ) -> Result<Self, StartError> {
        let count = workers.len();
        let lazy = options.listeners.is_empty() && options.access_log.is_none();
        let (waiting, quic, access_log) =
            open(options.listeners, options.access_log, sockets, count)?;
        let core = Doorway::new(options.site, count, Some(relay));
        let proxy = Self::on(workers, core, (waiting, quic, access_log), None);
        if !lazy {
            proxy.install();
        }
        Ok(proxy)
    }

    fn on(
        workers: Vec<WorkerHandle>,
        core: Doorway,
        (waiting, quic, access_log): Opened,
        threads: Option<Workers>,
    ) -> Self {
        let addresses = waiting
            .iter()
            .filter_map(|(_, group)| group.first()?.1.local_addr().ok())
            .collect();
        Self {
            threads,
            workers,
            metrics: core.shared.metrics.clone(),
            stopping: core.shared.stopping.clone(),
            core,
            accepting: Arc::default(),
            addresses,
            access_log,
            waiting,
            quic,
            started: Instant::now(),
        }
    }

    /// Makes every thread a part of it.
    fn install(&self) {
        for handle in &self.workers {
            let lines = self.access_log.as_ref().map(AccessLog::lines);
            let core = self.core.clone();
            let peers = (handle.index() == 0).then(|| self.workers.clone());
            let _ = handle.spawn(move || async move {
                let Some(worker) = core.install(lines) else {
                    return;
                };
                if let Some(peers) = peers {
                    checks::run(worker, peers).await;
                }
            });
        }
    }

    /// The way in for visitors that a server has accepted.
    #[must_use]
    pub fn doorway(&self) -> Doorway {
        self.core.clone()
    }

    /// Begins to accept.
    pub fn serve(&mut self) {
        for address in &self.addresses {
            tracing::info!(option = "listeners", %address, "listening");
        }
        for (door, group) in std::mem::take(&mut self.waiting) {
            for (worker, socket) in group {
                let (door, stop) = (door.clone(), self.stopping.clone());
                if let Some(handle) = self.workers.get(worker) {
                    let accepting = Accepting::begins(&self.accepting);
                    let _ = handle.spawn(move || async move {
                        accept(door, socket, stop).await;
                        drop(accepting);
                    });
                }
            }
        }
        for (door, server) in &self.quic {
            match server.shards() {
                Ok(shards) => self.serve_quic(door, shards),
                Err(error) => tracing::error!(%error, "HTTP/3 is not served"),
            }
        }
    }

    fn serve_quic(&self, door: &Door, shards: Vec<quic::Shard>) {
        let handles = &self.workers;
        for shard in shards {
            let door = door.clone();
            if let Some(handle) = handles.get(shard.index() % handles.len()) {
                let _ = handle.spawn(move || async move {
                    if let Some(worker) = Worker::current() {
                        h3::accept(worker, &door, shard).await;
                    }
                });
            }
        }
    }

    /// Where it listens, in the order of the options.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// From now on requests are served by `site`; those under way end as they began.
    pub fn reload(&self, site: Site) {
        let site: SharedSite = Arc::new(site);
        self.core.shared.site.store(Arc::clone(&site));
        let (taken, all) = mpsc::channel();
        self.on_each(move |worker| {
            worker.set_site(Arc::clone(&site));
            let _ = taken.send(());
        });
        // Whoever is told that it was done must find it done; a thread that is busy for longer takes it later.
        let until = Instant::now() + TAKEN;
        let left = || until.saturating_duration_since(Instant::now());
        while all.recv_timeout(left()).is_ok() {}
    }

    /// Opens the access log again by its name, after it was renamed.
    pub fn reopen_logs(&self) {
        if let Some(log) = &self.access_log {
            log.reopen();
        }
    }

    /// Reads its state from any thread, also when it has ended.
    #[must_use]
    pub fn observer(&self) -> Observer {
        Observer {
            metrics: self.metrics.clone(),
            stopping: self.stopping.clone(),
            addresses: self.addresses.clone(),
            lost: self.access_log.as_ref().map(AccessLog::lost_counter),
            started: self.started,
        }
    }

    /// The counters of all workers together.
    #[must_use]
    pub fn metrics(&self) -> Vec<(&'static str, &'static str, &'static str, u64)> {
        self.observer().metrics()
    }

    /// Takes no more visitors; exchanges that are under way end, and their connections with them. Returns when nobody new is accepted, after
    /// half a second at most.
    pub fn leave(&self) {
        let reading: Vec<_> = self
            .quic
            .iter()
            .filter(|(_, it)| self.hand_over(it))
            .collect();
        let reads = || reading.iter().any(|(_, server)| server.is_reading());
        self.end_within(LAST_REQUEST, reads);
    }

    /// Lets connections of HTTP/3 go on with what the process that takes over passes on. False: there is no way, and they are lost.
    fn hand_over(&self, server: &quic::Server) -> bool {
        let Some(first) = self.workers.first() else {
            return false;
        };
        match server.hand_over(first) {
            Ok(()) => true,
            Err(error) => {
                let address = server.local_addr();
                tracing::warn!(%error, %address, "visitors over HTTP/3 lose their connections: the next process has no way to pass on what comes for them");
                false
            }
        }
    }

    /// `reads`: whether what the next process is to read is still read here.
    fn end_within(&self, last: Duration, reads: impl Fn() -> bool) {
        self.stopping.trigger();
        for (_, server) in &self.quic {
            server.refuse_new();
        }
        let until = Instant::now() + LEAVE_TIME;
        while (self.accepting.load(SeqCst) > 0 || reads()) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.on_each(move |worker| worker.drain(last));
    }

    /// Visitors' connections that are open.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.metrics
            .iter()
            .map(|one| one.proxy_visitors_open.get())
            .sum()
    }

    /// Ends in order: takes no more visitors, lets exchanges end for up to `patience`.
    pub fn stop(self, patience: Duration) {
        // There is nobody to take the next request.
        self.end_within(LAST_CHANCE, || false);
        let until = Instant::now() + patience;
        while self.left() > 0 && Instant::now() < until {
            std::thread::sleep(POLL);
        }
        let Some(threads) = self.threads else { return };
        if let Err(error) = threads.shutdown(LAST_WORDS) {
            tracing::warn!(%error, "the proxy ends although workers are still busy");
        }
    }

    fn on_each(&self, task: impl Fn(&Worker) + Clone + Send + 'static) {
        for handle in &self.workers {
            let task = task.clone();
            let _ = handle.spawn(move || async move {
                if let Some(worker) = Worker::current() {
                    task(&worker);
                }
            });
        }
    }
}

/// Binds every listener of its own, and opens the log.
type Opened = (
    Vec<(Door, Vec<(usize, std::net::TcpListener)>)>,
    Vec<(Door, quic::Server)>,
    Option<AccessLog>,
);

fn open(
    listeners: Vec<Listener>,
    access_log: Option<AccessLogSpec>,
    sockets: &dyn ListenSource,
    count: usize,
) -> Result<Opened, StartError> {
    let (mut waiting, mut quic) = (Vec::new(), Vec::new());
    for (index, listener) in listeners.into_iter().enumerate() {
        if matches!(listener.protocol, Protocol::OfServer) {
            continue;
        }
        let address = listener.address;
        let group = sockets
            .tcp("listeners", address, count)
            .and_then(|group| net::spread(&group, count))
            .map_err(|error| StartError::Listen { address, error })?;
        let bound = group
            .first()
            .and_then(|(_, socket)| socket.local_addr().ok())
            .unwrap_or(address);
        let http3 = match &listener.protocol {
            Protocol::Https(acceptor) if listener.http3 => {
                Some(listen_quic(sockets, bound, count, acceptor)?)
            }
            _ => None,
        };
        let door = Door {
            index: u16::try_from(index).unwrap_or(u16::MAX),
            protocol: listener.protocol,
            proxy_from: Arc::new(listener.proxy_from),
            address: bound,
            http3: http3.is_some(),
        };
        quic.extend(http3.map(|server| (door.clone(), server)));
        waiting.push((door, group));
    }
    let access_log = match access_log {
        Some(spec) => {
            let opened = AccessLog::open(&spec);
            let path = spec.path;
            Some(opened.map_err(|error| StartError::AccessLog { path, error })?)
        }
        None => None,
    };
    Ok((waiting, quic, access_log))
}

/// The UDP sockets of a listener, with its certificates.
fn listen_quic(
    sockets: &dyn ListenSource,
    address: SocketAddr,
    count: usize,
    acceptor: &TlsAcceptor,
) -> Result<quic::Server, StartError> {
    let failed =
        |error: Box<dyn std::error::Error + Send + Sync>| StartError::Http3 { address, error };
    let tls = quic::ServerTls::from_config(&acceptor.config(), &[quic::ALPN_H3.to_vec()])
        .map_err(|error| failed(error.into()))?;
    quic::Server::bind(
        sockets,
        "listeners",
        address,
        count,
        tls,
        quic::Config::default(),
    )
    .map_err(|error| failed(error.into()))
}

/// Accepts until told to stop; each connection gets a task of its own.
async fn accept(door: Door, socket: std::net::TcpListener, stop: Shutdown) {
    let Some(worker) = Worker::current() else {
        return;
    };
    let mut acceptor = match Acceptor::new(socket) {
        Ok(acceptor) => acceptor,
        Err(error) => return tracing::error!(%error, "a listener cannot be served"),
    };
    let visits = Crew::new(KEPT, async move |(stream, peer)| {
        ingress::visit(&worker, &door, stream, peer).await;
    });
    let mut stopped = pin!(stop.wait());
    // Told to stop, it takes nobody more, however many wait: they are the next process's.
    while !stop.is_triggered() {
        let accepted = tokio::select! {
            biased;
            accepted = acceptor.accept() => accepted,
            () = &mut stopped => return,
        };
        match accepted {
            Ok((stream, peer)) => {
                #[cfg(not(target_os = "linux"))]
                let _ = net::tune_visitor(&stream);
                visits.take((stream, peer));
            }
            Err(error) => {
                return tracing::error!(%error, "a listener has failed and accepts no more");
            }
        }
    }
}

/// An accept loop, for as long as it is held.
#[derive(Debug)]
struct Accepting(Arc<AtomicU64>);

impl Accepting {
    fn begins(count: &Arc<AtomicU64>) -> Self {
        count.fetch_add(1, SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Accepting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// Tasks that wait for connections of a listener on one thread: as many as come and go at one time where that is much.
const KEPT: usize = 128;
/// For the threads to take another site.
const TAKEN: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(10);
/// How long a kept connection waits for one more request when another process takes over: it could be on its way.
pub(crate) const LAST_REQUEST: Duration = Duration::from_secs(5);
/// The same when the proxy stops.
const LAST_CHANCE: Duration = Duration::from_millis(300);
/// What accept loops may take to stop.
const LEAVE_TIME: Duration = Duration::from_millis(500);
/// What closing threads may take.
const LAST_WORDS: Duration = Duration::from_secs(2);

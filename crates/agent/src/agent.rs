//! A running client: what its links share, and how it is started and stopped.

use std::{
    cell::RefCell,
    collections::{HashMap, HashSet},
    path::PathBuf,
    rc::Rc,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use config::{Local, Remote, Service};
use link::Link;
use net::{
    Shutdown, Workers,
    tls::{TlsClientOptions, TlsConfigError, TlsConnector, Trust},
};
use tunnel::{
    Assembler, ClientId, ControlMessage, Goodbye, GoodbyeCode, Message, Secret, ServiceId,
    ServiceResult, SessionId,
};

use crate::{
    declare::Offer,
    dial::Dialler,
    handoff::Handoff,
    health, keep,
    ways::{self, LastMove, Watched, WayStatus, Ways},
};

/// Why a client does not run.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// TLS cannot be set up, for instance because the file of `remoteCert` or `localCert` cannot be read.
    #[error("{0}")]
    Tls(#[from] TlsConfigError),
    /// A value that the protocol does not carry.
    #[error("{0}")]
    Value(#[from] tunnel::InvalidValue),
    /// Threads cannot be started.
    #[error("worker threads cannot be started: {0}")]
    Workers(std::io::Error),
    /// The server refuses this client for a reason that trying again does not change.
    #[error("{0}")]
    Refused(String),
}

/// What all links of the client share, on whichever worker they are.
pub(crate) struct Shared {
    pub(crate) config: config::Client,
    pub(crate) id: ClientId,
    pub(crate) secret: Secret,
    /// What it serves now.
    pub(crate) offer: ArcSwap<Offer>,
    /// The configured services changed.
    pub(crate) offered: tokio::sync::watch::Sender<()>,
    /// Services that fail their checks.
    pub(crate) down: Mutex<HashSet<ServiceId>>,
    /// Told of each new session.
    pub(crate) on_session: Option<OnSession>,
    pub(crate) dialler: Dialler,
    /// Several ways to the server, of which the best is kept.
    pub(crate) ways: Option<Ways>,
    /// For `https://` services, by the file of `localCert`; `None` for those without one.
    local_tls: ArcSwap<HashMap<Option<PathBuf>, TlsConnector>>,
    pub(crate) started: Instant,
    pub(crate) stopping: Shutdown,
    /// The session that links join. Locked during a handshake, so that two links never begin two sessions.
    pub(crate) session: tokio::sync::Mutex<Option<Current>>,
    pub(crate) links_up: AtomicU32,
    /// Links that exist, those that are being replaced as well.
    pub(crate) links_open: AtomicU32,
    pub(crate) visits_open: AtomicU64,
    /// Links to keep; known once the first server has said how many it wants.
    pub(crate) links_kept: AtomicU32,
    pub(crate) generation: AtomicU32,
    pub(crate) visits_total: AtomicU64,
    pub(crate) visits_failed_total: AtomicU64,
    pub(crate) status: Mutex<Status>,
    /// The reason to give up, once.
    pub(crate) refused: Mutex<Option<String>>,
    /// Raised when the client gives up.
    pub(crate) gave_up: Shutdown,
}

/// Is told what the next process of this client should know.
pub type OnSession = Box<dyn Fn(&Handoff) + Send + Sync>;

/// The session with a server.
#[derive(Clone, Debug)]
pub(crate) struct Current {
    pub(crate) id: SessionId,
    pub(crate) remote: Remote,
}

/// What a client can tell about itself.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// Time since start.
    pub uptime: Duration,
    /// About to stop.
    pub stopping: bool,
    /// The server, as configured.
    pub server: Option<String>,
    /// Links that are up.
    pub links: u32,
    /// The ways to the server, where the best of several is kept.
    pub ways: Vec<WayStatus>,
    /// Times that links went another way.
    pub moves: u64,
    /// The last of these times, and why.
    pub last_move: Option<LastMove>,
    /// Visits so far, and those whose service could not be reached.
    pub visits: (u64, u64),
    /// Services: name, local address, public addresses or the reason of the refusal.
    pub services: Vec<(String, String, Result<Vec<String>, String>)>,
}

/// One worker's part of the client.
pub(crate) struct Agent {
    pub(crate) shared: Arc<Shared>,
    pub(crate) links: RefCell<Vec<Link>>,
    pub(crate) answers: RefCell<Assembler<ServiceResult>>,
    /// Where there are several ways: the links that show how theirs is.
    pub(crate) watched: RefCell<Vec<Watched>>,
}

/// A running client. Dropping it ends it at once; [`Client::stop`] ends it in order.
pub struct Client {
    shared: Arc<Shared>,
    workers: Workers,
}

thread_local! {
    static AGENT: RefCell<Option<Rc<Agent>>> = const { RefCell::new(None) };
}

impl Client {
    /// Starts to connect; returns at once.
    ///
    /// # Errors
    /// [`ClientError`], for what is wrong without asking a server.
    pub fn start(config: config::Client) -> Result<Self, ClientError> {
        Self::start_after(config, None, None)
    }

    /// As [`Client::start`], in the place of a process whose session it joins if that still lives. `on_session` is told what to
    /// leave for the next one.
    ///
    /// # Errors
    /// [`ClientError`], for what is wrong without asking a server.
    pub fn start_after(
        config: config::Client,
        before: Option<Handoff>,
        on_session: Option<OnSession>,
    ) -> Result<Self, ClientError> {
        // A server may still be configured otherwise than the session's.
        let before = before.filter(|before| {
            config.remote_api.is_some() || config.remotes.contains(&before.remote)
        });
        let generation = before.as_ref().map_or(0, |before| {
            // Leaves room for what the other process has declared since.
            before.generation.wrapping_add(GENERATIONS)
        });
        let before = before.filter(|_| generation < u32::MAX / 2);
        let trust = match (&config.trust.cert_file, config.trust.insecure) {
            (_, true) => Trust::InsecureNoVerification,
            (Some(file), false) => Trust::OnlyFile(file.clone()),
            (None, false) => Trust::PublicAuthorities,
        };
        let dialler = dialler(&config, trust)?;
        let shared = Arc::new(Shared {
            id: ClientId::new(config.id.as_str())?,
            secret: Secret::new(config.secret.expose())?,
            offer: ArcSwap::from_pointee(Offer::new(
                &config.services,
                &Offer::default(),
                config.secret.expose().as_bytes(),
            )?),
            down: Mutex::default(),
            offered: tokio::sync::watch::Sender::new(()),
            on_session,
            dialler,
            ways: Ways::new(&config, before.as_ref().map(|before| &before.remote)),
            local_tls: ArcSwap::from_pointee(local_tls(&config.services)?),
            started: Instant::now(),
            stopping: Shutdown::new(),
            session: tokio::sync::Mutex::new(before.map(|before| Current {
                id: before.session,
                remote: before.remote,
            })),
            links_up: AtomicU32::new(0),
            links_open: AtomicU32::new(0),
            visits_open: AtomicU64::new(0),
            links_kept: AtomicU32::new(0),
            generation: AtomicU32::new(generation),
            visits_total: AtomicU64::new(0),
            visits_failed_total: AtomicU64::new(0),
            status: Mutex::new(Status {
                services: config.services.iter().map(unanswered).collect(),
                ..Status::default()
            }),
            refused: Mutex::default(),
            gave_up: Shutdown::new(),
            config,
        });
        let count = shared.config.workers.map_or(1, usize::from);
        let workers = Workers::start(count, "gt-client").map_err(ClientError::Workers)?;
        for handle in workers.handles() {
            let shared = Arc::clone(&shared);
            let _ = handle.spawn(move || async move { Agent::install(shared) });
        }
        keep::start(&shared, workers.handles());
        ways::start(&shared, workers.handles());
        health::start(&shared, workers.handles());
        Ok(Self { shared, workers })
    }

    /// Completes when the client gives up because a server refuses it for good; otherwise never.
    pub async fn refused(&self) -> ClientError {
        self.shared.gave_up.wait().await;
        let reason = lock(&self.shared.refused).clone();
        ClientError::Refused(reason.unwrap_or_default())
    }

    /// The client's state, for status and metrics; callable from any thread.
    #[must_use]
    pub fn observer(&self) -> Observer {
        Observer(Arc::clone(&self.shared))
    }

    /// What the client can tell about itself now.
    #[must_use]
    pub fn status(&self) -> Status {
        self.shared.status_now()
    }

    /// Serves other services from now on; what else the configuration says stays as it was. Visits that run go on.
    ///
    /// # Errors
    /// [`ClientError::Value`] and [`ClientError::Tls`]; nothing has changed then.
    pub fn offer(&self, services: &[Service]) -> Result<(), ClientError> {
        let shared = &self.shared;
        let before = shared.offer.load_full();
        let secret = shared.config.secret.expose();
        let offer = Offer::new(services, &before, secret.as_bytes())?;
        // Also of services that are gone: visits to them may be on their way. Files are read again.
        let mut tls = HashMap::clone(&shared.local_tls.load());
        tls.extend(local_tls(services)?);
        shared.local_tls.store(Arc::new(tls));
        {
            let mut status = lock(&shared.status);
            let known = std::mem::take(&mut status.services);
            let entry = |service: &Service| {
                let (name, local) = (&service.name, service.local.to_string());
                let same = known
                    .iter()
                    .find(|known| known.0 == *name && known.1 == local);
                same.cloned().unwrap_or_else(|| unanswered(service))
            };
            status.services = services.iter().map(entry).collect();
            shared.offer.store(Arc::new(offer));
        }
        shared.offered.send_replace(());
        Ok(())
    }

    /// Whether a link is up.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.shared.links_up.load(Relaxed) > 0
    }

    /// Asks the server to open no more streams here, and brings no new links up. Visits that run go on: [`Client::left`] tells what is
    /// left, [`Client::stop`] ends it.
    pub fn leave(&self) {
        self.shared.stopping.trigger();
        for handle in self.workers.handles() {
            let _ = handle.spawn(move || async move {
                if let Some(agent) = Agent::current() {
                    agent.leave_links();
                }
            });
        }
    }

    /// Visits that run, and links.
    #[must_use]
    pub fn left(&self) -> (u64, u64) {
        (
            self.shared.visits_open.load(Relaxed),
            self.shared.links_open.load(Relaxed).into(),
        )
    }

    /// Ends in order: tells the server, lets visits end for up to `patience`.
    pub fn stop(self, patience: Duration) {
        let Self { shared, workers } = self;
        shared.stopping.trigger();
        let (done, finished) = std::sync::mpsc::channel();
        for handle in workers.handles() {
            let done = done.clone();
            let _ = handle.spawn(move || async move {
                if let Some(agent) = Agent::current() {
                    agent.close_links(patience).await;
                }
                let _ = done.send(());
            });
        }
        drop(done);
        for _ in workers.handles() {
            if finished.recv_timeout(patience + LAST_WORDS).is_err() {
                break;
            }
        }
        if let Err(error) = workers.shutdown(LAST_WORDS) {
            tracing::warn!(%error, "the client ends although workers are still busy");
        }
    }
}

/// Reads a client's state from any thread.
#[derive(Clone)]
pub struct Observer(Arc<Shared>);

impl Observer {
    /// The state now.
    #[must_use]
    pub fn status(&self) -> Status {
        self.0.status_now()
    }
}

fn dialler(config: &config::Client, trust: Trust) -> Result<Dialler, TlsConfigError> {
    let tls = TlsClientOptions {
        trust,
        alpn: vec![tunnel::ALPN.to_vec(), b"http/1.1".to_vec()],
        // Without it a TLS 1.2 link could not be bound to its channel.
        require_extended_master_secret: true,
        ..TlsClientOptions::default()
    };
    let silence = config.timeout.clamp(Duration::from_secs(1), MOST_SILENCE);
    // Where there is another way, one that is blocked must show soon.
    let keep_alive = if config.choose {
        Duration::from_secs(1)
    } else {
        silence / 3
    };
    Ok(Dialler {
        tls: TlsConnector::new(&tls)?,
        kcp: config.kcp,
        quic: quic::ClientConfig {
            tls,
            transport: link::quic::client_transport(
                config.bbr,
                silence,
                keep_alive.min(silence / 3),
            ),
            ..quic::ClientConfig::default()
        },
    })
}

/// One TLS side for each set of authorities that services name, made now so that a file that cannot be used is known now.
fn local_tls(
    services: &[Service],
) -> Result<HashMap<Option<PathBuf>, TlsConnector>, TlsConfigError> {
    let mut connectors = HashMap::new();
    for service in services {
        if !matches!(service.local, Local::Https { .. })
            || connectors.contains_key(&service.local_cert)
        {
            continue;
        }
        let trust = match &service.local_cert {
            Some(file) => Trust::OnlyFile(file.clone()),
            None => Trust::PublicAuthorities,
        };
        let options = TlsClientOptions {
            trust,
            ..TlsClientOptions::default()
        };
        connectors.insert(service.local_cert.clone(), TlsConnector::new(&options)?);
    }
    Ok(connectors)
}

impl Shared {
    /// How to dial an `https://` service; `None` for others.
    pub(crate) fn tls_of(&self, service: &Service) -> Option<TlsConnector> {
        self.local_tls.load().get(&service.local_cert).cloned()
    }

    pub(crate) fn status_now(&self) -> Status {
        let mut status = lock(&self.status).clone();
        let offer = self.offer.load();
        for id in lock(&self.down).iter() {
            let entry = offer
                .index(*id)
                .and_then(|index| status.services.get_mut(index));
            if let Some(entry) = entry {
                entry.2 = Err("it fails its checks".to_owned());
            }
        }
        status.uptime = self.started.elapsed();
        status.stopping = self.stopping.is_triggered();
        status.links = self.links_up.load(Relaxed);
        if let Some(ways) = &self.ways {
            status.ways = ways.status();
            status.moves = ways.moves();
            status.last_move = ways.last_move();
            status.server = Some(ways.current().to_string());
        }
        status.visits = (
            self.visits_total.load(Relaxed),
            self.visits_failed_total.load(Relaxed),
        );
        status
    }

    /// Nothing will come of trying on.
    pub(crate) fn give_up(&self, reason: &str) {
        lock(&self.refused).get_or_insert_with(|| reason.to_owned());
        self.gave_up.trigger();
    }
}

impl Agent {
    fn install(shared: Arc<Shared>) {
        let agent = Rc::new(Self {
            shared,
            links: RefCell::default(),
            answers: RefCell::default(),
            watched: RefCell::default(),
        });
        AGENT.with_borrow_mut(|current| *current = Some(agent));
    }

    /// The agent of this worker.
    pub(crate) fn current() -> Option<Rc<Self>> {
        AGENT.with_borrow(Option::clone)
    }

    pub(crate) fn service(&self, id: ServiceId) -> Option<Arc<Service>> {
        self.shared.offer.load().get(id).cloned()
    }

    fn leave_links(&self) {
        if let Ok(message) = ControlMessage::Leave.encode() {
            let links = self.links.borrow();
            links.iter().for_each(|link| link.send_control(&message));
        }
    }

    async fn close_links(&self, patience: Duration) {
        let goodbye = Goodbye {
            code: GoodbyeCode::ShuttingDown,
            message: Message::new("the client stops"),
        };
        let busy = || {
            self.links
                .borrow()
                .iter()
                .any(|link| link.stream_count() > 0)
        };
        let deadline = tokio::time::Instant::now() + patience;
        while busy() && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(POLL).await;
        }
        for link in self.links.borrow().iter() {
            if let Ok(message) = ControlMessage::Goodbye(goodbye.clone()).encode() {
                link.send_control(&message);
            }
            link.close();
        }
        let deadline = tokio::time::Instant::now() + LAST_WORDS;
        // Once at least: a link that was being made says over UDP too that it is none.
        loop {
            tokio::time::sleep(POLL).await;
            if self.links.borrow().is_empty() || tokio::time::Instant::now() > deadline {
                break;
            }
        }
    }
}

fn unanswered(service: &Service) -> (String, String, Result<Vec<String>, String>) {
    (
        service.name.clone(),
        service.local.to_string(),
        Err("not connected yet".to_owned()),
    )
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many declarations a process may be ahead of what it has left for the next.
const GENERATIONS: u32 = 100_000;
/// Silence after which a QUIC link is given up; less where `remoteTimeout` is less.
const MOST_SILENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(10);
const LAST_WORDS: Duration = Duration::from_secs(1);

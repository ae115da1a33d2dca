//! Keeps links up: one loop per link, which chooses a server, dials, shakes hands, runs the link (`running`), and begins again when it ends.

use std::{
    io,
    rc::Rc,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use config::{Remote, Scheme};
use link::{HandshakeFailure, Transport};
use net::WorkerHandle;
use tokio::sync::watch;
use tunnel::{
    ChannelBinding, ClientConfig, ClientEstablished, ClientHandshake, EXPORTER_LABEL, Features,
    HandshakeError, Name, Nonce, RejectCode, ServerProof, TransportKind, Windows,
};

use crate::{
    agent::{Agent, Current, Shared, lock},
    backoff::{AFTER_PERMANENT, Backoff},
    dial::{DialError, dial},
    handoff::Handoff,
    running::{Over, run},
    ways::Ways,
};

/// Starts the first link's loop; the others follow when the server has said how many it wants.
pub(crate) fn start(shared: &Arc<Shared>, workers: &[WorkerHandle]) {
    let handles: Arc<[WorkerHandle]> = workers.into();
    spawn(shared, &handles, 0);
}

fn spawn(shared: &Arc<Shared>, workers: &Arc<[WorkerHandle]>, number: u32) {
    shared.links_kept.fetch_max(number + 1, Relaxed);
    let Some(handle) = workers.get(number as usize % workers.len().max(1)) else {
        return;
    };
    let workers = Arc::clone(workers);
    let _ = handle.spawn(move || async move {
        let Some(agent) = Agent::current() else {
            return;
        };
        let stopping = agent.shared.stopping.clone();
        tokio::select! {
            // First: a link that comes up in the same moment would be one that nobody ends.
            biased;
            () = stopping.wait() => {}
            () = keep(Rc::clone(&agent), workers, number) => {}
        }
    });
}

/// Why there is no link.
#[derive(Debug, thiserror::Error)]
enum NoLink {
    #[error("{0}")]
    Dial(#[from] DialError),
    #[error("{0}")]
    Handshake(#[from] HandshakeFailure),
    #[error("remoteAPI: {0}")]
    Api(String),
    #[error("the links go another way")]
    Elsewhere,
}

impl NoLink {
    /// The server's word that trying again changes nothing.
    fn is_permanent(&self) -> bool {
        match self {
            Self::Handshake(HandshakeFailure::Protocol(error)) => error.is_permanent(),
            _ => false,
        }
    }

    fn rejected(&self) -> Option<&tunnel::Rejection> {
        match self {
            Self::Handshake(HandshakeFailure::Protocol(HandshakeError::Rejected(rejection))) => {
                Some(rejection)
            }
            _ => None,
        }
    }
}

async fn keep(agent: Rc<Agent>, workers: Arc<[WorkerHandle]>, number: u32) {
    let shared = &agent.shared;
    let mut backoff = Backoff::new(shared.config.reconnect_delay);
    let mut attempts = 0_usize;
    let mut ever_up = false;
    // A link that another is to take the place of.
    let mut leaving = None;
    loop {
        let found = shared.ways.as_ref().map(Ways::found);
        let (remote, made) = make(&agent, attempts).await;
        let pause = match made {
            Ok((stream, established)) => {
                attempts = 0;
                ever_up = true;
                if number == 0 {
                    let wanted = links_wanted(shared, &established);
                    (shared.links_kept.load(Relaxed)..wanted)
                        .for_each(|next| spawn(shared, &workers, next));
                }
                let began = Instant::now();
                let over = run(&agent, stream, &established, &remote, leaving.take()).await;
                let lived = began.elapsed();
                let drained = match over {
                    Over::Moved(link) => {
                        leaving = Some(link);
                        continue;
                    }
                    Over::Drained => true,
                    Over::Ended => false,
                };
                if lived > GOOD {
                    backoff.reset();
                }
                if lived > MOVED_SOON {
                    backoff.connected();
                }
                if drained && lived > MOVED_SOON {
                    continue;
                }
                if drained {
                    // It must not make this a loop without a pause.
                    backoff.moved(Duration::ZERO)
                } else if lived > GOOD {
                    // A server whose process was replaced has visitors that wait. Not all its clients in the same moment.
                    Duration::from_millis(rand::random_range(1..30))
                } else {
                    backoff.next()
                }
            }
            Err(NoLink::Elsewhere) => continue,
            Err(error) => {
                attempts += 1;
                let code = error.rejected().map(|rejection| rejection.code);
                if let Some(ways) = shared.ways.as_ref().filter(|_| code.is_some()) {
                    // It is the server that says no.
                    ways.worked(&remote);
                }
                if code == Some(RejectCode::TooManyLinks) && shared.links_up.load(Relaxed) > 0 {
                    tracing::warn!(server = %remote, link = number, "the server allows no more links; this one is given up");
                    return;
                }
                if error.is_permanent() {
                    tracing::error!(server = %remote, %error, "the server refuses this client");
                    if !ever_up && number == 0 && attempts >= shared.config.remotes.len() {
                        shared.give_up(&format!("{remote}: {error}"));
                        return;
                    }
                    if attempts.is_multiple_of(shared.config.remotes.len().max(1)) {
                        AFTER_PERMANENT
                    } else {
                        Duration::ZERO
                    }
                } else {
                    let elsewhere = shared.ways.as_ref().filter(|_| code.is_none());
                    if elsewhere.is_some_and(|ways| ways.failed(&remote)) {
                        tracing::warn!(server = %remote, link = number, %error, "no link; another way is tried");
                        continue;
                    }
                    let wait = error.rejected().and_then(|rejection| rejection.retry_after);
                    let wait = wait.unwrap_or_default();
                    let pause = match code {
                        Some(RejectCode::ShuttingDown) => backoff.moved(wait),
                        _ => backoff.next().max(wait),
                    };
                    tracing::warn!(server = %remote, link = number, %error, next_try_in = ?pause, "no link");
                    pause
                }
            }
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = changed(found) => {}
        }
    }
}

/// Completes with the next change; never where there is nothing that can.
async fn changed(watched: Option<watch::Receiver<u64>>) {
    if let Some(mut watched) = watched
        && watched.changed().await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

fn links_wanted(shared: &Shared, established: &ClientEstablished) -> u32 {
    let grant = &established.grant;
    let wanted = shared
        .config
        .links
        .or(grant.wanted_links)
        .unwrap_or(1)
        .max(shared.config.idle_links);
    u32::from(wanted.clamp(1, grant.max_links.max(1)))
}

type Made = Result<(Transport, ClientEstablished), NoLink>;

/// Dials and shakes hands. Joins the session if there is one; a new one begins with the declaration of the services.
async fn make(agent: &Rc<Agent>, attempts: usize) -> (Remote, Made) {
    let shared = &agent.shared;
    let mut session = shared.session.lock().await;
    let current = session
        .clone()
        .filter(|_| shared.links_up.load(Relaxed) > 0 || attempts == 0);
    let remote = match (&shared.ways, &current) {
        (Some(ways), _) => ways.current(),
        (None, Some(current)) => current.remote.clone(),
        (None, None) => match choose(shared, attempts).await {
            Ok(remote) => remote,
            Err(error) => {
                let nowhere = Remote {
                    scheme: Scheme::Tcp,
                    host: "remoteAPI".to_owned(),
                    port: 0,
                    path: "/".to_owned(),
                };
                return (nowhere, Err(error));
            }
        },
    };
    let join = session
        .as_ref()
        .filter(|known| known.remote == remote || shared.ways.is_some())
        .map(|known| known.id);
    let attempt = async {
        let dialling = dial(&remote, &shared.dialler);
        let stream = match Ways::patience(&remote).filter(|_| shared.ways.is_some()) {
            Some(patience) => tokio::time::timeout(patience, dialling)
                .await
                .map_err(|_| DialError::Timeout)??,
            None => dialling.await?,
        };
        let binding = match stream.channel_binding(EXPORTER_LABEL) {
            Some(exported) if binds(shared, &remote) => ChannelBinding::TlsExporter(exported),
            _ => ChannelBinding::None,
        };
        let config = ClientConfig {
            server_proof: server_proof(shared, &remote),
            session: join,
            windows: WINDOWS,
            transport: transport(remote.scheme),
            features: Features::HTTP_RULES | Features::DATAGRAM_FEC,
            software: Name::new(concat!("gt/", env!("CARGO_PKG_VERSION"))),
            ..ClientConfig::new(shared.id.clone(), shared.secret.clone())
        };
        let machine = ClientHandshake::new(config, Nonce(rand::random()), binding);
        Ok(link::connect(stream, machine).await?)
    };
    let made = tokio::select! {
        made = tokio::time::timeout(shared.config.timeout, attempt) => {
            made.unwrap_or_else(|_| Err(DialError::Timeout.into()))
        }
        // One that answers now is better than one that may.
        () = elsewhere(shared, &remote) => Err(NoLink::Elsewhere),
    };
    if let Ok((_, established)) = &made {
        if let Some(ways) = &shared.ways {
            ways.worked(&remote);
        }
        *session = Some(Current {
            id: established.grant.session,
            remote: remote.clone(),
        });
        if let Some(on_session) = &shared.on_session {
            on_session(&Handoff::new(
                established.grant.session,
                remote.clone(),
                shared.generation.load(Relaxed),
            ));
        }
        lock(&shared.status).server = Some(remote.to_string());
    }
    (remote, made)
}

/// Completes when links go another way than this one.
pub(crate) async fn elsewhere(shared: &Shared, remote: &Remote) {
    match &shared.ways {
        Some(ways) => ways.left(remote).await,
        None => std::future::pending().await,
    }
}

/// Whether the handshake is tied to the encrypted channel. Something between client and server may end TLS for WebSockets, which is what
/// they are for; that is safe only where the certificate was checked.
fn binds(shared: &Shared, remote: &Remote) -> bool {
    matches!(remote.scheme, Scheme::Tls | Scheme::Kcp | Scheme::Quic)
        || shared.config.trust.insecure
}

/// A secret that nobody chose is known to no server, and one whose certificate was checked is known without it.
fn server_proof(shared: &Shared, remote: &Remote) -> ServerProof {
    let checked = remote.scheme.is_encrypted() && !shared.config.trust.insecure;
    if shared.config.secret_generated || checked {
        ServerProof::Optional
    } else {
        ServerProof::Required
    }
}

fn transport(scheme: Scheme) -> TransportKind {
    match scheme {
        Scheme::Tcp => TransportKind::Tcp,
        Scheme::Tls => TransportKind::Tls,
        Scheme::Ws => TransportKind::Ws,
        Scheme::Wss => TransportKind::Wss,
        Scheme::Kcp => TransportKind::Kcp,
        Scheme::Quic => TransportKind::Quic,
    }
}

/// The configured servers in turn; or what the address service says.
async fn choose(shared: &Shared, attempts: usize) -> Result<Remote, NoLink> {
    let remotes = &shared.config.remotes;
    let Some(url) = &shared.config.remote_api else {
        return Ok(remotes[attempts % remotes.len()].clone());
    };
    let asked = net::fetch(url, None, &shared.dialler.tls);
    let answer = match tokio::time::timeout(shared.config.timeout, asked).await {
        Ok(answer) => answer.map_err(|error| NoLink::Api(error.to_string())),
        Err(_) => Err(NoLink::Api("no answer in time".to_owned())),
    };
    match answer.and_then(|answer| parse_remote(&answer)) {
        Ok(remote) => Ok(remote),
        Err(error) if remotes.is_empty() => Err(error),
        Err(error) => {
            tracing::warn!(%error, "the configured servers are used");
            Ok(remotes[attempts % remotes.len()].clone())
        }
    }
}

/// The answer is an address like those of `remote`, alone or as `{"remote": …}`.
fn parse_remote(answer: &net::Answer) -> Result<Remote, NoLink> {
    if answer.status != 200 {
        return Err(NoLink::Api(format!(
            "it answered with status {}",
            answer.status
        )));
    }
    let text = std::str::from_utf8(&answer.body)
        .map_err(|error| NoLink::Api(error.to_string()))?
        .trim();
    let text = text
        .split_once("\"remote\"")
        .and_then(|(_, rest)| rest.split('"').nth(1))
        .unwrap_or(text);
    text.parse()
        .map_err(|error| NoLink::Api(format!("{text:?} is not a server's address: {error}")))
}

impl From<io::Error> for NoLink {
    fn from(error: io::Error) -> Self {
        Self::Dial(DialError::Connect(error))
    }
}

/// What a client is ready to receive from visitors: as the server, see there.
pub(crate) const WINDOWS: Windows = Windows {
    stream: 256 << 10,
    link: 64 << 20,
};
/// A link that was up for so long was good: the next break is a new one.
const GOOD: Duration = Duration::from_secs(10);
/// A server that wants a link replaced sooner than this after it came up has to wait for it.
const MOVED_SOON: Duration = Duration::from_millis(50);

//! The server side: a group of sockets on one address, and on each worker an endpoint over one of them.
//!
//! A [`Server`] binds and may be kept to change certificates and read counters; its [`Shard`]s travel to the workers and become [`Endpoint`]s there.
//! On an endpoint one task takes what arrives (`admission.rs`), a task per connection does its handshake, and [`Endpoint::accept`] gives
//! what came of it. All waits and numbers are bounded by [`Config`].
//!
//! Processes that follow one another on the same sockets share a [`Steering`]: connection ids name the process (`id.rs`), one that is replaced
//! stops reading ([`Server::hand_over`]), and the next passes on to it what is for its connections (`socket.rs`).

mod admission;
mod config;
pub(crate) mod gather;
mod id;
pub(crate) mod packet;
mod socket;
mod stats;
mod tls;

use std::{
    cell::{Cell, RefCell},
    fmt, io,
    net::{SocketAddr, UdpSocket},
    pin::Pin,
    rc::Rc,
    sync::{Arc, Mutex, Once, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use aws_lc_rs::{hkdf, hmac};
use net::{ListenSource, Shutdown, Steering, WorkerHandle};
use quinn::{
    AsyncUdpSocket, EndpointConfig, Runtime as _, TokioRuntime, VarInt, crypto::HandshakeTokenKey,
};
use rustls::pki_types::CertificateDer;
use tokio::sync::{mpsc, oneshot};

pub use self::{
    config::{Acks, Config, Congestion, Transport},
    stats::Stats,
    tls::ServerTls,
};
use self::{
    id::Ids,
    socket::{Group, Steered, WayIn},
    stats::Counters,
};

/// The protocol name of HTTP/3 (RFC 9114 §3.1).
pub const ALPN_H3: &[u8] = b"h3";

/// A server cannot be set up. Whoever configured it is to act.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The sockets cannot be had.
    #[error("cannot listen on UDP {address}: {error}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// The system's reason.
        error: io::Error,
    },
    /// More sockets than connection ids can name.
    #[error("{0} sockets on one address are more than {most}", most = net::MOST_STEERED)]
    TooMany(usize),
}

/// The sockets of one address and what all their endpoints share. Cheap to clone.
#[derive(Clone)]
pub struct Server {
    shared: Arc<Shared>,
}

struct Shared {
    sockets: Vec<UdpSocket>,
    address: SocketAddr,
    config: Config,
    tls: ServerTls,
    ids: Ids,
    steering: Option<Steering>,
    group: Arc<Group>,
    /// Of sockets that have no endpoint yet.
    ways_in: Mutex<Vec<Option<WayIn>>>,
    reset_key: hmac::Key,
    /// Seals proofs of address, for all workers.
    token_key: Arc<dyn HandshakeTokenKey>,
    counters: Arc<Counters>,
    stop: Shutdown,
}

impl Server {
    /// Opens `workers` sockets on `address` (or takes those that `source` keeps) and prepares an endpoint for each. `option` names the address
    /// for `source`.
    ///
    /// # Errors
    /// [`BindError`].
    pub fn bind(
        source: &dyn ListenSource,
        option: &str,
        address: SocketAddr,
        workers: usize,
        tls: ServerTls,
        config: Config,
    ) -> Result<Self, BindError> {
        let sockets = source
            .udp(option, address, workers.max(1))
            .map_err(|error| BindError::Listen { address, error })?;
        Self::from_sockets(sockets, tls, config, source.steering())
    }

    /// The same over sockets that are there: a group on one address, in the order in which it was bound. `steering` is shared with other processes
    /// that have the sockets, if there are any.
    ///
    /// # Errors
    /// [`BindError`]; `NotConnected` inside it when there is no socket.
    pub fn from_sockets(
        sockets: Vec<UdpSocket>,
        tls: ServerTls,
        config: Config,
        steering: Option<Steering>,
    ) -> Result<Self, BindError> {
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        let first = sockets.first().ok_or(io::ErrorKind::NotConnected);
        let address = first
            .map_err(io::Error::from)
            .and_then(UdpSocket::local_addr)
            .map_err(|error| BindError::Listen {
                address: nowhere,
                error,
            })?;
        if sockets.len() > net::MOST_STEERED {
            return Err(BindError::TooMany(sockets.len()));
        }
        if let Err(error) = net::steer_by_connection_id(&sockets) {
            tracing::warn!(
                %address, %error,
                "the kernel does not steer QUIC packets by connection id: a client that changes its address loses its connections"
            );
        }
        for socket in &sockets {
            raise_buffers(socket, config.socket_buffer)
                .map_err(|error| BindError::Listen { address, error })?;
        }
        let counters = Arc::new(Counters::default());
        let (key, steering) = shared_key(steering);
        let epoch = steering.as_ref().map_or(0, Steering::epoch);
        let (group, ways_in) = Group::new(sockets.len());
        Ok(Self {
            shared: Arc::new(Shared {
                sockets,
                address,
                config,
                tls,
                ids: Ids::new(&key, epoch),
                steering,
                group: Arc::new(group),
                ways_in: Mutex::new(ways_in.into_iter().map(Some).collect()),
                // A process that shares the sockets must not be able to end this one's connections, so this is nobody else's.
                reset_key: hmac::Key::new(hmac::HMAC_SHA256, &rand::random::<[u8; 32]>()),
                token_key: Arc::new(hkdf::Salt::new(hkdf::HKDF_SHA256, b"tokens").extract(&key)),
                counters,
                stop: Shutdown::new(),
            }),
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.shared.address
    }

    /// One for each socket; worker `index % workers` is to start it. There may be more sockets than workers, or fewer.
    ///
    /// # Errors
    /// The system's, when a socket cannot be duplicated.
    pub fn shards(&self) -> io::Result<Vec<Shard>> {
        let sockets = self.shared.sockets.iter().enumerate();
        sockets
            .map(|(index, socket)| {
                Ok(Shard {
                    server: self.clone(),
                    socket: socket.try_clone()?,
                    index,
                })
            })
            .collect()
    }

    /// What handshakes from now on are done with; certificates, above all.
    #[must_use]
    pub fn tls(&self) -> &ServerTls {
        &self.shared.tls
    }

    /// The counters of all endpoints together.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.counters.read()
    }

    /// No endpoint takes another connection from now on; [`Endpoint::accept`] ends after those it has. Connections go on.
    pub fn refuse_new(&self) {
        self.shared.stop.trigger();
    }

    /// Another process on the same sockets takes over: as [`Server::refuse_new`], and no endpoint reads from now on, as soon as
    /// [`Server::is_reading`] says so. What the other one reads for connections of this process comes in through `worker`.
    ///
    /// # Errors
    /// `Unsupported` where the sockets are not shared with a [`Steering`], else the system's; nothing has changed then.
    pub fn hand_over(&self, worker: &WorkerHandle) -> io::Result<()> {
        let shared = &self.shared;
        let steering = shared.steering.as_ref();
        let inlet = steering
            .ok_or(io::ErrorKind::Unsupported)?
            .inlet(&label(shared.address))?;
        let group = Arc::clone(&shared.group);
        let serve = move || async move {
            let taken = inlet.serve(move |from, mark, datagram| group.give(from, mark, datagram));
            if let Err(error) = taken.await {
                tracing::error!(%error, "nothing more comes from the process that took over");
            }
        };
        worker.spawn(serve).map_err(io::Error::other)?;
        self.refuse_new();
        shared.group.retire();
        Ok(())
    }

    /// Whether an endpoint reads from its socket.
    #[must_use]
    pub fn is_reading(&self) -> bool {
        self.shared.group.is_reading()
    }
}

/// The secret of the processes that share the sockets; of this one alone where there are no others, or none that can be reached.
fn shared_key(steering: Option<Steering>) -> ([u8; 32], Option<Steering>) {
    match steering.as_ref().map(Steering::key) {
        Some(Ok(key)) => return (key, steering),
        Some(Err(error)) => {
            tracing::warn!(%error, "QUIC connections will end when another process takes over");
        }
        None => {}
    }
    (rand::random(), None)
}

/// How the way in for connections on an address is called. Short: a socket's path has 108 bytes at most.
fn label(address: SocketAddr) -> String {
    // FNV-1a: programs of different versions must agree.
    let ip = address.ip().to_string();
    let hash = ip.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    format!("quic-{}-{hash:08x}", address.port())
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("address", &self.shared.address)
            .field("sockets", &self.shared.sockets.len())
            .finish_non_exhaustive()
    }
}

/// One socket of a [`Server`], on its way to a worker.
#[derive(Debug)]
pub struct Shard {
    server: Server,
    socket: UdpSocket,
    index: usize,
}

impl Shard {
    /// The place of its socket, from 0.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Makes an endpoint of it on the current worker (a `LocalRuntime` of tokio, or a `LocalSet`).
    ///
    /// # Errors
    /// The system's, when the event queue does not take the socket.
    pub fn start(self) -> io::Result<Endpoint> {
        let shared = &self.server.shared;
        let mut config = EndpointConfig::new(Arc::new(shared.reset_key.clone()));
        let ids = shared.ids.clone();
        let index = self.index;
        config.cid_generator(move || Box::new(ids.generator(index)));
        let crypto = shared.tls.current();
        let socket = socket(self.socket, shared.config.socket_buffer, &mut config)?;
        let mut ways_in = shared
            .ways_in
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let way_in = ways_in.get_mut(index).and_then(Option::take);
        drop(ways_in);
        let steering = shared.steering.as_ref();
        let socket = Steered::new(
            socket,
            &shared.group,
            shared.ids.clone(),
            // A socket that has two endpoints is no use to either.
            way_in.ok_or(io::ErrorKind::AlreadyExists)?,
            steering.map(|steering| steering.outlet(&label(shared.address))),
        );
        let quinn = quinn::Endpoint::new_with_abstract_socket(
            config,
            Some(shared.config.quinn(crypto, &shared.token_key)),
            Arc::new(socket),
            Arc::new(TokioRuntime),
        )?;
        let (sender, arrived) = mpsc::channel(ARRIVED);
        let inner = Rc::new(Inner {
            quinn,
            server: self.server,
            arrived: RefCell::new(arrived),
            pending: Cell::new(0),
        });
        tokio::task::spawn_local(admission::run(Rc::clone(&inner), sender));
        Ok(Endpoint { inner })
    }
}

/// A connection whose handshake is done, or far enough.
#[derive(Debug)]
pub struct Incoming {
    /// The connection.
    pub connection: quinn::Connection,
    /// The protocol agreed on; empty if none was asked for.
    pub alpn: Vec<u8>,
    /// The name the client asked for (SNI), if any.
    pub server_name: Option<String>,
    /// When the connection was given before the handshake's end, because its client may have sent early data (0-RTT). Until this completes the
    /// client has proved nothing, and what it sent may be a copy of what another has sent (RFC 9001 §9.2).
    pub established: Option<Established>,
}

/// Completes with the handshake, or with the connection's end.
pub struct Established(oneshot::Receiver<()>);

impl Future for Established {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(|_| ())
    }
}

impl fmt::Debug for Established {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Established")
    }
}

/// One worker's endpoint. Clones are the same endpoint; it stays on its thread.
#[derive(Clone)]
pub struct Endpoint {
    inner: Rc<Inner>,
}

pub(crate) struct Inner {
    quinn: quinn::Endpoint,
    server: Server,
    arrived: RefCell<mpsc::Receiver<Incoming>>,
    /// Handshakes under way.
    pending: Cell<usize>,
}

impl Endpoint {
    /// The next connection whose handshake succeeded, whatever its protocol. `None` when the endpoint takes no more. Cancel safe; one task at a
    /// time.
    pub async fn accept(&self) -> Option<Incoming> {
        std::future::poll_fn(|cx| self.inner.arrived.borrow_mut().poll_recv(cx)).await
    }

    /// Where it listens.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.inner.server.local_addr()
    }

    /// Connections that are open on this worker.
    #[must_use]
    pub fn open(&self) -> usize {
        self.inner.quinn.open_connections()
    }

    /// The counters of all workers' endpoints together.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.inner.server.stats()
    }

    /// The endpoint of quinn below.
    #[must_use]
    pub fn quinn(&self) -> &quinn::Endpoint {
        &self.inner.quinn
    }

    /// Ends all connections of this worker at once, telling their peers `code` and `reason`, and waits at most `patience` until that is sent
    /// (and may be repeated to those who missed it).
    pub async fn close(&self, code: VarInt, reason: &[u8], patience: Duration) {
        self.inner.quinn.close(code, reason);
        let _ = tokio::time::timeout(patience, self.inner.quinn.wait_idle()).await;
    }

    /// Waits until no connection is left, at most `patience`. True if so.
    pub async fn drained(&self, patience: Duration) -> bool {
        tokio::time::timeout(patience, self.inner.quinn.wait_idle())
            .await
            .is_ok()
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("address", &self.local_addr())
            .field("open", &self.open())
            .finish_non_exhaustive()
    }
}

/// The certificate that the peer has shown and that was accepted, in DER; `None` if it has shown none.
#[must_use]
pub fn peer_certificate(connection: &quinn::Connection) -> Option<Vec<u8>> {
    let identity = connection.peer_identity()?;
    let chain = identity.downcast::<Vec<CertificateDer<'static>>>().ok()?;
    chain.first().map(|certificate| certificate.to_vec())
}

/// Connections that wait for [`Endpoint::accept`]; handshakes beyond wait too, and count as such.
const ARRIVED: usize = 64;

/// What an endpoint reads and writes, and what depends on it in the endpoint's `config`. Buffers of `wanted` bytes are asked for.
pub(crate) fn socket(
    socket: UdpSocket,
    wanted: usize,
    config: &mut EndpointConfig,
) -> io::Result<Arc<dyn AsyncUdpSocket>> {
    let taken = packet::largest_taken(raise_buffers(&socket, wanted)?);
    config
        .max_udp_payload_size(taken)
        .map_err(io::Error::other)?;
    let socket = TokioRuntime.wrap_udp_socket(socket)?;
    Ok(Arc::new(gather::Gathering::new(socket, taken)))
}

/// Asks for buffers of `wanted` bytes, says what to do when the system gives less, and returns what it gives for what is received.
fn raise_buffers(socket: &UdpSocket, wanted: usize) -> io::Result<usize> {
    static WARNED: Once = Once::new();
    let granted = net::raise_udp_buffers(socket, wanted)?;
    if granted.receive < wanted || granted.send < wanted {
        WARNED.call_once(|| {
            tracing::warn!(
                wanted, receive = granted.receive, send = granted.send,
                "the system gives UDP sockets less room than QUIC needs under load, and packets will be lost: set \
                 net.core.rmem_max and net.core.wmem_max (sysctl -w) to what is wanted, or more"
            );
        });
    }
    Ok(granted.receive)
}

//! The connecting side: one socket for each address family, sessions that are remembered, connections to whoever speaks a protocol.

use std::{
    fmt, io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use net::{
    RouteMtu,
    tls::{TlsClientOptions, TlsConfigError, TlsConnector},
};
use quinn::{
    AsyncUdpSocket, EndpointConfig, VarInt, ZeroRttAccepted, crypto::rustls::QuicClientConfig,
};

use crate::endpoint::{Transport, packet, socket};

/// What a client is made of.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Whom to trust. Versions and protocols in it have no meaning here: it is TLS 1.3, with the protocols of each connect.
    pub tls: TlsClientOptions,
    /// Each connection's limits.
    pub transport: Transport,
    /// Whether a session that is remembered may carry data at once ([`Client::connect_early`]).
    pub early_data: bool,
    /// How long a connection may take to come about.
    pub connect_time: Duration,
    /// Bytes a socket's buffers should have, in each direction.
    pub socket_buffer: usize,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            tls: TlsClientOptions::default(),
            transport: Transport {
                // A server opens streams towards a client only where a protocol says so.
                keep_alive: Some(Duration::from_secs(10)),
                ..Transport::default()
            },
            early_data: false,
            connect_time: Duration::from_secs(10),
            socket_buffer: 4 << 20,
        }
    }
}

/// There is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The caller's fault: an address or a name that cannot be connected to.
    #[error("cannot connect: {0}")]
    Address(#[from] quinn::ConnectError),
    /// The system does not give a socket.
    #[error("no UDP socket: {0}")]
    Socket(#[from] io::Error),
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] TlsConfigError),
    /// Nobody answered in time, as where UDP is blocked.
    #[error("no answer from {address} within {} s", time.as_secs())]
    Silence {
        /// Who was asked.
        address: SocketAddr,
        /// For how long.
        time: Duration,
    },
    /// The server refused, or the connection failed.
    #[error("the connection failed: {0}")]
    Connection(#[from] quinn::ConnectionError),
}

/// Opens QUIC connections. Cheap to clone; clones share sockets and remembered sessions.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

struct Shared {
    config: ClientConfig,
    tls: TlsConnector,
    sockets: Mutex<Sockets>,
    routes: Mutex<RouteMtu>,
    prepared: Mutex<Vec<Prepared>>,
}

/// What was asked for before.
struct Prepared {
    protocols: Vec<Vec<u8>>,
    /// The largest packet that is tried.
    largest: u16,
    config: quinn::ClientConfig,
}

#[derive(Default)]
struct Sockets {
    v4: Option<quinn::Endpoint>,
    v6: Option<quinn::Endpoint>,
}

impl Client {
    /// A client; sockets are opened when they are needed, on the runtime (of tokio) that runs then.
    ///
    /// # Errors
    /// [`TlsConfigError`].
    pub fn new(config: ClientConfig) -> Result<Self, TlsConfigError> {
        let tls = TlsConnector::new(&config.tls)?;
        Ok(Self {
            shared: Arc::new(Shared {
                config,
                tls,
                sockets: Mutex::default(),
                routes: Mutex::default(),
                prepared: Mutex::default(),
            }),
        })
    }

    /// Connects to `address`, whose certificate has to be for `name` (a DNS name or an IP address without brackets), to speak one of the
    /// protocols `alpn`. The connection is complete: the server has been judged.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn connect(
        &self,
        address: SocketAddr,
        name: &str,
        alpn: &[&[u8]],
    ) -> Result<quinn::Connection, ConnectError> {
        let connecting = self.begin(address, name, alpn)?;
        let time = self.shared.config.connect_time;
        match tokio::time::timeout(time, connecting).await {
            Ok(connection) => Ok(connection?),
            Err(_) => Err(ConnectError::Silence { address, time }),
        }
    }

    /// As [`Client::connect`], but where a session is remembered and [`ClientConfig::early_data`] is set, the connection comes before the server
    /// has answered, and with it what tells whether the server took the data that was sent till then. Such data can be sent to the server again by
    /// anybody who saw it pass (RFC 9001 §9.2). The caller bounds the time of that.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn connect_early(
        &self,
        address: SocketAddr,
        name: &str,
        alpn: &[&[u8]],
    ) -> Result<(quinn::Connection, Option<ZeroRttAccepted>), ConnectError> {
        match self.begin(address, name, alpn)?.into_0rtt() {
            Ok((connection, accepted)) => Ok((connection, Some(accepted))),
            Err(connecting) => {
                let time = self.shared.config.connect_time;
                match tokio::time::timeout(time, connecting).await {
                    Ok(connection) => Ok((connection?, None)),
                    Err(_) => Err(ConnectError::Silence { address, time }),
                }
            }
        }
    }

    /// Moves all connections to new sockets, as after a change of network: each goes on from another port.
    ///
    /// # Errors
    /// The system's; sockets that were not replaced stay.
    pub fn rebind(&self) -> io::Result<()> {
        let sockets = self.sockets();
        for (endpoint, address) in [(&sockets.v4, v4()), (&sockets.v6, v6())] {
            if let Some(endpoint) = endpoint {
                let socket = self.open(address, &mut EndpointConfig::default())?;
                endpoint.rebind_abstract(socket)?;
            }
        }
        Ok(())
    }

    /// Ends all connections at once, telling their peers `code` and `reason`, and waits at most `patience` until that is sent.
    /// Connections asked for later get sockets of their own.
    pub async fn close(&self, code: VarInt, reason: &[u8], patience: Duration) {
        let (v4, v6) = {
            let mut sockets = self.sockets();
            (sockets.v4.take(), sockets.v6.take())
        };
        for endpoint in [&v4, &v6].into_iter().flatten() {
            endpoint.close(code, reason);
        }
        let _ = tokio::time::timeout(patience, async {
            for endpoint in [&v4, &v6].into_iter().flatten() {
                endpoint.wait_idle().await;
            }
        })
        .await;
    }

    fn begin(
        &self,
        address: SocketAddr,
        name: &str,
        alpn: &[&[u8]],
    ) -> Result<quinn::Connecting, ConnectError> {
        let largest = packet::largest(
            &mut lock(&self.shared.routes),
            self.shared.config.transport.largest_packet,
            address,
        );
        let config = self.prepare(alpn, largest)?;
        let endpoint = self.endpoint(address)?;
        Ok(endpoint.connect_with(config, address, name)?)
    }

    /// The endpoint for an address's family.
    fn endpoint(&self, towards: SocketAddr) -> io::Result<quinn::Endpoint> {
        let mut sockets = self.sockets();
        let (slot, address) = match towards {
            SocketAddr::V4(_) => (&mut sockets.v4, v4()),
            SocketAddr::V6(_) => (&mut sockets.v6, v6()),
        };
        if let Some(endpoint) = slot {
            return Ok(endpoint.clone());
        }
        let mut config = EndpointConfig::default();
        let socket = self.open(address, &mut config)?;
        let runtime = Arc::new(quinn::TokioRuntime);
        let endpoint = quinn::Endpoint::new_with_abstract_socket(config, None, socket, runtime)?;
        *slot = Some(endpoint.clone());
        Ok(endpoint)
    }

    fn open(
        &self,
        address: SocketAddr,
        config: &mut EndpointConfig,
    ) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        let wanted = self.shared.config.socket_buffer;
        socket(UdpSocket::bind(address)?, wanted, config)
    }

    fn sockets(&self) -> MutexGuard<'_, Sockets> {
        lock(&self.shared.sockets)
    }

    fn prepare(&self, alpn: &[&[u8]], largest: u16) -> Result<quinn::ClientConfig, TlsConfigError> {
        let shared = &self.shared;
        let mut prepared = lock(&shared.prepared);
        let protocols = |known: &&Prepared| known.protocols == alpn;
        let known = prepared
            .iter()
            .find(|known| known.largest == largest && protocols(known));
        if let Some(known) = known {
            return Ok(known.config.clone());
        }
        let mut config = match prepared.iter().find(protocols) {
            // The same cryptography, which has the sessions.
            Some(other) => other.config.clone(),
            None => {
                let mut tls = (*shared.tls.config()).clone();
                tls.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
                tls.enable_early_data = shared.config.early_data;
                let crypto = QuicClientConfig::try_from(tls)
                    .map_err(|error| TlsConfigError::Setup(error.to_string()))?;
                quinn::ClientConfig::new(Arc::new(crypto))
            }
        };
        config.transport_config(Arc::new(shared.config.transport.quinn(largest)));
        if prepared.len() >= PREPARED {
            prepared.clear();
        }
        prepared.push(Prepared {
            protocols: alpn.iter().map(|name| name.to_vec()).collect(),
            largest,
            config: config.clone(),
        });
        Ok(config)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

fn v4() -> SocketAddr {
    (Ipv4Addr::UNSPECIFIED, 0).into()
}

fn v6() -> SocketAddr {
    (Ipv6Addr::UNSPECIFIED, 0).into()
}

/// Configurations that are remembered; a program asks for one or two lists of protocols, over a few routes.
const PREPARED: usize = 16;

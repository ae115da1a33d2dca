//! A server's TLS for QUIC: the same certificates as over TCP, TLS 1.3 only, early data by sessions that the server keeps.
//!
//! rustls takes early data only from sessions it has in its own store, each once: that makes replays within a process impossible (RFC 8446
//! §8.1). One store serves all workers, so that a client is known on whichever it lands; other certificates or authorities (a reload) begin a new
//! one, so that no session outlives the rules under which it came about.

use std::{fmt, sync::Arc};

use arc_swap::ArcSwap;
use net::tls::{Sessions, TlsAcceptor, TlsConfigError, TlsServerOptions};
use quinn::crypto::rustls::QuicServerConfig;
use rustls::server::ProducesTickets;

/// Certificates and protocols of a server. Cheap to clone; clones share what [`ServerTls::reload`] sets.
#[derive(Clone)]
pub struct ServerTls {
    shared: Arc<ArcSwap<QuicServerConfig>>,
}

impl ServerTls {
    /// With these certificates and protocols ([`TlsServerOptions::alpn`]: at least one, or every client is taken). `min_version` has no
    /// meaning here.
    ///
    /// # Errors
    /// [`TlsConfigError`].
    pub fn new(options: &TlsServerOptions) -> Result<Self, TlsConfigError> {
        let config = TlsAcceptor::new(options)?.config();
        Self::from_config(&config, &options.alpn)
    }

    /// With the certificates of a TCP listener's acceptor ([`TlsAcceptor::config`]), and protocols of its own.
    ///
    /// # Errors
    /// [`TlsConfigError::Setup`].
    pub fn from_config(
        config: &rustls::ServerConfig,
        alpn: &[Vec<u8>],
    ) -> Result<Self, TlsConfigError> {
        Ok(Self {
            shared: Arc::new(ArcSwap::new(prepare(config, alpn)?)),
        })
    }

    /// Other certificates or protocols for every handshake from now on, on all workers.
    ///
    /// # Errors
    /// As [`ServerTls::from_config`]; the old ones stay then.
    pub fn reload(
        &self,
        config: &rustls::ServerConfig,
        alpn: &[Vec<u8>],
    ) -> Result<(), TlsConfigError> {
        self.shared.store(prepare(config, alpn)?);
        Ok(())
    }

    /// As `other` has it, for every handshake from now on, on all workers.
    pub fn replace(&self, other: &Self) {
        self.shared.store(other.current());
    }

    pub(crate) fn current(&self) -> Arc<QuicServerConfig> {
        self.shared.load_full()
    }
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerTls")
    }
}

fn prepare(
    config: &rustls::ServerConfig,
    alpn: &[Vec<u8>],
) -> Result<Arc<QuicServerConfig>, TlsConfigError> {
    let mut config = config.clone();
    config.alpn_protocols = alpn.to_vec();
    config.ticketer = Arc::new(NoTickets);
    config.session_storage = Arc::new(Sessions::new(MOST_SESSIONS));
    // RFC 9001 §4.6.1: any other value is not allowed.
    config.max_early_data_size = u32::MAX;
    QuicServerConfig::try_from(config)
        .map(Arc::new)
        .map_err(|error| TlsConfigError::Setup(error.to_string()))
}

/// About 1 KiB each; a client is given two at a time.
const MOST_SESSIONS: usize = 16_384;

/// Sessions that clients keep for the server would be good for any number of times.
#[derive(Debug)]
struct NoTickets;

impl ProducesTickets for NoTickets {
    fn enabled(&self) -> bool {
        false
    }

    fn lifetime(&self) -> u32 {
        0
    }

    fn encrypt(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn decrypt(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

//! The server side of TLS.
//!
//! An accepted stream's ClientHello picks a certificate by its name: the exact one, else the wildcard for its parent,
//! else the first certificate or a refusal, as configured. The whole configuration is one snapshot behind an `ArcSwap`:
//! a handshake in progress keeps the one it began with, ticket keys outlive a reload.

use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::server::{
    Accepted, AcceptedAlert, Acceptor, ClientHello, ProducesTickets, ResolvesServerCert,
    StoresServerSessions,
};
use rustls::sign::CertifiedKey;
use rustls::{Connection, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::hello;
use super::stream::{HandshakeFailure, TlsStream};
use super::turns::take_turn;
use super::{Certificate, Sessions, TlsConfigError, TlsError, provider, verify};
use crate::Stream;

/// The oldest TLS version accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MinVersion {
    /// TLS 1.2 (RFC 5246) and 1.3.
    #[default]
    Tls12,
    /// TLS 1.3 (RFC 8446) only.
    Tls13,
}

/// What to do with a client that asks for a name no certificate is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownName {
    /// Serve the first certificate; the client will judge.
    #[default]
    ServeDefault,
    /// Refuse with the alert `unrecognized_name` (RFC 6066 §3). A client that asks for no name still gets the first.
    Refuse,
}

/// Whether clients are asked for certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAuth {
    /// The authorities that may have signed them, PEM.
    pub authorities: PathBuf,
    /// A client without a certificate may come too; one with a wrong certificate may not.
    pub optional: bool,
}

/// What a TLS server is made of.
#[derive(Clone, Debug, Default)]
pub struct TlsServerOptions {
    /// At least one; the first is the default.
    pub certificates: Vec<Certificate>,
    /// The oldest version accepted.
    pub min_version: MinVersion,
    /// Protocols in order of preference; empty: none is negotiated. A client that offers only others is refused.
    pub alpn: Vec<Vec<u8>>,
    /// Names without a certificate.
    pub unknown_name: UnknownName,
    /// Asks clients for certificates. Sessions that were begun are not judged again: whoever takes an authority away makes a new acceptor.
    pub client_auth: Option<ClientAuth>,
}

/// Turns accepted streams into encrypted ones. Cheap to clone; clones share what [`TlsAcceptor::reload`] sets.
#[derive(Clone)]
pub struct TlsAcceptor {
    shared: Arc<Shared>,
}

impl TlsAcceptor {
    /// A server side with these options.
    ///
    /// # Errors
    /// [`TlsConfigError`]; without a certificate in particular.
    pub fn new(options: &TlsServerOptions) -> Result<Self, TlsConfigError> {
        let setup = |error: rustls::Error| TlsConfigError::Setup(error.to_string());
        let resumption = Resumption {
            tickets: rustls::crypto::aws_lc_rs::Ticketer::new().map_err(setup)?,
            sessions: Arc::new(Sessions::new(SESSIONS)),
        };
        let snapshot = ArcSwap::from_pointee(Snapshot::new(options, &resumption)?);
        Ok(Self {
            shared: Arc::new(Shared {
                snapshot,
                resumption,
            }),
        })
    }

    /// Replaces the options for every handshake from now on; connections that exist are not touched.
    ///
    /// # Errors
    /// [`TlsConfigError`]; the old options stay then.
    pub fn reload(&self, options: &TlsServerOptions) -> Result<(), TlsConfigError> {
        self.shared
            .snapshot
            .store(Arc::new(Snapshot::new(options, &self.shared.resumption)?));
        Ok(())
    }

    /// The configuration in use, for other users of rustls.
    pub fn config(&self) -> Arc<ServerConfig> {
        self.shared.snapshot.load().config.clone()
    }

    /// Whether a certificate is for `name` (exact or by wildcard; the default does not count).
    pub fn knows(&self, name: &str) -> bool {
        self.shared
            .snapshot
            .load()
            .certificates
            .find(name)
            .is_some()
    }

    /// Does the handshake. The caller bounds its time.
    ///
    /// A client that breaks the protocol is told so by an alert; one that speaks plain HTTP comes back in
    /// [`TlsError::PlainHttp`].
    ///
    /// # Errors
    /// See [`TlsError`].
    pub async fn accept(&self, stream: Stream) -> Result<Stream, TlsError> {
        Self::accept_with(stream, |_| self.clone()).await
    }

    /// As [`TlsAcceptor::accept`], by the server side that `choose` wants for the name the client asks for.
    ///
    /// # Errors
    /// See [`TlsError`].
    pub async fn accept_with(
        stream: Stream,
        choose: impl FnOnce(Option<&str>) -> Self,
    ) -> Result<Stream, TlsError> {
        let Hello {
            stream,
            accepted,
            rest,
            extended_master_secret,
        } = read_hello(stream).await?;
        let chosen = choose(accepted.client_hello().server_name());
        let snapshot = chosen.shared.snapshot.load_full();
        let asks_for_unknown = accepted
            .client_hello()
            .server_name()
            .is_some_and(|name| snapshot.certificates.find(name).is_none());
        if asks_for_unknown && snapshot.unknown_name == UnknownName::Refuse {
            return Err(refuse(stream, UNRECOGNIZED_NAME_ALERT, TlsError::UnknownName).await);
        }
        // Here is what a handshake costs: the key exchange and the signature.
        let config = snapshot.config.clone();
        let session = match take_turn(|| accepted.into_connection(config)).await {
            Ok(session) => session,
            Err((error, alert)) => {
                return Err(refuse(stream, &bytes_of(alert), TlsError::Protocol(error)).await);
            }
        };
        let mut tls = TlsStream::new(
            stream,
            Connection::Server(session),
            rest,
            extended_master_secret,
        );
        match poll_fn(|cx| tls.poll_handshake(cx)).await {
            Ok(()) => Ok(Stream::from_tls(tls)),
            Err(HandshakeFailure::Io(error)) => Err(TlsError::Io(error)),
            Err(HandshakeFailure::Tls(error)) => Err(TlsError::Protocol(error)),
        }
    }
}

/// A ClientHello, and what came with it.
struct Hello {
    stream: Stream,
    accepted: Accepted,
    /// The bytes after it.
    rest: Vec<u8>,
    /// It offers the extended master secret, which rustls always takes.
    extended_master_secret: bool,
}

/// Reads until the ClientHello is whole. rustls bounds its length to 64 KiB.
async fn read_hello(mut stream: Stream) -> Result<Hello, TlsError> {
    let mut hello = Acceptor::default();
    let mut read = Vec::with_capacity(HELLO_ROOM);
    let mut fed = 0;
    loop {
        if stream.read_buf(&mut read).await? == 0 {
            return Err(TlsError::Io(io::ErrorKind::UnexpectedEof.into()));
        }
        if looks_like_http(&read) {
            return Err(TlsError::PlainHttp(stream.with_prefix(read)));
        }
        // A piece of a method must not be judged as TLS. The first byte of TLS, 0x16, begins none.
        if METHODS.iter().any(|method| method.starts_with(&read)) {
            continue;
        }
        while fed < read.len() {
            let mut fresh = &read[fed..];
            let taken = hello.read_tls(&mut fresh)?;
            if taken == 0 {
                // It said goodbye before it said hello; nothing more is taken from it.
                return Err(TlsError::Io(io::ErrorKind::UnexpectedEof.into()));
            }
            fed += taken;
            match hello.accept() {
                Ok(Some(accepted)) => {
                    return Ok(Hello {
                        stream,
                        accepted,
                        rest: read.split_off(fed),
                        extended_master_secret: hello::offers_extended_master_secret(&read),
                    });
                }
                Ok(None) => {}
                Err((error, alert)) => {
                    return Err(refuse(stream, &bytes_of(alert), TlsError::Protocol(error)).await);
                }
            }
        }
        read.reserve(HELLO_ROOM);
    }
}

fn bytes_of(mut alert: AcceptedAlert) -> Vec<u8> {
    let mut bytes = Vec::new();
    // Writing to memory does not fail.
    let _ = alert.write_all(&mut bytes);
    bytes
}

impl fmt::Debug for TlsAcceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsAcceptor").finish_non_exhaustive()
    }
}

/// Whether the first bytes of a connection are those of an HTTP/1 request or the HTTP/2 preface, rather than TLS.
///
/// True only when a whole known method and the space after it are there (8 bytes settle it).
pub fn looks_like_http(first: &[u8]) -> bool {
    METHODS.iter().any(|method| first.starts_with(method))
}

/// An answer for a visitor who typed `http://` before the name of a TLS port.
pub const PLAIN_HTTP_ANSWER: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n\
Content-Length: 73\r\nConnection: close\r\n\r\n\
This port speaks HTTPS, and plain HTTP was sent to it. Use https:// here.";

struct Shared {
    snapshot: ArcSwap<Snapshot>,
    resumption: Resumption,
}

/// What lets clients resume sessions; kept over reloads.
struct Resumption {
    tickets: Arc<dyn ProducesTickets>,
    sessions: Arc<dyn StoresServerSessions>,
}

struct Snapshot {
    config: Arc<ServerConfig>,
    certificates: Arc<ByName>,
    unknown_name: UnknownName,
}

impl Snapshot {
    fn new(options: &TlsServerOptions, resumption: &Resumption) -> Result<Self, TlsConfigError> {
        let certificates = Arc::new(ByName::new(&options.certificates)?);
        let versions = match options.min_version {
            MinVersion::Tls12 => rustls::ALL_VERSIONS,
            MinVersion::Tls13 => &[&rustls::version::TLS13],
        };
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(versions)
            .map_err(|error| TlsConfigError::Setup(error.to_string()))?
            .with_client_cert_verifier(verify::client_verifier(options.client_auth.as_ref())?)
            .with_cert_resolver(certificates.clone());
        config.alpn_protocols.clone_from(&options.alpn);
        config.ticketer = resumption.tickets.clone();
        config.session_storage = resumption.sessions.clone();
        Ok(Self {
            config: Arc::new(config),
            certificates,
            unknown_name: options.unknown_name,
        })
    }
}

/// Certificates by the names they are for.
#[derive(Debug)]
struct ByName {
    exact: HashMap<String, Arc<CertifiedKey>>,
    /// By the part after `*.`.
    wildcard: HashMap<String, Arc<CertifiedKey>>,
    default: Arc<CertifiedKey>,
}

impl ByName {
    fn new(certificates: &[Certificate]) -> Result<Self, TlsConfigError> {
        let default = certificates
            .first()
            .ok_or(TlsConfigError::NoCertificate)?
            .certified_key();
        let mut by_name = Self {
            exact: HashMap::new(),
            wildcard: HashMap::new(),
            default,
        };
        for certificate in certificates {
            for name in certificate.names() {
                let (map, name) = match name.strip_prefix("*.") {
                    Some(parent) => (&mut by_name.wildcard, parent),
                    None => (&mut by_name.exact, name.as_str()),
                };
                // The first that claims a name keeps it, as the first of all is the default.
                map.entry(name.to_owned())
                    .or_insert_with(|| certificate.certified_key());
            }
        }
        Ok(by_name)
    }

    fn find(&self, name: &str) -> Option<&Arc<CertifiedKey>> {
        let lower;
        let mut name = name.strip_suffix('.').unwrap_or(name);
        if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            lower = name.to_ascii_lowercase();
            name = &lower;
        }
        // RFC 6125 §6.4.3: a wildcard stands for exactly one label.
        self.exact
            .get(name)
            .or_else(|| self.wildcard.get(name.split_once('.')?.1))
    }
}

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(
            hello
                .server_name()
                .and_then(|name| self.find(name))
                .unwrap_or(&self.default)
                .clone(),
        )
    }
}

async fn refuse(mut stream: Stream, alert: &[u8], error: TlsError) -> TlsError {
    // The reason is told either way; a peer that does not read it loses nothing but the reason.
    if stream.write_all(alert).await.is_ok() && stream.flush().await.is_ok() {
        let _ = stream.shutdown().await;
    }
    error
}

/// A fatal `unrecognized_name` (112) in a plaintext record, as it stands before any key exists (RFC 5246 §7.2).
const UNRECOGNIZED_NAME_ALERT: &[u8] = &[21, 3, 3, 0, 2, 2, 112];

/// Sessions kept for TLS 1.2 clients that take no tickets; about 1 KiB each.
const SESSIONS: usize = 4096;

/// A post-quantum ClientHello has about 1.8 KiB.
const HELLO_ROOM: usize = 4096;

const METHODS: &[&[u8]] = &[
    b"GET ",
    b"POST ",
    b"HEAD ",
    b"PUT ",
    b"DELETE ",
    b"OPTIONS ",
    b"PATCH ",
    b"CONNECT ",
    b"TRACE ",
    b"PRI * HT",
];

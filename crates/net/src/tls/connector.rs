//! The client side of TLS.
//!
//! A [`TlsConnector`] is made once per trust and kept: it remembers sessions, so that reconnecting is cheaper.

use std::fmt;
use std::future::poll_fn;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::sign::SingleCertAndKey;
use rustls::{CertificateError, ClientConfig, ClientConnection, Connection};
use rustls_pki_types::ServerName;

use super::stream::{HandshakeFailure, TlsStream};
use super::{Certificate, MinVersion, TlsConfigError, TlsError, provider, verify};
use crate::Stream;

/// Whose certificates are accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// Authorities that Mozilla trusts.
    #[default]
    PublicAuthorities,
    /// Those, and the authorities in a PEM file.
    PublicAuthoritiesAnd(PathBuf),
    /// Only what a PEM file holds: its authorities, and the very certificates in it. A server that shows one of those
    /// (a self-signed one, say) is trusted whatever names and dates it bears: the file says who it is.
    OnlyFile(PathBuf),
    /// Anyone, without a look. Whoever sits between can read and change everything, unless the peers prove
    /// themselves to each other over this channel in another way (bound to it by [`Stream::tls_exporter`]).
    InsecureNoVerification,
}

/// What a TLS client is made of.
#[derive(Clone, Debug, Default)]
pub struct TlsClientOptions {
    /// Whose certificates are accepted.
    pub trust: Trust,
    /// The oldest version spoken.
    pub min_version: MinVersion,
    /// Protocols offered, in order of preference; empty: none.
    pub alpn: Vec<Vec<u8>>,
    /// Shown to a server that asks for one.
    pub certificate: Option<Certificate>,
    /// Refuse a server that speaks TLS 1.2 without extended master secret (RFC 7627). [`Stream::tls_exporter`] needs it there.
    pub require_extended_master_secret: bool,
}

/// Turns streams to a server into encrypted ones. Cheap to clone; clones share remembered sessions.
#[derive(Clone)]
pub struct TlsConnector {
    config: Arc<ClientConfig>,
}

impl TlsConnector {
    /// A client side with these options. PEM files are read now, and not again.
    ///
    /// # Errors
    /// [`TlsConfigError`].
    pub fn new(options: &TlsClientOptions) -> Result<Self, TlsConfigError> {
        let versions = match options.min_version {
            MinVersion::Tls12 => rustls::ALL_VERSIONS,
            MinVersion::Tls13 => &[&rustls::version::TLS13],
        };
        let config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(versions)
            .map_err(|error| TlsConfigError::Setup(error.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(verify::verifier(&options.trust)?);
        let mut config = match &options.certificate {
            Some(own) => {
                let own = SingleCertAndKey::from(own.certified_key());
                config.with_client_cert_resolver(Arc::new(own))
            }
            None => config.with_no_client_auth(),
        };
        config.alpn_protocols.clone_from(&options.alpn);
        config.require_ems = options.require_extended_master_secret;
        config.resumption = Resumption::in_memory_sessions(SESSIONS);
        Ok(Self {
            config: Arc::new(config),
        })
    }

    /// The configuration in use, for other users of rustls.
    pub fn config(&self) -> Arc<ClientConfig> {
        self.config.clone()
    }

    /// Does the handshake with the server that `name` (DNS name or IP address, without port) stands for: it is sent as
    /// SNI and must be in the certificate. The caller bounds the time.
    ///
    /// # Errors
    /// See [`TlsError`].
    pub async fn connect(&self, stream: Stream, name: &str) -> Result<Stream, TlsError> {
        let bare = name
            .strip_prefix('[')
            .and_then(|name| name.strip_suffix(']'))
            .unwrap_or(name);
        let server = ServerName::try_from(bare.to_owned()).map_err(|_| TlsError::BadName {
            name: name.to_owned(),
        })?;
        let session =
            ClientConnection::new(self.config.clone(), server).map_err(TlsError::Protocol)?;
        let mut tls = TlsStream::new(
            stream,
            Connection::Client(session),
            Vec::new(),
            self.config.require_ems,
        );
        match poll_fn(|cx| tls.poll_handshake(cx)).await {
            Ok(()) => Ok(Stream::from_tls(tls)),
            Err(HandshakeFailure::Io(error)) => Err(TlsError::Io(error)),
            Err(HandshakeFailure::Tls(error)) => Err(explain(error, name)),
        }
    }
}

impl fmt::Debug for TlsConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsConnector").finish_non_exhaustive()
    }
}

/// Says in words what a refused certificate's owner or its visitor can do.
fn explain(error: rustls::Error, name: &str) -> TlsError {
    let rustls::Error::InvalidCertificate(why) = error else {
        return TlsError::Protocol(error);
    };
    let reason = match &why {
        CertificateError::UnknownIssuer => {
            "no authority that is trusted here has signed it; if it is your own, give its PEM file to be trusted".to_owned()
        }
        CertificateError::NotValidForNameContext { presented, .. } => {
            format!("it is for other names: {}", presented.join(", "))
        }
        CertificateError::NotValidForName => "it is for other names".to_owned(),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "it has expired; its owner has to renew it (or this machine's clock is wrong)".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet; is this machine's clock right?".to_owned()
        }
        CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            "it is an authority's own certificate, which only counts when its PEM file is given to be trusted".to_owned()
        }
        why => why.to_string(),
    };
    TlsError::Certificate {
        name: name.to_owned(),
        reason,
    }
}

/// Servers whose sessions are remembered.
const SESSIONS: usize = 256;

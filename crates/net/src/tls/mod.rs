//! TLS: certificates from files, a server side that picks them by name, a client side that decides whom to trust.
//!
//! [`load_certificates`] reads a certificate and its key, [`self_signed`] makes one. [`TlsAcceptor`] turns an accepted
//! [`Stream`] into an encrypted one and can be reloaded while it serves; [`TlsConnector`] does it for a connection made.
//! All of it is rustls with aws-lc-rs; resumption is on and bounded; early data is off. ACME, watching files and the
//! time a handshake may take are left to the callers.

mod acceptor;
mod connector;
mod error;
mod files;
mod hello;
mod peer;
mod sessions;
pub(crate) mod stream;
mod verify;

pub use acceptor::{
    ClientAuth, MinVersion, PLAIN_HTTP_ANSWER, TlsAcceptor, TlsServerOptions, UnknownName,
    looks_like_http,
};
pub use connector::{TlsClientOptions, TlsConnector, Trust};
pub use error::{TlsConfigError, TlsError, TlsFileError};
pub use files::{Certificate, load_certificates, self_signed};
pub use peer::PeerCertificate;
pub use sessions::Sessions;

use std::sync::{Arc, LazyLock};

use rustls::crypto::CryptoProvider;

#[cfg(doc)]
use crate::Stream;

/// The cryptography behind every configuration made here.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> =
        LazyLock::new(|| Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
    PROVIDER.clone()
}

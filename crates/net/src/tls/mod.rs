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
mod turns;
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

use rustls::{CipherSuite, crypto::CryptoProvider};

#[cfg(doc)]
use crate::Stream;

/// The cryptography behind every configuration made here: aws-lc, with AES-128 offered before AES-256.
///
/// The order counts where gt is the client; a server takes what the client has put first. Suites with AES-128 derive
/// their keys by SHA-256, for which processors have instructions, and those with AES-256 by SHA-384, for which few have:
/// a fifth of what a server computes for a QUIC connection with one request. Browsers offer them in this order too.
pub fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
        let mut provider = rustls::crypto::aws_lc_rs::default_provider();
        // Stable: nothing else changes its place.
        provider
            .cipher_suites
            .sort_by_key(|suite| !is_aes_128(suite.suite()));
        Arc::new(provider)
    });
    PROVIDER.clone()
}

fn is_aes_128(suite: CipherSuite) -> bool {
    matches!(
        suite,
        CipherSuite::TLS13_AES_128_GCM_SHA256
            | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
            | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
    )
}

//! What goes wrong with TLS: files, configurations, handshakes.

use std::io;
use std::path::PathBuf;

use crate::Stream;

/// A certificate or key file cannot be used. The text names the file and says what to do.
#[derive(Debug, thiserror::Error)]
pub enum TlsFileError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}", path = path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// There is no certificate in the file.
    #[error("{path} has no PEM certificate: it must have a block that begins with `-----BEGIN CERTIFICATE-----`", path = path.display())]
    NoCertificate {
        /// Which file.
        path: PathBuf,
    },
    /// There is no private key in the file.
    #[error(
        "{path} has no PEM private key that can be read: it must have a block `PRIVATE KEY`, `RSA PRIVATE KEY` or `EC PRIVATE KEY` that is not encrypted (`openssl pkey -in KEY -out PLAIN` decrypts one)",
        path = path.display()
    )]
    NoKey {
        /// Which file.
        path: PathBuf,
    },
    /// A PEM block is damaged.
    #[error("{path} is damaged PEM: {reason}", path = path.display())]
    Pem {
        /// Which file.
        path: PathBuf,
        /// Where.
        reason: String,
    },
    /// A certificate is no valid X.509.
    #[error("certificate number {number} in {path} cannot be read: {reason}", path = path.display())]
    Certificate {
        /// Which file.
        path: PathBuf,
        /// Its place in the file, from 1.
        number: usize,
        /// What is wrong.
        reason: String,
    },
    /// The key is of a kind that is not supported.
    #[error("the private key in {path} cannot be used: {reason}; use RSA (2048 bits or more), ECDSA P-256/P-384/P-521 or Ed25519", path = path.display())]
    Key {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// Certificate and key do not belong together.
    #[error("the key in {key} does not match the first certificate in {certificate}: give the pair that was made together, with the server's own certificate first in the file", key = key.display(), certificate = certificate.display())]
    Mismatch {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
}

/// A TLS configuration that cannot work.
#[derive(Debug, thiserror::Error)]
pub enum TlsConfigError {
    /// A server without a certificate.
    #[error("a TLS server needs at least one certificate")]
    NoCertificate,
    /// A certificate meant as an authority cannot be one.
    #[error("none of the certificates in {path} can be trusted as an authority or pinned: {reason}", path = path.display())]
    Authority {
        /// The PEM file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A file cannot be used.
    #[error(transparent)]
    File(#[from] TlsFileError),
    /// The cryptography refuses, which no configuration file can cause.
    #[error("TLS cannot be set up: {0}")]
    Setup(String),
}

/// A handshake that failed.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The peer speaks plain HTTP to a TLS port. The stream gives back all that was read; answer it with
    /// [`PLAIN_HTTP_ANSWER`](super::PLAIN_HTTP_ANSWER) or serve it.
    #[error("the peer speaks plain HTTP to a TLS port")]
    PlainHttp(Stream),
    /// The client asks for a name that no certificate is for. It has been told so (`unrecognized_name`).
    #[error("no certificate for the name the client asks for")]
    UnknownName,
    /// `name` cannot be asked for (the caller's fault).
    #[error("{name:?} is neither a DNS name nor an IP address")]
    BadName {
        /// As given.
        name: String,
    },
    /// The server's certificate is not trusted. The text says why and what to do.
    #[error("the certificate of {name} is not accepted: {reason}")]
    Certificate {
        /// The name connected to.
        name: String,
        /// Why, and what to do.
        reason: String,
    },
    /// The peers do not agree, or one of them broke the protocol.
    #[error("the TLS handshake failed: {0}")]
    Protocol(rustls::Error),
    /// The connection failed.
    #[error("the connection failed during the TLS handshake: {0}")]
    Io(#[from] io::Error),
}

//! Certificates with their keys: read from PEM files, or made on the spot.
//!
//! Everything that can be wrong with a pair of files is found here, when it is read, and not in a visitor's handshake.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::{Error as PemError, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use super::{TlsConfigError, TlsFileError, provider};

/// A certificate chain with its private key, and what its first certificate says. Cheap to clone.
#[derive(Clone)]
pub struct Certificate {
    key: Arc<CertifiedKey>,
    names: Arc<[String]>,
    not_after: SystemTime,
}

impl Certificate {
    /// The DNS names it is for, in lower case, wildcards as `*.example.com`: those of its subject alternative names, or
    /// the common name when it has none.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// When it expires.
    pub fn not_after(&self) -> SystemTime {
        self.not_after
    }

    /// Whether it has expired. Such a certificate is served all the same: a late renewal must not take a server down.
    pub fn is_expired(&self, now: SystemTime) -> bool {
        now > self.not_after
    }

    /// The chain, the server's own certificate first.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.key.cert
    }

    /// The chain with its key, for other users of rustls.
    pub fn certified_key(&self) -> Arc<CertifiedKey> {
        self.key.clone()
    }

    /// Puts a chain and its key together.
    ///
    /// # Errors
    /// [`Unfit`], which has no file names; [`load_certificates`] adds them.
    fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, Unfit> {
        for (index, der) in chain.iter().enumerate() {
            X509Certificate::from_der(der).map_err(|error| Unfit::Certificate {
                number: index + 1,
                reason: error.to_string(),
            })?;
        }
        let first = chain.first().ok_or(Unfit::NoCertificate)?;
        let (names, not_after) = {
            let (_, parsed) =
                X509Certificate::from_der(first).map_err(|error| Unfit::Certificate {
                    number: 1,
                    reason: error.to_string(),
                })?;
            (
                names_of(&parsed),
                time_of(parsed.validity().not_after.timestamp()),
            )
        };
        let key = match CertifiedKey::from_der(chain, key, &provider()) {
            Ok(key) => key,
            Err(rustls::Error::InconsistentKeys(_)) => return Err(Unfit::Mismatch),
            Err(error) => {
                return Err(Unfit::Key {
                    reason: error.to_string(),
                });
            }
        };
        Ok(Self {
            key: Arc::new(key),
            names: names.into(),
            not_after,
        })
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate")
            .field("names", &self.names)
            .field("not_after", &self.not_after)
            .finish_non_exhaustive()
    }
}

/// Reads a certificate chain (the server's own first) and its key from PEM files; both may be the same file.
///
/// An expired certificate is loaded and a warning logged: see [`Certificate::is_expired`].
///
/// # Errors
/// [`TlsFileError`] says which file, what is wrong with it and what to do.
pub fn load_certificates(certificate: &Path, key: &Path) -> Result<Certificate, TlsFileError> {
    let chain = read_chain(certificate)?;
    let key_der = read_key(key)?;
    let loaded = Certificate::new(chain, key_der).map_err(|unfit| unfit.at(certificate, key))?;
    if loaded.is_expired(SystemTime::now()) {
        tracing::warn!(
            file = %certificate.display(), names = ?loaded.names(),
            "the certificate has expired: visitors will be warned or refused until it is renewed and reloaded"
        );
    }
    Ok(loaded)
}

/// Makes a self-signed certificate for `names` (DNS names or IP addresses), valid from a day ago for ten years.
///
/// # Errors
/// [`TlsConfigError::Setup`] when a name cannot stand in a certificate.
pub fn self_signed(names: &[String]) -> Result<Certificate, TlsConfigError> {
    let setup = |error: rcgen::Error| TlsConfigError::Setup(error.to_string());
    let mut params = rcgen::CertificateParams::new(names.to_vec()).map_err(setup)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, "gt self-signed");
    let now = SystemTime::now();
    params.not_before = (now - DAY).into();
    params.not_after = (now + DAY * 3650).into();
    let key = rcgen::KeyPair::generate().map_err(setup)?;
    let certificate = params.self_signed(&key).map_err(setup)?;
    let key = PrivateKeyDer::try_from(key.serialize_der())
        .map_err(|error| TlsConfigError::Setup(error.to_owned()))?;
    Certificate::new(vec![certificate.der().clone()], key)
        .map_err(|unfit| TlsConfigError::Setup(format!("{unfit:?}")))
}

/// The certificates in a PEM file, at least one.
pub(crate) fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
    let bytes = read(path)?;
    let chain = CertificateDer::pem_slice_iter(&bytes)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| TlsFileError::Pem {
            path: path.to_owned(),
            reason: error.to_string(),
        })?;
    if chain.is_empty() {
        return Err(TlsFileError::NoCertificate {
            path: path.to_owned(),
        });
    }
    Ok(chain)
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsFileError> {
    let bytes = read(path)?;
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| match error {
        PemError::NoItemsFound => TlsFileError::NoKey {
            path: path.to_owned(),
        },
        error => TlsFileError::Pem {
            path: path.to_owned(),
            reason: error.to_string(),
        },
    })
}

fn read(path: &Path) -> Result<Vec<u8>, TlsFileError> {
    std::fs::read(path).map_err(|source| TlsFileError::Read {
        path: path.to_owned(),
        source,
    })
}

/// Why a chain and a key make no certificate, before the files are known.
#[derive(Debug)]
enum Unfit {
    NoCertificate,
    Certificate { number: usize, reason: String },
    Key { reason: String },
    Mismatch,
}

impl Unfit {
    fn at(self, certificate: &Path, key: &Path) -> TlsFileError {
        let (certificate, key) = (certificate.to_owned(), key.to_owned());
        match self {
            Self::NoCertificate => TlsFileError::NoCertificate { path: certificate },
            Self::Certificate { number, reason } => TlsFileError::Certificate {
                path: certificate,
                number,
                reason,
            },
            Self::Key { reason } => TlsFileError::Key { path: key, reason },
            Self::Mismatch => TlsFileError::Mismatch { certificate, key },
        }
    }
}

/// RFC 6125 §6.4.4: the common name counts only where there are no alternative names of the kind.
fn names_of(certificate: &X509Certificate<'_>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    if let Ok(Some(alternatives)) = certificate.subject_alternative_name() {
        names.extend(
            alternatives
                .value
                .general_names
                .iter()
                .filter_map(|name| match name {
                    GeneralName::DNSName(dns) => Some(dns.to_ascii_lowercase()),
                    _ => None,
                }),
        );
        return names;
    }
    let common_name = certificate
        .subject()
        .iter_common_name()
        .next()
        .and_then(|name| name.as_str().ok());
    names.extend(common_name.map(str::to_ascii_lowercase));
    names
}

fn time_of(timestamp: i64) -> SystemTime {
    match u64::try_from(timestamp) {
        Ok(seconds) => SystemTime::UNIX_EPOCH + Duration::from_secs(seconds),
        Err(_) => SystemTime::UNIX_EPOCH,
    }
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

//! Certificates made for one test, as PEM files for gt and nginx and as trust anchors for visitors.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::CertificateDer;

use crate::TempDir;

/// A certificate with its key.
#[derive(Debug)]
pub struct Cert {
    dir: TempDir,
    der: CertificateDer<'static>,
}

/// An authority that signs certificates.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    dir: TempDir,
}

impl Cert {
    /// A certificate for these names (DNS names and IP addresses) that vouches for itself.
    ///
    /// # Panics
    /// When the names cannot stand in a certificate.
    #[must_use]
    pub fn self_signed(names: &[&str]) -> Self {
        let key = KeyPair::generate().expect("a key");
        let cert = params(names).self_signed(&key).expect("a certificate");
        Self::store(&cert.pem(), &key.serialize_pem(), cert.der())
    }

    fn store(chain: &str, key: &str, der: &CertificateDer<'_>) -> Self {
        let dir = TempDir::new();
        dir.file("cert.pem", chain);
        dir.file("key.pem", key);
        Self {
            dir,
            der: der.clone().into_owned(),
        }
    }

    /// The certificate as a PEM file.
    #[must_use]
    pub fn cert_file(&self) -> PathBuf {
        self.dir.path().join("cert.pem")
    }

    /// The key as a PEM file.
    #[must_use]
    pub fn key_file(&self) -> PathBuf {
        self.dir.path().join("key.pem")
    }

    /// The certificate.
    #[must_use]
    pub fn der(&self) -> &CertificateDer<'static> {
        &self.der
    }
}

impl Authority {
    /// A new authority.
    ///
    /// # Panics
    /// When no key can be made.
    #[must_use]
    pub fn new() -> Self {
        let mut params = params(&[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, "gt test authority");
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key"))
            .expect("an authority");
        let dir = TempDir::new();
        dir.file("ca.pem", issuer.pem());
        Self { issuer, dir }
    }

    /// Its own certificate as a PEM file.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    /// Its own certificate.
    #[must_use]
    pub fn der(&self) -> &CertificateDer<'static> {
        self.issuer.der()
    }

    /// A certificate for these names.
    ///
    /// # Panics
    /// When the names cannot stand in a certificate.
    #[must_use]
    pub fn sign(&self, names: &[&str]) -> Cert {
        let key = KeyPair::generate().expect("a key");
        let cert = params(names)
            .signed_by(&key, &self.issuer)
            .expect("a certificate");
        Cert::store(&cert.pem(), &key.serialize_pem(), cert.der())
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl AsRef<Path> for Cert {
    fn as_ref(&self) -> &Path {
        self.dir.path()
    }
}

fn params(names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    CertificateParams::new(names).expect("names for a certificate")
}

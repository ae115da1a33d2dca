//! Deciding whether a peer's certificate is accepted.
//!
//! Signatures made with the certificate's key are checked in every mode: the peer always proves that it has the key.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use super::files::read_chain;
use super::{ClientAuth, TlsConfigError, Trust, provider};

/// The judge for `trust`.
pub(crate) fn verifier(trust: &Trust) -> Result<Arc<dyn ServerCertVerifier>, TlsConfigError> {
    let mut roots = RootCertStore::empty();
    match trust {
        Trust::InsecureNoVerification => {
            return Ok(Arc::new(Judge {
                pinned: Vec::new(),
                rest: Rest::Accept,
            }));
        }
        Trust::PublicAuthorities => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Trust::PublicAuthoritiesAnd(path) => {
            roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
            add_authorities(&mut roots, path, read_chain(path)?)?;
        }
        Trust::OnlyFile(path) => {
            let pinned = read_chain(path)?;
            add_authorities(&mut roots, path, pinned.clone())?;
            return Ok(Arc::new(Judge {
                pinned,
                rest: Rest::Ask(webpki(roots)?),
            }));
        }
    }
    Ok(webpki(roots)?)
}

/// The judge of clients' certificates.
pub(crate) fn client_verifier(
    auth: Option<&ClientAuth>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsConfigError> {
    let Some(auth) = auth else {
        return Ok(WebPkiClientVerifier::no_client_auth());
    };
    let mut roots = RootCertStore::empty();
    add_authorities(
        &mut roots,
        &auth.authorities,
        read_chain(&auth.authorities)?,
    )?;
    let mut builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
    if auth.optional {
        builder = builder.allow_unauthenticated();
    }
    builder
        .build()
        .map_err(|error| TlsConfigError::Setup(error.to_string()))
}

fn webpki(roots: RootCertStore) -> Result<Arc<WebPkiServerVerifier>, TlsConfigError> {
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
        .build()
        .map_err(|error| TlsConfigError::Setup(error.to_string()))
}

fn add_authorities(
    roots: &mut RootCertStore,
    path: &Path,
    certificates: Vec<CertificateDer<'static>>,
) -> Result<(), TlsConfigError> {
    let mut failure = String::new();
    let mut added = false;
    for certificate in certificates {
        match roots.add(certificate) {
            Ok(()) => added = true,
            Err(error) => failure = error.to_string(),
        }
    }
    if added {
        Ok(())
    } else {
        Err(TlsConfigError::Authority {
            path: path.to_owned(),
            reason: failure,
        })
    }
}

/// Accepts the pinned certificates themselves, and of the others what `rest` says.
struct Judge {
    pinned: Vec<CertificateDer<'static>>,
    rest: Rest,
}

enum Rest {
    Accept,
    Ask(Arc<WebPkiServerVerifier>),
}

impl fmt::Debug for Judge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Judge").finish_non_exhaustive()
    }
}

impl ServerCertVerifier for Judge {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.pinned.iter().any(|pinned| pinned == end_entity) {
            return Ok(ServerCertVerified::assertion());
        }
        match &self.rest {
            Rest::Accept => Ok(ServerCertVerified::assertion()),
            Rest::Ask(webpki) => {
                webpki
                    .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
                    .map_err(|error| {
                        match error {
                            // A self-signed certificate that is not the one on file: what matters is that it is unknown.
                            Error::InvalidCertificate(CertificateError::Other(_)) => {
                                CertificateError::UnknownIssuer.into()
                            }
                            error => error,
                        }
                    })
            }
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(
            message,
            cert,
            dss,
            &provider().signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(
            message,
            cert,
            dss,
            &provider().signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}

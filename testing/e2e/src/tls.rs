//! TLS as visitors and services speak it: rustls over blocking sockets.

use std::{
    fs, io,
    net::{SocketAddr, TcpStream},
    sync::Arc,
};

use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};

use crate::{Cert, http};

/// A visitor's TLS connection.
pub type TlsStream = StreamOwned<ClientConnection, TcpStream>;
/// A service's TLS connection.
pub type ServedTls = StreamOwned<ServerConnection, TcpStream>;

/// A visitor's configuration that believes `anchors` alone and offers `alpn`.
///
/// # Panics
/// When an anchor cannot be used.
#[must_use]
pub fn client_config(anchors: &[CertificateDer<'static>], alpn: &[&[u8]]) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for anchor in anchors {
        roots.add(anchor.clone()).expect("a trust anchor");
    }
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("protocol versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    Arc::new(config)
}

/// Connects and finishes the handshake.
///
/// # Errors
/// No connection, or what either side says against the other's TLS.
pub fn connect(
    address: SocketAddr,
    name: &str,
    config: Arc<ClientConfig>,
) -> io::Result<TlsStream> {
    let mut socket = http::connect(address)?;
    let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
    let mut tls = ClientConnection::new(config, name).map_err(io::Error::other)?;
    while tls.is_handshaking() {
        tls.complete_io(&mut socket)?;
    }
    Ok(StreamOwned::new(tls, socket))
}

/// A service's configuration with one certificate.
///
/// # Panics
/// When the files cannot be used.
#[must_use]
pub fn server_config(cert: &Cert) -> Arc<ServerConfig> {
    let chain = fs::read(cert.cert_file()).expect("the certificate's file");
    let chain = CertificateDer::pem_slice_iter(&chain)
        .collect::<Result<Vec<_>, _>>()
        .expect("certificates");
    let key = PrivateKeyDer::from_pem_file(cert.key_file()).expect("a key");
    let config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("protocol versions")
        .with_no_client_auth()
        .with_single_cert(chain, key);
    Arc::new(config.expect("a certificate with its key"))
}

/// Finishes the handshake on a service's socket.
///
/// # Errors
/// What either side says against the other's TLS.
pub fn accept(mut socket: TcpStream, config: Arc<ServerConfig>) -> io::Result<ServedTls> {
    let mut tls = ServerConnection::new(config).map_err(io::Error::other)?;
    while tls.is_handshaking() {
        tls.complete_io(&mut socket)?;
    }
    Ok(StreamOwned::new(tls, socket))
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

//! QUIC by quinn, one stream. The certificate is made for the run and handed over in a file, as its address would be.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use anyhow::Context;
use quinn::{
    ClientConfig, Endpoint, ServerConfig, TransportConfig, VarInt,
    congestion::{BbrConfig, CubicConfig},
    crypto::rustls::{QuicClientConfig, QuicServerConfig},
};
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer};

use super::{Reader, Writer};

/// Set by the lab: where the receiver leaves its certificate.
pub(crate) const CERTIFICATE: &str = "KCP_PATH_CERTIFICATE";
/// More than the path and its queue hold.
const WINDOW: u32 = 32 << 20;

pub(super) async fn accept(address: SocketAddr) -> anyhow::Result<Reader> {
    let key = rcgen::generate_simple_self_signed(vec!["path".to_owned()])?;
    std::fs::write(certificate()?, key.cert.der())?;
    let private = PrivatePkcs8KeyDer::from(key.signing_key.serialize_der());
    let tls = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![key.cert.der().clone()], private.into())?;
    let mut config = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls)?));
    config.transport_config(Arc::new(transport(false)));
    let endpoint = Endpoint::server(config, address)?;
    println!("ready");
    let incoming = endpoint.accept().await.context("the endpoint ended")?;
    let connection = incoming.await?;
    let stream = connection.accept_uni().await?;
    // Both must outlive this function: the process ends with the measurement.
    std::mem::forget((endpoint, connection));
    Ok(Box::new(stream))
}

pub(super) async fn dial(address: SocketAddr, bbr: bool) -> anyhow::Result<Writer> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from(std::fs::read(certificate()?)?))?;
    let tls = rustls::ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
    config.transport_config(Arc::new(transport(bbr)));
    let endpoint = Endpoint::client(([0, 0, 0, 0], 0).into())?;
    let connection = endpoint.connect_with(config, address, "path")?.await?;
    let stream = connection.open_uni().await?;
    std::mem::forget(endpoint);
    Ok(Writer {
        stream: Box::new(stream),
        counters: Box::new(move || {
            let path = connection.stats().path;
            (path.lost_packets, path.sent_packets)
        }),
    })
}

fn transport(bbr: bool) -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport.send_window(u64::from(WINDOW));
    transport.receive_window(VarInt::from_u32(WINDOW));
    transport.stream_receive_window(VarInt::from_u32(WINDOW));
    if bbr {
        transport.congestion_controller_factory(Arc::new(BbrConfig::default()));
    } else {
        transport.congestion_controller_factory(Arc::new(CubicConfig::default()));
    }
    transport
}

fn certificate() -> anyhow::Result<PathBuf> {
    Ok(std::env::var_os(CERTIFICATE)
        .with_context(|| format!("{CERTIFICATE} is not set"))?
        .into())
}

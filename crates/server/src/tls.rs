//! What a server shows and agrees on: certificates from files, and which protocols are spoken at which address.

use net::tls::{MinVersion, TlsAcceptor, TlsServerOptions, UnknownName};

use crate::{ingress, server::StartError};

/// For `tlsAddr`; with HTTP/2 for names whose requests are looked at one by one.
pub(crate) fn acceptor(
    config: &config::Server,
    http2: bool,
) -> Result<Option<TlsAcceptor>, StartError> {
    if config.listeners.tls.is_none() {
        return Ok(None);
    }
    // Where streams are copied untouched, what is agreed here must suit services that know HTTP/1 only.
    let alpn = http2
        .then(|| b"h2".to_vec())
        .into_iter()
        .chain([b"http/1.1".to_vec(), tunnel::ALPN.to_vec()]);
    let options = tls_options(config, alpn.collect())?;
    Ok(Some(TlsAcceptor::new(&options)?))
}

/// What is spoken at `quicAddr`: links, and HTTP/3 where visitors come to the same address.
pub(crate) fn quic_protocols(config: &config::Server) -> Vec<&'static [u8]> {
    let mut protocols = vec![tunnel::ALPN];
    if config.listeners.http3 && !ingress::has_http3_alone(config) {
        protocols.push(quic::ALPN_H3);
    }
    protocols
}

/// For an address of QUIC, where one is wanted.
pub(crate) fn quic_tls(
    config: &config::Server,
    wanted: bool,
    protocols: &[&[u8]],
) -> Result<Option<quic::ServerTls>, StartError> {
    if !wanted {
        return Ok(None);
    }
    let protocols = protocols.iter().map(|protocol| protocol.to_vec());
    let options = tls_options(config, protocols.collect())?;
    Ok(Some(quic::ServerTls::new(&options)?))
}

fn tls_options(
    config: &config::Server,
    alpn: Vec<Vec<u8>>,
) -> Result<TlsServerOptions, StartError> {
    let load = |files: &config::Certificate| {
        net::tls::load_certificates(&files.cert_file, &files.key_file)
    };
    Ok(TlsServerOptions {
        certificates: config
            .certificates
            .iter()
            .map(load)
            .collect::<Result<_, _>>()?,
        min_version: match config.tls_min_version {
            config::TlsVersion::V1_2 => MinVersion::Tls12,
            config::TlsVersion::V1_3 => MinVersion::Tls13,
        },
        alpn,
        unknown_name: UnknownName::ServeDefault,
        ..TlsServerOptions::default()
    })
}

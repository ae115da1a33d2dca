//! What the configuration of the moment comes to: keys, certificates, the proxy's site. A reload replaces it while the server runs.

use config::ListenerProtocol;
use net::tls::{TlsAcceptor, TlsClientOptions, TlsConnector};
use route::Scheme;

use crate::{
    auth::{AuthApi, Keys},
    forward, ingress,
    reload::certificates,
    server::StartError,
    tls::{acceptor, quic_protocols, quic_tls},
};

/// What another configuration replaces while the server runs.
pub(crate) struct Live {
    pub(crate) config: config::Server,
    pub(crate) keys: Keys,
    pub(crate) auth_api: Option<AuthApi>,
    pub(crate) tls: Option<TlsAcceptor>,
    /// Certificates and protocols at `quicAddr`.
    pub(crate) quic: Option<quic::ServerTls>,
    /// And at the address of `tlsAddr`, where that is another one and HTTP/3 is served.
    pub(crate) http3: Option<quic::ServerTls>,
    /// As `tls` with HTTP/2, for names whose requests are looked at one by one.
    pub(crate) tls_http2: Option<TlsAcceptor>,
    /// What the certificate files held.
    pub(crate) certificates: Vec<Vec<u8>>,
}

impl Live {
    pub(crate) fn new(config: config::Server) -> Result<Self, StartError> {
        let auth_api = match &config.auth_api {
            Some(url) => Some(AuthApi::new(
                url.clone(),
                TlsConnector::new(&TlsClientOptions::default())?,
            )),
            None => None,
        };
        Ok(Self {
            keys: Keys::new(&config)?,
            quic: quic_tls(
                &config,
                config.listeners.quic.is_some(),
                &quic_protocols(&config),
            )?,
            http3: quic_tls(&config, ingress::has_http3_alone(&config), &[quic::ALPN_H3])?,
            tls: acceptor(&config, false)?,
            tls_http2: acceptor(&config, true)?,
            certificates: certificates(&config),
            auth_api,
            config,
        })
    }

    /// The place of the proxy's listener on the address where visitors come with this scheme.
    pub(crate) fn shared_listener(&self, scheme: Scheme) -> Option<u16> {
        let tls = scheme == Scheme::Https;
        let listeners = &self.config.proxy.as_ref()?.listeners;
        let here = |listener: &config::ProxyListener| matches!(listener.protocol, ListenerProtocol::OfServer { tls: its } if its == tls);
        let place = listeners.iter().position(here)?;
        u16::try_from(place).ok()
    }
}

/// What the proxy of a server runs: its `proxy` section, and relay services.
pub(crate) fn proxy_options(
    config: &config::Server,
) -> Result<proxy::Options, proxy::ConfiguredError> {
    let mut options = match &config.proxy {
        Some(proxy) => proxy::options(proxy, None)?,
        None => proxy::Options {
            workers: None,
            listeners: Vec::new(),
            site: proxy::Site::default(),
            access_log: None,
        },
    };
    options.site.relay.route.timeouts = forward::http::timeouts(config);
    Ok(options)
}

/// The site alone, for a reload.
pub(crate) fn proxy_site(config: &config::Server) -> Result<proxy::Site, proxy::ConfiguredError> {
    let mut site = match &config.proxy {
        Some(proxy) => proxy::site(proxy)?,
        None => proxy::Site::default(),
    };
    site.relay.route.timeouts = forward::http::timeouts(config);
    Ok(site)
}

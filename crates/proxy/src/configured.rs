//! A checked configuration as a running proxy needs it: certificates read, connectors made, names put where they are used.

use std::sync::Arc;

use config::{CheckKind, ListenerProtocol, ProxyConfig, ServerAddress, UpstreamProtocol};
use net::tls::{
    ClientAuth, MinVersion, TlsAcceptor, TlsClientOptions, TlsConfigError, TlsConnector,
    TlsFileError, TlsServerOptions, Trust, UnknownName,
};
use route::Sticky;

use crate::{
    ingress::Protocol,
    log::{AccessLogSpec, Format},
    proxy::{Listener, Options},
    site::{
        Address, Check, KeepAlive, ProxyVersion, RelaySpec, ServerProtocol, Site, StreamTimes,
        UpstreamServer, UpstreamSpec,
    },
};

/// Why a checked configuration cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ConfiguredError {
    /// A certificate or key cannot be used.
    #[error("{0}")]
    Certificate(#[from] TlsFileError),
    /// TLS cannot be set up.
    #[error("{0}")]
    Tls(#[from] TlsConfigError),
    /// Something is asked for that this version does not do. Better no proxy than one that does less than was asked.
    #[error("{place}: {what} is not supported yet")]
    NotSupported {
        /// Where it stands.
        place: String,
        /// What it is.
        what: &'static str,
    },
}

/// The data plane's options for a configuration.
///
/// # Errors
/// [`ConfiguredError`].
pub fn options(config: &ProxyConfig, workers: Option<usize>) -> Result<Options, ConfiguredError> {
    let listeners = config
        .listeners
        .iter()
        .map(listener)
        .collect::<Result<_, _>>()?;
    Ok(Options {
        workers,
        listeners,
        site: site(config)?,
        access_log: config.access_log.as_ref().map(|log| AccessLogSpec {
            path: log.path.clone(),
            format: match log.format {
                config::AccessLogFormat::Combined => Format::Combined,
                config::AccessLogFormat::Json => Format::Json,
            },
            one_of: log.sample,
            buffer: log.buffer,
        }),
    })
}

/// The site alone, for a reload.
///
/// # Errors
/// [`ConfiguredError`].
pub fn site(config: &ProxyConfig) -> Result<Site, ConfiguredError> {
    let upstreams = config
        .upstreams
        .iter()
        .map(upstream)
        .collect::<Result<_, _>>()?;
    Ok(Site {
        routes: Arc::clone(&config.routes),
        streams: config.streams.clone(),
        stream_times: config
            .stream_timeouts
            .iter()
            .map(StreamTimes::from)
            .collect(),
        upstreams,
        forwarding: config.forwarding.clone(),
        client_certificates: config.listeners.iter().any(asks_for_certificates),
        via: config.via,
        relay: RelaySpec::default(),
    })
}

/// Whether a proxy that runs `old` can go over to `new` by a change of its site.
#[must_use]
pub fn same_listeners(old: &ProxyConfig, new: &ProxyConfig) -> bool {
    // What they hold has no order of its own that could differ.
    format!("{:?}", old.listeners) == format!("{:?}", new.listeners)
}

fn asks_for_certificates(listener: &config::ProxyListener) -> bool {
    matches!(&listener.protocol, ListenerProtocol::Https { tls, .. } if tls.client_ca.is_some())
}

fn listener(listener: &config::ProxyListener) -> Result<Listener, ConfiguredError> {
    let protocol = match &listener.protocol {
        ListenerProtocol::Http { http2 } => Protocol::Http { http2: *http2 },
        ListenerProtocol::OfServer { .. } => Protocol::OfServer,
        ListenerProtocol::Tcp => Protocol::Tcp,
        ListenerProtocol::Tls => Protocol::Tls,
        ListenerProtocol::Https { http2, tls, .. } => {
            let certificates = tls
                .certificates
                .iter()
                .map(|files| net::tls::load_certificates(&files.cert_file, &files.key_file))
                .collect::<Result<_, _>>()?;
            let mut alpn = Vec::new();
            if *http2 {
                alpn.push(b"h2".to_vec());
            }
            alpn.push(b"http/1.1".to_vec());
            Protocol::Https(TlsAcceptor::new(&TlsServerOptions {
                certificates,
                min_version: match tls.min_version {
                    config::TlsVersion::V1_2 => MinVersion::Tls12,
                    config::TlsVersion::V1_3 => MinVersion::Tls13,
                },
                alpn,
                unknown_name: UnknownName::ServeDefault,
                client_auth: tls.client_ca.as_ref().map(|authorities| ClientAuth {
                    authorities: authorities.clone(),
                    optional: tls.client_cert_optional,
                }),
            })?)
        }
    };
    Ok(Listener {
        address: listener.addr,
        protocol,
        proxy_from: listener.proxy_protocol.clone(),
        http3: matches!(
            listener.protocol,
            ListenerProtocol::Https { http3: true, .. }
        ),
    })
}

fn upstream(one: &config::Upstream) -> Result<UpstreamSpec, ConfiguredError> {
    let place = || format!("upstream {}", one.name);
    let protocol = match one.protocol {
        UpstreamProtocol::Http1 => ServerProtocol::Http1,
        UpstreamProtocol::H2c | UpstreamProtocol::H2 => ServerProtocol::Http2,
        UpstreamProtocol::Auto => ServerProtocol::Agreed,
    };
    if protocol != ServerProtocol::Http1 && one.proxy_protocol.is_some() {
        return Err(unsupported(place(), "a PROXY header before HTTP/2"));
    }
    let alpn: &[&[u8]] = match protocol {
        ServerProtocol::Http1 => &[],
        ServerProtocol::Http2 => &[b"h2"],
        ServerProtocol::Agreed => &[b"h2", b"http/1.1"],
    };
    let connector = match &one.tls {
        None => None,
        Some(tls) => Some(TlsConnector::new(&TlsClientOptions {
            trust: match (&tls.ca, tls.verify) {
                (_, false) => Trust::InsecureNoVerification,
                (Some(file), true) => Trust::OnlyFile(file.clone()),
                (None, true) => Trust::PublicAuthorities,
            },
            certificate: match &tls.certificate {
                Some(own) => Some(net::tls::load_certificates(&own.cert_file, &own.key_file)?),
                None => None,
            },
            alpn: alpn.iter().map(|name| name.to_vec()).collect(),
            ..TlsClientOptions::default()
        })?),
    };
    let default_port = if connector.is_some() { 443 } else { 80 };
    let servers = one.servers.iter().map(|server| {
        let (address, authority, host) = match &server.address {
            ServerAddress::Host { host, port } => {
                let shown = if host.contains(':') {
                    format!("[{host}]")
                } else {
                    host.clone()
                };
                let authority = if *port == default_port {
                    shown
                } else {
                    format!("{shown}:{port}")
                };
                (
                    Address::Tcp(host.as_str().into(), *port),
                    authority,
                    host.clone(),
                )
            }
            ServerAddress::Unix(path) => (
                Address::Unix(path.clone()),
                "localhost".to_owned(),
                "localhost".to_owned(),
            ),
        };
        let name = one.tls.as_ref().and_then(|tls| tls.server_name.as_ref());
        let name = name.map_or(host, ToString::to_string);
        UpstreamServer {
            spec: server.spec.clone(),
            address,
            authority: authority.into(),
            tls: connector.clone().map(|connector| (connector, name.into())),
            send_proxy: one.proxy_protocol.map(|version| match version {
                config::ProxyProtocol::V1 => ProxyVersion::V1,
                config::ProxyProtocol::V2 => ProxyVersion::V2,
            }),
        }
    });
    let check = match &one.check {
        None => Check::Tcp,
        Some(CheckKind::Tcp { .. }) => Check::Tcp,
        Some(CheckKind::Http {
            path, host, status, ..
        }) => Check::Http {
            path: path.clone(),
            host: host.clone().unwrap_or_default(),
            status: status.clone(),
        },
    };
    Ok(UpstreamSpec {
        name: one.name.clone(),
        servers: servers.collect(),
        policy: one.policy,
        hash_key: matches!(one.policy, route::Policy::Hash { .. }).then(|| one.hash_key.clone()),
        sticky: one.sticky.as_ref().map(|sticky| {
            let key = match &sticky.secret {
                Some(secret) => Sticky::new(secret.expose().as_bytes()),
                None => Sticky::new(one.name.as_bytes()),
            };
            (cookie(sticky), key)
        }),
        slow_start: one.slow_start,
        health: one.health,
        check,
        check_port: match &one.check {
            Some(CheckKind::Tcp { port } | CheckKind::Http { port, .. }) => *port,
            None => None,
        },
        breaker: one.breaker,
        retry: one.retries,
        keep_alive: KeepAlive {
            max_idle: usize::try_from(one.keep_alive.connections).unwrap_or(usize::MAX),
            idle: one.keep_alive.idle,
            max_requests: one.keep_alive.requests,
            ..KeepAlive::default()
        },
        protocol,
    })
}

fn cookie(sticky: &config::StickyCookie) -> crate::site::StickyCookie {
    crate::site::StickyCookie {
        name: sticky.name.clone(),
        max_age: sticky.max_age,
    }
}

fn unsupported(place: impl Into<String>, what: &'static str) -> ConfiguredError {
    ConfiguredError::NotSupported {
        place: place.into(),
        what,
    }
}

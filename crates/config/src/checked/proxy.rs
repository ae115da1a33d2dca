//! The checked configuration of a reverse proxy. Routes, policies and limits are those of the crate `route`: what is checked here is what runs.

use std::{fmt, net::SocketAddr, num::NonZeroUsize, path::PathBuf, sync::Arc, time::Duration};

use route::{
    BreakerSpec, Forwarding, HashKey, HealthSpec, IpSet, Policy, RetryBudgetSpec, Routes,
    ServerSpec, StreamRoutes, Timeouts,
};

use super::{ApiListener, Certificate, Content, Log, ProxyProtocol, Secret, TlsVersion, Warning};

/// Everything a `gt proxy` is told by its user.
#[derive(Debug, Clone)]
pub struct Proxy {
    /// What goes where.
    pub proxy: ProxyConfig,
    /// The API.
    pub api: Option<ApiListener>,
    /// Data threads; `None` = one per core.
    pub workers: Option<NonZeroUsize>,
    /// The log.
    pub log: Log,
    /// What the user should know.
    pub warnings: Vec<Warning>,
}

/// The `proxy` section.
#[derive(Debug, Clone)]
pub struct ProxyConfig {
    /// Where visitors come in; at least one. Their order is the `listener` of a [`route::RequestView`].
    pub listeners: Vec<ProxyListener>,
    /// Groups of servers; their order is the [`route::UpstreamId`].
    pub upstreams: Vec<Upstream>,
    /// What goes where, on http and https listeners.
    pub routes: Arc<Routes>,
    /// What goes where, on tcp and tls listeners.
    pub streams: StreamRoutes,
    /// Times of those, in the order of the listeners: `header`, `connect` and `tunnel_idle` count.
    pub stream_timeouts: Vec<Timeouts>,
    /// Forwarding fields and trusted proxies.
    pub forwarding: Forwarding,
    /// Write Via.
    pub via: bool,
    /// Where exchanges are logged.
    pub access_log: Option<AccessLog>,
}

/// Where and how exchanges are logged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessLog {
    /// The file.
    pub path: PathBuf,
    /// How lines look.
    pub format: AccessLogFormat,
    /// Of so many exchanges one is logged; at least 1.
    pub sample: u32,
    /// Bytes of lines that may wait for the disk.
    pub buffer: u64,
}

/// How lines of an access log look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AccessLogFormat {
    /// As Apache's and nginx's `combined`, with more behind it.
    #[default]
    Combined,
    /// One JSON object per line.
    Json,
}

/// One place where visitors come in.
#[derive(Debug, Clone)]
pub struct ProxyListener {
    /// Its name in routes and logs.
    pub name: Box<str>,
    /// Where it listens.
    pub addr: SocketAddr,
    /// What visitors speak.
    pub protocol: ListenerProtocol,
    /// From these peers a PROXY header is required, from others none is looked for; empty = nobody.
    pub proxy_protocol: IpSet,
}

/// What visitors of a listener speak.
#[derive(Debug, Clone)]
pub enum ListenerProtocol {
    /// HTTP without TLS.
    Http {
        /// HTTP/2 by prior knowledge too.
        http2: bool,
    },
    /// HTTP with TLS.
    Https {
        /// HTTP/2 by ALPN too.
        http2: bool,
        /// HTTP/3 on the UDP port of the same number too.
        http3: bool,
        /// How TLS is ended here.
        tls: ListenerTls,
    },
    /// HTTP on an address of the server itself (`addr`, or `tlsAddr` with its TLS): visitors whose host a route names, and those for whom no
    /// relay service answers.
    OfServer {
        /// It is `tlsAddr`.
        tls: bool,
    },
    /// Anything; bytes are copied.
    Tcp,
    /// TLS that is passed through, routed by server name.
    Tls,
}

impl ListenerProtocol {
    /// Requests are parsed, and `routes` counts; else `streams` does.
    pub fn is_http(&self) -> bool {
        matches!(
            self,
            Self::Http { .. } | Self::Https { .. } | Self::OfServer { .. }
        )
    }
}

/// How TLS is ended at a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerTls {
    /// Certificates, chosen by server name; at least one, and the first is the default.
    pub certificates: Vec<Certificate>,
    /// Oldest version that is accepted.
    pub min_version: TlsVersion,
    /// Authorities of visitors' certificates, PEM; `None` = none is asked for.
    pub client_ca: Option<PathBuf>,
    /// What all these files held.
    pub content: Content,
    /// Visitors without a certificate may come too.
    pub client_cert_optional: bool,
}

/// A group of servers.
#[derive(Debug, Clone)]
pub struct Upstream {
    /// Its name in logs and metrics.
    pub name: Box<str>,
    /// Its servers; at least one, and at least one that is no backup. Their order is the [`route::ServerIndex`].
    pub servers: Vec<UpstreamServer>,
    /// How a server is chosen.
    pub policy: Policy,
    /// What [`Policy::Hash`] hashes.
    pub hash_key: HashKey,
    /// Visitors stay by a cookie.
    pub sticky: Option<StickyCookie>,
    /// How long a server's share grows after it came back; zero = not at all.
    pub slow_start: Duration,
    /// What is spoken with its servers.
    pub protocol: UpstreamProtocol,
    /// TLS to its servers.
    pub tls: Option<UpstreamTls>,
    /// Tells the servers the visitor's address with this header.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// Connections that are kept.
    pub keep_alive: KeepAlive,
    /// When a server is fit.
    pub health: HealthSpec,
    /// How a server is checked; set when `health.active` is.
    pub check: Option<CheckKind>,
    /// How much it may be asked.
    pub breaker: BreakerSpec,
    /// How much may be tried again.
    pub retries: RetryBudgetSpec,
}

impl Upstream {
    /// A group with defaults.
    pub fn new(name: &str, servers: Vec<UpstreamServer>) -> Self {
        Self {
            name: name.into(),
            servers,
            policy: Policy::default(),
            hash_key: HashKey::Ip,
            sticky: None,
            slow_start: Duration::ZERO,
            protocol: UpstreamProtocol::Http1,
            tls: None,
            proxy_protocol: None,
            keep_alive: KeepAlive::default(),
            health: HealthSpec {
                active: None,
                passive: Some(route::EjectorSpec::default()),
            },
            check: None,
            breaker: BreakerSpec::default(),
            retries: RetryBudgetSpec::default(),
        }
    }

    /// The servers as [`route::Balancer::new`] wants them.
    pub fn specs(&self) -> Vec<ServerSpec> {
        self.servers
            .iter()
            .map(|server| server.spec.clone())
            .collect()
    }
}

/// One server of an upstream.
#[derive(Debug, Clone)]
pub struct UpstreamServer {
    /// Where it is.
    pub address: ServerAddress,
    /// Its share, and whether it is used; the name is the address.
    pub spec: ServerSpec,
}

impl UpstreamServer {
    /// A server of weight 1.
    pub fn new(address: ServerAddress) -> Self {
        let spec = ServerSpec::new(&address.to_string());
        Self { address, spec }
    }
}

/// Where a server is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ServerAddress {
    /// A name or an IP address (without brackets), and a port.
    Host {
        /// The name or address.
        host: String,
        /// The port.
        port: u16,
    },
    /// A Unix socket.
    Unix(PathBuf),
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Host { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// What is spoken with a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpstreamProtocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2 without TLS, by prior knowledge.
    H2c,
    /// HTTP/2 with TLS; [`Upstream::tls`] is set.
    H2,
    /// With TLS: HTTP/2 if the server agrees (ALPN), else HTTP/1.1; [`Upstream::tls`] is set.
    Auto,
}

/// TLS to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamTls {
    /// The certificate is verified.
    pub verify: bool,
    /// Authorities instead of the usual ones, PEM.
    pub ca: Option<PathBuf>,
    /// The name in the certificate, and in SNI; `None` = the server's host.
    pub server_name: Option<super::HostName>,
    /// What the proxy shows of itself.
    pub certificate: Option<Certificate>,
}

impl Default for UpstreamTls {
    fn default() -> Self {
        Self {
            verify: true,
            ca: None,
            server_name: None,
            certificate: None,
        }
    }
}

/// Connections to one server that are kept for later requests, per worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepAlive {
    /// Idle ones at most; 0 = none is kept.
    pub connections: u32,
    /// How long one is kept without a request.
    pub idle: Duration,
    /// Requests on one connection.
    pub requests: u32,
}

impl Default for KeepAlive {
    fn default() -> Self {
        Self {
            connections: 256,
            idle: Duration::from_secs(30),
            requests: 1_000_000,
        }
    }
}

/// How a server is checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckKind {
    /// It accepts a connection (with TLS where the upstream has it).
    Tcp {
        /// Another port than the server's own.
        port: Option<u16>,
    },
    /// It answers a GET with a status of these.
    Http {
        /// Another port than the server's own.
        port: Option<u16>,
        /// The path.
        path: Box<str>,
        /// What Host says; `None` = the server's address.
        host: Option<Box<str>>,
        /// Good statuses, as ranges.
        status: Vec<std::ops::RangeInclusive<u16>>,
    },
}

/// A cookie that keeps visitors on a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StickyCookie {
    /// Its name.
    pub name: Box<str>,
    /// Key of its value; `None` = the upstream's name is, which anybody can know.
    pub secret: Option<Secret>,
    /// How long browsers keep it; `None` = until they are closed.
    pub max_age: Option<Duration>,
}

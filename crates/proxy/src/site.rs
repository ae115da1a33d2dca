//! What a proxy does, as data: routes, upstreams and what holds for all of them. Immutable; a reload makes a new one.

use std::{ops::RangeInclusive, path::PathBuf, sync::Arc, time::Duration};

use net::tls::TlsConnector;
use route::{
    Action, BreakerSpec, Forwarding, HashKey, HealthSpec, Policy, RetryBudgetSpec, Route, RouteId,
    Routes, ServerSpec, ServiceName, Sticky, StreamRoutes, Timeouts, ToUpstream, UpstreamId,
};

/// Everything that workers need to know of the configuration.
#[derive(Debug, Default)]
pub struct Site {
    /// Which request goes where.
    pub routes: Arc<Routes>,
    /// Which connection goes where, on ports that carry no HTTP.
    pub streams: StreamRoutes,
    /// The times of those, by listener; the defaults where there are none.
    pub stream_times: Vec<StreamTimes>,
    /// Upstreams by their [`route::UpstreamId`].
    pub upstreams: Vec<UpstreamSpec>,
    /// Who the visitor is, and how upstreams are told.
    pub forwarding: Forwarding,
    /// Some listener asks visitors for certificates: fields that tell of them are the proxy's own.
    pub client_certificates: bool,
    /// Write Via, both ways.
    pub via: bool,
    /// How requests go to relayed services that no route names.
    pub relay: RelaySpec,
}

impl Site {
    /// Whether a route is for hosts of some name, and not for all.
    pub(crate) fn names_host(&self, route: RouteId) -> bool {
        let rule = self.routes.rule(route);
        rule.is_some_and(|rule| rule.host.exact().is_some() || rule.host.suffix().is_some())
    }

    /// The upstream at a place; that of relayed services at any other.
    pub(crate) fn upstream(&self, index: usize) -> &UpstreamSpec {
        self.upstreams.get(index).unwrap_or(&self.relay.upstream)
    }
}

/// How requests go to relayed services.
#[derive(Debug)]
pub struct RelaySpec {
    /// Limits and times of those that no route names.
    pub route: Route,
    pub(crate) to: ToUpstream,
    /// Stands in for a group of servers: one, always fit, without a bound of its own. Bounds are the clients'.
    pub(crate) upstream: UpstreamSpec,
}

impl Default for RelaySpec {
    fn default() -> Self {
        let server = UpstreamServer {
            spec: ServerSpec::new("relay"),
            address: Address::Unix(PathBuf::new()),
            authority: "localhost".into(),
            tls: None,
            send_proxy: None,
        };
        Self {
            route: Route::new("relay", Action::Service(ServiceName("".into()))),
            to: ToUpstream::new(UpstreamId(u32::MAX)),
            upstream: UpstreamSpec {
                name: "relay".into(),
                servers: vec![server],
                policy: Policy::default(),
                hash_key: None,
                sticky: None,
                slow_start: Duration::ZERO,
                health: HealthSpec::default(),
                check: Check::default(),
                check_port: None,
                breaker: BreakerSpec {
                    max_active: u32::MAX,
                    ..BreakerSpec::default()
                },
                // Only a stream that had waited is tried again, and once: see `request`.
                retry: RetryBudgetSpec {
                    percent: 100,
                    ..RetryBudgetSpec::default()
                },
                keep_alive: KeepAlive::default(),
                protocol: ServerProtocol::Http1,
            },
        }
    }
}

/// Times of connections that carry no HTTP, or none that is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamTimes {
    /// For a visitor to say the name of its server.
    pub hello: Duration,
    /// To connect to a server.
    pub connect: Duration,
    /// Silence in both directions.
    pub idle: Duration,
}

impl Default for StreamTimes {
    fn default() -> Self {
        let times = Timeouts::default();
        Self::from(&times)
    }
}

impl From<&Timeouts> for StreamTimes {
    fn from(times: &Timeouts) -> Self {
        Self {
            hello: times.header,
            connect: times.connect,
            idle: times.tunnel_idle,
        }
    }
}

/// A group of servers that do the same.
#[derive(Debug)]
pub struct UpstreamSpec {
    /// In logs and metrics.
    pub name: Box<str>,
    /// The servers.
    pub servers: Vec<UpstreamServer>,
    /// How one is chosen.
    pub policy: Policy,
    /// What a request is hashed by, for [`Policy::Hash`].
    pub hash_key: Option<HashKey>,
    /// The cookie that keeps a visitor on a server, and what makes its values.
    pub sticky: Option<(StickyCookie, Sticky)>,
    /// A server that came up gets its full share after so long.
    pub slow_start: Duration,
    /// What is watched.
    pub health: HealthSpec,
    /// What an active check asks.
    pub check: Check,
    /// Where it asks, if that is not the server's own port.
    pub check_port: Option<u16>,
    /// How many requests at one time.
    pub breaker: BreakerSpec,
    /// How many of them may be tried again.
    pub retry: RetryBudgetSpec,
    /// Connections between requests.
    pub keep_alive: KeepAlive,
    /// What is spoken with the servers.
    pub protocol: ServerProtocol,
}

/// What is spoken with servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServerProtocol {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2; over TLS if the servers have it, else with prior knowledge.
    Http2,
    /// What is agreed on in TLS (ALPN): HTTP/2 if the server can, else HTTP/1.1.
    Agreed,
}

/// A cookie that keeps a visitor on a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StickyCookie {
    /// Its name.
    pub name: Box<str>,
    /// How long browsers keep it; `None` = until they are closed.
    pub max_age: Option<Duration>,
}

/// One server.
#[derive(Debug)]
pub struct UpstreamServer {
    /// Its part in balancing; the name is for logs.
    pub spec: ServerSpec,
    /// Where it is.
    pub address: Address,
    /// Host as it is called, with port if that is not the scheme's own: for `Host` and checks.
    pub authority: Box<str>,
    /// How TLS is spoken to it, and the name its certificate must have.
    pub tls: Option<(TlsConnector, Box<str>)>,
    /// Tell it who the visitor is before the first byte. Such connections carry one visitor's requests only.
    pub send_proxy: Option<ProxyVersion>,
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A name or address, resolved again when the resolver's answer is older than [`Address::RESOLVED_FOR`].
    Tcp(Box<str>, u16),
    /// A Unix socket.
    Unix(PathBuf),
}

impl Address {
    /// How long addresses of a name are used. The system's resolver does not tell their TTL.
    pub const RESOLVED_FOR: Duration = Duration::from_secs(10);
}

/// Versions of the PROXY protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyVersion {
    /// Text.
    V1,
    /// Binary.
    V2,
}

/// What an active check does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Check {
    /// Connects.
    #[default]
    Tcp,
    /// Sends GET for this path and wants a status from this range.
    Http {
        /// The path.
        path: Box<str>,
        /// The value of Host; the server's own if empty.
        host: Box<str>,
        /// Good statuses.
        status: Vec<RangeInclusive<u16>>,
    },
}

/// Connections to servers that wait for the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// For one server and worker.
    pub max_idle: usize,
    /// Closed after so long without a request. Should be less than the server's own time.
    pub idle: Duration,
    /// Requests on one connection.
    pub max_requests: u32,
    /// Where requests share a connection: how long they wait behind one that gets no answer, or whose visitor does not take it. Then they are sent
    /// again elsewhere, and nobody else is put there meanwhile.
    pub behind: Duration,
}

impl Default for KeepAlive {
    /// 512 connections per server and worker, 30 s, a million requests, half a second behind another.
    fn default() -> Self {
        Self {
            max_idle: 512,
            idle: Duration::from_secs(30),
            max_requests: 1_000_000,
            behind: Duration::from_millis(500),
        }
    }
}

/// A site that workers share.
pub(crate) type SharedSite = Arc<Site>;

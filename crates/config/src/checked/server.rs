//! The checked configuration of one server.

use std::{
    collections::HashMap,
    net::SocketAddr,
    num::{NonZeroU64, NonZeroUsize},
    ops::RangeInclusive,
    path::PathBuf,
    time::Duration,
};

use regex::Regex;
use url::Url;

use super::{Content, HostName, HostPrefix, Id, Kcp, Log, Secret, UdpFec, Warning};

/// Everything a server is told by its user.
#[derive(Debug, Clone)]
pub struct Server {
    /// Where to listen; at least one of `plain`, `tls`, `sni`, `kcp`, `quic` is set.
    pub listeners: Listeners,
    /// Certificates for `listeners.tls`; the first is the default. Not empty when `listeners.tls` is set.
    pub certificates: Vec<Certificate>,
    /// Oldest TLS version that is accepted.
    pub tls_min_version: TlsVersion,
    /// Clients that may come, with what each may do (the server's defaults already filled in).
    pub users: HashMap<Id, User>,
    /// Accept ids that are not in `users`, with any secret. Limits for them: `defaults`.
    pub allow_any_client: bool,
    /// Asks this service about ids that are not in `users`.
    pub auth_api: Option<Url>,
    /// What clients may do that `users` does not describe.
    pub defaults: Limits,
    /// [`User::load_balance`] of clients that `users` does not describe.
    pub load_balance: bool,
    /// The request header whose value is routed by, in lower case. Default `host`.
    pub http_mux_header: String,
    /// How long to wait for whom.
    pub timeouts: ServerTimeouts,
    /// Failed authentications and what they cost.
    pub throttle: Throttle,
    /// Connections that have not shown yet what they are.
    pub pending: Pending,
    /// Data threads; `None` = one per core.
    pub workers: Option<NonZeroUsize>,
    /// How KCP links work.
    pub kcp: Kcp,
    /// BBR instead of CUBIC on QUIC links (`bbr`).
    pub bbr: bool,
    /// Parity for datagrams that this end sends on QUIC links (`udpFEC`).
    pub udp_fec: Option<UdpFec>,
    /// The log.
    pub log: Log,
    /// Host prefix under which the status page is shown; `None` = nowhere.
    pub status_prefix: Option<HostPrefix>,
    /// The reverse proxy of the same process.
    pub proxy: Option<super::ProxyConfig>,
    /// What the user should know.
    pub warnings: Vec<Warning>,
}

impl Default for Server {
    /// A server that listens nowhere and knows nobody: the base for struct updates.
    fn default() -> Self {
        Self {
            listeners: Listeners::default(),
            certificates: Vec::new(),
            tls_min_version: TlsVersion::V1_2,
            users: HashMap::new(),
            allow_any_client: false,
            auth_api: None,
            defaults: Limits::default(),
            load_balance: false,
            http_mux_header: "host".into(),
            timeouts: ServerTimeouts::default(),
            throttle: Throttle::default(),
            pending: Pending::default(),
            workers: None,
            kcp: Kcp::default(),
            bbr: false,
            udp_fec: None,
            log: Log::default(),
            status_prefix: None,
            proxy: None,
            warnings: Vec::new(),
        }
    }
}

/// Where a server listens.
#[derive(Debug, Clone, Default)]
pub struct Listeners {
    /// Plain HTTP visitors and `tcp://`, `ws://` links (`addr`).
    pub plain: Option<SocketAddr>,
    /// TLS terminated here: HTTPS visitors and `tls://`, `wss://` links (`tlsAddr`).
    pub tls: Option<SocketAddr>,
    /// TLS passed through by server name, never decrypted (`sniAddr`).
    pub sni: Option<SocketAddr>,
    /// KCP links, over UDP (`kcpAddr`).
    pub kcp: Option<SocketAddr>,
    /// QUIC links, over UDP (`quicAddr`).
    pub quic: Option<SocketAddr>,
    /// HTTP/3 visitors, over UDP at the address of `tls`, which is there then; where `quic` is the same address, links and visitors
    /// share it (`http3`).
    pub http3: bool,
    /// The API (`apiAddr`).
    pub api: Option<ApiListener>,
}

/// The API's listener.
#[derive(Debug, Clone)]
pub struct ApiListener {
    /// Where it listens; a bare port means the loopback address here.
    pub addr: SocketAddr,
    /// TLS for it (`apiCertFile`, `apiKeyFile`).
    pub certificate: Option<Certificate>,
    /// What its files held.
    pub content: Content,
    /// What whoever asks must know (`apiPassword`); `None` = nothing.
    pub password: Option<Secret>,
    /// Names it answers to, besides those of this machine's loopback interface and IP addresses (`apiHosts`).
    pub hosts: Vec<HostName>,
}

impl ApiListener {
    /// A listener without TLS, password and further names.
    #[must_use]
    pub fn new(addr: SocketAddr) -> Self {
        Self {
            addr,
            certificate: None,
            content: Content::default(),
            password: None,
            hosts: Vec::new(),
        }
    }
}

/// A certificate chain and its key, as paths of PEM files (relative ones are already joined to the file's folder).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// The chain, leaf first.
    pub cert_file: PathBuf,
    /// The private key.
    pub key_file: PathBuf,
}

/// TLS versions gt speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// RFC 5246.
    V1_2,
    /// RFC 8446.
    V1_3,
}

/// One client that may come.
#[derive(Debug, Clone)]
pub struct User {
    /// What it proves to know.
    pub secret: Secret,
    /// What it may do.
    pub limits: Limits,
    /// Two sessions with this id both serve; otherwise the newer is refused.
    pub load_balance: bool,
}

/// What one client may do.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Ports its TCP and UDP services may use; empty = none. No range begins at 0.
    pub tcp_ranges: Vec<RangeInclusive<u16>>,
    /// TCP and UDP ports it may hold at one time. Default 0 = as many as the ranges have.
    pub tcp_number: u16,
    /// Host prefixes and names it may hold; 0 = no limit.
    pub host_number: u32,
    /// A prefix or name it claims must match one of these, anywhere unless the expression is anchored; empty = any. Its own
    /// id is always allowed.
    pub host_regex: Vec<Regex>,
    /// Every prefix it claims gets `ID-` put before it, so that users cannot take each other's names.
    pub host_with_id: bool,
    /// Bytes per second, for each direction; `None` = not limited.
    pub speed: Option<NonZeroU64>,
    /// Links it may hold. 1 to 1000, default 10.
    pub connections: u16,
    /// Streams (visitors) it may hold at one time. Default 65536.
    pub streams: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            tcp_ranges: Vec::new(),
            tcp_number: 0,
            host_number: 0,
            host_regex: Vec::new(),
            host_with_id: false,
            speed: None,
            connections: 10,
            streams: 65_536,
        }
    }
}

/// How long a server waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerTimeouts {
    /// From accepting a link to the end of its handshake, TLS included. Default 10 s.
    pub handshake: Duration,
    /// From accepting a visitor to the end of its first header block or ClientHello. Default 10 s.
    pub header: Duration,
    /// Silent visitor connections.
    pub idle: IdleTimeout,
}

impl Default for ServerTimeouts {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(10),
            header: Duration::from_secs(10),
            idle: IdleTimeout::default(),
        }
    }
}

/// When a silent connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdleTimeout {
    /// Time without a byte; `None` = never (`timeout: 0`). Default 90 s.
    pub after: Option<Duration>,
    /// `false`: both directions must be silent; `true`: one silent direction is enough (`timeoutOnUnidirectionalTraffic`).
    pub one_way: bool,
}

impl Default for IdleTimeout {
    fn default() -> Self {
        Self {
            after: Some(Duration::from_secs(90)),
            one_way: false,
        }
    }
}

/// What failed authentications cost an address or an id (`reconnectTimes`, `reconnectDuration`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Throttle {
    /// Failures before it is shut out; 0 = never shut out. Default 3.
    pub failures: u32,
    /// How long it is shut out. Default 5 min.
    pub block: Duration,
}

impl Default for Throttle {
    fn default() -> Self {
        Self {
            failures: 3,
            block: Duration::from_secs(300),
        }
    }
}

/// How many connections may be there that have not shown yet what they are: no first request, no ClientHello, no proof of a client
/// (`pendingConnections`, `pendingPerAddress`). Ports of TCP services are no part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pending {
    /// In all; 0 = no limit. Default 16384; half of the files that the process may open is the most in any case.
    pub total: u32,
    /// Of one address (IPv6: one /64); 0 = no limit. Default 1024.
    pub per_address: u32,
}

impl Default for Pending {
    fn default() -> Self {
        Self {
            total: 16_384,
            per_address: 1024,
        }
    }
}

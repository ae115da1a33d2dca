//! The checked configuration of one client.

use std::{
    fmt,
    num::{NonZeroU64, NonZeroUsize},
    path::PathBuf,
    time::Duration,
};

use ipnet::IpNet;
use url::Url;

use super::{
    ApiListener, CheckKind, Content, HostName, HostPrefix, Id, Kcp, Log, Secret, UdpFec, Warning,
};
use route::{ActiveCheckSpec, PasswordHash};

/// Everything a client is told by its user.
#[derive(Debug, Clone)]
pub struct Client {
    /// Who it is.
    pub id: Id,
    /// What it and the server know.
    pub secret: Secret,
    /// Nobody chose the secret: it was made for this client, so no server is expected to know it.
    pub secret_generated: bool,
    /// Servers in order of preference; not empty unless `remote_api` is set.
    pub remotes: Vec<Remote>,
    /// The remotes are ways to one server: the best is found out and kept, instead of the first that works (`remoteChoice: best`, or an
    /// `auto://` remote).
    pub choose: bool,
    /// A GET of this address returns the server's address.
    pub remote_api: Option<Url>,
    /// Which certificates of `tls://`, `wss://` and `quic://` servers it believes.
    pub trust: Trust,
    /// Links it keeps to one server, 1 to 64, as far as the server allows; `None` = as many as the server asks for.
    pub links: Option<u16>,
    /// Links it keeps at least, where the server asks for fewer. Default 1; 0 counts as 1; at most `links`.
    pub idle_links: u16,
    /// A link that is silent for this long is dead; also the time to connect. Default 45 s.
    pub timeout: Duration,
    /// First pause before connecting again; later ones grow, with jitter. Default 5 s.
    pub reconnect_delay: Duration,
    /// What it makes reachable; at most 1024.
    pub services: Vec<Service>,
    /// Data threads; `None` = one.
    pub workers: Option<NonZeroUsize>,
    /// How `kcp://` links work.
    pub kcp: Kcp,
    /// BBR instead of CUBIC on `quic://` links (`bbr`).
    pub bbr: bool,
    /// Parity for datagrams that this end sends on QUIC links (`udpFEC`).
    pub udp_fec: Option<UdpFec>,
    /// Local status API (`apiAddr`); a bare port means the loopback address.
    pub api: Option<ApiListener>,
    /// The log.
    pub log: Log,
    /// What the user should know.
    pub warnings: Vec<Warning>,
}

impl Client {
    /// A client with the defaults, no server and no service.
    pub fn new(id: Id, secret: Secret) -> Self {
        Self {
            id,
            secret,
            secret_generated: false,
            remotes: Vec::new(),
            choose: false,
            remote_api: None,
            trust: Trust::default(),
            links: None,
            idle_links: 1,
            timeout: Duration::from_secs(45),
            reconnect_delay: Duration::from_secs(5),
            services: Vec::new(),
            workers: None,
            kcp: Kcp::default(),
            bbr: false,
            udp_fec: None,
            api: None,
            log: Log::default(),
            warnings: Vec::new(),
        }
    }
}

/// A server's address: `SCHEME://HOST[:PORT][/PATH]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Remote {
    /// Transport.
    pub scheme: Scheme,
    /// Host name or IP address; IPv6 without brackets.
    pub host: String,
    /// Port; the scheme's default where the address names none (80 for tcp and ws, 443 for tls, wss and quic, 29900 for kcp).
    pub port: u16,
    /// Path of a WebSocket, beginning with `/`; `/` for the others.
    pub path: String,
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (open, close) = if self.host.contains(':') {
            ("[", "]")
        } else {
            ("", "")
        };
        write!(
            f,
            "{}://{open}{}{close}:{}",
            self.scheme.as_str(),
            self.host,
            self.port
        )?;
        if self.path != "/" {
            f.write_str(&self.path)?;
        }
        Ok(())
    }
}

/// Transports of a link that this build has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Bare TCP, for trusted networks.
    Tcp,
    /// TLS over TCP.
    Tls,
    /// WebSocket.
    Ws,
    /// WebSocket over TLS.
    Wss,
    /// KCP over UDP, encrypted by itself.
    Kcp,
    /// QUIC.
    Quic,
}

impl Scheme {
    /// The name in an address.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Tls => "tls",
            Self::Ws => "ws",
            Self::Wss => "wss",
            Self::Kcp => "kcp",
            Self::Quic => "quic",
        }
    }

    /// The link is encrypted by TLS.
    pub fn is_encrypted(self) -> bool {
        matches!(self, Self::Tls | Self::Wss | Self::Quic)
    }
}

/// Which server certificates a client believes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trust {
    /// Believe only what this PEM file holds or has signed (`remoteCert`); `None` = the Mozilla roots.
    pub cert_file: Option<PathBuf>,
    /// What that file held.
    pub content: Content,
    /// Believe any certificate (`remoteCertInsecure`); the secret still proves the server.
    pub insecure: bool,
}

/// One thing a client makes reachable. It has a host prefix, a host, a TCP port or a UDP port, or several of them.
#[derive(Debug, Clone)]
pub struct Service {
    /// Name in logs and in the server's answers: 1 to 64 bytes, unique in the client.
    pub name: String,
    /// Visitors whose host begins with this label.
    pub host_prefix: Option<HostPrefix>,
    /// Visitors of exactly this host.
    pub host: Option<HostName>,
    /// Where it is.
    pub local: Local,
    /// Time to connect to it, and for the first byte of its answer. `None` = no limit (`0`). Default 120 s.
    pub local_timeout: Option<Duration>,
    /// Send the local address as Host to an HTTP service instead of what the visitor asked for.
    pub use_local_as_http_host: bool,
    /// Believe only what this PEM file holds or has signed when dialling an `https://` service; `None` = the Mozilla roots.
    pub local_cert: Option<PathBuf>,
    /// What that file held.
    pub local_cert_content: Content,
    /// The TCP port it wants on the server.
    pub remote_tcp_port: Option<u16>,
    /// Any free TCP port will do, where `remote_tcp_port` is not given or not free.
    pub remote_tcp_random: bool,
    /// The UDP port it wants on the server.
    pub remote_udp_port: Option<u16>,
    /// Any free UDP port will do.
    pub remote_udp_random: bool,
    /// Tell the service the visitor's address with this header.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// Visitors that may come; empty = all that `deny` does not name.
    pub allow: Vec<IpNet>,
    /// Visitors that may not, even where `allow` names them.
    pub deny: Vec<IpNet>,
    /// Bytes per second in each direction; `None` = not limited.
    pub bandwidth: Option<NonZeroU64>,
    /// Clients that name the same group share visitors of the same host or port.
    pub load_balance: Option<String>,
    /// The server parses the requests of visitors that come by host (`mode: http`); else bytes are copied.
    pub http_mode: bool,
    /// It speaks HTTP/2 without TLS (`protocol: h2c`); HTTP mode.
    pub http2: bool,
    /// Changes to the fields of requests, by the server; HTTP mode.
    pub request_headers: FieldChanges,
    /// Changes to the fields of answers, by the server; HTTP mode.
    pub response_headers: FieldChanges,
    /// The server asks visitors for a name and a password; HTTP mode.
    pub basic_auth: Option<VisitorAuth>,
    /// How the client finds out whether the service is fit.
    pub health: Option<HealthCheck>,
}

/// Changes to header fields as they were written; each was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FieldChanges {
    /// In place of those of the same name.
    pub set: Vec<(String, String)>,
    /// Besides those of the same name.
    pub add: Vec<(String, String)>,
    /// Left out.
    pub remove: Vec<String>,
}

impl FieldChanges {
    /// Nothing is to be changed.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.add.is_empty() && self.remove.is_empty()
    }

    /// Bytes of all names and values, with four for each.
    pub(crate) fn length(&self) -> usize {
        let pairs = self.set.iter().chain(&self.add);
        pairs
            .map(|(name, value)| name.len() + value.len() + 4)
            .chain(self.remove.iter().map(|name| name.len() + 4))
            .sum()
    }
}

/// Names and passwords of visitors.
#[derive(Debug, Clone)]
pub struct VisitorAuth {
    /// What browsers show.
    pub realm: String,
    /// At least one.
    pub users: Vec<(String, PasswordHash)>,
    /// The field in which the service is told the user's name.
    pub user_header: Option<String>,
}

impl PartialEq for VisitorAuth {
    fn eq(&self, other: &Self) -> bool {
        (&self.realm, &self.users, &self.user_header)
            == (&other.realm, &other.users, &other.user_header)
    }
}

/// How a client checks a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthCheck {
    /// How often, and what counts.
    pub spec: ActiveCheckSpec,
    /// What is asked.
    pub kind: CheckKind,
}

impl Service {
    /// A service with the defaults that nobody can reach yet: it has no prefix, host or port.
    pub fn new(name: &str, local: Local) -> Self {
        Self {
            name: name.into(),
            host_prefix: None,
            host: None,
            local,
            local_timeout: Some(Duration::from_secs(120)),
            use_local_as_http_host: false,
            local_cert: None,
            local_cert_content: Content::default(),
            remote_tcp_port: None,
            remote_tcp_random: false,
            remote_udp_port: None,
            remote_udp_random: false,
            proxy_protocol: None,
            allow: Vec::new(),
            deny: Vec::new(),
            bandwidth: None,
            load_balance: None,
            http_mode: false,
            http2: false,
            request_headers: FieldChanges::default(),
            response_headers: FieldChanges::default(),
            basic_auth: None,
            health: None,
        }
    }

    /// The server does something to its requests, so that no visitor may reach it in another way.
    pub fn has_rules(&self) -> bool {
        self.basic_auth.is_some()
            || !self.request_headers.is_empty()
            || !self.response_headers.is_empty()
    }
}

/// What stands behind a service.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Local {
    /// Plain HTTP: visitors are routed by Host.
    Http {
        /// Host name or IP address; IPv6 without brackets.
        host: String,
        /// Port, default 80.
        port: u16,
    },
    /// HTTPS: visitors' TLS is passed through by server name; where the server terminated TLS, the client dials TLS.
    Https {
        /// Host name or IP address; IPv6 without brackets.
        host: String,
        /// Port, default 443.
        port: u16,
    },
    /// Any TCP service.
    Tcp {
        /// Host name or IP address; IPv6 without brackets.
        host: String,
        /// Port.
        port: u16,
    },
    /// Any UDP service.
    Udp {
        /// Host name or IP address; IPv6 without brackets.
        host: String,
        /// Port.
        port: u16,
    },
    /// A Unix stream socket: HTTP when the service has a host or prefix, any bytes when it has a TCP port.
    Unix(PathBuf),
    /// A page that gt itself serves.
    Builtin(Page),
}

impl fmt::Display for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, host, port) = match self {
            Self::Http { host, port } => ("http", host, port),
            Self::Https { host, port } => ("https", host, port),
            Self::Tcp { host, port } => ("tcp", host, port),
            Self::Udp { host, port } => ("udp", host, port),
            Self::Unix(path) => return write!(f, "unix:{}", path.display()),
            Self::Builtin(Page::Demo) => return f.write_str("builtin:demo"),
            Self::Builtin(Page::Status) => return f.write_str("builtin:status"),
        };
        if host.contains(':') {
            write!(f, "{scheme}://[{host}]:{port}")
        } else {
            write!(f, "{scheme}://{host}:{port}")
        }
    }
}

/// Pages that gt itself serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Page {
    /// A small page that shows that the way works.
    Demo,
    /// The client's state.
    Status,
}

/// Versions of the PROXY protocol header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProxyProtocol {
    /// Text.
    V1,
    /// Binary.
    V2,
}

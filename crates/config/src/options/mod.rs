//! The option tables: every name that a file or a command line may hold, with what its value must be, its default, its
//! bounds and one sentence. The reader, the flags, the help texts, the JSON schema and the tests of the documentation all come
//! from these tables; a name that is not here does not exist.

mod client;
mod form;
mod proxy;
mod route;
mod server;
mod upstream;

pub use client::{CLIENT, CLIENT_OPTIONS, HEADERS, SERVICE};
pub use proxy::{ACCESS_LOG, APP, BACKEND, LISTENER, PROXY, PROXY_FILE, PROXY_OPTIONS};
pub use route::{
    BASIC_AUTH, COMPRESS, EDITS, FILES, LIMITS, RATE_LIMIT, REDIRECT, RESPOND, REWRITE, ROUTE,
    TIMEOUTS,
};
pub use server::{CERTIFICATE, HOST, SERVER, SERVER_OPTIONS, TCP, USER};
pub use upstream::{EJECTION, HEALTH, KEEP_ALIVE, SERVER_ENTRY, STICKY, UPSTREAM, UPSTREAM_TLS};

/// The keys of one mapping.
#[derive(Debug)]
pub struct Table {
    /// What the mapping is called in messages and in the schema.
    pub name: &'static str,
    /// Its keys, in the order in which they are documented.
    pub options: &'static [Opt],
}

impl Table {
    /// The option of that name; a name in the table that ends with `*` stands for all that begin with it.
    pub fn find(&self, name: &str) -> Option<&'static Opt> {
        self.options
            .iter()
            .find(|option| match option.name.strip_suffix('*') {
                Some(stem) => name.starts_with(stem),
                None => option.name == name,
            })
    }
}

/// One key.
#[derive(Debug)]
pub struct Opt {
    /// The name, the same in files and as a flag.
    pub name: &'static str,
    /// What its value must be.
    pub kind: Kind,
    /// A list of such values is allowed (and a single one may stand for the list); as a flag it may be repeated.
    pub list: bool,
    /// The value that counts when it is absent, as one would write it; empty = none.
    pub default: &'static str,
    /// Whether this build does what it says.
    pub status: Status,
    /// What it does, in one sentence.
    pub help: &'static str,
}

/// What a value must be.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// `true` or `false`.
    Bool,
    /// A whole number within bounds.
    Count {
        /// Least.
        min: u64,
        /// Most.
        max: u64,
    },
    /// A time within bounds, in milliseconds; `zero` says that 0 has a meaning too.
    Duration {
        /// 0 is allowed besides.
        zero: bool,
        /// Least, in ms.
        min: u64,
        /// Most, in ms.
        max: u64,
    },
    /// Bytes per second; 0 = not limited.
    Speed,
    /// Bytes.
    Size,
    /// An address to listen on; a bare port means all addresses, or the loopback address when `loopback`.
    Listen {
        /// What a bare port means.
        loopback: bool,
    },
    /// A client's id.
    Id,
    /// A secret: a text, or `{file: PATH}`.
    Secret,
    /// One label of a host name.
    HostPrefix,
    /// A host name.
    HostName,
    /// The name of a header field.
    HeaderName,
    /// A text of 1 to 64 characters.
    Text,
    /// A path; in a file, a relative one begins at the file's folder.
    Path,
    /// An `http://` or `https://` address.
    Url,
    /// A regular expression.
    Regex,
    /// A port, or `FIRST-LAST`.
    PortRange,
    /// A port from 1 to 65535.
    Port,
    /// A server's address.
    Remote,
    /// What stands behind a service.
    Local,
    /// A network or an IP address.
    Network,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A mapping.
    Section(&'static Table),
    /// A mapping of names to mappings.
    Named(&'static Table),
    /// A mapping of names to mappings, or the path of a file that holds one.
    NamedOrPath(&'static Table),
    /// A mapping, or a text that stands for a mapping with its first key alone.
    Short(&'static Table),
    /// A mapping of names of header fields to texts.
    Fields,
    /// A mapping of names to secrets.
    Secrets,
    /// A text with a syntax of its own.
    Form(&'static Form),
    /// Anything: the value is not looked at.
    Any,
}

/// A text with a syntax of its own, for help texts and the documentation.
#[derive(Debug)]
pub struct Form {
    /// What stands for it in a help text, as `PATH`.
    pub metavar: &'static str,
    /// What it must be, in a few words.
    pub what: &'static str,
    /// An example.
    pub example: &'static str,
}

/// Whether this build does what an option says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It does.
    Built,
    /// The name is accepted so that files of other versions load; a warning says that it does nothing.
    Ignored,
}

const fn opt(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Opt {
    Opt {
        name,
        kind,
        list: false,
        default,
        status: Status::Built,
        help,
    }
}

const fn list(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Opt {
    Opt {
        name,
        kind,
        list: true,
        default,
        status: Status::Built,
        help,
    }
}

const fn ignored(name: &'static str, help: &'static str) -> Opt {
    Opt {
        name,
        kind: Kind::Any,
        list: false,
        default: "",
        status: Status::Ignored,
        help,
    }
}

const fn count(min: u64, max: u64) -> Kind {
    Kind::Count { min, max }
}

/// From `min` to one year.
const fn at_least(min: u64, zero: bool) -> Kind {
    Kind::Duration {
        zero,
        min,
        max: 365 * 24 * 3_600_000,
    }
}

/// From 100 ms to `max` ms.
const fn at_most(max: u64) -> Kind {
    Kind::Duration {
        zero: false,
        min: 100,
        max,
    }
}

const TYPES: Kind = Kind::Choice(&["server", "client", "proxy"]);
const LOG_LEVELS: Kind = Kind::Choice(&[
    "off", "fatal", "panic", "error", "warn", "info", "debug", "trace",
]);
const LOG_FILE: Opt = opt(
    "logFile",
    Kind::Path,
    "",
    "Write the log to this file instead of standard error.",
);
const LOG_MAX_SIZE: Opt = opt(
    "logFileMaxSize",
    Kind::Size,
    "512MiB",
    "Rotate the log file before it grows past this; 0 = never.",
);
const LOG_MAX_COUNT: Opt = opt(
    "logFileMaxCount",
    count(0, 1000),
    "7",
    "Rotated log files to keep.",
);
const LOG_LEVEL: Opt = opt(
    "logLevel",
    LOG_LEVELS,
    "info",
    "Least important level that is logged (also: environment GT_LOG).",
);
const LOG_FORMAT: Opt = opt(
    "logFormat",
    Kind::Choice(&["human", "json"]),
    "human",
    "Lines for people, or one JSON object per line.",
);
const KCP_MODE: Opt = opt(
    "kcpMode",
    Kind::Choice(&["normal", "fast", "fast2", "fast3"]),
    "fast2",
    "How eagerly a KCP link sends again what may be lost.",
);
const KCP_FEC: Opt = opt(
    "kcpFEC",
    Kind::Choice(&["auto", "on", "off"]),
    "auto",
    "Parity on KCP links: as measured loss asks for, always some, or none.",
);
const KCP_MTU: Opt = opt(
    "kcpMTU",
    count(1200, 1500),
    "1350",
    "Largest datagram of a KCP link, in bytes of UDP payload; the smaller of both ends' counts.",
);
const WORKERS: Opt = opt(
    "workers",
    count(1, 256),
    "",
    "Data threads; a server without it has one per core, a client one.",
);
const API_PASSWORD: Opt = opt(
    "apiPassword",
    Kind::Secret,
    "",
    "Whoever asks the API must know this; without it, nobody must know anything.",
);
const API_PASSWORD_FILE: Opt = opt(
    "apiPasswordFile",
    Kind::Path,
    "",
    "File that holds the password of the API.",
);
const API_HOSTS: Opt = list(
    "apiHosts",
    Kind::HostName,
    "",
    "Names under which the API may be asked, besides localhost and IP addresses.",
);
const WEB_ADDR: Opt = ignored("webAddr", "Address of the web administration.");
const WEB_CERT_FILE: Opt = ignored("webCertFile", "Certificate of the web administration.");
const WEB_KEY_FILE: Opt = ignored("webKeyFile", "Key of the web administration.");
const ADMIN: Opt = ignored("admin", "User name of the web administration.");
const PASSWORD: Opt = ignored("password", "Password of the web administration.");
const SIGNING_KEY: Opt = ignored(
    "signingKey",
    "Key that signs sessions of the web administration.",
);
const SENTRY: Opt = ignored(
    "sentry*",
    "Error reports to Sentry; standard tracing export replaces them.",
);
const BBR: Opt = opt(
    "bbr",
    Kind::Bool,
    "false",
    "BBR instead of CUBIC as congestion control of QUIC links.",
);
const UDP_FEC: Opt = opt(
    "udpFEC",
    Kind::Choice(&["off", "20/3", "10/3", "6/3", "4/4"]),
    "off",
    "Parity for datagrams of UDP services that this end sends on QUIC links: so many of so many are added to a group.",
);
const VERSION: Opt = opt(
    "version",
    Kind::Text,
    "",
    "Version of the layout, for people; not looked at.",
);

//! The configuration of gt: YAML files and flags, raw to checked to immutable.
//!
//! Data goes one way:
//!
//! ```text
//! YAML text ─► tree (places kept) ─┐
//! flags ─────► tree (same shape) ──┴─► section (one option table per scope) ─► checked types
//! ```
//!
//! The checked types ([`Server`], [`Client`], [`Proxy`]) hold only values that make sense together; nothing that reads them has to
//! look again. A problem is reported with its place, the line and what to do, and as many as possible in one go
//! ([`Errors`]). The option tables ([`options`]) are the single list of names: the reader, the flags, the JSON schema and
//! the tests of the documentation all come from them.
//!
//! ```
//! use config::{Checked, Role, System, check_text};
//!
//! let text = "options: {addr: 8080, id: web, secret: change-me}";
//! let system = System { create_identity: false };
//! let Checked::Server(server) = check_text("gt.yml".as_ref(), text, Some(Role::Server), &system)? else { unreachable!() };
//! assert_eq!(server.users["web"].limits.connections, 10);
//!
//! let errors = check_text("gt.yml".as_ref(), "options: {adr: 8080}", Some(Role::Server), &system).unwrap_err();
//! assert_eq!(errors.problems()[0].suggestion(), Some("did you mean `addr`?"));
//! # Ok::<(), config::Errors>(())
//! ```
//!
//! Left to others: opening sockets and certificate files (`server`, `agent`), printing and exit codes (`gt`).

mod check;
pub mod checked;
mod flags;
pub mod identity;
mod interpolate;
mod load;
pub mod options;
mod problem;
mod schema;
mod section;
mod source;
mod tree;
mod value;
mod yaml;

pub use checked::{
    AccessLog, AccessLogFormat, ApiListener, Certificate, CheckKind, Client, Content, FieldChanges,
    HealthCheck, HostName, HostPrefix, Id, IdleTimeout, Kcp, KeepAlive, Limits, ListenerProtocol,
    ListenerTls, Listeners, Local, Log, LogFormat, LogLevel, NameError, Page, Pending, Proxy,
    ProxyConfig, ProxyListener, ProxyProtocol, Remote, Scheme, Secret, Server, ServerAddress,
    ServerTimeouts, Service, StickyCookie, Throttle, TlsVersion, Trust, UdpFec, Upstream,
    UpstreamProtocol, UpstreamServer, UpstreamTls, User, VisitorAuth, Warning,
};
pub use flags::CommandLine;
pub use load::{
    Checked, FileText, Role, Surroundings, System, check_text, load, load_folder, load_path,
};
pub use problem::{Errors, Problem};
pub use schema::schema;
pub use value::BadRemote;

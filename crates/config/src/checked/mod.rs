//! Checked configuration: plain, immutable values that are right together. Built only by the checker of this crate (and
//! by tests of other crates, through `Default` and struct update); nothing here knows YAML or flags.

mod client;
mod common;
mod names;
mod proxy;
mod server;

pub use client::{
    Client, FieldChanges, HealthCheck, Local, Page, ProxyProtocol, Remote, Scheme, Service, Trust,
    VisitorAuth,
};
pub use common::{Content, Kcp, Log, LogFormat, LogLevel, UdpFec, Warning};
pub use names::{HostName, HostPrefix, Id, NameError, Secret};
pub use proxy::{
    AccessLog, AccessLogFormat, CheckKind, KeepAlive, ListenerProtocol, ListenerTls, Proxy,
    ProxyConfig, ProxyListener, ServerAddress, StickyCookie, Upstream, UpstreamProtocol,
    UpstreamServer, UpstreamTls,
};
pub use server::{
    ApiListener, Certificate, IdleTimeout, Limits, Listeners, Pending, Server, ServerTimeouts,
    Throttle, TlsVersion, User,
};

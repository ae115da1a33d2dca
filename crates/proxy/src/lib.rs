//! A reverse proxy's data plane: visitors' HTTP to upstream servers, and whatever else goes through untouched.
//!
//! ```text
//! socket ─► ingress (PROXY, TLS) ─► visitor (HTTP/1) or h2 ─► request (route, access) ─► upstream (balance, pool)
//!                                        │                                                    │
//!                                        └──────────────── exchange (both bodies) ◄───────────┘
//! ```
//!
//! Each worker thread accepts, parses and forwards on its own; upstream connections, balancing and counters are its own too. In steady state a
//! request costs two receives and two sends, no allocation, no lock and no log.
//!
//! Left to others: HTTP/1's grammar (`h1`), decisions (`route`), sockets and TLS (`net`), what a configuration file says (`config`).

mod answer;
mod aside;
mod buffer;
mod checks;
mod clock;
mod compress;
mod configured;
mod conn;
mod crew;
mod doorway;
mod exchange;
mod files;
mod flow;
mod h2;
mod h2_server;
mod h3;
mod ingress;
mod log;
mod metrics;
mod pipeline;
mod preface;
mod proxy;
mod relay;
mod request;
mod site;
mod streams;
mod tunnel;
mod upstream;
mod visitor;
mod words;
mod work;
mod worker;

pub use configured::{ConfiguredError, options, same_listeners, site};
pub use doorway::{Arrival, Doorway};
pub use ingress::Protocol;
pub use log::{AccessLogSpec, Format as LogFormat};
pub use metrics::{Counter, Gauge, Metrics};
pub use proxy::{Listener, Observer, Options, Proxy, StartError};
pub use relay::{
    BadRules, FarEnd, Found, LocalFuture, NoStream, Page, Relay, RelayService, RelayStream,
    ServiceRules, Tag, Visit, Wanted,
};
pub use site::{
    Address, Check, KeepAlive, ProxyVersion, RelaySpec, ServerProtocol, Site, StickyCookie,
    StreamTimes, UpstreamServer, UpstreamSpec,
};
pub use visitor::Entry;

//! The data plane of `gt server`.
//!
//! ```text
//!  visitor ─► ingress ─► routing ─► forward ─► a stream on a client's link (links, egress)
//!  client  ─► ingress ─► links ─► registry (who is connected, what was granted) ─► routing's snapshot
//! ```
//!
//! Each worker thread accepts, sniffs and forwards on its own; what threads share is the registry, the routing snapshot and counters.
//! A visitor is served by a link on the thread that accepted it; if the client has none there, the connection moves to a thread that
//! has one.
//!
//! Left to others: the configuration's meaning (`config`), the wire (`link`, `tunnel`, `mux`), sockets (`net`), the API and its
//! formats (`control`).

mod answer;
mod auth;
mod complaints;
mod egress;
mod forward;
mod gate;
mod handover;
mod ingress;
mod links;
mod live;
mod metrics;
mod network;
mod ports;
mod registry;
mod reload;
mod routing;
#[cfg(test)]
mod scene;
mod server;
mod session;
mod snapshot;
mod tls;
mod worker;

pub use egress::inprocess::status_page;
pub use metrics::{Counter, Gauge, Metrics};
pub use reload::Difference;
pub use server::{Observer, Server, StartError};
pub use snapshot::{
    ClientSnapshot, KcpLinkSnapshot, QuicLinkSnapshot, ServiceSnapshot, SessionSnapshot, Snapshot,
};

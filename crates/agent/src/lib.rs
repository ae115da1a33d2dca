//! The data plane of `gt client`.
//!
//! ```text
//!  keep (one loop per link: choose a server, dial, handshake, run, again) ─► link
//!  server ─► stream on a link ─► local: which service, dial it ─► joined
//! ```
//!
//! One session, several links: the first declares the services, the others only carry visitors. A link that breaks is replaced while
//! the others work on. Everything of one link, and the services' sockets of its visitors, live on one worker thread.
//!
//! Left to others: the configuration's meaning (`config`), the wire (`link`, `tunnel`, `mux`), sockets (`net`).

mod agent;
mod backoff;
mod choice;
mod declare;
mod dial;
mod handoff;
mod health;
mod hearing;
mod host;
mod keep;
mod local;
mod pages;
mod reload;
mod running;
mod udp;
mod ways;

pub use agent::{Client, ClientError, Observer, OnSession, Status};
pub use dial::DialError;
pub use handoff::{Handoff, NoHandoff};
pub use pages::{status_page, ways_table};
pub use reload::{Difference, compare};
pub use ways::{LastMove, WayStatus};

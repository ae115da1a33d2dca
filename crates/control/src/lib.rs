//! The control plane: what looks at the data plane and never carries a visitor. For now the API of `apiAddr`.
//!
//! ```text
//!  a request ─► api (listener, TLS, limits; a thread of its own) ─► access (name, password) ─► answers (which path) ─► metrics | status
//!                                                                                                                          ▲
//!                                                      server::Observer, agent::Observer (counters that data threads write) ┘
//! ```
//!
//! The API only reads: nothing can be changed through it, and it holds no secrets and no visitors' addresses. It tells ids, service
//! names and public addresses, so it listens on the loopback address unless the configuration says otherwise.
//! `docs/operation.md` describes every path and field.
//!
//! Left to others: what is counted (`server`, `agent`), the configuration's meaning (`config`), when to start and stop (`gt`).
//!
//! ```
//! let client = agent::Client::start(config::Client::new(
//!     config::Id::new("id")?,
//!     config::Secret::new("secret")?,
//! ))?;
//! let listener = config::ApiListener::new("127.0.0.1:0".parse()?);
//! let api = control::Api::start(&listener, control::Source::Client(client.observer()))?;
//! assert!(api.address().ip().is_loopback());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod access;
mod answers;
mod api;
mod metrics;
mod process;
mod status;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub use api::{Api, ApiError};

/// Lines of the log that could not be written, of this process.
static LOST_LOG_LINES: AtomicU64 = AtomicU64::new(0);

/// Counts a line of the log that could not be written.
pub fn count_lost_log_line() {
    LOST_LOG_LINES.fetch_add(1, Relaxed);
}

/// Lines of the log that could not be written, since the process began.
#[must_use]
pub fn lost_log_lines() -> u64 {
    LOST_LOG_LINES.load(Relaxed)
}

/// Whom an API tells about.
#[derive(Clone)]
pub enum Source {
    /// A relay server.
    Server(server::Observer),
    /// A relay client.
    Client(agent::Observer),
    /// A reverse proxy.
    Proxy(proxy::Observer),
}

//! Worker threads, sockets, TLS and WebSocket transports: the only crate that names sockets.
//!
//! A program starts [`Workers`], one thread per core, each with a runtime of its own. Listening sockets come from
//! [`listen_tcp_group`], one per worker, and are wrapped by an [`Acceptor`] on that worker. What it accepts, and what
//! [`connect_tcp`] and [`connect_unix`] open, is a [`Stream`]: one type for every byte stream, whatever lies below
//! (TCP, a Unix socket, TLS, WebSocket, or one over the other). [`tls`] and [`ws`] turn one `Stream` into another.
//!
//! Two promises matter most to the layers above: a read or a write costs one system call and never a second one to
//! learn that nothing is left, and an idle stream holds no buffer.
//!
//! Time limits, routing, pools and retries are left to the callers.

mod accept;
mod connect;
mod fetch;
mod scratch;
mod shutdown;
mod socket;
mod stream;
pub mod tls;
mod workers;
pub mod ws;

pub use accept::Acceptor;
pub use connect::{ATTEMPT_DELAY, connect_tcp, connect_unix};
pub use fetch::{Answer, FetchError, MAX_ANSWER, fetch};
pub use shutdown::Shutdown;
pub use socket::{BACKLOG, LinkTuning, bind_udp_group, listen_tcp_group, tune_link, tune_visitor};
pub use stream::{Detached, Stream};
pub use workers::{
    StillRunning, WorkerGone, WorkerHandle, Workers, current_worker, default_worker_count,
};

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
//!
//! ```
//! use std::time::Duration;
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let workers = net::Workers::start(2, "worker")?;
//! let sockets = net::listen_tcp_group("127.0.0.1:0".parse()?, workers.handles().len())?;
//! let addr = sockets[0].local_addr()?;
//! for (worker, socket) in workers.handles().iter().zip(sockets) {
//!     worker.spawn(move || async move {
//!         let Ok(mut acceptor) = net::Acceptor::new(socket) else { return };
//!         while let Ok((mut stream, _peer)) = acceptor.accept().await {
//!             tokio::task::spawn_local(async move {
//!                 let _ = stream.write_all(b"hello").await;
//!                 let _ = stream.shutdown().await;
//!             });
//!         }
//!     })?;
//! }
//! let (tell, told) = std::sync::mpsc::channel();
//! workers.handles()[0].spawn(move || async move {
//!     let mut text = String::new();
//!     if let Ok(mut stream) = net::connect_tcp(&[addr], None).await {
//!         let _ = stream.read_to_string(&mut text).await;
//!     }
//!     let _ = tell.send(text);
//! })?;
//! assert_eq!(told.recv()?, "hello");
//! workers.shutdown(Duration::from_secs(5))?;
//! # Ok(())
//! # }
//! ```

mod accept;
mod connect;
mod divert;
mod fetch;
mod files;
mod heap;
mod inherited;
pub mod kcp;
mod local;
mod path;
mod route;
mod scratch;
mod shutdown;
mod socket;
mod source;
mod steer;
mod stream;
pub mod tls;
mod workers;
pub mod ws;

pub use accept::Acceptor;
pub use connect::{ATTEMPT_DELAY, connect_tcp, connect_unix};
pub use divert::{Inlet, Outlet, Steering};
pub use fetch::{Answer, FetchError, MAX_ANSWER, fetch};
pub use files::open_files_limit;
pub use heap::keep_free_memory;
pub use inherited::take_inherited_sockets;
pub use path::{Lost, PathFigures, tcp_uses_bbr};
pub use route::RouteMtu;
pub use shutdown::Shutdown;
pub use socket::{
    BACKLOG, LinkTuning, bind_udp_group, hold_back, listen_tcp_group, tune_link, tune_visitor,
};
pub use source::{ListenSource, OwnSockets, spread};
pub use steer::{
    MOST_STEERED, STEERED_ID_LEN, UdpBuffers, raise_udp_buffers, steer_by_connection_id,
};
pub use stream::{Detached, Stream};
pub use tokio::net::{UdpSocket, lookup_host};
pub use workers::{
    StillRunning, WorkerGone, WorkerHandle, Workers, current_worker, default_worker_count,
};

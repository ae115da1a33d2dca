//! QUIC (RFC 9000) on worker threads, and HTTP/3 (RFC 9114) on top: a server in one line, a client, and the parts that a relay or a proxy builds
//! its own listeners from.
//!
//! **Endpoints.** [`Server::bind`] opens one UDP socket per worker on one address; [`Shard::start`] makes an [`Endpoint`] of each, on its worker.
//! A connection stays on its worker although its client changes its address: connection ids name the worker, and the kernel reads them. What
//! a connection is for is said by ALPN, so that HTTP/3 and other protocols share a port:
//!
//! ```no_run
//! # async fn handle_http(_: quic::Incoming) {}
//! # async fn handle_link(_: quic::Incoming) {}
//! # fn example(workers: &net::Workers, certificate: net::tls::Certificate) -> Result<(), Box<dyn std::error::Error>> {
//! let tls = quic::ServerTls::new(&net::tls::TlsServerOptions {
//!     certificates: vec![certificate],
//!     alpn: vec![quic::ALPN_H3.to_vec(), b"gt".to_vec()],
//!     ..Default::default()
//! })?;
//! let handles = workers.handles();
//! let server = quic::Server::bind(
//!     &net::OwnSockets, "quicAddr", "[::]:443".parse()?, handles.len(), tls, quic::Config::default(),
//! )?;
//! for shard in server.shards()? {
//!     handles[shard.index() % handles.len()].spawn(move || async move {
//!         let Ok(endpoint) = shard.start() else { return };
//!         while let Some(incoming) = endpoint.accept().await {
//!             match incoming.alpn.as_slice() {
//!                 quic::ALPN_H3 => tokio::task::spawn_local(handle_http(incoming)),
//!                 _ => tokio::task::spawn_local(handle_link(incoming)),
//!             };
//!         }
//!     })?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! **Connecting.** [`Client::connect`] gives a [`quinn::Connection`] to whoever accepts one of the protocols asked for.
//!
//! Each file of `endpoint` has one job: what may come in, when addresses are proved, which ids are given, what is counted. The machinery of QUIC is
//! quinn's. Routing, access rules and what a protocol does with its connection are left to the callers.

mod client;
mod endpoint;
pub mod h3;
pub mod http;

pub use bytes;
pub use quinn;
pub use quinn::{Connection, ConnectionError, RecvStream, SendStream, VarInt};

pub use self::http::{serve, serve_with};

/// The examples of the guide.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Guide;

pub use client::{Client, ClientConfig, ConnectError};
pub use endpoint::{
    ALPN_H3, Acks, BindError, Config, Congestion, Endpoint, Incoming, Server, ServerTls, Shard,
    Stats, Transport, peer_certificate,
};

//! Links over QUIC: a visitor is a QUIC stream, with no multiplexer in between (docs/protocol/quic-link.md).
//!
//! ```text
//!  first stream (client opens it): handshake, then control messages        control.rs, driver.rs
//!  every other stream (server opens it): header, first payload, bytes       link.rs, join.rs, stream.rs
//!  datagrams of UDP visitors: number of the visitor's stream, payload       channel.rs, fec.rs, cover.rs
//! ```
//!
//! FIN is half-close, RESET_STREAM and STOP_SENDING carry gt's reasons, credit is QUIC's. What QUIC does not have is here: priorities of
//! interactive streams, and a bound on what visitors that do not read keep from others (`stalled.rs`).
//!
//! Left to others: endpoints, certificates, migration, keep-alive and congestion control (`quic`, quinn).

mod channel;
mod control;
mod cover;
mod driver;
pub mod fec;
mod flow;
mod join;
mod link;
mod stalled;
mod stream;
mod windows;

pub(crate) use channel::Channel;
pub(crate) use control::Control;
pub(crate) use driver::Driver;
pub(crate) use join::Join;
pub(crate) use link::Link;
pub(crate) use stream::Stream;
pub use windows::{
    LINK_WINDOW, STREAM_WINDOW, STREAMS_AT_FIRST, client_transport, server_transport,
};

//! WebSocket as a byte stream (RFC 6455): binary frames, no messages.
//!
//! [`accept`] answers a client's upgrade request, [`connect`] makes one; both turn a [`Stream`] into another. Routing by
//! path or Host, and the time a handshake may take, are left to the callers.

#[doc(hidden)]
pub mod frame;
mod handshake;
pub(crate) mod stream;

pub use handshake::{MAX_HEAD, WsError, accept, accept_protocol, connect, connect_protocol};

#[cfg(doc)]
use crate::Stream;

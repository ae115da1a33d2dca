//! HTTP/3 (RFC 9114): requests and responses on the streams of a QUIC connection, either end.
//!
//! Bytes become `frame`s, field sections are read and written by `qpack`, and `message` makes requests and responses of them, or says that they
//! are none. All of these are functions of their input: no socket, no clock. `link` is what a connection's streams share, `stream` the two
//! directions of one exchange, [`server`] and [`client`] the two ends.
//!
//! What a peer can make this end keep is bounded by [`Settings`] and the windows of QUIC. There is no push and no dynamic table.

pub mod client;
mod datagram;
mod frame;
#[cfg(feature = "fuzz")]
#[doc(hidden)]
pub mod fuzz;
mod link;
mod message;
mod qpack;
pub mod server;
mod stream;
mod varint;

use std::{fmt, future::poll_fn, pin::pin, task::Poll, time::Duration};

use tokio::time::{error::Elapsed, timeout};

pub use datagram::{DatagramError, Datagrams};
pub(crate) use message::Added;
pub use message::Protocol;
pub use server::Exchange;
pub use stream::{Piece, ReceiveHalf, SendHalf};

/// What an end allows its peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The largest field section: the sum over all fields of name, value and 32 bytes.
    pub section_bytes: usize,
    /// The most fields in a section, pseudo-fields included.
    pub fields: usize,
    /// How long a head may take to come, from the stream's first byte on.
    pub head_time: Duration,
    /// Datagrams (RFC 9297). The transport must allow them too.
    pub datagrams: bool,
    /// Extended CONNECT (RFC 9220); a server's.
    pub extended_connect: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            section_bytes: 64 << 10,
            fields: 100,
            head_time: Duration::from_secs(10),
            datagrams: true,
            extended_connect: true,
        }
    }
}

/// A code of HTTP/3 (RFC 9114 §8.1) or QPACK (RFC 9204 §6), for streams or connections.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Code(pub u64);

impl Code {
    /// `H3_DATAGRAM_ERROR` (RFC 9297 §5.2).
    pub const DATAGRAM_ERROR: Self = Self(0x33);
    /// `H3_NO_ERROR`.
    pub const NO_ERROR: Self = Self(0x100);
    /// `H3_GENERAL_PROTOCOL_ERROR`.
    pub const GENERAL_PROTOCOL_ERROR: Self = Self(0x101);
    /// `H3_INTERNAL_ERROR`.
    pub const INTERNAL_ERROR: Self = Self(0x102);
    /// `H3_STREAM_CREATION_ERROR`.
    pub const STREAM_CREATION_ERROR: Self = Self(0x103);
    /// `H3_CLOSED_CRITICAL_STREAM`.
    pub const CLOSED_CRITICAL_STREAM: Self = Self(0x104);
    /// `H3_FRAME_UNEXPECTED`.
    pub const FRAME_UNEXPECTED: Self = Self(0x105);
    /// `H3_FRAME_ERROR`.
    pub const FRAME_ERROR: Self = Self(0x106);
    /// `H3_EXCESSIVE_LOAD`.
    pub const EXCESSIVE_LOAD: Self = Self(0x107);
    /// `H3_ID_ERROR`.
    pub const ID_ERROR: Self = Self(0x108);
    /// `H3_SETTINGS_ERROR`.
    pub const SETTINGS_ERROR: Self = Self(0x109);
    /// `H3_MISSING_SETTINGS`.
    pub const MISSING_SETTINGS: Self = Self(0x10a);
    /// `H3_REQUEST_REJECTED`.
    pub const REQUEST_REJECTED: Self = Self(0x10b);
    /// `H3_REQUEST_CANCELLED`.
    pub const REQUEST_CANCELLED: Self = Self(0x10c);
    /// `H3_REQUEST_INCOMPLETE`.
    pub const REQUEST_INCOMPLETE: Self = Self(0x10d);
    /// `H3_MESSAGE_ERROR`.
    pub const MESSAGE_ERROR: Self = Self(0x10e);
    /// `QPACK_DECOMPRESSION_FAILED`.
    pub const DECOMPRESSION_FAILED: Self = Self(0x200);
    /// `QPACK_ENCODER_STREAM_ERROR`.
    pub const ENCODER_STREAM_ERROR: Self = Self(0x201);
    /// `QPACK_DECODER_STREAM_ERROR`.
    pub const DECODER_STREAM_ERROR: Self = Self(0x202);

    pub(crate) fn var(self) -> quinn::VarInt {
        quinn::VarInt::from_u64(self.0).unwrap_or(quinn::VarInt::MAX)
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// Why an exchange, or its connection, has ended early.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The peer broke the protocol; the connection was ended with that code.
    #[error("the peer broke HTTP/3: {0:?}")]
    Protocol(Code),
    /// The peer's message is none (RFC 9114 §4.1.2); its stream was ended.
    #[error("the peer's message is malformed")]
    Malformed,
    /// The peer's field section is larger than allowed here.
    #[error("the peer's field section is too large")]
    TooLarge,
    /// Ours is larger than the peer allows.
    #[error("the peer takes no field section of {size} bytes, {allowed} at most")]
    TooLargeForPeer {
        /// Counted as in [`Settings::section_bytes`].
        size: u64,
        /// By the peer's settings.
        allowed: u64,
    },
    /// The peer ended this stream with that code.
    #[error("the peer ended the stream: {0:?}")]
    Reset(Code),
    /// It took too long.
    #[error("the peer took too long")]
    Late,
    /// The peer takes no more requests on this connection, or none of this kind.
    #[error("the peer takes no such request on this connection")]
    Refused,
    /// Early data was not taken: the request has not been seen by the server.
    #[error("the server did not take early data")]
    EarlyRejected,
    /// The connection has ended.
    #[error("the connection has ended: {0}")]
    Connection(#[from] quinn::ConnectionError),
}

/// Bounds a wait. What is ready at once, as most is, needs neither clock nor timer.
pub(crate) async fn within<F: Future>(time: Duration, future: F) -> Result<F::Output, Elapsed> {
    let mut future = pin!(future);
    let first = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
    match first {
        Poll::Ready(output) => Ok(output),
        Poll::Pending => timeout(time, future).await,
    }
}

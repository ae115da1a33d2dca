//! The first request of an HTTP/2 connection without TLS (prior knowledge, RFC 9113 §3.3): where it wants to go.
//!
//! ```text
//!   preface ─ SETTINGS ─ (WINDOW_UPDATE, PRIORITY, PING, …)* ─ HEADERS ─ CONTINUATION* ─► :authority
//! ```
//!
//! Bytes go into a [`HeadSniffer`], a [`Head`] comes out. All later requests of the connection are taken to want the same, as is
//! the nature of routing a connection by its first bytes.
//!
//! # Clients that wait for the server
//!
//! Some clients (gRPC for Go among them) send no request before they have seen the server's SETTINGS, which nobody can send who
//! does not know the server yet. When [`HeadSniffer::waits_for_server`] stays true for a moment, send [`EMPTY_SETTINGS`]: a
//! connection may have any number of SETTINGS frames, so the real server's are welcome later. The client acknowledges
//! it before its request, and [`Head::settings_ack`] tells where, so that those 9 bytes can be left out of what is forwarded: a
//! server may treat an acknowledgement of settings that it never sent as an error.
//!
//! # Refusing
//!
//! [`answer`] makes a complete response without body, and [`H2Error::refusal`] ends the connection with the right code.

mod answer;
mod hpack;
mod huffman;
mod sniffer;
mod static_table;

pub use answer::{EMPTY_SETTINGS, answer};
pub use hpack::HpackError;
pub use sniffer::{Head, HeadSniffer, Limits};

use crate::host::AuthorityError;

/// What every client sends first (RFC 9113 §3.4).
pub const PREFACE: [u8; 24] = *b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Why a connection is refused: the peer's fault each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum H2Error {
    /// The first bytes are not [`PREFACE`].
    #[error("not the HTTP/2 connection preface")]
    NotPreface,
    /// No request within [`Limits::head`] bytes.
    #[error("the first HTTP/2 request does not end within the limit")]
    TooLong,
    /// A frame that may not stand here: no SETTINGS first, DATA without a request, a header block interrupted.
    #[error("an HTTP/2 frame is out of place")]
    UnexpectedFrame,
    /// A frame whose length, padding or stream is wrong for its type.
    #[error("an HTTP/2 frame is malformed")]
    BadFrame,
    /// The header block cannot be decoded.
    #[error("the HTTP/2 header block cannot be decoded: {0}")]
    Hpack(HpackError),
    /// A pseudo-field after other fields, or twice (RFC 9113 §8.3).
    #[error("the HTTP/2 pseudo-header fields are malformed")]
    BadPseudoField,
    /// Several fields that route.
    #[error("the request has several Host header fields")]
    SeveralHosts,
    /// The authority that routes is none.
    #[error("the host of the request is not valid: {0}")]
    BadHost(AuthorityError),
    /// `:authority` and `host` name different places (RFC 9113 §8.3.1).
    #[error("the Host header field differs from :authority")]
    HostMismatch,
}

impl H2Error {
    /// The error code of RFC 9113 §7.
    #[must_use]
    pub fn code(self) -> u32 {
        match self {
            Self::BadFrame
            | Self::NotPreface
            | Self::UnexpectedFrame
            | Self::BadPseudoField
            | Self::SeveralHosts
            | Self::BadHost(_)
            | Self::HostMismatch => 0x1,
            Self::Hpack(HpackError::TooLong) | Self::TooLong => 0xB,
            Self::Hpack(_) => 0x9,
        }
    }

    /// What to send before closing: the server's SETTINGS and a GOAWAY with [`code`](Self::code).
    #[must_use]
    pub fn refusal(self) -> [u8; 26] {
        answer::refusal(self.code())
    }
}

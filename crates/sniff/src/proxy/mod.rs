//! The PROXY protocol, versions 1 and 2: who the peer of the proxy in front is.
//!
//! A header at the front of a connection goes into a [`HeaderSniffer`], a [`Header`] comes out; what follows its `len` bytes is
//! the connection itself. [`write_v1`] and [`write_v2`] make headers. Whether the sender may be believed is for the caller to
//! decide, before it asks.
//!
//! Clauses are those of "The PROXY protocol, Versions 1 & 2" (HAProxy, 2020/03/05).

use std::{net::SocketAddr, ops::Range};

mod v1;
mod v2;
mod write;

pub use write::{write_v1, write_v1_unknown, write_v2, write_v2_local, write_v2_transport};

/// What a version 2 header begins with (§2.2).
pub const V2_SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// Longest version 1 header, its line end included (§2.1).
pub const MAX_V1: usize = 107;
/// Longest version 2 header that the format allows: 16 bytes and a 16-bit length (§2.2).
pub const MAX_V2: usize = 16 + 65_535;

/// Bounds of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest version 2 header in bytes; up to [`MAX_V2`] makes a difference.
    pub v2: usize,
}

impl Default for Limits {
    /// 536 bytes, which every sender may count on (§2.2).
    fn default() -> Self {
        Self { v2: 536 }
    }
}

/// Which form a header has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// Text.
    V1,
    /// Binary.
    V2,
}

/// What the addresses of a header speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP or a Unix stream socket.
    Stream,
    /// UDP or a Unix datagram socket.
    Datagram,
}

/// Whose connection it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// The proxy's own, for example a health check (`LOCAL`): use the addresses of the socket.
    Local,
    /// The proxy does not say (`UNKNOWN`, `AF_UNSPEC`, or a family unknown here): use the addresses of the socket.
    Unknown,
    /// An IP connection.
    Ip {
        /// TCP or UDP.
        transport: Transport,
        /// The visitor.
        source: SocketAddr,
        /// What the visitor connected to.
        destination: SocketAddr,
    },
    /// A Unix socket connection. The paths are without trailing NULs, at most 108 bytes each.
    Unix {
        /// Stream or datagram.
        transport: Transport,
        /// The visitor's path.
        source: Vec<u8>,
        /// The path that it connected to.
        destination: Vec<u8>,
    },
}

/// A complete header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Text or binary.
    pub version: Version,
    /// Whose connection it is.
    pub addresses: Addresses,
    /// Where the TLVs of version 2 are in the buffer. They are not looked at; empty for version 1.
    pub tlvs: Range<usize>,
    /// Length of the header in bytes: what follows is the connection.
    pub len: usize,
}

impl Header {
    /// The visitor's IP address, when the header tells one.
    #[must_use]
    pub fn source(&self) -> Option<SocketAddr> {
        match self.addresses {
            Addresses::Ip { source, .. } => Some(source),
            _ => None,
        }
    }

    /// The IP address that the visitor connected to, when the header tells one.
    #[must_use]
    pub fn destination(&self) -> Option<SocketAddr> {
        match self.addresses {
            Addresses::Ip { destination, .. } => Some(destination),
            _ => None,
        }
    }
}

/// Why this is no PROXY header. The peer's fault each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProxyError {
    /// Neither `PROXY ` nor the signature of version 2.
    #[error("not a PROXY protocol header")]
    NotProxy,
    /// Version 1 without a line end in [`MAX_V1`] bytes, or version 2 longer than [`Limits::v2`].
    #[error("the PROXY protocol header is too long")]
    TooLong,
    /// A version 1 line that does not have the form of §2.1.
    #[error("the PROXY protocol line is malformed")]
    BadLine,
    /// A version or command that §2.2 does not define.
    #[error("the PROXY protocol version or command is not known")]
    BadCommand,
    /// A version 2 header that is too short for the addresses that it announces.
    #[error("the PROXY protocol header is too short for its addresses")]
    TooShort,
}

/// Reads one header from a growing buffer.
#[derive(Clone, Debug)]
pub struct HeaderSniffer {
    limits: Limits,
    /// The part of a version 1 line that is known to hold no line end.
    scanned: usize,
    failed: Option<ProxyError>,
}

impl HeaderSniffer {
    /// A sniffer that has seen nothing.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            scanned: 0,
            failed: None,
        }
    }

    /// Looks at `buf`, the whole buffer from the first byte of the header. `None`: the header is not complete. Once it is, or is
    /// refused, the answer stays the same.
    ///
    /// # Errors
    /// This is no header; see [`ProxyError`].
    pub fn advance(&mut self, buf: &[u8]) -> Result<Option<Header>, ProxyError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let result = match buf.first() {
            None => Ok(None),
            Some(b'P') => v1::parse(buf, &mut self.scanned),
            Some(_) => v2::parse(buf, self.limits.v2),
        };
        self.failed = result.as_ref().err().copied();
        result
    }
}

//! The header that opens a stream: which service, which visitor, over which protocol. It is made for every visitor, so its layout
//! is fixed, it is small, and neither encoding nor decoding allocates (past the buffer given).
//!
//! ```text
//! version‖flags u8 │ protocol u8 │ service u16 │ visitor │ local │ [name length u8 │ name]
//! visitor, local:  kind u8 = 0 │ 4 ‖ 4 bytes ‖ port u16 │ 6 ‖ 16 bytes ‖ port u16
//! ```

use std::net::{IpAddr, SocketAddr};

use thiserror::Error;

use crate::{ServiceId, error::InvalidValue, open_enum::open_enum};

/// Largest stream header in bytes. The largest that this version makes has 298.
pub const MAX_STREAM_HEADER: usize = 512;

/// Version 1 in the upper half of the first byte.
const VERSION: u8 = 0x10;
/// A server name follows.
const HAS_NAME: u8 = 0x01;

open_enum! {
    /// What the bytes of a stream are.
    StreamProtocol(u8) {
        /// Any bytes.
        Tcp = 1, "tcp";
        /// TLS from its ClientHello on, not decrypted.
        Tls = 2, "tls";
        /// HTTP/1, possibly upgraded later.
        Http1 = 3, "http/1";
        /// HTTP/2 without TLS, with prior knowledge.
        H2c = 4, "h2c";
        /// Datagrams, each after its length (u16).
        Udp = 5, "udp";
    }
}

/// The name a visitor asked for, from SNI or Host: 1 to 255 visible ASCII characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ServerName<'a>(&'a str);

impl<'a> ServerName<'a> {
    /// Checks a name.
    ///
    /// # Errors
    /// When it is empty, longer than 255 bytes, or has other characters than visible ASCII.
    pub fn new(name: &'a str) -> Result<Self, InvalidValue> {
        if (1..=255).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic()) {
            Ok(Self(name))
        } else {
            Err(InvalidValue {
                what: "server name",
                rule: "1 to 255 visible ASCII characters",
            })
        }
    }

    /// The name.
    #[must_use]
    pub const fn as_str(self) -> &'a str {
        self.0
    }
}

/// Opens a stream to a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamHeader<'a> {
    /// What the bytes are.
    pub protocol: StreamProtocol,
    /// Which service.
    pub service: ServiceId,
    /// The visitor's address, if known. Flow label and scope of IPv6 do not travel.
    pub visitor: Option<SocketAddr>,
    /// The address the visitor connected to, if known.
    pub local: Option<SocketAddr>,
    /// The name the visitor asked for, if any.
    pub server_name: Option<ServerName<'a>>,
}

/// Why a stream header cannot be read: the peer's fault. The stream is to be reset with `Protocol`; the link can stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum StreamHeaderError {
    /// Of another version, or with flags that version 1 does not have.
    #[error("stream header of an unknown version (first byte {0:#04x})")]
    Version(u8),
    /// Ends too soon.
    #[error("the stream header is cut short")]
    Truncated,
    /// Goes on after its end.
    #[error("bytes after the stream header")]
    TrailingBytes,
    /// Neither 0, 4 nor 6.
    #[error("unknown address kind {0} in the stream header")]
    AddressKind(u8),
    /// Empty, or not visible ASCII.
    #[error("invalid server name in the stream header")]
    ServerName,
}

impl<'a> StreamHeader<'a> {
    /// Appends the header to `out`: 6 to 298 bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(
            VERSION
                | if self.server_name.is_some() {
                    HAS_NAME
                } else {
                    0
                },
        );
        out.push(self.protocol.into());
        out.extend_from_slice(&self.service.0.to_be_bytes());
        encode_address(self.visitor, out);
        encode_address(self.local, out);
        if let Some(ServerName(name)) = self.server_name {
            out.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
            out.extend_from_slice(name.as_bytes());
        }
    }

    /// Reads a header that is exactly `bytes`.
    ///
    /// # Errors
    /// When it is of another version, too short, too long, or has an invalid part.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, StreamHeaderError> {
        let mut rest = bytes;
        let [first, protocol, high, low] = take(&mut rest)?;
        if first & !HAS_NAME != VERSION {
            return Err(StreamHeaderError::Version(first));
        }
        let visitor = decode_address(&mut rest)?;
        let local = decode_address(&mut rest)?;
        let mut server_name = None;
        if first & HAS_NAME != 0 {
            let [length] = take(&mut rest)?;
            let (name, after) = rest
                .split_at_checked(length.into())
                .ok_or(StreamHeaderError::Truncated)?;
            let name = std::str::from_utf8(name).map_err(|_| StreamHeaderError::ServerName)?;
            server_name = Some(ServerName::new(name).map_err(|_| StreamHeaderError::ServerName)?);
            rest = after;
        }
        if !rest.is_empty() {
            return Err(StreamHeaderError::TrailingBytes);
        }
        let service = ServiceId(u16::from_be_bytes([high, low]));
        Ok(Self {
            protocol: protocol.into(),
            service,
            visitor,
            local,
            server_name,
        })
    }
}

fn encode_address(address: Option<SocketAddr>, out: &mut Vec<u8>) {
    let Some(address) = address else {
        return out.push(0);
    };
    match address.ip() {
        IpAddr::V4(ip) => {
            out.push(4);
            out.extend_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            out.push(6);
            out.extend_from_slice(&ip.octets());
        }
    }
    out.extend_from_slice(&address.port().to_be_bytes());
}

fn decode_address(rest: &mut &[u8]) -> Result<Option<SocketAddr>, StreamHeaderError> {
    let [kind] = take(rest)?;
    let ip: IpAddr = match kind {
        0 => return Ok(None),
        4 => take::<4>(rest)?.into(),
        6 => take::<16>(rest)?.into(),
        other => return Err(StreamHeaderError::AddressKind(other)),
    };
    Ok(Some(SocketAddr::new(ip, u16::from_be_bytes(take(rest)?))))
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], StreamHeaderError> {
    let (taken, after) = rest
        .split_first_chunk()
        .ok_or(StreamHeaderError::Truncated)?;
    *rest = after;
    Ok(*taken)
}

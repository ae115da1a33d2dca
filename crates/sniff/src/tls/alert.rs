//! Alert records, to be sent in clear before any handshake took place.

/// The alerts (RFC 8446 §6) that a sniffing server has a use for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AlertDescription {
    /// Another message was due.
    UnexpectedMessage = 10,
    /// A record is too long.
    RecordOverflow = 22,
    /// The handshake cannot succeed.
    HandshakeFailure = 40,
    /// A field is out of range or contradicts another.
    IllegalParameter = 47,
    /// The access is refused by rule.
    AccessDenied = 49,
    /// A message cannot be decoded.
    DecodeError = 50,
    /// The version is known but not supported.
    ProtocolVersion = 70,
    /// Something here failed that is not the peer's fault.
    InternalError = 80,
    /// No server of that name.
    UnrecognizedName = 112,
    /// None of the offered protocols is served.
    NoApplicationProtocol = 120,
}

/// A fatal alert as one record of version TLS 1.2 (0x0303), which clients of TLS 1.0 to 1.3 understand.
#[must_use]
pub const fn alert(description: AlertDescription) -> [u8; 7] {
    const ALERT: u8 = 21;
    const FATAL: u8 = 2;
    [ALERT, 0x03, 0x03, 0x00, 0x02, FATAL, description as u8]
}

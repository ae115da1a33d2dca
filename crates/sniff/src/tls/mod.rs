//! SNI and ALPN of a TLS ClientHello, and the alerts that refuse one.
//!
//! Records go into a [`HelloSniffer`], a [`ClientHello`] comes out, and the bytes stay as they were, to be passed on without
//! decryption. A hello may span records and packets (those with post-quantum key shares exceed a packet). Only what routing
//! needs is read; certificates, versions and keys are left to the TLS library behind.

mod alert;
mod hello;
mod sniffer;

pub use alert::{AlertDescription, alert};
pub use hello::{ClientHello, MAX_PROTOCOLS};
pub use sniffer::{HelloSniffer, Limits};

/// Why this is no ClientHello to route by. The peer's fault each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// The first bytes are no TLS handshake record (RFC 8446 §5.1).
    #[error("not a TLS handshake record")]
    NotHandshake,
    /// A record of no bytes or of more than 2^14 (RFC 8446 §5.1).
    #[error("a TLS record has an illegal length")]
    RecordLength,
    /// The hello is cut into more records than [`Limits::records`].
    #[error("the ClientHello is spread over too many TLS records")]
    TooManyRecords,
    /// A handshake message other than ClientHello.
    #[error("the first TLS handshake message is not a ClientHello")]
    NotClientHello,
    /// The hello is longer than [`Limits::hello`].
    #[error("the ClientHello is too long")]
    TooLong,
    /// The lengths within the hello do not fit (RFC 8446 §4.1.2).
    #[error("the ClientHello is malformed")]
    Malformed,
    /// The server_name extension holds no valid host name, or several (RFC 6066 §3).
    #[error("the server name in the ClientHello is not valid")]
    BadServerName,
    /// The ALPN extension is empty, holds an empty name (RFC 7301 §3.1), or more than [`MAX_PROTOCOLS`].
    #[error("the protocol list in the ClientHello is not valid")]
    BadAlpn,
    /// An extension stands twice (RFC 8446 §4.2).
    #[error("the ClientHello repeats an extension")]
    Repeated,
}

impl TlsError {
    /// The alert to answer with; none where the peer does not seem to speak TLS.
    #[must_use]
    pub fn alert(self) -> Option<AlertDescription> {
        match self {
            Self::NotHandshake => None,
            Self::NotClientHello => Some(AlertDescription::UnexpectedMessage),
            Self::RecordLength => Some(AlertDescription::RecordOverflow),
            Self::TooManyRecords | Self::TooLong | Self::Malformed | Self::BadAlpn => {
                Some(AlertDescription::DecodeError)
            }
            Self::BadServerName => Some(AlertDescription::UnrecognizedName),
            Self::Repeated => Some(AlertDescription::IllegalParameter),
        }
    }
}

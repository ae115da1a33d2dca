//! Why a request head is refused, and what to answer.

use crate::host::AuthorityError;

/// Why a request head is refused: the peer's fault each time. `Display` is one line of English to put into the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// The head does not end within [`Limits::head`](super::Limits::head) bytes.
    #[error("the request head is too long")]
    TooLong,
    /// Not even the request line ends within [`Limits::head`](super::Limits::head) bytes.
    #[error("the request target is too long")]
    TargetTooLong,
    /// More fields than [`Limits::headers`](super::Limits::headers).
    #[error("the request has too many header fields")]
    TooManyHeaders,
    /// Not the grammar of RFC 9112.
    #[error("the request is malformed: {0}")]
    Malformed(Flaw),
    /// A version other than HTTP/1.0 and HTTP/1.1.
    #[error("this HTTP version is not supported here")]
    Version,
    /// HTTP/1.1 without a Host field (RFC 9112 §3.2).
    #[error("the request has no Host header field")]
    NoHost,
    /// Several Host fields, or several of the field that routes.
    #[error("the request has several Host header fields")]
    SeveralHosts,
    /// The authority that routes is none.
    #[error("the host of the request is not valid: {0}")]
    BadHost(AuthorityError),
    /// The authority in the target and the Host field name different places: the service behind might believe the other one.
    #[error("the Host header field differs from the host in the request target")]
    HostMismatch,
}

/// What is wrong with a malformed head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// Not `METHOD SP TARGET SP VERSION`, or a method with other bytes than a token's or more than 32 of them.
    #[error("bad request line")]
    RequestLine,
    /// The target has none of the forms of RFC 9112 §3.2, or is not UTF-8.
    #[error("bad request target")]
    Target,
    /// A carriage return without line feed.
    #[error("carriage return without line feed")]
    BareCr,
    /// A line feed without carriage return.
    #[error("line feed without carriage return")]
    BareLf,
    /// NUL or another control byte.
    #[error("control character")]
    Control,
    /// A field line that continues the one before (RFC 9112 §5.2).
    #[error("folded header field")]
    Fold,
    /// No colon, no name, or a byte in the name that is none of a token's (a space before the colon is one).
    #[error("bad header field name")]
    FieldName,
}

impl HeadError {
    /// The status code to answer with.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Self::TooLong | Self::TooManyHeaders => 431,
            Self::TargetTooLong => 414,
            Self::Version => 505,
            Self::Malformed(_)
            | Self::NoHost
            | Self::SeveralHosts
            | Self::BadHost(_)
            | Self::HostMismatch => 400,
        }
    }

    /// The reason phrase that goes with [`status`](Self::status).
    #[must_use]
    pub fn reason_phrase(self) -> &'static str {
        match self.status() {
            431 => "Request Header Fields Too Large",
            414 => "URI Too Long",
            505 => "HTTP Version Not Supported",
            _ => "Bad Request",
        }
    }
}

impl From<Flaw> for HeadError {
    fn from(flaw: Flaw) -> Self {
        Self::Malformed(flaw)
    }
}

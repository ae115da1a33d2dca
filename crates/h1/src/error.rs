//! What is refused, and why. The texts are for the peer whose mistake it was: they never repeat what it sent.

/// A field line that breaks the rules; the same in requests, answers and trailers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum FieldError {
    /// A line ended with LF alone (RFC 9112 §2.2 lets a recipient accept it; programs differ).
    #[error("a line ends without CR")]
    BareLf,
    /// CR within a line.
    #[error("there is a CR within a line")]
    BareCr,
    /// A line that begins with a space or tab (obs-fold, RFC 9112 §5.2).
    #[error("a field goes on in a second line")]
    Folded,
    /// A line without a colon, or without a name before it.
    #[error("a line is no field")]
    NoField,
    /// Space or tab in a name, or between it and the colon (RFC 9112 §5.1).
    #[error("there is a space before a colon")]
    SpaceInName,
    /// A byte that no field name may have.
    #[error("a field's name has a character that is not allowed")]
    Name,
    /// A control character, NUL above all.
    #[error("a field's value has a character that is not allowed")]
    Value,
    /// The head is longer than the limit.
    #[error("the head is too long")]
    TooLong,
    /// There are more fields than the limit.
    #[error("there are too many fields")]
    TooMany,
}

/// A request that is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum RequestError {
    /// A field line.
    #[error("{0}")]
    Field(#[from] FieldError),
    /// The first line is no request line.
    #[error("the first line is no request line")]
    RequestLine,
    /// The method is no token, or longer than 32 bytes.
    #[error("the method is none")]
    Method,
    /// The target has a character or a form that is not allowed for the method.
    #[error("the request target is not valid")]
    Target,
    /// The target is longer than the limit.
    #[error("the request target is too long")]
    TargetTooLong,
    /// Neither 1.0 nor 1.1.
    #[error("the HTTP version is not supported")]
    Version,
    /// HTTP/2 with prior knowledge: the connection belongs to another codec.
    #[error("this is HTTP/2")]
    Http2,
    /// HTTP/1.1 without Host (RFC 9112 §3.2).
    #[error("there is no Host field")]
    NoHost,
    /// Several Host fields.
    #[error("there are several Host fields")]
    ManyHosts,
    /// A Host that is no host and port.
    #[error("the Host field is not valid")]
    Host,
    /// Host and the target's authority differ.
    #[error("the Host field differs from the request target")]
    HostDiffers,
    /// Content-Length that is not one decimal number, or is there twice.
    #[error("Content-Length is not valid")]
    ContentLength,
    /// Content-Length and Transfer-Encoding together.
    #[error("Content-Length and Transfer-Encoding exclude each other")]
    BothLengths,
    /// Transfer-Encoding twice, or in HTTP/1.0.
    #[error("Transfer-Encoding is not valid")]
    TransferEncoding,
    /// A transfer coding other than `chunked`.
    #[error("the transfer coding is not supported")]
    Coding,
    /// A body where the method has none (CONNECT, TRACE).
    #[error("the method does not go with a body")]
    BodyNotAllowed,
    /// Connection names a field that the message cannot do without, or too many.
    #[error("the Connection field is not valid")]
    Connection,
    /// Expect is something other than `100-continue`.
    #[error("the expectation is not known")]
    Expect,
}

impl RequestError {
    /// The status to answer with.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::Field(FieldError::TooLong | FieldError::TooMany) => 431,
            Self::TargetTooLong => 414,
            Self::Version | Self::Http2 => 505,
            Self::Coding => 501,
            Self::Expect => 417,
            _ => 400,
        }
    }

    /// The reason phrase that goes with [`status`](Self::status).
    #[must_use]
    pub const fn reason_phrase(self) -> &'static str {
        match self.status() {
            431 => "Request Header Fields Too Large",
            414 => "URI Too Long",
            505 => "HTTP Version Not Supported",
            501 => "Not Implemented",
            417 => "Expectation Failed",
            _ => "Bad Request",
        }
    }
}

/// An answer that cannot be passed on: the visitor gets 502.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ResponseError {
    /// A field line.
    #[error("{0}")]
    Field(#[from] FieldError),
    /// The first line is no status line.
    #[error("the first line is no status line")]
    StatusLine,
    /// Neither 1.0 nor 1.1.
    #[error("the HTTP version is not supported")]
    Version,
    /// Content-Length that is not one decimal number, or is there twice.
    #[error("Content-Length is not valid")]
    ContentLength,
    /// Content-Length and Transfer-Encoding together.
    #[error("Content-Length and Transfer-Encoding exclude each other")]
    BothLengths,
    /// A transfer coding other than `chunked`, or in HTTP/1.0.
    #[error("the transfer coding is not supported")]
    Coding,
    /// Connection names a field that the message cannot do without, or too many.
    #[error("the Connection field is not valid")]
    Connection,
    /// 101 although no upgrade was asked for, to another protocol than was asked for, or without saying to which.
    #[error("it switches protocols unasked")]
    UnaskedUpgrade,
    /// More interim answers (1xx) than the limit.
    #[error("there are too many interim answers")]
    TooManyInterim,
}

/// A body that breaks its framing: the sender's fault. The connection it came on is of no use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum BodyError {
    /// No hexadecimal size of 1 to 15 digits, or something other than CRLF or `;` behind it.
    #[error("a chunk's size is not valid")]
    ChunkSize,
    /// Chunk extensions that are none, or more of them than the limit.
    #[error("a chunk's extension is not valid")]
    ChunkExtension,
    /// A chunk's data is not followed by CRLF.
    #[error("a chunk does not end where it said")]
    ChunkEnd,
    /// A trailer field.
    #[error("in the trailer: {0}")]
    Trailer(FieldError),
    /// More than was allowed with [`BodyDecoder::set_limit`](crate::BodyDecoder::set_limit).
    #[error("the body is too large")]
    TooLarge,
    /// The connection ended within it.
    #[error("the body ends too early")]
    Truncated,
}

impl BodyError {
    /// The status to answer with, if it was a request's body. With a response's it is 502.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::TooLarge => 413,
            Self::Trailer(FieldError::TooLong | FieldError::TooMany) => 431,
            _ => 400,
        }
    }
}

/// A mistake of the one who writes. Nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum WriteError {
    /// A field's name is no token.
    #[error("the field's name is not valid")]
    Name,
    /// A field's value has control characters.
    #[error("the field's value is not valid")]
    Value,
    /// The field is one that only the writer itself sets (Content-Length, Connection, …).
    #[error("the field is not the caller's to set")]
    NotYours,
    /// The method is no token of at most 32 bytes.
    #[error("the method is not valid")]
    Method,
    /// The target is neither a path, nor `*` with OPTIONS, nor host and port with CONNECT.
    #[error("the request target is not valid")]
    Target,
    /// The host is no host and port.
    #[error("the host is not valid")]
    Host,
    /// The reason phrase has control characters, or the status is not one for this.
    #[error("the status or its reason is not valid")]
    Status,
    /// More body than the head said, or some where there is none.
    #[error("there is more body than was said")]
    TooMuchBody,
    /// Less body than the head said, or the end of it within a chunk.
    #[error("there is less body than was said")]
    TooLittleBody,
    /// This exchange cannot become a tunnel: it was not asked for, or the request's body is not complete.
    #[error("the visitor did not ask for a tunnel")]
    NoTunnel,
}

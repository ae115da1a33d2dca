//! What is wrong with routes as they were written. All of it is the configuration's fault and shows before any request comes.

/// Why a part of a route cannot be built. The text is a predicate ("is not …"): the caller puts the option before it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// A host pattern.
    #[error("is not a host: write example.com, *.example.com, an IP address, or * for all")]
    Host,
    /// A path without `/`, with a byte that no path holds, or longer than 1024 bytes.
    #[error("is not a path: it begins with / and has no spaces, ? or #")]
    Path,
    /// A path that no request is compared with, because requests are brought into normal form first.
    #[error(
        "is a path that no request has: write it without //, dot segments and needless percent signs"
    )]
    PathNotNormal,
    /// A regular expression.
    #[error("is not a regular expression: {reason}")]
    Regex {
        /// What the regex library says, on one line.
        reason: String,
        /// The byte at which it stopped, when it is the syntax.
        at: Option<usize>,
    },
    /// A method.
    #[error("is not a method, as GET or POST")]
    Method,
    /// The name of a header field.
    #[error("is not the name of a header field")]
    HeaderName,
    /// The value of a header field: control characters.
    #[error(
        "is not the value of a header field: it holds a control character or is longer than 4096 bytes"
    )]
    HeaderValue,
    /// A field that framing, routing or the connection depends on.
    #[error("is a header field that only the proxy itself writes")]
    ForbiddenHeader,
    /// A placeholder.
    #[error("has the placeholder {{{0}}}, which does not exist")]
    Placeholder(String),
    /// A brace.
    #[error(
        "has a brace without its partner: write {{{{ or }}}} for a brace that is part of the text"
    )]
    Brace,
    /// A status.
    #[error("is not a status that fits here")]
    Status,
    /// Too many of something.
    #[error("is more than {0}")]
    TooMany(usize),
}

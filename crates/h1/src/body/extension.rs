//! Chunk extensions (RFC 9112 §7.1.1): read by their grammar and dropped. White space is taken behind `;` and around `=` only.

/// Where in the extensions of one chunk the next byte is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extension {
    /// Behind `;`.
    BeforeName,
    Name,
    /// Behind a name and white space.
    AfterName,
    /// Behind `=`.
    BeforeValue,
    Value,
    Quoted,
    /// Behind a backslash within quotes.
    Escaped,
    AfterQuoted,
}

impl Extension {
    /// The state after one more byte; `None` if it has no place there.
    pub(super) fn next(self, byte: u8) -> Option<Self> {
        let token = crate::token::is_token(&[byte]);
        let space = matches!(byte, b' ' | b'\t');
        let text = byte == b'\t' || (byte >= b' ' && byte != 0x7F);
        match (self, byte) {
            (Self::BeforeName, _) if space => Some(self),
            (Self::BeforeName | Self::Name, _) if token => Some(Self::Name),
            (Self::Name | Self::AfterName, b'=') => Some(Self::BeforeValue),
            (Self::Name | Self::AfterName, _) if space => Some(Self::AfterName),
            (Self::BeforeValue, _) if space => Some(self),
            (Self::BeforeValue, b'"') => Some(Self::Quoted),
            (Self::BeforeValue | Self::Value, _) if token => Some(Self::Value),
            (Self::Quoted, b'"') => Some(Self::AfterQuoted),
            (Self::Quoted, b'\\') => Some(Self::Escaped),
            (Self::Quoted | Self::Escaped, _) if text => Some(Self::Quoted),
            (Self::Name | Self::Value | Self::AfterQuoted, b';') => Some(Self::BeforeName),
            _ => None,
        }
    }

    /// Whether the line may end here.
    pub(super) fn may_end(self) -> bool {
        matches!(self, Self::Name | Self::Value | Self::AfterQuoted)
    }
}

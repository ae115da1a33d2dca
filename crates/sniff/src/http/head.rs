//! What is known about a request head once it is complete.

use std::ops::Range;

use super::line;
use crate::host::Authority;

/// The HTTP version of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    Http11,
}

/// Where the routing authority was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoutedBy {
    /// In the request target (absolute or authority form), which wins over Host (RFC 9112 §3.2.2).
    Target,
    /// In the Host field.
    Host,
    /// In the field named with [`HeadSniffer::route_by`](super::HeadSniffer::route_by).
    NamedField,
}

/// What the Content-Length fields say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentLength {
    /// There is none.
    Absent,
    /// One field with one number of bytes.
    Bytes(u64),
    /// Several, a list, or no number: nothing to rely on.
    Odd,
}

/// What the Transfer-Encoding fields say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferEncoding {
    /// There is none.
    Absent,
    /// One field that says `chunked`.
    Chunked,
    /// Anything else.
    Other,
}

/// A complete request head: positions in the buffer that it was read from, and the authority that routes.
///
/// Accessors that take `buf` want that same buffer (it may have grown). Given another, they answer with what is there, or
/// nothing; they do not panic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    pub(super) parts: Parts,
    pub(super) len: usize,
    pub(super) authority: Option<(Authority, RoutedBy)>,
}

/// What the lines say, as far as they were read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parts {
    pub(super) method: Range<usize>,
    pub(super) target: Range<usize>,
    pub(super) version: Version,
    /// Where the first field line begins.
    pub(super) fields: usize,
    pub(super) host: Option<Range<usize>>,
    pub(super) named: Option<Range<usize>>,
    pub(super) content_length: ContentLength,
    pub(super) transfer_encoding: TransferEncoding,
    pub(super) expect_continue: bool,
    pub(super) connection_upgrade: bool,
    pub(super) upgrade_websocket: bool,
    pub(super) websocket_key: Option<Range<usize>>,
}

impl Head {
    /// Length of the head in bytes, with the empty line that ends it (and empty lines that came before it).
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a head is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The method, a token of 1 to 32 bytes.
    #[must_use]
    pub fn method<'b>(&self, buf: &'b [u8]) -> &'b [u8] {
        slice(buf, &self.parts.method)
    }

    /// The request target as it was sent.
    #[must_use]
    pub fn target<'b>(&self, buf: &'b [u8]) -> &'b [u8] {
        slice(buf, &self.parts.target)
    }

    /// The version.
    #[must_use]
    pub fn version(&self) -> Version {
        self.parts.version
    }

    /// The authority that routes. None when the request names no place: HTTP/1.0 without Host, an empty Host, or no field of
    /// the name that was asked for.
    #[must_use]
    pub fn authority(&self) -> Option<&Authority> {
        self.authority.as_ref().map(|(authority, _)| authority)
    }

    /// Where [`authority`](Self::authority) was found.
    #[must_use]
    pub fn routed_by(&self) -> Option<RoutedBy> {
        self.authority.as_ref().map(|&(_, by)| by)
    }

    /// Where the value of the Host field is in the buffer, without white space around it: what to replace to rewrite it. Empty
    /// when the value is.
    #[must_use]
    pub fn host_range(&self) -> Option<Range<usize>> {
        self.parts.host.clone()
    }

    /// What the Content-Length fields say.
    #[must_use]
    pub fn content_length(&self) -> ContentLength {
        self.parts.content_length
    }

    /// What the Transfer-Encoding fields say.
    #[must_use]
    pub fn transfer_encoding(&self) -> TransferEncoding {
        self.parts.transfer_encoding
    }

    /// Whether the client waits for `100 Continue` (RFC 9110 §10.1.1).
    #[must_use]
    pub fn expects_continue(&self) -> bool {
        self.parts.expect_continue
    }

    /// The client's key when this is a WebSocket handshake (RFC 6455 §4.1): GET, HTTP/1.1, `Connection: upgrade`,
    /// `Upgrade: websocket`, and one key of 24 characters.
    #[must_use]
    pub fn websocket_key<'b>(&self, buf: &'b [u8]) -> Option<&'b str> {
        let parts = &self.parts;
        let asked =
            parts.connection_upgrade && parts.upgrade_websocket && parts.version == Version::Http11;
        if !asked || self.method(buf) != b"GET" {
            return None;
        }
        let key = std::str::from_utf8(slice(buf, parts.websocket_key.as_ref()?)).ok()?;
        let is_base64 = |b: u8| b.is_ascii_alphanumeric() || b == b'+' || b == b'/';
        let good = key.len() == 24 && key.ends_with("==") && key.bytes().take(22).all(is_base64);
        good.then_some(key)
    }

    /// The fields in the order in which they were sent.
    #[must_use]
    pub fn fields<'b>(&self, buf: &'b [u8]) -> Fields<'b> {
        Fields {
            buf: buf.get(..self.len).unwrap_or_default(),
            at: self.parts.fields,
        }
    }

    /// The values of the fields called `name`, whatever their case.
    pub fn values<'b>(&self, buf: &'b [u8], name: &str) -> impl Iterator<Item = &'b [u8]> {
        self.fields(buf)
            .filter(move |f| f.name.eq_ignore_ascii_case(name.as_bytes()))
            .map(|f| f.value)
    }
}

/// One field of a head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field<'b> {
    /// The name as it was sent; never empty.
    pub name: &'b [u8],
    /// The value without white space around it. May hold bytes above 0x7F.
    pub value: &'b [u8],
    /// Where the value is in the buffer.
    pub value_range: Range<usize>,
}

/// The fields of a head; see [`Head::fields`].
#[derive(Clone, Debug)]
pub struct Fields<'b> {
    buf: &'b [u8],
    at: usize,
}

impl<'b> Iterator for Fields<'b> {
    type Item = Field<'b>;

    fn next(&mut self) -> Option<Field<'b>> {
        let rest = self.buf.get(self.at..)?;
        let line = &rest[..rest.windows(2).position(|pair| pair == b"\r\n")?];
        let (name, value) = line::field(line).ok()?;
        let value_range = self.at + value.start..self.at + value.end;
        self.at += line.len() + 2;
        Some(Field {
            name: &line[name],
            value: &line[value],
            value_range,
        })
    }
}

pub(super) fn slice<'b>(buf: &'b [u8], range: &Range<usize>) -> &'b [u8] {
    buf.get(range.clone()).unwrap_or_default()
}

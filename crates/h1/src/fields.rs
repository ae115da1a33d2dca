//! The fields of a head: where they are, which of them matter to a proxy, and which do not travel on.

use std::ops::Range;

use crate::token::{is_token, list, looks_like, same_but_case, trim};

/// Fields that mean something to a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Known {
    /// Any other.
    Other,
    /// A request's field whose name has `_` where one of these has `-`. Programs behind that hand fields on as variables take it for that one; it
    /// does not travel on.
    Lookalike,
    /// `Host`.
    Host,
    /// `Content-Length`.
    ContentLength,
    /// `Transfer-Encoding`.
    TransferEncoding,
    /// `Connection`.
    Connection,
    /// `Keep-Alive` and `Proxy-Connection`: of this connection only.
    KeepAlive,
    /// `Upgrade`.
    Upgrade,
    /// `TE`.
    Te,
    /// `Proxy-Authenticate`, `Proxy-Authorization`: between neighbours only.
    ProxyAuth,
    /// `HTTP2-Settings` (RFC 7540 §3.2.1): meant for this connection.
    Http2Settings,
    /// `Expect`.
    Expect,
    /// `X-Forwarded-For`.
    XForwardedFor,
    /// `X-Forwarded-Proto`.
    XForwardedProto,
    /// `X-Forwarded-Host`.
    XForwardedHost,
    /// `X-Forwarded-Port`.
    XForwardedPort,
    /// `X-Real-IP`.
    XRealIp,
    /// `Forwarded` (RFC 7239).
    Forwarded,
    /// `Via`.
    Via,
    /// `Date`.
    Date,
    /// `Cookie`.
    Cookie,
    /// `Authorization`.
    Authorization,
    /// `User-Agent`.
    UserAgent,
    /// `Referer`.
    Referer,
    /// `Accept-Encoding`.
    AcceptEncoding,
    /// `Content-Encoding`.
    ContentEncoding,
    /// `Content-Type`.
    ContentType,
    /// `Server`.
    Server,
    /// `Location`.
    Location,
    /// `Set-Cookie`.
    SetCookie,
}

impl Known {
    /// Neither case nor `_` for `-` makes a difference.
    pub(crate) fn of(name: &[u8]) -> Self {
        // By length and first letter: most names are told apart by those alone.
        match (name.len(), name.first().map_or(0, |b| b | 0x20)) {
            (2, b't') => Self::if_same(name, b"te", Self::Te),
            (3, b'v') => Self::if_same(name, b"via", Self::Via),
            (4, b'h') => Self::if_same(name, b"host", Self::Host),
            (4, b'd') => Self::if_same(name, b"date", Self::Date),
            (6, b'c') => Self::if_same(name, b"cookie", Self::Cookie),
            (6, b'e') => Self::if_same(name, b"expect", Self::Expect),
            (6, b's') => Self::if_same(name, b"server", Self::Server),
            (7, b'r') => Self::if_same(name, b"referer", Self::Referer),
            (7, b'u') => Self::if_same(name, b"upgrade", Self::Upgrade),
            (8, b'l') => Self::if_same(name, b"location", Self::Location),
            (9, b'f') => Self::if_same(name, b"forwarded", Self::Forwarded),
            (9, b'x') => Self::if_same(name, b"x-real-ip", Self::XRealIp),
            (10, b'c') => Self::if_same(name, b"connection", Self::Connection),
            (10, b'k') => Self::if_same(name, b"keep-alive", Self::KeepAlive),
            (10, b's') => Self::if_same(name, b"set-cookie", Self::SetCookie),
            (10, b'u') => Self::if_same(name, b"user-agent", Self::UserAgent),
            (12, b'c') => Self::if_same(name, b"content-type", Self::ContentType),
            (13, b'a') => Self::if_same(name, b"authorization", Self::Authorization),
            (14, b'c') => Self::if_same(name, b"content-length", Self::ContentLength),
            (14, b'h') => Self::if_same(name, b"http2-settings", Self::Http2Settings),
            (15, b'a') => Self::if_same(name, b"accept-encoding", Self::AcceptEncoding),
            (15, b'x') => Self::if_same(name, b"x-forwarded-for", Self::XForwardedFor),
            (16, b'c') => Self::if_same(name, b"content-encoding", Self::ContentEncoding),
            (16, b'p') => Self::if_same(name, b"proxy-connection", Self::KeepAlive),
            (16, b'x') if name[12] | 0x20 == b'h' => {
                Self::if_same(name, b"x-forwarded-host", Self::XForwardedHost)
            }
            (16, b'x') => Self::if_same(name, b"x-forwarded-port", Self::XForwardedPort),
            (17, b't') => Self::if_same(name, b"transfer-encoding", Self::TransferEncoding),
            (17, b'x') => Self::if_same(name, b"x-forwarded-proto", Self::XForwardedProto),
            (18, b'p') => Self::if_same(name, b"proxy-authenticate", Self::ProxyAuth),
            (19, b'p') => Self::if_same(name, b"proxy-authorization", Self::ProxyAuth),
            _ => Self::Other,
        }
    }

    #[inline(always)]
    fn if_same<const N: usize>(name: &[u8], lower: &[u8; N], known: Self) -> Self {
        if same_but_case(name, lower) {
            known
        } else if looks_like(name, lower) {
            // What differs can only be a `_`.
            Self::Lookalike
        } else {
            Self::Other
        }
    }

    /// Whether it is of this connection and not of the message, or written by [`HeadWriter`](crate::HeadWriter) itself: never passed on as it is.
    #[must_use]
    pub const fn is_own(self) -> bool {
        matches!(
            self,
            Self::Lookalike
                | Self::Host
                | Self::ContentLength
                | Self::TransferEncoding
                | Self::Connection
                | Self::KeepAlive
                | Self::Upgrade
                | Self::Te
                | Self::ProxyAuth
                | Self::Http2Settings
        )
    }

    /// Whether it says who the visitor is and what it asked for: what a proxy at the edge must not take over from the visitor.
    #[must_use]
    pub const fn is_forwarding(self) -> bool {
        matches!(
            self,
            Self::XForwardedFor
                | Self::XForwardedProto
                | Self::XForwardedHost
                | Self::XForwardedPort
                | Self::XRealIp
                | Self::Forwarded
        )
    }

    const COUNT: usize = Self::SetCookie as usize + 1;

    const fn bit(self) -> u32 {
        1 << self as u8
    }
}

/// Where a field is in the head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    start: u32,
    name_len: u32,
    value: u32,
    value_len: u32,
    known: Known,
    /// Named by Connection.
    dropped: bool,
    /// `name: value`, as it would be written.
    canonical: bool,
}

/// A field in the bytes that its head was parsed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'b> {
    /// As it was sent.
    pub name: &'b [u8],
    /// Without white space around it.
    pub value: &'b [u8],
    /// What it is to a proxy.
    pub known: Known,
}

/// The places of all fields; kept from message to message.
#[derive(Debug, Default)]
pub(crate) struct Places {
    list: Vec<Place>,
    /// One bit per [`Known`]: what was there, and what was there more than once.
    seen: u32,
    repeated: u32,
    /// Where in the list the first of each kind is; of those that were seen.
    first: [u32; Known::COUNT],
}

impl Places {
    pub(crate) fn clear(&mut self) {
        self.list.clear();
        self.seen = 0;
        self.repeated = 0;
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Gives back room beyond what a usual message needs.
    pub(crate) fn shrink(&mut self) {
        self.list.shrink_to(USUAL_FIELDS);
    }

    /// A line that was found good: its name begins at `start`, and its value ends at `end`.
    pub(crate) fn add(&mut self, bytes: &[u8], start: usize, colon: usize, end: usize) {
        let known = Known::of(&bytes[start..colon]);
        let raw = &bytes[colon + 1..end];
        let (skipped, value) = match raw {
            // One space in front and none behind is what nearly everybody sends.
            [b' ', value @ ..] if is_bare(value) => (1, value),
            raw => {
                // Behind the white space that `trim` took from the front; an empty value is at the end of it.
                let white = raw.iter().take_while(|byte| is_white(**byte));
                (white.count(), trim(raw))
            }
        };
        if self.seen & known.bit() == 0 {
            self.seen |= known.bit();
            self.first[known as usize] = self.list.len() as u32;
        } else {
            self.repeated |= known.bit();
        }
        // All of it fits: see `Limits::most`.
        self.list.push(Place {
            start: start as u32,
            name_len: (colon - start) as u32,
            value: (colon + 1 + skipped) as u32,
            value_len: value.len() as u32,
            known,
            dropped: false,
            canonical: skipped == 1 && raw[0] == b' ' && value.len() + 1 == raw.len(),
        });
    }

    pub(crate) fn has(&self, known: Known) -> bool {
        self.seen & known.bit() != 0
    }

    pub(crate) fn has_several(&self, known: Known) -> bool {
        self.repeated & known.bit() != 0
    }

    /// The value of the first field of a kind; costs nothing if there is none.
    pub(crate) fn value<'b>(&self, known: Known, bytes: &'b [u8]) -> Option<&'b [u8]> {
        if !self.has(known) {
            return None;
        }
        let place = self.list.get(self.first[known as usize] as usize)?;
        Some(place.value(bytes))
    }

    /// The line of the first field of a kind with its CRLF, if it begins with these bytes and is as it would be written anew.
    pub(crate) fn line<'b>(&self, known: Known, start: &[u8], bytes: &'b [u8]) -> Option<&'b [u8]> {
        if !self.has(known) {
            return None;
        }
        let place = self.list.get(self.first[known as usize] as usize)?;
        let line = &bytes[place.line()?];
        line.starts_with(start).then_some(line)
    }

    /// Where the line of the first field ends with its CRLF, if it begins with these bytes and is as it would be written anew.
    pub(crate) fn first_line_end(&self, start: &[u8], bytes: &[u8]) -> Option<usize> {
        let line = self.list.first()?.line()?;
        bytes[line.clone()].starts_with(start).then_some(line.end)
    }

    pub(crate) fn view<'b>(&'b self, bytes: &'b [u8]) -> Fields<'b> {
        Fields {
            places: self,
            bytes,
        }
    }

    /// Marks the fields that Connection names. `Err` if it names what the message cannot do without, or has too many names.
    pub(crate) fn apply_connection(&mut self, bytes: &[u8]) -> Result<Connection, ()> {
        let mut found = Connection::default();
        let Some(value) = self.value(Known::Connection, bytes) else {
            return Ok(found);
        };
        // Two words on their own are what nearly everybody sends.
        if !self.has_several(Known::Connection) {
            found.keep_alive = value == b"keep-alive";
            found.close = value == b"close";
            if found.keep_alive || found.close {
                return Ok(found);
            }
        }
        let mut names = 0;
        for index in 0..self.list.len() {
            let place = self.list[index];
            if place.known != Known::Connection {
                continue;
            }
            for name in list(place.value(bytes)) {
                names += 1;
                if names > MOST_NAMES || !is_token(name) {
                    return Err(());
                }
                if name.eq_ignore_ascii_case(b"close") {
                    found.close = true;
                } else if name.eq_ignore_ascii_case(b"keep-alive") {
                    found.keep_alive = true;
                } else if name.eq_ignore_ascii_case(b"upgrade") {
                    found.upgrade = true;
                } else {
                    self.drop_named(name, bytes)?;
                }
            }
        }
        Ok(found)
    }

    fn drop_named(&mut self, name: &[u8], bytes: &[u8]) -> Result<(), ()> {
        if matches!(
            Known::of(name),
            Known::Host | Known::ContentLength | Known::TransferEncoding
        ) {
            return Err(());
        }
        for place in &mut self.list {
            if place.name(bytes).eq_ignore_ascii_case(name) {
                place.dropped = true;
            }
        }
        Ok(())
    }
}

/// What Connection said.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Connection {
    pub(crate) close: bool,
    pub(crate) keep_alive: bool,
    pub(crate) upgrade: bool,
}

impl Place {
    fn name<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        let start = self.start as usize;
        &bytes[start..start + self.name_len as usize]
    }

    fn value<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        let start = self.value as usize;
        &bytes[start..start + self.value_len as usize]
    }

    /// The line with its CRLF, if it is as it would be written anew.
    pub(crate) fn line(&self) -> Option<Range<usize>> {
        let end = (self.value + self.value_len) as usize + 2;
        self.canonical.then_some(self.start as usize..end)
    }

    fn travels(&self) -> bool {
        !self.dropped && !self.known.is_own()
    }

    pub(crate) fn field<'b>(&self, bytes: &'b [u8]) -> Field<'b> {
        Field {
            name: self.name(bytes),
            value: self.value(bytes),
            known: self.known,
        }
    }
}

/// The fields of one head.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'b> {
    places: &'b Places,
    bytes: &'b [u8],
}

impl<'b> Fields<'b> {
    /// All fields as sent, in order.
    pub fn all(self) -> impl Iterator<Item = Field<'b>> {
        self.places
            .list
            .iter()
            .map(move |place| place.field(self.bytes))
    }

    /// Those that are of the message and not of the connection: without hop-by-hop fields, those that Connection names (RFC 9110 §7.6.1), Host,
    /// framing, and lookalikes of these.
    pub fn end_to_end(self) -> impl Iterator<Item = Field<'b>> {
        self.travelling().map(move |place| place.field(self.bytes))
    }

    pub(crate) fn travelling(self) -> impl Iterator<Item = &'b Place> {
        self.places.list.iter().filter(|place| place.travels())
    }

    pub(crate) fn bytes(self) -> &'b [u8] {
        self.bytes
    }

    /// The values of one name, compared without case, in order.
    pub fn values(self, name: &[u8]) -> impl Iterator<Item = &'b [u8]> {
        self.all()
            .filter(move |field| field.name.eq_ignore_ascii_case(name))
            .map(|field| field.value)
    }

    /// The values of one known field, in order.
    pub fn known(self, known: Known) -> impl Iterator<Item = &'b [u8]> {
        let list = if self.places.has(known) {
            &self.places.list[..]
        } else {
            &[]
        };
        list.iter()
            .filter(move |place| place.known == known)
            .map(move |place| place.value(self.bytes))
    }

    /// The first value of a known field.
    #[must_use]
    pub fn first(self, known: Known) -> Option<&'b [u8]> {
        self.places.value(known, self.bytes)
    }

    /// How many there are.
    #[must_use]
    pub fn len(self) -> usize {
        self.places.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }
}

fn is_white(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// Not empty, and without white space at its ends.
fn is_bare(value: &[u8]) -> bool {
    match value {
        [one] => !is_white(*one),
        [first, .., last] => !is_white(*first) && !is_white(*last),
        [] => false,
    }
}

/// Names in all Connection fields together: each is compared with every field.
const MOST_NAMES: usize = 32;
/// What most messages do with.
const USUAL_FIELDS: usize = 16;

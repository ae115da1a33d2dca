//! The fields of a head: which of them matter to a proxy, and which do not travel on. Where they are, [`Places`] knows.

use crate::{
    places::{Place, Places},
    token::{looks_like, same_but_case},
};

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

    pub(crate) const COUNT: usize = Self::SetCookie as usize + 1;

    pub(crate) const fn bit(self) -> u32 {
        1 << self as u8
    }
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

/// The fields of one head.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'b> {
    places: &'b Places,
    bytes: &'b [u8],
}

impl<'b> Fields<'b> {
    pub(crate) fn new(places: &'b Places, bytes: &'b [u8]) -> Self {
        Self { places, bytes }
    }

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

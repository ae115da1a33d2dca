//! The fields of a head: where they are, which of them matter to a proxy, and which do not travel on.

use crate::{
    error::FieldError,
    token::{is_token, is_value, list, trim},
};

/// Fields a proxy has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Known {
    /// Any other.
    Other,
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
    /// `Expect`.
    Expect,
    /// `Proxy-Authenticate`, `Proxy-Authorization`: between neighbours only.
    ProxyAuth,
    /// `X-Forwarded-For`, `X-Forwarded-Proto`, `X-Forwarded-Host`, `X-Real-IP`, `Forwarded`: who the visitor is.
    Forwarding,
    /// `Date`.
    Date,
    /// `HTTP2-Settings` (RFC 7540 §3.2.1): meant for this connection.
    Http2Settings,
}

impl Known {
    pub(crate) fn of(name: &[u8]) -> Self {
        let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
        // By length first: most names are told apart by it alone.
        match name.len() {
            2 if is(b"te") => Self::Te,
            4 if is(b"host") => Self::Host,
            4 if is(b"date") => Self::Date,
            6 if is(b"expect") => Self::Expect,
            7 if is(b"upgrade") => Self::Upgrade,
            9 if is(b"x-real-ip") || is(b"forwarded") => Self::Forwarding,
            10 if is(b"connection") => Self::Connection,
            10 if is(b"keep-alive") => Self::KeepAlive,
            14 if is(b"content-length") => Self::ContentLength,
            14 if is(b"http2-settings") => Self::Http2Settings,
            15 if is(b"x-forwarded-for") => Self::Forwarding,
            16 if is(b"x-forwarded-host") => Self::Forwarding,
            16 if is(b"proxy-connection") => Self::KeepAlive,
            17 if is(b"transfer-encoding") => Self::TransferEncoding,
            17 if is(b"x-forwarded-proto") => Self::Forwarding,
            18 if is(b"proxy-authenticate") => Self::ProxyAuth,
            19 if is(b"proxy-authorization") => Self::ProxyAuth,
            _ => Self::Other,
        }
    }

    /// Of this connection, not of the message: never passed on as it is.
    pub(crate) const fn is_hop_by_hop(self) -> bool {
        matches!(
            self,
            Self::ContentLength
                | Self::TransferEncoding
                | Self::Connection
                | Self::KeepAlive
                | Self::Upgrade
                | Self::Te
                | Self::ProxyAuth
                | Self::Http2Settings
        )
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
#[derive(Clone, Copy, Debug)]
pub struct Field<'b> {
    /// As it was sent.
    pub name: &'b [u8],
    /// Without white space around it.
    pub value: &'b [u8],
    /// What it is to a proxy.
    pub known: Known,
    pub(crate) raw: Option<&'b [u8]>,
}

/// The places of all fields; kept from message to message.
#[derive(Debug, Default)]
pub(crate) struct Places(Vec<Place>);

impl Places {
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Reads one line that is not empty. `start` is its place in the head.
    pub(crate) fn add(
        &mut self,
        start: usize,
        line: &[u8],
        limit: usize,
    ) -> Result<Known, FieldError> {
        let (name_len, value) = split(line)?;
        if self.0.len() >= limit {
            return Err(FieldError::TooMany);
        }
        let known = Known::of(&line[..name_len]);
        let offset = value.as_ptr() as usize - line.as_ptr() as usize;
        self.0.push(Place {
            start: narrow(start),
            name_len: narrow(name_len),
            value: narrow(start + offset),
            value_len: narrow(value.len()),
            known,
            dropped: false,
            canonical: line.get(name_len + 1) == Some(&b' ')
                && offset == name_len + 2
                && offset + value.len() == line.len(),
        });
        Ok(known)
    }

    pub(crate) fn view<'b>(&'b self, bytes: &'b [u8]) -> Fields<'b> {
        Fields {
            places: &self.0,
            bytes,
        }
    }

    /// Marks the fields that Connection names. `Err` if it names what the message cannot do without, or has too many names.
    pub(crate) fn apply_connection(&mut self, bytes: &[u8]) -> Result<Connection, ()> {
        let mut found = Connection::default();
        let mut names = 0;
        for index in 0..self.0.len() {
            let place = self.0[index];
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
        for place in &mut self.0 {
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

    fn field<'b>(&self, bytes: &'b [u8]) -> Field<'b> {
        // With its CRLF.
        let end = (self.value + self.value_len) as usize + 2;
        Field {
            name: self.name(bytes),
            value: self.value(bytes),
            known: self.known,
            raw: self.canonical.then(|| &bytes[self.start as usize..end]),
        }
    }
}

/// The fields of one head.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'b> {
    places: &'b [Place],
    bytes: &'b [u8],
}

impl<'b> Fields<'b> {
    /// All fields as sent, in order.
    pub fn all(self) -> impl Iterator<Item = Field<'b>> {
        self.places.iter().map(move |place| place.field(self.bytes))
    }

    /// Those that are of the message and not of the connection: without hop-by-hop fields and those that Connection names
    /// (RFC 9110 §7.6.1). Framing fields are not among them: a writer sets its own.
    pub fn end_to_end(self) -> impl Iterator<Item = Field<'b>> {
        self.places
            .iter()
            .filter(|place| !place.dropped && !place.known.is_hop_by_hop())
            .map(move |place| place.field(self.bytes))
    }

    /// The values of one name, compared without case, in order.
    pub fn values(self, name: &'b [u8]) -> impl Iterator<Item = &'b [u8]> {
        self.places
            .iter()
            .filter(move |place| {
                place.name_len as usize == name.len()
                    && place.name(self.bytes).eq_ignore_ascii_case(name)
            })
            .map(move |place| place.value(self.bytes))
    }

    /// The values of one known field.
    pub fn known(self, known: Known) -> impl Iterator<Item = &'b [u8]> {
        self.places
            .iter()
            .filter(move |place| place.known == known)
            .map(move |place| place.value(self.bytes))
    }

    /// How many there are.
    #[must_use]
    pub fn len(self) -> usize {
        self.places.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.places.is_empty()
    }
}

/// Name length and value of a field line.
pub(crate) fn split(line: &[u8]) -> Result<(usize, &[u8]), FieldError> {
    if let [b' ' | b'\t', ..] = line {
        return Err(FieldError::Folded);
    }
    let colon = memchr::memchr(b':', line).ok_or(FieldError::NoField)?;
    let name = &line[..colon];
    if name.is_empty() {
        return Err(FieldError::NoField);
    }
    if let [.., b' ' | b'\t'] = name {
        return Err(FieldError::SpaceBeforeColon);
    }
    if !is_token(name) {
        return Err(FieldError::Name);
    }
    let value = trim(&line[colon + 1..]);
    if !is_value(value) {
        let cr = value.contains(&b'\r');
        return Err(if cr {
            FieldError::BareCr
        } else {
            FieldError::Value
        });
    }
    Ok((colon, value))
}

fn narrow(n: usize) -> u32 {
    // Heads are limited far below.
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// Names in all Connection fields together: each is compared with every field.
const MOST_NAMES: usize = 32;

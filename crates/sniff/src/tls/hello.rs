//! Reads the fields of a complete ClientHello (RFC 8446 §4.1.2; the same in TLS 1.0 to 1.2).

use super::TlsError;
use crate::host::Host;

/// What a ClientHello says about where it wants to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientHello {
    /// The name in the server_name extension (RFC 6066 §3): lower case, no trailing dot. An address put there counts as none.
    pub server_name: Option<String>,
    /// The protocol names in the ALPN extension (RFC 7301 §3.1) in the order of preference, each of 1 to 255 bytes, at most
    /// [`MAX_PROTOCOLS`]. Empty when there is no such extension.
    pub alpn: Vec<Vec<u8>>,
    /// Whether the hello carries an Encrypted Client Hello (RFC 9849). Then `server_name` is the outer, public name, unless
    /// the extension is there for form only.
    pub encrypted_hello: bool,
    /// Length in bytes of what was read, record headers included. Bytes behind it belong to the connection too.
    pub len: usize,
}

/// Most protocol names accepted. Clients offer a handful; thousands of one-byte names would cost memory out of proportion.
pub const MAX_PROTOCOLS: usize = 64;

const SERVER_NAME: u16 = 0;
const ALPN: u16 = 16;
const ENCRYPTED_CLIENT_HELLO: u16 = 0xFE0D;
const HOST_NAME: u8 = 0;

impl ClientHello {
    /// Reads a whole handshake message; `len` is what it took in the buffer.
    pub(super) fn parse(message: &[u8], len: usize) -> Result<Self, TlsError> {
        // The message's type and length were checked.
        let mut body = Reader(message.get(4..).ok_or(TlsError::Malformed)?);
        body.take(2 + 32)?;
        if body.list8()?.len() > 32 {
            return Err(TlsError::Malformed);
        }
        let suites = body.list16()?.len();
        if suites == 0 || suites % 2 != 0 || body.list8()?.is_empty() {
            return Err(TlsError::Malformed);
        }
        let mut hello = Self {
            server_name: None,
            alpn: Vec::new(),
            encrypted_hello: false,
            len,
        };
        if body.0.is_empty() {
            // TLS 1.2 and older may have no extensions.
            return Ok(hello);
        }
        let mut extensions = Reader(body.list16()?);
        if !body.0.is_empty() {
            return Err(TlsError::Malformed);
        }
        let (mut named, mut listed) = (false, false);
        while !extensions.0.is_empty() {
            let kind = extensions.u16()?;
            let data = extensions.list16()?;
            match kind {
                SERVER_NAME => {
                    once(&mut named)?;
                    hello.server_name = server_name(data)?;
                }
                ALPN => {
                    once(&mut listed)?;
                    hello.alpn = protocols(data)?;
                }
                ENCRYPTED_CLIENT_HELLO => once(&mut hello.encrypted_hello)?,
                _ => {}
            }
        }
        Ok(hello)
    }
}

fn once(seen: &mut bool) -> Result<(), TlsError> {
    if std::mem::replace(seen, true) {
        Err(TlsError::Repeated)
    } else {
        Ok(())
    }
}

fn server_name(data: &[u8]) -> Result<Option<String>, TlsError> {
    let mut data = Reader(data);
    let mut list = Reader(data.list16().map_err(|_| TlsError::BadServerName)?);
    if list.0.is_empty() || !data.0.is_empty() {
        return Err(TlsError::BadServerName);
    }
    let mut found = None;
    while let [kind, rest @ ..] = list.0 {
        if *kind != HOST_NAME {
            // The length of other kinds is not known, so nothing behind them can be read.
            break;
        }
        list.0 = rest;
        let name = list.list16().map_err(|_| TlsError::BadServerName)?;
        let name = std::str::from_utf8(name)
            .ok()
            .and_then(|name| host(name).ok())
            .ok_or(TlsError::BadServerName)?;
        if found.replace(name).is_some() {
            return Err(TlsError::BadServerName);
        }
    }
    Ok(found.flatten())
}

/// A name; `None` for an address, which has no business here but is sent by some clients.
fn host(text: &str) -> Result<Option<String>, ()> {
    if text.parse::<std::net::IpAddr>().is_ok() {
        return Ok(None);
    }
    match Host::parse(text) {
        Ok(Host::Name(name)) => Ok(Some(name)),
        Ok(Host::Ip(_)) => Ok(None),
        Err(_) => Err(()),
    }
}

fn protocols(data: &[u8]) -> Result<Vec<Vec<u8>>, TlsError> {
    let mut data = Reader(data);
    let mut list = Reader(data.list16().map_err(|_| TlsError::BadAlpn)?);
    if list.0.is_empty() || !data.0.is_empty() {
        return Err(TlsError::BadAlpn);
    }
    let mut names = Vec::new();
    while !list.0.is_empty() {
        let name = list.list8().map_err(|_| TlsError::BadAlpn)?;
        if name.is_empty() || names.len() == MAX_PROTOCOLS {
            return Err(TlsError::BadAlpn);
        }
        names.push(name.to_vec());
    }
    Ok(names)
}

/// Takes fields from the front of a slice.
struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    fn take(&mut self, n: usize) -> Result<&'b [u8], TlsError> {
        let (taken, rest) = self.0.split_at_checked(n).ok_or(TlsError::Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn u16(&mut self) -> Result<u16, TlsError> {
        self.take(2).map(|b| u16::from_be_bytes([b[0], b[1]]))
    }

    fn list8(&mut self) -> Result<&'b [u8], TlsError> {
        let n = self.take(1)?[0];
        self.take(n.into())
    }

    fn list16(&mut self) -> Result<&'b [u8], TlsError> {
        let n = self.u16()?;
        self.take(n.into())
    }
}

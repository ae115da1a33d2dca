//! Who the visitor is, and the fields that tell the upstream: X-Forwarded-For, -Proto, -Host, X-Real-IP, Forwarded (RFC 7239).
//!
//! What a visitor sends in these fields is worth nothing unless the peer is a proxy that is trusted. Then what it sent is continued, else
//! replaced.

use std::{
    io::Write,
    net::{IpAddr, SocketAddr},
};

use crate::{
    Headers, IpSet, Scheme, Template,
    request::{is_token, plain_ip, values},
};

/// Where a trusted proxy says who the visitor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientIpSource {
    /// `X-Forwarded-For`, read from its end past trusted proxies.
    #[default]
    XForwardedFor,
    /// `Forwarded`, likewise.
    Forwarded,
    /// `X-Real-IP`.
    XRealIp,
}

/// What `Host` says to the upstream.
#[derive(Debug, Clone, Default)]
pub enum HostField {
    /// What the visitor asked for.
    #[default]
    Visitor,
    /// The server's name or address as configured.
    Server,
    /// This text.
    Fixed(Template),
}

/// Which fields are written, and whom to believe.
#[derive(Debug, Clone)]
pub struct Forwarding {
    /// Proxies whose fields are believed.
    pub trusted: IpSet,
    /// Which of their fields names the visitor.
    pub client_ip: ClientIpSource,
    /// Write X-Forwarded-For.
    pub x_forwarded_for: bool,
    /// Write X-Forwarded-Proto.
    pub x_forwarded_proto: bool,
    /// Write X-Forwarded-Host.
    pub x_forwarded_host: bool,
    /// Write X-Real-IP.
    pub x_real_ip: bool,
    /// Write Forwarded.
    pub forwarded: bool,
}

impl Default for Forwarding {
    /// Nobody is trusted; the X- fields are written and `Forwarded` is not.
    fn default() -> Self {
        Self {
            trusted: IpSet::default(),
            client_ip: ClientIpSource::default(),
            x_forwarded_for: true,
            x_forwarded_proto: true,
            x_forwarded_host: true,
            x_real_ip: true,
            forwarded: false,
        }
    }
}

/// How a request came.
#[derive(Clone, Copy)]
pub struct VisitorView<'a> {
    /// Who is at the other end of the connection (or who the PROXY header says it is).
    pub peer: SocketAddr,
    /// How it came.
    pub scheme: Scheme,
    /// The value of `Host`, with port.
    pub authority: &'a [u8],
    /// The fields.
    pub headers: &'a dyn Headers,
}

/// Who the visitor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Visitor {
    /// The address; IPv4 is never mapped into IPv6. The port is 0 where a proxy did not say it.
    pub addr: SocketAddr,
    /// The peer is a trusted proxy.
    pub via_trusted: bool,
}

/// The fields this module writes, in lower case. The caller leaves all of them out when it copies a request head, whether or not they are written:
/// those that are switched off would carry what the visitor claims.
const FIELDS: [&str; 8] = [
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
    "x-real-ip",
    "forwarded",
    "x-forwarded-port",
    "x-forwarded-prefix",
    "x-forwarded-server",
];

impl Forwarding {
    /// The visitor of a request.
    pub fn visitor(&self, view: &VisitorView<'_>) -> Visitor {
        let peer = SocketAddr::new(plain_ip(view.peer.ip()), view.peer.port());
        let via_trusted = self.trusted.contains(peer.ip());
        if !via_trusted {
            return Visitor {
                addr: peer,
                via_trusted,
            };
        }
        let addr = match self.client_ip {
            ClientIpSource::XForwardedFor => {
                self.last_untrusted(view, "x-forwarded-for", parse_node)
            }
            ClientIpSource::Forwarded => self.last_untrusted(view, "forwarded", parse_forwarded),
            ClientIpSource::XRealIp => view.headers.nth("x-real-ip", 0).and_then(parse_node),
        };
        Visitor {
            addr: addr.unwrap_or(peer),
            via_trusted,
        }
    }

    /// The entry before the trusted ones; the first one if all are trusted. An entry that is no address ends the search: what stands before it
    /// was not seen by anybody who is trusted.
    fn last_untrusted(
        &self,
        view: &VisitorView<'_>,
        name: &str,
        parse: fn(&[u8]) -> Option<SocketAddr>,
    ) -> Option<SocketAddr> {
        let mut found = None;
        let fields = values(view.headers, name).count();
        for n in (0..fields).rev() {
            for entry in view.headers.nth(name, n)?.rsplit(|byte| *byte == b',') {
                let Some(addr) = parse(entry.trim_ascii()) else {
                    return found;
                };
                found = Some(addr);
                if !self.trusted.contains(addr.ip()) {
                    return found;
                }
            }
        }
        found
    }

    /// A field of the request head with this name (in any case) is not copied: it is written here, or it would carry a claim of the visitor's.
    /// What a trusted proxy sent in fields that are not written here passes.
    pub fn replaces(&self, name: &[u8], visitor: &Visitor) -> bool {
        // Few fields begin like one of them.
        if !matches!(name.first(), Some(b'x' | b'X' | b'f' | b'F')) {
            return false;
        }
        let Some(n) = FIELDS
            .iter()
            .position(|field| field.as_bytes().eq_ignore_ascii_case(name))
        else {
            return false;
        };
        let written = [
            self.x_forwarded_for,
            self.x_forwarded_proto,
            self.x_forwarded_host,
            self.x_real_ip,
            self.forwarded,
        ];
        !visitor.via_trusted || written.get(n).copied().unwrap_or(false)
    }

    /// Writes the fields: `field` gets each name and, in the buffer it is given, the value. Nothing is allocated once `value` is large enough.
    pub fn write(
        &self,
        view: &VisitorView<'_>,
        visitor: &Visitor,
        value: &mut Vec<u8>,
        mut field: impl FnMut(&'static str, &[u8]),
    ) {
        let trusted = visitor.via_trusted;
        if self.x_forwarded_for {
            value.clear();
            continue_list(trusted, view.headers, "x-forwarded-for", value);
            write_ip(plain_ip(view.peer.ip()), value);
            field("x-forwarded-for", value);
        }
        if self.x_forwarded_proto {
            let sent = trusted.then(|| view.headers.nth("x-forwarded-proto", 0));
            let known = sent
                .flatten()
                .filter(|sent| [b"http".as_slice(), b"https"].contains(sent));
            let proto = known.unwrap_or(view.scheme.as_str().as_bytes());
            field("x-forwarded-proto", proto);
        }
        self.write_host(view, visitor, &mut field);
        if self.x_real_ip {
            value.clear();
            write_ip(visitor.addr.ip(), value);
            field("x-real-ip", value);
        }
        self.write_forwarded(view, visitor, value, &mut field);
    }

    /// As [`write`](Self::write), those alone that say what was asked for. The others are the same for all requests of a connection, unless its peer is
    /// trusted and says with each who the visitor is.
    pub fn write_of_request(
        &self,
        view: &VisitorView<'_>,
        visitor: &Visitor,
        value: &mut Vec<u8>,
        mut field: impl FnMut(&'static str, &[u8]),
    ) {
        self.write_host(view, visitor, &mut field);
        self.write_forwarded(view, visitor, value, &mut field);
    }

    /// Whether a field of this name is one of [`write_of_request`](Self::write_of_request).
    #[must_use]
    pub fn is_of_request(name: &str) -> bool {
        matches!(name, "x-forwarded-host" | "forwarded")
    }

    fn write_host(
        &self,
        view: &VisitorView<'_>,
        visitor: &Visitor,
        field: &mut impl FnMut(&'static str, &[u8]),
    ) {
        if self.x_forwarded_host {
            let sent = (visitor.via_trusted).then(|| view.headers.nth("x-forwarded-host", 0));
            field("x-forwarded-host", sent.flatten().unwrap_or(view.authority));
        }
    }

    fn write_forwarded(
        &self,
        view: &VisitorView<'_>,
        visitor: &Visitor,
        value: &mut Vec<u8>,
        field: &mut impl FnMut(&'static str, &[u8]),
    ) {
        if self.forwarded {
            value.clear();
            continue_list(visitor.via_trusted, view.headers, "forwarded", value);
            forwarded_element(view, value);
            field("forwarded", value);
        }
    }
}

/// An address as text. By hand for IPv4: twice per request, the machinery of formatting costs more than all else that is written here.
fn write_ip(ip: IpAddr, out: &mut Vec<u8>) {
    let IpAddr::V4(ip) = ip else {
        // Writing to a Vec does not fail.
        let _ = write!(out, "{ip}");
        return;
    };
    // Four times up to three digits and a dot, put together here so that the buffer's room is asked for once.
    let mut text = [0; 16];
    let mut len = 0;
    for octet in ip.octets() {
        if octet >= 100 {
            text[len] = b'0' + octet / 100;
            len += 1;
        }
        if octet >= 10 {
            text[len] = b'0' + octet / 10 % 10;
            len += 1;
        }
        text[len] = b'0' + octet % 10;
        text[len + 1] = b'.';
        len += 2;
    }
    out.extend_from_slice(&text[..len - 1]);
}

/// What a trusted proxy sent, and a comma.
fn continue_list(trusted: bool, headers: &dyn Headers, name: &str, out: &mut Vec<u8>) {
    if !trusted {
        return;
    }
    for sent in values(headers, name).filter(|sent| !sent.is_empty()) {
        out.extend_from_slice(sent);
        out.extend_from_slice(b", ");
    }
}

/// `for=192.0.2.60;host=example.com;proto=https` (RFC 7239 §4), quoted where it is no token.
fn forwarded_element(view: &VisitorView<'_>, out: &mut Vec<u8>) {
    let _ = match plain_ip(view.peer.ip()) {
        IpAddr::V4(ip) => write!(out, "for={ip}"),
        // RFC 7239 §6: IPv6 in brackets, and so in quotes.
        IpAddr::V6(ip) => write!(out, "for=\"[{ip}]\""),
    };
    if !view.authority.is_empty() {
        out.extend_from_slice(b";host=");
        if view.authority.iter().all(|byte| is_token(*byte)) {
            out.extend_from_slice(view.authority);
        } else {
            out.push(b'"');
            for byte in view.authority {
                if matches!(byte, b'"' | b'\\') {
                    out.push(b'\\');
                }
                out.push(*byte);
            }
            out.push(b'"');
        }
    }
    let _ = write!(out, ";proto={}", view.scheme.as_str());
}

/// `192.0.2.1`, `192.0.2.1:4711`, `2001:db8::1`, `[2001:db8::1]`, `[2001:db8::1]:4711`.
fn parse_node(text: &[u8]) -> Option<SocketAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let addr = if let Ok(ip) = text.parse::<IpAddr>() {
        SocketAddr::new(ip, 0)
    } else if let Some(inside) = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'))
    {
        SocketAddr::new(IpAddr::V6(inside.parse().ok()?), 0)
    } else {
        text.parse().ok()?
    };
    Some(SocketAddr::new(plain_ip(addr.ip()), addr.port()))
}

/// The `for` of one element of Forwarded.
fn parse_forwarded(element: &[u8]) -> Option<SocketAddr> {
    element.split(|byte| *byte == b';').find_map(|pair| {
        let at = pair.iter().position(|byte| *byte == b'=')?;
        let (name, value) = (pair[..at].trim_ascii(), pair[at + 1..].trim_ascii());
        if !name.eq_ignore_ascii_case(b"for") {
            return None;
        }
        let quoted = value
            .strip_prefix(b"\"")
            .and_then(|value| value.strip_suffix(b"\""));
        parse_node(quoted.unwrap_or(value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_the_standard_library_does() {
        let mut ips: Vec<IpAddr> = vec![
            "2001:db8::1".parse().expect("an address"),
            "::".parse().expect("an address"),
        ];
        for n in 0..=255u8 {
            ips.push(IpAddr::from([n, n.wrapping_mul(7), 255 - n, n / 3]));
        }
        for ip in ips {
            let mut out = Vec::new();
            write_ip(ip, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), ip.to_string());
        }
    }
}

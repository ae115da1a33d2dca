//! Host patterns: an exact name, a wildcard for everything below a name, or any host.

use std::net::{IpAddr, Ipv6Addr};

use crate::BuildError;

/// Longest host that is looked up by name; longer ones fit rules for any host only (RFC 1035 §2.3.4).
pub(crate) const MAX_HOST: usize = 255;

/// Which hosts fit: `example.com`, `*.example.com` (one or more labels before it), `*`; a port may follow. The default is every host.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct HostPattern {
    kind: Kind,
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
enum Kind {
    #[default]
    Any,
    Exact(Box<[u8]>),
    /// With its first dot.
    Below(Box<[u8]>),
}

impl HostPattern {
    /// Parses a pattern: a name or address, in any case, with or without a final dot; `.example.com` is `*.example.com`.
    ///
    /// # Errors
    /// [`BuildError::Host`].
    pub fn new(text: &str) -> Result<Self, BuildError> {
        let (host, port) = split_port(text)?;
        let kind = if host == "*" {
            Kind::Any
        } else if let Some(below) = host
            .strip_prefix('*')
            .or(host.starts_with('.').then_some(host))
        {
            let name = below.strip_prefix('.').ok_or(BuildError::Host)?;
            Kind::Below(format!(".{}", name_of(name)?).into_bytes().into())
        } else {
            Kind::Exact(name_of(host)?.into_bytes().into())
        };
        Ok(Self { kind, port })
    }

    /// The exact host in lower case.
    pub fn exact(&self) -> Option<&[u8]> {
        match &self.kind {
            Kind::Exact(name) => Some(name),
            _ => None,
        }
    }

    /// What a host must end with, from its dot on.
    pub fn suffix(&self) -> Option<&[u8]> {
        match &self.kind {
            Kind::Below(suffix) => Some(suffix),
            _ => None,
        }
    }

    /// Every host fits.
    pub fn is_any(&self) -> bool {
        self.kind == Kind::Any
    }

    /// The port that must be asked for.
    pub fn port(&self) -> Option<u16> {
        self.port
    }
}

fn split_port(text: &str) -> Result<(&str, Option<u16>), BuildError> {
    // A bare IPv6 address has colons of its own.
    if text.parse::<Ipv6Addr>().is_ok() {
        return Ok((text, None));
    }
    match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => {
            let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
            let port = port.parse().ok().filter(|port| digits && *port != 0);
            Ok((host, Some(port.ok_or(BuildError::Host)?)))
        }
        _ => Ok((text, None)),
    }
}

fn name_of(text: &str) -> Result<String, BuildError> {
    let inside = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'));
    if let Ok(address) = inside.unwrap_or(text).parse::<Ipv6Addr>() {
        return Ok(format!("[{address}]"));
    }
    let name = text.strip_suffix('.').unwrap_or(text);
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    if inside.is_some() || name.len() > 253 || !name.split('.').all(label) {
        return Err(BuildError::Host);
    }
    Ok(name.to_ascii_lowercase())
}

/// A visitor's host as it is looked up: lower case, no final dot, an IPv6 address in its shortest form. `None` when there is none or it is too long.
pub(crate) fn lower_host<'a>(host: &[u8], buffer: &'a mut [u8; MAX_HOST]) -> Option<&'a [u8]> {
    if host.first() == Some(&b'[') {
        let inside = host.strip_prefix(b"[")?.strip_suffix(b"]")?;
        let address: IpAddr = std::str::from_utf8(inside).ok()?.parse().ok()?;
        let mut rest = &mut buffer[..];
        std::io::Write::write_fmt(&mut rest, format_args!("[{address}]")).ok()?;
        let left = rest.len();
        return Some(&buffer[..MAX_HOST - left]);
    }
    let host = host.strip_suffix(b".").unwrap_or(host);
    let lower = buffer
        .get_mut(..host.len())
        .filter(|lower| !lower.is_empty())?;
    lower.copy_from_slice(host);
    lower.make_ascii_lowercase();
    Some(lower)
}

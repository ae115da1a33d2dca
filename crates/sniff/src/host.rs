//! A host with an optional port, as it stands in `Host`, `:authority` and request targets.
//!
//! Text goes in, a checked and normalised value comes out. Names are limited to what DNS carries (letters, digits, `-`, `_`,
//! `.`): percent-encoding and raw Unicode are refused, because nothing that routes by name could agree on what they mean.
//! Looking names up is left to others.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// Longest name accepted, in bytes, without the trailing dot (RFC 1035 §2.3.4).
pub const MAX_NAME: usize = 253;
/// Longest label accepted, in bytes (RFC 1035 §2.3.4).
pub const MAX_LABEL: usize = 63;

/// A name or an address, normalised.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// A DNS name: lower case, no trailing dot, 1 to [`MAX_NAME`] bytes.
    Name(String),
    /// An address.
    Ip(IpAddr),
}

/// A [`Host`] and the port that was written after it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Authority {
    host: Host,
    port: Option<u16>,
}

/// Why a text is no authority. The peer's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthorityError {
    /// Nothing stands where the host should be.
    #[error("the host is empty")]
    Empty,
    /// Longer than [`MAX_NAME`], or a label longer than [`MAX_LABEL`].
    #[error("the host name is too long")]
    TooLong,
    /// Two dots in a row, or one at the beginning.
    #[error("the host name has an empty label")]
    EmptyLabel,
    /// A byte that host names do not have.
    #[error("the host name has a character that host names do not have")]
    BadCharacter,
    /// What stands in brackets is no IPv6 address (zones and IPvFuture are not taken).
    #[error("the bracketed host is not an IPv6 address")]
    BadIpv6,
    /// The port is not a number from 0 to 65535.
    #[error("the port is not a number from 0 to 65535")]
    BadPort,
}

impl Authority {
    /// Reads `name`, `name:port`, `1.2.3.4:port` or `[v6]:port`. An empty port counts as none (RFC 3986 §3.2.3).
    ///
    /// # Errors
    /// What is wrong with the text; see [`AuthorityError`].
    pub fn parse(text: &str) -> Result<Self, AuthorityError> {
        if let Some(rest) = text.strip_prefix('[') {
            let (inside, after) = rest.split_once(']').ok_or(AuthorityError::BadIpv6)?;
            let ip: Ipv6Addr = inside.parse().map_err(|_| AuthorityError::BadIpv6)?;
            let port = match after.strip_prefix(':') {
                Some(port) => parse_port(port)?,
                None if after.is_empty() => None,
                None => return Err(AuthorityError::BadPort),
            };
            return Ok(Self {
                host: Host::Ip(IpAddr::V6(ip)),
                port,
            });
        }
        let (host, port) = match text.split_once(':') {
            Some((host, port)) => (host, parse_port(port)?),
            None => (text, None),
        };
        Ok(Self {
            host: Host::parse(host)?,
            port,
        })
    }

    /// The host.
    #[must_use]
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The port, when one was written.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// The whole name; an address has none.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match &self.host {
            Host::Name(name) => Some(name),
            Host::Ip(_) => None,
        }
    }

    /// PREFIX of `PREFIX.anything`. A name of one label is its own prefix; an address has none.
    #[must_use]
    pub fn first_label(&self) -> Option<&str> {
        self.name().and_then(|name| name.split('.').next())
    }
}

impl Host {
    /// Reads a name or an IPv4 address, without brackets and port.
    ///
    /// # Errors
    /// What is wrong with the text; see [`AuthorityError`].
    pub fn parse(text: &str) -> Result<Self, AuthorityError> {
        if let Ok(ip) = text.parse::<Ipv4Addr>() {
            return Ok(Self::Ip(IpAddr::V4(ip)));
        }
        let name = text.strip_suffix('.').unwrap_or(text);
        if name.is_empty() {
            return Err(if text.is_empty() {
                AuthorityError::Empty
            } else {
                AuthorityError::EmptyLabel
            });
        }
        if name.len() > MAX_NAME {
            return Err(AuthorityError::TooLong);
        }
        for label in name.split('.') {
            match label.len() {
                0 => return Err(AuthorityError::EmptyLabel),
                1..=MAX_LABEL => {}
                _ => return Err(AuthorityError::TooLong),
            }
            if !label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
            {
                return Err(AuthorityError::BadCharacter);
            }
        }
        // "1.2.3.4." is the address for every resolver, and must not be taken for a name.
        if let Ok(ip) = name.parse::<Ipv4Addr>() {
            return Ok(Self::Ip(IpAddr::V4(ip)));
        }
        Ok(Self::Name(name.to_ascii_lowercase()))
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Ip(IpAddr::V4(ip)) => ip.fmt(f),
            Self::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]"),
        }
    }
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.host.fmt(f)?;
        match self.port {
            Some(port) => write!(f, ":{port}"),
            None => Ok(()),
        }
    }
}

fn parse_port(text: &str) -> Result<Option<u16>, AuthorityError> {
    if text.is_empty() {
        return Ok(None);
    }
    // `u16::from_str` alone would take "+80".
    if text.len() > 5 || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(AuthorityError::BadPort);
    }
    text.parse().map(Some).map_err(|_| AuthorityError::BadPort)
}

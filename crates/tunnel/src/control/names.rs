//! Checked values of service declarations: host names and address ranges.

use std::{fmt, net::IpAddr, str::FromStr};

use crate::error::InvalidValue;

/// Why a declaration's value is not accepted: the same type for all of them.
pub type BadService = InvalidValue;

/// The first label of the names a service is reached by: 1 to 63 of `a-z 0-9 - _`, no `-` at either end. Capitals become small.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostPrefix(Box<str>);

impl HostPrefix {
    /// Checks a label.
    ///
    /// # Errors
    /// When it is no host label.
    pub fn new(label: &str) -> Result<Self, InvalidValue> {
        if is_label(label) {
            Ok(Self(label.to_ascii_lowercase().into()))
        } else {
            Err(InvalidValue {
                what: "host prefix",
                rule: "one host label: 1 to 63 of a-z 0-9 - _, no - at either end",
            })
        }
    }

    /// The label.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A full host name: labels as of [`HostPrefix`] with dots between, 253 bytes at most. Capitals become small, a final dot goes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostName(Box<str>);

impl HostName {
    /// Checks a name.
    ///
    /// # Errors
    /// When it is no host name.
    pub fn new(name: &str) -> Result<Self, InvalidValue> {
        let name = name.strip_suffix('.').unwrap_or(name);
        if name.len() <= 253 && name.split('.').all(is_label) {
            Ok(Self(name.to_ascii_lowercase().into()))
        } else {
            Err(InvalidValue {
                what: "host",
                rule: "a host name of at most 253 bytes",
            })
        }
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A range of addresses such as `10.0.0.0/8` or `2001:db8::/32`; a bare address is a range of one. Bits past the prefix are kept; a
/// range of IPv4 written as IPv6 (`::ffff:10.0.0.0/104`) becomes what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cidr {
    address: IpAddr,
    prefix: u8,
}

impl Cidr {
    /// Makes a range.
    ///
    /// # Errors
    /// When `prefix` has more bits than the address.
    pub fn new(address: IpAddr, prefix: u8) -> Result<Self, InvalidValue> {
        // Visitors' addresses are compared as IPv4 where they are IPv4, so ranges are kept that way too.
        if let (IpAddr::V4(v4), true, 96..=128) =
            (address.to_canonical(), address.is_ipv6(), prefix)
        {
            return Ok(Self {
                address: v4.into(),
                prefix: prefix - 96,
            });
        }
        if prefix <= bits(address) {
            Ok(Self { address, prefix })
        } else {
            Err(NOT_A_RANGE)
        }
    }

    /// The address.
    #[must_use]
    pub const fn address(self) -> IpAddr {
        self.address
    }

    /// How many leading bits count.
    #[must_use]
    pub const fn prefix(self) -> u8 {
        self.prefix
    }

    /// Whether `address` is in the range. An IPv4 address inside IPv6 (`::ffff:a.b.c.d`) counts as the IPv4 address it is.
    #[must_use]
    pub fn contains(self, address: IpAddr) -> bool {
        let differs = match (self.address, address.to_canonical()) {
            (IpAddr::V4(a), IpAddr::V4(b)) => u128::from(a.to_bits() ^ b.to_bits()) << 96,
            (IpAddr::V6(a), IpAddr::V6(b)) => a.to_bits() ^ b.to_bits(),
            _ => return false,
        };
        differs.leading_zeros() >= u32::from(self.prefix)
    }
}

impl FromStr for Cidr {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        let (address, prefix) = text
            .split_once('/')
            .map_or((text, None), |(a, p)| (a, Some(p)));
        let address: IpAddr = address.parse().map_err(|_| NOT_A_RANGE)?;
        match prefix {
            None => Self::new(address, bits(address)),
            // Digits only: `parse` would take a sign.
            Some(p) if p.bytes().all(|b| b.is_ascii_digit()) => {
                Self::new(address, p.parse().map_err(|_| NOT_A_RANGE)?)
            }
            Some(_) => Err(NOT_A_RANGE),
        }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

const NOT_A_RANGE: InvalidValue = InvalidValue {
    what: "range",
    rule: "an address, or an address and a prefix length",
};

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn is_label(label: &str) -> bool {
    (1..=63).contains(&label.len())
        && label
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
        && !label.starts_with('-')
        && !label.ends_with('-')
}

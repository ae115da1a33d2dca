//! What consistent hashing hashes, and how far a server is from a key.

use std::net::IpAddr;

use crate::{Headers, cookie, hash::mix, hash_bytes, request::plain_ip};

/// What keeps a visitor on a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HashKey {
    /// The visitor's address.
    Ip,
    /// The value of a field, by its name in lower case.
    Header(Box<str>),
    /// The value of a cookie.
    Cookie(Box<str>),
}

impl HashKey {
    /// The key of a request; `None` where it does not have the field or cookie.
    pub fn of(&self, ip: IpAddr, headers: &dyn Headers) -> Option<u64> {
        match self {
            Self::Ip => Some(match plain_ip(ip) {
                IpAddr::V4(ip) => hash_bytes(0, &ip.octets()),
                IpAddr::V6(ip) => hash_bytes(0, &ip.octets()),
            }),
            Self::Header(name) => headers.nth(name, 0).map(|value| hash_bytes(0, value)),
            Self::Cookie(name) => cookie(headers, name).map(|value| hash_bytes(0, value)),
        }
    }
}

/// The nearest server gets the key (weighted rendezvous hashing): `-ln(u) / weight`, `u` evenly spread over (0, 1), is the least for a server with a
/// chance of its weight, whatever other servers there are.
pub(super) fn distance(key: u64, server: u64, weight: u32) -> f64 {
    let bits = mix(key ^ mix(server)) >> 11;
    let u = (bits as f64 + 0.5) / (1u64 << 53) as f64;
    -u.ln() / f64::from(weight)
}

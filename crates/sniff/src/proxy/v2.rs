//! Reads a version 2 header: 16 bytes, addresses, TLVs (§2.2). Constant time until it is complete.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{Addresses, Header, ProxyError, Transport, V2_SIGNATURE, Version};

const FIXED: usize = 16;
const UNIX_PATH: usize = 108;

pub(super) fn parse(buf: &[u8], limit: usize) -> Result<Option<Header>, ProxyError> {
    let n = buf.len().min(V2_SIGNATURE.len());
    if buf[..n] != V2_SIGNATURE[..n] {
        return Err(ProxyError::NotProxy);
    }
    let local = match buf.get(12) {
        None => return Ok(None),
        Some(0x20) => true,
        Some(0x21) => false,
        Some(_) => return Err(ProxyError::BadCommand),
    };
    let Some(&[family, high, low]) = buf.get(13..FIXED).and_then(|b| b.first_chunk::<3>()) else {
        return Ok(None);
    };
    let len = FIXED + usize::from(u16::from_be_bytes([high, low]));
    if len > limit {
        return Err(ProxyError::TooLong);
    }
    let needed = FIXED + if local { 0 } else { address_length(family) };
    if len < needed {
        return Err(ProxyError::TooShort);
    }
    let Some(header) = buf.get(..len) else {
        return Ok(None);
    };
    let addresses = if local {
        Addresses::Local
    } else {
        addresses(family, &header[FIXED..needed])
    };
    // A LOCAL header may carry addresses, to be ignored: its TLVs follow them where they fit.
    let tlvs = (FIXED + address_length(family)).min(len)..len;
    Ok(Some(Header {
        version: Version::V2,
        addresses,
        tlvs,
        len,
    }))
}

/// By the family in the high half of the byte; families unknown here have none.
fn address_length(family: u8) -> usize {
    match family >> 4 {
        1 => 12,
        2 => 36,
        3 => 2 * UNIX_PATH,
        _ => 0,
    }
}

fn addresses(family: u8, bytes: &[u8]) -> Addresses {
    let transport = match family & 0x0F {
        1 => Transport::Stream,
        2 => Transport::Datagram,
        // "Receivers should treat other values as UNSPEC."
        _ => return Addresses::Unknown,
    };
    let port = |at: usize| {
        bytes
            .get(at..)
            .and_then(|b| b.first_chunk())
            .map(|b| u16::from_be_bytes(*b))
    };
    let v4 = |at: usize| {
        bytes
            .get(at..)
            .and_then(|b| b.first_chunk::<4>())
            .map(|b| Ipv4Addr::from(*b))
    };
    let v6 = |at: usize| {
        bytes
            .get(at..)
            .and_then(|b| b.first_chunk::<16>())
            .map(|b| Ipv6Addr::from(*b))
    };
    let pair = match family >> 4 {
        1 => v4(0)
            .zip(port(8))
            .map(SocketAddr::from)
            .zip(v4(4).zip(port(10)).map(SocketAddr::from)),
        2 => v6(0)
            .zip(port(32))
            .map(SocketAddr::from)
            .zip(v6(16).zip(port(34)).map(SocketAddr::from)),
        3 => {
            let (source, destination) = bytes.split_at(bytes.len().min(UNIX_PATH));
            return Addresses::Unix {
                transport,
                source: path(source),
                destination: path(destination),
            };
        }
        _ => None,
    };
    match pair {
        Some((source, destination)) => Addresses::Ip {
            transport,
            source,
            destination,
        },
        None => Addresses::Unknown,
    }
}

/// A path without the NULs that fill its field; abstract names, which begin with NUL, keep that one.
fn path(field: &[u8]) -> Vec<u8> {
    let end = field
        .iter()
        .rposition(|&b| b != 0)
        .map_or(0, |last| last + 1);
    field[..end].to_vec()
}

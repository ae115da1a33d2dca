//! Reads a version 1 header: one line of text (§2.1).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{Addresses, Header, MAX_V1, ProxyError, Transport, Version};

const START: &[u8] = b"PROXY ";

/// `scanned`: how much of `buf` is known to hold no line feed.
pub(super) fn parse(buf: &[u8], scanned: &mut usize) -> Result<Option<Header>, ProxyError> {
    let n = buf.len().min(START.len());
    if buf[..n] != START[..n] {
        return Err(ProxyError::NotProxy);
    }
    let window = &buf[..buf.len().min(MAX_V1)];
    let from = (*scanned).min(window.len());
    let Some(line_feed) = window[from..].iter().position(|&b| b == b'\n') else {
        *scanned = window.len();
        return if window.len() == MAX_V1 {
            Err(ProxyError::TooLong)
        } else {
            Ok(None)
        };
    };
    let len = from + line_feed + 1;
    let line = window[..len]
        .strip_suffix(b"\r\n")
        .ok_or(ProxyError::BadLine)?;
    let rest = line.strip_prefix(START).ok_or(ProxyError::BadLine)?;
    let addresses = addresses(rest).ok_or(ProxyError::BadLine)?;
    Ok(Some(Header {
        version: Version::V1,
        addresses,
        tlvs: len..len,
        len,
    }))
}

fn addresses(rest: &[u8]) -> Option<Addresses> {
    if let Some(b"" | [b' ', ..]) = rest.strip_prefix(b"UNKNOWN") {
        // "The receiver must ignore anything presented before the CRLF."
        return Some(Addresses::Unknown);
    }
    let mut words = std::str::from_utf8(rest).ok()?.split(' ');
    let (source, destination) = match words.next()? {
        "TCP4" => (v4(words.next()?)?, v4(words.next()?)?),
        "TCP6" => (v6(words.next()?)?, v6(words.next()?)?),
        _ => return None,
    };
    let source = SocketAddr::new(source, port(words.next()?)?);
    let destination = SocketAddr::new(destination, port(words.next()?)?);
    match words.next() {
        None => Some(Addresses::Ip {
            transport: Transport::Stream,
            source,
            destination,
        }),
        Some(_) => None,
    }
}

fn v4(word: &str) -> Option<IpAddr> {
    word.parse::<Ipv4Addr>().ok().map(IpAddr::V4)
}

fn v6(word: &str) -> Option<IpAddr> {
    word.parse::<Ipv6Addr>().ok().map(IpAddr::V6)
}

/// Decimal without leading zeros or sign.
fn port(word: &str) -> Option<u16> {
    let plain =
        word.bytes().all(|b| b.is_ascii_digit()) && (word.len() == 1 || !word.starts_with('0'));
    word.parse().ok().filter(|_| plain)
}

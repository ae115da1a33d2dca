//! Writes headers, to be sent before the first byte of a connection.

use std::net::{IpAddr, SocketAddr};

use super::{Transport, V2_SIGNATURE};

/// Appends a version 1 header (§2.1), at most [`MAX_V1`](super::MAX_V1) bytes. Addresses of two families are both written as
/// IPv6, and IPv4 within IPv6 as IPv4 where both are.
pub fn write_v1(source: SocketAddr, destination: SocketAddr, out: &mut Vec<u8>) {
    let (source_ip, destination_ip) = same_family(source.ip(), destination.ip());
    let family = if source_ip.is_ipv4() { "TCP4" } else { "TCP6" };
    let line = format!(
        "PROXY {family} {source_ip} {destination_ip} {} {}\r\n",
        source.port(),
        destination.port()
    );
    out.extend_from_slice(line.as_bytes());
}

/// Appends a version 1 header that tells no addresses.
pub fn write_v1_unknown(out: &mut Vec<u8>) {
    out.extend_from_slice(b"PROXY UNKNOWN\r\n");
}

/// Appends a version 2 header (§2.2) for a TCP connection: 28 bytes for IPv4, 52 for IPv6. Families as in [`write_v1`].
pub fn write_v2(source: SocketAddr, destination: SocketAddr, out: &mut Vec<u8>) {
    write_v2_transport(Transport::Stream, source, destination, out);
}

/// As [`write_v2`], for TCP or UDP.
pub fn write_v2_transport(
    transport: Transport,
    source: SocketAddr,
    destination: SocketAddr,
    out: &mut Vec<u8>,
) {
    let low = match transport {
        Transport::Stream => 1,
        Transport::Datagram => 2,
    };
    let pair = same_family(source.ip(), destination.ip());
    let (high, length) = if pair.0.is_ipv4() {
        (0x10, 12)
    } else {
        (0x20, 36)
    };
    out.extend_from_slice(&V2_SIGNATURE);
    out.extend_from_slice(&[0x21, high | low, 0, length]);
    for ip in [pair.0, pair.1] {
        match ip {
            IpAddr::V4(ip) => out.extend_from_slice(&ip.octets()),
            IpAddr::V6(ip) => out.extend_from_slice(&ip.octets()),
        }
    }
    out.extend_from_slice(&source.port().to_be_bytes());
    out.extend_from_slice(&destination.port().to_be_bytes());
}

/// Appends a version 2 header for a connection of the proxy's own, such as a health check.
pub fn write_v2_local(out: &mut Vec<u8>) {
    out.extend_from_slice(&V2_SIGNATURE);
    out.extend_from_slice(&[0x20, 0, 0, 0]);
}

/// Both as IPv4 where both are, else both as IPv6.
fn same_family(a: IpAddr, b: IpAddr) -> (IpAddr, IpAddr) {
    let mapped = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => IpAddr::V6(ip.to_ipv6_mapped()),
        IpAddr::V6(_) => ip,
    };
    match (a.to_canonical(), b.to_canonical()) {
        (a @ IpAddr::V4(_), b @ IpAddr::V4(_)) => (a, b),
        (a, b) => (mapped(a), mapped(b)),
    }
}

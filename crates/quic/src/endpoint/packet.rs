//! How large packets may become: what the route to a peer takes, as far as that is known before anything is sent, is where the search for the path's
//! MTU (RFC 8899) ends. That the path carries it is found out by the search, and found out again by what is lost.
//!
//! On the internet that is 1452 bytes of payload, as in any network of Ethernet's usual frames, and more is not tried there: machines whose network
//! has jumbo frames up to its edge are common, and each connection would lose its probes. Between containers, on one machine, and in networks with
//! jumbo frames it is more, and what a packet costs is spread over more bytes.

use std::net::{IpAddr, SocketAddr};

use net::RouteMtu;

/// The end of the search for a peer at `peer`, with no packets larger than `wanted`. A route that is smaller than usual, or that the system does not
/// tell, changes nothing: the search finds that out by itself.
pub(crate) fn largest(routes: &mut RouteMtu, wanted: u16, peer: SocketAddr) -> u16 {
    let ip = peer.ip().to_canonical();
    if wanted <= USUAL || !is_near(ip) {
        return wanted.min(USUAL);
    }
    let headers = if ip.is_ipv4() { 20 + 8 } else { 40 + 8 };
    let route = routes.towards(peer).unwrap_or(0);
    let payload = u16::try_from(route.saturating_sub(headers)).unwrap_or(u16::MAX);
    payload.clamp(USUAL, wanted)
}

/// Whether it is an address that the internet has no way to: this machine's, or one of a network of its own.
fn is_near(ip: IpAddr) -> bool {
    match ip {
        // RFC 1122 §3.2.1.3, RFC 1918, RFC 3927.
        IpAddr::V4(ip) => ip.is_loopback() || ip.is_private() || ip.is_link_local(),
        // RFC 4291 §2.5.3, RFC 4193, RFC 4291 §2.5.6.
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local(),
    }
}

/// What a connection may send at first where large packets are tried, else as usual: one of them on its way must not keep others from leaving, the
/// connection's last word among them. As TCP would with ten of its segments there, and less.
pub(crate) fn first_window(largest: u16) -> Option<u64> {
    (largest > USUAL).then_some(4 * u64::from(largest))
}

/// What peers are told that they may send (`max_udp_payload_size`, RFC 9000 §18.2), with a socket that has room for `room` bytes. Where a few of the
/// largest would fill it, they stay as they are elsewhere.
pub(crate) fn largest_taken(room: usize) -> u16 {
    if room >= ROOM { TAKEN } else { TAKEN_USUALLY }
}

/// What Ethernet's frames of 1500 bytes hold after the headers of IPv6 and UDP.
pub(crate) const USUAL: u16 = 1452;

/// Four of them fill a system call's 64 KiB. Larger ones cost hardly less for each byte, and a socket's buffer must hold a few at least.
pub(crate) const LARGEST: u16 = 16_368;

/// Also the most that a process passes on to an older one.
const TAKEN: u16 = 16 << 10;
/// What Ethernet's frames hold after the headers of IPv4 and UDP.
const TAKEN_USUALLY: u16 = 1472;
/// Systems give 208 KiB unless they were told otherwise: with the kernel's own records three calls of 64 KiB.
const ROOM: usize = 1 << 20;

/// Bytes that are read at once: all that the kernel ever joins (UDP GRO).
pub(crate) const READ: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_networks_of_ones_own_are_asked_for_more() {
        for near in [
            "127.0.0.1",
            "10.1.2.3",
            "192.168.0.1",
            "169.254.1.1",
            "::1",
            "fd00::1",
            "fe80::1",
        ] {
            assert!(is_near(near.parse().expect("an address")), "{near}");
        }
        for far in ["192.0.2.1", "8.8.8.8", "172.32.0.1", "2001:db8::1"] {
            let far: IpAddr = far.parse().expect("an address");
            assert!(!is_near(far), "{far}");
            let peer = SocketAddr::new(far, 443);
            assert_eq!(largest(&mut RouteMtu::new(), LARGEST, peer), USUAL);
            assert_eq!(largest(&mut RouteMtu::new(), 1300, peer), 1300);
        }
    }
}

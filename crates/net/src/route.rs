//! How large a packet may be that the system sends to an address: the MTU of the route there. The system answers from its tables; nothing is sent.
//! Whether the path beyond the first hop carries as much is left to those who send.

use std::{io, net::SocketAddr};

use rustix::net::{connect_unspec, sockopt};
use socket2::{Domain, Socket, Type};

/// Asks the system for routes. Holds one socket per address family, once asked; none of them has a port between two questions.
#[derive(Debug, Default)]
pub struct RouteMtu {
    v4: Option<Socket>,
    v6: Option<Socket>,
}

impl RouteMtu {
    /// Asks nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes of the largest IP packet, its header included, that the route to `peer` takes whole. Costs three short system calls.
    ///
    /// # Errors
    /// The system's: no route, no socket, or a system that does not tell.
    pub fn towards(&mut self, peer: SocketAddr) -> io::Result<u32> {
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        let slot = if peer.is_ipv4() {
            &mut self.v4
        } else {
            &mut self.v6
        };
        let socket = match slot {
            Some(socket) => socket,
            None => slot.insert(Socket::new(Domain::for_address(peer), Type::DGRAM, None)?),
        };
        socket.connect(&peer.into())?;
        let mtu = mtu(socket, peer);
        // Else the next answer would be for packets from this peer's side of the machine, and strangers could send to the socket.
        connect_unspec(&*socket)?;
        mtu
    }
}

#[cfg(target_os = "linux")]
fn mtu(socket: &Socket, peer: SocketAddr) -> io::Result<u32> {
    let mtu = if peer.is_ipv4() {
        sockopt::ip_mtu(socket)
    } else {
        sockopt::ipv6_mtu(socket)
    };
    Ok(mtu?)
}

#[cfg(not(target_os = "linux"))]
fn mtu(_: &Socket, _: SocketAddr) -> io::Result<u32> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test ends where its helpers fail")]

    use super::*;

    #[test]
    fn the_loopback_route_takes_what_its_interface_takes_whoever_was_asked_for_before() {
        let said = std::fs::read_to_string("/sys/class/net/lo/mtu").unwrap();
        let loopback = said.trim().parse::<u32>().unwrap().min(65_535);
        let mut routes = RouteMtu::new();
        for peer in ["127.0.0.1:9", "127.0.0.2:1", "[::ffff:127.0.0.1]:9"] {
            let mtu = routes.towards(peer.parse().unwrap()).unwrap();
            assert_eq!(mtu.min(65_535), loopback, "{peer}");
            // Wherever that is: a source address of the question before must not stay.
            let far = routes.towards("192.0.2.1:9".parse().unwrap());
            if let Err(error) = far {
                assert_ne!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
            }
        }
    }
}

//! Where listening sockets come from: opened by this process, or handed to it by one that keeps them while workers are replaced.

use std::{
    io,
    net::{SocketAddr, TcpListener, UdpSocket},
};

use crate::{
    Steering,
    socket::{bind_udp_group, listen_tcp_group},
};

/// Opens listening sockets. What is dropped here may stay open elsewhere until [`ListenSource::release`].
pub trait ListenSource: Send + Sync {
    /// TCP listeners on the address; `count` of them if they must be opened, as many as there are if they are open already (at
    /// least one). `option` names the address in the configuration; it is empty for a service's port.
    ///
    /// # Errors
    /// As [`listen_tcp_group`].
    fn tcp(&self, option: &str, address: SocketAddr, count: usize) -> io::Result<Vec<TcpListener>>;

    /// UDP sockets in the same way.
    ///
    /// # Errors
    /// As [`bind_udp_group`].
    fn udp(&self, option: &str, address: SocketAddr, count: usize) -> io::Result<Vec<UdpSocket>>;

    /// The address is not served any more; `udp` tells which of the two.
    fn release(&self, option: &str, address: SocketAddr, udp: bool);

    /// How datagrams reach another process on the same sockets; `None` where there never is another one.
    fn steering(&self) -> Option<Steering> {
        None
    }
}

/// Opens its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnSockets;

impl ListenSource for OwnSockets {
    fn tcp(&self, _: &str, address: SocketAddr, count: usize) -> io::Result<Vec<TcpListener>> {
        listen_tcp_group(address, count)
    }

    fn udp(&self, _: &str, address: SocketAddr, count: usize) -> io::Result<Vec<UdpSocket>> {
        bind_udp_group(address, count)
    }

    fn release(&self, _: &str, _: SocketAddr, _: bool) {}
}

/// Gives each of `workers` threads its sockets: (thread, socket). When there are fewer sockets than threads, some threads accept from
/// the same one; when there are more, which a former process with more threads has left, some serve several.
///
/// # Errors
/// The system's, when a socket cannot be shared.
pub fn spread(sockets: &[TcpListener], workers: usize) -> io::Result<Vec<(usize, TcpListener)>> {
    let (sockets_len, workers) = (sockets.len(), workers.max(1));
    if sockets_len == 0 {
        return Ok(Vec::new());
    }
    (0..sockets_len.max(workers))
        .map(|n| Ok((n % workers, sockets[n % sockets_len].try_clone()?)))
        .collect()
}

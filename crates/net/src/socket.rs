//! Listening socket groups and socket options.
//!
//! A group is `n` sockets on one address that share its traffic through SO_REUSEPORT, one for each worker. The kernel
//! lets any process of the same user join such a group, so the first socket claims the address without the option and
//! opens itself to its siblings only then: a port that somebody serves already is an error here, never a silent split
//! of its visitors.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::time::Duration;

use socket2::{Domain, SockRef, Socket, TcpKeepalive, Type};

use crate::{
    Stream,
    local::{is_local, unpaced},
};

/// Connections the kernel may hold that have not been accepted, per listening socket (bounded by `somaxconn`).
pub const BACKLOG: i32 = 4096;

/// Opens `n` (at least one) non-blocking listeners that share `addr`.
///
/// Port 0 picks one free port for all. `[::]` takes IPv4 as well.
///
/// # Errors
/// `AddrInUse` when anyone, this process included, listens there already; else what the system says.
pub fn listen_tcp_group(addr: SocketAddr, n: usize) -> io::Result<Vec<TcpListener>> {
    let sockets = bind_group(addr, n, Type::STREAM)?;
    Ok(sockets.into_iter().map(TcpListener::from).collect())
}

/// Opens `n` (at least one) non-blocking UDP sockets that share `addr`, under the rules of [`listen_tcp_group`].
///
/// # Errors
/// As [`listen_tcp_group`].
pub fn bind_udp_group(addr: SocketAddr, n: usize) -> io::Result<Vec<UdpSocket>> {
    let sockets = bind_group(addr, n, Type::DGRAM)?;
    Ok(sockets.into_iter().map(UdpSocket::from).collect())
}

/// Options of a socket that carries a link, that is, many streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkTuning {
    /// Bytes that may wait unsent in the kernel before the socket stops being writable: what is written later than
    /// needed can still be reordered by priority. `None` leaves the system's value (no bound).
    pub notsent_lowat: Option<u32>,
    /// Silence after which the kernel asks the peer whether it lives; then three questions, this far apart.
    pub keepalive: Duration,
    /// How long sent data may stay unacknowledged before the connection is given up (TCP_USER_TIMEOUT).
    pub user_timeout: Duration,
}

impl Default for LinkTuning {
    fn default() -> Self {
        Self {
            notsent_lowat: None,
            keepalive: Duration::from_secs(30),
            user_timeout: Duration::from_secs(60),
        }
    }
}

/// Sets a visitor's socket up: no delay for small writes. Nothing to do on a socket that is not TCP.
///
/// # Errors
/// The system's; the connection has ended then, as a rule.
pub fn tune_visitor(stream: &Stream) -> io::Result<()> {
    stream.tcp().map_or(Ok(()), |tcp| tcp.set_nodelay(true))
}

/// Sets a link's socket up. Nothing to do on a socket that is not TCP.
///
/// # Errors
/// As [`tune_visitor`].
pub fn tune_link(stream: &Stream, tuning: &LinkTuning) -> io::Result<()> {
    let Some(tcp) = stream.tcp() else {
        return Ok(());
    };
    tcp.set_nodelay(true)?;
    let socket = SockRef::from(tcp);
    socket.set_tcp_keepalive(
        &TcpKeepalive::new()
            .with_time(tuning.keepalive)
            .with_interval(tuning.keepalive)
            .with_retries(3),
    )?;
    #[cfg(target_os = "linux")]
    {
        socket.set_tcp_user_timeout(Some(tuning.user_timeout))?;
        if let Some(bytes) = tuning.notsent_lowat {
            socket.set_tcp_notsent_lowat(bytes)?;
        }
    }
    Ok(())
}

/// Sets how many bytes may wait unsent in the kernel before a link's socket stops being writable ([`LinkTuning::notsent_lowat`]). Nothing to
/// do on a socket that is not TCP.
///
/// # Errors
/// As [`tune_visitor`].
pub fn hold_back(stream: &Stream, bytes: u32) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    if let Some(tcp) = stream.tcp() {
        return SockRef::from(tcp).set_tcp_notsent_lowat(bytes);
    }
    let _ = (stream, bytes);
    Ok(())
}

/// What accepted sockets are to have, set on their listener: they have it from there, if it is set before the peer comes, and no system call
/// is made for each of them.
///
/// No delay for small writes. And a bound on what waits unsent in the kernel: without one a peer that reads slowly is given megabytes at once,
/// which keeps a thread from its other peers and fills memory that no limit of gt counts. Nor are peers of an address that only this machine
/// reaches paced. A system that cannot do it goes on without.
pub(crate) fn prepare_accepted(listener: SockRef<'_>, ip: IpAddr) {
    let _ = listener.set_tcp_nodelay(true);
    #[cfg(target_os = "linux")]
    let _ = listener.set_tcp_notsent_lowat(UNSENT);
    if is_local(ip) {
        unpaced(listener);
    }
}

/// Enough to keep a fast path busy between two turns of the event loop.
#[cfg(target_os = "linux")]
const UNSENT: u32 = 256 << 10;

fn bind_group(mut addr: SocketAddr, n: usize, kind: Type) -> io::Result<Vec<Socket>> {
    let first = open(addr, kind)?;
    first.bind(&addr.into())?;
    if kind == Type::STREAM {
        // Two sockets with SO_REUSEADDR may both be bound; only one of them may listen, and it is found out here.
        first.listen(BACKLOG)?;
    }
    addr.set_port(
        first
            .local_addr()?
            .as_socket()
            .map_or(addr.port(), |local| local.port()),
    );
    let mut group = vec![first];
    if n > 1 {
        // Linux looks at the option when others bind, not when this one did: set now, it admits only what comes next.
        group[0].set_reuse_port(true)?;
    }
    for _ in 1..n {
        let socket = open(addr, kind)?;
        socket.set_reuse_port(true)?;
        socket.bind(&addr.into())?;
        if kind == Type::STREAM {
            socket.listen(BACKLOG)?;
        }
        group.push(socket);
    }
    Ok(group)
}

fn open(addr: SocketAddr, kind: Type) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(addr), kind, None)?;
    if addr.is_ipv6() {
        socket.set_only_v6(!addr.ip().is_unspecified())?;
    }
    if kind == Type::STREAM {
        // Lets a restarted server listen while old connections linger. On UDP it would let anyone share the port.
        socket.set_reuse_address(true)?;
        prepare_accepted(SockRef::from(&socket), addr.ip());
    }
    socket.set_nonblocking(true)?;
    Ok(socket)
}

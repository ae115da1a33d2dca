//! A UDP forwarder with an impaired path: clients send to it, it sends to the target, and the answers go back.
//!
//! ```text
//! client A ─┐                    ┌─ socket A ─┐
//! client B ─┴► listening socket ─┤            ├► target
//!                  up path ═══════► socket B ─┘
//!                  ◄═══════ down path
//! ```
//!
//! All clients share the two paths, as they would share a bottleneck. Each has a socket of its own towards the target, so that
//! the target tells them apart. A client that has been silent for [`UdpOptions::idle`] is forgotten.

use std::{
    collections::HashMap,
    io::{self, ErrorKind},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

use socket2::{Domain, Protocol, Socket, Type};

use crate::shell::{Direction, Ends, FIRST_TOKEN, Options, Received, Running, watch};

/// Where a forwarder listens and sends to.
#[derive(Clone, Debug)]
pub struct UdpOptions {
    /// Where clients send to; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// Where their datagrams go.
    pub to: SocketAddr,
    /// Most clients at a time; datagrams of others are dropped and counted.
    pub clients: usize,
    /// The silence, both ways, after which a client is forgotten.
    pub idle: Duration,
    /// What the paths do.
    pub path: Options,
}

impl UdpOptions {
    /// 1024 clients, forgotten after two minutes.
    pub fn new(listen: SocketAddr, to: SocketAddr, path: Options) -> Self {
        Self {
            listen,
            to,
            clients: 1024,
            idle: Duration::from_secs(120),
            path,
        }
    }
}

/// A forwarder at work.
#[derive(Debug)]
pub struct UdpForwarder {
    /// Its loop.
    pub running: Running,
    local: SocketAddr,
}

impl UdpForwarder {
    /// Binds the address and starts.
    ///
    /// # Errors
    /// What the system answers to opening and binding the socket.
    pub fn start(options: &UdpOptions) -> io::Result<Self> {
        let socket = open(options.listen)?;
        let local = socket.local_addr()?;
        let forwarder = Forwarder {
            socket,
            options: options.clone(),
            clients: HashMap::new(),
            ids: HashMap::new(),
            next_id: 0,
            swept: Duration::ZERO,
        };
        Ok(Self {
            running: Running::start(forwarder, &options.path)?,
            local,
        })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }
}

/// What sockets ask for, so that a burst waits in the path's queue and not in front of it; the system may give less.
const SOCKET_BUFFER: usize = 8 << 20;
/// How often silent clients are looked for.
const SWEEP: Duration = Duration::from_secs(5);

struct Forwarder {
    socket: UdpSocket,
    options: UdpOptions,
    clients: HashMap<u64, Client>,
    ids: HashMap<SocketAddr, u64>,
    /// Never used twice: a packet on the way to a client that was forgotten reaches nobody.
    next_id: u64,
    swept: Duration,
}

struct Client {
    address: SocketAddr,
    socket: UdpSocket,
    seen: Duration,
}

impl Ends for Forwarder {
    fn register(&self, set: BorrowedFd<'_>) -> io::Result<()> {
        watch(set, self.socket.as_fd(), FIRST_TOKEN)
    }

    fn receive(
        &mut self,
        token: u64,
        buffer: &mut [u8],
        now: Duration,
        set: BorrowedFd<'_>,
    ) -> io::Result<Received> {
        if token == FIRST_TOKEN {
            return self.accept(buffer, now, set);
        }
        let id = token - FIRST_TOKEN - 1;
        let Some(client) = self.clients.get_mut(&id) else {
            return Ok(Received::Empty);
        };
        match client.socket.recv(buffer) {
            Ok(length) => {
                client.seen = now;
                Ok(Received::Packet(Direction::Down, id, length))
            }
            // Refused by the target's host, for one: later datagrams may fare better.
            Err(_) => Ok(Received::Empty),
        }
    }

    fn send(&mut self, direction: Direction, tag: u64, bytes: &[u8]) -> bool {
        let Some(client) = self.clients.get(&tag) else {
            return false;
        };
        let sent = match direction {
            Direction::Up => client.socket.send(bytes),
            Direction::Down => self.socket.send_to(bytes, client.address),
        };
        // A refusal belongs to an earlier datagram and says nothing about this one: once more.
        let sent = match (sent, direction) {
            (Err(error), Direction::Up) if error.kind() == ErrorKind::ConnectionRefused => {
                client.socket.send(bytes)
            }
            (sent, _) => sent,
        };
        sent.is_ok()
    }
}

impl Forwarder {
    fn accept(
        &mut self,
        buffer: &mut [u8],
        now: Duration,
        set: BorrowedFd<'_>,
    ) -> io::Result<Received> {
        if now.saturating_sub(self.swept) >= SWEEP {
            self.sweep(now);
        }
        let Ok((length, address)) = self.socket.recv_from(buffer) else {
            return Ok(Received::Empty);
        };
        let id = match self.ids.get(&address) {
            Some(id) => *id,
            None if self.clients.len() >= self.options.clients => return Ok(Received::TurnedAway),
            None => match self.welcome(address, now, set) {
                Ok(id) => id,
                // No descriptor left: the others go on.
                Err(_) => return Ok(Received::TurnedAway),
            },
        };
        if let Some(client) = self.clients.get_mut(&id) {
            client.seen = now;
        }
        Ok(Received::Packet(Direction::Up, id, length))
    }

    fn welcome(
        &mut self,
        address: SocketAddr,
        now: Duration,
        set: BorrowedFd<'_>,
    ) -> io::Result<u64> {
        let any: IpAddr = match self.options.to {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = open(SocketAddr::new(any, 0))?;
        socket.connect(self.options.to)?;
        let id = self.next_id;
        watch(set, socket.as_fd(), FIRST_TOKEN + 1 + id)?;
        self.next_id += 1;
        self.ids.insert(address, id);
        self.clients.insert(
            id,
            Client {
                address,
                socket,
                seen: now,
            },
        );
        Ok(id)
    }

    /// Forgets silent clients; closing a socket takes it out of the epoll set.
    fn sweep(&mut self, now: Duration) {
        self.swept = now;
        let idle = self.options.idle;
        let ids = &mut self.ids;
        self.clients.retain(|_, client| {
            let stays = now.saturating_sub(client.seen) < idle;
            if !stays {
                ids.remove(&client.address);
            }
            stays
        });
    }
}

fn open(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::DGRAM.nonblocking(),
        Some(Protocol::UDP),
    )?;
    for forced in [true, false] {
        // Root may exceed the system's limit; others get what the limit allows.
        let set = if forced {
            rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, SOCKET_BUFFER)
                .map_err(io::Error::from)
        } else {
            socket.set_recv_buffer_size(SOCKET_BUFFER)
        };
        if set.is_ok() {
            break;
        }
    }
    socket.set_send_buffer_size(SOCKET_BUFFER)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

//! A UDP socket that moves batches: recvmmsg and GRO inwards, GSO and sendmmsg outwards, plain calls where the system has neither.

use std::{
    io::{self, IoSliceMut},
    net::SocketAddr,
    task::{Context, Poll},
};

use quinn_udp::{RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use socket2::{Domain, Protocol, SockAddr, Type};
use tokio::{io::Interest, net::UdpSocket};

use super::{Options, outbox::Run};

/// Buffers per receive call.
const SLOTS: usize = 8;
/// Bytes per buffer: the kernel may join this much into one.
const SLOT: usize = 65_536;
/// Datagrams per call that goes to several addresses.
#[cfg(target_os = "linux")]
const MESSAGES: usize = 64;

#[derive(Debug)]
pub(super) struct Socket {
    io: UdpSocket,
    state: UdpSocketState,
    /// It has a code point, which a segmented send would take away: the call says the whole byte, not ECN's bits only.
    classed: bool,
}

/// Receive memory. One per thread suffices, as a batch is processed before the next is read.
pub(super) struct Scratch(Vec<Vec<u8>>);

impl Scratch {
    pub(super) fn new() -> Self {
        Self(vec![vec![0; SLOT]; SLOTS])
    }
}

impl Socket {
    /// Opens a socket bound to `local`. Needs a tokio runtime.
    pub(super) fn bind(local: SocketAddr, options: &Options) -> io::Result<Self> {
        let socket =
            socket2::Socket::new(Domain::for_address(local), Type::DGRAM, Some(Protocol::UDP))?;
        #[cfg(unix)]
        if options.reuse_port {
            socket.set_reuse_port(true)?;
        }
        if let Some(bytes) = options.recv_buffer {
            // Best effort: some systems refuse what others cut down.
            let _ = socket.set_recv_buffer_size(bytes);
        }
        if let Some(bytes) = options.send_buffer {
            let _ = socket.set_send_buffer_size(bytes);
        }
        if let Some(dscp) = options.dscp {
            // The upper six bits of the byte; the lower two are ECN's (RFC 2474 §3, RFC 3168 §5).
            let class = u32::from(dscp.min(63)) << 2;
            if local.is_ipv4() {
                socket.set_tos_v4(class)?;
            } else {
                #[cfg(target_os = "linux")]
                socket.set_tclass_v6(class)?;
            }
        }
        socket.set_nonblocking(true)?;
        socket.bind(&SockAddr::from(local))?;
        let classed = options.dscp.is_some_and(|dscp| dscp > 0);
        Self::new(socket, classed)
    }

    /// Takes a bound socket, with buffers of `buffer` bytes if the system gives them. Needs a tokio runtime.
    #[cfg(feature = "secure")]
    pub(super) fn adopt(socket: std::net::UdpSocket, buffer: usize) -> io::Result<Self> {
        let socket = socket2::Socket::from(socket);
        let _ = socket.set_recv_buffer_size(buffer);
        let _ = socket.set_send_buffer_size(buffer);
        socket.set_nonblocking(true)?;
        Self::new(socket, false)
    }

    fn new(socket: socket2::Socket, classed: bool) -> io::Result<Self> {
        let io = UdpSocket::from_std(socket.into())?;
        let state = UdpSocketState::new(UdpSockRef::from(&io))?;
        Ok(Self { io, state, classed })
    }

    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.local_addr()
    }

    /// Datagrams per run, at most.
    pub(super) fn max_segments(&self) -> usize {
        if self.classed {
            1
        } else {
            self.state.max_gso_segments().max(1)
        }
    }

    /// Gives each datagram of one batch to `take`.
    pub(super) fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
        mut take: impl FnMut(SocketAddr, &mut [u8]),
    ) -> Poll<io::Result<()>> {
        let mut meta = [RecvMeta::default(); SLOTS];
        let count = loop {
            std::task::ready!(self.io.poll_recv_ready(cx))?;
            let mut slots = scratch.0.iter_mut();
            let mut slices: [IoSliceMut<'_>; SLOTS] = std::array::from_fn(|_| {
                IoSliceMut::new(slots.next().map_or(&mut [], |slot| slot.as_mut_slice()))
            });
            let received = self.io.try_io(Interest::READABLE, || {
                self.state
                    .recv(UdpSockRef::from(&self.io), &mut slices, &mut meta)
            });
            match received {
                Ok(count) => break count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        };
        for (meta, slot) in meta.iter().zip(&mut scratch.0).take(count) {
            let stride = meta.stride.max(1);
            for datagram in slot[..meta.len.min(SLOT)].chunks_mut(stride) {
                take(meta.addr, datagram);
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Sends `contents` as datagrams of `size` bytes, the last one possibly shorter. Pending: nothing was sent.
    pub(super) fn poll_send(
        &self,
        cx: &mut Context<'_>,
        destination: SocketAddr,
        contents: &[u8],
        size: usize,
    ) -> Poll<io::Result<()>> {
        #[cfg(target_os = "linux")]
        if contents.len() <= size {
            return self.poll_send_single(cx, destination, contents);
        }
        let segment_size = (size < contents.len()).then_some(size);
        let transmit = Transmit {
            destination,
            ecn: None,
            contents,
            segment_size,
            src_ip: None,
        };
        loop {
            std::task::ready!(self.io.poll_send_ready(cx))?;
            let sent = self.io.try_io(Interest::WRITABLE, || {
                self.state.try_send(UdpSockRef::from(&self.io), &transmit)
            });
            match sent {
                Ok(()) => return Poll::Ready(Ok(())),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Segmentation was refused by the device and is off now: one by one.
                Err(_) if segment_size.is_some() && self.max_segments() == 1 => {
                    return self.send_singly(destination, contents, size);
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Sends runs in order, at least one; each run's datagrams lie in `buffer`. Gives how many runs are done with: an error is the
    /// network's, and the run it was about is lost. Pending: nothing was sent.
    pub(super) fn poll_send_runs(
        &self,
        cx: &mut Context<'_>,
        buffer: &[u8],
        runs: &[Run],
    ) -> Poll<usize> {
        #[cfg(target_os = "linux")]
        {
            let singles = runs.iter().take(MESSAGES).take_while(|run| run.is_single());
            let count = singles.count();
            if count > 1 {
                return self.poll_send_singles(cx, buffer, &runs[..count]);
            }
        }
        let Some(run) = runs.first() else {
            return Poll::Ready(0);
        };
        self.poll_send(cx, run.to, &buffer[run.bytes.clone()], run.size)
            .map(|_| 1)
    }

    /// Sends one datagram, with nothing said beside it that the socket's options say already.
    #[cfg(target_os = "linux")]
    fn poll_send_single(
        &self,
        cx: &mut Context<'_>,
        destination: SocketAddr,
        datagram: &[u8],
    ) -> Poll<io::Result<()>> {
        loop {
            std::task::ready!(self.io.poll_send_ready(cx))?;
            match self.io.try_send_to(datagram, destination) {
                Ok(_) => return Poll::Ready(Ok(())),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Sends a datagram each to several addresses in one call.
    #[cfg(target_os = "linux")]
    fn poll_send_singles(&self, cx: &mut Context<'_>, buffer: &[u8], runs: &[Run]) -> Poll<usize> {
        use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, addr::SocketAddrArg, sendmmsg};

        let addresses: Vec<_> = runs.iter().map(|run| run.to.as_any()).collect();
        let slices: Vec<_> = runs
            .iter()
            .map(|run| [io::IoSlice::new(&buffer[run.bytes.clone()])])
            .collect();
        let mut controls: Vec<_> = runs
            .iter()
            .map(|_| SendAncillaryBuffer::default())
            .collect();
        let mut messages: Vec<_> = addresses
            .iter()
            .zip(&slices)
            .zip(&mut controls)
            .map(|((to, slice), control)| MMsgHdr::new_with_addr(to, slice, control))
            .collect();
        loop {
            if std::task::ready!(self.io.poll_send_ready(cx)).is_err() {
                return Poll::Ready(1);
            }
            let sent = self.io.try_io(Interest::WRITABLE, || {
                Ok(sendmmsg(&self.io, &mut messages, SendFlags::empty())?)
            });
            match sent {
                Ok(count) => return Poll::Ready(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // It is about the first; the others are still to be tried.
                Err(_) => return Poll::Ready(1),
            }
        }
    }

    /// Sends one datagram if the socket has room; if not it is lost.
    #[cfg(feature = "secure")]
    pub(super) fn send_now(&self, destination: SocketAddr, datagram: &[u8]) {
        let _ = self.io.try_send_to(datagram, destination);
    }

    /// Sends what it can; the rest is lost, as in any network.
    fn send_singly(
        &self,
        destination: SocketAddr,
        contents: &[u8],
        size: usize,
    ) -> Poll<io::Result<()>> {
        for datagram in contents.chunks(size.max(1)) {
            if let Err(error) = self.io.try_send_to(datagram, destination) {
                return Poll::Ready(Err(error));
            }
        }
        Poll::Ready(Ok(()))
    }
}

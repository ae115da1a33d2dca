//! One type for every byte stream.
//!
//! A [`Stream`] is a socket (TCP, Unix), a KCP session on a shared UDP socket, or TLS or WebSocket over another `Stream`. It reads and writes as tokio's
//! traits say. Bytes that were read too early go back in front ([`Stream::with_prefix`]). Every variant behaves alike:
//!
//! - **End.** A read of 0 bytes means that the peer ended its direction on purpose (FIN, close_notify, Close frame).
//!   An end without that, below TLS or WebSocket, is `UnexpectedEof`: something was cut off.
//! - **Shutdown** ends this side's direction; the other goes on. **Abort** resets the connection.
//! - **Flushing.** A write over TLS or WebSocket may take bytes that the socket refuses for now (at most 64 KiB). They
//!   travel when somebody flushes. [`Stream::needs_flush`] tells, after any call, a read included (it may have to answer
//!   a ping or a key update): then `poll_flush` must be polled by the task that writes.
//! - **Moving.** [`Stream::detach`] takes it off its worker, [`Detached::attach`] puts it on another, where [`Stream::can_move`].
//!
//! What the bytes mean is left to the layers above.

mod detach;
mod direct;
mod io_impl;

use std::fmt;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};

pub use detach::Detached;

use ::kcp::udp::secure::Stream as KcpStream;

use crate::kcp::Monitor;
use crate::path::{self, PathFigures};
use crate::tls::PeerCertificate;
use crate::tls::stream::TlsStream;
use crate::ws::stream::WsStream;

/// A byte stream, whatever lies below: all variants share the behaviour the crate describes.
pub struct Stream {
    kind: Kind,
    /// Bytes to be read before the kind is asked. Boxed: one word in the many streams that have none.
    prefix: Option<Box<Bytes>>,
}

enum Kind {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream>),
    Ws(Box<WsStream>),
    Kcp(KcpStream),
}

impl Stream {
    /// Two Unix sockets connected to each other, on the current runtime.
    ///
    /// # Errors
    /// The system's.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = UnixStream::pair()?;
        Ok((Self::from(one), Self::from(other)))
    }

    /// Gives back bytes that were read from this stream: the next reads return them first.
    #[must_use]
    pub fn with_prefix(mut self, bytes: impl Into<Bytes>) -> Self {
        let mut front: Bytes = bytes.into();
        if let Some(later) = self.prefix.take() {
            front = [front, *later].concat().into();
        }
        self.prefix = (!front.is_empty()).then(|| Box::new(front));
        self
    }

    /// Writes what can be written now, without waiting and without registering for a wake-up.
    ///
    /// On a connection just accepted or attached the first call may say `WouldBlock` though there is room, because its readiness
    /// has not been reported yet: fall back to `poll_write`.
    ///
    /// # Errors
    /// `WouldBlock` if nothing was taken; else as a write.
    pub fn try_write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match &mut self.kind {
            Kind::Tcp(tcp) => direct::try_send(tcp, buf),
            Kind::Unix(unix) => try_send(unix, buf.len(), |socket| {
                socket.send_with_flags(buf, NO_SIGNAL)
            }),
            Kind::Tls(tls) => tls.try_write(&[IoSlice::new(buf)]),
            Kind::Ws(ws) => ws.try_write(&[IoSlice::new(buf)]),
            Kind::Kcp(kcp) => kcp.try_write(buf),
        }
    }

    /// As [`Stream::try_write`], from several slices.
    ///
    /// # Errors
    /// As [`Stream::try_write`].
    pub fn try_write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let len = bufs.iter().map(|buf| buf.len()).sum();
        match &mut self.kind {
            Kind::Tcp(tcp) => try_send(tcp, len, |socket| {
                socket.send_vectored_with_flags(bufs, NO_SIGNAL)
            }),
            Kind::Unix(unix) => try_send(unix, len, |socket| {
                socket.send_vectored_with_flags(bufs, NO_SIGNAL)
            }),
            Kind::Tls(tls) => tls.try_write(bufs),
            Kind::Ws(ws) => ws.try_write(bufs),
            Kind::Kcp(kcp) => kcp.try_write(first(bufs)),
        }
    }

    /// Sends what earlier writes left behind, as far as it goes without waiting.
    ///
    /// # Errors
    /// As a write. Leftovers are no error: see [`Stream::needs_flush`].
    pub fn try_flush(&mut self) -> io::Result<()> {
        match &mut self.kind {
            Kind::Tcp(_) | Kind::Unix(_) | Kind::Kcp(_) => Ok(()),
            Kind::Tls(tls) => tls.try_flush(),
            Kind::Ws(ws) => ws.try_flush(),
        }
    }

    /// Whether bytes taken earlier still wait here, so that somebody must poll a flush.
    pub fn needs_flush(&self) -> bool {
        match &self.kind {
            Kind::Tcp(_) | Kind::Unix(_) | Kind::Kcp(_) => false,
            Kind::Tls(tls) => tls.needs_flush(),
            Kind::Ws(ws) => ws.needs_flush(),
        }
    }

    /// Whether its end has to be said before it is dropped. A socket that nothing lies over says it by being closed.
    pub fn needs_shutdown(&self) -> bool {
        !matches!(self.kind, Kind::Tcp(_) | Kind::Unix(_))
    }

    /// Drops the connection at once: what is unsent is lost and a TCP peer sees a reset.
    pub fn abort(self) {
        if let Kind::Kcp(kcp) = self.kind {
            return kcp.abort();
        }
        if let Some(tcp) = self.tcp() {
            // If it fails the socket is closed gently, which is all that is left to do.
            let _ = SockRef::from(tcp).set_linger(Some(Duration::ZERO));
        }
    }

    /// Waits until a read has something to say: bytes, an end or an error. It may be wrong once after a read that left nothing.
    ///
    /// # Errors
    /// The runtime's, when it ends.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.has_buffered_input() {
            return Poll::Ready(Ok(()));
        }
        match &self.kind {
            Kind::Tcp(tcp) => tcp.poll_read_ready(cx),
            Kind::Unix(unix) => unix.poll_read_ready(cx),
            Kind::Tls(tls) => tls.below().poll_readable(cx),
            Kind::Ws(ws) => ws.below().poll_readable(cx),
            Kind::Kcp(kcp) => kcp.poll_readable(cx).map(Ok),
        }
    }

    /// Takes the error that the system holds for the socket, a reset by the peer above all. For streams that are not read now: an
    /// idle look, no wake-up.
    pub fn take_error(&self) -> Option<io::Error> {
        self.tcp()?.take_error().ok().flatten()
    }

    /// The other end's address.
    ///
    /// # Errors
    /// `Unsupported` on a Unix socket; the system's when the connection has ended.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        if let Kind::Kcp(kcp) = &self.kind {
            return Ok(kcp.peer_addr());
        }
        self.tcp().ok_or_else(no_address)?.peer_addr()
    }

    /// This end's address.
    ///
    /// # Errors
    /// As [`Stream::peer_addr`].
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        if let Kind::Kcp(kcp) = &self.kind {
            return Ok(kcp.local_addr());
        }
        self.tcp().ok_or_else(no_address)?.local_addr()
    }

    /// Whether TLS, or KCP's own encryption, protects it at some layer.
    pub fn is_encrypted(&self) -> bool {
        self.tls().is_some() || matches!(self.kind, Kind::Kcp(_))
    }

    /// Whether it can be detached. A KCP stream cannot: its socket serves others on the same worker.
    pub fn can_move(&self) -> bool {
        !matches!(self.kind, Kind::Kcp(_))
    }

    /// Whether a peer that is not whom it seems can only be found out by a proof over [`Stream::channel_binding`]: encrypted, but without
    /// certificates.
    pub fn needs_binding(&self) -> bool {
        matches!(self.kind, Kind::Kcp(_))
    }

    /// 32 bytes that both ends of an encrypted channel have and nobody else: exported under `label` from TLS (see
    /// [`Stream::tls_exporter`]), or KCP's own. `None` without encryption, or where TLS refuses.
    pub fn channel_binding(&self, label: &[u8]) -> Option<[u8; 32]> {
        if let Kind::Kcp(kcp) = &self.kind {
            return Some(kcp.binding());
        }
        let mut exported = [0; 32];
        self.tls_exporter(label, None, &mut exported).ok()?;
        Some(exported)
    }

    /// The peer has proved who it is: a KCP stream gets its full window from now on. Nothing to do on others.
    pub fn peer_is_known(&self) {
        if let Kind::Kcp(kcp) = &self.kind {
            kcp.admit();
        }
    }

    /// The figures of a KCP stream, readable from any thread while the stream lives.
    pub fn kcp_monitor(&self) -> Option<Monitor> {
        match &self.kind {
            Kind::Kcp(kcp) => Some(kcp.monitor()),
            _ => None,
        }
    }

    /// How the way below it fares: of TCP, also below TLS and WebSocket, and of KCP. `None` where nobody can tell.
    pub fn path(&self) -> Option<PathFigures> {
        match self.kcp_monitor() {
            Some(monitor) => Some(path::of_kcp(&monitor)),
            None => path::of_tcp(self.tcp()?).ok(),
        }
    }

    /// The protocol agreed on in the TLS handshake.
    pub fn alpn(&self) -> Option<&[u8]> {
        self.tls()?.alpn()
    }

    /// What the certificate says that the peer has shown in its TLS handshake, and that was accepted there.
    pub fn peer_certificate(&self) -> Option<PeerCertificate> {
        self.tls()?
            .peer_certificate()
            .and_then(PeerCertificate::read)
    }

    /// The name the client asked for in its TLS handshake; `None` on the client's own end.
    pub fn server_name(&self) -> Option<&str> {
        self.tls()?.server_name()
    }

    /// Fills `out` with keying material of the outermost TLS layer (RFC 5705, RFC 8446 §7.5): both ends get the same.
    ///
    /// To bind a proof to the channel, both ends have to insist on TLS 1.3: under 1.2 without the extended master secret
    /// (RFC 7627) somebody between can make two channels export the same.
    ///
    /// # Errors
    /// `Unsupported` without TLS, and with TLS 1.2 that is not known to have an extended master secret (RFC 7627): a server sees it in
    /// the hello, a client must have asked for it with [`TlsClientOptions`](crate::tls::TlsClientOptions); `InvalidInput` for what TLS does not allow (an empty `out`).
    pub fn tls_exporter(
        &self,
        label: &[u8],
        context: Option<&[u8]>,
        out: &mut [u8],
    ) -> io::Result<()> {
        let tls = self
            .tls()
            .ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, "the stream has no TLS"))?;
        tls.export(label, context, out)
    }

    /// Whether `poll_read` would return bytes that are here already, without asking the socket.
    pub fn has_buffered_input(&self) -> bool {
        self.prefix.is_some()
            || match &self.kind {
                Kind::Tcp(_) | Kind::Unix(_) => false,
                Kind::Kcp(kcp) => kcp.is_readable(),
                Kind::Tls(tls) => tls.has_buffered_input(),
                Kind::Ws(ws) => ws.has_buffered_input(),
            }
    }

    pub(crate) fn from_tls(tls: TlsStream) -> Self {
        Self {
            kind: Kind::Tls(Box::new(tls)),
            prefix: None,
        }
    }

    pub(crate) fn from_ws(ws: WsStream) -> Self {
        Self {
            kind: Kind::Ws(Box::new(ws)),
            prefix: None,
        }
    }

    /// The TCP socket at the bottom.
    pub(crate) fn tcp(&self) -> Option<&TcpStream> {
        match &self.kind {
            Kind::Tcp(tcp) => Some(tcp),
            Kind::Unix(_) | Kind::Kcp(_) => None,
            Kind::Tls(tls) => tls.below().tcp(),
            Kind::Ws(ws) => ws.below().tcp(),
        }
    }

    fn tls(&self) -> Option<&TlsStream> {
        match &self.kind {
            Kind::Tcp(_) | Kind::Unix(_) | Kind::Kcp(_) => None,
            Kind::Tls(tls) => Some(tls),
            Kind::Ws(ws) => ws.below().tls(),
        }
    }
}

impl From<TcpStream> for Stream {
    fn from(tcp: TcpStream) -> Self {
        Self {
            kind: Kind::Tcp(tcp),
            prefix: None,
        }
    }
}

impl From<UnixStream> for Stream {
    fn from(unix: UnixStream) -> Self {
        Self {
            kind: Kind::Unix(unix),
            prefix: None,
        }
    }
}

impl From<KcpStream> for Stream {
    fn from(kcp: KcpStream) -> Self {
        Self {
            kind: Kind::Kcp(kcp),
            prefix: None,
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // No addresses: a visitor's must not reach a log by accident.
        match &self.kind {
            Kind::Tcp(_) => f.write_str("Tcp"),
            Kind::Unix(_) => f.write_str("Unix"),
            Kind::Kcp(_) => f.write_str("Kcp"),
            Kind::Tls(tls) => f.debug_tuple("Tls").field(tls.below()).finish(),
            Kind::Ws(ws) => f.debug_tuple("Ws").field(ws.below()).finish(),
        }
    }
}

/// The first slice that holds something.
pub(crate) fn first<'a>(bufs: &'a [IoSlice<'_>]) -> &'a [u8] {
    bufs.iter()
        .find(|buf| !buf.is_empty())
        .map_or(&[], |buf| buf)
}

/// One send, if the socket is known to be writable. A short count clears the readiness along with it, so that the next
/// call does not have to learn from the system that the socket is full.
fn try_send<S: TrySocket>(
    socket: &S,
    len: usize,
    send: impl FnOnce(&SockRef<'_>) -> io::Result<usize>,
) -> io::Result<usize> {
    let mut sent = None;
    let outcome = socket.if_writable(|| {
        let n = send(&SockRef::from(socket))?;
        sent = Some(n);
        if n < len {
            Err(io::ErrorKind::WouldBlock.into())
        } else {
            Ok(())
        }
    });
    match sent {
        Some(n) => Ok(n),
        None => outcome.and(Err(io::ErrorKind::WouldBlock.into())),
    }
}

/// A socket that knows from the event queue whether it is writable.
trait TrySocket: AsFd {
    fn if_writable(&self, act: impl FnOnce() -> io::Result<()>) -> io::Result<()>;
}

impl TrySocket for TcpStream {
    fn if_writable(&self, act: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.try_io(Interest::WRITABLE, act)
    }
}

impl TrySocket for UnixStream {
    fn if_writable(&self, act: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.try_io(Interest::WRITABLE, act)
    }
}

fn no_address() -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        "a Unix socket has no internet address",
    )
}

#[cfg(target_os = "linux")]
const NO_SIGNAL: libc::c_int = libc::MSG_NOSIGNAL;
#[cfg(not(target_os = "linux"))]
const NO_SIGNAL: libc::c_int = 0;

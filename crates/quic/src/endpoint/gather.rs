//! A socket that sends less often: what one connection says in several pieces leaves in one system call of up to 64 KiB.
//!
//! ```text
//!  connections ──► try_send ──► batch ──► socket
//!                     │           ▲ the turn's end: a task that runs when the connections have had their turn
//!                     └───────────┴──────► socket (what ends a burst, or is large by itself)
//! ```
//!
//! quinn gives ten datagrams at most for one call, and twice that in one turn of a connection; the kernel takes 64 of one size for one destination
//! (UDP GSO). A piece with as many datagrams as were asked for is likely to be followed by another, so it is copied into the batch; any other ends a
//! burst, and leaves at once with what is there before it. A single answer is thus sent as it comes, without a copy. There is one batch, so the order
//! of what is sent is kept, and one buffer of 64 KiB (twice that where the system stopped in the middle of a piece).
//!
//! Nothing stays after the turn in which it came: a task of the runtime looks once all tasks before it have run, waits while the batch grows from one
//! look to the next, and then sends it. Reading is left to the socket below.

use std::{
    fmt,
    future::Future,
    io::{self, IoSliceMut},
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::{Context, Poll, Waker, ready},
};

use quinn::{
    AsyncUdpSocket, UdpPoller,
    udp::{EcnCodepoint, RecvMeta, Transmit},
};

use super::packet::READ;

/// See the file's head.
pub(crate) struct Gathering {
    shared: Arc<Shared>,
    /// Bytes of the largest datagram that peers may send.
    taken: u16,
}

struct Shared {
    inner: Arc<dyn AsyncUdpSocket>,
    batch: Mutex<Batch>,
}

impl Gathering {
    /// Over `inner`, on the runtime (of tokio) that runs. `taken`: what [`packet::largest_taken`](super::packet::largest_taken) said.
    pub(crate) fn new(inner: Arc<dyn AsyncUdpSocket>, taken: u16) -> Self {
        let poller = Arc::clone(&inner).create_io_poller();
        let shared = Arc::new(Shared {
            inner,
            batch: Mutex::default(),
        });
        tokio::spawn(TurnsEnd {
            shared: Arc::downgrade(&shared),
            poller,
        });
        Self { shared, taken }
    }
}

impl Shared {
    fn batch(&self) -> MutexGuard<'_, Batch> {
        self.batch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for room and sends what the system refused.
    fn poll_refused(
        &self,
        poller: &mut Pin<Box<dyn UdpPoller>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let mut batch = self.batch();
        while batch.refused {
            ready!(poller.as_mut().poll_writable(cx))?;
            batch.refused = false;
            match batch.send(&*self.inner) {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                    return Poll::Ready(Err(error));
                }
                // The readiness was an old one: it is asked for again.
                _ => {}
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// Datagrams of one size for one destination, the last of which may be shorter.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    /// So many of them have left.
    sent: usize,
    kind: Option<Kind>,
    /// The last datagram is no shorter than the others.
    open: bool,
    /// It has grown since the turn's end was looked for.
    grown: bool,
    /// The system had no room, and has not said since that it has.
    refused: bool,
    over: bool,
    task: Option<Waker>,
}

/// What datagrams of one call have in common.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Kind {
    to: SocketAddr,
    from: Option<IpAddr>,
    mark: Option<EcnCodepoint>,
    /// Bytes of each.
    size: usize,
}

impl Kind {
    fn of(transmit: &Transmit<'_>) -> Self {
        Self {
            to: transmit.destination,
            from: transmit.src_ip,
            mark: transmit.ecn,
            size: transmit
                .segment_size
                .unwrap_or(transmit.contents.len())
                .max(1),
        }
    }

    /// Whether `next` may follow in the same call.
    fn joins(self, next: &Transmit<'_>) -> bool {
        let kind = Self::of(next);
        let alike = self
            == Self {
                size: self.size,
                ..kind
            };
        // Only the last may be shorter.
        let single = next.contents.len() <= kind.size;
        alike && (kind.size == self.size || (single && kind.size < self.size))
    }

    /// Bytes that one call takes.
    fn most(self, socket: &dyn AsyncUdpSocket) -> usize {
        let datagrams = socket.max_transmit_segments().clamp(1, MOST_DATAGRAMS);
        self.size * (MOST_BYTES / self.size).clamp(1, datagrams)
    }

    fn send(self, bytes: &[u8], socket: &dyn AsyncUdpSocket) -> io::Result<()> {
        socket.try_send(&Transmit {
            destination: self.to,
            ecn: self.mark,
            contents: bytes,
            segment_size: (bytes.len() > self.size).then_some(self.size),
            src_ip: self.from,
        })
    }
}

impl Batch {
    /// Takes all of `transmit`, or nothing where the system has no room (`WouldBlock`).
    fn take(&mut self, transmit: &Transmit<'_>, socket: &dyn AsyncUdpSocket) -> io::Result<()> {
        let kind = Kind::of(transmit);
        let mut rest = transmit.contents;
        let full = rest.len().is_multiple_of(kind.size);
        let more = full && rest.len() / kind.size >= ASKED;
        if let Some(waiting) = self.kind {
            let joins = self.open && !self.refused && waiting.joins(transmit);
            let room = waiting.most(socket).saturating_sub(self.bytes.len());
            if joins && room >= kind.size {
                let n = rest.len().min(room - room % waiting.size);
                self.append(&rest[..n], full || n < rest.len());
                rest = &rest[n..];
                if !self.open || !more || !rest.is_empty() || n == room {
                    self.send_or_keep(socket)?;
                }
            } else {
                self.send(socket)?;
            }
        }
        let most = kind.most(socket);
        while self.kind.is_none() && (rest.len() >= most || (!more && !rest.is_empty())) {
            let n = rest.len().min(most);
            match kind.send(&rest[..n], socket) {
                Ok(()) => rest = &rest[n..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.refuse();
                    if rest.len() == transmit.contents.len() {
                        return Err(error);
                    }
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        if !rest.is_empty() {
            self.kind = Some(kind);
            self.append(rest, full);
            self.wake();
        }
        Ok(())
    }

    fn append(&mut self, bytes: &[u8], open: bool) {
        self.bytes.extend_from_slice(bytes);
        self.open = open;
        self.grown = true;
    }

    /// Sends what is there. What the system refuses stays, and the task sees to it.
    fn send_or_keep(&mut self, socket: &dyn AsyncUdpSocket) -> io::Result<()> {
        match self.send(socket) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            sent => sent,
        }
    }

    /// Sends what is there; what the system refuses stays.
    fn send(&mut self, socket: &dyn AsyncUdpSocket) -> io::Result<()> {
        let Some(kind) = self.kind else {
            return Ok(());
        };
        // As the system sees it now: it may have refused to cut into datagrams meanwhile.
        let most = kind.most(socket);
        while self.sent < self.bytes.len() {
            let rest = &self.bytes[self.sent..];
            let n = rest.len().min(most);
            match kind.send(&rest[..n], socket) {
                Ok(()) => self.sent += n,
                Err(error) => {
                    if error.kind() == io::ErrorKind::WouldBlock {
                        self.refuse();
                    } else {
                        self.clear();
                    }
                    return Err(error);
                }
            }
        }
        self.clear();
        Ok(())
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.sent = 0;
        self.kind = None;
        self.open = false;
        self.grown = false;
    }

    fn refuse(&mut self) {
        self.refused = true;
        if self.kind.is_some() {
            self.wake();
        }
    }

    fn wake(&self) {
        if let Some(task) = &self.task {
            task.wake_by_ref();
        }
    }
}

/// Sends what is left when a turn is over.
struct TurnsEnd {
    shared: Weak<Shared>,
    poller: Pin<Box<dyn UdpPoller>>,
}

impl Future for TurnsEnd {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(shared) = self.shared.upgrade() else {
            return Poll::Ready(());
        };
        let mut batch = shared.batch();
        if batch.over {
            return Poll::Ready(());
        }
        if !batch
            .task
            .as_ref()
            .is_some_and(|task| task.will_wake(cx.waker()))
        {
            batch.task = Some(cx.waker().clone());
        }
        if batch.kind.is_none() {
            return Poll::Pending;
        }
        if std::mem::take(&mut batch.grown) && !batch.refused {
            // Behind the connections that are not done yet.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if !batch.refused {
            // What is refused is waited for below; other errors are those of the connections' next datagrams too.
            let _ = batch.send(&*shared.inner);
        }
        drop(batch);
        let _ = shared.poll_refused(&mut self.poller, cx);
        Poll::Pending
    }
}

impl Drop for Gathering {
    fn drop(&mut self) {
        let mut batch = self.shared.batch();
        // The last words of a connection: there is nobody left to wait for room.
        let _ = batch.send(&*self.shared.inner);
        batch.over = true;
        batch.wake();
    }
}

/// Tells a connection when there is room again.
struct Room {
    shared: Arc<Shared>,
    inner: Pin<Box<dyn UdpPoller>>,
}

impl UdpPoller for Room {
    fn poll_writable(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        this.shared.poll_refused(&mut this.inner, cx)
    }
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room").finish_non_exhaustive()
    }
}

impl AsyncUdpSocket for Gathering {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Room {
            shared: Arc::clone(&self.shared),
            inner: Arc::clone(&self.shared.inner).create_io_poller(),
        })
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.shared.batch().take(transmit, &*self.shared.inner)
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        self.shared.inner.poll_recv(cx, bufs, meta)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.shared.inner.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.shared.inner.max_transmit_segments().min(ASKED)
    }

    /// With [`super::packet::largest_taken`] this makes the buffers of an endpoint.
    fn max_receive_segments(&self) -> usize {
        READ.div_ceil(self.taken.into())
    }

    fn may_fragment(&self) -> bool {
        self.shared.inner.may_fragment()
    }
}

impl fmt::Debug for Gathering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gathering").finish_non_exhaustive()
    }
}

/// Datagrams that a connection is asked for at a time. Of the largest that are used ([`super::packet::LARGEST`]) these are two full calls; quinn itself
/// gives no more than ten.
const ASKED: usize = 8;
/// Datagrams of one call: UDP_MAX_SEGMENTS of Linux before 6.9.
const MOST_DATAGRAMS: usize = 64;
/// Bytes of one call: what fits into a UDP packet over IPv4 (RFC 768, RFC 791 §3.1).
const MOST_BYTES: usize = 65_535 - 20 - 8;

#[cfg(test)]
mod tests;

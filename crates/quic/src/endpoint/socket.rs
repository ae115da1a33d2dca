//! A server's socket as its endpoint sees it: datagrams of connections that an older process has are taken out and passed on, and those that another
//! process passes on come in.
//!
//! ```text
//!  socket ──► sort ──► endpoint        socket ─╳ (another process reads it)
//!              └─► outlet ═══ older process      inlet ──► channel ──► endpoint
//! ```
//!
//! What is sent goes straight to the socket, also when this process reads it no more. Nothing is ever passed on twice: what came through a channel
//! goes to the endpoint and nowhere else.

use std::{
    fmt,
    io::{self, IoSliceMut},
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll, ready},
};

use net::Outlet;
use quinn::{
    AsyncUdpSocket, UdpPoller,
    udp::{EcnCodepoint, RecvMeta, Transmit},
};
use tokio::sync::mpsc;

use super::id::{self, Ids};

/// A datagram that another process has read.
#[derive(Debug)]
pub(super) struct Passed {
    pub(super) from: SocketAddr,
    pub(super) mark: u8,
    pub(super) datagram: Vec<u8>,
}

/// Sockets of a group: whether they are read, and the ways in.
#[derive(Debug)]
pub(super) struct Group {
    retired: AtomicBool,
    /// Sockets that an endpoint reads.
    reading: AtomicUsize,
    ways: Vec<Way>,
}

#[derive(Debug)]
struct Way {
    sender: mpsc::Sender<Passed>,
    /// Bytes that wait in it.
    waiting: Arc<AtomicUsize>,
}

/// The other end of a way in, for the socket with the same place.
#[derive(Debug)]
pub(super) struct WayIn {
    receiver: mpsc::Receiver<Passed>,
    waiting: Arc<AtomicUsize>,
}

fn way() -> (Way, WayIn) {
    let (sender, receiver) = mpsc::channel(WAITING);
    let waiting = Arc::new(AtomicUsize::new(0));
    let way = Way {
        sender,
        waiting: Arc::clone(&waiting),
    };
    (way, WayIn { receiver, waiting })
}

impl Group {
    /// Of `count` sockets.
    pub(super) fn new(count: usize) -> (Self, Vec<WayIn>) {
        let (ways, ends) = (0..count).map(|_| way()).unzip();
        let group = Self {
            retired: AtomicBool::new(false),
            reading: AtomicUsize::new(0),
            ways,
        };
        (group, ends)
    }

    /// A datagram for the socket that its id names; lost when there is none, or when it is too busy.
    pub(super) fn give(&self, from: SocketAddr, mark: u8, datagram: &[u8]) {
        let owner = id::destination(datagram).and_then(id::owner);
        let Some(way) = owner.and_then(|owner| self.ways.get(usize::from(owner.socket))) else {
            return;
        };
        let length = datagram.len();
        if way.waiting.load(SeqCst) + length > WAITING_BYTES {
            return;
        }
        // Before it is there to be taken out.
        way.waiting.fetch_add(length, SeqCst);
        let datagram = datagram.to_vec();
        let passed = Passed {
            from,
            mark,
            datagram,
        };
        if way.sender.try_send(passed).is_err() {
            way.waiting.fetch_sub(length, SeqCst);
        }
    }

    /// No socket is read from now on.
    pub(super) fn retire(&self) {
        self.retired.store(true, SeqCst);
        for way in &self.ways {
            // Wakes it up. One that has no room for that is awake.
            let _ = way.sender.try_send(Passed {
                from: SocketAddr::from(([0, 0, 0, 0], 0)),
                mark: 0,
                datagram: Vec::new(),
            });
        }
    }

    pub(super) fn is_reading(&self) -> bool {
        self.reading.load(SeqCst) > 0
    }
}

/// One socket of a group.
pub(super) struct Steered {
    inner: Arc<dyn AsyncUdpSocket>,
    group: Arc<Group>,
    ids: Ids,
    turn: Mutex<Turn>,
}

/// Used by the endpoint's task alone.
struct Turn {
    way_in: WayIn,
    /// `None` where no other process is ever on the same sockets.
    outlet: Option<Outlet>,
    reads: bool,
}

impl Steered {
    pub(super) fn new(
        inner: Arc<dyn AsyncUdpSocket>,
        group: &Arc<Group>,
        ids: Ids,
        way_in: WayIn,
        outlet: Option<Outlet>,
    ) -> Self {
        group.reading.fetch_add(1, SeqCst);
        Self {
            inner,
            group: Arc::clone(group),
            ids,
            turn: Mutex::new(Turn {
                way_in,
                outlet,
                reads: true,
            }),
        }
    }

    /// Reads until there is something for the endpoint. When only others get something, they get so much and no more in one turn.
    fn receive(
        &self,
        turn: &mut Turn,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        for _ in 0..READS {
            let given = turn.take(cx, bufs, meta);
            if given > 0 {
                return Poll::Ready(Ok(given));
            }
            if self.group.retired.load(SeqCst) {
                turn.stop(&self.group);
                return Poll::Pending;
            }
            let received = ready!(self.inner.poll_recv(cx, bufs, meta))?;
            let Some(outlet) = &mut turn.outlet else {
                return Poll::Ready(Ok(received));
            };
            let mut kept = 0;
            for (buffer, meta) in bufs.iter_mut().zip(&mut meta[..received]) {
                sort(&self.ids, outlet, buffer, meta);
                kept += meta.len;
            }
            outlet.flush();
            if kept > 0 {
                return Poll::Ready(Ok(received));
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Turn {
    /// What others passed on.
    fn take(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> usize {
        let mut given = 0;
        while let (Some(buffer), Some(meta)) = (bufs.get_mut(given), meta.get_mut(given)) {
            let Poll::Ready(Some(passed)) = self.way_in.receiver.poll_recv(cx) else {
                break;
            };
            let length = passed.datagram.len();
            self.way_in.waiting.fetch_sub(length, SeqCst);
            if length == 0 || length > buffer.len() {
                continue;
            }
            buffer[..length].copy_from_slice(&passed.datagram);
            *meta = RecvMeta {
                addr: passed.from,
                len: length,
                stride: length,
                ecn: EcnCodepoint::from_bits(passed.mark),
                // Answers go out by the address that the connection was begun on.
                dst_ip: None,
            };
            given += 1;
        }
        given
    }

    fn stop(&mut self, group: &Group) {
        if std::mem::take(&mut self.reads) {
            group.reading.fetch_sub(1, SeqCst);
        }
    }
}

/// Takes out of one read (which may hold several datagrams of one sender) what is not for this process.
fn sort(ids: &Ids, outlet: &mut Outlet, buffer: &mut [u8], meta: &mut RecvMeta) {
    let (length, stride) = (meta.len.min(buffer.len()), meta.stride.max(1));
    let mut kept = 0;
    for start in (0..length).step_by(stride) {
        let end = length.min(start + stride);
        let datagram = &buffer[start..end];
        match whose(ids, outlet, datagram) {
            Whose::Ours if kept == start => kept = end,
            Whose::Ours => {
                buffer.copy_within(start..end, kept);
                kept += end - start;
            }
            Whose::Other(epoch) => {
                let mark = meta.ecn.map_or(0, |ecn| ecn as u8);
                outlet.pass(epoch, meta.addr, mark, datagram);
            }
        }
    }
    meta.len = kept;
}

enum Whose {
    Ours,
    /// Of the process with this epoch.
    Other(u8),
}

/// Only what a process of this service has made, for one that is there, is worth the way; of the rest the endpoint takes what begins a connection.
fn whose(ids: &Ids, outlet: &mut Outlet, datagram: &[u8]) -> Whose {
    let Some(id) = id::destination(datagram) else {
        return Whose::Ours;
    };
    match id::owner(id) {
        Some(owner)
            if owner.epoch != ids.epoch()
                && outlet.reaches(owner.epoch)
                && ids.knows(id)
                && !id::begins_with_token(datagram) =>
        {
            Whose::Other(owner.epoch)
        }
        _ => Whose::Ours,
    }
}

impl AsyncUdpSocket for Steered {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Arc::clone(&self.inner).create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.inner.try_send(transmit)
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.receive(&mut turn, cx, bufs, meta)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.inner.max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.inner.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.inner.may_fragment()
    }
}

impl Drop for Steered {
    fn drop(&mut self) {
        let turn = self.turn.get_mut().unwrap_or_else(PoisonError::into_inner);
        turn.stop(&self.group);
    }
}

impl fmt::Debug for Steered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Steered").finish_non_exhaustive()
    }
}

/// Datagrams that wait for an endpoint; more are lost, as on any path.
const WAITING: usize = 4096;
/// Bytes of them: so many datagrams of the usual size, or fewer larger ones.
const WAITING_BYTES: usize = 6 << 20;
/// Reads of which nothing was for this process, before other tasks have their turn.
const READS: usize = 8;

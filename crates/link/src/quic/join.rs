//! A socket joined to a QUIC stream: one task that moves bytes both ways. It holds no buffer while it has nothing to move.

use std::{
    cell::RefCell,
    future::Future,
    io,
    pin::{Pin, pin},
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWrite, ReadBuf};

use super::{
    flow::{Flow, told},
    link::{Begun, Opening, Shared, Slot},
};
use crate::{
    broken::{Broken, Countdown},
    end::{End, Outcome},
    join::JoinOptions,
    pace::{Pace, Traffic},
};

/// Resolves when the stream has ended in both directions. Dropping it resets the stream and the socket.
pub(crate) struct Join {
    shared: Rc<Shared>,
    slot: Rc<Slot>,
    socket: Option<net::Stream>,
    stream: Stage,
    /// From the socket, not yet taken by QUIC.
    outgoing: Bytes,
    /// From QUIC, not yet taken by the socket.
    incoming: Bytes,
    sending: Sending,
    receiving: Receiving,
    /// When something was last sent or received is wanted.
    timed: bool,
    limits: Option<Box<Limits>>,
    traffic: Option<Arc<Traffic>>,
    sent: u64,
    received: u64,
    /// The socket takes nothing any more, or gives nothing either.
    broken: Option<Broken>,
    countdown: Countdown,
    ended: bool,
}

/// What moved before the join.
pub(super) struct Joined {
    pub(super) outgoing: Bytes,
    /// How many of them are the socket's.
    pub(super) sent: usize,
    pub(super) incoming: Bytes,
}

enum Stage {
    Opening(Opening),
    Open(Flow),
    Over,
}

#[derive(Default)]
struct Limits {
    send: Option<Pace>,
    receive: Option<Pace>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sending {
    Open,
    /// The socket is done; what is outgoing goes first.
    Finishing,
    /// The socket was reset: its end is none that the peer could be told as one.
    Lost,
    Finished,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Receiving {
    Open,
    /// The peer is done; what is incoming goes first.
    Finishing,
    /// The socket's sending side is shut down.
    Finished,
}

impl Join {
    pub(super) fn new(
        shared: Rc<Shared>,
        slot: Rc<Slot>,
        begun: Begun,
        joined: Joined,
        socket: net::Stream,
        options: JoinOptions,
    ) -> Self {
        let stage = match begun {
            Begun::Open(pair) => Stage::Open(Flow::new(pair)),
            Begun::Opening(opening) => Stage::Opening(opening),
        };
        let mut join = Self::with_stage(shared, slot, stage, joined, socket);
        join.apply(options);
        join
    }

    /// Goes on with a stream that was used otherwise until now; `None` when it was given up meanwhile.
    pub(super) fn with_flow(
        shared: Rc<Shared>,
        slot: Rc<Slot>,
        flow: Option<Flow>,
        ends: (Sending, Receiving),
        joined: Joined,
        socket: net::Stream,
        options: JoinOptions,
    ) -> Self {
        let stage = flow.map_or(Stage::Over, Stage::Open);
        let mut join = Self::with_stage(shared, slot, stage, joined, socket);
        (join.sending, join.receiving) = ends;
        join.apply(options);
        join
    }

    fn with_stage(
        shared: Rc<Shared>,
        slot: Rc<Slot>,
        stream: Stage,
        joined: Joined,
        socket: net::Stream,
    ) -> Self {
        Self {
            shared,
            slot,
            socket: Some(socket),
            stream,
            outgoing: joined.outgoing,
            incoming: joined.incoming,
            sending: Sending::Open,
            receiving: Receiving::Open,
            timed: false,
            limits: None,
            traffic: None,
            sent: joined.sent as u64,
            received: 0,
            broken: None,
            countdown: Countdown::default(),
            ended: false,
        }
    }

    fn apply(&mut self, options: JoinOptions) {
        self.traffic = options.traffic;
        if let Some(traffic) = &self.traffic {
            traffic.add_sent(usize::try_from(self.sent).unwrap_or(usize::MAX));
        }
        let tenths = |time: Duration| u32::try_from(time.as_millis() / 100).unwrap_or(u32::MAX);
        self.slot.idle.set(options.idle.map(tenths));
        self.slot.idle_one_way.set(options.idle_one_way.map(tenths));
        self.timed = options.idle.is_some() || options.idle_one_way.is_some();
        if options.send.is_some() || options.receive.is_some() {
            self.limits = Some(Box::new(Limits {
                send: options.send.map(Pace::new),
                receive: options.receive.map(Pace::new),
            }));
        }
    }

    fn step(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        if let Some(end) = self.slot.verdict.get() {
            return Poll::Ready(end);
        }
        if matches!(self.stream, Stage::Over) {
            return Poll::Ready(End::Cancelled);
        }
        if let Stage::Opening(opening) = &mut self.stream {
            match std::task::ready!(opening.as_mut().poll(cx)) {
                Some(pair) => self.stream = Stage::Open(Flow::new(pair)),
                None if self.shared.is_open() => {
                    return Poll::Ready(End::Reset(tunnel::ResetReason::Overloaded));
                }
                None => return Poll::Ready(End::LinkLost),
            }
        }
        let inward = match self.poll_inward(cx) {
            Poll::Ready(Err(End::Socket(kind))) => {
                self.break_off(kind);
                Poll::Pending
            }
            Poll::Ready(Err(end)) => return Poll::Ready(end),
            inward => inward,
        };
        let outward = match self.poll_outward(cx) {
            Poll::Ready(Err(End::Socket(kind))) if self.lose(kind) => Poll::Pending,
            Poll::Ready(Err(end)) => return Poll::Ready(end),
            outward => outward,
        };
        if inward.is_ready() && outward.is_ready() {
            return Poll::Ready(End::Finished);
        }
        if let Some(broken) = self.broken {
            return self.poll_broken(broken, cx);
        }
        if let (Poll::Ready(Ok(())), Stage::Open(flow)) = (inward, &mut self.stream) {
            return flow.poll_stopped(cx);
        }
        Poll::Pending
    }

    /// The socket has failed, and what it has given may be on its way: waits for the peer to give the stream up, and not for long.
    fn poll_broken(&mut self, broken: Broken, cx: &mut Context<'_>) -> Poll<End> {
        if let Stage::Open(flow) = &mut self.stream
            && let Poll::Ready(end) = flow.poll_stopped(cx)
        {
            return Poll::Ready(end);
        }
        let (sent_at, now) = (self.slot.sent_at.get(), self.shared.tenths());
        let over = self.countdown.poll(broken, sent_at, now, cx);
        over.map(|()| End::Socket(broken.kind))
    }

    /// The socket takes nothing more. What it has given, and may still give, is passed on nevertheless.
    fn break_off(&mut self, kind: io::ErrorKind) {
        if self.broken.is_none() {
            self.broken = Some(Broken::new(kind, self.shared.tenths()));
        }
        self.incoming = Bytes::new();
        // Nobody reads what comes: it waits in the stream's window, and counts as what a stalled stream holds.
        self.shared.stall(&self.slot);
    }

    /// The socket gives nothing more, and not because it was done. Whether something of it may still be on its way to the peer, which a reset
    /// would throw away.
    fn lose(&mut self, kind: io::ErrorKind) -> bool {
        if self.sent == 0 || Broken::has_passed(self.slot.sent_at.get(), self.shared.tenths()) {
            return false;
        }
        self.sending = Sending::Lost;
        self.break_off(kind);
        true
    }

    /// From QUIC to the socket, until the peer's end has been passed on.
    fn poll_inward(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        for _ in 0..ROUNDS {
            if self.broken.is_some() && self.receiving != Receiving::Finished {
                return Poll::Pending;
            }
            std::task::ready!(self.poll_deliver(cx))?;
            match self.receiving {
                Receiving::Finished => return Poll::Ready(Ok(())),
                Receiving::Finishing => {
                    let Some(socket) = &mut self.socket else {
                        return Poll::Ready(Ok(()));
                    };
                    std::task::ready!(Pin::new(socket).poll_shutdown(cx)).map_err(broken)?;
                    self.receiving = Receiving::Finished;
                }
                Receiving::Open => std::task::ready!(self.poll_fetch(cx))?,
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Writes what waits for the socket.
    fn poll_deliver(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        while !self.incoming.is_empty() {
            let Some(socket) = &mut self.socket else {
                return Poll::Ready(Ok(()));
            };
            let mut bytes = &self.incoming[..];
            let mut pace = self
                .limits
                .as_mut()
                .and_then(|limits| limits.receive.as_mut());
            if let Some(pace) = &mut pace {
                let allowed = std::task::ready!(pace.poll_allowance(cx));
                bytes = &bytes[..bytes.len().min(allowed)];
            }
            let Poll::Ready(written) = Pin::new(socket).poll_write(cx, bytes) else {
                self.shared.stall(&self.slot);
                return Poll::Pending;
            };
            let n = written.map_err(broken)?;
            if n == 0 {
                return Poll::Ready(Err(End::Socket(io::ErrorKind::WriteZero)));
            }
            if let Some(pace) = pace {
                pace.settle(n);
            }
            self.incoming.advance(n);
            self.count_received(n);
        }
        // An empty slice would keep all of what it was cut from.
        self.incoming = Bytes::new();
        if let Some(socket) = &mut self.socket
            && socket.needs_flush()
        {
            std::task::ready!(Pin::new(socket).poll_flush(cx)).map_err(broken)?;
        }
        Poll::Ready(Ok(()))
    }

    /// Reads from QUIC and gives the socket what it takes at once.
    fn poll_fetch(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        let (Stage::Open(flow), Some(socket)) = (&mut self.stream, &mut self.socket) else {
            return Poll::Ready(Ok(()));
        };
        let paced = self
            .limits
            .as_ref()
            .is_some_and(|limits| limits.receive.is_some());
        let room = if paced { PACED_READ } else { READ };
        let fetched: Poll<Result<(usize, usize), End>> = SCRATCH.with_borrow_mut(|scratch| {
            let mut buffer = ReadBuf::new(&mut scratch[..room]);
            std::task::ready!(flow.poll_receive(cx, &mut buffer))?;
            let bytes = buffer.filled();
            let taken = if paced || bytes.is_empty() {
                0
            } else {
                match socket.try_write(bytes) {
                    Ok(taken) => taken,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                    Err(error) => return Poll::Ready(Err(broken(error))),
                }
            };
            if taken < bytes.len() {
                self.incoming = Bytes::copy_from_slice(&bytes[taken..]);
            }
            Poll::Ready(Ok((bytes.len(), taken)))
        });
        let (n, taken) = std::task::ready!(fetched)?;
        if n == 0 {
            self.receiving = Receiving::Finishing;
        } else if taken > 0 {
            self.count_received(taken);
        }
        Poll::Ready(Ok(()))
    }

    /// From the socket to QUIC, until the socket's end has been passed on.
    fn poll_outward(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        for _ in 0..ROUNDS {
            let Stage::Open(flow) = &mut self.stream else {
                return Poll::Pending;
            };
            while !self.outgoing.is_empty() {
                let Poll::Ready(sent) = flow.poll_send(cx, &mut self.outgoing) else {
                    return self.wait_for_credit();
                };
                sent?;
            }
            self.outgoing = Bytes::new();
            self.slot.look.set(false);
            match self.sending {
                Sending::Finished => return Poll::Ready(Ok(())),
                Sending::Lost => return Poll::Pending,
                Sending::Finishing => {
                    flow.finish();
                    self.sending = Sending::Finished;
                }
                Sending::Open => std::task::ready!(self.poll_take(cx))?,
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// QUIC takes nothing now, so the socket is not read: its end is only found by looking now and then.
    fn wait_for_credit(&mut self) -> Poll<Result<(), End>> {
        self.slot.look.set(true);
        if let Some(error) = self.socket.as_ref().and_then(net::Stream::take_error) {
            self.break_off(error.kind());
        }
        Poll::Pending
    }

    /// Reads the socket; short reads are copied, long ones are not.
    fn poll_take(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        let (Stage::Open(flow), Some(socket)) = (&mut self.stream, &mut self.socket) else {
            return Poll::Pending;
        };
        let mut pace = self.limits.as_mut().and_then(|limits| limits.send.as_mut());
        let mut room = READ;
        if let Some(pace) = &mut pace {
            // What is reserved for a silent direction would be missing in the other.
            std::task::ready!(socket.poll_readable(cx)).map_err(broken)?;
            room = room.min(std::task::ready!(pace.poll_allowance(cx)));
        }
        let read = ARENA.with_borrow_mut(|arena| {
            if arena.capacity() < READ {
                arena.reserve(BLOCK);
            }
            let read = pin!(socket.read_buf(&mut (&mut *arena).limit(room))).poll(cx);
            read.map_ok(|n| {
                (
                    n,
                    if n >= LONG {
                        arena.split().freeze()
                    } else {
                        Bytes::new()
                    },
                )
            })
        });
        let Poll::Ready(read) = read else {
            if let Some(pace) = pace {
                pace.settle(0);
            }
            return Poll::Pending;
        };
        let (n, long) = read.map_err(broken)?;
        if let Some(pace) = pace {
            pace.settle(n);
        }
        if n == 0 {
            if let Some(broken) = self.broken
                && !broken.ends_in_order()
            {
                return Poll::Ready(Err(End::Socket(broken.kind)));
            }
            self.sending = Sending::Finishing;
            return Poll::Ready(Ok(()));
        }
        let now = self.shared.tenths();
        if now.saturating_sub(self.slot.sent_at.replace(now)) >= PAUSE {
            flow.paused();
        }
        let rest = if long.is_empty() {
            ARENA.with_borrow_mut(|arena| {
                let sent = flow.poll_copy(cx, arena);
                let rest = match sent {
                    Poll::Ready(Ok(taken)) => Ok(Bytes::copy_from_slice(&arena[taken..])),
                    Poll::Ready(Err(end)) => Err(end),
                    Poll::Pending => Ok(Bytes::copy_from_slice(arena)),
                };
                arena.clear();
                rest
            })?
        } else {
            long
        };
        self.outgoing = rest;
        self.sent += n as u64;
        if let Some(traffic) = &self.traffic {
            traffic.add_sent(n);
        }
        Poll::Ready(Ok(()))
    }

    fn count_received(&mut self, n: usize) {
        self.received += n as u64;
        self.shared.progress(&self.slot);
        if self.timed {
            self.slot.received_at.set(self.shared.tenths());
        }
        if let Some(traffic) = &self.traffic {
            traffic.add_received(n);
        }
    }

    /// Ends the stream. A socket is reset unless the stream ended in order, so that nobody takes a cut transfer for a whole one; if the peer
    /// gave up before sending anything the owner gets it back, to say so in the socket's own language.
    fn finish(&mut self, end: End) -> Outcome {
        self.ended = true;
        if !matches!(self.stream, Stage::Over) {
            self.shared.remove(&self.slot);
        }
        if let Stage::Open(mut flow) = std::mem::replace(&mut self.stream, Stage::Over) {
            if end == End::Finished {
                self.shared.linger(flow.send);
            } else if self.broken.is_some() && self.sending == Sending::Finished {
                // All that the socket has said, to its end: only the other direction is given up.
                flow.stop(told(end));
                self.shared.linger(flow.send);
            } else {
                flow.reset(told(end));
            }
        }
        self.outgoing = Bytes::new();
        self.incoming = Bytes::new();
        let mut socket = self.socket.take();
        match end {
            End::Finished => socket = None,
            End::Reset(_) | End::LinkLost if self.received == 0 => {}
            _ => {
                if let Some(socket) = socket.take() {
                    socket.abort();
                }
            }
        }
        Outcome {
            sent: self.sent,
            received: self.received,
            end,
            socket,
        }
    }
}

impl Future for Join {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        self.slot.register(cx);
        let end = std::task::ready!(self.step(cx));
        Poll::Ready(self.finish(end))
    }
}

impl Drop for Join {
    fn drop(&mut self) {
        if !self.ended {
            self.finish(End::Cancelled);
        }
    }
}

fn broken(error: io::Error) -> End {
    End::Socket(error.kind())
}

thread_local! {
    /// One buffer per worker for what comes from QUIC: streams hold none.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ].into_boxed_slice());
    /// What is read from sockets; long reads are cut out of it without a copy. Empty between two reads.
    static ARENA: RefCell<BytesMut> = RefCell::new(BytesMut::new());
}

/// Bytes moved at a time.
const READ: usize = 64 << 10;
/// Under a speed limit they are moved in small portions, which wait here and not in the peer's window.
const PACED_READ: usize = 4 << 10;
/// What is allocated at a time for reads.
const BLOCK: usize = 4 * READ;
/// Cutting a read out of the block keeps all of the block until it has arrived, so short ones are copied.
const LONG: usize = 4 << 10;
/// After so many portions in one direction others on the worker get their turn.
const ROUNDS: usize = 8;
/// Tenths of seconds without anything to send, after which a stream counts as interactive again.
const PAUSE: u32 = 2;

//! A handle on a QUIC link, and what the link, its driver and its streams share.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::Future,
    pin::pin,
    rc::Rc,
    sync::{Arc, atomic::AtomicU64},
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use bytes::{BufMut, Bytes, BytesMut};
use mux::OpenError;
use quinn::{Connection, RecvStream, SendStream};
use tokio::sync::Notify;
use tunnel::ResetReason;

use super::{
    channel::Channels,
    control::{Control, Outbox},
    cover::Cover,
    driver::{self, Driver},
    join::{Join, Joined},
    stalled::Stalled,
    stream::Stream,
};
use crate::{
    end::End,
    join::JoinOptions,
    link::{Handler, LinkOptions},
    pace::Traffic,
};

/// See [`crate::Link`], whose methods these are.
#[derive(Clone)]
pub(crate) struct Link {
    pub(super) shared: Rc<Shared>,
}

/// On one thread, as everything of a link.
pub(crate) struct Shared {
    pub(super) connection: Connection,
    origin: Instant,
    most_streams: usize,
    pub(super) outbox: RefCell<Outbox>,
    /// There is something to send, or the link is to close.
    pub(super) news: Notify,
    pub(super) closing: Cell<bool>,
    pub(super) ended: Cell<bool>,
    slots: RefCell<Slots>,
    stalled: RefCell<Stalled>,
    pub(super) channels: RefCell<Channels>,
    /// Covers the datagrams that are sent, if both ends want it.
    pub(super) cover: Option<Cover>,
    /// Finished streams whose last bytes may be on their way yet: the connection must not be closed before they have arrived.
    lingering: RefCell<VecDeque<(Instant, SendStream)>>,
}

/// One stream as the link sees it.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    index: Cell<usize>,
    /// Why it must end, found outside of it.
    pub(super) verdict: Cell<Option<End>>,
    /// Its owner should see whether its socket still lives.
    pub(super) look: Cell<bool>,
    /// Wakes its owner.
    pub(super) waker: RefCell<Option<Waker>>,
    /// Tenths of seconds since the link's origin, by direction.
    pub(super) sent_at: Cell<u32>,
    pub(super) received_at: Cell<u32>,
    /// Tenths of seconds without a byte in either direction, and in any one of them.
    pub(super) idle: Cell<Option<u32>>,
    pub(super) idle_one_way: Cell<Option<u32>>,
    pub(super) stalled: Cell<Option<u64>>,
}

impl Slot {
    fn judge(&self, end: End) {
        if self.verdict.get().is_none() {
            self.verdict.set(Some(end));
        }
        self.wake();
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    pub(super) fn register(&self, cx: &Context<'_>) {
        let mut waker = self.waker.borrow_mut();
        if !waker
            .as_ref()
            .is_some_and(|waker| waker.will_wake(cx.waker()))
        {
            *waker = Some(cx.waker().clone());
        }
    }

    /// Whether the stream has been silent for longer than it may.
    fn is_idle(&self, now: u32) -> bool {
        let sent = now.saturating_sub(self.sent_at.get());
        let received = now.saturating_sub(self.received_at.get());
        self.idle
            .get()
            .is_some_and(|limit| sent.min(received) >= limit)
            || self
                .idle_one_way
                .get()
                .is_some_and(|limit| sent.max(received) >= limit)
    }
}

#[derive(Debug, Default)]
struct Slots {
    table: Vec<Option<Rc<Slot>>>,
    free: Vec<usize>,
}

impl Shared {
    /// Tenths of seconds since the link began.
    pub(super) fn tenths(&self) -> u32 {
        u32::try_from(self.origin.elapsed().as_millis() / 100).unwrap_or(u32::MAX)
    }

    pub(super) fn is_open(&self) -> bool {
        !self.ended.get() && !self.closing.get()
    }

    pub(super) fn add(&self) -> Rc<Slot> {
        let slot = Rc::new(Slot::default());
        let now = self.tenths();
        slot.sent_at.set(now);
        slot.received_at.set(now);
        let mut slots = self.slots.borrow_mut();
        let index = slots.free.pop().unwrap_or(slots.table.len());
        if index == slots.table.len() {
            slots.table.push(None);
        }
        slot.index.set(index);
        slots.table[index] = Some(Rc::clone(&slot));
        slot
    }

    /// The stream is over. To be called once.
    pub(super) fn remove(&self, slot: &Slot) {
        self.stalled.borrow_mut().leave(slot);
        let mut slots = self.slots.borrow_mut();
        let index = slot.index.get();
        if slots.table[index].take().is_some() {
            slots.free.push(index);
        }
    }

    pub(super) fn stream_count(&self) -> usize {
        let slots = self.slots.borrow();
        slots.table.len() - slots.free.len()
    }

    pub(super) fn most_streams(&self) -> usize {
        self.most_streams
    }

    fn has_room(&self) -> bool {
        self.stream_count() < self.most_streams
    }

    /// The stream's reader takes nothing now.
    pub(super) fn stall(&self, slot: &Rc<Slot>) {
        let given_up = self.stalled.borrow_mut().enter(slot);
        if let Some(given_up) = given_up {
            given_up.judge(End::Reset(ResetReason::Overloaded));
        }
    }

    pub(super) fn progress(&self, slot: &Slot) {
        if slot.stalled.get().is_some() {
            self.stalled.borrow_mut().leave(slot);
        }
    }

    /// Ends what has been silent for too long, and has all others see whether their sockets live: one that waits for credit is not read, so
    /// nobody would hear of its reset.
    pub(super) fn sweep(&self) {
        let now = self.tenths();
        for slot in self.slots.borrow().table.iter().flatten() {
            if slot.is_idle(now) {
                slot.judge(End::Idle);
            } else if slot.look.get() {
                slot.wake();
            }
        }
    }

    /// The link is gone: so is every stream.
    pub(super) fn end_all(&self) {
        self.ended.set(true);
        for slot in self.slots.borrow().table.iter().flatten() {
            slot.judge(End::LinkLost);
        }
        self.channels.borrow_mut().clear();
    }

    /// A stream has ended in order; its last bytes may be on their way.
    pub(super) fn linger(&self, send: SendStream) {
        let mut lingering = self.lingering.borrow_mut();
        let now = Instant::now();
        while lingering.len() >= MOST_LINGERING
            || lingering
                .front()
                .is_some_and(|(since, _)| now.duration_since(*since) > LINGER)
        {
            lingering.pop_front();
        }
        lingering.push_back((now, send));
    }

    pub(super) fn take_lingering(&self) -> VecDeque<(Instant, SendStream)> {
        std::mem::take(&mut *self.lingering.borrow_mut())
    }
}

/// Both directions of a stream.
pub(super) type Pair = (SendStream, RecvStream);
/// A stream that the peer does not admit yet.
pub(super) type Opening = std::pin::Pin<Box<dyn Future<Output = Option<Pair>>>>;

impl Link {
    pub(crate) fn start(
        control: Control,
        options: &LinkOptions,
        handler: Rc<dyn Handler>,
    ) -> (Self, Driver) {
        control.admit();
        let shared = Rc::new(Shared {
            connection: control.connection.clone(),
            origin: Instant::now(),
            most_streams: options.config.max_streams,
            outbox: RefCell::default(),
            news: Notify::new(),
            closing: Cell::new(false),
            ended: Cell::new(false),
            slots: RefCell::default(),
            stalled: RefCell::default(),
            channels: RefCell::default(),
            cover: options
                .fec
                .map(|form| Cover::new(control.connection.clone(), form.shards())),
            lingering: RefCell::default(),
        });
        let link = Self { shared };
        let driver = driver::run(link.clone(), control, handler, options.sweep_every);
        (link, Box::pin(driver))
    }

    pub(crate) fn open(
        &self,
        header: &[u8],
        first: Vec<u8>,
        socket: net::Stream,
        options: JoinOptions,
    ) -> Result<Join, (net::Stream, OpenError)> {
        match self.begin(header, &first) {
            Ok((begun, opening)) => {
                // The header is this end's; `first` was the socket's.
                let joined = Joined {
                    outgoing: begun,
                    sent: first.len(),
                    incoming: Bytes::new(),
                };
                let slot = self.shared.add();
                let shared = Rc::clone(&self.shared);
                Ok(Join::new(shared, slot, opening, joined, socket, options))
            }
            Err(error) => Err((socket, error)),
        }
    }

    pub(crate) fn open_stream(
        &self,
        header: &[u8],
        traffic: Option<Arc<Traffic>>,
    ) -> Result<Stream, OpenError> {
        let (begun, opening) = self.begin(header, &[])?;
        let Begun::Open(pair) = opening else {
            return Err(OpenError::TooManyStreams);
        };
        let slot = self.shared.add();
        Ok(Stream::new(
            Rc::clone(&self.shared),
            slot,
            pair,
            begun,
            traffic,
        ))
    }

    /// What a stream begins with, and the stream itself or a wait for it.
    fn begin(&self, header: &[u8], first: &[u8]) -> Result<(Bytes, Begun), OpenError> {
        if header.len() > tunnel::MAX_STREAM_HEADER {
            return Err(OpenError::HeaderTooLong);
        }
        if !self.shared.is_open() || !self.shared.has_room() {
            return Err(OpenError::TooManyStreams);
        }
        let mut bytes = BytesMut::with_capacity(2 + header.len() + first.len());
        bytes.put_u16(u16::try_from(header.len()).unwrap_or(u16::MAX));
        bytes.extend_from_slice(header);
        bytes.extend_from_slice(first);
        let connection = self.shared.connection.clone();
        // Nearly always the peer admits another stream.
        let now = pin!(connection.open_bi()).poll(&mut Context::from_waker(Waker::noop()));
        let begun = match now {
            Poll::Ready(Ok(pair)) => Begun::Open(pair),
            Poll::Ready(Err(_)) => return Err(OpenError::TooManyStreams),
            Poll::Pending => Begun::Opening(Box::pin(async move {
                let opened = tokio::time::timeout(OPEN_TIME, connection.open_bi()).await;
                opened.ok()?.ok()
            })),
        };
        Ok((bytes.freeze(), begun))
    }

    pub(crate) fn send_control(&self, message: &[u8]) {
        self.shared.outbox.borrow_mut().push(message);
        self.shared.news.notify_one();
    }

    pub(crate) fn close(&self) {
        self.shared.closing.set(true);
        self.shared.end_all();
        self.shared.news.notify_one();
    }

    pub(crate) fn is_open(&self) -> bool {
        self.shared.is_open()
    }

    pub(crate) fn stream_count(&self) -> usize {
        self.shared.stream_count()
    }

    pub(crate) fn round_trip(&self) -> Duration {
        self.shared.connection.rtt()
    }

    pub(crate) fn bytes(&self) -> (u64, u64) {
        let stats = self.shared.connection.stats();
        (stats.udp_tx.bytes, stats.udp_rx.bytes)
    }

    pub(crate) fn path(&self) -> net::PathFigures {
        let connection = &self.shared.connection;
        let stats = connection.stats();
        net::PathFigures {
            rtt: Some(connection.rtt()).filter(|rtt| !rtt.is_zero()),
            spoken: stats.udp_tx.datagrams,
            heard: stats.udp_rx.datagrams,
            sent: stats.path.sent_packets,
            lost: net::Lost::Packets(stats.path.lost_packets),
        }
    }

    pub(crate) fn repaired(&self) -> Arc<AtomicU64> {
        self.shared.channels.borrow().repaired()
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.shared, &other.shared)
    }
}

/// A stream, or the wait for one.
pub(super) enum Begun {
    Open(Pair),
    Opening(Opening),
}

/// How long a visitor waits for the peer to admit another stream: it tells within a round trip when one has ended.
const OPEN_TIME: Duration = Duration::from_secs(5);
/// What arrives later than this is lost with a connection that closes.
const LINGER: Duration = Duration::from_secs(10);
const MOST_LINGERING: usize = 1024;

//! What the driver, the joined sockets' tasks and the stream handles of one link over a byte transport share, on one thread.

use std::{
    cell::RefCell,
    collections::VecDeque,
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use mux::{Event, Key, Mux, Reason, Turn, Violation};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tunnel::ResetReason;

use super::slot::{Receiving, Sending, Slot};
use crate::end::End;

pub(crate) struct Shared {
    pub(crate) state: RefCell<State>,
}

pub(crate) struct State {
    pub(crate) mux: Mux,
    table: Vec<Option<Entry>>,
    /// Present while the driver sleeps.
    pub(crate) driver: Option<Waker>,
    pub(crate) origin: Instant,
    /// Taken once per turn: reading the clock for every frame would cost more than the frame.
    pub(crate) now: Duration,
    pub(crate) closing: bool,
    pub(crate) ended: bool,
    /// Told to the link's handler when the state is free again.
    pub(crate) told: VecDeque<Told>,
    pub(crate) received_bytes: u64,
    pub(crate) sent_bytes: u64,
    /// How the way below fares, as the driver saw it when it was last asked to look.
    pub(crate) path: Option<net::PathFigures>,
    pub(crate) look: bool,
}

/// The key is beside the slot, because the multiplexer may give an index out again before the old stream's owner has run.
struct Entry {
    key: Key,
    slot: Rc<RefCell<Slot>>,
}

pub(crate) enum Told {
    Opened(Rc<RefCell<Slot>>, Vec<u8>),
    Control(Vec<u8>),
}

impl State {
    pub(crate) fn new(mux: Mux) -> Self {
        Self {
            mux,
            table: Vec::new(),
            driver: None,
            origin: Instant::now(),
            now: Duration::ZERO,
            closing: false,
            ended: false,
            told: VecDeque::new(),
            received_bytes: 0,
            sent_bytes: 0,
            path: None,
            look: false,
        }
    }

    /// Tenths of seconds since the link began.
    pub(crate) fn tenths(&self) -> u32 {
        u32::try_from(self.now.as_millis() / 100).unwrap_or(u32::MAX)
    }

    pub(crate) fn refresh_clock(&mut self) {
        self.now = self.origin.elapsed();
    }

    /// Lets the driver run after the tasks that are ready now; so one write serves them all.
    pub(crate) fn wake_driver(&mut self) {
        if let Some(driver) = self.driver.take() {
            driver.wake();
        }
    }

    pub(crate) fn add(&mut self, key: Key) -> Rc<RefCell<Slot>> {
        let slot = Rc::new(RefCell::new(Slot::new(key, self.tenths())));
        let index = key.index();
        if self.table.len() <= index {
            self.table.resize_with(index + 1, || None);
        }
        self.table[index] = Some(Entry {
            key,
            slot: Rc::clone(&slot),
        });
        slot
    }

    fn get(&self, key: Key) -> Option<&Rc<RefCell<Slot>>> {
        let entry = self.table.get(key.index())?.as_ref()?;
        (entry.key == key).then_some(&entry.slot)
    }

    /// Takes the stream out of the table.
    pub(crate) fn remove(&mut self, key: Key) -> Option<Rc<RefCell<Slot>>> {
        self.get(key)?;
        self.table[key.index()].take().map(|entry| entry.slot)
    }

    /// Acts on what the transport gave.
    pub(crate) fn receive(&mut self, mut input: &[u8]) -> Result<(), Violation> {
        self.received_bytes += input.len() as u64;
        while let Some(event) = self.mux.receive(&mut input, self.now)? {
            match event {
                Event::Data { key, bytes } => self.deliver(key, bytes),
                Event::Opened { key, header } => {
                    let slot = self.add(key);
                    self.told.push_back(Told::Opened(slot, header.into_owned()));
                }
                Event::Finished { key } => self.peer_finished(key),
                Event::Reset { key, reason } => self.forget(key, End::Reset(reason.0.into())),
                Event::Control { message } => {
                    self.told.push_back(Told::Control(message.into_owned()))
                }
                Event::Pong { .. } => {}
            }
        }
        Ok(())
    }

    /// Straight into the socket if it takes it; what it does not take waits for the stream's task.
    fn deliver(&mut self, key: Key, bytes: &[u8]) {
        let now = self.tenths();
        let Some(Entry { slot, .. }) = self.table.get(key.index()).and_then(Option::as_ref) else {
            return;
        };
        let mut slot = slot.borrow_mut();
        if slot.broken.is_some() {
            return;
        }
        let paced = slot
            .limits
            .as_ref()
            .is_some_and(|limits| limits.receive.is_some());
        let mut rest = bytes;
        if slot.pending.is_empty()
            && !paced
            && let Some(socket) = &mut slot.socket
        {
            match socket.try_write(bytes) {
                Ok(n) => {
                    let unflushed = socket.needs_flush();
                    rest = &bytes[n..];
                    slot.count_received(n, now);
                    self.mux.consumed(key, n, self.now);
                    if rest.is_empty() && !unflushed {
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return slot.break_off(error.kind(), now),
            }
        }
        slot.pending.push(rest);
        slot.wake_reader();
    }

    fn peer_finished(&mut self, key: Key) {
        let Some(slot) = self.get(key) else { return };
        let mut slot = slot.borrow_mut();
        slot.receiving = Receiving::Finishing;
        // A plain socket shuts down at once; the rest is the task's.
        if slot.pending.is_empty()
            && let Slot {
                socket: Some(socket),
                reader: Some(waker),
                broken: None,
                ..
            } = &mut *slot
            && let Poll::Ready(Ok(())) =
                Pin::new(socket).poll_shutdown(&mut Context::from_waker(&waker.clone()))
        {
            slot.receiving = Receiving::Finished;
            if slot.sending != Sending::Finished {
                return;
            }
        }
        slot.wake_reader();
    }

    /// The stream is over for the multiplexer.
    pub(crate) fn forget(&mut self, key: Key, end: End) {
        if let Some(slot) = self.remove(key) {
            slot.borrow_mut().finish(end);
        }
    }

    /// Resets the stream and takes it out of the table; its slot has been or will be told by the caller.
    pub(crate) fn drop_stream(&mut self, key: Key, reason: ResetReason) {
        self.mux.reset(key, Reason(reason.into()));
        self.remove(key);
        self.wake_driver();
    }

    /// Serves the streams that wait for their turn while there is room. Joined sockets are read on behalf of their task.
    pub(crate) fn serve_turns(&mut self) {
        while let Some((key, allowed)) = self.mux.next_turn() {
            let Some(slot) = self.get(key).map(Rc::clone) else {
                continue;
            };
            let mut slot = slot.borrow_mut();
            slot.waits_for_turn = false;
            if slot.socket.is_some() {
                let waker = slot.reader.clone().unwrap_or_else(|| Waker::noop().clone());
                self.feed(&mut slot, Some(allowed), &mut Context::from_waker(&waker));
            } else {
                slot.turn = Some(allowed);
                slot.wake_writer();
            }
        }
    }

    /// Reads the joined socket into the link until it has no more, or the stream must wait. Registers `cx` with the socket.
    pub(crate) fn feed(&mut self, slot: &mut Slot, mut turn: Option<usize>, cx: &mut Context<'_>) {
        let key = slot.key;
        while slot.sending == Sending::Open && slot.end.is_none() {
            let Some(socket) = &mut slot.socket else {
                return;
            };
            let mut allowed = match turn.take() {
                Some(allowed) => allowed,
                None => match self.mux.request(key) {
                    Turn::Now(allowed) => allowed,
                    Turn::Later => {
                        slot.waits_for_turn = true;
                        return;
                    }
                    Turn::Gone => return,
                },
            };
            let mut pace = slot.limits.as_mut().and_then(|limits| limits.send.as_mut());
            if let Some(pace) = &mut pace {
                // What is reserved for a silent direction would be missing in the other.
                if socket.poll_readable(cx).is_pending() {
                    return;
                }
                let Poll::Ready(portion) = pace.poll_allowance(cx) else {
                    return;
                };
                allowed = allowed.min(portion);
            }
            let read = self
                .mux
                .send_with(key, allowed, |room| read_some(socket, room, cx));
            match read {
                Ok(n) if n > 0 => {
                    if let Some(pace) = pace {
                        pace.settle(n);
                    }
                    let now = self.tenths();
                    slot.count_sent(n, now);
                    self.wake_driver();
                }
                Ok(_) if slot.broken.is_some_and(|broken| !broken.ends_in_order()) => {
                    let kind = slot
                        .broken
                        .map_or(io::ErrorKind::Other, |broken| broken.kind);
                    self.lose(slot, kind);
                }
                Ok(_) => {
                    slot.sending = Sending::Finished;
                    self.mux.finish(key);
                    self.wake_driver();
                    if slot.receiving == Receiving::Finished {
                        // Read on behalf of the task, which alone can end the stream.
                        slot.wake_reader();
                    }
                }
                Err(Stop::NothingNow) => {
                    if let Some(pace) = pace {
                        pace.settle(0);
                    }
                    return;
                }
                Err(Stop::Failed(kind)) => self.lose(slot, kind),
            }
        }
    }

    /// The joined socket has failed: the stream is reset, at once if nothing of it can be on its way.
    fn lose(&mut self, slot: &mut Slot, kind: io::ErrorKind) {
        let now = self.tenths();
        if !slot.lose(kind, now) {
            slot.finish(End::Socket(kind));
            self.drop_stream(slot.key, ResetReason::Reset);
        }
    }

    /// Ends what has been silent for too long, and what broke while it waited for its turn: such a socket is not read, so nobody would
    /// hear of its reset before credit comes, if it ever does.
    pub(crate) fn sweep(&mut self) {
        let now = self.tenths();
        let mut over: Vec<Key> = Vec::new();
        for Entry { key, slot } in self.table.iter().flatten() {
            let mut slot = slot.borrow_mut();
            if slot.is_idle(now) {
                over.push(*key);
            } else if slot.waits_for_turn
                && let Some(error) = slot.socket.as_ref().and_then(net::Stream::take_error)
            {
                slot.break_off(error.kind(), now);
            }
        }
        for key in over {
            self.mux.reset(key, Reason(ResetReason::IdleTimeout.into()));
            self.forget(key, End::Idle);
        }
    }

    /// The link is gone: so is every stream.
    pub(crate) fn end_all(&mut self) {
        self.ended = true;
        for entry in std::mem::take(&mut self.table).into_iter().flatten() {
            entry.slot.borrow_mut().finish(End::LinkLost);
        }
    }
}

pub(crate) enum Stop {
    NothingNow,
    Failed(io::ErrorKind),
}

fn read_some(
    socket: &mut net::Stream,
    room: &mut [u8],
    cx: &mut Context<'_>,
) -> Result<usize, Stop> {
    let mut buffer = ReadBuf::new(room);
    match Pin::new(socket).poll_read(cx, &mut buffer) {
        Poll::Ready(Ok(())) => Ok(buffer.filled().len()),
        Poll::Ready(Err(error)) => Err(Stop::Failed(error.kind())),
        Poll::Pending => Err(Stop::NothingNow),
    }
}

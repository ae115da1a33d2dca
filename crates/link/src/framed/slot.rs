//! One stream as the link's shell sees it: the socket joined to it, if any, and what waits for its owner.

use std::{
    io::ErrorKind,
    sync::Arc,
    task::{Poll, Waker},
};

use mux::Key;

use crate::{
    broken::Broken,
    end::{End, Outcome},
    pace::{Pace, Traffic},
};

/// Shared by the link's table and the stream's owner.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) key: Key,
    /// The joined socket; absent while the stream is dialled, or used through `Stream`.
    pub(crate) socket: Option<net::Stream>,
    /// Woken when there is something to read (or anything, for a joined stream).
    pub(crate) reader: Option<Waker>,
    /// Woken when there is room to write.
    pub(crate) writer: Option<Waker>,
    /// From the peer, not yet passed on. Bounded by the stream's credit.
    pub(crate) pending: Pending,
    /// A turn was asked for.
    pub(crate) waits_for_turn: bool,
    /// A turn that the owner has not used.
    pub(crate) turn: Option<usize>,
    pub(crate) sending: Sending,
    pub(crate) receiving: Receiving,
    /// The joined socket takes nothing any more, or gives nothing either; see [`Broken`].
    pub(crate) broken: Option<Broken>,
    pub(crate) end: Option<End>,
    pub(crate) sent: u64,
    pub(crate) received: u64,
    /// Tenths of seconds since the link's origin, by direction; only kept for sweeps.
    pub(crate) sent_at: u32,
    pub(crate) received_at: u32,
    pub(crate) limits: Option<Box<Limits>>,
    pub(crate) traffic: Option<Arc<Traffic>>,
}

/// What few streams have.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    pub(crate) send: Option<Pace>,
    pub(crate) receive: Option<Pace>,
    /// Tenths of seconds without a byte in either direction, and in any one of them.
    pub(crate) idle: Option<u32>,
    pub(crate) idle_one_way: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sending {
    Open,
    /// The socket was reset: its end is none that the peer could be told as one.
    Lost,
    Finished,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Receiving {
    Open,
    /// The peer is done; what is pending goes out first.
    Finishing,
    /// The socket's sending side is shut down.
    Finished,
}

impl Slot {
    pub(crate) fn new(key: Key, now: u32) -> Self {
        Self {
            key,
            socket: None,
            reader: None,
            writer: None,
            pending: Pending::default(),
            waits_for_turn: false,
            turn: None,
            sending: Sending::Open,
            receiving: Receiving::Open,
            broken: None,
            end: None,
            sent: 0,
            received: 0,
            sent_at: now,
            received_at: now,
            limits: None,
            traffic: None,
        }
    }

    /// Wakes whoever owns the stream.
    pub(crate) fn wake(&mut self) {
        for waker in [&self.reader, &self.writer].into_iter().flatten() {
            waker.wake_by_ref();
        }
    }

    pub(crate) fn wake_reader(&self) {
        if let Some(waker) = &self.reader {
            waker.wake_by_ref();
        }
    }

    pub(crate) fn wake_writer(&self) {
        if let Some(waker) = &self.writer {
            waker.wake_by_ref();
        }
    }

    /// Ends the stream for its owner. A socket is reset unless the stream ended in order, so that nobody takes a cut transfer for a
    /// whole one; if the peer gave up before sending anything the owner gets it back, to say so in the socket's own language.
    pub(crate) fn finish(&mut self, end: End) {
        if self.end.is_some() {
            return;
        }
        self.end = Some(end);
        // Little that came right before a reset is still for whoever reads the stream; of a joined one the socket's own queue is all.
        let last_words = matches!(end, End::Reset(_))
            && self.socket.is_none()
            && self.pending.bytes().len() <= LAST_BYTES;
        if !last_words {
            self.pending = Pending::default();
        }
        if let Some(socket) = self.socket.take() {
            match end {
                End::Finished => {}
                End::Reset(_) | End::LinkLost if self.received == 0 => self.socket = Some(socket),
                _ => socket.abort(),
            }
        }
        self.wake();
    }

    /// The socket takes nothing more. What it has given, and may still give, is passed on nevertheless.
    pub(crate) fn break_off(&mut self, kind: ErrorKind, now: u32) {
        if self.broken.is_none() {
            self.broken = Some(Broken::new(kind, now));
        }
        self.pending = Pending::default();
        self.wake_reader();
    }

    /// The socket gives nothing more, and not because it was done. Whether something of it may still be on its way to the peer, which a reset
    /// would throw away.
    pub(crate) fn lose(&mut self, kind: ErrorKind, now: u32) -> bool {
        if self.sent == 0 || Broken::has_passed(self.sent_at, now) {
            return false;
        }
        self.sending = Sending::Lost;
        self.break_off(kind, now);
        true
    }

    pub(crate) fn outcome(&mut self) -> Poll<Outcome> {
        match self.end {
            Some(end) => Poll::Ready(Outcome {
                sent: self.sent,
                received: self.received,
                end,
                socket: self.socket.take(),
            }),
            None => Poll::Pending,
        }
    }

    pub(crate) fn count_sent(&mut self, n: usize, now: u32) {
        self.sent += n as u64;
        self.sent_at = now;
        if let Some(traffic) = &self.traffic {
            traffic.add_sent(n);
        }
    }

    pub(crate) fn count_received(&mut self, n: usize, now: u32) {
        self.received += n as u64;
        self.received_at = now;
        if let Some(traffic) = &self.traffic {
            traffic.add_received(n);
        }
    }

    /// Whether the stream has been silent for longer than it may.
    pub(crate) fn is_idle(&self, now: u32) -> bool {
        let Some(limits) = &self.limits else {
            return false;
        };
        let (sent, received) = (
            now.saturating_sub(self.sent_at),
            now.saturating_sub(self.received_at),
        );
        limits.idle.is_some_and(|limit| sent.min(received) >= limit)
            || limits
                .idle_one_way
                .is_some_and(|limit| sent.max(received) >= limit)
    }
}

/// What is kept for the reader of a stream that was reset: outside of any window, so that it is little.
const LAST_BYTES: usize = 32 << 10;

/// Bytes in order; holds no memory when empty.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    bytes: Vec<u8>,
    start: usize,
}

impl Pending {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.bytes.len()
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        // Do not let passed-on bytes pile up in front of a stream that never quite drains.
        if self.start > 64 << 10 && self.start > self.bytes.len() / 2 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    pub(crate) fn advance(&mut self, n: usize) {
        self.start += n;
        if self.is_empty() {
            *self = Self::default();
        }
    }
}

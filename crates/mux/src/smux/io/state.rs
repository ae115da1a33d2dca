//! What a session's driver and its handles share: the state machine, and for each stream what waits on either side of it.

use std::{
    collections::{HashMap, VecDeque},
    io,
    sync::{Mutex, MutexGuard, PoisonError},
    task::Waker,
    time::Duration,
};

use tokio::{io::ReadBuf, time::Instant};

use crate::{
    smux::{Config, Event, Smux, Violation},
    types::{Dead, Key, Side, Turn},
};

#[derive(Debug)]
pub(super) struct Shared {
    origin: Instant,
    state: Mutex<State>,
}

impl Shared {
    pub(super) fn new(side: Side, config: Config) -> Self {
        Self {
            origin: Instant::now(),
            state: Mutex::new(State {
                smux: Smux::new(side, config, Duration::ZERO),
                slots: HashMap::new(),
                accepts: VecDeque::new(),
                acceptors: Vec::new(),
                openers: Vec::new(),
                driver: None,
                end: None,
                handle_gone: false,
                linger: config.linger,
                stop: config.output_limit.saturating_mul(4).max(256 << 10),
            }),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // A panic while it was held leaves nothing half-changed that matters more than going on.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    pub(super) fn instant(&self, at: Duration) -> Instant {
        // Far away is as good as never.
        self.origin + at.min(Duration::from_secs(1 << 30))
    }
}

/// Why a session has ended.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum End {
    #[error("the smux session was closed")]
    Closed,
    #[error("the transport of the smux session has ended")]
    TransportEnded,
    #[error("the transport of the smux session failed: {1}")]
    Transport(io::ErrorKind, String),
    #[error(transparent)]
    Violation(#[from] Violation),
    #[error(transparent)]
    Dead(#[from] Dead),
}

impl From<&End> for io::Error {
    fn from(end: &End) -> Self {
        let kind = match end {
            End::Closed => io::ErrorKind::NotConnected,
            End::TransportEnded => io::ErrorKind::ConnectionAborted,
            End::Transport(kind, _) => *kind,
            End::Violation(_) => io::ErrorKind::InvalidData,
            End::Dead(_) => io::ErrorKind::TimedOut,
        };
        Self::new(kind, end.clone())
    }
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) smux: Smux,
    pub(super) slots: HashMap<Key, Slot>,
    /// Streams of the peer that nobody has taken; among `slots`.
    pub(super) accepts: VecDeque<Key>,
    pub(super) acceptors: Vec<Waker>,
    pub(super) openers: Vec<Waker>,
    pub(super) driver: Option<Waker>,
    pub(super) end: Option<End>,
    /// The `Session` is gone: streams of the peer are refused, and when all are gone the session ends.
    pub(super) handle_gone: bool,
    linger: Duration,
    /// Output at which neither reading nor opening goes on.
    stop: usize,
}

/// One stream on its user's side.
#[derive(Debug, Default)]
pub(super) struct Slot {
    /// Bytes that came and were not read.
    input: VecDeque<u8>,
    /// Nothing comes behind `input`.
    pub(super) eof: bool,
    pub(super) reader: Option<Waker>,
    /// Bytes that wait for the stream's turn.
    pub(super) staged: Vec<u8>,
    pub(super) writer: Option<Waker>,
    /// The user writes no more, or cannot.
    pub(super) shut: bool,
    /// The user is gone since; what is staged is still sent.
    dropped_at: Option<Duration>,
}

impl Slot {
    /// Moves what fits; tells how much.
    pub(super) fn take(&mut self, out: &mut ReadBuf<'_>) -> usize {
        let mut taken = 0;
        let (front, back) = self.input.as_slices();
        for part in [front, back] {
            let n = part.len().min(out.remaining());
            out.put_slice(&part[..n]);
            taken += n;
        }
        if taken == self.input.len() {
            // An idle stream holds no buffer.
            self.input = VecDeque::new();
        } else {
            self.input.drain(..taken);
        }
        taken
    }

    fn wake(&mut self) {
        for waker in [self.reader.take(), self.writer.take()] {
            waker.into_iter().for_each(Waker::wake);
        }
    }
}

impl State {
    pub(super) fn wake_driver(&mut self) {
        if let Some(waker) = self.driver.take() {
            waker.wake();
        }
    }

    pub(super) fn may_read_or_open(&self) -> bool {
        self.smux.output_len() <= self.stop
    }

    /// Takes bytes of the transport.
    pub(super) fn receive(&mut self, mut input: &[u8], now: Duration) -> Result<(), Violation> {
        while let Some(event) = self.smux.receive(&mut input, now)? {
            match event {
                Event::Opened { key } if self.handle_gone => self.smux.close(key, now),
                Event::Opened { key } => {
                    self.slots.insert(key, Slot::default());
                    self.accepts.push_back(key);
                    self.acceptors.drain(..).for_each(Waker::wake);
                }
                Event::Data { key, bytes } => match self.slots.get_mut(&key) {
                    Some(slot) if slot.dropped_at.is_none() => {
                        slot.input.extend(bytes);
                        slot.reader.take().into_iter().for_each(Waker::wake);
                    }
                    _ => self.smux.consumed(key, bytes.len(), now),
                },
                Event::Finished { key } => {
                    if let Some(slot) = self.slots.get_mut(&key) {
                        slot.eof = true;
                        slot.reader.take().into_iter().for_each(Waker::wake);
                    }
                }
            }
        }
        Ok(())
    }

    /// Gives streams their turns while there is room.
    pub(super) fn turns(&mut self, now: Duration) {
        while let Some((key, limit)) = self.smux.next_turn() {
            self.turn(key, limit, now);
        }
        if self.may_read_or_open() {
            self.openers.drain(..).for_each(Waker::wake);
        }
    }

    fn turn(&mut self, key: Key, mut limit: usize, now: Duration) {
        let Some(slot) = self.slots.get_mut(&key) else {
            return;
        };
        let mut sent = 0;
        while sent < slot.staged.len() {
            sent += self.smux.send_turn(key, limit, &slot.staged[sent..]);
            if sent < slot.staged.len() {
                match self.smux.request(key) {
                    Turn::Now(n) => limit = n,
                    Turn::Later | Turn::Gone => break,
                }
            }
        }
        slot.staged.drain(..sent);
        if slot.staged.is_empty() {
            slot.staged = Vec::new();
            slot.writer.take().into_iter().for_each(Waker::wake);
            let (shut, dropped) = (slot.shut, slot.dropped_at.is_some());
            if dropped {
                self.forget(key, now);
            } else if shut {
                self.smux.finish(key);
            }
        }
    }

    /// The stream's user is gone.
    pub(super) fn drop_stream(&mut self, key: Key, now: Duration) {
        let Some(slot) = self.slots.get_mut(&key) else {
            return;
        };
        if slot.staged.is_empty() || self.end.is_some() {
            self.forget(key, now);
            return;
        }
        slot.dropped_at = Some(now);
        let unread = std::mem::take(&mut slot.input).len();
        self.smux.consumed(key, unread, now);
    }

    fn forget(&mut self, key: Key, now: Duration) {
        self.slots.remove(&key);
        self.smux.close(key, now);
    }

    /// The timer has fired.
    pub(super) fn timeout(&mut self, now: Duration) -> Result<(), Dead> {
        self.smux.on_timeout(now)?;
        while let Some(key) = self.smux.next_given_up() {
            if let Some(slot) = self.slots.get_mut(&key) {
                slot.shut = true;
                slot.staged = Vec::new();
                slot.wake();
            }
        }
        let linger = self.linger;
        let overdue = |(key, slot): (&Key, &Slot)| {
            let since = slot.dropped_at?;
            (slot.staged.is_empty() || now.saturating_sub(since) >= linger).then_some(*key)
        };
        let overdue: Vec<Key> = self.slots.iter().filter_map(overdue).collect();
        for key in overdue {
            self.forget(key, now);
        }
        Ok(())
    }

    /// Nobody can use the session any more.
    pub(super) fn is_deserted(&self) -> bool {
        self.handle_gone && self.slots.is_empty()
    }

    /// The session ends, for the first reason that is given.
    pub(super) fn finish(&mut self, end: End) {
        self.end.get_or_insert(end);
        self.acceptors.drain(..).for_each(Waker::wake);
        self.openers.drain(..).for_each(Waker::wake);
        self.slots.values_mut().for_each(Slot::wake);
    }
}

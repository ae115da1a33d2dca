//! What a stream and its driver share: the session behind a lock, who waits for it, and whether the stream is still held.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::Waker,
};

use super::{
    super::{Clock, socket::Socket},
    Totals,
};
use crate::secure::{End, Session};

/// What all streams of a socket share with its driver.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) clock: Clock,
    pub(super) socket: Socket,
    pub(super) local: SocketAddr,
    pub(super) totals: Arc<Totals>,
    /// Another process reads the socket.
    retired: AtomicBool,
    work: Mutex<Work>,
}

#[derive(Debug, Default)]
struct Work {
    /// Links whose stream did something that the driver must look at.
    dirty: Vec<Arc<Link>>,
    driver: Option<Waker>,
    /// The driver is gone. Nothing may be added: the list would hold what holds the list.
    closed: bool,
}

impl Shared {
    pub(super) fn new(clock: Clock, socket: Socket, totals: Arc<Totals>) -> io::Result<Arc<Self>> {
        let local = socket.local_addr()?;
        let work = Mutex::default();
        Ok(Arc::new(Self {
            clock,
            socket,
            local,
            totals,
            retired: AtomicBool::new(false),
            work,
        }))
    }

    /// Gives the driver's list of work and notes whom to wake for more.
    pub(super) fn take_work(&self, waker: &Waker, into: &mut Vec<Arc<Link>>) {
        let mut work = lock(&self.work);
        into.append(&mut work.dirty);
        match &mut work.driver {
            Some(old) => old.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
    }

    /// The driver reads no more from the socket.
    pub(super) fn retire(&self) {
        self.retired.store(true, Ordering::Release);
        let waker = lock(&self.work).driver.clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(super) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    pub(super) fn close_work(&self) {
        let closed = Work {
            closed: true,
            ..Work::default()
        };
        let left = std::mem::replace(&mut *lock(&self.work), closed);
        drop(left);
    }
}

/// One session on a socket.
#[derive(Debug)]
pub(super) struct Link {
    /// Its place in the driver's table.
    pub(super) key: usize,
    pub(super) shared: Arc<Shared>,
    dirty: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) session: Session,
    /// The socket failed, or its task was stopped.
    pub(super) orphaned: bool,
    /// The stream is gone.
    pub(super) dropped: bool,
    pub(super) reader: Option<Waker>,
    pub(super) writer: Option<Waker>,
    pub(super) flusher: Option<Waker>,
}

impl Link {
    pub(super) fn new(key: usize, shared: Arc<Shared>, session: Session) -> Self {
        let state = State {
            session,
            orphaned: false,
            dropped: false,
            reader: None,
            writer: None,
            flusher: None,
        };
        Self {
            key,
            shared,
            dirty: AtomicBool::new(false),
            state: Mutex::new(state),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Has the driver look at this session. Not to be called with the state locked.
    pub(super) fn mark_dirty(self: &Arc<Self>) {
        if self.dirty.swap(true, Ordering::AcqRel) {
            return;
        }
        let waker = {
            let mut work = lock(&self.shared.work);
            if work.closed {
                return;
            }
            work.dirty.push(Arc::clone(self));
            work.driver.clone()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The driver looks at it now; what happens from here on needs another look.
    pub(super) fn clean(&self) {
        self.dirty.store(false, Ordering::Release);
    }
}

impl State {
    /// Why nothing more can happen, if so.
    pub(super) fn over(&self) -> Option<io::Error> {
        let (kind, text) = match self.session.end() {
            None if !self.orphaned => return None,
            None | Some(End::Finished | End::Abandoned) => {
                (io::ErrorKind::NotConnected, "the KCP session is closed")
            }
            Some(End::Reset) => (
                io::ErrorKind::ConnectionReset,
                "the peer ended the KCP session",
            ),
            Some(End::Dead) => (
                io::ErrorKind::TimedOut,
                "the peer of the KCP session does not answer",
            ),
            Some(End::Protocol) => (
                io::ErrorKind::InvalidData,
                "the peer of the KCP session broke the protocol",
            ),
            Some(End::Exhausted) => (
                io::ErrorKind::ConnectionAborted,
                "the keys of the KCP session are used up",
            ),
        };
        Some(io::Error::new(kind, text))
    }

    /// Wakes whoever can go on.
    pub(super) fn wake(&mut self) {
        let over = self.orphaned || self.session.end().is_some();
        let session = &self.session;
        let wake = |waker: &mut Option<Waker>, ready: bool| {
            if ready && let Some(waker) = waker.take() {
                waker.wake();
            }
        };
        wake(
            &mut self.reader,
            over || session.readable() > 0 || session.is_at_end(),
        );
        wake(&mut self.writer, over || session.has_room());
        wake(&mut self.flusher, over || session.is_flushed());
    }
}

/// A panic while the lock is held leaves nothing half-changed that matters more than going on.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

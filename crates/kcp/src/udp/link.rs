//! What a session's handle and the driver share: the pipeline behind a lock, who waits for it, and how it ended.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::Waker,
};

use super::{Clock, rate::Rate, socket::Socket};
use crate::{Counters, Pipeline};

/// What all handles of a socket share with its driver.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) clock: Clock,
    pub(super) socket: Socket,
    pub(super) local: SocketAddr,
    work: Mutex<Work>,
    /// Counts of the socket itself and of sessions that are gone.
    pub(super) counters: Mutex<Counters>,
}

#[derive(Debug, Default)]
struct Work {
    /// Sessions whose handle did something that the driver must look at.
    dirty: Vec<Arc<Link>>,
    driver: Option<Waker>,
    /// The driver is gone. Nothing may be added: the list would hold what holds the list.
    closed: bool,
}

impl Shared {
    pub(super) fn new(clock: Clock, socket: Socket) -> io::Result<Arc<Self>> {
        let local = socket.local_addr()?;
        let (work, counters) = (Mutex::default(), Mutex::default());
        Ok(Arc::new(Self {
            clock,
            socket,
            local,
            work,
            counters,
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

    /// The driver ends.
    pub(super) fn close_work(&self) {
        let mut work = lock(&self.work);
        let left = std::mem::replace(
            &mut *work,
            Work {
                closed: true,
                ..Work::default()
            },
        );
        drop(work);
        drop(left);
    }

    pub(super) fn wake_driver(&self) {
        let waker = lock(&self.work).driver.clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(super) fn counters(&self) -> MutexGuard<'_, Counters> {
        lock(&self.counters)
    }
}

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The peer has not answered.
    Dead,
    /// The peer started another session from the same address.
    Replaced,
    /// The socket failed, or its task was stopped.
    Socket,
}

impl From<End> for io::Error {
    fn from(end: End) -> Self {
        match end {
            End::Dead => Self::new(
                io::ErrorKind::TimedOut,
                "the peer of the KCP session does not answer",
            ),
            End::Replaced => Self::new(
                io::ErrorKind::ConnectionReset,
                "the peer started another KCP session",
            ),
            End::Socket => Self::new(
                io::ErrorKind::NotConnected,
                "the UDP socket of the KCP session is closed",
            ),
        }
    }
}

/// One session.
#[derive(Debug)]
pub(super) struct Link {
    /// Its place in the driver's table.
    pub(super) key: usize,
    pub(super) remote: SocketAddr,
    pub(super) shared: Arc<Shared>,
    dirty: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) pipeline: Pipeline,
    pub(super) rate: Option<Rate>,
    pub(super) end: Option<End>,
    /// The application has said that it will not write any more.
    pub(super) shut: bool,
    /// The handle is gone.
    pub(super) dropped: bool,
    pub(super) reader: Option<Waker>,
    pub(super) writer: Option<Waker>,
    pub(super) flusher: Option<Waker>,
    pub(super) oob_reader: Option<Waker>,
}

impl Link {
    pub(super) fn new(
        key: usize,
        remote: SocketAddr,
        shared: Arc<Shared>,
        pipeline: Pipeline,
        rate: Option<Rate>,
    ) -> Self {
        let state = State {
            pipeline,
            rate,
            end: None,
            shut: false,
            dropped: false,
            reader: None,
            writer: None,
            flusher: None,
            oob_reader: None,
        };
        Self {
            key,
            remote,
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
    /// Wakes whoever can go on.
    pub(super) fn wake(&mut self) {
        let ended = self.end.is_some();
        let pipeline = &self.pipeline;
        let wake = |waker: &mut Option<Waker>, ready: bool| {
            if ready && let Some(waker) = waker.take() {
                waker.wake();
            }
        };
        wake(&mut self.reader, ended || pipeline.readable() > 0);
        wake(&mut self.writer, ended || pipeline.has_room());
        wake(&mut self.flusher, ended || pipeline.is_flushed());
        wake(&mut self.oob_reader, ended || pipeline.has_oob());
    }

    pub(super) fn finish(&mut self, end: End) {
        self.end.get_or_insert(end);
        self.wake();
    }
}

/// A panic while the lock is held leaves nothing half-changed that matters more than going on.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! What handles and the driver share: each session behind a lock, and the list of those that the driver must look at.

use std::{
    fmt, io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Waker},
};

use super::{Clock, driver::Kind, socket::Socket};

/// What all handles of a socket share with its driver.
pub(super) struct Shared<K: Kind> {
    pub(super) clock: Clock,
    pub(super) socket: Socket,
    pub(super) local: SocketAddr,
    pub(super) common: K::Common,
    work: Mutex<Work<K>>,
}

struct Work<K: Kind> {
    /// Sessions whose handle did something that the driver must look at.
    dirty: Vec<Arc<Link<K>>>,
    driver: Option<Waker>,
    /// The driver is gone. Nothing may be added: the list would hold what holds the list.
    closed: bool,
}

impl<K: Kind> Shared<K> {
    pub(super) fn new(clock: Clock, socket: Socket, common: K::Common) -> io::Result<Arc<Self>> {
        let local = socket.local_addr()?;
        let work = Work {
            dirty: Vec::new(),
            driver: None,
            closed: false,
        };
        Ok(Arc::new(Self {
            clock,
            socket,
            local,
            common,
            work: Mutex::new(work),
        }))
    }

    /// Gives the driver's list of work and notes whom to wake for more.
    pub(super) fn take_work(&self, waker: &Waker, into: &mut Vec<Arc<Link<K>>>) {
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
        work.closed = true;
        work.driver = None;
        let left = std::mem::take(&mut work.dirty);
        // Links may be dropped with it: not under the lock.
        drop(work);
        drop(left);
    }

    pub(super) fn wake_driver(&self) {
        let waker = lock(&self.work).driver.clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// One session.
pub(super) struct Link<K: Kind> {
    /// Its place in the driver's table.
    pub(super) key: usize,
    pub(super) shared: Arc<Shared<K>>,
    dirty: AtomicBool,
    state: Mutex<K::State>,
}

impl<K: Kind> Link<K> {
    pub(super) fn new(key: usize, shared: Arc<Shared<K>>, state: K::State) -> Self {
        Self {
            key,
            shared,
            dirty: AtomicBool::new(false),
            state: Mutex::new(state),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, K::State> {
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

impl<K: Kind> fmt::Debug for Link<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Link");
        shown.field("key", &self.key).finish_non_exhaustive()
    }
}

impl<K: Kind> fmt::Debug for Shared<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Shared");
        shown.field("local", &self.local).finish_non_exhaustive()
    }
}

/// Notes who waits.
pub(super) fn note(place: &mut Option<Waker>, cx: &Context<'_>) {
    match place {
        Some(old) => old.clone_from(cx.waker()),
        none => *none = Some(cx.waker().clone()),
    }
}

/// Wakes who waits, if it can go on.
pub(super) fn wake(place: &mut Option<Waker>, ready: bool) {
    if ready && let Some(waker) = place.take() {
        waker.wake();
    }
}

/// A panic while the lock is held leaves nothing half-changed that matters more than going on.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

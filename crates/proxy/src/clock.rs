//! Deadlines of connections, watched by one task per worker: setting one is a store, and nothing is armed per request. One that was set holds from
//! the next poll on.
//!
//! The watch looks every [`TICK`]: a deadline fires late by at most that, never early.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    rc::Rc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use slab::Slab;

/// How often deadlines are looked at.
pub(crate) const TICK: Duration = Duration::from_millis(100);

/// The deadlines of one worker.
#[derive(Debug)]
pub(crate) struct Clock {
    origin: Instant,
    /// Time as of the last tick, in milliseconds since `origin`, and the same for those who reckon in durations.
    now: Cell<u64>,
    coarse: Cell<Duration>,
    watched: RefCell<Slab<Watched>>,
}

#[derive(Debug)]
struct Watched {
    /// In milliseconds since the origin; `u64::MAX` for none.
    due: u64,
    waker: Option<Waker>,
}

impl Clock {
    pub(crate) fn new() -> Rc<Self> {
        Rc::new(Self {
            origin: Instant::now(),
            now: Cell::new(0),
            coarse: Cell::default(),
            watched: RefCell::default(),
        })
    }

    /// Since the worker started, to the millisecond as of the last tick: cheap, at most [`TICK`] old.
    pub(crate) fn coarse(&self) -> Duration {
        self.coarse.get()
    }

    /// Since the worker started, now.
    pub(crate) fn precise(&self) -> Duration {
        self.origin.elapsed()
    }

    /// Runs for as long as the worker does.
    pub(crate) async fn run(self: Rc<Self>) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let now = millis(self.origin.elapsed());
            self.now.set(now);
            self.coarse.set(Duration::from_millis(now));
            for (_, watched) in self.watched.borrow_mut().iter_mut() {
                if watched.due <= now
                    && let Some(waker) = watched.waker.take()
                {
                    waker.wake();
                }
            }
        }
    }

    /// Wakes every task that has a deadline, so that it looks at what has changed.
    pub(crate) fn wake_all(&self) {
        for (_, watched) in self.watched.borrow_mut().iter_mut() {
            if let Some(waker) = watched.waker.take() {
                waker.wake();
            }
        }
    }

    /// A deadline for the task that will poll it; none is set yet.
    pub(crate) fn deadline(self: &Rc<Self>) -> Deadline {
        let key = self.watched.borrow_mut().insert(Watched {
            due: u64::MAX,
            waker: None,
        });
        Deadline {
            clock: Rc::clone(self),
            key,
            due: Cell::new(u64::MAX),
            bound: Cell::new(u64::MAX),
        }
    }
}

/// The time by which a task's next step must be done.
#[derive(Debug)]
pub(crate) struct Deadline {
    clock: Rc<Clock>,
    key: usize,
    due: Cell<u64>,
    /// No time that is set is later than this.
    bound: Cell<u64>,
}

impl Deadline {
    /// From now on `after` is left, or less if the bound is before; `None` for no limit but that.
    pub(crate) fn set(&self, after: Option<Duration>) {
        // The watch is told by the poll that finds that there is something to wait for.
        self.due.set(self.at(after).min(self.bound.get()));
    }

    /// Whatever is set from now on, it is over after this; `None` takes the bound away.
    pub(crate) fn bound(&self, after: Option<Duration>) {
        self.bound.set(self.at(after));
    }

    /// The bound was reached.
    pub(crate) fn is_bound_over(&self) -> bool {
        self.bound.get() <= self.clock.now.get()
    }

    fn at(&self, after: Option<Duration>) -> u64 {
        match after {
            // One tick more, because the clock may be that much behind.
            Some(after) => (self.clock.now.get() + millis(TICK)).saturating_add(millis(after)),
            None => u64::MAX,
        }
    }

    /// Whether the time is over; if not, the task will be woken when it is.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.due.get() <= self.clock.now.get() {
            return Poll::Ready(());
        }
        if let Some(watched) = self.clock.watched.borrow_mut().get_mut(self.key) {
            watched.due = self.due.get();
            let known = watched.waker.as_ref();
            if !known.is_some_and(|waker| waker.will_wake(cx.waker())) {
                watched.waker = Some(cx.waker().clone());
            }
        }
        Poll::Pending
    }

    /// Does `step` until it is ready or the time is over.
    pub(crate) async fn limit<T>(
        &self,
        mut step: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Result<T, Late> {
        poll_fn(|cx| {
            if let Poll::Ready(done) = step(cx) {
                return Poll::Ready(Ok(done));
            }
            self.poll(cx).map(|()| Err(Late))
        })
        .await
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        self.clock.watched.borrow_mut().try_remove(self.key);
    }
}

/// The time was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Late;

fn millis(time: Duration) -> u64 {
    let whole = time.as_secs().saturating_mul(1000);
    whole.saturating_add(u64::from(time.subsec_millis()))
}

//! Tasks that serve the streams of one HTTP/2 connection, each one stream after the other.
//!
//! A task for each request would cost an allocation of its size, a copy into it and the way back to the allocator; a quarter of what a small request
//! costs. A task that is done waits here for the next stream instead, [`KEPT`] of them at most, until the connection rests or ends.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    rc::Rc,
    task::{Context, Poll, Waker},
};

use crate::{
    conn::Conn,
    visitor::{self, About},
    worker::Worker,
};

/// Who serves the streams of one connection. Dropped: those who wait go, those who serve finish first.
#[derive(Debug)]
pub(crate) struct Crew(Rc<Shared>);

#[derive(Debug)]
struct Shared {
    worker: Rc<Worker>,
    about: About,
    /// Those who wait, the one that came last at the end: its memory is the warmest.
    waiting: RefCell<Vec<Rc<Hand>>>,
    /// How many serve a stream now.
    busy: Cell<usize>,
    /// Nothing more will come.
    closed: Cell<bool>,
}

/// One task.
#[derive(Debug, Default)]
struct Hand {
    next: RefCell<Option<Conn>>,
    waker: RefCell<Option<Waker>>,
    state: Cell<State>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// It serves a stream, or is about to.
    #[default]
    Busy,
    /// It is among those who wait.
    Waits,
    /// It was told to end.
    Goes,
}

impl Crew {
    pub(crate) fn new(worker: &Rc<Worker>, about: About) -> Self {
        Self(Rc::new(Shared {
            worker: Rc::clone(worker),
            about,
            waiting: RefCell::default(),
            busy: Cell::new(0),
            closed: Cell::new(false),
        }))
    }

    /// Serves a stream, beside all others.
    pub(crate) fn serve(&self, conn: Conn) {
        let waiting = self.0.waiting.borrow_mut().pop();
        self.0.busy.set(self.0.busy.get() + 1);
        match waiting {
            Some(hand) => hand.give(conn),
            None => {
                let shared = Rc::clone(&self.0);
                tokio::task::spawn_local(shared.work(conn));
            }
        }
    }

    /// No stream is served.
    pub(crate) fn is_idle(&self) -> bool {
        self.0.busy.get() == 0
    }

    /// Whether tasks wait for streams.
    pub(crate) fn waits(&self) -> bool {
        !self.0.waiting.borrow().is_empty()
    }

    /// Ends the tasks that wait.
    pub(crate) fn dismiss(&self) {
        let waiting = std::mem::take(&mut *self.0.waiting.borrow_mut());
        for hand in waiting {
            hand.go();
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.0.closed.set(true);
        self.dismiss();
    }
}

impl Shared {
    async fn work(self: Rc<Self>, first: Conn) {
        let hand = Rc::new(Hand::default());
        let mut next = Some(first);
        while let Some(conn) = next {
            // Counted down also if serving panics.
            let busy = Busy(&self);
            visitor::serve_stream(&self.worker, conn, &self.about).await;
            drop(busy);
            next = poll_fn(|cx| self.poll_next(&hand, cx)).await;
        }
    }

    /// The next stream; `None` if this task is not needed any more.
    fn poll_next(&self, hand: &Rc<Hand>, cx: &mut Context<'_>) -> Poll<Option<Conn>> {
        if let Some(conn) = hand.next.borrow_mut().take() {
            return Poll::Ready(Some(conn));
        }
        match hand.state.get() {
            State::Goes => return Poll::Ready(None),
            // Something that the last request has left may wake a task that waits.
            State::Waits => {}
            State::Busy => {
                let mut waiting = self.waiting.borrow_mut();
                if self.closed.get() || waiting.len() >= KEPT {
                    return Poll::Ready(None);
                }
                hand.state.set(State::Waits);
                waiting.push(Rc::clone(hand));
            }
        }
        let mut waker = hand.waker.borrow_mut();
        if !(waker.as_ref()).is_some_and(|waker| waker.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl Hand {
    fn give(&self, conn: Conn) {
        self.state.set(State::Busy);
        *self.next.borrow_mut() = Some(conn);
        self.wake();
    }

    fn go(&self) {
        self.state.set(State::Goes);
        self.wake();
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }
}

/// Counts a stream that is served until it ends.
struct Busy<'a>(&'a Shared);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.busy.set(self.0.busy.get().saturating_sub(1));
    }
}

/// Tasks that wait on one connection, at most. Some kilobytes each, and no longer than until the connection rests.
const KEPT: usize = 32;

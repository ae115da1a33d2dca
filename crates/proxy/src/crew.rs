//! Tasks that do one job after the other: serve the streams of one HTTP/2 connection, or the connections of one listener.
//!
//! A task for each job would cost an allocation of its size, a copy into it and the way back to the allocator; a quarter of what a small request
//! over HTTP/2 costs. A task that is done waits here for the next job instead, until it is dismissed.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    rc::Rc,
    task::{Context, Poll, Waker},
};

/// Who does the jobs `J`, by `F`. Dropped: those who wait go, those who are busy finish first.
pub(crate) struct Crew<J, F>(Rc<Shared<J, F>>);

struct Shared<J, F> {
    work: F,
    /// How many wait at most. Some kilobytes each.
    kept: usize,
    /// Those who wait, the one that came last at the end: its memory is the warmest.
    waiting: RefCell<Vec<Rc<Hand<J>>>>,
    /// How many do a job now.
    busy: Cell<usize>,
    /// Nothing more will come.
    closed: Cell<bool>,
}

/// One task.
struct Hand<J> {
    next: RefCell<Option<J>>,
    waker: RefCell<Option<Waker>>,
    state: Cell<State>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// It does a job, or is about to.
    #[default]
    Busy,
    /// It is among those who wait.
    Waits,
    /// It was told to end.
    Goes,
}

impl<J: 'static, F: AsyncFn(J) + 'static> Crew<J, F> {
    /// `kept`: how many tasks wait for a job at most, some kilobytes each.
    pub(crate) fn new(kept: usize, work: F) -> Self {
        Self(Rc::new(Shared {
            work,
            kept,
            waiting: RefCell::default(),
            busy: Cell::new(0),
            closed: Cell::new(false),
        }))
    }

    /// Does a job, beside all others.
    pub(crate) fn take(&self, job: J) {
        let waiting = self.0.waiting.borrow_mut().pop();
        self.0.busy.set(self.0.busy.get() + 1);
        match waiting {
            Some(hand) => hand.give(job),
            None => {
                let shared = Rc::clone(&self.0);
                tokio::task::spawn_local(shared.work(job));
            }
        }
    }

    /// No job is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.0.busy.get() == 0
    }

    /// Whether tasks wait for jobs.
    pub(crate) fn waits(&self) -> bool {
        !self.0.waiting.borrow().is_empty()
    }
}

impl<J, F> Crew<J, F> {
    /// Ends the tasks that wait.
    pub(crate) fn dismiss(&self) {
        let waiting = std::mem::take(&mut *self.0.waiting.borrow_mut());
        for hand in waiting {
            hand.go();
        }
    }
}

impl<J, F> Drop for Crew<J, F> {
    fn drop(&mut self) {
        self.0.closed.set(true);
        self.dismiss();
    }
}

impl<J, F: AsyncFn(J)> Shared<J, F> {
    async fn work(self: Rc<Self>, first: J) {
        let hand = Rc::new(Hand {
            next: RefCell::new(None),
            waker: RefCell::default(),
            state: Cell::default(),
        });
        let mut next = Some(first);
        while let Some(job) = next {
            // Counted down also if the job panics.
            let busy = Busy(&self.busy);
            (self.work)(job).await;
            drop(busy);
            next = poll_fn(|cx| self.poll_next(&hand, cx)).await;
        }
    }

    /// The next job; `None` if this task is not needed any more.
    fn poll_next(&self, hand: &Rc<Hand<J>>, cx: &mut Context<'_>) -> Poll<Option<J>> {
        if let Some(job) = hand.next.borrow_mut().take() {
            return Poll::Ready(Some(job));
        }
        match hand.state.get() {
            State::Goes => return Poll::Ready(None),
            // Something that the last job has left may wake a task that waits.
            State::Waits => {}
            State::Busy => {
                let mut waiting = self.waiting.borrow_mut();
                if self.closed.get() || waiting.len() >= self.kept {
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

impl<J> Hand<J> {
    fn give(&self, job: J) {
        self.state.set(State::Busy);
        *self.next.borrow_mut() = Some(job);
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

/// Counts a job until it ends.
struct Busy<'a>(&'a Cell<usize>);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

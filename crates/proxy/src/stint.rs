//! Runs the requests of connections that follow one another, always in the same memory.
//!
//! What serving requests needs is large: as a future of its own it would be allocated, copied and freed each time that a connection has something
//! to do. Here it is made once. Done with one connection it waits in the thread's store for the next, and a connection that waits has none.
//!
//! ```text
//! visitor::serve ─ Job ─► Stint (polled by the connection's task) ─► Connection and Busy
//! ```

use std::{
    cell::{Cell, RefCell},
    convert::Infallible,
    future::{Future, poll_fn},
    pin::Pin,
    rc::Rc,
    task::Poll,
};

use crate::{
    visitor::{About, Busy, Connection},
    worker::Worker,
};

/// A connection that has something to say.
pub(crate) struct Job {
    pub(crate) worker: Rc<Worker>,
    pub(crate) about: About,
    pub(crate) connection: Connection,
    pub(crate) visitor: h1::Visitor,
}

/// Serves one connection at a time.
struct Stint {
    desk: Rc<Desk>,
    work: Pin<Box<dyn Future<Output = Infallible>>>,
}

/// Where jobs are put and taken back from.
#[derive(Default)]
struct Desk {
    job: Cell<Option<Job>>,
    done: Cell<Option<(Connection, Busy)>>,
}

thread_local! {
    static STORE: RefCell<Vec<Stint>> = const { RefCell::new(Vec::new()) };
}

/// Serves requests for as long as one follows the other. Dropped before it is done, all of it goes.
pub(crate) async fn run(job: Job) -> (Connection, Busy) {
    let stint = STORE.with_borrow_mut(Vec::pop);
    let mut stint = stint.unwrap_or_else(Stint::new);
    stint.desk.job.set(Some(job));
    let done = poll_fn(|cx| {
        // It never ends.
        let _ = stint.work.as_mut().poll(cx);
        stint.desk.done.take().map_or(Poll::Pending, Poll::Ready)
    });
    let done = done.await;
    STORE.with_borrow_mut(|store| {
        if store.len() < KEPT {
            store.push(stint);
        }
    });
    done
}

impl Stint {
    fn new() -> Self {
        let desk = Rc::new(Desk::default());
        let work = Box::pin(Rc::clone(&desk).work());
        Self { desk, work }
    }
}

impl Desk {
    async fn work(self: Rc<Self>) -> Infallible {
        loop {
            // Whoever puts a job there polls.
            let job = poll_fn(|_| self.job.take().map_or(Poll::Pending, Poll::Ready));
            let Job {
                worker,
                about,
                mut connection,
                visitor,
            } = job.await;
            let busy = connection.busy(&worker, &about, visitor).await;
            self.done.set(Some((connection, busy)));
        }
    }
}

/// Those that a thread keeps when nobody needs them: some kilobytes each.
const KEPT: usize = 64;

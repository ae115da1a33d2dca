//! Moves the bytes of one shared connection: what exchanges have put there leaves in one write, what comes is cut into answers.

use std::{
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};

use h1::ResponseHead;
use tokio::io::AsyncWrite;

use super::{STRAGGLERS, Shared, State, WAITING};
use crate::{
    buffer::{BUFFER, Input},
    clock::Deadline,
    conn::Conn,
    site::KeepAlive,
};

/// Moves the bytes of one shared connection.
pub(super) struct Driver {
    pub(super) shared: Rc<Shared>,
    pub(super) conn: Conn,
    pub(super) input: Input,
    pub(super) head: ResponseHead,
    pub(super) deadline: Deadline,
    pub(super) keep: KeepAlive,
    /// What the deadline is set for, and the turn when it was.
    pub(super) watched: Option<(Mood, u64)>,
}

/// What the deadline is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mood {
    /// Somebody is answered. How long that may take, the exchange knows.
    Busy,
    /// No request is under way.
    Idle,
    /// Nobody wants what is under way.
    Stragglers,
}

impl Driver {
    pub(super) async fn run(mut self) {
        let orderly = std::future::poll_fn(|cx| self.poll(cx)).await;
        self.shared.0.borrow_mut().close(orderly);
        if orderly {
            let _ = tokio::time::timeout(Duration::from_secs(1), async {
                std::future::poll_fn(|cx| Pin::new(&mut self.conn).poll_shutdown(cx)).await
            })
            .await;
        } else {
            self.conn.abort();
        }
    }

    /// Ready when the connection is over; whether in order.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let Self {
            shared,
            conn,
            input,
            head,
            ..
        } = self;
        let mut state = shared.0.borrow_mut();
        loop {
            if let Poll::Ready(Err(_)) = poll_write(&mut state, conn, cx) {
                // Answers may still be there to be read; what was not sent is sent again elsewhere.
                state.closing = true;
                state.output.clear();
                state.written = 0;
            }
            if state.demux(input, head).is_err() {
                return Poll::Ready(false);
            }
            if state.waits_in_front() >= WAITING {
                break;
            }
            if state.closing && state.open == 0 {
                return Poll::Ready(true);
            }
            let ceiling = state.limits.head.max(BUFFER);
            match input.poll_fill(conn, ceiling, cx) {
                Poll::Ready(Ok(0)) => return Poll::Ready(true),
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(false),
                Poll::Pending => break,
            }
        }
        if !(state.driver.as_ref()).is_some_and(|waker| waker.will_wake(cx.waker())) {
            state.driver = Some(cx.waker().clone());
        }
        let mood = if state.queue.is_empty() {
            Mood::Idle
        } else if state.only_stragglers() {
            Mood::Stragglers
        } else {
            Mood::Busy
        };
        let now = Some((mood, state.turn));
        if self.watched != now {
            self.watched = now;
            self.deadline.set(Some(match mood {
                Mood::Busy => self.keep.behind,
                Mood::Idle => self.keep.idle,
                Mood::Stragglers => STRAGGLERS,
            }));
        }
        ready!(self.deadline.poll(cx));
        if mood == Mood::Busy {
            self.deadline.set(None);
            state.clear_behind();
            // Not ready, so that the waker is left behind.
            return self.deadline.poll(cx).map(|()| false);
        }
        Poll::Ready(mood == Mood::Idle)
    }
}

/// Writes the heads that have come together.
fn poll_write(state: &mut State, conn: &mut Conn, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
    while state.written < state.output.len() {
        let n = ready!(Pin::new(&mut *conn).poll_write(cx, &state.output[state.written..]))?;
        if n == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        state.written += n;
    }
    state.output.clear();
    state.written = 0;
    if conn.needs_flush() {
        return Pin::new(conn).poll_flush(cx);
    }
    Poll::Ready(Ok(()))
}

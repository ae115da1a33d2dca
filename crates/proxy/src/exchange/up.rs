//! From the visitor to the upstream: the request's head, which waits in the output, and its body.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::AsyncWrite;

use super::{Blocked, Exchange, Failed, TURNS, Upload, poll_write, touch};
use crate::{buffer::BUFFER, flow::Step};

impl Exchange<'_> {
    /// From the visitor to the upstream.
    pub(super) fn poll_up(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failed>> {
        let Exchange {
            visitor,
            upstream,
            request,
            deadline,
            patience,
            ..
        } = self;
        let (deadline, patience) = (*deadline, *patience);
        let Some(request) = request else {
            return Poll::Ready(Ok(()));
        };
        let mut left = TURNS;
        loop {
            if left == 0 {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            left -= 1;
            let step = match request.step(visitor.input, upstream.output) {
                Ok(step) => step,
                Err(bad) => return Poll::Ready(Err(Failed::VisitorBody(bad))),
            };
            match step {
                Step::Write => match poll_write(upstream, Some(request), visitor.input, cx) {
                    Poll::Ready(Ok(())) => touch(deadline, patience),
                    Poll::Ready(Err(_)) => {
                        // Its answer may be on the way: 413, or a close that the reading will see.
                        self.so_far.upload = Upload::Refused;
                        return Poll::Pending;
                    }
                    Poll::Pending => {
                        self.so_far.waits_for = Blocked::Upstream;
                        return Poll::Pending;
                    }
                },
                Step::Read => {
                    if upstream.conn.needs_flush() {
                        let _ = Pin::new(&mut *upstream.conn).poll_flush(cx);
                    }
                    match visitor.input.poll_fill(visitor.conn, BUFFER, cx) {
                        Poll::Ready(Ok(0)) => match request.end_of_input() {
                            Ok(()) => {}
                            Err(_) => return Poll::Ready(Err(Failed::VisitorGone)),
                        },
                        Poll::Ready(Ok(_)) => {
                            touch(deadline, patience);
                        }
                        Poll::Ready(Err(_)) => return Poll::Ready(Err(Failed::VisitorGone)),
                        Poll::Pending => {
                            self.so_far.waits_for = Blocked::Visitor;
                            return Poll::Pending;
                        }
                    }
                }
                Step::Done => {
                    if upstream.conn.needs_flush()
                        && ready!(Pin::new(&mut *upstream.conn).poll_flush(cx)).is_err()
                    {
                        self.so_far.upload = Upload::Refused;
                        return Poll::Pending;
                    }
                    // Nothing is left to send: who waits for an answer holds no buffer.
                    upstream.output.rest();
                    self.so_far.waits_for = Blocked::Upstream;
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

//! Bytes both ways after an upgrade, untouched: half-close is carried as half-close, and an idle tunnel holds no buffer.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::io::AsyncWrite;

use crate::{
    buffer::{BUFFER, Input},
    clock::Deadline,
    conn::Conn,
};

/// How a tunnel ended.
#[derive(Debug)]
pub(crate) enum TunnelEnd {
    /// Both directions were finished.
    Finished,
    /// Nothing moved for too long.
    Idle,
    /// The upstream failed.
    BrokenUp,
    /// The visitor failed.
    BrokenDown,
}

/// What was moved.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moved {
    pub(crate) up: u64,
    pub(crate) down: u64,
}

/// Copies until both directions have ended. `up` and `down` hold what was read behind the heads.
pub(crate) async fn run(
    visitor: &mut Conn,
    upstream: &mut Conn,
    up: Input,
    down: Input,
    idle: Option<Duration>,
    deadline: &Deadline,
) -> (TunnelEnd, Moved) {
    let mut up = Direction::new(up);
    let mut down = Direction::new(down);
    deadline.set(idle);
    let end = deadline
        .limit(|cx| {
            let before = up.moved + down.moved;
            let done = up
                .poll(visitor, upstream, cx)
                .and_then(|up| Ok((up, down.poll(upstream, visitor, cx)?)));
            if up.moved + down.moved != before {
                deadline.set(idle);
            }
            match done {
                Err(_) if up.writing || down.reading => Poll::Ready(TunnelEnd::BrokenUp),
                Err(_) => Poll::Ready(TunnelEnd::BrokenDown),
                Ok((Poll::Ready(()), Poll::Ready(()))) => Poll::Ready(TunnelEnd::Finished),
                Ok(_) => Poll::Pending,
            }
        })
        .await
        .unwrap_or(TunnelEnd::Idle);
    let moved = Moved {
        up: up.moved,
        down: down.moved,
    };
    (end, moved)
}

/// One way.
struct Direction {
    input: Input,
    state: State,
    moved: u64,
    /// What it was about when it failed.
    reading: bool,
    writing: bool,
}

#[derive(PartialEq)]
enum State {
    Copying,
    /// The source has ended, the target is not told yet.
    Ending,
    Ended,
}

impl Direction {
    fn new(input: Input) -> Self {
        Self {
            input,
            state: State::Copying,
            moved: 0,
            reading: false,
            writing: false,
        }
    }

    fn poll(
        &mut self,
        from: &mut Conn,
        to: &mut Conn,
        cx: &mut Context<'_>,
    ) -> io::Result<Poll<()>> {
        self.reading = false;
        self.writing = true;
        let done = self.step(from, to, cx);
        self.writing &= done.is_err();
        done
    }

    fn step(
        &mut self,
        from: &mut Conn,
        to: &mut Conn,
        cx: &mut Context<'_>,
    ) -> io::Result<Poll<()>> {
        for _ in 0..TURNS {
            if self.state == State::Ended {
                return Ok(Poll::Ready(()));
            }
            if !self.input.is_empty() {
                match Pin::new(&mut *to).poll_write(cx, self.input.bytes())? {
                    Poll::Ready(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Poll::Ready(n) => {
                        self.moved += n as u64;
                        self.input.consume(n);
                        continue;
                    }
                    Poll::Pending => return Ok(Poll::Pending),
                }
            }
            if to.needs_flush() && Pin::new(&mut *to).poll_flush(cx)?.is_pending() {
                return Ok(Poll::Pending);
            }
            if self.state == State::Ending {
                if Pin::new(&mut *to).poll_shutdown(cx)?.is_pending() {
                    return Ok(Poll::Pending);
                }
                self.state = State::Ended;
                continue;
            }
            // One write per read: what is read is gone before more is asked for.
            self.input.rest();
            match self.input.poll_fill(from, BUFFER, cx) {
                Poll::Ready(Ok(0)) => self.state = State::Ending,
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => {
                    (self.reading, self.writing) = (true, false);
                    return Err(error);
                }
                Poll::Pending => return Ok(Poll::Pending),
            }
        }
        // Others on this thread get their turn.
        cx.waker().wake_by_ref();
        Ok(Poll::Pending)
    }
}

/// Steps of one direction before others get their turn.
const TURNS: usize = 16;

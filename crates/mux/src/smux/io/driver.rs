//! The task of a session: the only one that touches the transport.

use std::{
    future::{Future, poll_fn},
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf},
    time::{Sleep, sleep_until, timeout},
};

use super::state::{End, Shared, State};

pub(super) async fn run<T: AsyncRead + AsyncWrite + Unpin>(mut transport: T, shared: Arc<Shared>) {
    let mut driver = Driver {
        timer: Box::pin(sleep_until(shared.instant(Duration::ZERO))),
        buffer: vec![0; READ],
        unflushed: false,
    };
    let end = poll_fn(|cx| {
        let mut state = shared.lock();
        // First, so that a handle that changes something from here on wakes the driver again.
        state.driver = Some(cx.waker().clone());
        driver.poll(&mut transport, &mut state, &shared, cx)
    })
    .await;
    let deserted = matches!(end, End::Closed);
    shared.lock().finish(end);
    if deserted {
        // The last FINs are on their way; a peer that takes nothing must not hold this up.
        let _ = timeout(SHUTDOWN, transport.shutdown()).await;
    }
}

struct Driver {
    timer: Pin<Box<Sleep>>,
    buffer: Vec<u8>,
    /// The transport has taken bytes since it was flushed.
    unflushed: bool,
}

impl Driver {
    /// Works until nothing can be done; ready when the session has ended.
    fn poll<T: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        transport: &mut T,
        state: &mut State,
        shared: &Shared,
        cx: &mut Context<'_>,
    ) -> Poll<End> {
        for _ in 0..TURNS {
            if let Some(end) = &state.end {
                return Poll::Ready(end.clone());
            }
            let now = shared.now();
            let held_up = !state.may_read_or_open();
            let read = match self.poll_read(transport, state, now, cx) {
                Poll::Ready(Err(end)) => return Poll::Ready(end),
                Poll::Ready(Ok(())) => true,
                Poll::Pending => false,
            };
            if let Err(end) = self.poll_timer(state, shared, now, cx) {
                return Poll::Ready(end);
            }
            match self.poll_write(transport, state, now, cx) {
                Poll::Ready(Err(error)) => return Poll::Ready(failed(&error)),
                Poll::Ready(Ok(())) if state.is_deserted() => return Poll::Ready(End::Closed),
                _ => {}
            }
            let may_read_again = held_up && state.may_read_or_open();
            if !read && !may_read_again {
                return Poll::Pending;
            }
        }
        // Others have their turn.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Reads once, no more than there is room for.
    fn poll_read<T: AsyncRead + Unpin>(
        &mut self,
        transport: &mut T,
        state: &mut State,
        now: Duration,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), End>> {
        let budget = state.smux.read_budget().min(READ);
        if budget == 0 || !state.may_read_or_open() {
            return Poll::Pending;
        }
        let mut buffer = ReadBuf::new(&mut self.buffer[..budget]);
        let read = ready!(Pin::new(transport).poll_read(cx, &mut buffer));
        read.map_err(|error| failed(&error))?;
        if buffer.filled().is_empty() {
            return Poll::Ready(Err(End::TransportEnded));
        }
        Poll::Ready(state.receive(buffer.filled(), now).map_err(End::from))
    }

    fn poll_timer(
        &mut self,
        state: &mut State,
        shared: &Shared,
        now: Duration,
        cx: &mut Context<'_>,
    ) -> Result<(), End> {
        if state.smux.next_timeout() <= now {
            state.timeout(now)?;
        }
        loop {
            let due = shared.instant(state.smux.next_timeout());
            if self.timer.deadline() != due {
                self.timer.as_mut().reset(due);
            }
            if self.timer.as_mut().poll(cx).is_pending() {
                return Ok(());
            }
            state.timeout(shared.now())?;
        }
    }

    /// Gives turns and writes until all is written and flushed, or the transport takes no more.
    fn poll_write<T: AsyncWrite + Unpin>(
        &mut self,
        transport: &mut T,
        state: &mut State,
        now: Duration,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            state.turns(now);
            if state.smux.output_len() == 0 {
                break;
            }
            let n = ready!(Pin::new(&mut *transport).poll_write(cx, state.smux.output()))?;
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.unflushed = true;
            state.smux.advance(n);
        }
        if self.unflushed {
            ready!(Pin::new(transport).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }
}

fn failed(error: &io::Error) -> End {
    End::Transport(error.kind(), error.to_string())
}

/// Bytes read at a time.
const READ: usize = 32 << 10;
/// Rounds of reading and writing before other tasks have their turn.
const TURNS: usize = 32;
/// How long the transport may take to shut down.
const SHUTDOWN: Duration = Duration::from_secs(10);

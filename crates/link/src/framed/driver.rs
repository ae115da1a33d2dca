//! The task of one link over a byte transport. Each turn, in this order: read the transport (bounded), let waiting streams have their turns, write once, look
//! at the clock.

use std::{
    cell::RefCell,
    future::Future,
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep_until},
};

use super::{
    state::{Shared, State, Told},
    stream::Stream,
};
use crate::{
    end::LinkEnd,
    link::{Handler, Link, UNSENT},
};

/// Moves the bytes of one link until it ends. Spawn it on the worker that the link belongs to.
pub(crate) struct Driver {
    shared: Rc<Shared>,
    handler: Rc<dyn Handler>,
    transport: net::Stream,
    timer: Pin<Box<Sleep>>,
    /// What the timer is set to, so that it is not set again each turn.
    timer_at: Duration,
    sweep_at: Duration,
    sweep_every: Duration,
    drain: Drain,
    close_by: Option<Instant>,
}

/// Learns how fast the transport drains, so that what waits in front of a keystroke is milliseconds, not bytes: here, and unsent in the kernel.
#[derive(Debug)]
struct Drain {
    blocked_at: Option<Duration>,
    written: usize,
    /// What may wait unsent in the kernel now.
    unsent: u32,
}

impl Default for Drain {
    fn default() -> Self {
        Self {
            blocked_at: None,
            written: 0,
            unsent: UNSENT,
        }
    }
}

impl Driver {
    pub(crate) fn new(
        shared: Rc<Shared>,
        handler: Rc<dyn Handler>,
        transport: net::Stream,
        sweep_every: Duration,
    ) -> Self {
        Self {
            shared,
            handler,
            transport,
            timer: Box::pin(sleep_until(tokio::time::Instant::now())),
            timer_at: Duration::MAX,
            sweep_at: sweep_every,
            sweep_every,
            drain: Drain::default(),
            close_by: None,
        }
    }

    fn turn(&mut self, cx: &mut Context<'_>) -> Result<(), LinkEnd> {
        let mut state = self.shared.state.borrow_mut();
        state.refresh_clock();
        if std::mem::take(&mut state.look) {
            state.path = self.transport.path();
        }
        let read = read(&mut state, &mut self.transport, cx);
        drop(state);
        // Also when the transport has ended: a peer says its last words right before.
        self.tell();
        let more = read?;
        let mut state = self.shared.state.borrow_mut();
        write(&mut state, &mut self.transport, &mut self.drain, cx)?;
        if more {
            cx.waker().wake_by_ref();
        }
        Ok(())
    }

    /// The handler may call back into the link, so the state is free while it is told.
    fn tell(&self) {
        loop {
            let told = self.shared.state.borrow_mut().told.pop_front();
            let link = Link::framed(Rc::clone(&self.shared));
            match told {
                Some(Told::Opened(slot, header)) => {
                    self.handler.opened(
                        &link,
                        header,
                        Stream::new(Rc::clone(&self.shared), slot).into(),
                    );
                }
                Some(Told::Control(message)) => self.handler.control(&link, &message),
                None => return,
            }
        }
    }

    fn poll_clock(&mut self, cx: &mut Context<'_>) -> Result<(), LinkEnd> {
        let mut state = self.shared.state.borrow_mut();
        loop {
            let due = state.mux.next_timeout().min(self.sweep_at);
            if due != self.timer_at {
                self.timer_at = due;
                self.timer.as_mut().reset((state.origin + due).into());
            }
            if self.timer.as_mut().poll(cx).is_pending() {
                return Ok(());
            }
            state.refresh_clock();
            let now = state.now;
            state.mux.on_timeout(now)?;
            if now >= self.sweep_at {
                self.sweep_at = now + self.sweep_every;
                state.sweep();
            }
            write(&mut state, &mut self.transport, &mut self.drain, cx)?;
        }
    }

    /// After `close`: everything said goes out, then the transport ends.
    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<LinkEnd> {
        let by = *self
            .close_by
            .get_or_insert_with(|| Instant::now() + CLOSE_TIME);
        if self.shared.state.borrow().mux.has_output() {
            if Instant::now() < by {
                return Poll::Pending;
            }
            return Poll::Ready(LinkEnd::Stuck(CLOSE_TIME));
        }
        let _ = std::task::ready!(Pin::new(&mut self.transport).poll_shutdown(cx));
        Poll::Ready(LinkEnd::Closed)
    }
}

impl Future for Driver {
    type Output = LinkEnd;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<LinkEnd> {
        let this = &mut *self;
        let turned = this.turn(cx).and_then(|()| this.poll_clock(cx));
        let end = match turned {
            Err(end) => Poll::Ready(end),
            Ok(()) if this.shared.state.borrow().closing => this.poll_close(cx),
            Ok(()) => Poll::Pending,
        };
        let mut state = this.shared.state.borrow_mut();
        if end.is_ready() {
            state.end_all();
        } else if !state
            .driver
            .as_ref()
            .is_some_and(|driver| driver.will_wake(cx.waker()))
        {
            state.driver = Some(cx.waker().clone());
        }
        end
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.shared.state.borrow_mut().end_all();
    }
}

/// Reads what the transport has, up to a few buffers; tells whether there may be more.
fn read(
    state: &mut State,
    transport: &mut net::Stream,
    cx: &mut Context<'_>,
) -> Result<bool, LinkEnd> {
    SCRATCH.with_borrow_mut(|scratch| {
        for _ in 0..READS_PER_TURN {
            // The peer sends but does not read: wait until it does. It owes us nothing meanwhile, we keep its bytes in the kernel.
            if state.mux.output_len() > OUTPUT_CEILING {
                return Ok(false);
            }
            let mut buffer = ReadBuf::new(scratch);
            match Pin::new(&mut *transport).poll_read(cx, &mut buffer) {
                Poll::Pending => return Ok(false),
                Poll::Ready(read) => read?,
            }
            if buffer.filled().is_empty() {
                return Err(LinkEnd::PeerClosed);
            }
            state.receive(buffer.filled())?;
        }
        Ok(true)
    })
}

/// Lets streams have their turns and writes, until the transport takes no more or nothing is left.
fn write(
    state: &mut State,
    transport: &mut net::Stream,
    drain: &mut Drain,
    cx: &mut Context<'_>,
) -> Result<(), LinkEnd> {
    loop {
        state.serve_turns();
        if !state.mux.has_output() {
            drain.caught_up(state, transport)?;
            break;
        }
        match Pin::new(&mut *transport).poll_write(cx, state.mux.output()) {
            Poll::Ready(Ok(0)) => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
            Poll::Ready(n) => {
                let n = n?;
                state.mux.advance(n);
                state.sent_bytes += n as u64;
                drain.written += n;
            }
            Poll::Pending => {
                drain.blocked_at.get_or_insert(state.now);
                break;
            }
        }
    }
    if transport.needs_flush()
        && let Poll::Ready(flushed) = Pin::new(transport).poll_flush(cx)
    {
        flushed?;
    }
    Ok(())
}

impl Drain {
    /// All output went out: if the transport had stalled, its rate is known now.
    fn caught_up(&mut self, state: &mut State, transport: &net::Stream) -> io::Result<()> {
        let written = std::mem::take(&mut self.written);
        let Some(blocked_at) = self.blocked_at.take() else {
            return Ok(());
        };
        let took = state.now.saturating_sub(blocked_at).as_micros().max(1);
        let within = |time: Duration, least: usize, most: usize| {
            let bytes = written as u128 * time.as_micros() / took;
            usize::try_from(bytes).unwrap_or(most).clamp(least, most)
        };
        let limit = within(TARGET_DELAY, LEAST_OUTPUT, MOST_OUTPUT);
        state.mux.set_output_limit(limit);
        let unsent = within(UNSENT_DELAY, LEAST_UNSENT, UNSENT as usize) as u32;
        // A system call only for what makes a difference.
        if unsent.abs_diff(self.unsent) > self.unsent / 4 {
            self.unsent = unsent;
            net::hold_back(transport, unsent)?;
        }
        Ok(())
    }
}

thread_local! {
    /// One read buffer per worker: links hold none.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; SCRATCH_SIZE].into_boxed_slice());
}

/// Fits the second-level cache; a larger read moves no more per system call that would matter.
const SCRATCH_SIZE: usize = 128 << 10;
/// After so many full buffers others on the worker get their turn.
const READS_PER_TURN: usize = 4;
/// Output waits for the transport for about so long when it is slow.
const TARGET_DELAY: Duration = Duration::from_millis(2);
const LEAST_OUTPUT: usize = 16 << 10;
const MOST_OUTPUT: usize = 256 << 10;
/// And in the kernel, which sends when acknowledgements come: it must not run dry until this task has its next turn.
const UNSENT_DELAY: Duration = Duration::from_millis(10);
const LEAST_UNSENT: usize = 16 << 10;
/// Frames that are answers to the peer's (credit, resets) are not held to the output limit; a peer that provokes them without reading
/// them is not read from beyond this.
const OUTPUT_CEILING: usize = 1 << 20;
/// What a closing link may take to say its last words.
const CLOSE_TIME: Duration = Duration::from_secs(5);

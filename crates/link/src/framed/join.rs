//! A socket joined to a stream of a link over a byte transport: one small task that reads the socket when it becomes readable, and finishes writing what the socket
//! did not take at once. In the common case the bytes towards the socket never pass through here: the driver writes them.

use std::{
    cell::RefCell,
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::io::AsyncWrite;
use tunnel::ResetReason;

use super::{
    slot::{Limits, Receiving, Sending, Slot},
    state::{Shared, State},
};
use crate::{
    broken::Countdown,
    end::{End, Outcome},
    join::JoinOptions,
    pace::Pace,
};

/// Resolves when the stream has ended in both directions. Dropping it resets the stream and the socket.
pub(crate) struct Join {
    shared: Rc<Shared>,
    slot: Rc<RefCell<Slot>>,
    countdown: Countdown,
}

impl Join {
    pub(crate) fn new(
        shared: Rc<Shared>,
        slot: Rc<RefCell<Slot>>,
        socket: net::Stream,
        options: JoinOptions,
    ) -> Self {
        {
            let mut slot = slot.borrow_mut();
            apply(options, &mut slot);
            slot.socket = Some(socket);
        }
        Self {
            shared,
            slot,
            countdown: Countdown::default(),
        }
    }
}

fn apply(options: JoinOptions, slot: &mut Slot) {
    slot.traffic = options.traffic;
    let tenths = |time: Duration| u32::try_from(time.as_millis() / 100).unwrap_or(u32::MAX);
    let limits = Limits {
        send: options.send.map(Pace::new),
        receive: options.receive.map(Pace::new),
        idle: options.idle.map(tenths),
        idle_one_way: options.idle_one_way.map(tenths),
    };
    if limits.send.is_some()
        || limits.receive.is_some()
        || limits.idle.is_some()
        || limits.idle_one_way.is_some()
    {
        slot.limits = Some(Box::new(limits));
    }
}

impl Future for Join {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let Self {
            shared,
            slot,
            countdown,
        } = &mut *self;
        let mut state = shared.state.borrow_mut();
        let mut slot = slot.borrow_mut();
        if slot.end.is_some() {
            return slot.outcome();
        }
        if !slot
            .reader
            .as_ref()
            .is_some_and(|waker| waker.will_wake(cx.waker()))
        {
            slot.reader = Some(cx.waker().clone());
        }
        drain(&mut state, &mut slot, cx);
        if !slot.waits_for_turn && slot.end.is_none() {
            state.feed(&mut slot, None, cx);
        }
        if slot.end.is_none()
            && slot.sending == Sending::Finished
            && slot.receiving == Receiving::Finished
        {
            let broken = slot.broken.map(|broken| End::Socket(broken.kind));
            slot.finish(broken.unwrap_or(End::Finished));
            state.remove(slot.key);
        }
        if let (None, Some(broken)) = (slot.end, slot.broken) {
            state.refresh_clock();
            if countdown
                .poll(broken, slot.sent_at, state.tenths(), cx)
                .is_ready()
            {
                let key = slot.key;
                slot.finish(End::Socket(broken.kind));
                state.drop_stream(key, ResetReason::Reset);
            }
        }
        slot.outcome()
    }
}

/// Writes what waits for the socket, then shuts its sending side down if the peer is done.
fn drain(state: &mut State, slot: &mut Slot, cx: &mut Context<'_>) {
    match poll_drain(state, slot, cx) {
        Poll::Pending | Poll::Ready(Ok(())) => {}
        Poll::Ready(Err(error)) => {
            state.refresh_clock();
            slot.break_off(error.kind(), state.tenths());
        }
    }
}

fn poll_drain(
    state: &mut State,
    slot: &mut Slot,
    cx: &mut Context<'_>,
) -> Poll<std::io::Result<()>> {
    while !slot.pending.is_empty() {
        let Slot {
            socket: Some(socket),
            pending,
            limits,
            ..
        } = &mut *slot
        else {
            return Poll::Ready(Ok(()));
        };
        let mut bytes = pending.bytes();
        let mut pace = limits.as_mut().and_then(|limits| limits.receive.as_mut());
        if let Some(pace) = &mut pace {
            let allowed = std::task::ready!(pace.poll_allowance(cx));
            bytes = &bytes[..bytes.len().min(allowed)];
        }
        let n = std::task::ready!(Pin::new(socket).poll_write(cx, bytes))?;
        if n == 0 {
            return Poll::Ready(Err(std::io::ErrorKind::WriteZero.into()));
        }
        if let Some(pace) = pace {
            pace.settle(n);
        }
        slot.pending.advance(n);
        state.refresh_clock();
        let now = state.tenths();
        slot.count_received(n, now);
        state.mux.consumed(slot.key, n, state.now);
        state.wake_driver();
    }
    if slot.broken.is_some() {
        if slot.receiving == Receiving::Finishing {
            slot.receiving = Receiving::Finished;
        }
        return Poll::Ready(Ok(()));
    }
    let Some(socket) = &mut slot.socket else {
        return Poll::Ready(Ok(()));
    };
    if socket.needs_flush() {
        std::task::ready!(Pin::new(&mut *socket).poll_flush(cx))?;
    }
    if slot.receiving == Receiving::Finishing {
        std::task::ready!(Pin::new(socket).poll_shutdown(cx))?;
        slot.receiving = Receiving::Finished;
    }
    Poll::Ready(Ok(()))
}

impl Drop for Join {
    fn drop(&mut self) {
        let mut slot = self.slot.borrow_mut();
        if slot.end.is_none() {
            slot.finish(End::Cancelled);
            let mut state = self.shared.state.borrow_mut();
            state.drop_stream(slot.key, ResetReason::Cancelled);
        }
    }
}

//! A stream of a link over a byte transport as an ordinary byte stream, for whoever is not a socket: services inside the process, datagram framing.

use std::{
    cell::RefCell,
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use mux::Turn;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tunnel::ResetReason;

use super::{
    join::Join,
    slot::{Receiving, Sending, Slot},
    state::Shared,
};
use crate::{end::End, join::JoinOptions};

/// One stream of the link. Bytes from the peer wait in it, bounded by credit, until they are read or a socket is joined.
/// Dropping it before both directions are finished resets it.
pub(crate) struct Stream {
    shared: Rc<Shared>,
    slot: Rc<RefCell<Slot>>,
    /// Nobody else looks after the slot.
    owned: bool,
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").finish_non_exhaustive()
    }
}

impl Stream {
    pub(crate) fn new(shared: Rc<Shared>, slot: Rc<RefCell<Slot>>) -> Self {
        Self {
            shared,
            slot,
            owned: true,
        }
    }

    /// Joins a socket: from now on bytes flow between the two without passing through the caller.
    pub(crate) fn join(mut self, socket: net::Stream, options: JoinOptions) -> Join {
        self.owned = false;
        Join::new(
            Rc::clone(&self.shared),
            Rc::clone(&self.slot),
            socket,
            options,
        )
    }

    /// Gives the stream up in both directions and tells the peer why.
    pub(crate) fn reset(mut self, reason: ResetReason) {
        self.give_up(reason);
    }

    /// How the stream ended, if it has.
    pub(crate) fn end(&self) -> Option<End> {
        self.slot.borrow().end
    }

    fn give_up(&mut self, reason: ResetReason) {
        self.owned = false;
        let mut slot = self.slot.borrow_mut();
        if slot.end.is_some() {
            return;
        }
        let finished = slot.sending == Sending::Finished
            && slot.receiving != Receiving::Open
            && slot.pending.is_empty();
        let mut state = self.shared.state.borrow_mut();
        if finished {
            slot.finish(End::Finished);
            state.remove(slot.key);
        } else {
            slot.finish(End::Cancelled);
            state.drop_stream(slot.key, reason);
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut slot = self.slot.borrow_mut();
        if let (Some(end), true) = (slot.end, slot.pending.is_empty()) {
            return Poll::Ready(broken(end));
        }
        if slot.pending.is_empty() {
            if slot.receiving != Receiving::Open {
                return Poll::Ready(Ok(()));
            }
            slot.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let n = slot.pending.bytes().len().min(buffer.remaining());
        buffer.put_slice(&slot.pending.bytes()[..n]);
        slot.pending.advance(n);
        let mut state = self.shared.state.borrow_mut();
        state.refresh_clock();
        let now = state.tenths();
        slot.count_received(n, now);
        let at = state.now;
        state.mux.consumed(slot.key, n, at);
        state.wake_driver();
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut slot = self.slot.borrow_mut();
        if let Some(end) = slot.end {
            return Poll::Ready(broken(end).map(|()| 0));
        }
        if slot.sending == Sending::Finished {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let mut state = self.shared.state.borrow_mut();
        let allowed = match slot.turn.take() {
            Some(allowed) => allowed,
            None if slot.waits_for_turn => 0,
            None => match state.mux.request(slot.key) {
                Turn::Now(allowed) => allowed,
                Turn::Later => {
                    slot.waits_for_turn = true;
                    0
                }
                Turn::Gone => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            },
        };
        let allowed = allowed.min(bytes.len());
        if allowed == 0 {
            slot.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let copied: Result<usize, std::convert::Infallible> =
            state.mux.send_with(slot.key, allowed, |room| {
                let n = room.len().min(allowed);
                room[..n].copy_from_slice(&bytes[..n]);
                Ok(n)
            });
        let Ok(n) = copied;
        let now = state.tenths();
        slot.count_sent(n, now);
        state.wake_driver();
        Poll::Ready(Ok(n))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut slot = self.slot.borrow_mut();
        if slot.end.is_none() && slot.sending == Sending::Open {
            slot.sending = Sending::Finished;
            let mut state = self.shared.state.borrow_mut();
            state.mux.finish(slot.key);
            state.wake_driver();
        }
        Poll::Ready(Ok(()))
    }
}

fn broken(end: End) -> io::Result<()> {
    match end {
        End::Finished => Ok(()),
        End::Idle => Err(io::ErrorKind::TimedOut.into()),
        End::Socket(kind) => Err(kind.into()),
        End::Reset(_) | End::LinkLost | End::Cancelled => {
            Err(io::ErrorKind::ConnectionReset.into())
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.owned {
            self.give_up(ResetReason::Cancelled);
        }
    }
}

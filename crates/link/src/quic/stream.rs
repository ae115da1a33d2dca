//! A stream of a QUIC link as an ordinary byte stream.

use std::{
    io,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tunnel::ResetReason;

use super::{
    Channel,
    flow::{Flow, io_error, told},
    join::{Join, Joined, Receiving, Sending},
    link::{Pair, Shared, Slot},
};
use crate::{end::End, join::JoinOptions, pace::Traffic};

/// See [`crate::Stream`], whose methods these are.
pub(crate) struct Stream {
    shared: Rc<Shared>,
    slot: Rc<Slot>,
    /// Absent when it has been joined or given up.
    flow: Option<Flow>,
    /// The header, while it has not been taken by QUIC.
    unsent: Bytes,
    finished: bool,
    peer_finished: bool,
    traffic: Option<Arc<Traffic>>,
}

impl Stream {
    pub(super) fn new(
        shared: Rc<Shared>,
        slot: Rc<Slot>,
        pair: Pair,
        unsent: Bytes,
        traffic: Option<Arc<Traffic>>,
    ) -> Self {
        Self {
            shared,
            slot,
            flow: Some(Flow::new(pair)),
            unsent,
            finished: false,
            peer_finished: false,
            traffic,
        }
    }

    pub(crate) fn join(mut self, socket: net::Stream, options: JoinOptions) -> Join {
        let joined = Joined {
            outgoing: std::mem::take(&mut self.unsent),
            sent: 0,
            incoming: Bytes::new(),
        };
        let ends = (
            if self.finished {
                Sending::Finished
            } else {
                Sending::Open
            },
            if self.peer_finished {
                Receiving::Finishing
            } else {
                Receiving::Open
            },
        );
        let (shared, slot) = (Rc::clone(&self.shared), Rc::clone(&self.slot));
        let flow = self.flow.take();
        Join::with_flow(shared, slot, flow, ends, joined, socket, options)
    }

    pub(crate) fn reset(mut self, reason: ResetReason) {
        self.give_up(reason);
    }

    pub(crate) fn end(&self) -> Option<End> {
        self.slot.verdict.get()
    }

    /// Where datagrams of this stream come and go, if the peer knows them.
    pub(crate) fn channel(&self) -> Option<Channel> {
        let id = self.flow.as_ref()?.id();
        Channel::open(&self.shared, id)
    }

    fn give_up(&mut self, reason: ResetReason) {
        let Some(mut flow) = self.flow.take() else {
            return;
        };
        self.shared.remove(&self.slot);
        if self.finished && self.peer_finished && self.unsent.is_empty() {
            self.shared.linger(flow.send);
        } else {
            flow.reset(reason);
        }
    }

    /// The stream, unless it was ended from elsewhere. Its owner is woken when it is.
    fn flow(&mut self, cx: &Context<'_>) -> io::Result<&mut Flow> {
        self.slot.register(cx);
        if let Some(end) = self.slot.verdict.get() {
            self.give_up(told(end));
            return Err(io_error(end));
        }
        let gone = || io::Error::from(io::ErrorKind::ConnectionReset);
        self.flow.as_mut().ok_or_else(gone)
    }

    fn poll_unsent(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unsent.is_empty() {
            let mut unsent = std::mem::take(&mut self.unsent);
            let sent = self.flow(cx)?.poll_send(cx, &mut unsent);
            self.unsent = unsent;
            std::task::ready!(sent).map_err(io_error)?;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // Who only reads has to send the header nevertheless.
        if let Poll::Ready(Err(error)) = self.poll_unsent(cx) {
            return Poll::Ready(Err(error));
        }
        if buffer.remaining() == 0 || self.peer_finished {
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        let read = self.flow(cx)?.poll_receive(cx, buffer);
        std::task::ready!(read).map_err(io_error)?;
        let n = buffer.filled().len() - before;
        self.peer_finished = n == 0;
        if let Some(traffic) = &self.traffic {
            traffic.add_received(n);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.finished {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        std::task::ready!(self.poll_unsent(cx))?;
        let sent = self.flow(cx)?.poll_copy(cx, bytes);
        let n = std::task::ready!(sent).map_err(io_error)?;
        if let Some(traffic) = &self.traffic {
            traffic.add_sent(n);
        }
        Poll::Ready(Ok(n))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_unsent(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        std::task::ready!(self.poll_unsent(cx))?;
        if !self.finished {
            self.finished = true;
            self.flow(cx)?.finish();
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.give_up(ResetReason::Cancelled);
    }
}

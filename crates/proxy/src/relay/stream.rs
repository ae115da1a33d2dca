//! A stream to a relayed service, on this thread's link or on another's, held to the limits of its client.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use link::{End, Pace, Pacer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tunnel::ResetReason;

use super::bridge::{Bridge, FarEnd, bridge};

/// One stream. Dropping it before both directions have ended resets it.
#[derive(Debug)]
pub struct RelayStream {
    way: Way,
    send: Option<Pace>,
    receive: Option<Pace>,
}

#[derive(Debug)]
enum Way {
    /// A link of this thread.
    Here(link::Stream),
    /// A link of another thread.
    There(Bridge),
}

impl RelayStream {
    /// A stream of a link of this thread, with limits towards the client and from it.
    #[must_use]
    pub fn here(
        stream: link::Stream,
        send: Option<Arc<Pacer>>,
        receive: Option<Arc<Pacer>>,
    ) -> Self {
        Self {
            way: Way::Here(stream),
            send: send.map(Pace::new),
            receive: receive.map(Pace::new),
        }
    }

    /// A stream whose link is on another thread, and the end that belongs there.
    #[must_use]
    pub fn there() -> (Self, FarEnd) {
        let (near, far) = bridge();
        let stream = Self {
            way: Way::There(near),
            send: None,
            receive: None,
        };
        (stream, far)
    }

    /// Why the other end gave it up, if it did.
    pub(crate) fn refusal(&self) -> Option<ResetReason> {
        match self.end()? {
            End::Reset(reason) => Some(reason),
            End::LinkLost => Some(ResetReason::LinkLost),
            _ => None,
        }
    }

    pub(crate) fn end(&self) -> Option<End> {
        match &self.way {
            Way::Here(stream) => stream.end(),
            Way::There(bridge) => bridge.end(),
        }
    }

    /// Ends it as a reset.
    pub(crate) fn abort(self) {
        if let Way::Here(stream) = self.way {
            stream.reset(ResetReason::Reset);
        }
    }
}

impl AsyncRead for RelayStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { way, receive, .. } = &mut *self;
        let Some(pace) = receive else {
            return way.poll_read(cx, buffer);
        };
        let allowed = ready!(pace.poll_allowance(cx)).min(buffer.remaining());
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(allowed));
        let read = way.poll_read(cx, &mut part);
        let n = part.filled().len();
        pace.settle(n);
        buffer.advance(n);
        read
    }
}

impl AsyncWrite for RelayStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Self { way, send, .. } = &mut *self;
        let Some(pace) = send else {
            return way.poll_write(cx, bytes);
        };
        let allowed = ready!(pace.poll_allowance(cx)).min(bytes.len());
        let written = way.poll_write(cx, &bytes[..allowed]);
        pace.settle(match written {
            Poll::Ready(Ok(n)) => n,
            _ => 0,
        });
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.way {
            Way::Here(stream) => Pin::new(stream).poll_flush(cx),
            Way::There(bridge) => bridge.poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.way {
            Way::Here(stream) => Pin::new(stream).poll_shutdown(cx),
            Way::There(bridge) => bridge.poll_shutdown(cx),
        }
    }
}

impl Way {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self {
            Self::Here(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::There(bridge) => bridge.poll_read(cx, buffer),
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Here(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::There(bridge) => bridge.poll_write(cx, bytes),
        }
    }
}

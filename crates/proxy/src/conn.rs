//! A byte stream as the exchange sees it: a socket with whatever lies over it, or a stream on a client's link.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// One end of an exchange.
#[derive(Debug)]
pub enum Conn {
    /// A connection of this process: TCP, Unix, TLS over them.
    Socket(net::Stream),
    /// A stream to a service behind a client of the relay.
    Stream(link::Stream),
}

impl Conn {
    /// Waits until a read has something to say, without holding a buffer meanwhile. A stream on a link cannot tell: it is always "ready".
    pub(crate) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Socket(socket) => socket.poll_readable(cx),
            Self::Stream(_) => Poll::Ready(Ok(())),
        }
    }

    /// Bytes taken earlier that still have to travel (TLS records the socket refused).
    pub(crate) fn needs_flush(&self) -> bool {
        match self {
            Self::Socket(socket) => socket.needs_flush(),
            Self::Stream(_) => false,
        }
    }

    /// Ends it as a reset: what was sent may be incomplete, and the peer must know.
    pub(crate) fn abort(self) {
        match self {
            Self::Socket(socket) => socket.abort(),
            // Dropping an unfinished stream resets it.
            Self::Stream(stream) => drop(stream),
        }
    }
}

impl From<net::Stream> for Conn {
    fn from(socket: net::Stream) -> Self {
        Self::Socket(socket)
    }
}

impl From<link::Stream> for Conn {
    fn from(stream: link::Stream) -> Self {
        Self::Stream(stream)
    }
}

impl AsyncRead for Conn {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Socket(socket) => Pin::new(socket).poll_read(cx, buffer),
            Self::Stream(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Conn {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Socket(socket) => Pin::new(socket).poll_write(cx, bytes),
            Self::Stream(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Socket(socket) => Pin::new(socket).poll_write_vectored(cx, parts),
            Self::Stream(stream) => Pin::new(stream).poll_write_vectored(cx, parts),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Socket(socket) => Pin::new(socket).poll_flush(cx),
            Self::Stream(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Socket(socket) => Pin::new(socket).poll_shutdown(cx),
            Self::Stream(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

//! A byte stream as the exchange sees it: a socket with whatever lies over it, a stream of HTTP/2 or 3, or one of a relay's link.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, Waker},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use h1::{Limits, RequestError, RequestHead, ResponseHead};
use tunnel::ResetReason;

use crate::{
    h2::H2Stream, h2_server::ServerStream, h3::H3Stream, pipeline::PipedStream, relay::RelayStream,
};

/// One end of an exchange.
#[derive(Debug)]
pub(crate) enum Conn {
    /// A connection of this process: TCP, Unix, TLS over them.
    Socket(net::Stream),
    /// A stream of an HTTP/2 visitor, in HTTP/1.1's words.
    H2(Box<H2Stream>),
    /// A stream of an HTTP/3 visitor, in the same way.
    H3(Box<H3Stream>),
    /// A request's place on a connection to a server that it shares with others.
    Piped(PipedStream),
    /// A stream to a relayed service.
    Relay(Box<RelayStream>),
    /// A request to a server that speaks HTTP/2, in HTTP/1.1's words.
    H2Server(Box<ServerStream>),
}

impl Conn {
    /// Bytes taken earlier that still have to travel (TLS records the socket refused).
    pub(crate) fn needs_flush(&self) -> bool {
        match self {
            Self::Socket(socket) => socket.needs_flush(),
            Self::H2(_) | Self::Piped(_) | Self::Relay(_) | Self::H2Server(_) => false,
            Self::H3(stream) => stream.needs_flush(),
        }
    }

    /// Whether its end has to be said before it is dropped.
    pub(crate) fn needs_shutdown(&self) -> bool {
        match self {
            Self::Socket(socket) => socket.needs_shutdown(),
            _ => true,
        }
    }

    /// Why a relayed service's client gave the stream up, if it did.
    pub(crate) fn refusal(&self) -> Option<ResetReason> {
        match self {
            Self::Relay(stream) => stream.refusal(),
            Self::H2Server(stream) => stream.refusal(),
            _ => None,
        }
    }

    /// Whether a server has said that it has not looked at the request.
    pub(crate) fn is_unprocessed(&self) -> bool {
        matches!(self, Self::H2Server(stream) if stream.is_unprocessed())
    }

    /// Whether it is a place on a connection of HTTP/1.1 that carries others' requests too.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self, Self::Piped(_))
    }

    /// Whether a server is spoken to in HTTP/2.
    pub(crate) fn is_http2(&self) -> bool {
        matches!(self, Self::H2Server(_))
    }

    /// Puts the head of the answer that has just been read into `head`, where it was parsed on the way here.
    pub(crate) fn take_head(&mut self, head: &mut ResponseHead) {
        if let Self::Piped(stream) = self {
            stream.take_head(head);
        }
    }

    /// Puts the head of a stream's request together, instead of reading it.
    pub(crate) fn compose(
        &mut self,
        limits: &Limits,
        head: &mut RequestHead,
        out: &mut Vec<u8>,
    ) -> Result<(), RequestError> {
        match self {
            Self::H2(stream) => stream.compose(limits, head, out),
            Self::H3(stream) => stream.compose(limits, head, out),
            _ => Err(RequestError::RequestLine),
        }
    }

    /// Waits until there is something to read, where that can be asked at no cost; else it is found out by reading.
    pub(crate) fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Socket(socket) if !socket.needs_shutdown() => socket.poll_readable(cx),
            _ => Poll::Ready(Ok(())),
        }
    }

    /// Reads into `buffer`; 0 bytes are the end.
    pub(crate) fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        if let Self::Socket(socket) = self {
            return socket.poll_receive(cx, buffer);
        }
        let mut buffer = ReadBuf::new(buffer);
        let read = Pin::new(self).poll_read(cx, &mut buffer);
        read.map_ok(|()| buffer.filled().len())
    }

    /// Whether nothing has come on a connection that waits: neither an end nor bytes that nobody asked for.
    pub(crate) fn is_quiet(&mut self) -> bool {
        if let Self::Socket(socket) = self {
            return socket.is_quiet();
        }
        let mut cx = Context::from_waker(Waker::noop());
        self.poll_receive(&mut cx, &mut [0]).is_pending()
    }

    /// Ends it as a reset: what was sent may be incomplete, and the peer must know.
    pub(crate) fn abort(self) {
        match self {
            Self::Socket(socket) => socket.abort(),
            Self::H2(stream) => stream.abort(),
            Self::H3(stream) => stream.abort(),
            // Others are on its connection: whoever drops it is no longer answered, no more.
            Self::Piped(_) => {}
            Self::Relay(stream) => stream.abort(),
            Self::H2Server(stream) => stream.abort(),
        }
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
            Self::H2(stream) => stream.poll_read(cx, buffer),
            Self::H3(stream) => stream.poll_read(cx, buffer),
            Self::Piped(stream) => stream.poll_read(cx, buffer),
            Self::Relay(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::H2Server(stream) => stream.poll_read(cx, buffer),
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
            Self::Socket(socket) => socket.poll_send(cx, bytes),
            Self::H2(stream) => stream.poll_write(cx, bytes),
            Self::H3(stream) => stream.poll_write(cx, bytes),
            Self::Piped(stream) => stream.poll_write(bytes),
            Self::Relay(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::H2Server(stream) => stream.poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Socket(socket) => Pin::new(socket).poll_write_vectored(cx, parts),
            Self::H2(_) | Self::H3(_) | Self::Piped(_) | Self::Relay(_) | Self::H2Server(_) => {
                let part = parts.iter().find(|part| !part.is_empty());
                self.poll_write(cx, part.map_or(&[], |part| part))
            }
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Socket(socket) => Pin::new(socket).poll_flush(cx),
            Self::H2(_) | Self::Piped(_) | Self::H2Server(_) => Poll::Ready(Ok(())),
            Self::H3(stream) => stream.poll_flush(cx),
            Self::Relay(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Socket(socket) => Pin::new(socket).poll_shutdown(cx),
            Self::H2(stream) => stream.poll_shutdown(),
            Self::H3(stream) => stream.poll_shutdown(cx),
            Self::Piped(_) => Poll::Ready(Ok(())),
            Self::Relay(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::H2Server(_) => Poll::Ready(Ok(())),
        }
    }
}

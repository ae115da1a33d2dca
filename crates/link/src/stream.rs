//! A stream of the link as an ordinary byte stream, for whoever is not a socket: services inside the process, datagrams.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tunnel::ResetReason;

use crate::{
    datagram::{DatagramReader, DatagramWriter},
    end::End,
    framed,
    join::{Join, JoinOptions},
    quic,
};

/// One stream of a link. Bytes from the peer wait in it, bounded by credit, until they are read or a socket is joined.
/// Dropping it before both directions are finished resets it.
pub struct Stream(Kind);

enum Kind {
    Framed(framed::Stream),
    Quic(Box<quic::Stream>),
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").finish_non_exhaustive()
    }
}

impl From<framed::Stream> for Stream {
    fn from(stream: framed::Stream) -> Self {
        Self(Kind::Framed(stream))
    }
}

impl From<quic::Stream> for Stream {
    fn from(stream: quic::Stream) -> Self {
        Self(Kind::Quic(Box::new(stream)))
    }
}

impl Stream {
    /// Joins a socket: from now on bytes flow between the two without passing through the caller.
    pub fn join(self, socket: net::Stream, options: JoinOptions) -> Join {
        match self.0 {
            Kind::Framed(stream) => stream.join(socket, options).into(),
            Kind::Quic(stream) => stream.join(socket, options).into(),
        }
    }

    /// Gives the stream up in both directions and tells the peer why.
    pub fn reset(self, reason: ResetReason) {
        match self.0 {
            Kind::Framed(stream) => stream.reset(reason),
            Kind::Quic(stream) => stream.reset(reason),
        }
    }

    /// How the stream ended, if it has.
    #[must_use]
    pub fn end(&self) -> Option<End> {
        match &self.0 {
            Kind::Framed(stream) => stream.end(),
            Kind::Quic(stream) => stream.end(),
        }
    }

    /// The stream of a UDP visitor: whole datagrams instead of bytes. Over QUIC they travel as datagrams where they fit, else on the
    /// stream, as over all other transports.
    #[must_use]
    pub fn datagrams(self) -> (DatagramReader, DatagramWriter) {
        let channel = match &self.0 {
            Kind::Framed(_) => None,
            Kind::Quic(stream) => stream.channel(),
        };
        crate::datagram::halves(self, channel)
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Kind::Framed(stream) => Pin::new(stream).poll_read(cx, buffer),
            Kind::Quic(stream) => Pin::new(&mut **stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.0 {
            Kind::Framed(stream) => Pin::new(stream).poll_write(cx, bytes),
            Kind::Quic(stream) => Pin::new(&mut **stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Kind::Framed(stream) => Pin::new(stream).poll_flush(cx),
            Kind::Quic(stream) => Pin::new(&mut **stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Kind::Framed(stream) => Pin::new(stream).poll_shutdown(cx),
            Kind::Quic(stream) => Pin::new(&mut **stream).poll_shutdown(cx),
        }
    }
}

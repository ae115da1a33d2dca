//! What a link runs on: a byte stream, or a QUIC connection with its first stream, on which the handshake and the control messages go.
//!
//! Both are read and written as a byte stream until the handshake is done; [`crate::Link::start`] takes it from there. Bytes that the
//! handshake read and did not need go back in front.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::quic::Control;

/// A transport on which a handshake can begin, or has been done.
#[derive(Debug)]
pub struct Transport(Kind);

#[derive(Debug)]
pub(crate) enum Kind {
    Bytes(net::Stream),
    Quic(Box<Control>),
}

impl From<net::Stream> for Transport {
    fn from(stream: net::Stream) -> Self {
        Self(Kind::Bytes(stream))
    }
}

impl Transport {
    /// The client's end of a QUIC connection: opens the first stream.
    ///
    /// # Errors
    /// The connection's end.
    pub async fn quic_open(connection: quinn::Connection) -> Result<Self, quinn::ConnectionError> {
        let control = Control::open(connection).await?;
        Ok(Self(Kind::Quic(Box::new(control))))
    }

    /// The server's end of a QUIC connection: waits for the first stream, for as long as the caller does.
    ///
    /// # Errors
    /// The connection's end.
    pub async fn quic_accept(
        connection: quinn::Connection,
    ) -> Result<Self, quinn::ConnectionError> {
        let control = Control::accept(connection).await?;
        Ok(Self(Kind::Quic(Box::new(control))))
    }

    /// The byte stream, where it is one.
    #[must_use]
    pub fn as_stream(&self) -> Option<&net::Stream> {
        match &self.0 {
            Kind::Bytes(stream) => Some(stream),
            Kind::Quic(_) => None,
        }
    }

    /// The byte stream, where it is one; else nothing is left of the transport.
    #[must_use]
    pub fn into_stream(self) -> Option<net::Stream> {
        match self.0 {
            Kind::Bytes(stream) => Some(stream),
            Kind::Quic(_) => None,
        }
    }

    /// The QUIC connection, where it is one.
    #[must_use]
    pub fn as_quic(&self) -> Option<&quinn::Connection> {
        match &self.0 {
            Kind::Bytes(_) => None,
            Kind::Quic(control) => Some(&control.connection),
        }
    }

    /// Whether it can be moved to another worker. A KCP or QUIC link cannot: its socket serves others on the same worker.
    #[must_use]
    pub fn can_move(&self) -> bool {
        self.as_stream().is_some_and(net::Stream::can_move)
    }

    /// Whether the handshake must be bound to the channel: see [`net::Stream::needs_binding`]. Nothing between the ends may end QUIC, so
    /// there is no reason not to bind it.
    #[must_use]
    pub fn needs_binding(&self) -> bool {
        self.as_stream().is_none_or(net::Stream::needs_binding)
    }

    /// 32 bytes that both ends of an encrypted channel have and nobody else, exported under `label` without context.
    #[must_use]
    pub fn channel_binding(&self, label: &[u8]) -> Option<[u8; 32]> {
        match &self.0 {
            Kind::Bytes(stream) => stream.channel_binding(label),
            Kind::Quic(control) => {
                let mut exported = [0; 32];
                // RFC 8446 §7.5: in TLS 1.3 an empty context and an absent one are the same.
                let done = control
                    .connection
                    .export_keying_material(&mut exported, label, &[]);
                done.ok().map(|()| exported)
            }
        }
    }

    /// The peer has proved who it is: a stranger's bounds are lifted.
    pub fn peer_is_known(&self) {
        match &self.0 {
            Kind::Bytes(stream) => stream.peer_is_known(),
            Kind::Quic(control) => control.admit(),
        }
    }

    #[must_use]
    pub(crate) fn with_unread(self, unread: Vec<u8>) -> Self {
        Self(match self.0 {
            Kind::Bytes(stream) => Kind::Bytes(stream.with_prefix(unread)),
            Kind::Quic(mut control) => {
                control.unread = Bytes::from(unread);
                Kind::Quic(control)
            }
        })
    }

    pub(crate) fn into_kind(self) -> Kind {
        self.0
    }
}

impl AsyncRead for Transport {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Kind::Bytes(stream) => Pin::new(stream).poll_read(cx, buffer),
            Kind::Quic(control) => {
                let read = control.receive.poll_read_buf(cx, buffer);
                read.map(|read| read.map_err(io::Error::from))
            }
        }
    }
}

impl AsyncWrite for Transport {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.0 {
            Kind::Bytes(stream) => Pin::new(stream).poll_write(cx, bytes),
            Kind::Quic(control) => AsyncWrite::poll_write(Pin::new(&mut control.send), cx, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Kind::Bytes(stream) => Pin::new(stream).poll_flush(cx),
            Kind::Quic(_) => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Kind::Bytes(stream) => Pin::new(stream).poll_shutdown(cx),
            Kind::Quic(control) => {
                let _ = control.send.finish();
                Poll::Ready(Ok(()))
            }
        }
    }
}

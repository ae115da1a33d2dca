//! tokio's traits for [`Stream`]: each call goes to the variant, after the prefix.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Buf;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{Kind, Stream, first};

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        if let Some(prefix) = &mut self.prefix {
            let n = prefix.len().min(buf.remaining());
            buf.put_slice(&prefix[..n]);
            prefix.advance(n);
            if prefix.is_empty() {
                self.prefix = None;
            }
            return Poll::Ready(Ok(()));
        }
        match &mut self.kind {
            // tokio forgets the readiness after a short read, which spares the next call a system call.
            Kind::Tcp(tcp) => Pin::new(tcp).poll_read(cx, buf),
            Kind::Unix(unix) => Pin::new(unix).poll_read(cx, buf),
            Kind::Tls(tls) => tls.poll_read(cx, buf),
            Kind::Ws(ws) => ws.poll_read(cx, buf),
            Kind::Kcp(kcp) => Pin::new(kcp).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.kind {
            Kind::Tcp(tcp) => Pin::new(tcp).poll_write(cx, buf),
            Kind::Unix(unix) => Pin::new(unix).poll_write(cx, buf),
            Kind::Tls(tls) => tls.poll_write(cx, &[IoSlice::new(buf)]),
            Kind::Ws(ws) => ws.poll_write(cx, &[IoSlice::new(buf)]),
            Kind::Kcp(kcp) => Pin::new(kcp).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.kind {
            Kind::Tcp(tcp) => Pin::new(tcp).poll_write_vectored(cx, bufs),
            Kind::Unix(unix) => Pin::new(unix).poll_write_vectored(cx, bufs),
            Kind::Tls(tls) => tls.poll_write(cx, bufs),
            Kind::Ws(ws) => ws.poll_write(cx, bufs),
            Kind::Kcp(kcp) => Pin::new(kcp).poll_write(cx, first(bufs)),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.kind {
            Kind::Tcp(_) | Kind::Unix(_) | Kind::Kcp(_) => Poll::Ready(Ok(())),
            Kind::Tls(tls) => tls.poll_flush(cx),
            Kind::Ws(ws) => ws.poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.kind {
            Kind::Tcp(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Kind::Unix(unix) => Pin::new(unix).poll_shutdown(cx),
            Kind::Tls(tls) => tls.poll_shutdown(cx),
            Kind::Ws(ws) => ws.poll_shutdown(cx),
            Kind::Kcp(kcp) => Pin::new(kcp).poll_shutdown(cx),
        }
    }
}

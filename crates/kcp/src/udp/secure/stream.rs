//! A session as its user holds it: a byte stream with an end in each direction.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{kind::Secure, link::State};
use crate::{
    secure::{End, Stats},
    udp::link::{Link, note},
};

/// One end of a session.
///
/// Writing takes bytes as long as few wait to be sent, so that they are not queued in front of what is more urgent. Reading 0 bytes
/// means that the peer has ended its direction. Shutting down waits until the peer has everything.
#[derive(Debug)]
pub struct Stream {
    link: Arc<Link<Secure>>,
}

impl Stream {
    pub(super) fn new(link: Arc<Link<Secure>>) -> Self {
        Self { link }
    }

    /// Where the peer is now; it may move.
    pub fn peer_addr(&self) -> SocketAddr {
        self.link.lock().session.remote()
    }

    /// The socket's address.
    pub fn local_addr(&self) -> SocketAddr {
        self.link.shared.local
    }

    /// See [`crate::secure::Session::binding`].
    pub fn binding(&self) -> [u8; 32] {
        *self.link.lock().session.binding()
    }

    /// See [`crate::secure::Session::admit`].
    pub fn admit(&self) {
        self.link.lock().session.admit();
        self.link.mark_dirty();
    }

    /// Sends a reset instead of the end when the stream is dropped, and nothing of what is unsent.
    pub fn abort(self) {
        self.link.lock().session.reset();
    }

    /// Looks at the session from elsewhere.
    pub fn monitor(&self) -> Monitor {
        Monitor(Arc::clone(&self.link))
    }

    /// Whether a read would give bytes, the end or an error without waiting.
    pub fn is_readable(&self) -> bool {
        readable(&self.link.lock())
    }

    /// Waits until [`Self::is_readable`].
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.link.lock();
        if readable(&state) {
            return Poll::Ready(());
        }
        note(&mut state.reader, cx);
        Poll::Pending
    }

    /// Writes what is taken now.
    ///
    /// # Errors
    /// `WouldBlock` if nothing was; else as a write.
    pub fn try_write(&self, data: &[u8]) -> io::Result<usize> {
        let now = self.link.shared.clock.now();
        let mut state = self.link.lock();
        let taken = match state.session.write(now, data) {
            0 if data.is_empty() => return Ok(0),
            0 => return Err(state.over().unwrap_or_else(|| refused(&state))),
            taken => taken,
        };
        drop(state);
        self.link.mark_dirty();
        Ok(taken)
    }
}

/// The figures of a session, readable from any thread. It does not keep the session.
#[derive(Clone, Debug)]
pub struct Monitor(Arc<Link<Secure>>);

impl Monitor {
    /// The smoothed round-trip time, once one was measured.
    pub fn rtt(&self) -> Option<Duration> {
        self.0.lock().session.srtt()
    }

    /// The share of datagrams to the peer that does not arrive, 0 to 1.
    pub fn loss(&self) -> f64 {
        self.0.lock().session.loss()
    }

    /// Counters.
    pub fn stats(&self) -> Stats {
        self.0.lock().session.stats()
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if out.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let mut state = self.link.lock();
        if !readable(&state) {
            note(&mut state.reader, cx);
            return Poll::Pending;
        }
        let count = state.session.read(out.initialize_unfilled());
        out.advance(count);
        if count == 0 && !state.session.is_at_end() {
            return Poll::Ready(state.over().map_or(Ok(()), Err));
        }
        let tell = state.session.has_window_news() || state.session.end().is_some();
        drop(state);
        if tell {
            self.link.mark_dirty();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.try_write(data) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                note(&mut self.link.lock().writer, cx);
                Poll::Pending
            }
            result => Poll::Ready(result),
        }
    }

    /// Does not wait: what was written is on its way.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let now = self.link.shared.clock.now();
        let mut state = self.link.lock();
        state.session.shutdown(now);
        if state.session.is_flushed() || state.session.end() == Some(End::Finished) {
            return Poll::Ready(Ok(()));
        }
        if let Some(error) = state.over() {
            return Poll::Ready(Err(error));
        }
        note(&mut state.flusher, cx);
        drop(state);
        self.link.mark_dirty();
        Poll::Pending
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.link.lock().dropped = true;
        self.link.mark_dirty();
    }
}

fn readable(state: &State) -> bool {
    state.orphaned
        || state.session.readable() > 0
        || state.session.is_at_end()
        || state.session.end().is_some()
}

/// Why nothing was taken although the session goes on.
fn refused(state: &State) -> io::Error {
    if state.session.is_shut() {
        io::ErrorKind::BrokenPipe.into()
    } else {
        io::ErrorKind::WouldBlock.into()
    }
}

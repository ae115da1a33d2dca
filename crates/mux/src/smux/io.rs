//! smux over tokio: a [`Session`] drives any `AsyncRead + AsyncWrite`, its [`Stream`]s are `AsyncRead + AsyncWrite` too.
//!
//! One task per session, the *driver*, owns the transport: it reads while there is room for what may come, gives streams their
//! turns, writes, and keeps alive. Handles lock the session's state for a moment and tell the driver that there is something to
//! do. A session holds at most [`Config::receive_buffer`] bytes for readers, 16 KiB for each stream that waits for its turn to
//! write, and some times [`Config::output_limit`] for the transport.

mod driver;
mod state;

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use self::state::{End, Shared, Slot, State};
use super::{Config, OpenError};
use crate::types::{Key, Side};

/// One end of a smux session.
///
/// Dropping it ends accepting; the session goes on until its streams are gone, then the transport is shut down.
#[derive(Debug)]
pub struct Session {
    shared: Arc<Shared>,
}

impl Session {
    /// The end that opened the transport. Must be called within a tokio runtime.
    pub fn client<T>(transport: T, config: Config) -> Self
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        Self::new(transport, Side::Initiator, config)
    }

    /// The end that accepted the transport. Must be called within a tokio runtime.
    pub fn server<T>(transport: T, config: Config) -> Self
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        Self::new(transport, Side::Acceptor, config)
    }

    fn new<T>(transport: T, side: Side, config: Config) -> Self
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let shared = Arc::new(Shared::new(side, config));
        tokio::spawn(driver::run(transport, Arc::clone(&shared)));
        Self { shared }
    }

    /// Opens a stream; waits while the transport is far behind. Fails with [`OpenError`] inside when no stream can be opened, or
    /// with the reason why the session has ended.
    pub async fn open(&self) -> io::Result<Stream> {
        poll_fn(|cx| {
            let mut state = self.shared.lock();
            if let Some(end) = &state.end {
                return Poll::Ready(Err(end.into()));
            }
            if !state.may_read_or_open() {
                note(&mut state.openers, cx);
                return Poll::Pending;
            }
            let key = state.smux.open().map_err(|error| {
                let kind = match error {
                    OpenError::TooManyStreams => io::ErrorKind::QuotaExceeded,
                    OpenError::IdsUsedUp => io::ErrorKind::NotConnected,
                };
                io::Error::new(kind, error)
            })?;
            state.slots.insert(key, Slot::default());
            state.wake_driver();
            Poll::Ready(Ok(self.stream(key)))
        })
        .await
    }

    /// The next stream that the peer opened. Fails with the reason when the session has ended.
    pub async fn accept(&self) -> io::Result<Stream> {
        poll_fn(|cx| {
            let mut state = self.shared.lock();
            if let Some(key) = state.accepts.pop_front() {
                return Poll::Ready(Ok(self.stream(key)));
            }
            if let Some(end) = &state.end {
                return Poll::Ready(Err(end.into()));
            }
            note(&mut state.acceptors, cx);
            Poll::Pending
        })
        .await
    }

    /// Ends the session at once: its streams fail, the transport is shut down.
    pub fn close(&self) {
        let mut state = self.shared.lock();
        state.finish(End::Closed);
        state.wake_driver();
    }

    /// Whether the session has ended: nothing can be opened any more.
    pub fn is_closed(&self) -> bool {
        self.shared.lock().end.is_some()
    }

    /// Streams that are open.
    pub fn stream_count(&self) -> usize {
        self.shared.lock().slots.len()
    }

    fn stream(&self, key: Key) -> Stream {
        Stream {
            shared: Arc::clone(&self.shared),
            key,
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.handle_gone = true;
        let now = self.shared.now();
        while let Some(key) = state.accepts.pop_front() {
            state.drop_stream(key, now);
        }
        state.wake_driver();
    }
}

/// One stream.
///
/// Shutting down sends `FIN` behind what was written; reading ends where the peer's `FIN` is. Dropping it gives it up in both
/// directions, after what was written: at most [`Config::linger`] later. What half-close is worth depends on the peer: see the
/// head of [`crate::smux`].
#[derive(Debug)]
pub struct Stream {
    shared: Arc<Shared>,
    key: Key,
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
        let now = self.shared.now();
        let mut guard = self.shared.lock();
        let state: &mut State = &mut guard;
        let Some(slot) = state.slots.get_mut(&self.key) else {
            return Poll::Ready(Ok(()));
        };
        let n = slot.take(out);
        if n > 0 {
            let was_full = state.smux.read_budget() == 0;
            state.smux.consumed(self.key, n, now);
            if was_full || state.smux.output_len() > 0 {
                state.wake_driver();
            }
            return Poll::Ready(Ok(()));
        }
        if slot.eof {
            return Poll::Ready(Ok(()));
        }
        if let Some(end) = &state.end {
            return Poll::Ready(Err(end.into()));
        }
        slot.reader = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        if data.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let mut guard = self.shared.lock();
        let state: &mut State = &mut guard;
        if let Some(end) = &state.end {
            return Poll::Ready(Err(end.into()));
        }
        let Some(slot) = state.slots.get_mut(&self.key) else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        if slot.shut {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if !slot.staged.is_empty() {
            slot.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let mut n = state.smux.send(self.key, data);
        if n == 0 {
            // The turn has been asked for; when it comes, the driver sends these.
            n = data.len().min(STAGED);
            slot.staged.extend_from_slice(&data[..n]);
        }
        state.wake_driver();
        Poll::Ready(Ok(n))
    }

    /// Waits until what was written has had its turns; the transport has it then, or is about to get it.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut guard = self.shared.lock();
        let state: &mut State = &mut guard;
        let Some(slot) = state.slots.get_mut(&self.key) else {
            return Poll::Ready(Ok(()));
        };
        if slot.staged.is_empty() {
            return Poll::Ready(Ok(()));
        }
        if let Some(end) = &state.end {
            return Poll::Ready(Err(end.into()));
        }
        slot.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Does not wait: `FIN` follows what was written.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut guard = self.shared.lock();
        let state: &mut State = &mut guard;
        if let Some(slot) = state.slots.get_mut(&self.key) {
            slot.shut = true;
            if slot.staged.is_empty() {
                state.smux.finish(self.key);
                state.wake_driver();
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let now = self.shared.now();
        let mut state = self.shared.lock();
        state.drop_stream(self.key, now);
        state.wake_driver();
    }
}

/// Remembers to wake this task; one that asks twice is woken once.
fn note(wakers: &mut Vec<Waker>, cx: &Context<'_>) {
    if !wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
        wakers.push(cx.waker().clone());
    }
}

/// Bytes of a stream that may wait for its turn: enough that the turn is worth its frame, little for thousands of streams.
const STAGED: usize = 16 << 10;

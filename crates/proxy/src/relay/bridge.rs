//! A stream of another thread's link: bytes pass through a bounded pipe in memory, and a reset on one side is one on the other.
//!
//! A visitor's connection stays on its thread while its requests go to several services, so it cannot move to each link's thread. This is the
//! way for services without a link on the visitor's.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use link::End;
use tokio::{
    io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf, copy_bidirectional_with_sizes, duplex},
    sync::Notify,
};

use super::RelayStream;

/// The end on the visitor's thread.
#[derive(Debug)]
pub(super) struct Bridge {
    pipe: DuplexStream,
    state: Arc<State>,
}

/// The end on the link's thread. Dropped without [`FarEnd::carry`], it is as if the link were lost.
#[derive(Debug)]
pub struct FarEnd {
    // Dropped first: the reason has to be there when the pipe is closed.
    ended: Ended,
    pipe: DuplexStream,
}

#[derive(Debug, Default)]
struct State {
    /// How the far side ended; set before its end of the pipe is closed.
    end: OnceLock<End>,
    /// The near side has finished sending.
    shut: AtomicBool,
    /// The near side is not there any more.
    gone: Notify,
}

pub(super) fn bridge() -> (Bridge, FarEnd) {
    let (near, far) = duplex(PIPE);
    let state = Arc::<State>::default();
    let near = Bridge {
        pipe: near,
        state: Arc::clone(&state),
    };
    let far = FarEnd {
        pipe: far,
        ended: Ended(state),
    };
    (near, far)
}

impl FarEnd {
    /// Carries bytes between the visitor's thread and `stream` until both directions have ended or one side has failed.
    pub async fn carry(self, mut stream: RelayStream) {
        let Self { mut pipe, ended } = self;
        let copied = {
            let copying = copy_bidirectional_with_sizes(&mut pipe, &mut stream, PIECE, PIECE);
            let mut copying = std::pin::pin!(copying);
            tokio::select! {
                copied = &mut copying => Some(copied),
                () = ended.0.gone.notified() => match ended.0.shut.load(SeqCst) {
                    // What it sent last is still on its way.
                    true => tokio::time::timeout(LINGER, copying).await.ok(),
                    false => None,
                },
            }
        };
        let end = match copied {
            Some(Ok(_)) => End::Finished,
            _ => stream.end().unwrap_or(End::Cancelled),
        };
        let _ = ended.0.end.set(end);
        if end != End::Finished {
            stream.abort();
        }
        // Closes its half of the pipe, now that the reason is there.
        drop(pipe);
    }
}

/// Says that the link was lost, if nothing else was said.
#[derive(Debug)]
struct Ended(Arc<State>);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.end.set(End::LinkLost);
    }
}

impl Bridge {
    pub(super) fn end(&self) -> Option<End> {
        self.state.end.get().copied()
    }

    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.pipe).poll_read(cx, buffer))?;
        let ended = buffer.filled().len() == before && buffer.remaining() > 0;
        match self.end() {
            // A half that was only finished has no reason.
            Some(end) if ended && end != End::Finished => {
                Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
            }
            _ => Poll::Ready(Ok(())),
        }
    }

    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.pipe).poll_write(cx, bytes)
    }

    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_flush(cx)
    }

    pub(super) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.state.shut.store(true, SeqCst);
        Pin::new(&mut self.pipe).poll_shutdown(cx)
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.state.gone.notify_one();
    }
}

/// What may be in the pipe, each way.
const PIPE: usize = 64 << 10;
/// Of the link's thread, for each direction while it copies.
const PIECE: usize = 16 << 10;
/// For what was sent before the near side went.
const LINGER: Duration = Duration::from_secs(10);

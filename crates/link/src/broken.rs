//! What becomes of a stream whose joined socket has failed.
//!
//! A service may answer and close while somebody still writes to it: the system then resets the connection, the next write fails, and the answer
//! waits in the socket to be read. So a failed write ends nothing: the socket is read until its end. And a reset that is carried at once would
//! overtake the last bytes on their way, at either end of the link and behind it: it follows [`LAST_WORDS`] after them. What the peer sends
//! meanwhile is given up, and its credit is not returned, so that it costs no more than the stream's window.

use std::{
    future::Future,
    io::ErrorKind,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::{Instant, Sleep, sleep_until};

/// How a joined socket failed, and when, in tenths of seconds since its link began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Broken {
    pub(crate) kind: ErrorKind,
    at: u32,
}

impl Broken {
    pub(crate) fn new(kind: ErrorKind, at: u32) -> Self {
        Self { kind, at }
    }

    /// Whether the end that is read behind this failure is one that the socket's peer has meant. A write that is told of a reset, or of a time-out,
    /// leaves the socket as if it had ended in order; one that is told of a closed pipe does so where the end came first.
    pub(crate) fn ends_in_order(&self) -> bool {
        matches!(self.kind, ErrorKind::BrokenPipe | ErrorKind::NotConnected)
    }

    /// Whether the last bytes, sent at `sent_at`, have had their time.
    pub(crate) fn has_passed(sent_at: u32, now: u32) -> bool {
        now.saturating_sub(sent_at) >= LAST_WORDS
    }

    /// Tenths until the stream is given up: since it failed, and since something was last sent.
    fn left(&self, sent_at: u32, now: u32) -> u32 {
        LAST_WORDS.saturating_sub(now.saturating_sub(self.at.max(sent_at)))
    }
}

/// The time that a broken stream has left; costs nothing before.
#[derive(Debug, Default)]
pub(crate) struct Countdown(Option<Pin<Box<Sleep>>>);

impl Countdown {
    /// Ready when the stream is to be given up. `now` and `sent_at` in tenths of seconds since the link began.
    pub(crate) fn poll(
        &mut self,
        broken: Broken,
        sent_at: u32,
        now: u32,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let left = broken.left(sent_at, now);
        if left == 0 {
            return Poll::Ready(());
        }
        let until = Instant::now() + Duration::from_millis(u64::from(left) * 100);
        let sleep = self.0.get_or_insert_with(|| Box::pin(sleep_until(until)));
        // What was sent since it was set is seen when it is over.
        while sleep.as_mut().poll(cx).is_ready() {
            sleep.as_mut().reset(until);
        }
        Poll::Pending
    }
}

/// Tenths of seconds. Long enough for a few round trips of nearly any path; streams that are cut in the middle are known to be so by this much
/// later.
const LAST_WORDS: u32 = 20;

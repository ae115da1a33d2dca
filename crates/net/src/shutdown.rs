//! A token that tells tasks to stop.
//!
//! One side calls [`Shutdown::trigger`]; every clone, on any thread, sees it through [`Shutdown::wait`]. What a task
//! does then (drain, close, give up after a time) is its own affair.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// A cloneable signal that is raised once and stays raised.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    raised: AtomicBool,
    waiting: Notify,
}

impl Shutdown {
    /// A token that has not been raised.
    pub fn new() -> Self {
        Self::default()
    }

    /// Raises the signal and wakes everyone who waits. Doing it again changes nothing.
    pub fn trigger(&self) {
        self.inner.raised.store(true, Ordering::Release);
        self.inner.waiting.notify_waiters();
    }

    /// Whether the signal has been raised.
    pub fn is_triggered(&self) -> bool {
        self.inner.raised.load(Ordering::Acquire)
    }

    /// Completes once the signal is raised; at once if it already was. Cancel safe.
    pub async fn wait(&self) {
        // Created before the flag is looked at: `notify_waiters` reaches every future that exists by then.
        let notified = self.inner.waiting.notified();
        if !self.is_triggered() {
            notified.await;
        }
    }
}

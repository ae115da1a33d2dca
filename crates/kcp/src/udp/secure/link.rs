//! What is behind a stream's lock: the session, who waits for it, and whether the stream is still held.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Waker,
};

use super::{Totals, kind::Secure};
use crate::{
    secure::{End, Session},
    udp::link::{Shared, wake},
};

/// What all streams of a socket share with its driver beside the sessions.
#[derive(Debug)]
pub(in crate::udp) struct Common {
    pub(super) totals: Arc<Totals>,
    /// Another process reads the socket.
    retired: AtomicBool,
}

impl Common {
    pub(super) fn new(totals: Arc<Totals>) -> Self {
        Self {
            totals,
            retired: AtomicBool::new(false),
        }
    }

    pub(super) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }
}

impl Shared<Secure> {
    /// The driver reads no more from the socket.
    pub(super) fn retire(&self) {
        self.common.retired.store(true, Ordering::Release);
        self.wake_driver();
    }
}

#[derive(Debug)]
pub(in crate::udp) struct State {
    pub(super) session: Session,
    /// The socket failed, or its task was stopped.
    pub(super) orphaned: bool,
    /// The stream is gone.
    pub(super) dropped: bool,
    pub(super) reader: Option<Waker>,
    pub(super) writer: Option<Waker>,
    pub(super) flusher: Option<Waker>,
}

impl State {
    pub(super) fn new(session: Session) -> Self {
        Self {
            session,
            orphaned: false,
            dropped: false,
            reader: None,
            writer: None,
            flusher: None,
        }
    }

    /// Why nothing more can happen, if so.
    pub(super) fn over(&self) -> Option<io::Error> {
        let (kind, text) = match self.session.end() {
            None if !self.orphaned => return None,
            None | Some(End::Finished | End::Abandoned) => {
                (io::ErrorKind::NotConnected, "the KCP session is closed")
            }
            Some(End::Reset) => (
                io::ErrorKind::ConnectionReset,
                "the peer ended the KCP session",
            ),
            Some(End::Dead) => (
                io::ErrorKind::TimedOut,
                "the peer of the KCP session does not answer",
            ),
            Some(End::Protocol) => (
                io::ErrorKind::InvalidData,
                "the peer of the KCP session broke the protocol",
            ),
            Some(End::Exhausted) => (
                io::ErrorKind::ConnectionAborted,
                "the keys of the KCP session are used up",
            ),
        };
        Some(io::Error::new(kind, text))
    }

    /// Wakes whoever can go on.
    pub(super) fn wake(&mut self) {
        let over = self.orphaned || self.session.end().is_some();
        let session = &self.session;
        wake(
            &mut self.reader,
            over || session.readable() > 0 || session.is_at_end(),
        );
        wake(&mut self.writer, over || session.has_room());
        wake(&mut self.flusher, over || session.is_flushed());
    }
}

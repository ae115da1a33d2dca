//! What is behind a session's lock: the pipeline, who waits for it, and how it ended.

use std::{io, task::Waker};

use super::rate::Rate;
use crate::{Pipeline, udp::link::wake};

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The peer has not answered.
    Dead,
    /// The peer started another session from the same address.
    Replaced,
    /// The socket failed, or its task was stopped.
    Socket,
}

impl From<End> for io::Error {
    fn from(end: End) -> Self {
        match end {
            End::Dead => Self::new(
                io::ErrorKind::TimedOut,
                "the peer of the KCP session does not answer",
            ),
            End::Replaced => Self::new(
                io::ErrorKind::ConnectionReset,
                "the peer started another KCP session",
            ),
            End::Socket => Self::new(
                io::ErrorKind::NotConnected,
                "the UDP socket of the KCP session is closed",
            ),
        }
    }
}

#[derive(Debug)]
pub(in crate::udp) struct State {
    pub(super) pipeline: Pipeline,
    pub(super) rate: Option<Rate>,
    pub(super) end: Option<End>,
    /// The application has said that it will not write any more.
    pub(super) shut: bool,
    /// The handle is gone.
    pub(super) dropped: bool,
    pub(super) reader: Option<Waker>,
    pub(super) writer: Option<Waker>,
    pub(super) flusher: Option<Waker>,
    pub(super) oob_reader: Option<Waker>,
}

impl State {
    pub(super) fn new(pipeline: Pipeline, rate: Option<Rate>) -> Self {
        Self {
            pipeline,
            rate,
            end: None,
            shut: false,
            dropped: false,
            reader: None,
            writer: None,
            flusher: None,
            oob_reader: None,
        }
    }

    /// Wakes whoever can go on.
    pub(super) fn wake(&mut self) {
        let ended = self.end.is_some();
        let pipeline = &self.pipeline;
        wake(&mut self.reader, ended || pipeline.readable() > 0);
        wake(&mut self.writer, ended || pipeline.has_room());
        wake(&mut self.flusher, ended || pipeline.is_flushed());
        wake(&mut self.oob_reader, ended || pipeline.has_oob());
    }

    pub(super) fn finish(&mut self, end: End) {
        self.end.get_or_insert(end);
        self.wake();
    }
}

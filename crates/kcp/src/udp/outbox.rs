//! What a socket's sessions have to say in one turn: datagrams one behind the other, and where they go.
//!
//! A session writes into [`Outbox::space`] and names each datagram with [`Outbox::push`]; those of one size to one address make a
//! [`Run`], which is one segmented send. Runs stay in order, so that no session's datagrams overtake one another here.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    ops::Range,
    task::{Context, Poll},
};

use super::socket::Socket;
use crate::MTU_MAX;

/// Bytes that gather before they are sent: little enough to stay in the cache, enough for one segmented send of the largest size.
const BYTES: usize = 64 << 10;
/// Most bytes of one run: below the largest UDP payload with any header.
const RUN_BYTES: usize = 60_000;

/// Datagrams of one size to one address, except that the last may be smaller.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) to: SocketAddr,
    pub(super) bytes: Range<usize>,
    /// Bytes of each datagram but the last.
    pub(super) size: usize,
    /// Datagrams that may still join.
    room: usize,
}

impl Run {
    /// Whether it is one datagram.
    pub(super) fn is_single(&self) -> bool {
        self.bytes.len() <= self.size
    }
}

/// A turn's datagrams. Empty between turns.
#[derive(Debug)]
pub(super) struct Outbox {
    buffer: Vec<u8>,
    used: usize,
    runs: Vec<Run>,
    /// Datagrams per run.
    most: usize,
}

impl Outbox {
    pub(super) fn new() -> Self {
        Self {
            buffer: vec![0; BYTES],
            used: 0,
            runs: Vec::new(),
            most: 1,
        }
    }

    /// Another session begins: what it puts in joins no earlier run. Runs take `most` datagrams. Returns where its runs begin, for
    /// [`Self::seal`].
    pub(super) fn begin(&mut self, most: usize) -> usize {
        self.most = most;
        if let Some(run) = self.runs.last_mut() {
            run.room = 0;
        }
        self.runs.len()
    }

    /// Where the next datagram may be written: [`MTU_MAX`] bytes at least. `None`: all must be sent first.
    pub(super) fn space(&mut self) -> Option<&mut [u8]> {
        self.buffer
            .get_mut(self.used..)
            .filter(|space| space.len() >= MTU_MAX)
    }

    /// Takes the first `length` bytes of [`Self::space`] as a datagram.
    pub(super) fn push(&mut self, to: SocketAddr, length: usize) {
        let start = self.used;
        self.used = (start + length).min(self.buffer.len());
        if let Some(run) = self.runs.last_mut()
            && run.room > 0
            && run.to == to
            && length <= run.size
            && run.bytes.len() + length <= RUN_BYTES
        {
            run.bytes.end = self.used;
            run.room = if length < run.size { 0 } else { run.room - 1 };
            return;
        }
        self.runs.push(Run {
            to,
            bytes: start..self.used,
            size: length,
            room: self.most.saturating_sub(1),
        });
    }

    /// Gives the datagrams of the runs from `begin` on to `seal`, run by run, with their size.
    pub(super) fn seal(&mut self, begin: usize, mut seal: impl FnMut(&mut [u8], usize)) {
        for run in self.runs.get(begin..).unwrap_or_default() {
            seal(&mut self.buffer[run.bytes.clone()], run.size);
        }
    }

    /// Sends as much as the socket takes. What is left is for [`Self::keep`].
    pub(super) fn send(&mut self, cx: &mut Context<'_>, socket: &Socket) {
        let mut done = 0;
        while done < self.runs.len() {
            match socket.poll_send_runs(cx, &self.buffer, &self.runs[done..]) {
                Poll::Ready(count) => done += count.max(1),
                Poll::Pending => break,
            }
        }
        self.runs.drain(..done.min(self.runs.len()));
    }

    /// Moves what is left to `blocked`.
    pub(super) fn keep(&mut self, blocked: &mut VecDeque<(SocketAddr, Vec<u8>, usize)>) {
        for run in self.runs.drain(..) {
            blocked.push_back((run.to, self.buffer[run.bytes].to_vec(), run.size));
        }
        self.used = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> SocketAddr {
        ([127, 0, 0, 1], port).into()
    }

    fn runs(out: &Outbox) -> Vec<(u16, Range<usize>, usize)> {
        let run = |run: &Run| (run.to.port(), run.bytes.clone(), run.size);
        out.runs.iter().map(run).collect()
    }

    #[test]
    fn a_run_ends_with_a_smaller_datagram_a_larger_one_or_another_address() {
        let mut out = Outbox::new();
        assert_eq!(out.begin(64), 0);
        for (port, length) in [(1, 100), (1, 100), (1, 40), (1, 40), (1, 50), (2, 50)] {
            out.push(address(port), length);
        }
        let expected = [
            (1, 0..240, 100),
            (1, 240..280, 40),
            (1, 280..330, 50),
            (2, 330..380, 50),
        ];
        assert_eq!(runs(&out), expected);
    }

    #[test]
    fn another_session_begins_another_run_and_seals_no_other() {
        let mut out = Outbox::new();
        out.begin(64);
        out.push(address(1), 10);
        let begin = out.begin(64);
        out.push(address(1), 10);
        out.push(address(1), 10);
        let mut sealed = Vec::new();
        out.seal(begin, |bytes, size| sealed.push((bytes.len(), size)));
        assert_eq!(sealed, [(20, 10)]);
    }

    #[test]
    fn a_run_takes_no_more_datagrams_than_the_system_segments() {
        let mut out = Outbox::new();
        out.begin(2);
        for _ in 0..5 {
            out.push(address(1), 10);
        }
        let expected = [(1, 0..20, 10), (1, 20..40, 10), (1, 40..50, 10)];
        assert_eq!(runs(&out), expected);
    }

    #[test]
    fn what_is_kept_is_whole_and_leaves_an_empty_box() {
        let mut out = Outbox::new();
        out.begin(64);
        while out.space().is_some() {
            out.push(address(1), MTU_MAX);
        }
        let used = out.used;
        let mut blocked = VecDeque::new();
        out.keep(&mut blocked);
        let kept: usize = blocked.iter().map(|(_, bytes, _)| bytes.len()).sum();
        assert_eq!(kept, used);
        assert!(blocked.iter().all(|(_, bytes, _)| bytes.len() <= RUN_BYTES));
        assert!(out.runs.is_empty() && out.space().is_some_and(|space| space.len() == BYTES));
    }
}

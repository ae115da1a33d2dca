//! The receiving half: segments in any order become bytes (or messages) in order.
//!
//! A segment that comes in turn is copied straight into `ready`; one that comes early waits in a ring indexed by its
//! distance from the next number. At most a window of segments is unread and another window early.

use std::collections::VecDeque;

use super::segment::Sn;

/// What became of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// It is new; `early` when others before it are missing.
    New { early: bool },
    /// It was here already.
    Repeat,
    /// Beyond the window; not to be acknowledged.
    Beyond,
}

#[derive(Debug)]
struct Early {
    fragment: u8,
    data: Box<[u8]>,
}

/// In-order data and what came too early.
#[derive(Debug)]
pub(super) struct Receiver {
    next: Sn,
    window: u32,
    /// Bytes in order, unread.
    ready: VecDeque<u8>,
    /// The segments those bytes came in: unread length, and fragments that follow.
    segments: VecDeque<(u16, u8)>,
    /// Slot `i` is segment `next + i`.
    early: VecDeque<Option<Early>>,
    tell: bool,
}

/// Buffers up to this size stay with an idle session.
const KEEP: usize = 4096;

impl Receiver {
    pub(super) fn new(window: u32) -> Self {
        Self {
            next: Sn(0),
            window,
            ready: VecDeque::new(),
            segments: VecDeque::new(),
            early: VecDeque::new(),
            tell: false,
        }
    }

    /// The next number that is missing: what `una` tells the peer.
    pub(super) fn next(&self) -> Sn {
        self.next
    }

    /// Segments that can still be taken: what the window field tells the peer.
    pub(super) fn unused(&self) -> u16 {
        let unused = self.window.saturating_sub(self.segments.len() as u32);
        u16::try_from(unused).unwrap_or(u16::MAX)
    }

    pub(super) fn set_window(&mut self, window: u32) {
        self.window = window;
        self.advance();
    }

    /// Whether the window was full and has opened since: the peer should be told. Clears the wish.
    pub(super) fn take_tell(&mut self) -> bool {
        std::mem::take(&mut self.tell)
    }

    pub(super) fn wants_tell(&self) -> bool {
        self.tell
    }

    /// The peer asked for the window.
    pub(super) fn ask_tell(&mut self) {
        self.tell = true;
    }

    pub(super) fn insert(&mut self, sn: Sn, fragment: u8, data: &[u8]) -> Arrival {
        let ahead = sn.since(self.next);
        if ahead < 0 {
            return Arrival::Repeat;
        }
        if i64::from(ahead) >= i64::from(self.window) || data.len() > usize::from(u16::MAX) {
            return Arrival::Beyond;
        }
        let ahead = ahead as usize;
        if ahead == 0 && !self.full() {
            // Slot 0 is empty whenever there is room: what was in turn has been moved.
            self.early.pop_front();
            self.append(fragment, data);
            self.advance();
            return Arrival::New { early: false };
        }
        if self.early.len() <= ahead {
            self.early.resize_with(ahead + 1, || None);
        }
        if self.early[ahead].is_some() {
            return Arrival::Repeat;
        }
        self.early[ahead] = Some(Early {
            fragment,
            data: data.into(),
        });
        Arrival::New { early: true }
    }

    /// Copies bytes into `out`, over segment bounds. Returns how many.
    pub(super) fn read(&mut self, out: &mut [u8]) -> usize {
        let count = out.len().min(self.ready.len());
        copy_out(&self.ready, 0, &mut out[..count]);
        self.consume(count);
        count
    }

    /// Bytes that [`Self::read`] would give.
    pub(super) fn readable(&self) -> usize {
        self.ready.len()
    }

    /// Segments received in order and not read.
    pub(super) fn queued(&self) -> usize {
        self.segments.len()
    }

    /// The length of the first message if all its fragments are here.
    pub(super) fn message(&self) -> Option<usize> {
        let mut length = 0;
        for &(bytes, fragment) in &self.segments {
            length += usize::from(bytes);
            if fragment == 0 {
                return Some(length);
            }
        }
        None
    }

    /// Whether the first message fills the window without being complete: it can never be.
    pub(super) fn stuck(&self) -> bool {
        self.full() && self.message().is_none()
    }

    /// Marks `count` bytes (at most [`Self::readable`]) as read and makes room.
    fn consume(&mut self, count: usize) {
        let was_full = self.full();
        self.ready.drain(..count);
        let mut left = count;
        while let Some((bytes, _)) = self.segments.front_mut() {
            if usize::from(*bytes) > left {
                *bytes -= left as u16;
                break;
            }
            left -= usize::from(*bytes);
            self.segments.pop_front();
        }
        self.advance();
        if was_full && !self.full() {
            self.tell = true;
        }
        if self.ready.is_empty() && self.ready.capacity() > KEEP {
            self.ready = VecDeque::new();
            self.segments = VecDeque::new();
        }
    }

    fn full(&self) -> bool {
        self.segments.len() as u32 >= self.window
    }

    fn append(&mut self, fragment: u8, data: &[u8]) {
        self.next = self.next.plus(1);
        // An empty segment that ends nothing would hold a place of the window that no read ever frees.
        let continues = self
            .segments
            .back()
            .is_some_and(|&(_, fragment)| fragment > 0);
        if data.is_empty() && (fragment > 0 || !continues) {
            return;
        }
        self.ready.extend(data);
        self.segments.push_back((data.len() as u16, fragment));
    }

    /// Moves early segments whose turn has come.
    fn advance(&mut self) {
        while !self.full() && matches!(self.early.front(), Some(Some(_))) {
            if let Some(Some(segment)) = self.early.pop_front() {
                self.append(segment.fragment, &segment.data);
            }
        }
        if self.early.is_empty() && self.early.capacity() > 64 {
            self.early = VecDeque::new();
        }
    }
}

/// Copies `out.len()` bytes from position `at` of a ring, which must hold them.
pub(super) fn copy_out(ring: &VecDeque<u8>, at: usize, out: &mut [u8]) {
    let (front, back) = ring.as_slices();
    let from_front = front.len().saturating_sub(at).min(out.len());
    if from_front > 0 {
        out[..from_front].copy_from_slice(&front[at..at + from_front]);
    }
    let rest = &mut out[from_front..];
    let at = (at + from_front) - front.len().min(at + from_front);
    rest.copy_from_slice(&back[at..at + rest.len()]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(receiver: &mut Receiver) -> Vec<u8> {
        let mut out = vec![0; receiver.readable()];
        receiver.read(&mut out);
        out
    }

    #[test]
    fn segments_in_any_order_read_in_order() {
        let mut receiver = Receiver::new(8);
        assert_eq!(
            receiver.insert(Sn(2), 0, b"c"),
            Arrival::New { early: true }
        );
        assert_eq!(receiver.insert(Sn(2), 0, b"c"), Arrival::Repeat);
        assert_eq!(
            receiver.insert(Sn(0), 0, b"a"),
            Arrival::New { early: false }
        );
        assert_eq!(receiver.insert(Sn(0), 0, b"a"), Arrival::Repeat);
        assert_eq!(read_all(&mut receiver), b"a");
        assert_eq!(
            receiver.insert(Sn(1), 0, b"b"),
            Arrival::New { early: false }
        );
        assert_eq!(read_all(&mut receiver), b"bc");
        assert_eq!(receiver.next(), Sn(3));
    }

    #[test]
    fn a_full_window_takes_no_more_and_tells_when_it_opens() {
        let mut receiver = Receiver::new(2);
        for sn in 0..4 {
            assert_ne!(
                receiver.insert(Sn(sn), 0, &[sn as u8]),
                Arrival::Beyond,
                "{sn}"
            );
        }
        assert_eq!(receiver.insert(Sn(4), 0, b"x"), Arrival::Beyond);
        assert_eq!(receiver.unused(), 0);
        assert_eq!(receiver.next(), Sn(2));
        assert_eq!(receiver.read(&mut [0; 1]), 1);
        assert_eq!(
            receiver.next(),
            Sn(3),
            "an early segment took the free place"
        );
        assert_eq!(receiver.read(&mut [0; 2]), 2);
        assert!(receiver.take_tell());
        assert_eq!(receiver.next(), Sn(4));
    }

    #[test]
    fn a_message_is_whole_when_its_last_fragment_came() {
        let mut receiver = Receiver::new(8);
        receiver.insert(Sn(0), 1, b"ab");
        assert_eq!(receiver.message(), None);
        receiver.insert(Sn(1), 0, b"c");
        receiver.insert(Sn(2), 0, b"d");
        assert_eq!(receiver.message(), Some(3));
    }

    #[test]
    fn empty_segments_do_not_fill_the_window() {
        let mut receiver = Receiver::new(2);
        for sn in 0..10 {
            assert_eq!(
                receiver.insert(Sn(sn), 0, b""),
                Arrival::New { early: false }
            );
        }
        assert_eq!(receiver.unused(), 2);
    }
}

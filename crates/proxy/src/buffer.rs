//! Buffers that are lent for as long as they hold bytes: a connection that waits owns none, and a busy one allocates none.

use std::{
    cell::RefCell,
    io,
    ops::Range,
    task::{Context, Poll, ready},
};

use crate::conn::Conn;

/// Bytes read and not yet used up. Grows up to what the caller allows; goes back to the thread's store when empty.
#[derive(Debug, Default)]
pub(crate) struct Input {
    /// Initialised throughout. Empty means that none is lent.
    room: Vec<u8>,
    start: usize,
    end: usize,
    /// Somebody has been told to wait until something is there.
    waited_for: bool,
    /// Much came at once the last time: a body, and more of it is there.
    flows: bool,
    /// `room` is one of the few large ones.
    bulk: bool,
}

impl Input {
    /// What is there to be used.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.room[self.start..self.end]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The bytes at a range counted from the first unused one.
    pub(crate) fn slice(&self, range: Range<usize>) -> &[u8] {
        &self.bytes()[range]
    }

    pub(crate) fn consume(&mut self, n: usize) {
        self.start += n;
        debug_assert!(self.start <= self.end, "more was used than is there");
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
    }

    /// Puts bytes that were read elsewhere in front; only for an input that is empty.
    pub(crate) fn fill(&mut self, bytes: &[u8]) {
        debug_assert!(self.is_empty(), "bytes would overtake others");
        self.lend(bytes.len());
        self.room[..bytes.len()].copy_from_slice(bytes);
        self.start = 0;
        self.end = bytes.len();
    }

    /// Gives the buffer back if nothing is in it.
    pub(crate) fn rest(&mut self) {
        if self.is_empty() {
            self.return_room();
        }
    }

    fn return_room(&mut self) {
        let room = std::mem::take(&mut self.room);
        if std::mem::take(&mut self.bulk) {
            give_back_bulk(room);
        } else if !room.is_empty() {
            give_back(room);
        }
    }

    /// One read from `conn` behind what is there. 0 bytes: the peer has ended its direction. `ceiling`: how many unused bytes may be held;
    /// the caller has made sure that there are fewer.
    pub(crate) fn poll_fill(
        &mut self,
        conn: &mut Conn,
        ceiling: usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        // Who has read all that there was asks first: there is nothing yet, as a rule, and a buffer would be lent in vain. Who was woken reads.
        if self.room.is_empty() && !std::mem::replace(&mut self.waited_for, true) {
            ready!(conn.poll_readable(cx))?;
        }
        if self.flows && !self.bulk && self.is_empty() {
            self.widen();
        }
        self.lend(ceiling.min(BUFFER));
        if self.end == self.room.len() {
            self.make_room(ceiling);
        }
        let read = conn.poll_receive(cx, &mut self.room[self.end..]);
        match &read {
            Poll::Ready(Ok(n)) => {
                self.end += n;
                self.waited_for = false;
                self.flows = *n >= BUFFER;
            }
            Poll::Ready(Err(_)) => {}
            Poll::Pending => self.rest(),
        }
        read
    }

    fn lend(&mut self, least: usize) {
        if self.room.is_empty() {
            self.room = borrow();
        }
        if self.room.len() < least {
            self.room.resize(least, 0);
        }
    }

    /// Takes a large buffer, if there is one.
    fn widen(&mut self) {
        if let Some(bulk) = borrow_bulk() {
            self.return_room();
            self.room = bulk;
            self.bulk = true;
        }
    }

    fn make_room(&mut self, ceiling: usize) {
        if self.start > 0 {
            self.room.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        } else {
            let larger = (self.room.len() * 2).min(ceiling.max(self.room.len() + 1));
            self.room.resize(larger, 0);
        }
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        self.return_room();
    }
}

/// Bytes made here that wait to be written.
#[derive(Debug, Default)]
pub(crate) struct Output {
    bytes: Vec<u8>,
    written: usize,
}

impl Output {
    pub(crate) fn is_empty(&self) -> bool {
        self.written == self.bytes.len()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[self.written..]
    }

    /// The place to append to.
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        if self.bytes.capacity() == 0 {
            self.bytes = OUTPUTS
                .with_borrow_mut(Vec::pop)
                .unwrap_or_else(|| Vec::with_capacity(BUFFER));
        }
        &mut self.bytes
    }

    pub(crate) fn advance(&mut self, n: usize) {
        self.written += n;
        debug_assert!(
            self.written <= self.bytes.len(),
            "more was written than is there"
        );
        if self.is_empty() {
            self.written = 0;
            self.bytes.clear();
        }
    }

    /// Gives the buffer back if nothing waits in it.
    pub(crate) fn rest(&mut self) {
        if self.is_empty() && self.bytes.capacity() > 0 {
            self.written = 0;
            give_back_output(std::mem::take(&mut self.bytes));
        }
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if self.bytes.capacity() > 0 {
            give_back_output(std::mem::take(&mut self.bytes));
        }
    }
}

thread_local! {
    /// Initialised throughout, for reading into.
    static STORE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
    /// Empty, for appending to. A store of their own: to make them fit for reading again would mean to write all of them once per request.
    static OUTPUTS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
    /// Large ones that are not lent, and how many may still be lent.
    static BULKS: RefCell<(Vec<Vec<u8>>, usize)> = const { RefCell::new((Vec::new(), MOST_BULKS)) };
}

fn borrow() -> Vec<u8> {
    STORE
        .with_borrow_mut(Vec::pop)
        .unwrap_or_else(|| vec![0; BUFFER])
}

fn give_back(mut buffer: Vec<u8>) {
    if buffer.len() != BUFFER {
        // One that had to grow is not kept: otherwise a few large heads would pin the memory of all.
        if buffer.capacity() > BUFFER * 2 {
            return;
        }
        buffer.resize(BUFFER, 0);
    }
    STORE.with_borrow_mut(|store| {
        if store.len() < KEPT {
            store.push(buffer);
        }
    });
}

fn borrow_bulk() -> Option<Vec<u8>> {
    BULKS.with_borrow_mut(|(store, left)| {
        *left = left.checked_sub(1)?;
        Some(store.pop().unwrap_or_else(|| vec![0; BULK]))
    })
}

fn give_back_bulk(buffer: Vec<u8>) {
    BULKS.with_borrow_mut(|(store, left)| {
        *left += 1;
        if buffer.len() == BULK && store.len() < KEPT_BULKS {
            store.push(buffer);
        }
    });
}

fn give_back_output(mut buffer: Vec<u8>) {
    if buffer.capacity() > BUFFER * 2 {
        return;
    }
    buffer.clear();
    OUTPUTS.with_borrow_mut(|store| {
        if store.len() < KEPT {
            store.push(buffer);
        }
    });
}

/// Two full TLS records, or many requests.
pub(crate) const BUFFER: usize = 32 << 10;
/// For a body of which more is there than that: each pair of a receive and a send costs as much as it costs to move some ten KiB.
const BULK: usize = 256 << 10;
/// So many of them a thread lends at once; who comes later has to do with the usual ones, so that many slow visitors of large bodies hold little.
const MOST_BULKS: usize = 32;
/// So many it keeps when they are not lent.
const KEPT_BULKS: usize = 4;
/// Buffers a thread keeps when they are not lent.
const KEPT: usize = 64;

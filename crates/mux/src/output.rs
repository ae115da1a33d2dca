//! The bytes that wait for the transport, in one buffer that stays initialised, so that a stream's bytes can be read from a
//! socket straight into their place behind a frame header. Headers have 8 bytes, in gt's framing and in smux alike.

use crate::frame::HEADER;

#[derive(Debug, Default)]
pub(crate) struct Output {
    /// Initialised throughout; grown by zeroing once, never per use.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes the transport has ever taken.
    taken: u64,
}

impl Output {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    pub(crate) fn len(&self) -> usize {
        self.end - self.start
    }

    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    pub(crate) fn advance(&mut self, n: usize) {
        let n = n.min(self.len());
        self.taken = self.taken.wrapping_add(n as u64);
        self.start += n;
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
    }

    /// Gives the memory back if nothing waits.
    pub(crate) fn release(&mut self) {
        if self.len() == 0 {
            self.start = 0;
            self.end = 0;
            self.buffer = Vec::new();
        }
    }

    pub(crate) fn push(&mut self, header: impl Into<[u8; HEADER]>, parts: &[&[u8]]) {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        self.make_room(HEADER + length);
        self.append(&header.into());
        for part in parts {
            self.append(part);
        }
    }

    /// Lets `fill` write up to `limit` payload bytes behind a place for a header, then writes the header that `seal` makes of
    /// their number. Nothing is appended if `fill` fails or writes nothing.
    pub(crate) fn push_with<E, H: Into<[u8; HEADER]>>(
        &mut self,
        limit: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
        seal: impl FnOnce(u16) -> H,
    ) -> Result<usize, E> {
        self.make_room(HEADER + limit);
        let payload = self.end + HEADER;
        let written = fill(&mut self.buffer[payload..payload + limit])?.min(limit);
        if written > 0 {
            let header = seal(u16::try_from(written).unwrap_or(u16::MAX));
            self.buffer[self.end..payload].copy_from_slice(&header.into());
            self.end = payload + written;
        }
        Ok(written)
    }

    fn append(&mut self, bytes: &[u8]) {
        self.buffer[self.end..self.end + bytes.len()].copy_from_slice(bytes);
        self.end += bytes.len();
    }

    fn make_room(&mut self, n: usize) {
        if self.end + n <= self.buffer.len() {
            return;
        }
        // Only where at most as much is moved as was written out since the last move: a transport that takes a few bytes at a
        // time must not cost a move of everything each time.
        if self.start >= self.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let needed = self.end + n;
        if needed > self.buffer.len() {
            self.buffer
                .resize(needed.max(MINIMUM).next_power_of_two(), 0);
        }
    }
}

/// Room for the small frames of many streams in one turn.
const MINIMUM: usize = 16 << 10;

//! The sending half's memory: bytes that the application gave, cut into segments only when they go out.
//!
//! All bytes, sent or not, lie in one ring until the peer has them. A segment in flight is a position and a length in it.
//! In-flight segments lie in a ring indexed by `sn − una`, so that an acknowledgement finds its segment in one step.

use std::collections::VecDeque;

use super::{
    pace::Stamp,
    recv::copy_out,
    segment::{HEADER, Sn},
};
use crate::{SendError, Time};

/// Most segments of one message: its fragment field is a byte.
const MAX_FRAGMENTS: usize = 255;
/// A buffer up to this size stays with an idle session.
const KEEP: usize = 4096;

/// Why a segment goes out again. The names follow kcp-go's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// Enough segments sent later have arrived.
    Fast,
    /// One segment sent later has arrived, nothing else is to be sent, and the reordering time has passed.
    Early,
    /// Nothing was heard for the retransmission timeout.
    Timeout,
}

/// Where a segment in flight stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// On its way, as far as we know.
    Sent,
    /// Waits to be sent again.
    Lost(Loss),
    /// The peer has it; kept only until all before it are acknowledged.
    Acked,
}

/// A segment between its first sending and `una`.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    /// Position of its bytes in the stream of all bytes ever written.
    start: u64,
    pub(super) length: u16,
    pub(super) fragment: u8,
    pub(super) standing: Standing,
    /// Times it was sent.
    pub(super) sends: u32,
    /// How many segments the peer had sent when this one was sent last; how often it was sent since, and since when.
    pub(super) heard: u64,
    pub(super) silent_sends: u32,
    pub(super) silent_since: Time,
    /// Timeouts in a row: how far its timeout is backed off.
    pub(super) backoff: u32,
    /// Number of its last transmission among all transmissions of the session.
    pub(super) order: u64,
    pub(super) sent: Time,
    /// When it went out once more since, in another's datagram.
    pub(super) copied: Option<Time>,
    /// What the pacer knew then.
    pub(super) stamp: Stamp,
}

impl Flight {
    /// Its bytes in a datagram.
    pub(super) fn wire(&self) -> u64 {
        (HEADER + usize::from(self.length)) as u64
    }
}

/// Bytes not yet cut into segments: one message, or a run of stream bytes.
#[derive(Debug)]
struct Chunk {
    left: usize,
    mss: usize,
    /// Whether segments count down the fragments left.
    numbered: bool,
}

impl Chunk {
    fn segments(&self) -> usize {
        self.left.div_ceil(self.mss)
    }
}

/// Unsent and unacknowledged data.
#[derive(Debug)]
pub(super) struct SendBuffer {
    bytes: VecDeque<u8>,
    /// Position of `bytes[0]`.
    base: u64,
    /// Position of the first unsent byte.
    unsent: u64,
    chunks: VecDeque<Chunk>,
    /// Segments that the chunks will make.
    waiting: usize,
    flights: VecDeque<Flight>,
    una: Sn,
}

impl SendBuffer {
    pub(super) fn new() -> Self {
        Self {
            bytes: VecDeque::new(),
            base: 0,
            unsent: 0,
            chunks: VecDeque::new(),
            waiting: 0,
            flights: VecDeque::new(),
            una: Sn(0),
        }
    }

    /// The oldest number not acknowledged.
    pub(super) fn una(&self) -> Sn {
        self.una
    }

    /// The next number to be given.
    pub(super) fn next(&self) -> Sn {
        self.una.plus(self.flights.len() as u32)
    }

    /// Segments between `una` and `next`, acknowledged or not.
    pub(super) fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// Segments in flight and still to be cut.
    pub(super) fn segments(&self) -> usize {
        self.flights.len() + self.waiting
    }

    pub(super) fn has_unsent(&self) -> bool {
        self.waiting > 0
    }

    /// Appends stream bytes, as many as keep [`Self::segments`] within `limit`. With `merge` they fill up the segment
    /// that the previous write left short. Returns how many were taken.
    pub(super) fn write(&mut self, data: &[u8], mss: usize, limit: usize, merge: bool) -> usize {
        let room = limit.saturating_sub(self.segments());
        let tail = self
            .chunks
            .back_mut()
            .filter(|chunk| merge && !chunk.numbered && chunk.mss == mss);
        let slack = tail
            .as_ref()
            .map_or(0, |chunk| chunk.segments() * mss - chunk.left);
        let take = data
            .len()
            .min(room.saturating_mul(mss).saturating_add(slack));
        if take == 0 {
            return 0;
        }
        match tail {
            Some(chunk) => {
                self.waiting -= chunk.segments();
                chunk.left += take;
                self.waiting += chunk.segments();
            }
            None => self.push_chunk(Chunk {
                left: take,
                mss,
                numbered: false,
            }),
        }
        self.bytes.extend(&data[..take]);
        take
    }

    /// Appends a message whole, or not at all.
    pub(super) fn write_message(
        &mut self,
        data: &[u8],
        mss: usize,
        limit: usize,
    ) -> Result<(), SendError> {
        let chunk = Chunk {
            left: data.len(),
            mss,
            numbered: true,
        };
        if data.is_empty() || chunk.segments() > MAX_FRAGMENTS.min(limit) {
            return Err(SendError::Size);
        }
        if self.segments() + chunk.segments() > limit {
            return Err(SendError::Full);
        }
        self.push_chunk(chunk);
        self.bytes.extend(data);
        Ok(())
    }

    fn push_chunk(&mut self, chunk: Chunk) {
        self.waiting += chunk.segments();
        self.chunks.push_back(chunk);
    }

    /// The bytes that the next new segment takes in a datagram, header included.
    pub(super) fn peek_new(&self) -> Option<usize> {
        self.chunks
            .front()
            .map(|chunk| HEADER + chunk.left.min(chunk.mss))
    }

    /// Cuts the next new segment and gives its number.
    pub(super) fn cut(&mut self) -> Option<Sn> {
        let chunk = self.chunks.front_mut()?;
        let length = chunk.left.min(chunk.mss);
        let segments = chunk.segments();
        let fragment = if chunk.numbered { segments - 1 } else { 0 };
        chunk.left -= length;
        if chunk.left == 0 {
            self.chunks.pop_front();
        }
        self.waiting -= 1;
        let sn = self.next();
        self.flights.push_back(Flight {
            start: self.unsent,
            length: length as u16,
            fragment: fragment as u8,
            standing: Standing::Sent,
            sends: 0,
            heard: 0,
            silent_sends: 0,
            silent_since: Time::ZERO,
            backoff: 0,
            order: 0,
            sent: Time::ZERO,
            copied: None,
            stamp: Stamp::default(),
        });
        self.unsent += length as u64;
        Some(sn)
    }

    /// The segment `sn`, if it is between `una` and `next`.
    pub(super) fn flight(&self, sn: Sn) -> Option<&Flight> {
        let at = usize::try_from(sn.since(self.una)).ok()?;
        self.flights.get(at)
    }

    /// As [`Self::flight`], to change it.
    pub(super) fn flight_mut(&mut self, sn: Sn) -> Option<&mut Flight> {
        let at = usize::try_from(sn.since(self.una)).ok()?;
        self.flights.get_mut(at)
    }

    /// Bytes of datagrams that are on their way, as far as we know.
    pub(super) fn outstanding(&self) -> u64 {
        let out = self
            .flights
            .iter()
            .filter(|flight| flight.standing == Standing::Sent);
        out.map(Flight::wire).sum()
    }

    /// Whether the transmission `order` of `sn` is on its way: neither acknowledged, nor lost, nor followed by another.
    pub(super) fn is_out(&self, order: u64, sn: Sn) -> bool {
        self.flight(sn)
            .is_some_and(|flight| flight.order == order && flight.standing == Standing::Sent)
    }

    /// Copies the payload of a segment in flight into `out`, which has its length.
    pub(super) fn copy(&self, sn: Sn, out: &mut [u8]) {
        if let Some(flight) = self.flight(sn) {
            copy_out(&self.bytes, (flight.start - self.base) as usize, out);
        }
    }

    /// Forgets the oldest segment: the peer has it.
    pub(super) fn pop(&mut self) -> Option<Flight> {
        let flight = self.flights.pop_front()?;
        self.una = self.una.plus(1);
        Some(flight)
    }

    /// Gives back the bytes of all segments that [`Self::pop`] gave.
    pub(super) fn release(&mut self) {
        let keep_from = self
            .flights
            .front()
            .map_or(self.unsent, |flight| flight.start);
        self.bytes.drain(..(keep_from - self.base) as usize);
        self.base = keep_from;
        if self.bytes.is_empty() && self.bytes.capacity() > KEEP {
            self.bytes = VecDeque::new();
            self.flights = VecDeque::new();
            self.chunks = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_stream_writes_share_a_segment() {
        let mut buffer = SendBuffer::new();
        assert_eq!(buffer.write(b"abc", 4, 10, true), 3);
        assert_eq!(buffer.write(b"def", 4, 10, true), 3);
        assert_eq!(buffer.segments(), 2);
        let sn = buffer.cut().expect("a segment");
        let mut out = [0; 4];
        buffer.copy(sn, &mut out);
        assert_eq!(&out, b"abcd");
    }

    #[test]
    fn writes_stop_at_the_limit_of_segments() {
        let mut buffer = SendBuffer::new();
        assert_eq!(buffer.write(&[0; 100], 10, 3, true), 30);
        assert_eq!(buffer.write(&[0; 100], 10, 3, true), 0);
        assert_eq!(buffer.write(&[0; 100], 10, 4, false), 10);
    }

    #[test]
    fn a_message_counts_its_fragments_down() {
        let mut buffer = SendBuffer::new();
        buffer.write_message(&[7; 25], 10, 10).expect("room");
        let fragments: Vec<_> = std::iter::from_fn(|| {
            buffer
                .cut()
                .and_then(|sn| buffer.flight(sn).map(|f| (f.fragment, f.length)))
        })
        .collect();
        assert_eq!(fragments, [(2, 10), (1, 10), (0, 5)]);
        assert_eq!(buffer.write_message(&[0; 100], 10, 8), Err(SendError::Size));
        assert_eq!(buffer.write_message(&[0; 80], 10, 10), Err(SendError::Full));
    }

    #[test]
    fn bytes_are_given_back_when_una_passes_them() {
        let mut buffer = SendBuffer::new();
        buffer.write(&[1; 30], 10, 10, true);
        for _ in 0..3 {
            buffer.cut();
        }
        buffer.pop();
        buffer.release();
        assert_eq!(buffer.bytes.len(), 20);
        let mut out = [0; 10];
        buffer.copy(Sn(2), &mut out);
        assert_eq!(out, [1; 10]);
        assert_eq!(buffer.flight(Sn(0)).map(|f| f.length), None);
    }
}

//! The sender's half: numbers data packets and makes parity.
//!
//! Parity is summed up as the data passes, while it is in the cache: no data packet is kept.

use std::time::Duration;

use super::{HEADER, Kernel, Kind, lagrange::Points, simd::Line, write_data_header, write_header};
use crate::{Shards, Time};

/// A group whose last two data packets lie this far apart gets no parity: by then the ARQ has repaired what was lost.
const PAUSE: Duration = Duration::from_millis(500);

/// Makes FEC packets.
#[derive(Debug)]
pub struct Encoder {
    shards: Shards,
    kernel: Kernel,
    points: Points,
    /// Per parity packet, what all its weights share.
    numerators: Vec<u32>,
    /// The weights of the data packet at hand, one for each parity packet.
    weights: Vec<u8>,
    next: u32,
    /// Data packets in the current group.
    filled: usize,
    /// The parity packets' covered parts so far, a row of `stride` lines for each. Empty until the first group.
    sums: Vec<Line>,
    stride: usize,
    /// The longest covered part of the group. Lines beyond it hold what the last groups left.
    longest: usize,
    /// Parity packets of the finished group that wait to be taken, counted from the end.
    ready: usize,
    last: Time,
}

impl Encoder {
    /// An encoder at number 0.
    pub fn new(shards: Shards) -> Self {
        let points = Points::data(shards.data());
        let numerators = (shards.data()..shards.total())
            .map(|parity| points.numerator(parity as u8))
            .collect();
        Self {
            shards,
            kernel: Kernel::best(),
            points,
            numerators,
            weights: Vec::new(),
            next: 0,
            filled: 0,
            sums: Vec::new(),
            stride: 0,
            longest: 0,
            ready: 0,
            last: Time::ZERO,
        }
    }

    /// An encoder at the second group: for a sender whose packets so far all had the number 0.
    pub(crate) fn after_announcing(shards: Shards) -> Self {
        Self {
            next: shards.total() as u32,
            ..Self::new(shards)
        }
    }

    /// The parameters.
    pub fn shards(&self) -> Shards {
        self.shards
    }

    /// Completes a data packet in place. Its payload lies at [`super::DATA_HEADER`] up to the end of `packet`, which has
    /// at most 65535 bytes. Take the parity of the last group first: what was not taken is dropped.
    pub fn seal(&mut self, now: Time, packet: &mut [u8]) {
        self.skip(self.ready);
        self.ready = 0;
        write_data_header(packet, self.next, Kind::Data);
        self.cover(&packet[HEADER..]);
        if self.filled == self.shards.data() {
            self.filled = 0;
            if now.since(self.last) < PAUSE {
                self.ready = self.shards.parity();
            } else {
                self.skip(self.shards.parity());
            }
        }
        self.last = now;
    }

    /// Takes the covered part of a data packet as it is, size field and all, at the time of the last one: for checking
    /// the code by itself.
    #[doc(hidden)]
    pub fn seal_raw(&mut self, covered: &[u8]) {
        self.cover(covered);
        if self.filled == self.shards.data() {
            self.filled = 0;
            self.ready = self.shards.parity();
        }
    }

    fn cover(&mut self, covered: &[u8]) {
        self.advance(1);
        self.add(covered);
        self.filled += 1;
    }

    /// The length of the next parity packet, if one waits.
    pub fn parity_len(&self) -> Option<usize> {
        (self.ready > 0).then_some(HEADER + self.longest)
    }

    /// Writes the next parity packet into `out`, which has [`Self::parity_len`] bytes. Returns whether there was one.
    pub fn parity(&mut self, out: &mut [u8]) -> bool {
        if self.ready == 0 {
            return false;
        }
        let row = (self.shards.parity() - self.ready) * self.stride;
        write_header(out, self.next, Kind::Parity);
        let length = self.longest.min(out.len() - HEADER);
        let parts = out[HEADER..HEADER + length].chunks_mut(Line::BYTES);
        for (part, Line(sum)) in parts.zip(&self.sums[row..]) {
            part.copy_from_slice(&sum[..part.len()]);
        }
        self.ready -= 1;
        self.advance(1);
        true
    }

    /// Gives back the sums' memory; for a session that has nothing to send. Does nothing inside a group.
    pub fn trim(&mut self) {
        if self.filled == 0 && self.ready == 0 {
            self.sums = Vec::new();
            self.stride = 0;
        }
    }

    /// Adds the data packet number `filled` of the group to all parity packets.
    fn add(&mut self, covered: &[u8]) {
        if self.filled == 0 {
            self.longest = 0;
        }
        self.lengthen(covered.len());
        self.weights.clear();
        for (parity, numerator) in self.numerators.iter().enumerate() {
            let target = (self.shards.data() + parity) as u8;
            self.weights
                .push(self.points.weight(target, *numerator, self.filled));
        }
        self.kernel
            .mul_add_rows(&self.weights, covered, &mut self.sums, self.stride);
    }

    /// Makes every row `longest` bytes long at least, with zeros behind what the group has so far.
    fn lengthen(&mut self, longest: usize) {
        if longest <= self.longest {
            return;
        }
        let (had, need) = (
            self.longest.div_ceil(Line::BYTES),
            longest.div_ceil(Line::BYTES),
        );
        if need > self.stride {
            let mut sums = vec![Line::ZERO; need * self.shards.parity()];
            if self.stride > 0 {
                let rows = self.sums.chunks(self.stride);
                for (to, from) in sums.chunks_mut(need).zip(rows) {
                    to[..had].copy_from_slice(&from[..had]);
                }
            }
            (self.sums, self.stride) = (sums, need);
        } else {
            for row in self.sums.chunks_mut(self.stride) {
                row[had..need].fill(Line::ZERO);
            }
        }
        self.longest = longest;
    }

    fn skip(&mut self, count: usize) {
        self.advance(count as u32);
    }

    fn advance(&mut self, count: u32) {
        // Below 2^32 as the group size is at most 256 and the wrap leaves at least one.
        self.next =
            ((u64::from(self.next) + u64::from(count)) % u64::from(self.shards.wrap())) as u32;
    }
}

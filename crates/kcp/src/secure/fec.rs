//! FEC of gt's own mode: groups that may end early, with a code that does not mind.
//!
//! Parity packet `j` of a group is `Σ c(j, i) · packet i` over GF(2^8) (polynomial 0x11D) with Cauchy's weights
//! `c(j, i) = 1 / ((255 − j) ⊕ i)`: any square part of such a matrix can be inverted, and a weight does not depend on the group's size. So
//! a group is ended when there is nothing more to send, with as much parity as its size deserves, and a keystroke is protected as well as a
//! transfer. Every parity packet says how many data packets its group has.

use std::collections::VecDeque;

use crate::{MTU_MAX, fec::Kernel};

/// Data packets of a full group: at full speed on 10 Mbit/s they pass in 20 ms.
pub(super) const GROUP: usize = 16;
/// Most parity packets of a group.
pub(super) const MOST_PARITY: usize = 8;
/// What a receiver takes of others; bounds its memory.
const TAKES_DATA: usize = 32;
const TAKES_PARITY: usize = 16;
/// Groups that a receiver keeps.
const KEEPS: u32 = 4;

/// The sender's half. Sums parity up while data passes; keeps no data.
#[derive(Debug)]
pub struct GroupEncoder {
    kernel: Kernel,
    group: u32,
    filled: usize,
    /// Parity of a full group; chosen when a group begins.
    parity: usize,
    sums: Vec<Vec<u8>>,
    /// Parity packets of the ended group: how many, how many are gone, the group's size.
    ready: (usize, usize, usize),
}

impl Default for GroupEncoder {
    fn default() -> Self {
        Self {
            kernel: Kernel::best(),
            group: 0,
            filled: 0,
            parity: 0,
            sums: Vec::new(),
            ready: (0, 0, 0),
        }
    }
}

impl GroupEncoder {
    /// Adds a data packet to the current group, or begins one with `parity` (at least 1). Gives the group and the place in it. Take the
    /// parity of an ended group first: what was not taken is dropped.
    pub fn add(&mut self, parity: usize, covered: &[u8]) -> (u32, u8) {
        if self.ready.1 < self.ready.0 {
            self.begin_next();
        }
        if self.filled == 0 {
            self.parity = parity.clamp(1, MOST_PARITY);
            self.sums.resize(self.parity, Vec::new());
            self.sums.iter_mut().for_each(Vec::clear);
        }
        for (j, sum) in self.sums.iter_mut().enumerate() {
            if sum.len() < covered.len() {
                sum.resize(covered.len(), 0);
            }
            self.kernel.mul_add(weight(j, self.filled), covered, sum);
        }
        let place = (self.group, self.filled as u8);
        self.filled += 1;
        if self.filled == GROUP {
            self.end();
        }
        place
    }

    /// Ends the group that is not full, if there is one.
    pub fn end(&mut self) {
        if self.filled > 0 && self.ready.0 == 0 {
            self.ready = ((self.parity * self.filled).div_ceil(GROUP), 0, self.filled);
        }
    }

    /// Whether a group has begun and not ended.
    pub fn is_open(&self) -> bool {
        self.filled > 0 && self.ready.0 == 0
    }

    /// The next parity packet: group, place, data packets, parity packets, bytes.
    pub fn poll_parity(&mut self) -> Option<(u32, u8, u8, u8, &[u8])> {
        let (count, gone, data) = self.ready;
        if gone == count {
            if count > 0 {
                self.begin_next();
            }
            return None;
        }
        self.ready.1 += 1;
        let sum = self.sums.get(gone)?;
        Some((self.group, gone as u8, data as u8, count as u8, sum))
    }

    /// Gives memory back when no group is under way.
    pub fn trim(&mut self) {
        if self.filled == 0 {
            self.sums = Vec::new();
        }
    }

    fn begin_next(&mut self) {
        self.group = self.group.wrapping_add(1);
        self.filled = 0;
        self.ready = (0, 0, 0);
    }
}

/// The receiver's half. Keeps at most 4 groups of 48 packets.
#[derive(Debug)]
pub struct GroupDecoder {
    kernel: Kernel,
    groups: VecDeque<Group>,
    newest: Option<u32>,
    recovered: VecDeque<Vec<u8>>,
}

#[derive(Debug)]
struct Group {
    id: u32,
    /// Data packets by place.
    data: Vec<(u8, Vec<u8>)>,
    parity: Vec<(u8, Vec<u8>)>,
    /// How many data packets it has, once parity said so.
    size: Option<usize>,
    done: bool,
}

impl Default for GroupDecoder {
    fn default() -> Self {
        Self {
            kernel: Kernel::best(),
            groups: VecDeque::new(),
            newest: None,
            recovered: VecDeque::new(),
        }
    }
}

impl GroupDecoder {
    /// Takes a data packet.
    pub fn data(&mut self, group: u32, index: u8, covered: &[u8]) {
        if usize::from(index) >= TAKES_DATA || !fits(covered) {
            return;
        }
        let Some(found) = self.group(group) else {
            return;
        };
        if !found.done && !found.data.iter().any(|&(other, _)| other == index) {
            found.data.push((index, covered.to_vec()));
            self.repair(group);
        }
    }

    /// Takes a parity packet.
    pub fn parity(&mut self, group: u32, index: u8, data: u8, covered: &[u8]) {
        let size = usize::from(data);
        if usize::from(index) >= TAKES_PARITY || !(1..=TAKES_DATA).contains(&size) || !fits(covered)
        {
            return;
        }
        let Some(found) = self.group(group) else {
            return;
        };
        if !found.done && !found.parity.iter().any(|&(other, _)| other == index) {
            found.size.get_or_insert(size);
            found.parity.push((index, covered.to_vec()));
            self.repair(group);
        }
    }

    /// The next packet that never arrived and is here all the same, without its size field.
    pub fn pop(&mut self) -> Option<Vec<u8>> {
        self.recovered.pop_front()
    }

    /// Gives back what is kept.
    pub fn trim(&mut self) {
        self.groups = VecDeque::new();
    }

    fn group(&mut self, id: u32) -> Option<&mut Group> {
        let newest = *self.newest.get_or_insert(id);
        let ahead = id.wrapping_sub(newest);
        if ahead != 0 && ahead < 1 << 31 {
            self.newest = Some(id);
            self.groups
                .retain(|group| id.wrapping_sub(group.id) < KEEPS);
        } else if newest.wrapping_sub(id) >= KEEPS {
            return None;
        }
        if !self.groups.iter().any(|group| group.id == id) {
            let group = Group {
                id,
                data: Vec::new(),
                parity: Vec::new(),
                size: None,
                done: false,
            };
            self.groups.push_back(group);
        }
        self.groups.iter_mut().find(|group| group.id == id)
    }

    fn repair(&mut self, id: u32) {
        let Some(group) = self.groups.iter_mut().find(|group| group.id == id) else {
            return;
        };
        let Some(size) = group.size else { return };
        // A peer that contradicts itself gets nothing repaired.
        let present = group
            .data
            .iter()
            .filter(|&&(place, _)| usize::from(place) < size)
            .count();
        let missing = size - present;
        if present != group.data.len() || missing > group.parity.len() {
            return;
        }
        if missing > 0 {
            solve(self.kernel, group, size, missing, &mut self.recovered);
        }
        group.done = true;
        (group.data, group.parity) = (Vec::new(), Vec::new());
    }
}

/// Gauss–Jordan over the missing packets: as many equations (parity packets) as unknowns.
fn solve(kernel: Kernel, group: &Group, size: usize, missing: usize, out: &mut VecDeque<Vec<u8>>) {
    let unknown: Vec<usize> = (0..size)
        .filter(|&place| {
            !group
                .data
                .iter()
                .any(|&(other, _)| usize::from(other) == place)
        })
        .collect();
    let longest = group
        .data
        .iter()
        .chain(&group.parity)
        .map(|(_, bytes)| bytes.len())
        .max()
        .unwrap_or(0);
    let mut rows: Vec<(Vec<u8>, Vec<u8>)> = group
        .parity
        .iter()
        .take(missing)
        .map(|(j, bytes)| {
            let j = usize::from(*j);
            let mut sum = bytes.clone();
            sum.resize(longest, 0);
            for (i, bytes) in &group.data {
                kernel.mul_add(weight(j, usize::from(*i)), bytes, &mut sum);
            }
            (unknown.iter().map(|&i| weight(j, i)).collect(), sum)
        })
        .collect();
    for column in 0..missing {
        // Cauchy: there always is one.
        let Some(pivot) = (column..missing).find(|&row| rows[row].0[column] != 0) else {
            return;
        };
        rows.swap(column, pivot);
        let scale = INVERSE[usize::from(rows[column].0[column])];
        let (mut weights, mut bytes) = (vec![0; missing], vec![0; longest]);
        kernel.mul_add(scale, &rows[column].0, &mut weights);
        kernel.mul_add(scale, &rows[column].1, &mut bytes);
        for (row, (other, sum)) in rows.iter_mut().enumerate() {
            let factor = other[column];
            if row != column && factor != 0 {
                kernel.mul_add(factor, &weights, other);
                kernel.mul_add(factor, &bytes, sum);
            }
        }
        rows[column] = (weights, bytes);
    }
    for (_, mut bytes) in rows {
        let size = bytes
            .first_chunk()
            .map_or(0, |&size| usize::from(u16::from_le_bytes(size)));
        if size >= 2 && size <= bytes.len() {
            bytes.truncate(size);
            bytes.drain(..2);
            out.push_back(bytes);
        }
    }
}

fn fits(covered: &[u8]) -> bool {
    (2..=MTU_MAX).contains(&covered.len())
}

/// `parity` below 16 and `data` below 32 keep both sides of the sum apart.
fn weight(parity: usize, data: usize) -> u8 {
    INVERSE[(255 - parity) ^ data]
}

/// Inverses in GF(2^8); that of zero is never asked for.
static INVERSE: [u8; 256] = {
    let mut table = [0; 256];
    // Powers of the generator 2 go through all values; x^i and x^(255 − i) are inverse.
    let mut powers = [0_u8; 255];
    let (mut value, mut i) = (1_u16, 0);
    while i < 255 {
        powers[i] = value as u8;
        value <<= 1;
        if value & 0x100 != 0 {
            value ^= 0x11d;
        }
        i += 1;
    }
    i = 0;
    while i < 255 {
        table[powers[i] as usize] = powers[(255 - i) % 255];
        i += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(seed: usize, length: usize) -> Vec<u8> {
        let mut covered = ((length + 2) as u16).to_le_bytes().to_vec();
        covered.extend((0..length).map(|at| (at * 7 + seed * 31) as u8));
        covered
    }

    /// Every choice of losses that a short group can bear, and every size of group.
    #[test]
    fn as_many_losses_as_parity_are_repaired() {
        for size in 1..=GROUP {
            for parity in [1, 3, MOST_PARITY] {
                let packets: Vec<_> = (0..size).map(|i| packet(i, 20 + i * 13 % 40)).collect();
                let mut encoder = GroupEncoder::default();
                let places: Vec<_> = packets
                    .iter()
                    .map(|covered| encoder.add(parity, covered))
                    .collect();
                encoder.end();
                let mut made = Vec::new();
                while let Some((group, index, data, count, bytes)) = encoder.poll_parity() {
                    assert_eq!(
                        (usize::from(data), usize::from(count)),
                        (size, (parity * size).div_ceil(GROUP))
                    );
                    made.push((group, index, data, bytes.to_vec()));
                }
                for shift in 0..size {
                    let mut decoder = GroupDecoder::default();
                    let lost = |i: usize| (i + size - shift) % size < made.len().min(size);
                    for (i, (group, index)) in places.iter().enumerate().filter(|&(i, _)| !lost(i))
                    {
                        decoder.data(*group, *index, &packets[i]);
                    }
                    for (group, index, data, bytes) in &made {
                        decoder.parity(*group, *index, *data, bytes);
                    }
                    let mut got: Vec<_> = std::iter::from_fn(|| decoder.pop()).collect();
                    let mut wanted: Vec<_> = (0..size)
                        .filter(|&i| lost(i))
                        .map(|i| packets[i][2..].to_vec())
                        .collect();
                    got.sort();
                    wanted.sort();
                    assert_eq!(got, wanted, "size {size}, parity {parity}, from {shift}");
                }
            }
        }
    }

    #[test]
    fn more_losses_than_parity_give_nothing_and_no_error() {
        let mut encoder = GroupEncoder::default();
        let packets: Vec<_> = (0..8).map(|i| packet(i, 30)).collect();
        packets.iter().for_each(|covered| {
            encoder.add(2, covered);
        });
        encoder.end();
        let mut decoder = GroupDecoder::default();
        decoder.data(0, 0, &packets[0]);
        while let Some((group, index, data, _, bytes)) = encoder.poll_parity() {
            decoder.parity(group, index, data, bytes);
        }
        assert_eq!(decoder.pop(), None);
    }

    #[test]
    fn memory_is_bounded_whatever_a_peer_sends() {
        let mut decoder = GroupDecoder::default();
        for i in 0..20_000_u32 {
            let group = i.wrapping_mul(0x9e37_79b9) % 50;
            decoder.data(group, (i % 256) as u8, &packet(1, 1000));
            decoder.parity(group, (i % 251) as u8, (i % 40) as u8, &packet(2, 1000));
            while decoder.pop().is_some() {}
            let kept: usize = decoder
                .groups
                .iter()
                .map(|group| group.data.len() + group.parity.len())
                .sum();
            assert!(
                decoder.groups.len() <= KEEPS as usize
                    && kept <= KEEPS as usize * (TAKES_DATA + TAKES_PARITY)
            );
        }
    }
}

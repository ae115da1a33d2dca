//! Forward error correction for datagrams of UDP visitors, sans-IO: time and bytes come in, datagrams go out (docs/protocol/quic-link.md).
//!
//! All datagrams that a link's end sends, whatever visitor they are of, make one row. After every `d` of them come `p` of parity (crate `kcp`), and any
//! `d` of the `d + p` give the rest. Nobody waits for a group to fill: a datagram leaves at once, and [`FLUSH`] after its first one a group is
//! ended as it is; what it lacks counts as empty and is not sent.
//!
//! Left to others: whether the peer takes this, sending, timers ([`Sender::flush_at`]), and congestion control: a datagram that is lost is lost to QUIC,
//! also when it was repaired here.

use std::time::{Duration, Instant};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kcp::{
    Counters, Shards, Time,
    fec::{DATA_HEADER, Decoder, Encoder, HEADER},
};

/// Numbers that no stream has which a server opens (RFC 9000 §2.1): a datagram that begins with one of them is a shard.
pub const DATA: u8 = 2;
/// See [`DATA`].
pub const PARITY: u8 = 3;
/// What shards add to the longest payload of their group: kind, group's form, number, how many are real, size.
pub const OVERHEAD: usize = 1 + 2 + 4 + 1 + 2;
/// How long a group waits for its next datagram: what this end adds to the delay of one that has to be repaired.
pub const FLUSH: Duration = Duration::from_millis(10);
/// The largest groups: bounds what a receiver keeps (three groups, or 64 packets), and what one shard can make it calculate. A shard that says that
/// its group has one datagram brings the other `d - 1`, empty, with it: that is work in proportion to d² for ten bytes.
pub const MOST_DATA: usize = 32;
/// See [`MOST_DATA`].
pub const MOST_PARITY: usize = 16;

/// Covers what is sent.
#[derive(Debug)]
pub struct Sender {
    shards: Shards,
    encoder: Encoder,
    origin: Instant,
    /// Data of the group that has begun.
    filled: usize,
    flush_at: Option<Instant>,
    packet: Vec<u8>,
}

impl Sender {
    /// Groups of this form, at most [`MOST_DATA`] and [`MOST_PARITY`].
    #[must_use]
    pub fn new(shards: Shards, now: Instant) -> Self {
        Self {
            shards,
            encoder: Encoder::new(shards),
            origin: now,
            filled: 0,
            flush_at: None,
            packet: Vec::new(),
        }
    }

    /// Gives the datagrams that carry `payload`, and the parity of a group that it completes, to `out`.
    pub fn send(&mut self, now: Instant, payload: &[u8], mut out: impl FnMut(Bytes)) {
        let number = self.seal(now, payload);
        let mut datagram = BytesMut::with_capacity(OVERHEAD + payload.len());
        self.head(DATA, number, &mut datagram);
        datagram.extend_from_slice(payload);
        out(datagram.freeze());
        self.filled += 1;
        if self.filled == self.shards.data() {
            self.parity(self.shards.data(), out);
        } else if self.filled == 1 {
            self.flush_at = Some(now + FLUSH);
        }
    }

    /// When [`Sender::flush`] has something to do.
    #[must_use]
    pub fn flush_at(&self) -> Option<Instant> {
        self.flush_at
    }

    /// Ends a group that has waited for long enough.
    pub fn flush(&mut self, now: Instant, out: impl FnMut(Bytes)) {
        if self.flush_at.is_none_or(|at| now < at) {
            return;
        }
        let real = self.filled;
        for _ in real..self.shards.data() {
            self.seal(now, &[]);
        }
        self.parity(real, out);
    }

    /// Counts it in; its number.
    fn seal(&mut self, now: Instant, payload: &[u8]) -> u32 {
        let since = now.saturating_duration_since(self.origin).as_micros();
        let time = Time::from_micros(u64::try_from(since).unwrap_or(u64::MAX));
        self.packet.clear();
        self.packet.resize(DATA_HEADER, 0);
        self.packet.extend_from_slice(payload);
        self.encoder.seal(time, &mut self.packet);
        self.packet.as_slice().get_u32_le()
    }

    /// The parity of a group with `real` datagrams, in proportion to them.
    fn parity(&mut self, real: usize, mut out: impl FnMut(Bytes)) {
        self.filled = 0;
        self.flush_at = None;
        let parts = (self.shards.parity() * real).div_ceil(self.shards.data());
        for _ in 0..parts {
            let Some(length) = self.encoder.parity_len() else {
                return;
            };
            self.packet.resize(length, 0);
            self.encoder.parity(&mut self.packet);
            let number = self.packet.as_slice().get_u32_le();
            let mut datagram = BytesMut::with_capacity(OVERHEAD + length);
            self.head(PARITY, number, &mut datagram);
            datagram.put_u8(byte(real));
            datagram.extend_from_slice(&self.packet[HEADER..]);
            out(datagram.freeze());
        }
    }

    fn head(&self, kind: u8, number: u32, out: &mut BytesMut) {
        out.put_u8(kind);
        out.put_u8(byte(self.shards.data()));
        out.put_u8(byte(self.shards.parity()));
        out.put_u32(number);
    }
}

/// Gives what came, and what it repairs, once each.
#[derive(Debug, Default)]
pub struct Receiver {
    decoder: Option<Decoder>,
    seen: Seen,
    counters: Counters,
    /// Reused for each shard.
    packet: Vec<u8>,
}

impl Receiver {
    /// Takes a datagram that begins with [`DATA`] or [`PARITY`]. One that is none is lost.
    pub fn receive(&mut self, datagram: Bytes, mut out: impl FnMut(Bytes)) {
        let _ = self.take(datagram, &mut out);
    }

    /// Datagrams that were repaired.
    #[must_use]
    pub fn repaired(&self) -> u64 {
        self.counters.fec_recovered
    }

    fn take(&mut self, mut rest: Bytes, out: &mut impl FnMut(Bytes)) -> Option<()> {
        let kind = rest.try_get_u8().ok()?;
        let (data, parity) = (rest.try_get_u8().ok()?, rest.try_get_u8().ok()?);
        let number = rest.try_get_u32().ok()?;
        let shards = Shards::new(data.into(), parity.into()).ok()?;
        if shards.data() > MOST_DATA || shards.parity() > MOST_PARITY || number >= shards.wrap() {
            return None;
        }
        let total = u32::from(data) + u32::from(parity);
        let (group, place) = (number / total, number % total);
        if (kind == DATA) != (place < u32::from(data)) {
            return None;
        }
        if self.decoder.as_ref().map(Decoder::shards) != Some(shards) {
            self.decoder = Some(Decoder::agreed(shards));
            self.seen = Seen::default();
        }
        if kind == DATA {
            if !self.seen.first_time(number, shards.wrap()) {
                return None;
            }
            self.count(number, DATA, &rest);
            out(rest);
        } else {
            let real = rest.try_get_u8().ok()?;
            if real == 0 || real > data {
                return None;
            }
            // What the group lacks at its end was not sent.
            for empty in real..data {
                self.count(group * total + u32::from(empty), DATA, &[]);
            }
            self.count(number, PARITY, &rest);
        }
        while let Some((number, repaired)) = self.decoder.as_mut()?.pop_numbered() {
            if self.seen.first_time(number, shards.wrap()) {
                out(repaired.into());
            }
        }
        Some(())
    }

    /// Gives the decoder a packet as it knows them, with a payload, or with what is in a parity packet.
    fn count(&mut self, number: u32, kind: u8, content: &[u8]) {
        let packet = &mut self.packet;
        packet.clear();
        packet.put_u32_le(number);
        packet.put_u16_le(kcp_kind(kind));
        if kind == DATA {
            packet.put_u16_le(u16::try_from(2 + content.len()).unwrap_or(0));
        }
        packet.extend_from_slice(content);
        if let Some(decoder) = &mut self.decoder {
            decoder.handle(packet, &mut self.counters);
        }
    }
}

/// Which numbers have been given out, of the last ones. Older ones count as given: what comes so late is lost.
#[derive(Debug)]
struct Seen {
    newest: Option<u32>,
    /// By number modulo their count.
    marks: [u64; MARKS / 64],
}

impl Default for Seen {
    fn default() -> Self {
        Self {
            newest: None,
            marks: [0; MARKS / 64],
        }
    }
}

impl Seen {
    fn first_time(&mut self, number: u32, wrap: u32) -> bool {
        let newest = *self.newest.get_or_insert(number);
        let ahead = (u64::from(number) + u64::from(wrap) - u64::from(newest)) % u64::from(wrap);
        let behind = (u64::from(wrap) - ahead) % u64::from(wrap);
        if ahead != 0 && ahead < u64::from(wrap / 2) {
            let cleared = ahead.min(MARKS as u64);
            for step in 0..cleared {
                // The places up to the new number, from it backwards.
                let at = (u64::from(number) + u64::from(wrap) - step) % u64::from(wrap);
                self.set(at, false);
            }
            self.newest = Some(number);
        } else if behind >= MARKS as u64 {
            return false;
        }
        let (word, bit) = place(number.into());
        let fresh = self.marks[word] & bit == 0;
        self.set(number.into(), true);
        fresh
    }

    fn set(&mut self, number: u64, mark: bool) {
        let (word, bit) = place(number);
        if mark {
            self.marks[word] |= bit;
        } else {
            self.marks[word] &= !bit;
        }
    }
}

fn place(number: u64) -> (usize, u64) {
    let at = number as usize % MARKS;
    (at / 64, 1 << (at % 64))
}

/// More than the decoder keeps of any form of groups.
const MARKS: usize = 1024;

fn byte(number: usize) -> u8 {
    u8::try_from(number).unwrap_or(u8::MAX)
}

/// As in crate `kcp`.
fn kcp_kind(kind: u8) -> u16 {
    if kind == DATA { 0xf1 } else { 0xf2 }
}

#[cfg(test)]
mod tests;

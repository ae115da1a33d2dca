//! What a session says: control frames, then parity, then what the ARQ has, each sealed under the next number.

use super::{
    super::wire::{self, DATA_HEAD, Frame, GROUP_HEAD, OVERHEAD, PARITY_HEAD, SEGMENTS, SIZE, TAG},
    End, GROUP_PAUSE, LEAST, MOST_DATAGRAMS, Session, Transmit,
};
use crate::Time;

impl Session {
    /// Writes the next datagram into `out`, which holds at least [`Self::mtu`] bytes.
    pub fn poll_transmit(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit> {
        let reset = self.control.takes_reset();
        if (self.end.is_some() && !reset) || self.next >= MOST_DATAGRAMS {
            return None;
        }
        // Not even one byte goes to an address that has earned nothing; a full datagram may not go to one that earned little.
        let most = self.mtu.min(self.path.credit());
        let out = out.get_mut(..self.mtu)?;
        let body = if reset {
            self.last_words(&mut out[DATA_HEAD..])
        } else if most < LEAST {
            None
        } else if let Some(body) = self.control_body(now, &mut out[DATA_HEAD..]) {
            Some(body)
        } else if most < self.mtu {
            None
        } else {
            self.data_body(now, &mut out[DATA_HEAD..])
        }?;
        self.seal(out, body)
    }

    /// What to answer, once the session is forgotten, to a peer that has not heard that it is over: a datagram of at most 64 bytes. It may
    /// be sent again and again.
    pub fn farewell(&mut self) -> Option<Vec<u8>> {
        let mut out = vec![0; 64];
        let body = self.last_words(&mut out[DATA_HEAD..])?;
        let made = self.seal(&mut out, body)?;
        out.truncate(made.length);
        Some(out)
    }

    /// An authentic datagram with these bytes as frames, for checking what a hostile peer can do.
    #[doc(hidden)]
    pub fn seal_frames(&mut self, frames: &[u8]) -> Option<Vec<u8>> {
        let mut out = vec![0; frames.len() + OVERHEAD];
        let body = put(frames, out.get_mut(DATA_HEAD..)?)?;
        self.seal(&mut out, body)?;
        Some(out)
    }

    /// That the peer's end is known, for one that has ended in order; that it is over, for any other.
    fn last_words(&self, out: &mut [u8]) -> Option<usize> {
        let mut frames = Vec::new();
        if let Some(total) = self.control.peer_total() {
            Frame::FinAck(total).push(&mut frames);
        }
        Frame::Reset.push(&mut frames);
        put(&frames, out)
    }

    fn seal(&mut self, out: &mut [u8], body: usize) -> Option<Transmit> {
        let length = DATA_HEAD + body + TAG;
        wire::write_data_head(out, self.remote_id, self.next);
        let (head, rest) = out.split_at_mut(DATA_HEAD);
        let tag = self.send.seal(self.next, head, rest.get_mut(..body)?)?;
        rest.get_mut(body..body + TAG)?.copy_from_slice(&tag);
        self.next += 1;
        if self.next == MOST_DATAGRAMS {
            self.fail(End::Exhausted);
        }
        self.path.spend(length);
        self.stats.sent += 1;
        self.settle();
        Some(Transmit {
            to: self.path.remote(),
            length,
        })
    }

    /// All control frames that are due, in one datagram.
    fn control_body(&mut self, now: Time, out: &mut [u8]) -> Option<usize> {
        let mut frames = Vec::new();
        if let Some(token) = self.path.challenge(now) {
            Frame::Challenge(token).push(&mut frames);
        }
        self.control
            .frames(now, self.written, self.arq.rto(), &mut frames);
        if self.control.takes_report(now, self.stats.received) {
            self.report(&mut frames);
        }
        put(&frames, out)
    }

    /// Counts what arrived of the datagrams up to the newest one of the last report: those after it may have been overtaken only.
    fn report(&mut self, frames: &mut Vec<u8>) {
        let highest = self.report_mark.max(self.replay.oldest());
        let received = self.stats.received - self.replay.seen_after(highest);
        Frame::Report { highest, received }.push(frames);
        self.report_mark = self.replay.newest().unwrap_or(0);
    }

    fn data_body(&mut self, now: Time, out: &mut [u8]) -> Option<usize> {
        if let Some((group, index, data, count, bytes)) = self.encoder.poll_parity() {
            wire::write_parity_head(out, group, index, data, count);
            out.get_mut(PARITY_HEAD..PARITY_HEAD + bytes.len())?
                .copy_from_slice(bytes);
            self.stats.parity += 1;
            return Some(PARITY_HEAD + bytes.len());
        }
        let start = GROUP_HEAD + SIZE;
        let made = self
            .arq
            .poll_transmit(now, out.get_mut(start..start + self.arq.mtu())?)?;
        let parity = self.ratio.parity();
        if !made.has_data || (parity == 0 && !self.encoder.is_open()) {
            out.copy_within(start..start + made.length, 1);
            out[0] = SEGMENTS;
            return Some(1 + made.length);
        }
        let size = (SIZE + made.length) as u16;
        out[GROUP_HEAD..start].copy_from_slice(&size.to_le_bytes());
        let end = start + made.length;
        let (group, index) = self.encoder.add(parity, &out[GROUP_HEAD..end]);
        wire::write_group_head(out, group, index);
        self.group_due = self.encoder.is_open().then(|| now + GROUP_PAUSE);
        Some(end)
    }
}

fn put(frames: &[u8], out: &mut [u8]) -> Option<usize> {
    if frames.is_empty() {
        return None;
    }
    out.get_mut(..frames.len())?.copy_from_slice(frames);
    Some(frames.len())
}

//! What a session does with a datagram: number seen? → open → frames → (FEC) → ARQ.

use std::net::SocketAddr;

use super::{
    super::{
        Refused,
        wire::{self, DATA_HEAD, Frame, SIZE},
    },
    End, Session,
};
use crate::{Time, arq::Origin};

impl Session {
    /// Takes a datagram that is addressed to [`Self::local_id`], and opens it in place.
    ///
    /// # Errors
    /// [`Refused`]: the session is as before.
    pub fn handle_datagram(
        &mut self,
        now: Time,
        from: SocketAddr,
        datagram: &mut [u8],
    ) -> Result<(), Refused> {
        let length = datagram.len();
        if wire::receiver(datagram).ok_or(Refused::Malformed)? != self.local_id {
            return Err(Refused::Other);
        }
        let number = wire::data_number(datagram).ok_or(Refused::Malformed)?;
        if !self.replay.is_new(number) {
            self.stats.refused += 1;
            return Err(Refused::Replayed);
        }
        let (head, sealed) = datagram.split_at_mut(DATA_HEAD);
        let Some(body) = self.receive.open(number, head, sealed) else {
            self.stats.refused += 1;
            return Err(Refused::Forged);
        };
        let newest = self.replay.mark(number);
        self.stats.received += 1;
        self.control.heard(now, self.stats.received);
        let control = &mut self.control;
        if self
            .path
            .heard(now, from, length, newest, || control.token())
        {
            self.stats.moves += 1;
        }
        let mut rest: &[u8] = body;
        while self.end.is_none()
            && let Some((frame, after)) = Frame::split(rest)
        {
            self.handle_frame(now, frame);
            rest = after;
        }
        Ok(())
    }

    fn handle_frame(&mut self, now: Time, frame: Frame<'_>) {
        match frame {
            Frame::Ping => self.control.pong(),
            Frame::Pong => {}
            Frame::Segments(segments) => self.segments(now, segments, Origin::Wire),
            Frame::Data {
                group,
                index,
                covered,
            } => {
                let size = covered
                    .first_chunk()
                    .map_or(0, |size| usize::from(u16::from_le_bytes(*size)));
                if size == covered.len() && size >= SIZE {
                    self.segments(now, &covered[SIZE..], Origin::Wire);
                    self.decoder.data(group, index, covered);
                    self.recover(now);
                }
            }
            Frame::Parity {
                group,
                index,
                data,
                covered,
            } => {
                self.decoder.parity(group, index, data, covered);
                self.recover(now);
            }
            Frame::Fin(total) => {
                let seen = self.read + self.arq.readable() as u64;
                if total < seen || !self.control.fin_came(total) {
                    self.fail(End::Protocol);
                }
            }
            Frame::FinAck(total) => self.control.fin_acked(total),
            // A peer that has ended in order forgets the session and answers what still comes with its last words. Its acknowledgement of
            // the last segments may have been lost, but it knows both ends: nothing is missing.
            Frame::Reset
                if self.control.is_shut() && self.control.end_is_known() && self.is_at_end() =>
            {
                self.end.get_or_insert(End::Finished);
            }
            Frame::Reset => self.fail(End::Reset),
            Frame::Challenge(token) => self.control.respond(token),
            Frame::Response(token) => self.path.answered(token),
            Frame::Report { highest, received } => {
                // A peer cannot have received what was not sent.
                let highest = highest.min(self.next);
                self.ratio.report(now, highest, received, self.arq.rounds());
            }
        }
        self.settle();
    }

    /// A segment that cannot be read is the peer's error, but harms only itself.
    fn segments(&mut self, now: Time, segments: &[u8], origin: Origin) {
        let _ = self.arq.handle_input(now, segments, origin);
    }

    fn recover(&mut self, now: Time) {
        while let Some(segments) = self.decoder.pop() {
            self.stats.recovered += 1;
            self.segments(now, &segments, Origin::Recovered);
        }
    }
}

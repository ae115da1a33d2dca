//! What the peer's frames do. Every byte here is the peer's choice: what it may not do is a `Violation`, what it does without need
//! costs it more than this end.

use std::time::Duration;

use super::{Mux, frame};
use crate::{
    decode::SHORT,
    frame::{ACK, GROW, Header, Kind},
    types::{Event, Key, Reason, Violation},
};

impl Mux {
    pub(super) fn opened(&mut self, id: u32, now: Duration) -> Result<Option<Key>, Violation> {
        if id == 0 || id % 2 != self.peer_parity || self.by_id.contains_key(&id) {
            return Err(Violation::BadStreamId(id));
        }
        if self.streams.len() >= self.config.max_streams {
            let frame = frame(Kind::Reset, 0, id, 2);
            self.output
                .push(frame, &[&Reason::OVERLOADED.0.to_be_bytes()]);
            return Ok(None);
        }
        Ok(Some(self.insert(id, now)))
    }

    pub(super) fn data(&mut self, id: u32, bytes: &[u8]) -> Result<Option<Key>, Violation> {
        let n = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.link.receive_credit = self
            .link
            .receive_credit
            .checked_sub(n)
            .ok_or(Violation::OverCredit(0))?;
        self.link.received = self.link.received.wrapping_add(u64::from(n));
        let Some(key) = self.by_id(id) else {
            // A stream that this end has reset; its last bytes were on the way.
            self.consumed_on_link(n);
            self.relieve();
            return Ok(None);
        };
        let receive = &mut self.streams[key.index as usize].receive;
        if receive.finished {
            return Err(Violation::DataAfterFinish(id));
        }
        receive.credit = receive
            .credit
            .checked_sub(n)
            .ok_or(Violation::OverCredit(id))?;
        receive.take(n, &self.clock.path);
        // What may be held back has shrunk.
        self.consumed_on_link(0);
        self.relieve();
        Ok(Some(key))
    }

    pub(super) fn finished(&mut self, id: u32) -> Option<Key> {
        let key = self.by_id(id)?;
        let receive = &mut self.streams[key.index as usize].receive;
        if std::mem::replace(&mut receive.finished, true) {
            return None;
        }
        self.remove_if_over(key);
        Some(key)
    }

    pub(super) fn short_frame<'i>(
        &mut self,
        header: Header,
        payload: [u8; SHORT],
        now: Duration,
    ) -> Result<Option<Event<'i>>, Violation> {
        let [a, b, c, d, ..] = payload;
        match header.kind {
            Kind::Credit => {
                let grows = header.flags & GROW != 0;
                self.credited(header.stream, u32::from_be_bytes([a, b, c, d]), grows)?;
                Ok(None)
            }
            Kind::Reset => {
                let reason = Reason(u16::from_be_bytes([a, b]));
                let key = self.by_id(header.stream);
                Ok(key.map(|key| {
                    self.remove(key);
                    Event::Reset { key, reason }
                }))
            }
            Kind::Ping => Ok(self.ping(header.flags & ACK != 0, payload, now)),
            // The decoder hands these out in other pieces.
            Kind::Data | Kind::Open | Kind::Control => Ok(None),
        }
    }

    fn ping<'i>(&mut self, answer: bool, token: [u8; 8], now: Duration) -> Option<Event<'i>> {
        if !answer {
            self.pong = Some(token);
            return None;
        }
        let sent_at = Duration::from_nanos(u64::from_be_bytes(token));
        // A token that was never sent gives nonsense, but only about the peer's own link.
        let sample = now
            .checked_sub(sent_at)
            .filter(|sample| *sample <= self.patience())?;
        let moved = self.moved().wrapping_sub(self.clock.moved_at_ping);
        self.clock.path.answered(sample, moved > MOVED_WHEN_QUIET);
        Some(Event::Pong { round_trip: sample })
    }

    fn credited(&mut self, id: u32, n: u32, grows: bool) -> Result<(), Violation> {
        let add = |credit: u32| {
            credit
                .checked_add(n)
                .filter(|sum| i32::try_from(*sum).is_ok())
                .ok_or(Violation::CreditOverflow)
        };
        if id == 0 {
            // `admit` wakes who waits for this, one turn at a time.
            self.link.send_credit = add(self.link.send_credit)?;
        } else if let Some(key) = self.by_id(id) {
            let send = &mut self.streams[key.index as usize].send;
            send.credit = add(send.credit)?;
            if !grows {
                send.outstanding = send.outstanding.saturating_sub(u64::from(n));
            }
            self.wake(key);
        }
        Ok(())
    }
}

/// Bytes that may pass in either direction while a ping is under way and are no queue to speak of.
const MOVED_WHEN_QUIET: u64 = 16 << 10;

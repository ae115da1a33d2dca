//! What goes out: acknowledgements first, then window messages, then lost segments, then new ones, as many as fit into one
//! datagram.

use std::collections::VecDeque;

use super::{
    Arq, Command, HEADER, Header, Made, Sn,
    rtt::RTT_BELIEVED,
    send::{Loss, Standing},
};
use crate::Time;

impl Arq {
    /// Writes the next datagram into `out`, which must hold the MTU given to [`Self::new`].
    pub fn poll_transmit(&mut self, now: Time, out: &mut [u8]) -> Option<Made> {
        if self.dead {
            return None;
        }
        if self.hold.is_some_and(|until| until <= now) {
            self.hold = None;
        }
        while self.lost.front().is_some_and(|&sn| !self.is_lost(sn)) {
            self.lost.pop_front();
        }
        let new_allowed = self.new_allowed(now);
        let has_data = (!self.lost.is_empty() || new_allowed) && self.pace_allows(now);
        if self.lost.is_empty()
            && !new_allowed
            && let Some(pacer) = &mut self.pacer
        {
            pacer.limited_by_others();
        }
        let acks_due = self.acks.due().is_some_and(|due| due <= now);
        if !(has_data || acks_due || self.probe.wants_ask() || self.receiver.wants_tell()) {
            return None;
        }
        let room = self.mtu.min(out.len());
        let mut made = Made {
            length: 0,
            has_data: false,
        };
        self.put_acks(now, &mut out[..room], &mut made.length);
        self.put_probes(now, &mut out[..room], &mut made.length);
        self.put_data(now, &mut out[..room], &mut made);
        // Acknowledgements that need not be sent can leave nothing.
        (made.length > 0).then_some(made)
    }

    fn put_acks(&mut self, now: Time, out: &mut [u8], at: &mut usize) {
        let more = self.acks.due();
        self.acks.start_datagram(self.receiver.next());
        while *at + HEADER <= out.len() {
            let Some((sn, timestamp)) = self.acks.pop(self.receiver.next()) else {
                break;
            };
            let header = Header {
                timestamp,
                sn,
                ..self.header(Command::Ack, now)
            };
            self.put_header(&header, 0, out, at);
        }
        // What did not fit goes into the next datagram, not after another delay.
        if more.is_some() {
            self.acks.hurry(now);
        }
    }

    fn put_probes(&mut self, now: Time, out: &mut [u8], at: &mut usize) {
        if *at + HEADER <= out.len() && self.probe.take_ask() {
            self.put_header(&self.header(Command::WindowAsk, now), 0, out, at);
        }
        if *at + HEADER <= out.len() && self.receiver.take_tell() {
            self.put_header(&self.header(Command::WindowTell, now), 0, out, at);
        }
    }

    fn put_data(&mut self, now: Time, out: &mut [u8], made: &mut Made) {
        let own = self.detector.next_order();
        self.put_own(now, out, made);
        if made.has_data && self.lost.is_empty() && !self.send.has_unsent() {
            self.put_copies(now, own, out, made);
        }
    }

    /// Fills what is left of a datagram with small segments of earlier ones; its own begin with order `own`.
    fn put_copies(&mut self, now: Time, own: u64, out: &mut [u8], made: &mut Made) {
        let start = made.length;
        let mut last = None;
        loop {
            let send = &self.send;
            let size = |order, sn| {
                let flight = send.flight(sn).filter(|_| send.is_out(order, sn))?;
                Some(flight.wire() as usize)
            };
            let room = (out.len() - made.length, made.length - start);
            let Some((order, sn)) = self.echo.take(own, last, room, size) else {
                break;
            };
            last = Some(order);
            let mut header = self.header(Command::Push, now);
            if let Some(flight) = self.send.flight_mut(sn) {
                flight.copied = Some(now);
                header.sn = sn;
                header.fragment = flight.fragment;
                let length = usize::from(flight.length);
                self.put_payload(&header, length, out, made);
            }
        }
    }

    fn put_own(&mut self, now: Time, out: &mut [u8], made: &mut Made) {
        while self.pace_allows(now)
            && let Some(&sn) = self.lost.front()
        {
            let Some(flight) = self.send.flight(sn).filter(|_| self.is_lost(sn)) else {
                self.lost.pop_front();
                continue;
            };
            if made.length + HEADER + usize::from(flight.length) > out.len() {
                return;
            }
            self.lost.pop_front();
            self.put_segment(now, sn, out, made);
        }
        if self.lost.is_empty() && self.lost.capacity() > 64 {
            self.lost = VecDeque::new();
        }
        while self.new_allowed(now)
            && self.pace_allows(now)
            && self
                .send
                .peek_new()
                .is_some_and(|size| made.length + size <= out.len())
            && let Some(sn) = self.send.cut()
        {
            self.put_segment(now, sn, out, made);
        }
    }

    /// Sends a segment in flight, for the first time or again.
    fn put_segment(&mut self, now: Time, sn: Sn, out: &mut [u8], made: &mut Made) {
        let mut header = self.header(Command::Push, now);
        let mut rto = self.rtt.rto();
        if self.pacer.as_ref().is_some_and(|pacer| pacer.is_bulk()) {
            // The queue that bulk data makes can double the round trip within one; losses are told by other rules there.
            rto += self.rtt.smoothed().unwrap_or(rto);
        }
        let step = if self.config.mode.nodelay {
            rto / 2
        } else {
            rto
        };
        let Some(flight) = self.send.flight_mut(sn) else {
            return;
        };
        match flight.standing {
            Standing::Lost(Loss::Fast) => self.counters.fast_retrans_segs += 1,
            Standing::Lost(Loss::Early) => self.counters.early_retrans_segs += 1,
            Standing::Lost(Loss::Timeout) => self.counters.lost_segs += 1,
            Standing::Sent | Standing::Acked => {}
        }
        self.counters.retrans_segs += u64::from(flight.sends > 0);
        let timeout = (rto + step * flight.backoff).min(RTT_BELIEVED);
        flight.order = self.detector.sent(sn, now + timeout);
        flight.standing = Standing::Sent;
        flight.sends += 1;
        if flight.silent_sends == 0 || flight.heard != self.heard {
            (flight.heard, flight.silent_sends, flight.silent_since) = (self.heard, 0, now);
        }
        flight.silent_sends += 1;
        flight.sent = now;
        flight.copied = None;
        if let Some(pacer) = &mut self.pacer {
            flight.stamp = pacer.sent(now, flight.wire());
        }
        header.sn = sn;
        header.fragment = flight.fragment;
        let (order, length) = (flight.order, usize::from(flight.length));
        if self.config.mode.nodelay {
            self.echo.sent(order, sn, length);
        }
        self.put_payload(&header, length, out, made);
        made.has_data = true;
    }

    fn put_payload(&mut self, header: &Header, length: usize, out: &mut [u8], made: &mut Made) {
        self.put_header(header, length, out, &mut made.length);
        self.send
            .copy(header.sn, &mut out[made.length..made.length + length]);
        made.length += length;
    }

    fn header(&self, command: Command, now: Time) -> Header {
        Header {
            conv: self.conv,
            command,
            fragment: 0,
            window: self.receiver.unused(),
            timestamp: now.wire(),
            sn: Sn(0),
            una: self.receiver.next(),
        }
    }

    fn put_header(&mut self, header: &Header, payload: usize, out: &mut [u8], at: &mut usize) {
        header.write(payload, &mut out[*at..*at + HEADER]);
        *at += HEADER;
        self.counters.out_segs += 1;
    }
}

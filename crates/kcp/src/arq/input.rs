//! What comes in: segments are sorted by command, acknowledgements move the send side, payload goes to the receive side,
//! and what later deliveries have overtaken is marked as lost.

use std::time::Duration;

use super::{
    Arq, Command, HEADER, Header, Origin, Segments, Sn,
    recv::Arrival,
    rtt::RTT_BELIEVED,
    send::{Loss, Standing},
};
use crate::{InputError, Time};

impl Arq {
    /// Takes the segments of a datagram.
    ///
    /// On an error the segments before the broken one have been taken, as kcp-go does.
    pub fn handle_input(
        &mut self,
        now: Time,
        datagram: &[u8],
        origin: Origin,
    ) -> Result<(), InputError> {
        if datagram.len() < HEADER {
            return Err(InputError::Short);
        }
        let una = self.send.una();
        let mut rtt = None;
        let mut result = Ok(());
        for segment in Segments::new(datagram) {
            match segment {
                Ok((header, payload)) if header.conv == self.conv => {
                    rtt = self.handle_segment(now, &header, payload, origin).or(rtt);
                }
                Ok(_) => {
                    result = Err(InputError::Conversation);
                    break;
                }
                Err(error) => result = Err(error),
            }
        }
        if let (Origin::Wire, Some(rtt)) = (origin, rtt) {
            self.rtt
                .sample(rtt, self.config.mode.interval, self.config.mode.nodelay);
            if let Some(pacer) = &mut self.pacer {
                pacer.rtt(now, rtt);
            }
        }
        if let Some(pacer) = &mut self.pacer {
            pacer.acknowledged(now);
        }
        if self.send.una() != una {
            self.send.release();
            if self.has_congestion_window() {
                self.windows.on_progress(self.mss());
            }
        }
        self.detect_overtaken(now);
        let (send, detector) = (&self.send, &mut self.detector);
        detector.tidy(send.in_flight(), |order, sn| send.is_out(order, sn));
        if self.send.in_flight() == 0 {
            self.echo.clear();
        }
        self.probe
            .set(self.windows.peer_closed() && self.send.segments() > 0, now);
        if self.acks.len() >= self.mtu / HEADER {
            // One datagram's worth: on a path shorter than the interval this is what clocks the sender.
            self.acks.hurry(now);
        }
        result
    }

    fn handle_segment(
        &mut self,
        now: Time,
        header: &Header,
        payload: &[u8],
        origin: Origin,
    ) -> Option<Duration> {
        self.counters.in_segs += 1;
        self.heard += 1;
        self.probe.heard();
        let rtt = match header.command {
            Command::Ack => self.on_ack(now, header.sn, header.timestamp),
            Command::Push => {
                self.on_push(now, header, payload, origin);
                None
            }
            Command::WindowAsk => {
                self.receiver.ask_tell();
                None
            }
            Command::WindowTell => None,
        };
        let progress = header.una.since(self.send.una());
        // A number never given is a lie, an old one comes from a datagram that was overtaken: neither says anything.
        if (0..=self.send.in_flight() as i64).contains(&i64::from(progress)) {
            if origin == Origin::Wire {
                self.windows.set_peer(header.window);
            }
            if progress > 0 {
                self.tries.heard();
            }
            for _ in 0..progress {
                let Some(flight) = self.send.pop() else { break };
                if flight.standing == Standing::Acked {
                    continue;
                }
                let certain = flight.sends == 1;
                if certain {
                    self.detector
                        .delivered(flight.order, self.config.mode.resend);
                }
                if let Some(pacer) = &mut self.pacer {
                    let out = flight.standing == Standing::Sent;
                    let sample = certain.then_some((flight.sent, flight.stamp));
                    pacer.delivered(flight.wire(), out, sample);
                }
            }
        }
        rtt
    }

    /// Returns the round-trip time that the acknowledgement tells.
    fn on_ack(&mut self, now: Time, sn: Sn, timestamp: u32) -> Option<Duration> {
        let mut rtt = Duration::from_millis(u64::from(now.wire().wrapping_sub(timestamp)));
        if let Some(flight) = self.send.flight_mut(sn) {
            if flight.standing == Standing::Acked {
                // Repeated: its time says nothing.
                return None;
            }
            let out = flight.standing == Standing::Sent;
            flight.standing = Standing::Acked;
            self.tries.heard();
            // The timestamp says which transmission arrived. Of an earlier one the order is not known any more.
            let certain = flight.sent.wire() == timestamp;
            if let Some(pacer) = &mut self.pacer {
                let sample = certain.then_some((flight.sent, flight.stamp));
                pacer.delivered(flight.wire(), out, sample);
            }
            if certain {
                rtt = now.since(flight.sent);
                let order = flight.order;
                self.detector.delivered(order, self.config.mode.resend);
            }
        }
        (rtt <= RTT_BELIEVED).then_some(rtt)
    }

    fn on_push(&mut self, now: Time, header: &Header, payload: &[u8], origin: Origin) {
        let arrival = self.receiver.insert(header.sn, header.fragment, payload);
        if arrival == Arrival::Beyond {
            return;
        }
        let delay = if self.config.ack_nodelay {
            Duration::ZERO
        } else {
            self.config.mode.interval / 2
        };
        self.acks.push(header.sn, header.timestamp, now, delay);
        if arrival == Arrival::Repeat && origin == Origin::Wire {
            self.counters.repeat_segs += 1;
        }
    }

    /// Marks as lost what later deliveries have overtaken: enough of them, or one and the reordering time has passed
    /// besides. The latter, which forgives reordering (RFC 8985 calls it RACK), is the only rule of paced sessions; others
    /// use it when nothing else is to be sent that could overtake.
    pub(super) fn detect_overtaken(&mut self, now: Time) {
        let by_time = self.pacer.is_some();
        let lost_before = if by_time {
            0
        } else {
            self.detector.lost_before(self.config.mode.resend)
        };
        let overtaken_before = self.detector.overtaken_before();
        let idle = by_time || !(self.send.has_unsent() && self.window_open());
        let reordering = if by_time {
            self.rtt.reordering_varied()
        } else {
            self.rtt.reordering()
        };
        let mut lost = 0;
        self.early = None;
        loop {
            let (send, detector) = (&self.send, &mut self.detector);
            let Some((order, sn)) = detector.oldest(|order, sn| send.is_out(order, sn)) else {
                break;
            };
            if order < lost_before {
                self.mark_lost(sn, Loss::Fast);
            } else if order < overtaken_before && idle {
                let sent = self.send.flight(sn).map_or(now, |flight| flight.sent);
                let due = sent + reordering;
                if due > now {
                    self.early = Some(due);
                    break;
                }
                self.mark_lost(sn, Loss::Early);
            } else {
                break;
            }
            lost += 1;
        }
        if lost > 0 && self.has_congestion_window() {
            self.windows
                .on_fast_loss(self.send.in_flight(), self.config.mode.resend, self.mss());
        }
    }
}

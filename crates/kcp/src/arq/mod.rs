//! ARQ: numbered segments, acknowledgements, retransmission. No socket, no clock, no FEC, no encryption.
//!
//! Call order: feed datagrams to [`Arq::handle_input`] and passed deadlines to [`Arq::handle_timeout`]; after either, and
//! after [`Arq::write`] or [`Arq::read`], call [`Arq::poll_transmit`] until it gives nothing, then [`Arq::poll_timeout`]
//! for the next deadline. No deadline means that nothing will happen by itself: an idle session has no timer.

mod ack;
mod echo;
mod input;
mod loss;
mod output;
mod pace;
mod recv;
mod rtt;
mod segment;
mod send;
mod share;
mod window;

use std::{collections::VecDeque, time::Duration};

use self::{
    ack::Acks,
    echo::Echo,
    loss::LossDetector,
    pace::Pacer,
    recv::Receiver,
    rtt::Rtt,
    send::{Loss, SendBuffer, Standing},
    window::{Probe, Tries, Windows},
};
pub use self::{
    segment::{Command, Conv, HEADER, Header, Segments, Sn},
    share::Rounds,
};
use crate::{Config, Control, Counters, SendError, Time};

/// How a datagram's bytes came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// From the network.
    Wire,
    /// Recovered by FEC: late, so it says nothing about the peer's window or the round trip.
    Recovered,
}

/// A datagram made by [`Arq::poll_transmit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made {
    /// Its bytes.
    pub length: usize,
    /// Whether it carries payload; if not, only acknowledgements and window messages.
    pub has_data: bool,
}

/// One end of a KCP conversation.
#[derive(Debug)]
pub struct Arq {
    conv: Conv,
    config: Config,
    /// Bytes of a datagram for segments, headers included.
    mtu: usize,
    send: SendBuffer,
    /// Lost segments, to be sent again; acknowledged ones are skipped.
    lost: VecDeque<Sn>,
    detector: LossDetector,
    echo: Echo,
    windows: Windows,
    /// With paced control.
    pacer: Option<Box<Pacer>>,
    probe: Probe,
    rtt: Rtt,
    receiver: Receiver,
    acks: Acks,
    /// With write delay: until when new data waits.
    hold: Option<Time>,
    /// When the oldest overtaken segment counts as lost.
    early: Option<Time>,
    tries: Tries,
    /// Segments that the peer sent.
    heard: u64,
    dead: bool,
    pub(crate) counters: Counters,
}

impl Arq {
    /// A new end. `mtu` is what segments may take of a datagram: more than [`HEADER`] and at most 65535 bytes. Both ends
    /// must use the same `conv`. The configuration's own `mtu` is not looked at.
    pub fn new(conv: Conv, config: Config, mtu: usize) -> Self {
        let mtu = mtu.clamp(HEADER + 1, usize::from(u16::MAX));
        Self {
            conv,
            mtu,
            pacer: pacer(&config, mtu, 0),
            send: SendBuffer::new(),
            lost: VecDeque::new(),
            detector: LossDetector::new(),
            echo: Echo::default(),
            windows: Windows::new(config.send_window),
            probe: Probe::default(),
            rtt: Rtt::new(),
            receiver: Receiver::new(config.recv_window),
            acks: Acks::default(),
            hold: None,
            early: None,
            tries: Tries::default(),
            heard: 0,
            dead: false,
            counters: Counters::default(),
            config,
        }
    }

    /// Takes other options; `mtu` as in [`Self::new`]. What is in flight or queued keeps its size.
    pub fn reconfigure(&mut self, config: Config, mtu: usize) {
        self.windows.ours = config.send_window;
        self.receiver.set_window(config.recv_window);
        self.mtu = mtu.clamp(HEADER + 1, usize::from(u16::MAX));
        if self.config.control != config.control {
            self.pacer = pacer(&config, self.mtu, self.send.outstanding());
        }
        self.config = config;
    }

    /// Takes bytes to be sent: as many as there is room for, possibly none. With `stream` off, each call starts a
    /// segment. An error means that nothing will ever be taken again.
    pub fn write(&mut self, now: Time, data: &[u8]) -> Result<usize, SendError> {
        if self.dead {
            return Err(SendError::Closed);
        }
        self.start_hold(now);
        let taken = self
            .send
            .write(data, self.mss(), self.queue_limit(), self.config.stream);
        self.counters.bytes_sent += taken as u64;
        self.probe
            .set(self.windows.peer_closed() && self.send.segments() > 0, now);
        Ok(taken)
    }

    /// Takes a message to be sent as fragments, which C peers put together again; kcp-go's own senders never fragment.
    pub fn write_message(&mut self, now: Time, data: &[u8]) -> Result<(), SendError> {
        if self.dead {
            return Err(SendError::Closed);
        }
        self.start_hold(now);
        self.send
            .write_message(data, self.mss(), self.queue_limit())?;
        self.counters.bytes_sent += data.len() as u64;
        self.probe
            .set(self.windows.peer_closed() && self.send.segments() > 0, now);
        Ok(())
    }

    /// Whether [`Self::write`] would take at least one byte.
    pub fn is_writable(&self) -> bool {
        !self.dead && self.send.segments() < self.queue_limit()
    }

    /// Whether [`Self::write`] would take a good part of the window: when to wake a writer that waits.
    pub fn has_room(&self) -> bool {
        let enough = (self.config.send_window as usize / 2).max(1);
        !self.dead && self.send.segments() + enough <= self.queue_limit()
    }

    /// Whether reading has opened a full window, which the peer waits to hear: call [`Self::poll_transmit`].
    pub fn has_window_news(&self) -> bool {
        self.receiver.wants_tell()
    }

    /// Whether the peer has acknowledged all that was written.
    pub fn is_flushed(&self) -> bool {
        self.send.segments() == 0
    }

    /// Copies received bytes, without regard to message bounds. Returns how many; 0 when there are none yet.
    pub fn read(&mut self, out: &mut [u8]) -> usize {
        let count = self.receiver.read(out);
        self.counters.bytes_received += count as u64;
        count
    }

    /// Bytes that [`Self::read`] would give now.
    pub fn readable(&self) -> usize {
        self.receiver.readable()
    }

    /// Appends the next whole message to `out` and returns its length; `None` when there is none yet. A message larger
    /// than the receive window can hold is an error, as it could never become whole; it can still be read as bytes.
    pub fn read_message(&mut self, out: &mut Vec<u8>) -> Result<Option<usize>, SendError> {
        if self.receiver.stuck() {
            return Err(SendError::Size);
        }
        let Some(length) = self.receiver.message() else {
            return Ok(None);
        };
        let start = out.len();
        out.resize(start + length, 0);
        self.read(&mut out[start..]);
        Ok(Some(length))
    }

    /// Answers at once what waits to be acknowledged: for an end that is about to go, as its peer would wait for that in vain.
    pub fn answer_now(&mut self, now: Time) {
        self.acks.hurry(now);
    }

    /// When [`Self::handle_timeout`] wants to be called, if no input comes first. Give it after `poll_transmit` has
    /// given nothing more; `None`: never.
    pub fn poll_timeout(&mut self) -> Option<Time> {
        if self.dead {
            return None;
        }
        let (send, detector) = (&self.send, &mut self.detector);
        let retransmit = detector
            .next_timeout(|order, sn| send.is_out(order, sn))
            .map(|(at, _)| at);
        let retransmit = self.tries.delay(self.config.mode.resend, retransmit);
        [
            retransmit,
            self.pace_due(),
            self.acks.due(),
            self.early,
            self.hold,
            self.probe.due(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Acts on the deadlines that have passed.
    pub fn handle_timeout(&mut self, now: Time) {
        let mut timed_out = false;
        while self.tries.allow(self.config.mode.resend, now) {
            let (send, detector) = (&self.send, &mut self.detector);
            let Some((_, sn)) = detector
                .next_timeout(|order, sn| send.is_out(order, sn))
                .filter(|&(deadline, _)| deadline <= now)
            else {
                break;
            };
            if let Some(later) = self.copied_until(sn).filter(|later| *later > now) {
                self.detector.put_off(later);
                continue;
            }
            // Only silence is death: a peer whose window is closed says nothing of segments, but answers probes.
            let silent = self
                .send
                .flight(sn)
                .filter(|flight| flight.heard == self.heard);
            self.dead |= silent.is_some_and(|flight| {
                flight.silent_sends >= self.config.dead_link
                    && now.since(flight.silent_since) >= self.config.dead_silence
            });
            self.mark_lost(sn, Loss::Timeout);
            self.tries.spent(now + self.rtt.rto());
            timed_out = true;
        }
        if timed_out && self.has_congestion_window() {
            self.windows.on_timeout(self.mss());
        }
        self.dead |= self.probe.expire(now) > self.config.dead_link;
        self.detect_overtaken(now);
    }

    /// Whether the peer has not answered for so long that the session is over.
    pub fn is_dead(&self) -> bool {
        self.dead
    }

    /// The conversation's number.
    pub fn conv(&self) -> Conv {
        self.conv
    }

    /// The options in use.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Bytes that segments may take of a datagram.
    pub fn mtu(&self) -> usize {
        self.mtu
    }

    /// The retransmission timeout.
    pub fn rto(&self) -> Duration {
        self.rtt.rto()
    }

    /// The smoothed round-trip time, once one was measured.
    pub fn srtt(&self) -> Option<Duration> {
        self.rtt.smoothed()
    }

    /// The mean deviation of the round-trip time.
    pub fn rtt_variation(&self) -> Duration {
        self.rtt.variation()
    }

    /// Segments written and not acknowledged.
    pub fn unacknowledged(&self) -> usize {
        self.send.segments()
    }

    /// Segments written that have not been sent once.
    pub fn unsent(&self) -> usize {
        self.send.segments() - self.send.in_flight()
    }

    /// Round trips so far, where sending is paced, and those of them whose losses may be of a queue that was full.
    pub(crate) fn rounds(&self) -> Option<Rounds> {
        self.pacer.as_ref().map(|pacer| pacer.rounds())
    }

    /// Segments that were sent again.
    pub fn retransmitted(&self) -> u64 {
        self.counters.retrans_segs
    }

    /// What happened so far, and how full the queues are.
    pub fn counters(&self) -> Counters {
        Counters {
            ring_buffer_snd_queue: (self.send.segments() - self.send.in_flight()) as u64,
            ring_buffer_snd_buffer: self.send.in_flight() as u64,
            ring_buffer_rcv_queue: self.receiver.queued() as u64,
            ..self.counters.clone()
        }
    }

    /// Payload bytes of a full segment.
    fn mss(&self) -> usize {
        self.mtu - HEADER
    }

    /// Segments in flight and queued: twice the window, so that acknowledgements find data to let go.
    fn queue_limit(&self) -> usize {
        2 * self.config.send_window as usize
    }

    fn is_lost(&self, sn: Sn) -> bool {
        self.send
            .flight(sn)
            .is_some_and(|flight| matches!(flight.standing, Standing::Lost(_)))
    }

    fn start_hold(&mut self, now: Time) {
        if self.config.write_delay && !self.send.has_unsent() {
            self.hold = Some(now + self.config.mode.interval);
        }
    }

    /// Whether a new segment may go out.
    fn new_allowed(&self, now: Time) -> bool {
        let held = self.hold.is_some_and(|until| until > now)
            && self.send.segments() < self.config.send_window as usize;
        self.send.has_unsent() && !held && self.window_open()
    }

    fn window_open(&self) -> bool {
        self.send.in_flight() < self.windows.limit(self.has_congestion_window())
            && self.pacer.as_ref().is_none_or(|pacer| pacer.has_room())
    }

    /// Reno's window; pacing replaces it.
    fn has_congestion_window(&self) -> bool {
        self.pacer.is_none() && self.config.mode.congestion_control
    }

    /// Whether pacing lets a segment go now.
    fn pace_allows(&self, now: Time) -> bool {
        self.pacer.as_ref().is_none_or(|pacer| pacer.is_due(now))
    }

    /// When a segment may go that only pacing holds back.
    fn pace_due(&self) -> Option<Time> {
        let waits = !self.lost.is_empty()
            || (self.hold.is_none() && self.send.has_unsent() && self.window_open());
        self.pacer
            .as_ref()
            .filter(|_| waits)
            .map(|pacer| pacer.due())
    }

    fn mark_lost(&mut self, sn: Sn, loss: Loss) {
        if let Some(flight) = self.send.flight_mut(sn) {
            if let (Some(pacer), Standing::Sent) = (&mut self.pacer, flight.standing) {
                pacer.lost(flight.wire());
            }
            flight.standing = Standing::Lost(loss);
            flight.backoff = if loss == Loss::Timeout {
                flight.backoff.saturating_add(1)
            } else {
                0
            };
            self.lost.push_back(sn);
            self.echo.lost();
        }
    }

    /// When the last copy of a segment times out, if it has any.
    fn copied_until(&self, sn: Sn) -> Option<Time> {
        let copied = self.send.flight(sn)?.copied?;
        Some(copied + self.rtt.rto())
    }
}

fn pacer(config: &Config, mtu: usize, outstanding: u64) -> Option<Box<Pacer>> {
    (config.control == Control::Paced)
        .then(|| Box::new(Pacer::new(mtu, config.mode.interval / 2, outstanding)))
}

#[cfg(test)]
mod tests;

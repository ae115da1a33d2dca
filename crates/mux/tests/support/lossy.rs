//! A transport that loses packets and keeps their order, as TCP and KCP do: what comes behind a lost packet waits until that has come
//! again. It fills its path however much is lost; a congestion control that does not would hide what windows do.

use std::{collections::VecDeque, time::Duration};

use super::Rng;

/// What a path is like, in one direction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    /// Bytes per second.
    pub(crate) rate: u64,
    /// Half a round trip where nothing waits.
    pub(crate) delay: Duration,
    /// Packets of a thousand that are lost.
    pub(crate) loss: usize,
    /// Bytes that may wait for the path.
    pub(crate) queue: usize,
}

#[derive(Debug)]
pub(crate) struct Lossy {
    way: Way,
    rng: Rng,
    /// Departure, arrival in order, bytes.
    packets: VecDeque<(Duration, Duration, Vec<u8>)>,
    /// When the path has sent all that was given to it.
    free_at: Duration,
    arrived_at: Duration,
}

impl Lossy {
    pub(crate) fn new(way: Way, rng: Rng) -> Self {
        Self {
            way,
            rng,
            packets: VecDeque::new(),
            free_at: Duration::ZERO,
            arrived_at: Duration::ZERO,
        }
    }

    /// From now on it is another path; what is on its way arrives as it would have.
    pub(crate) fn change(&mut self, way: Way, rng: Rng) {
        self.way = way;
        self.rng = rng;
    }

    /// Takes what fits into the queue; tells how much.
    pub(crate) fn write(&mut self, bytes: &[u8], now: Duration) -> usize {
        let waiting = self.packets.iter().rev();
        let waiting = waiting.take_while(|(departs, _, _)| *departs > now);
        let waiting: usize = waiting.map(|(_, _, bytes)| bytes.len()).sum();
        let taken = bytes.len().min(self.way.queue.saturating_sub(waiting));
        for packet in bytes[..taken].chunks(PACKET) {
            self.send(packet, now);
        }
        taken
    }

    fn send(&mut self, packet: &[u8], now: Duration) {
        let time = Duration::from_nanos(packet.len() as u64 * 1_000_000_000 / self.way.rate);
        self.free_at = self.free_at.max(now) + time;
        let departs = self.free_at;
        let mut arrives = departs + self.way.delay;
        while self.rng.below(1000) < self.way.loss {
            arrives += self.way.delay * 2 + NOTICED;
            self.free_at += time;
        }
        self.arrived_at = self.arrived_at.max(arrives);
        self.packets
            .push_back((departs, self.arrived_at, packet.to_vec()));
    }

    /// What has arrived.
    pub(crate) fn read(&mut self, now: Duration) -> Vec<u8> {
        let mut out = Vec::new();
        while let Some((_, _, bytes)) = self.packets.pop_front_if(|(_, at, _)| *at <= now) {
            out.extend(bytes);
        }
        out
    }
}

const PACKET: usize = 1200;
/// How long a loss goes unnoticed, beside the round trip.
const NOTICED: Duration = Duration::from_millis(5);

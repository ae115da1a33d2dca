//! Acknowledgements that wait to be sent: of the segments that came, which numbers and timestamps to return, and when.
//!
//! An acknowledgement of a segment that came early is all the sender ever hears of it, until `una` passes; a datagram can
//! carry dozens, and when it is lost, the sender sends those segments again for nothing. So each datagram repeats those
//! of the one before that `una` has not covered since.

use std::{collections::VecDeque, time::Duration};

use super::segment::Sn;
use crate::Time;

/// Pending acknowledgements. At most [`Acks::LIMIT`]; a peer that sends faster than it lets us answer loses the oldest,
/// which `una` and its own retransmission repair.
#[derive(Debug, Default)]
pub(super) struct Acks {
    pending: VecDeque<(Sn, u32)>,
    /// What the last datagram carried for the first time.
    last: Vec<(Sn, u32)>,
    /// What the datagram being written is to repeat.
    repeat: Vec<(Sn, u32)>,
    due: Option<Time>,
}

impl Acks {
    /// Bounds what a flood of empty segments can make us remember: 32 KiB.
    const LIMIT: usize = 4096;

    /// Notes that `sn`, sent at the peer's `timestamp`, came. Answered within `delay` of the first one that waits.
    pub(super) fn push(&mut self, sn: Sn, timestamp: u32, now: Time, delay: Duration) {
        if self.pending.len() == Self::LIMIT {
            self.pending.pop_front();
        }
        self.pending.push_back((sn, timestamp));
        self.due.get_or_insert(now + delay);
    }

    /// Asks for an answer at once.
    pub(super) fn hurry(&mut self, now: Time) {
        if !self.pending.is_empty() {
            self.due = Some(now);
        }
    }

    /// When the answer must be on its way.
    pub(super) fn due(&self) -> Option<Time> {
        self.due
    }

    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }

    /// Starts a datagram. Only one that is sent anyway repeats anything. `next` is our `una`.
    pub(super) fn start_datagram(&mut self, next: Sn) {
        std::mem::swap(&mut self.last, &mut self.repeat);
        self.last.clear();
        if self.pending.is_empty() {
            self.last.append(&mut self.repeat);
        }
        self.repeat.retain(|(sn, _)| sn.since(next) >= 0);
    }

    /// Takes the next one worth sending. Numbers before `next` are covered by `una`; of those only the very last goes
    /// out, for its timestamp.
    pub(super) fn pop(&mut self, next: Sn) -> Option<(Sn, u32)> {
        if let Some(repeat) = self.repeat.pop() {
            return Some(repeat);
        }
        while let Some((sn, timestamp)) = self.pending.pop_front() {
            let last = self.pending.is_empty();
            if last {
                self.due = None;
                // A burst leaves a large buffer behind; an idle session must not keep it.
                if self.pending.capacity() > 64 {
                    self.pending = VecDeque::new();
                }
            }
            let early = sn.since(next) >= 0;
            if early {
                self.last.push((sn, timestamp));
            }
            if last || early {
                return Some((sn, timestamp));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledgements_that_una_covers_are_left_out_except_the_last() {
        let mut acks = Acks::default();
        for sn in [0, 1, 5, 2] {
            acks.push(Sn(sn), sn, Time::ZERO, Duration::from_millis(5));
        }
        assert_eq!(acks.due(), Some(Time::from_millis(5)));
        assert_eq!(acks.pop(Sn(3)), Some((Sn(5), 5)));
        assert_eq!(acks.pop(Sn(3)), Some((Sn(2), 2)));
        assert_eq!(acks.pop(Sn(3)), None);
        assert_eq!(acks.due(), None);
    }

    #[test]
    fn a_datagram_repeats_what_the_one_before_said_of_early_segments() {
        let mut acks = Acks::default();
        let mut datagram = |sns: &[u32], next| {
            for &sn in sns {
                acks.push(Sn(sn), 0, Time::ZERO, Duration::ZERO);
            }
            acks.start_datagram(Sn(next));
            std::iter::from_fn(|| acks.pop(Sn(next)).map(|(sn, _)| sn.0)).collect::<Vec<_>>()
        };
        assert_eq!(datagram(&[3, 4], 2), [3, 4]);
        assert_eq!(datagram(&[], 2), [0; 0], "nothing new, nothing repeated");
        assert_eq!(datagram(&[6], 4), [4, 6]);
        assert_eq!(datagram(&[7], 4), [6, 7], "once");
    }

    #[test]
    fn a_flood_is_bounded() {
        let mut acks = Acks::default();
        for sn in 0..100_000 {
            acks.push(Sn(sn), 0, Time::ZERO, Duration::ZERO);
        }
        assert_eq!(acks.len(), Acks::LIMIT);
    }
}

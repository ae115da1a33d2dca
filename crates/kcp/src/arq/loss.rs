//! Which segments in flight are lost, in O(1) for each acknowledgement.
//!
//! Every transmission gets a number, its *order*. A delivery of order `o` is evidence against all transmissions of lower
//! order that have not arrived: the path let a later one pass. KCP's rule "skipped by `resend` acknowledgements" becomes
//! "older than the `resend`-th highest order delivered". Transmissions are logged in order, so judging means to look at
//! the log's front only; and a retransmission, having an order of its own, is judged again like any other (kcp-go waits
//! for the timeout then).

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

use super::segment::Sn;
use crate::Time;

/// A bound for `resend`, and so for the work per acknowledgement.
const MAX_RESEND: usize = 32;

/// The transmissions of unacknowledged segments, the deliveries seen, and the timeouts to come.
#[derive(Debug)]
pub(super) struct LossDetector {
    next_order: u64,
    /// Transmissions by order. Those of acknowledged or resent segments stay until they reach the front.
    log: VecDeque<(u64, Sn)>,
    /// The highest orders delivered, descending; at most `MAX_RESEND`.
    delivered: Vec<u64>,
    /// Retransmission timeouts; stale ones stay until they come up or outnumber the others.
    timeouts: BinaryHeap<Reverse<(Time, u64, u32)>>,
}

impl LossDetector {
    pub(super) fn new() -> Self {
        Self {
            next_order: 1,
            log: VecDeque::new(),
            delivered: Vec::new(),
            timeouts: BinaryHeap::new(),
        }
    }

    /// The order that the next transmission gets.
    pub(super) fn next_order(&self) -> u64 {
        self.next_order
    }

    /// Notes a transmission of `sn` that times out at `deadline`, and gives its order.
    pub(super) fn sent(&mut self, sn: Sn, deadline: Time) -> u64 {
        let order = self.next_order;
        self.next_order += 1;
        self.log.push_back((order, sn));
        self.timeouts.push(Reverse((deadline, order, sn.0)));
        order
    }

    /// Notes that the transmission `order` arrived. `resend` is how many such make a loss.
    pub(super) fn delivered(&mut self, order: u64, resend: u32) {
        let keep = (resend as usize).clamp(1, MAX_RESEND);
        let at = self.delivered.partition_point(|&other| other > order);
        if at < keep && self.delivered.get(at) != Some(&order) {
            self.delivered.insert(at, order);
        }
        self.delivered.truncate(keep);
    }

    /// All transmissions of a lower order are lost. 0 when the rule is off or there were too few deliveries.
    pub(super) fn lost_before(&self, resend: u32) -> u64 {
        match (resend as usize).min(MAX_RESEND) {
            0 => 0,
            rank => self.delivered.get(rank - 1).copied().unwrap_or(0),
        }
    }

    /// All transmissions of a lower order have been overtaken once.
    pub(super) fn overtaken_before(&self) -> u64 {
        self.delivered.first().copied().unwrap_or(0)
    }

    /// The oldest transmission that `live` says is still out.
    pub(super) fn oldest(&mut self, mut live: impl FnMut(u64, Sn) -> bool) -> Option<(u64, Sn)> {
        while let Some(&(order, sn)) = self.log.front() {
            if live(order, sn) {
                return Some((order, sn));
            }
            self.log.pop_front();
        }
        None
    }

    /// The next timeout of a transmission that `live` says is still out.
    pub(super) fn next_timeout(
        &mut self,
        mut live: impl FnMut(u64, Sn) -> bool,
    ) -> Option<(Time, Sn)> {
        while let Some(&Reverse((deadline, order, sn))) = self.timeouts.peek() {
            if live(order, Sn(sn)) {
                return Some((deadline, Sn(sn)));
            }
            self.timeouts.pop();
        }
        None
    }

    /// Moves what [`Self::next_timeout`] gave last to `deadline`.
    pub(super) fn put_off(&mut self, deadline: Time) {
        if let Some(Reverse((_, order, sn))) = self.timeouts.pop() {
            self.timeouts.push(Reverse((deadline, order, sn)));
        }
    }

    /// Keeps stale entries from outnumbering live ones; `in_flight` is how many can be live.
    pub(super) fn tidy(&mut self, in_flight: usize, mut live: impl FnMut(u64, Sn) -> bool) {
        if in_flight == 0 {
            if self.log.capacity() + self.timeouts.capacity() > 0 {
                self.log = VecDeque::new();
                self.timeouts = BinaryHeap::new();
            }
            return;
        }
        let bound = 64 + 4 * in_flight;
        if self.timeouts.len() > bound {
            self.timeouts
                .retain(|&Reverse((_, order, sn))| live(order, Sn(sn)));
        }
        if self.log.len() > bound {
            self.log.retain(|&(order, sn)| live(order, sn));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threshold_is_the_nth_highest_delivery() {
        let mut detector = LossDetector::new();
        for sn in 0..6 {
            detector.sent(Sn(sn), Time::ZERO);
        }
        detector.delivered(3, 2);
        assert_eq!(
            (detector.lost_before(2), detector.overtaken_before()),
            (0, 3)
        );
        detector.delivered(3, 2);
        assert_eq!(detector.lost_before(2), 0, "one delivery counts once");
        detector.delivered(5, 2);
        assert_eq!(detector.lost_before(2), 3);
        detector.delivered(2, 2);
        assert_eq!(detector.lost_before(2), 3);
        assert_eq!(detector.lost_before(0), 0, "off");
    }

    #[test]
    fn stale_entries_are_bounded() {
        let mut detector = LossDetector::new();
        for _ in 0..10_000 {
            let last = detector.sent(Sn(0), Time::ZERO);
            detector.tidy(1, |order, _| order == last);
        }
        assert!(detector.log.len() <= 68 && detector.timeouts.len() <= 68);
    }
}

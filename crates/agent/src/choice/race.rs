//! When the way in use has died, or none was tried yet: the others are asked while the best of them is dialled, a little after one another, and
//! the links go the first that answers (as RFC 8305 §5 has it for addresses). No silence is waited out to its end while another way works.

use std::time::Duration;

use super::{Choice, Way};

impl Choice {
    /// Whether links wait for any way that answers.
    pub(crate) fn is_racing(&self) -> bool {
        self.racing.is_some()
    }

    /// The first answer to a probe; what the probe measures comes later.
    pub(crate) fn answered(&mut self, now: Duration, way: usize) {
        if let Some(way) = self.ways.get_mut(way) {
            way.answered_at = Some(now);
        }
    }

    /// A way to be asked beside the one that is dialled.
    pub(super) fn racer(&self, now: Duration) -> Option<usize> {
        let began = self.racing?;
        let waited = now.saturating_sub(began);
        let asked = |number: &usize| {
            let way = &self.ways[*number];
            let lately = |at: Duration| at >= began || now.saturating_sub(at) < AGAIN;
            way.probed_at.is_some_and(lately)
        };
        let others = self.others_than(self.current);
        let started = (1..).zip(others);
        started
            .take_while(|(place, _)| waited >= STAGGER * *place)
            .map(|(_, number)| number)
            .find(|number| !asked(number))
    }

    /// The way that has answered first while the one in use has not.
    pub(super) fn sooner(&self, now: Duration) -> Option<usize> {
        let began = self.racing?;
        let answered = |number: &usize| {
            let way = &self.ways[*number];
            way.answered_at
                .filter(|at| *at >= began && !way.is_refused(now))
        };
        let others = (0..self.ways.len()).filter(|number| *number != self.current);
        others
            .filter_map(|number| Some((answered(&number)?, number)))
            .min()
            .map(|(_, number)| number)
    }

    /// The other ways, the most promising first: those that work, rather of the other kind; then those that were not tried, then those that fail.
    pub(super) fn others_than(&self, number: usize) -> Vec<usize> {
        let kind = self.ways[number].traits.kind;
        let rank = |way: &Way| match (way.known.works, way.traits.kind == kind) {
            (Some(true), false) => 0,
            (None, false) => 1,
            (Some(true), true) => 2,
            (None, true) => 3,
            (Some(false), false) => 4,
            (Some(false), true) => 5,
        };
        let cost = |number: &usize| {
            let way = &self.ways[*number];
            way.cost(way.known.loss).unwrap_or(f64::MAX)
        };
        let mut others: Vec<usize> = (0..self.ways.len())
            .filter(|other| *other != number)
            .collect();
        others.sort_by(|one, other| {
            let ranks = rank(&self.ways[*one]).cmp(&rank(&self.ways[*other]));
            ranks.then(cost(one).total_cmp(&cost(other)))
        });
        others
    }
}

/// From one way to the next: RFC 8305 §5 recommends so much.
const STAGGER: Duration = Duration::from_millis(250);
/// A way is not asked again sooner: its last probe may not be over.
const AGAIN: Duration = Duration::from_secs(2);

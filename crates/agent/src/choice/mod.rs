//! Which of several ways to one server is used: a state machine without clock, socket or randomness. Time is an argument, a way is a number.
//!
//! Told are what probes, handshakes and the link in use have measured ([`Choice::worked`], [`Choice::failed`], [`Choice::measured`]). Asked are
//! which way to probe now ([`Choice::due`]), and whether to go another way ([`Choice::decide`]); both may be asked as often as one likes. Who
//! dials, probes and tells the user is left to `ways`.
//!
//! A way's cost is its round-trip time, raised by its loss, by how ill its transport bears loss, and by what was seen of its goodput. Losses that
//! come with a long queue are the link's own doing and do not count. The link moves at once when its way has failed, rather to a way of the
//! other kind (TCP or UDP), because networks block kinds; and until that one has answered the others are asked too (`race`). Else it moves to a way that costs clearly less, or to one that stands before it in
//! the user's order and costs no more, when that has been so for a while; and each move makes the next one wait longer. Where a busy link
//! loses packets and no transport of its kind does better, or one of the other kind bears losses too, the other kind is tried: its goodput then says
//! whether it was the path or the kind, and where the links stay.

mod race;
mod way;

use std::{fmt, time::Duration};

pub(crate) use way::{Figures, Kind, Known, Traits};
use way::{LOSSY, Way};

/// A move.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Move {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) reason: Reason,
}

/// Why the link moves, with the figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Reason {
    /// The way in use does not work.
    Failed { to: Known },
    /// Another has answered before the way that the links were to go.
    Sooner { to: Known },
    /// Another costs clearly less.
    Better { from: Known, to: Known },
    /// One that the user prefers costs no more.
    Preferred { from: Known, to: Known },
    /// Another was seen to carry more, on a path that loses packets.
    More { from: Known, to: Known },
    /// The way in use loses packets while it is busy, and what another of the other kind carries is not known.
    Trial { from: Known, to: Known },
}

#[derive(Debug)]
pub(crate) struct Choice {
    ways: Vec<Way>,
    current: usize,
    moved_at: Duration,
    /// Where the links came from, if neither a failure nor a clear gain made them leave it.
    back: Option<usize>,
    /// How long the next voluntary move has to wait after the last; nothing before the first.
    patience: Duration,
    moves: u64,
    /// Since when links wait for any way that answers.
    racing: Option<Duration>,
}

impl Choice {
    /// Ways in the user's order, at least one.
    pub(crate) fn new(ways: impl IntoIterator<Item = Traits>, first: usize, now: Duration) -> Self {
        let way = |traits| Way::new(traits, now, now + FIRST_PROBE);
        Self {
            ways: ways.into_iter().map(way).collect(),
            current: first,
            moved_at: now,
            back: None,
            patience: Duration::ZERO,
            moves: 0,
            racing: Some(now + HEAD_START),
        }
    }

    /// The way to use.
    pub(crate) fn current(&self) -> usize {
        self.current
    }

    pub(crate) fn known(&self, way: usize) -> Known {
        self.ways[way].known
    }

    /// Moves so far.
    pub(crate) fn moves(&self) -> u64 {
        self.moves
    }

    /// Whether there is a way that is not known to fail.
    pub(crate) fn has_hope(&self) -> bool {
        self.ways.iter().any(|way| way.known.works != Some(false))
    }

    /// A probe or a handshake went well.
    pub(crate) fn worked(&mut self, now: Duration, way: usize, mut figures: Figures) {
        let in_use = way == self.current;
        let busy = &self.ways[self.current];
        let in_queue = if busy.is_busy(now) {
            busy.queue
        } else {
            Duration::ZERO
        };
        if let Some(rtt) = figures.rtt.as_mut().filter(|_| !in_use) {
            // It has waited in the queue that the link in use has filled; that it would be faster without one, this does not show.
            let least = busy.known.rtt.unwrap_or(*rtt).min(*rtt);
            *rtt = rtt.saturating_sub(in_queue).max(least);
        }
        let number = way;
        let Some(way) = self.ways.get_mut(number) else {
            return;
        };
        way.failures = 0;
        way.successes += 1;
        way.answered_at = Some(now);
        way.note(now, figures);
        if in_use {
            self.racing = None;
            way.refusals = 0;
        }
        // A way that has failed must show that it was no accident.
        let again = way.known.works == Some(false) && way.successes < CONFIRMED && !in_use;
        if again {
            way.probe_at = now + CONFIRM;
        } else {
            way.known.works = Some(true);
            way.probe_at = now + PROBE;
            self.look_again(now, number);
        }
    }

    /// A way that the user prefers and that seems a little worse is looked at again soon: how long answers take is also chance.
    fn look_again(&mut self, now: Duration, number: usize) {
        let ratios = self.ratios(number, self.current);
        let doubtful = ratios.is_some_and(|(least, _)| (NO_MORE..DOUBTFUL).contains(&least));
        let way = &mut self.ways[number];
        if number < self.current && doubtful && way.again < LOOKS {
            way.again += 1;
            way.probe_at = now + CONFIRM;
        } else {
            way.again = 0;
        }
    }

    /// A probe or a handshake failed, or the link in use hears nothing any more.
    pub(crate) fn failed(&mut self, now: Duration, way: usize) {
        let current = self.current == way;
        let Some(kind) = self.ways.get(way).map(|way| way.traits.kind) else {
            return;
        };
        // What was known of others of its kind may not be true any more.
        let others = self
            .ways
            .iter_mut()
            .filter(|other| other.traits.kind == kind);
        for other in others.filter(|other| current && other.known.works == Some(true)) {
            other.probe_at = now;
        }
        let way = &mut self.ways[way];
        way.successes = 0;
        way.failures += 1;
        if current {
            way.refuse(now);
            self.racing.get_or_insert(now);
        }
        way.better_since = None;
        way.known.works = Some(false);
        way.forget();
        let wait = RETRY.saturating_mul(1 << (way.failures - 1).min(8));
        way.probe_at = now + wait.min(PROBE);
    }

    /// What the link in use shows; it works.
    pub(crate) fn measured(&mut self, now: Duration, figures: Figures) {
        let way = &mut self.ways[self.current];
        way.known.works = Some(true);
        way.failures = 0;
        way.refusals = 0;
        way.note(now, figures);
        self.racing = None;
    }

    /// A way to be probed now; its next probe is counted from now. The way in use needs none. Several may be due at once.
    pub(crate) fn due(&mut self, now: Duration) -> Option<usize> {
        let current = self.current;
        let due = |(number, way): &(usize, &mut Way)| *number != current && way.probe_at <= now;
        let regular = self.ways.iter_mut().enumerate().find(due);
        let number = regular.map(|(number, _)| number);
        let number = number.or_else(|| self.racer(now))?;
        let way = &mut self.ways[number];
        way.probe_at = now + PROBE;
        way.probed_at = Some(now);
        Some(number)
    }

    /// Whether the link should go another way; from then on that is the current one.
    pub(crate) fn decide(&mut self, now: Duration) -> Option<Move> {
        self.forget_old(now);
        let from = self.current;
        if let Some(to) = self.sooner(now) {
            let to_known = self.ways[to].known;
            return Some(self.go(now, to, Reason::Sooner { to: to_known }));
        }
        if self.ways[from].known.works == Some(false) {
            let to = self.instead_of(from).or_else(|| self.least_failed())?;
            let to_known = self.ways[to].known;
            return Some(self.go(now, to, Reason::Failed { to: to_known }));
        }
        if self.is_on_trial(now) {
            return None;
        }
        let (to, reason) = self.found(now)?;
        let stayed = now.saturating_sub(self.moved_at);
        // A move that was no failure's and shows itself to be a mistake is taken back soon.
        let mistake = self.back == Some(to) && matches!(reason, Reason::Better { .. });
        let patience = if mistake {
            self.patience.min(PATIENCE)
        } else {
            self.patience
        };
        if stayed < patience {
            return None;
        }
        // Who moves often has to wait longer and longer; who has stayed for long begins anew.
        self.patience = if stayed > self.patience * 10 {
            PATIENCE
        } else {
            (self.patience * 2).clamp(PATIENCE, MOST_PATIENCE)
        };
        Some(self.go(now, to, reason))
    }

    /// The best of those that have been better for long enough; where none is better, one to be tried.
    fn found(&mut self, now: Duration) -> Option<(usize, Reason)> {
        let current = self.current;
        let numbers = 0..self.ways.len();
        let most = |number: usize| self.ratios(number, current).map(|(_, most)| most);
        let ratio = |number: usize| most(number).unwrap_or(f64::MAX);
        let better: Vec<bool> = numbers
            .clone()
            .map(|number| number != current && self.is_better(number, current))
            .collect();
        let none = !better.contains(&true);
        let trial: Vec<bool> = numbers
            .clone()
            .map(|number| none && self.is_worth_a_trial(now, number, current))
            .collect();
        let best = numbers
            .filter(|number| better[*number] || trial[*number])
            .filter(|number| {
                let since = self.ways[*number].better_since;
                since.is_some_and(|since| now.saturating_sub(since) >= HOLD)
            })
            // What is no clear gain goes by the user's order.
            .min_by(|one, other| {
                let gain = |number: usize| ratio(number).min(CLEARLY);
                gain(*one).total_cmp(&gain(*other))
            });
        let clearly = best.is_some_and(|to| ratio(to) < CLEARLY);
        for (number, way) in self.ways.iter_mut().enumerate() {
            if better[number] || trial[number] {
                way.better_since.get_or_insert(now);
            } else {
                way.better_since = None;
            }
        }
        let to = best?;
        let (from, known) = (self.ways[current].known, self.ways[to].known);
        let reason = match (trial[to], clearly) {
            (true, _) => Reason::Trial { from, to: known },
            (false, true) => Reason::Better { from, to: known },
            (false, false) if to < current => Reason::Preferred { from, to: known },
            (false, false) => Reason::More { from, to: known },
        };
        Some((to, reason))
    }

    /// Whether the way in use was to be tried, and it does not show yet what it carries: visitors who were there before stay on links of the old
    /// way until they end, and the first second of a transfer says little.
    fn is_on_trial(&self, now: Duration) -> bool {
        let way = &self.ways[self.current];
        way.tried_at == Some(self.moved_at)
            && way.busy_times < BUSY_TIMES
            && now.saturating_sub(self.moved_at) < TRIAL
    }

    /// Whether only trying can tell if it would carry more: the way in use is busy and loses packets, it may be of the kind that is throttled,
    /// and of the other one nothing is known.
    fn is_worth_a_trial(&self, now: Duration, to: usize, from: usize) -> bool {
        let (other, current) = (&self.ways[to], &self.ways[from]);
        let Some(goodput) = current.known.goodput.filter(|_| current.is_busy(now)) else {
            return false;
        };
        let lossy = current.known.loss.is_some_and(|loss| loss >= LOSSY);
        let mut alike = self
            .ways
            .iter()
            .filter(|way| way.traits.kind == other.traits.kind);
        let unknown = alike.all(|way| {
            let lately = |at: Duration| now.saturating_sub(at) <= REMEMBERED;
            way.known.goodput.is_none() && !way.tried_at.is_some_and(lately)
        });
        // On a path that loses packets by chance, who does not yield carries many times more than who does. If not, there is a limit. Of two who
        // do not yield, either may carry more: one repairs at the cost of bytes, the other at the cost of waiting.
        let limited = current.traits.yields
            || !other.traits.yields
            || self.ways.iter().any(|way| {
                let same = way.traits.kind == current.traits.kind && way.traits.yields;
                same && way.known.goodput.is_some_and(|other| other * 2.0 > goodput)
            });
        other.traits.kind != current.traits.kind
            && other.known.works == Some(true)
            && lossy
            && unknown
            && limited
    }

    fn is_better(&self, to: usize, from: usize) -> bool {
        let works = self.ways[to].known.works == Some(true);
        let ratios = self.ratios(to, from).filter(|_| works);
        let Some((least, most)) = ratios else {
            return false;
        };
        // A loaded link makes visitors wait for what it does not carry, a lossy one for what it has to send again.
        if self.carries_less(to, from) {
            return most < 1.0 / WORTH_IT;
        }
        let carries_more = self.carries_less(from, to);
        most < CLEARLY || to < from && least <= NO_MORE || carries_more && least <= WORTH_IT
    }

    /// Whether one way was seen to carry less than another, on a path that loses packets, where neither yields to that. Of two who do, such a
    /// difference would be chance, and a path that loses none is filled by all alike.
    fn carries_less(&self, one: usize, other: usize) -> bool {
        let (one, other) = (&self.ways[one], &self.ways[other]);
        let lossy = |way: &Way| way.known.loss.is_some_and(|loss| loss >= LOSSY);
        let alike = one.traits.yields || other.traits.yields;
        let carried = one.known.goodput.zip(other.known.goodput);
        !alike
            && lossy(one)
            && lossy(other)
            && carried.is_some_and(|(one, other)| one < other * AS_MUCH)
    }

    /// The cost of a way as a share of that of the one in use, at the least and at the most.
    fn ratios(&self, to: usize, from: usize) -> Option<(f64, f64)> {
        let (other, current) = (&self.ways[to], &self.ways[from]);
        let (other_loss, loss) = (other.known.loss, current.known.loss);
        let losses = (other_loss.or(loss), loss.or(other_loss));
        let ratio = other.cost(losses.0)? / current.cost(losses.1)?;
        let means = other.mean_cost(losses.0).zip(current.mean_cost(losses.1));
        let by_mean = means.map_or(ratio, |(other, current)| other / current);
        let gain = self.gain(to, from);
        Some((ratio.min(by_mean) / gain, ratio.max(by_mean) / gain))
    }

    /// How many times more the way has carried than the one in use, where both were busy.
    fn gain(&self, to: usize, from: usize) -> f64 {
        let tight = self.ways[to].tight;
        let (to, from) = (&self.ways[to].known, &self.ways[from].known);
        match to.goodput.zip(from.goodput) {
            Some((to, from)) if from > 0.0 && to > from * NOTABLE => (to / from).min(MOST_GAIN),
            // It might have carried more, unless it was seen at its end.
            Some((to, from)) if tight && to > 0.0 && from > to * NOTABLE => {
                (to / from).max(1.0 / MOST_GAIN)
            }
            _ => 1.0,
        }
    }

    fn go(&mut self, now: Duration, to: usize, reason: Reason) -> Move {
        let from = std::mem::replace(&mut self.current, to);
        self.moved_at = now;
        self.moves += 1;
        if matches!(reason, Reason::Failed { .. } | Reason::Sooner { .. }) {
            self.racing = Some(now);
        }
        if matches!(reason, Reason::Sooner { .. }) {
            self.ways[to].known.works = Some(true);
        }
        let unsure = matches!(reason, Reason::Preferred { .. } | Reason::Trial { .. });
        self.back = unsure.then_some(from);
        if matches!(reason, Reason::Trial { .. }) {
            self.ways[to].tried_at = Some(now);
        }
        self.ways[to].busy_times = 0;
        for way in &mut self.ways {
            way.better_since = None;
        }
        Move { from, to, reason }
    }

    /// Where to go when a way has failed: one that works, rather of the other kind; one that was never tried is better than one that fails.
    fn instead_of(&self, failed: usize) -> Option<usize> {
        let fails = |number: &usize| self.ways[*number].known.works == Some(false);
        let others = self.others_than(failed);
        others.into_iter().find(|number| !fails(number))
    }

    /// Another one that has failed less often in a row than the current one, or as often and stands after it.
    fn least_failed(&self) -> Option<usize> {
        let key = |number: usize| (self.ways[number].failures, number);
        (0..self.ways.len())
            .min_by_key(|number| key(*number))
            .filter(|number| *number != self.current)
    }

    fn forget_old(&mut self, now: Duration) {
        for way in &mut self.ways {
            if now.saturating_sub(way.goodput_at) > REMEMBERED {
                way.known.goodput = None;
            }
            if now.saturating_sub(way.loss_at) > REMEMBERED {
                way.known.loss = None;
            }
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed { to } => write!(f, "the way in use does not work; the other: {to}"),
            Self::Sooner { to } => write!(f, "it has answered first: {to}"),
            Self::Better { from, to } => write!(f, "clearly better: {to}, instead of {from}"),
            Self::More { from, to } => write!(f, "carries more: {to}, instead of {from}"),
            Self::Preferred { from, to } => {
                write!(f, "preferred, and no worse: {to}, instead of {from}")
            }
            Self::Trial { from, to } => write!(
                f,
                "the way in use loses packets; whether the other carries more is tried: {to}, instead of {from}"
            ),
        }
    }
}

/// After the start: the ways that are not used are looked at soon.
const FIRST_PROBE: Duration = Duration::from_secs(2);
/// What the way that the user prefers has before others are asked: a slow start is no reason to begin elsewhere.
const HEAD_START: Duration = Duration::from_millis(750);
/// Between two probes of a way that is not in use: some kilobytes each.
const PROBE: Duration = Duration::from_secs(60);
/// From a failure to the next probe; doubles up to [`PROBE`].
const RETRY: Duration = Duration::from_secs(5);
/// From a success after failures to the probe that confirms it.
const CONFIRM: Duration = Duration::from_secs(2);
const CONFIRMED: u32 = 2;
/// A cost up to this share of the current one may be chance; then there are up to so many probes more, each after [`CONFIRM`].
const DOUBTFUL: f64 = 3.0;
const LOOKS: u32 = 3;
/// How long a way must have been the better one.
const HOLD: Duration = Duration::from_secs(5);
/// Between two voluntary moves, at first and at most.
const PATIENCE: Duration = Duration::from_secs(10);
const MOST_PATIENCE: Duration = Duration::from_secs(600);
/// How long a trial waits for visitors to use the way, and how many times it must have been seen busy.
const TRIAL: Duration = Duration::from_secs(45);
const BUSY_TIMES: u32 = 5;
/// A cost below this share of the current one is clearly less.
const CLEARLY: f64 = 0.7;
/// A cost up to this share of the current one is no more, as far as measurements go.
const NO_MORE: f64 = 1.15;
/// A cost up to this share of the current one is not too much for a way that carries more.
const WORTH_IT: f64 = 2.0;
/// Goodput from this share of another on is as much, as far as measurements go.
const AS_MUCH: f64 = 0.9;
/// Goodput that is this much higher counts, up to as many times.
const NOTABLE: f64 = 1.5;
const MOST_GAIN: f64 = 4.0;
/// How long a goodput counts.
const REMEMBERED: Duration = Duration::from_secs(600);

#[cfg(test)]
mod busy;
#[cfg(test)]
mod tests;

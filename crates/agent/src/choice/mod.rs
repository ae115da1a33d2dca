//! Which of several ways to one server is used: a state machine without clock, socket or randomness. Time is an argument, a way is a number.
//!
//! Told are what probes, handshakes and the link in use have measured ([`Choice::worked`], [`Choice::failed`], [`Choice::measured`]). Asked are
//! which way to probe now ([`Choice::due`]), and whether to go another way ([`Choice::decide`]); both may be asked as often as one likes. Who
//! dials, probes and tells the user is left to `ways`.
//!
//! A way's cost is its round-trip time, raised by its loss, by how ill its transport bears loss, and by what was seen of its goodput. The link
//! moves at once when its way has failed. Else it moves to a way that costs clearly less, or to one that stands before it in the user's
//! order and costs no more, when that has been so for a while; and each move makes the next one wait longer.

use std::{fmt, time::Duration};

/// What is known of a transport before anything is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traits {
    /// What a loss of all packets would add to the cost, in multiples: one lost packet stops all streams of a TCP link, one of a QUIC link.
    pub(crate) loss_weight: f64,
    /// What it costs beside its time, as a factor: bytes, or work.
    pub(crate) burden: f64,
}

/// What was measured of a way.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Figures {
    /// Round-trip time.
    pub(crate) rtt: Option<Duration>,
    /// The share of packets that are lost, 0 to 1.
    pub(crate) loss: Option<f64>,
    /// Bytes per second while the link was busy.
    pub(crate) goodput: Option<f64>,
}

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
    /// Another costs clearly less.
    Better { from: Known, to: Known },
    /// One that the user prefers costs no more.
    Preferred { from: Known, to: Known },
}

/// What is known of a way, smoothed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Known {
    /// Whether it works; `None` before it was tried.
    pub(crate) works: Option<bool>,
    pub(crate) rtt: Option<Duration>,
    /// `None` where it cannot be measured: then it counts as that of the way it is compared with.
    pub(crate) loss: Option<f64>,
    /// Bytes per second, if it has been busy not long ago.
    pub(crate) goodput: Option<f64>,
}

#[derive(Debug)]
struct Way {
    traits: Traits,
    known: Known,
    goodput_at: Duration,
    loss_at: Duration,
    /// Probes in a row that failed, or worked.
    failures: u32,
    successes: u32,
    probe_at: Duration,
    /// Since when it would be the better one.
    better_since: Option<Duration>,
}

#[derive(Debug)]
pub(crate) struct Choice {
    ways: Vec<Way>,
    current: usize,
    moved_at: Duration,
    /// How long the next voluntary move has to wait after the last.
    patience: Duration,
    moves: u64,
}

impl Choice {
    /// Ways in the user's order, at least one.
    pub(crate) fn new(ways: impl IntoIterator<Item = Traits>, first: usize, now: Duration) -> Self {
        let way = |traits| Way {
            traits,
            known: Known::default(),
            goodput_at: Duration::ZERO,
            loss_at: Duration::ZERO,
            failures: 0,
            successes: 0,
            probe_at: now + FIRST_PROBE,
            better_since: None,
        };
        Self {
            ways: ways.into_iter().map(way).collect(),
            current: first,
            moved_at: now,
            patience: PATIENCE,
            moves: 0,
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
    pub(crate) fn worked(&mut self, now: Duration, way: usize, figures: Figures) {
        let in_use = way == self.current;
        let Some(way) = self.ways.get_mut(way) else {
            return;
        };
        way.failures = 0;
        way.successes += 1;
        way.note(now, figures);
        // A way that has failed must show that it was no accident.
        let again = way.known.works == Some(false) && way.successes < CONFIRMED && !in_use;
        if again {
            way.probe_at = now + CONFIRM;
        } else {
            way.known.works = Some(true);
            way.probe_at = now + PROBE;
        }
    }

    /// A probe or a handshake failed, or the link in use hears nothing any more.
    pub(crate) fn failed(&mut self, now: Duration, way: usize) {
        let Some(way) = self.ways.get_mut(way) else {
            return;
        };
        way.successes = 0;
        way.failures += 1;
        way.better_since = None;
        way.known.works = Some(false);
        let wait = RETRY.saturating_mul(1 << (way.failures - 1).min(8));
        way.probe_at = now + wait.min(PROBE);
    }

    /// What the link in use shows; it works.
    pub(crate) fn measured(&mut self, now: Duration, figures: Figures) {
        let way = &mut self.ways[self.current];
        way.known.works = Some(true);
        way.failures = 0;
        way.note(now, figures);
    }

    /// A way to be probed now; its next probe is counted from now. The way in use needs none.
    pub(crate) fn due(&mut self, now: Duration) -> Option<usize> {
        let current = self.current;
        let due = |(number, way): &(usize, &mut Way)| *number != current && way.probe_at <= now;
        let (number, way) = self.ways.iter_mut().enumerate().find(due)?;
        way.probe_at = now + PROBE;
        Some(number)
    }

    /// Whether the link should go another way; from then on that is the current one.
    pub(crate) fn decide(&mut self, now: Duration) -> Option<Move> {
        self.forget_old(now);
        let from = self.current;
        if self.ways[from].known.works == Some(false) {
            let to = self.best_other(|way| way.known.works == Some(true));
            // One that was never tried is better than one that fails; of those that all fail, each gets its turn.
            let to = to
                .or_else(|| self.first_other(|way| way.known.works.is_none()))
                .or_else(|| self.least_failed())?;
            let to_known = self.ways[to].known;
            return Some(self.go(now, to, Reason::Failed { to: to_known }));
        }
        let mut found = None;
        for to in 0..self.ways.len() {
            let better = to != from && self.is_better(to, from);
            let way = &mut self.ways[to];
            if !better {
                way.better_since = None;
                continue;
            }
            let since = *way.better_since.get_or_insert(now);
            if now.saturating_sub(since) >= HOLD && found.is_none() {
                found = Some(to);
            }
        }
        let to = found.filter(|_| now.saturating_sub(self.moved_at) >= self.patience)?;
        let (from_known, to_known) = (self.ways[from].known, self.ways[to].known);
        let reason = if self.ratio(to, from)? < CLEARLY {
            Reason::Better {
                from: from_known,
                to: to_known,
            }
        } else {
            Reason::Preferred {
                from: from_known,
                to: to_known,
            }
        };
        // Who moves often has to wait longer and longer; who has stayed for long begins anew.
        let stayed = now.saturating_sub(self.moved_at);
        self.patience = if stayed > self.patience * 10 {
            PATIENCE
        } else {
            (self.patience * 2).min(MOST_PATIENCE)
        };
        Some(self.go(now, to, reason))
    }

    fn is_better(&self, to: usize, from: usize) -> bool {
        let works = self.ways[to].known.works == Some(true);
        let ratio = self.ratio(to, from).filter(|_| works);
        ratio.is_some_and(|ratio| ratio < CLEARLY || to < from && ratio <= NO_MORE)
    }

    /// The cost of a way as a share of that of the one in use.
    fn ratio(&self, to: usize, from: usize) -> Option<f64> {
        let (other, current) = (&self.ways[to], &self.ways[from]);
        let (other_loss, loss) = (other.known.loss, current.known.loss);
        let cost = current.cost(loss.or(other_loss))?;
        Some(other.cost(other_loss.or(loss))? / cost / self.gain(to, from))
    }

    /// How many times more the way has carried than the one in use, where both were busy.
    fn gain(&self, to: usize, from: usize) -> f64 {
        let (to, from) = (&self.ways[to].known, &self.ways[from].known);
        match to.goodput.zip(from.goodput) {
            Some((to, from)) if from > 0.0 && to > from * NOTABLE => (to / from).min(MOST_GAIN),
            _ => 1.0,
        }
    }

    fn go(&mut self, now: Duration, to: usize, reason: Reason) -> Move {
        let from = std::mem::replace(&mut self.current, to);
        self.moved_at = now;
        self.moves += 1;
        for way in &mut self.ways {
            way.better_since = None;
        }
        Move { from, to, reason }
    }

    fn best_other(&self, which: impl Fn(&Way) -> bool) -> Option<usize> {
        let cost = |way: &Way| way.cost(way.known.loss).unwrap_or(f64::MAX);
        let others = self.ways.iter().enumerate();
        others
            .filter(|(number, way)| *number != self.current && which(way))
            .min_by(|(_, one), (_, other)| cost(one).total_cmp(&cost(other)))
            .map(|(number, _)| number)
    }

    fn first_other(&self, which: impl Fn(&Way) -> bool) -> Option<usize> {
        (0..self.ways.len()).find(|number| *number != self.current && which(&self.ways[*number]))
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

impl Way {
    fn note(&mut self, now: Duration, figures: Figures) {
        if let Some(rtt) = figures.rtt {
            self.known.rtt = Some(match self.known.rtt {
                Some(known) => known.mul_f64(1.0 - SMOOTH) + rtt.mul_f64(SMOOTH),
                None => rtt,
            });
        }
        if let Some(loss) = figures.loss {
            let loss = loss.clamp(0.0, 1.0);
            let known = self.known.loss.unwrap_or(loss);
            self.known.loss = Some(known + (loss - known) * SMOOTH);
            self.loss_at = now;
        }
        if let Some(goodput) = figures.goodput {
            // What it can carry is what it has carried at best, of late.
            let best = self
                .known
                .goodput
                .map_or(goodput, |known| goodput.max(known * FADE));
            self.known.goodput = Some(best);
            self.goodput_at = now;
        }
    }

    /// In seconds. `None` before anything was measured.
    fn cost(&self, loss: Option<f64>) -> Option<f64> {
        let rtt = self.known.rtt? + BASE;
        let loss = 1.0 + self.traits.loss_weight * loss.unwrap_or(0.0);
        Some(rtt.as_secs_f64() * loss * self.traits.burden)
    }
}

impl fmt::Display for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rtt {
            Some(rtt) => write!(f, "{:.1} ms", rtt.as_secs_f64() * 1e3)?,
            None => f.write_str("not measured")?,
        }
        if let Some(loss) = self.loss {
            write!(f, ", {:.1} % lost", loss * 100.0)?;
        }
        if let Some(goodput) = self.goodput {
            write!(f, ", {:.1} Mbit/s", goodput * 8.0 / 1e6)?;
        }
        Ok(())
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed { to } => write!(f, "the way in use does not work; the other: {to}"),
            Self::Better { from, to } => write!(f, "clearly better: {to}, instead of {from}"),
            Self::Preferred { from, to } => {
                write!(f, "preferred, and no worse: {to}, instead of {from}")
            }
        }
    }
}

/// After the start: the ways that are not used are looked at soon.
const FIRST_PROBE: Duration = Duration::from_secs(2);
/// Between two probes of a way that is not in use: some kilobytes each.
const PROBE: Duration = Duration::from_secs(60);
/// From a failure to the next probe; doubles up to [`PROBE`].
const RETRY: Duration = Duration::from_secs(5);
/// From a success after failures to the probe that confirms it.
const CONFIRM: Duration = Duration::from_secs(2);
const CONFIRMED: u32 = 2;
/// How long a way must have been the better one.
const HOLD: Duration = Duration::from_secs(5);
/// Between two voluntary moves, at first and at most.
const PATIENCE: Duration = Duration::from_secs(10);
const MOST_PATIENCE: Duration = Duration::from_secs(600);
/// A cost below this share of the current one is clearly less.
const CLEARLY: f64 = 0.7;
/// A cost up to this share of the current one is no more, as far as measurements go.
const NO_MORE: f64 = 1.15;
/// Added to round-trip times: differences far below what anybody notices count for little.
const BASE: Duration = Duration::from_millis(5);
/// A new measurement's share in what is known.
const SMOOTH: f64 = 0.3;
/// What is left of a goodput that is not reached again, per measurement.
const FADE: f64 = 0.9;
/// Goodput that is this much higher counts, up to as many times.
const NOTABLE: f64 = 1.5;
const MOST_GAIN: f64 = 4.0;
/// How long a goodput counts.
const REMEMBERED: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests;

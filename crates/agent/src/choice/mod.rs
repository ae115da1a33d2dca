//! Which of several ways to one server is used: a state machine without clock, socket or randomness. Time is an argument, a way is a number.
//!
//! Told are what probes, handshakes and the link in use have measured ([`Choice::worked`], [`Choice::failed`], [`Choice::measured`]). Asked are
//! which way to probe now ([`Choice::due`]), and whether to go another way ([`Choice::decide`]); both may be asked as often as one likes. Who
//! dials, probes and tells the user is left to `ways`.
//!
//! A way's cost is its round-trip time, raised by its loss, by how ill its transport bears loss, and by what was seen of its goodput. Losses that
//! come with a long queue are the link's own doing and do not count. The link moves at once when its way has failed, rather to a way of the
//! other kind (TCP or UDP), because networks block kinds. Else it moves to a way that costs clearly less, or to one that stands before it in
//! the user's order and costs no more, when that has been so for a while; and each move makes the next one wait longer. Where a busy link
//! loses packets and no transport of its kind does better, the other kind is tried: its goodput then says whether it was the path or the kind.

use std::{fmt, time::Duration};

/// What is known of a transport before anything is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traits {
    /// What a loss of all packets would add to the cost, in multiples: one lost packet stops all streams of a TCP link, one of a QUIC link.
    pub(crate) loss_weight: f64,
    /// What it costs beside its time, as a factor: bytes, or work.
    pub(crate) burden: f64,
    /// Whether it sends more slowly whenever a packet is lost, as Reno, CUBIC and most others do.
    pub(crate) yields: bool,
    pub(crate) kind: Kind,
}

/// What networks tell apart, and block or throttle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Tcp,
    Udp,
}

/// What was measured of a way.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Figures {
    /// Round-trip time.
    pub(crate) rtt: Option<Duration>,
    /// The longest one while the rest was measured.
    pub(crate) longest: Option<Duration>,
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
    /// The way in use loses packets while it is busy, and what another of the other kind carries is not known.
    Trial { from: Known, to: Known },
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
    /// Whether that goodput was all that the way could carry: packets were lost, or a queue stood.
    tight: bool,
    loss_at: Duration,
    /// The shortest round-trip time in this period and in the one before.
    least: [Option<Duration>; 2],
    period_at: Duration,
    /// What a queue has added to the last round-trip time.
    queue: Duration,
    tried_at: Option<Duration>,
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
    /// Where the links came from, if neither a failure nor a clear gain made them leave it.
    back: Option<usize>,
    /// How long the next voluntary move has to wait after the last; nothing before the first.
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
            tight: false,
            loss_at: Duration::ZERO,
            least: [None; 2],
            period_at: now,
            queue: Duration::ZERO,
            tried_at: None,
            failures: 0,
            successes: 0,
            probe_at: now + FIRST_PROBE,
            better_since: None,
        };
        Self {
            ways: ways.into_iter().map(way).collect(),
            current: first,
            moved_at: now,
            back: None,
            patience: Duration::ZERO,
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
        way.better_since = None;
        way.known.works = Some(false);
        // What was lost while it died, and how long answers took, says nothing of the time when it works again.
        way.known.loss = None;
        way.known.rtt = None;
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
            let to = self.instead_of(from).or_else(|| self.least_failed())?;
            let to_known = self.ways[to].known;
            return Some(self.go(now, to, Reason::Failed { to: to_known }));
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
        let ratio = |number: usize| self.ratio(number, current).unwrap_or(f64::MAX);
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
            .min_by(|one, other| ratio(*one).total_cmp(&ratio(*other)));
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
            (false, false) => Reason::Preferred { from, to: known },
        };
        Some((to, reason))
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
        // On a path that loses packets by chance, who does not yield carries many times more than who does. If not, there is a limit.
        let limited = current.traits.yields
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
        let unsure = matches!(reason, Reason::Preferred { .. } | Reason::Trial { .. });
        self.back = unsure.then_some(from);
        if matches!(reason, Reason::Trial { .. }) {
            self.ways[to].tried_at = Some(now);
        }
        for way in &mut self.ways {
            way.better_since = None;
        }
        Move { from, to, reason }
    }

    /// Where to go when a way has failed: one that works, rather of the other kind; one that was never tried is better than one that fails.
    fn instead_of(&self, failed: usize) -> Option<usize> {
        let kind = self.ways[failed].traits.kind;
        let rank = |way: &Way| match (way.known.works, way.traits.kind == kind) {
            (Some(true), false) => Some(0),
            (None, false) => Some(1),
            (Some(true), true) => Some(2),
            (None, true) => Some(3),
            (Some(false), _) => None,
        };
        let cost = |way: &Way| way.cost(way.known.loss).unwrap_or(f64::MAX);
        let others = self.ways.iter().enumerate();
        others
            .filter(|(number, _)| *number != failed)
            .filter_map(|(number, way)| Some((rank(way)?, cost(way), number)))
            .min_by(|one, other| one.0.cmp(&other.0).then(one.1.total_cmp(&other.1)))
            .map(|(_, _, number)| number)
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
        let busy = figures.goodput.is_some();
        let queue = figures.rtt.map(|rtt| self.queue(now, rtt, busy));
        let longest = figures.longest.map(|rtt| self.queue(now, rtt, busy));
        let queued = queue.max(longest).is_some_and(|queue| !queue.is_zero());
        self.queue = queue.unwrap_or_default();
        if let Some(rtt) = figures.rtt {
            // A busy link's own queue would be there on any way.
            let own = if busy { self.queue } else { Duration::ZERO };
            let rtt = rtt.saturating_sub(own);
            self.known.rtt = Some(match self.known.rtt {
                Some(known) => known.mul_f64(1.0 - SMOOTH) + rtt.mul_f64(SMOOTH),
                None => rtt,
            });
        }
        // What is lost from a queue that the link has filled would be lost on any way; and who yields could not fill it if the path lost much.
        if let Some(loss) = figures.loss.filter(|_| !queued || self.traits.yields) {
            let loss = if queued { 0.0 } else { loss.clamp(0.0, 1.0) };
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
            self.tight = queued || self.known.loss.is_some_and(|loss| loss >= LOSSY);
        }
    }

    fn is_busy(&self, now: Duration) -> bool {
        self.known.goodput.is_some() && now.saturating_sub(self.goodput_at) < RECENTLY
    }

    /// What a queue adds to the round-trip time; zero where it may be chance.
    fn queue(&mut self, now: Duration, rtt: Duration, busy: bool) -> Duration {
        // A link that is always busy may never see its path empty again.
        if !busy && now.saturating_sub(self.period_at) >= PERIOD {
            self.period_at = now;
            self.least = [None, self.least[0]];
        }
        let least = self.least[0].map_or(rtt, |least| least.min(rtt));
        self.least[0] = Some(least);
        let least = self.least[1].map_or(least, |before| before.min(least));
        if rtt > least.mul_f64(QUEUED) + BASE {
            rtt - least
        } else {
            Duration::ZERO
        }
    }

    /// In seconds. `None` before anything was measured.
    fn cost(&self, loss: Option<f64>) -> Option<f64> {
        let rtt = self.known.rtt? + BASE;
        let loss = loss.unwrap_or(0.0);
        let slowed = if self.traits.yields {
            BULK * loss.sqrt()
        } else {
            0.0
        };
        let trips = 1.0 + self.traits.loss_weight * loss + slowed;
        Some(rtt.as_secs_f64() * trips * self.traits.burden)
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
            Self::Trial { from, to } => write!(
                f,
                "the way in use loses packets; whether the other carries more is tried: {to}, instead of {from}"
            ),
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
/// Round trips that a short transfer of 32 KiB needs more, by the root of the loss, where the transport yields to it: a sender that halves its rate
/// for each loss carries 1.22 packets of 1400 bytes per round trip over the root of the loss (Mathis et al. 1997), so 32 KiB / (1.22 × 1400).
const BULK: f64 = 19.2;
/// A loss from which on something is wrong with the path, or with how it treats this kind of packets.
const LOSSY: f64 = 0.002;
/// A round-trip time so many times the shortest one shows a queue.
const QUEUED: f64 = 1.4;
/// How long the shortest round-trip time counts, up to twice that.
const PERIOD: Duration = Duration::from_secs(60);
/// How long a link counts as busy.
const RECENTLY: Duration = Duration::from_secs(5);
/// What is left of a goodput that is not reached again, per measurement.
const FADE: f64 = 0.9;
/// Goodput that is this much higher counts, up to as many times.
const NOTABLE: f64 = 1.5;
const MOST_GAIN: f64 = 4.0;
/// How long a goodput counts.
const REMEMBERED: Duration = Duration::from_secs(600);

#[cfg(test)]
mod busy;
#[cfg(test)]
mod tests;

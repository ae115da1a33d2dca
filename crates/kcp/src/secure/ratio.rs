//! How much parity: it follows the loss that the peer reports, up at once and down slowly.
//!
//! What a full queue loses is no reason for parity, which only fills it more: it is sent again, slower. So a report waits until the
//! round trip is over in which it came, and is left out when the sender's model of the path says that the queue may have been full.

use std::time::Duration;

use super::fec::{GROUP, MOST_PARITY};
use crate::{Time, arq::Rounds};

/// What the user wants of FEC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum FecPolicy {
    /// No parity.
    Off,
    /// As much as measured loss asks for: none on a path that loses nothing.
    #[default]
    Auto,
    /// As `Auto`, but never less than two packets per group.
    On,
}

/// Below this share nothing is done about loss: sending again is cheaper.
const NEGLIGIBLE: f64 = 0.003;
/// A group may be beyond repair this often.
const BEYOND_REPAIR: f64 = 0.05;
/// A report about fewer packets waits for more.
const SAMPLE: u64 = 64;
/// The weight of a report about [`SAMPLE`] packets; a longer one weighs more.
const WEIGHT: f64 = 0.15;
/// Loss must have been lower for so long before parity is taken back, one packet per group at a time.
const SLOW_DOWN: Duration = Duration::from_secs(2);
const LEAST_WHEN_ON: usize = 2;

/// What the peer has received, of the packets up to a number.
#[derive(Clone, Copy, Debug, Default)]
struct Report {
    highest: u64,
    received: u64,
}

/// Chooses the parity of the next group.
#[derive(Clone, Debug)]
pub struct Ratio {
    policy: FecPolicy,
    parity: usize,
    /// The smoothed loss, 0 to 1; `None` before the first report.
    loss: Option<f64>,
    /// The last report that was judged.
    judged: Report,
    /// The newest of the round trip at hand, and the round trips before it.
    waiting: Option<(Report, Rounds)>,
    /// Since when less would do.
    less_since: Option<Time>,
}

impl Ratio {
    /// Starts as on a path that loses nothing.
    pub fn new(policy: FecPolicy) -> Self {
        let parity = if policy == FecPolicy::On {
            LEAST_WHEN_ON
        } else {
            0
        };
        Self {
            policy,
            parity,
            loss: None,
            judged: Report::default(),
            waiting: None,
            less_since: None,
        }
    }

    /// Takes what the peer says it has received: packets with numbers up to `highest`, `received` of them. `rounds` is where sending is paced.
    pub fn report(&mut self, now: Time, highest: u64, received: u64, rounds: Option<Rounds>) {
        let new = Report { highest, received };
        let Some(rounds) = rounds else {
            return self.judge(now, new, true);
        };
        if let Some((report, then)) = self.waiting
            && then.all != rounds.all
        {
            self.judge(now, report, then.queued == rounds.queued);
            self.waiting = None;
        }
        self.waiting.get_or_insert((new, rounds)).0 = new;
    }

    /// Takes a report in, if what is lost since the last one `counts`.
    fn judge(&mut self, now: Time, report: Report, counts: bool) {
        let sent = report.highest.saturating_sub(self.judged.highest);
        if report.received < self.judged.received {
            return;
        }
        if !counts {
            self.judged = report;
            return;
        }
        if sent < SAMPLE {
            return;
        }
        let arrived = (report.received - self.judged.received).min(sent);
        self.judged = report;
        let sample = 1.0 - arrived as f64 / sent as f64;
        let weight = (WEIGHT * sent as f64 / SAMPLE as f64).min(0.5);
        let loss = self
            .loss
            .map_or(sample, |loss| loss + weight * (sample - loss));
        self.loss = Some(loss);
        self.follow(now, loss);
    }

    fn follow(&mut self, now: Time, loss: f64) {
        let least = if self.policy == FecPolicy::On {
            LEAST_WHEN_ON
        } else {
            0
        };
        let target = match self.policy {
            FecPolicy::Off => 0,
            FecPolicy::Auto | FecPolicy::On => needed(loss).max(least),
        };
        if target >= self.parity {
            self.parity = target;
            self.less_since = None;
        } else if now.since(*self.less_since.get_or_insert(now)) >= SLOW_DOWN {
            self.parity -= 1;
            self.less_since = Some(now);
        }
    }

    /// Parity packets for a full group, at most 8.
    pub fn parity(&self) -> usize {
        self.parity
    }

    /// The share of packets that does not arrive though no queue is full, 0 to 1.
    pub fn loss(&self) -> f64 {
        self.loss.unwrap_or(0.0)
    }
}

/// The least parity with which a full group can be repaired often enough.
fn needed(loss: f64) -> usize {
    if loss < NEGLIGIBLE {
        return 0;
    }
    (1..MOST_PARITY)
        .find(|&parity| more_than(parity, GROUP + parity, loss) <= BEYOND_REPAIR)
        .unwrap_or(MOST_PARITY)
}

/// The chance that of `n` packets more than `k` are lost.
fn more_than(k: usize, n: usize, loss: f64) -> f64 {
    let loss = loss.clamp(0.0, 0.99);
    let mut term = (1.0 - loss).powi(n as i32);
    let mut sum = term;
    for i in 1..=k {
        term *= (n - i + 1) as f64 / i as f64 * loss / (1.0 - loss);
        sum += term;
    }
    1.0 - sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reports of 100 packets every 100 ms at a steady loss in percent.
    fn steady(
        ratio: &mut Ratio,
        now: &mut Time,
        sums: &mut (u64, u64),
        percent: u64,
        seconds: u64,
    ) {
        for _ in 0..seconds * 10 {
            *now = *now + Duration::from_millis(100);
            sums.0 += 100;
            sums.1 += 100 - percent;
            ratio.report(*now, sums.0, sums.1, None);
        }
    }

    #[test]
    fn parity_follows_loss_up_and_down_within_bounds() {
        let (mut ratio, mut now, mut sums) = (Ratio::new(FecPolicy::Auto), Time::ZERO, (0, 0));
        steady(&mut ratio, &mut now, &mut sums, 0, 5);
        assert_eq!(ratio.parity(), 0);
        steady(&mut ratio, &mut now, &mut sums, 10, 3);
        assert!((3..=5).contains(&ratio.parity()), "{}", ratio.parity());
        steady(&mut ratio, &mut now, &mut sums, 60, 5);
        assert_eq!(ratio.parity(), MOST_PARITY);
        steady(&mut ratio, &mut now, &mut sums, 0, 3);
        assert!(ratio.parity() > 4, "it does not fall at once");
        steady(&mut ratio, &mut now, &mut sums, 0, 40);
        assert_eq!(ratio.parity(), 0);
    }

    #[test]
    fn what_a_full_queue_lost_brings_no_parity() {
        let (mut ratio, mut now, mut sums) = (Ratio::new(FecPolicy::Auto), Time::ZERO, (0, 0));
        let mut rounds = Rounds::default();
        let mut round = |percent: u64, queued: bool| {
            // A report early in a round trip, and one late.
            for _ in 0..2 {
                now = now + Duration::from_millis(50);
                sums.0 += 100;
                sums.1 += 100 - percent;
                ratio.report(now, sums.0, sums.1, Some(rounds));
            }
            rounds.all += 1;
            rounds.queued += u64::from(queued);
            (ratio.parity(), ratio.loss())
        };
        for _ in 0..10 {
            let (parity, loss) = round(30, true);
            assert_eq!(parity, 0, "{loss}");
        }
        // The next round's reports are judged by that round alone.
        for _ in 0..30 {
            round(5, false);
        }
        let (parity, loss) = round(5, false);
        assert!(
            (1..=3).contains(&parity) && (0.04..0.06).contains(&loss),
            "{parity} {loss}"
        );
    }

    #[test]
    fn a_policy_is_kept() {
        for (policy, least, most) in [(FecPolicy::Off, 0, 0), (FecPolicy::On, 2, MOST_PARITY)] {
            let (mut ratio, mut now, mut sums) = (Ratio::new(policy), Time::ZERO, (0, 0));
            for percent in [0, 30, 90, 0] {
                steady(&mut ratio, &mut now, &mut sums, percent, 20);
                assert!(
                    (least..=most).contains(&ratio.parity()),
                    "{policy:?} {percent}"
                );
            }
        }
    }

    #[test]
    fn a_loss_at_the_border_does_not_make_it_swing() {
        let (mut ratio, mut now, mut sums) = (Ratio::new(FecPolicy::Auto), Time::ZERO, (0, 0));
        steady(&mut ratio, &mut now, &mut sums, 5, 5);
        let mut changes = 0;
        for i in 0..100 {
            let before = ratio.parity();
            steady(&mut ratio, &mut now, &mut sums, 4 + i % 3, 1);
            changes += u32::from(ratio.parity() != before);
        }
        assert!(changes <= 4, "{changes} changes in 100 s");
    }

    #[test]
    fn lying_reports_do_no_harm() {
        let mut ratio = Ratio::new(FecPolicy::Auto);
        for (highest, received) in [(u64::MAX, u64::MAX), (0, 0), (u64::MAX, 0), (1, u64::MAX)] {
            ratio.report(Time::ZERO, highest, received, None);
            assert!(ratio.parity() <= MOST_PARITY && (0.0..=1.0).contains(&ratio.loss()));
        }
    }
}

//! What all visits came to: counts by outcome, and the failures that nothing excuses.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::visitor::Outcome;

/// Counts and failures of a run, shared by all visitors.
#[derive(Debug, Default)]
pub struct Tally(Mutex<Sums>);

/// The sums at some instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Whole and right.
    pub right: u64,
    /// Broken off while something on their way was killed.
    pub excused: u64,
    /// What must not happen, in words.
    pub failures: Vec<String>,
}

impl Tally {
    /// Takes in a visit. Only an early end is excused by a kill: wrong bytes and hanging never are.
    pub fn add(&self, who: impl fmt::Display, outcome: &Outcome, touched: bool) {
        let mut sums = self.lock();
        match outcome {
            Outcome::Right => sums.right += 1,
            Outcome::Ended(_) if touched => sums.excused += 1,
            _ => sums.failures.push(format!(
                "{who}: {outcome}{}",
                if touched { " (touched by a kill)" } else { "" }
            )),
        }
    }

    /// Notes a failure that is not a visit's.
    pub fn fail(&self, what: String) {
        self.lock().failures.push(what);
    }

    /// Whether so much has failed that going on would show nothing new.
    pub fn is_hopeless(&self) -> bool {
        self.lock().failures.len() >= HOPELESS
    }

    /// The sums so far.
    pub fn sums(&self) -> Sums {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Sums> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A relay that is gone fails thousands of visits a second: the first ones say enough.
const HOPELESS: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kill_excuses_an_early_end_and_nothing_else() {
        let tally = Tally::default();
        tally.add("a", &Outcome::Right, true);
        tally.add("b", &Outcome::Ended("reset".into()), true);
        tally.add("c", &Outcome::Ended("reset".into()), false);
        tally.add("d", &Outcome::Wrong("byte 3".into()), true);
        tally.add("e", &Outcome::Late("hangs".into()), true);
        let sums = tally.sums();
        assert_eq!((sums.right, sums.excused, sums.failures.len()), (1, 1, 3));
        assert!(sums.failures[1].contains("touched"));
    }

    #[test]
    fn a_run_in_which_all_fails_is_given_up() {
        let tally = Tally::default();
        assert!(!tally.is_hopeless());
        for visit in 0..HOPELESS {
            tally.add(visit, &Outcome::Wrong("all".into()), false);
        }
        assert!(tally.is_hopeless());
    }
}

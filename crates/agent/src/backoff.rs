//! How long to wait before connecting again: short at first, because most breaks are short; then growing, with jitter, so that a server
//! that comes back is not overrun.

use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Backoff {
    step: Duration,
    failures: u32,
    /// How often in a row the server has only asked to come back.
    moves: u32,
}

impl Backoff {
    /// `step` is the pause after the second failure in a row; it doubles with each further one.
    pub(crate) fn new(step: Duration) -> Self {
        Self {
            step: step.max(FIRST),
            failures: 0,
            moves: 0,
        }
    }

    /// A link was up for long enough to call it good.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }

    /// A link was up.
    pub(crate) fn connected(&mut self) {
        self.moves = 0;
    }

    /// The pause where the server is about to be another process, which is no failure; a few times in a row, then it is one.
    pub(crate) fn moved(&mut self, wait: Duration) -> Duration {
        self.moves = self.moves.saturating_add(1);
        if self.moves > MOVES {
            return self.next().max(wait);
        }
        wait.max(MOVE).mul_f64(rand::random_range(0.5..1.5))
    }

    /// The pause after one more failure.
    pub(crate) fn next(&mut self) -> Duration {
        let whole = match self.failures {
            0 => FIRST,
            n => self
                .step
                .saturating_mul(1 << (n - 1).min(10))
                .min(LONGEST.max(self.step)),
        };
        self.failures = self.failures.saturating_add(1);
        whole.mul_f64(rand::random_range(0.5..1.5))
    }
}

const FIRST: Duration = Duration::from_millis(200);
const MOVE: Duration = Duration::from_millis(50);
const MOVES: u32 = 10;
const LONGEST: Duration = Duration::from_secs(60);
/// After a refusal that trying again does not change.
pub(crate) const AFTER_PERMANENT: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_being_replaced_is_asked_soon_again_but_not_without_end() {
        let mut backoff = Backoff::new(Duration::from_secs(5));
        for _ in 0..3 {
            for _ in 0..MOVES {
                assert!(backoff.moved(Duration::from_millis(100)) < Duration::from_millis(151));
            }
            backoff.connected();
        }
        let pauses = (0..20).map(|_| backoff.moved(Duration::ZERO));
        assert!(pauses.max() > Some(Duration::from_secs(10)));
    }

    #[test]
    fn pauses_grow_to_a_minute_and_begin_short_again_after_success() {
        let mut backoff = Backoff::new(Duration::from_secs(5));
        assert!(backoff.next() < Duration::from_millis(301));
        let second = backoff.next();
        assert!(
            second >= Duration::from_millis(2500) && second <= Duration::from_millis(7500),
            "{second:?}"
        );
        for _ in 0..40 {
            assert!(backoff.next() <= Duration::from_secs(90));
        }
        assert!(backoff.next() >= Duration::from_secs(30));
        backoff.reset();
        assert!(backoff.next() < Duration::from_millis(301));
    }
}

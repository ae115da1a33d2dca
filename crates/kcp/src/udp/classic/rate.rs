//! A bucket of bytes that fills at a fixed rate: how a session's sending is held to its limit.

use std::{num::NonZeroU32, time::Duration};

use crate::{MTU_MAX, Time};

/// What may go at once after a pause, as in kcp-go.
const BURST: u64 = 64 * MTU_MAX as u64;

#[derive(Debug)]
pub(super) struct Rate {
    per_second: NonZeroU32,
    /// Bytes that may go. Below zero after a datagram larger than what was there.
    credit: i64,
    filled: Time,
}

impl Rate {
    pub(super) fn new(per_second: NonZeroU32, now: Time) -> Self {
        Self {
            per_second,
            credit: BURST as i64,
            filled: now,
        }
    }

    /// When the next datagram may go; `None`: now.
    pub(super) fn wait(&mut self, now: Time) -> Option<Time> {
        let rate = u64::from(self.per_second.get());
        let micros = u64::try_from(now.since(self.filled).as_micros()).unwrap_or(u64::MAX);
        let earned = micros.saturating_mul(rate) / 1_000_000;
        if earned > 0 {
            self.credit = self
                .credit
                .saturating_add_unsigned(earned)
                .min(BURST as i64);
            self.filled = now;
        }
        if self.credit > 0 {
            return None;
        }
        let missing = self.credit.unsigned_abs() + 1;
        Some(now + Duration::from_micros(missing.saturating_mul(1_000_000).div_ceil(rate)))
    }

    pub(super) fn spend(&mut self, bytes: usize) {
        self.credit -= bytes as i64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_kept_after_the_burst() {
        let rate = NonZeroU32::new(100_000).expect("not zero");
        let mut now = Time::ZERO;
        let mut bucket = Rate::new(rate, now);
        let mut sent = 0_u64;
        while now < Time::from_millis(10_000) {
            match bucket.wait(now) {
                Some(at) => now = at,
                None => {
                    bucket.spend(1400);
                    sent += 1400;
                }
            }
        }
        assert!(sent.abs_diff(BURST + 1_000_000) < 3000, "{sent}");
    }
}

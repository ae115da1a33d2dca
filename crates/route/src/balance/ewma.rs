//! A server's response time: a mean that forgets, and that believes a slow answer at once (peak EWMA).

use std::time::Duration;

/// How fast it forgets: after this time an old value counts for about a third. Finagle's default.
const DECAY: f64 = 10.0;

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ewma {
    seconds: f64,
    /// When it was last brought up to date; `None` without any answer.
    at: Option<Duration>,
}

impl Ewma {
    pub(super) fn observe(&mut self, now: Duration, time: Duration) {
        let time = time.as_secs_f64();
        self.seconds = match self.at {
            Some(at) if time <= self.seconds => {
                let old = weight(at, now);
                self.seconds * old + time * (1.0 - old)
            }
            _ => time,
        };
        self.at = Some(now);
    }

    /// Seconds, less the longer nothing was heard, so that a server that was slow once is tried again.
    pub(super) fn read(&self, now: Duration) -> Option<f64> {
        self.at.map(|at| self.seconds * weight(at, now))
    }
}

fn weight(at: Duration, now: Duration) -> f64 {
    (-now.saturating_sub(at).as_secs_f64() / DECAY).exp()
}

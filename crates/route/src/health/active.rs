//! The state of one server under active checks: it falls after some bad ones in a row and rises after some good ones.

use std::time::Duration;

/// How checks are made and counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActiveCheckSpec {
    /// From the end of one check to the start of the next.
    pub interval: Duration,
    /// For one check.
    pub timeout: Duration,
    /// Bad checks in a row that take a server out; at least 1.
    pub fall: u32,
    /// Good checks in a row that bring it back; at least 1.
    pub rise: u32,
    /// The interval varies by up to this many per cent, so that checks of many servers and proxies do not come together.
    pub jitter_percent: u8,
}

impl Default for ActiveCheckSpec {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(2),
            timeout: Duration::from_secs(2),
            fall: 3,
            rise: 2,
            jitter_percent: 10,
        }
    }
}

/// One server under checks. It is up at first, but on probation: its first check, if bad, takes it out.
#[derive(Debug)]
pub struct ActiveCheck {
    spec: ActiveCheckSpec,
    up: bool,
    /// Checks in a row that speak against the present state.
    against: u32,
    /// `None` while a check is under way.
    due: Option<Duration>,
}

impl ActiveCheck {
    /// The first check is due at a random moment of the first interval.
    pub fn new(spec: ActiveCheckSpec, now: Duration, random: u32) -> Self {
        let first = spec.interval.mul_f64(fraction(random));
        Self {
            spec,
            up: true,
            against: spec.fall.saturating_sub(1),
            due: Some(now.saturating_add(first)),
        }
    }

    /// Requests may be sent to it.
    pub fn is_up(&self) -> bool {
        self.up
    }

    /// When the next check is to begin; `None` while one is under way.
    pub fn due(&self) -> Option<Duration> {
        self.due
    }

    /// A check begins.
    pub fn started(&mut self) {
        self.due = None;
    }

    /// A check has ended; what is said is the new state, when it changes.
    pub fn ended(&mut self, good: bool, now: Duration, random: u32) -> Option<bool> {
        let jitter = f64::from(self.spec.jitter_percent.min(100)) / 100.0;
        let pause = self
            .spec
            .interval
            .mul_f64(1.0 - jitter + 2.0 * jitter * fraction(random));
        self.due = Some(now.saturating_add(pause));
        if good == self.up {
            self.against = 0;
            return None;
        }
        self.against += 1;
        let needed = if self.up {
            self.spec.fall
        } else {
            self.spec.rise
        };
        if self.against < needed {
            return None;
        }
        self.set(good);
        Some(good)
    }

    /// The state as somebody else found it.
    pub fn set(&mut self, up: bool) {
        self.up = up;
        self.against = 0;
    }
}

/// From 0 to just below 1.
fn fraction(random: u32) -> f64 {
    f64::from(random) / (f64::from(u32::MAX) + 1.0)
}

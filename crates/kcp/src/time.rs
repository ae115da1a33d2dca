//! Time as an argument: the core has no clock, every `handle_*` and `poll_*` is told what time it is.

use std::{
    ops::{Add, Sub},
    time::Duration,
};

/// Microseconds since an origin that the caller chose once for a session (or for a whole process).
///
/// It must not run backwards; a caller with an `Instant` takes the time since its first one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The origin.
    pub const ZERO: Self = Self(0);

    /// A point `micros` microseconds after the origin.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// A point `millis` milliseconds after the origin.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1000))
    }

    /// Microseconds since the origin.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// How long ago `earlier` was; zero when it lies in the future.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// The timestamp of a KCP header: milliseconds, modulo 2^32.
    pub(crate) const fn wire(self) -> u32 {
        (self.0 / 1000) as u32
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    fn add(self, after: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(after.as_micros()).unwrap_or(u64::MAX)),
        )
    }
}

impl Sub<Duration> for Time {
    type Output = Self;

    fn sub(self, before: Duration) -> Self {
        Self(
            self.0
                .saturating_sub(u64::try_from(before.as_micros()).unwrap_or(u64::MAX)),
        )
    }
}

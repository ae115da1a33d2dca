//! What the link learns about the way below it: how long a round trip takes where nothing waits on it, and for how long nothing came.
//! Windows grow by these (`stream.rs`).

use std::time::Duration;

/// The way below the link.
#[derive(Debug, Default)]
pub(crate) struct Path {
    recent: Option<Duration>,
    earlier: Option<Duration>,
    samples: u32,
    /// Smoothed; zero until the first answer.
    smoothed: Duration,
    /// How many silences there were, and how long the latest was.
    silences: u32,
    silence: Duration,
}

impl Path {
    /// Pings after which the oldest are forgotten, in case the path has changed.
    const MEMORY: u32 = 4;

    /// A ping was answered. `busy` says that other bytes were on the way with it: then it may have waited in their queue, so it may
    /// shorten what is known of the path, but makes nothing be forgotten. A window that grew with its own queue would never stop.
    pub(crate) fn answered(&mut self, sample: Duration, busy: bool) {
        self.smoothed = match self.smoothed {
            Duration::ZERO => sample,
            // RFC 6298 §2: SRTT with alpha = 1/8.
            smoothed => smoothed - smoothed / 8 + sample / 8,
        };
        if !busy {
            if self.samples == Self::MEMORY {
                self.earlier = self.recent.take();
                self.samples = 0;
            }
            self.samples += 1;
        }
        self.recent = Some(self.recent.map_or(sample, |recent| recent.min(sample)));
    }

    /// Something came, so long after what came before.
    pub(crate) fn heard(&mut self, after: Duration) {
        // Hardly ever: the answer to the next question costs more.
        if after < LEAST_SILENCE {
            return;
        }
        let round_trip = self.round_trip();
        if round_trip >= LEAST_SILENCE && after >= round_trip / 8 {
            self.silences = self.silences.wrapping_add(1);
            self.silence = after;
        }
    }

    /// The latest silence: its number, and how long it was.
    pub(crate) fn silence(&self) -> (u32, Duration) {
        (self.silences, self.silence)
    }

    /// The shortest of the last pings; zero until the first answer.
    pub(crate) fn round_trip(&self) -> Duration {
        self.recent
            .into_iter()
            .chain(self.earlier)
            .min()
            .unwrap_or_default()
    }

    pub(crate) fn smoothed_round_trip(&self) -> Duration {
        self.smoothed
    }
}

/// A shorter silence is the scheduler's, not the path's; and over a shorter path a window lasts long enough.
const LEAST_SILENCE: Duration = Duration::from_millis(5);

//! Round-trip time and retransmission timeout: RFC 6298 with the bounds and the granularity that KCP uses.

use std::time::Duration;

/// The timeout before the first sample.
const RTO_INITIAL: Duration = Duration::from_millis(200);
/// Lower bound in normal mode.
const RTO_MIN: Duration = Duration::from_millis(100);
/// Lower bound in nodelay mode.
const RTO_MIN_NODELAY: Duration = Duration::from_millis(30);
/// Upper bound; also the largest round trip that is believed, as the timestamps come back from the peer.
pub(super) const RTT_BELIEVED: Duration = Duration::from_secs(60);

/// Smoothed round-trip time, its variation, and the timeout that follows.
#[derive(Clone, Debug)]
pub(super) struct Rtt {
    smoothed: Option<Duration>,
    variation: Duration,
    rto: Duration,
}

impl Rtt {
    pub(super) fn new() -> Self {
        Self {
            smoothed: None,
            variation: Duration::ZERO,
            rto: RTO_INITIAL,
        }
    }

    /// Takes one sample. `interval` is the granularity: how long the peer may hold an acknowledgement back.
    pub(super) fn sample(&mut self, rtt: Duration, interval: Duration, nodelay: bool) {
        if rtt > RTT_BELIEVED {
            return;
        }
        let smoothed = match self.smoothed {
            None => {
                self.variation = rtt / 2;
                rtt
            }
            Some(old) => {
                let error = rtt.abs_diff(old);
                let smoothed = if rtt > old {
                    old + error / 8
                } else {
                    old - error / 8
                };
                // A sample far below the mean says that the path got faster, not that it varies: an eighth of the weight.
                let weight = if rtt + self.variation < smoothed {
                    32
                } else {
                    4
                };
                self.variation = if error > self.variation {
                    self.variation + (error - self.variation) / weight
                } else {
                    self.variation - (self.variation - error) / weight
                };
                smoothed
            }
        };
        self.smoothed = Some(smoothed);
        let min = if nodelay { RTO_MIN_NODELAY } else { RTO_MIN };
        self.rto = (smoothed + interval.max(self.variation * 4)).clamp(min, RTT_BELIEVED);
    }

    /// The retransmission timeout, before any back-off.
    pub(super) fn rto(&self) -> Duration {
        self.rto
    }

    /// The smoothed round-trip time, once there was a sample.
    pub(super) fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }

    /// The mean deviation of the samples.
    pub(super) fn variation(&self) -> Duration {
        self.variation
    }

    /// How long after its sending a packet may be overtaken before it counts as lost on the word of one later delivery:
    /// 9/8 of the round trip (RFC 9002 §6.1.2 uses the same factor).
    pub(super) fn reordering(&self) -> Duration {
        self.smoothed.map_or(self.rto, |rtt| rtt + rtt / 8)
    }

    /// As [`Self::reordering`], but longer where round trips differ much.
    pub(super) fn reordering_varied(&self) -> Duration {
        let varied = |rtt| rtt + 4 * self.variation;
        self.reordering()
            .max(self.smoothed.map_or(self.rto, varied))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_path_settles_at_its_round_trip() {
        let mut rtt = Rtt::new();
        for _ in 0..100 {
            rtt.sample(Duration::from_millis(50), Duration::from_millis(10), true);
        }
        assert_eq!(rtt.smoothed(), Some(Duration::from_millis(50)));
        assert_eq!(rtt.rto().as_millis(), 60);
    }

    #[test]
    fn the_timeout_keeps_its_bounds() {
        let mut rtt = Rtt::new();
        rtt.sample(Duration::ZERO, Duration::from_millis(10), true);
        assert_eq!(rtt.rto(), Duration::from_millis(30));
        rtt.sample(Duration::from_secs(59), Duration::from_millis(10), true);
        rtt.sample(Duration::from_secs(3000), Duration::from_millis(10), true);
        assert!(rtt.rto() <= RTT_BELIEVED);
    }
}

//! A firewall before a path: which IP packets it lets in, by protocol, port and rate. Sans-IO: [`Filter::admits`] with each packet as it comes.
//!
//! What it knows of a packet is IPv4's protocol and the ports of TCP and UDP; a packet that it cannot read, a later fragment among them, has no port.

use std::time::Duration;

use crate::units::Rate;

/// Rules in order; the first that matches a packet decides. What none matches passes.
#[derive(Clone, Debug, Default)]
pub struct Filter(Vec<(Rule, Bucket)>);

/// Which packets, and what becomes of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    /// `None`: of any.
    pub protocol: Option<Protocol>,
    /// Source or destination port; `None`: any.
    pub port: Option<u16>,
    /// What becomes of them.
    pub verdict: Verdict,
}

/// A transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// It passes.
    Pass,
    /// It is lost without a word.
    Drop,
    /// It passes if it carries nothing: a TCP handshake does, and nothing after it.
    DropData,
    /// So much passes, with bursts of 20 ms; the rest is lost, as providers' policers do.
    Police(Rate),
}

/// What a policer lets through at once.
const BURST: Duration = Duration::from_millis(20);
/// A burst has room for a few packets, however slow the rate.
const LEAST_BURST: usize = 6000;

impl Filter {
    /// A filter of these rules.
    pub fn new(rules: impl IntoIterator<Item = Rule>) -> Self {
        let with_bucket = |rule| (rule, Bucket::default());
        Self(rules.into_iter().map(with_bucket).collect())
    }

    /// Whether the packet that comes now may pass. Time does not run backwards.
    pub fn admits(&mut self, now: Duration, packet: &[u8]) -> bool {
        if self.0.is_empty() {
            return true;
        }
        let seen = Seen::of(packet);
        let rule = self.0.iter_mut().find(|(rule, _)| rule.matches(&seen));
        let Some((rule, bucket)) = rule else {
            return true;
        };
        match rule.verdict {
            Verdict::Pass => true,
            Verdict::Drop => false,
            Verdict::DropData => seen.payload == 0,
            Verdict::Police(rate) => bucket.takes(now, rate, packet.len()),
        }
    }
}

impl Rule {
    fn matches(&self, seen: &Seen) -> bool {
        let protocol = self
            .protocol
            .is_none_or(|protocol| seen.protocol == Some(protocol));
        let port = self
            .port
            .is_none_or(|port| seen.ports.is_some_and(|ports| ports.contains(&port)));
        protocol && port
    }
}

/// What a policer still lets through.
#[derive(Clone, Debug, Default)]
struct Bucket {
    /// When it was filled last; `None` while it is full because nothing came.
    filled_at: Option<Duration>,
    bytes: usize,
}

impl Bucket {
    fn takes(&mut self, now: Duration, rate: Rate, length: usize) -> bool {
        let size = rate.bytes_in(BURST).max(LEAST_BURST);
        match self.filled_at {
            None => {
                self.bytes = size;
                self.filled_at = Some(now);
            }
            Some(at) => {
                let came = rate.bytes_in(now.saturating_sub(at));
                // Less than a byte waits for the next time.
                if came > 0 {
                    self.bytes = self.bytes.saturating_add(came).min(size);
                    self.filled_at = Some(now);
                }
            }
        }
        let takes = length <= self.bytes;
        if takes {
            self.bytes -= length;
        }
        takes
    }
}

/// What a filter sees of a packet.
struct Seen {
    protocol: Option<Protocol>,
    /// Source and destination.
    ports: Option<[u16; 2]>,
    payload: usize,
}

impl Seen {
    /// RFC 791 §3.1, RFC 9293 §3.1, RFC 768.
    fn of(packet: &[u8]) -> Self {
        let mut seen = Self {
            protocol: None,
            ports: None,
            payload: packet.len(),
        };
        let Some(header) = packet.first_chunk::<20>() else {
            return seen;
        };
        if header[0] >> 4 != 4 {
            return seen;
        }
        seen.protocol = match header[9] {
            6 => Some(Protocol::Tcp),
            17 => Some(Protocol::Udp),
            _ => None,
        };
        let first_fragment = header[6] & 0x1f == 0 && header[7] == 0;
        let body = packet.get(usize::from(header[0] & 0xf) * 4..);
        let Some(body) = body.filter(|_| first_fragment && seen.protocol.is_some()) else {
            return seen;
        };
        if let Some([a, b, c, d]) = body.first_chunk() {
            seen.ports = Some([u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d])]);
        }
        let own = match seen.protocol {
            Some(Protocol::Tcp) => usize::from(body.get(12).copied().unwrap_or(0) >> 4) * 4,
            _ => 8,
        };
        seen.payload = body.len().saturating_sub(own);
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(protocol: u8, ports: [u16; 2], payload: usize) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, protocol, 0, 0];
        packet.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        packet.extend(ports.map(u16::to_be_bytes).as_flattened());
        let rest = if protocol == 6 {
            let mut rest = vec![0; 16];
            rest[8] = 5 << 4;
            rest
        } else {
            vec![0; 4]
        };
        packet.extend(rest);
        packet.resize(packet.len() + payload, 0);
        packet
    }

    fn rule(protocol: Option<Protocol>, port: Option<u16>, verdict: Verdict) -> Rule {
        Rule {
            protocol,
            port,
            verdict,
        }
    }

    const NOW: Duration = Duration::ZERO;

    #[test]
    fn the_first_rule_that_matches_decides_and_what_none_matches_passes() {
        let mut filter = Filter::new([
            rule(Some(Protocol::Tcp), Some(443), Verdict::Pass),
            rule(Some(Protocol::Tcp), None, Verdict::Drop),
            rule(Some(Protocol::Udp), Some(53), Verdict::Drop),
        ]);
        assert!(filter.admits(NOW, &packet(6, [443, 40000], 100)));
        assert!(filter.admits(NOW, &packet(6, [40000, 443], 100)));
        assert!(!filter.admits(NOW, &packet(6, [40000, 80], 100)));
        assert!(!filter.admits(NOW, &packet(17, [53, 40000], 100)));
        assert!(filter.admits(NOW, &packet(17, [54, 40000], 100)));
        assert!(filter.admits(NOW, &packet(1, [443, 443], 100)));
        assert!(Filter::default().admits(NOW, &[]));
    }

    #[test]
    fn a_handshake_passes_where_data_does_not() {
        let mut filter = Filter::new([rule(Some(Protocol::Tcp), None, Verdict::DropData)]);
        assert!(filter.admits(NOW, &packet(6, [1, 2], 0)));
        assert!(!filter.admits(NOW, &packet(6, [1, 2], 1)));
    }

    #[test]
    fn a_policer_lets_its_rate_through() {
        let rate = Rate::from_bits(8_000_000).expect("a rate");
        let mut filter = Filter::new([rule(Some(Protocol::Udp), None, Verdict::Police(rate))]);
        let packet = packet(17, [1, 2], 972);
        // Twice the rate for ten seconds.
        let passed = (0..20_000_u64)
            .filter(|n| filter.admits(Duration::from_micros(n * 500), &packet))
            .count();
        assert!((9_900..=10_100).contains(&passed), "{passed}");
    }

    #[test]
    fn packets_that_cannot_be_read_have_no_port() {
        let mut filter = Filter::new([rule(None, Some(0), Verdict::Drop)]);
        for length in 0..24 {
            let packet = &packet(6, [0, 0], 0)[..length];
            assert_eq!(filter.admits(NOW, packet), length < 24, "{length}");
        }
    }
}

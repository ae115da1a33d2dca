//! Looks at one link: whether its peer answers, and what it shows of its way.

use std::time::{Duration, Instant};

use config::{Remote, Scheme};
use link::Link;
use net::{Lost, PathFigures};

use crate::choice::Figures;

/// A link that is looked at.
pub(crate) struct Watched {
    link: Link,
    remote: Remote,
    /// Visitors who were there before may still load it.
    left: bool,
    sent: u64,
    received: u64,
    measured_at: Instant,
    /// The shortest and the longest round-trip time since then; the first one is the handshake's, where the transport tells.
    shortest: Option<Duration>,
    longest: Option<Duration>,
    /// What the last sample of losses was counted from.
    counted: PathFigures,
    silence: Silence,
}

/// Whether the peer answers.
struct Silence {
    limit: Duration,
    /// When something was last heard, and the counters then.
    heard_at: Instant,
    heard: PathFigures,
    /// When something was said first that was not answered.
    said_at: Option<Instant>,
    asked: bool,
}

/// What a look at the answers says.
#[derive(Debug, PartialEq)]
enum Look {
    Fine,
    /// Nothing was heard for some time: the peer should be asked something.
    Quiet,
    /// The peer was spoken to and does not answer.
    Silent,
}

impl Silence {
    fn new(limit: Duration, now: Instant) -> Self {
        Self {
            limit,
            heard_at: now,
            heard: PathFigures::default(),
            said_at: None,
            asked: false,
        }
    }

    /// A look that comes late proves nothing: this end may have slept.
    fn look(&mut self, now: Instant, late: bool, path: PathFigures) -> Look {
        if late || path.heard != self.heard.heard {
            *self = Self {
                heard: path,
                ..Self::new(self.limit, now)
            };
            return Look::Fine;
        }
        if path.spoken != self.heard.spoken {
            self.said_at.get_or_insert(now);
        }
        let limit = self.limit.max(path.rtt.unwrap_or_default() * 4);
        if self
            .said_at
            .is_some_and(|at| now.duration_since(at) >= limit)
        {
            return Look::Silent;
        }
        let quiet = now.duration_since(self.heard_at) >= QUIET;
        if quiet && !std::mem::replace(&mut self.asked, quiet) {
            return Look::Quiet;
        }
        Look::Fine
    }
}

impl Watched {
    pub(crate) fn new(link: Link, remote: Remote) -> Self {
        let now = Instant::now();
        let (sent, received) = link.bytes();
        let limit = match remote.scheme {
            Scheme::Quic => UNANSWERED,
            Scheme::Kcp => KCP_UNANSWERED,
            Scheme::Tcp | Scheme::Tls | Scheme::Ws | Scheme::Wss => TCP_UNANSWERED,
        };
        let mut watched = Self {
            counted: link.path().unwrap_or_default(),
            silence: Silence::new(limit, now),
            link,
            remote,
            left: false,
            sent,
            received,
            measured_at: now,
            shortest: None,
            longest: None,
        };
        watched.note_round_trip();
        watched
    }

    pub(super) fn remote(&self) -> &Remote {
        &self.remote
    }

    pub(crate) fn is(&self, link: &Link) -> bool {
        self.link.is(link)
    }

    /// Links go another way; this one stays for those who are on it.
    pub(crate) fn leave(&mut self, link: &Link) {
        self.left |= self.is(link);
    }

    pub(super) fn is_left(&self) -> bool {
        self.left
    }

    /// Whether the link speaks and gets no answer, on any transport: their acknowledgements come by themselves.
    pub(super) fn is_silent(&mut self, now: Instant, late: bool) -> bool {
        let Some(path) = self.link.path() else {
            return false;
        };
        self.longest = self.longest.max(path.rtt);
        self.note_round_trip();
        match self.silence.look(now, late, path) {
            Look::Fine => false,
            Look::Quiet => {
                self.link.ping();
                false
            }
            Look::Silent => true,
        }
    }

    /// As probes see it, with the time that both ends take to wake up; the kernel's figure would make TCP look better than it is.
    fn note_round_trip(&mut self) -> Option<Duration> {
        let rtt = Some(self.link.round_trip()).filter(|rtt| !rtt.is_zero());
        self.shortest = rtt.into_iter().chain(self.shortest).min();
        rtt
    }

    /// Whether it carries much since it was last asked for that, or for its figures.
    pub(super) fn is_busy(&mut self, now: Instant) -> bool {
        self.rate(now) >= BUSY
    }

    /// Bytes per second since the last time.
    fn rate(&mut self, now: Instant) -> f64 {
        let seconds = now.duration_since(self.measured_at).as_secs_f64();
        self.measured_at = now;
        let (sent, received) = self.link.bytes();
        let moved = (sent - self.sent).max(received - self.received);
        (self.sent, self.received) = (sent, received);
        moved as f64 / seconds.max(0.001)
    }

    pub(super) fn figures(&mut self, now: Instant) -> Figures {
        let rate = self.rate(now);
        let path = self.link.path();
        let loss = path.and_then(|path| self.loss(path));
        let rtt = self.note_round_trip();
        let rtt = rtt.or_else(|| path.and_then(|path| path.rtt));
        Figures {
            rtt,
            shortest: self.shortest.take(),
            longest: self.longest.take(),
            loss,
            goodput: (rate >= BUSY).then_some(rate),
        }
    }

    /// The share that was lost since the last sample, if that says something.
    fn loss(&mut self, path: PathFigures) -> Option<f64> {
        let sent = path.sent.saturating_sub(self.counted.sent);
        if sent < ENOUGH_PACKETS {
            return None;
        }
        let before = std::mem::replace(&mut self.counted, path);
        Some(match (path.lost, before.lost) {
            (Lost::Packets(new), Lost::Packets(old)) => {
                new.saturating_sub(old) as f64 / sent as f64
            }
            (Lost::Packets(new), Lost::Share(_)) => new as f64 / path.sent.max(1) as f64,
            (Lost::Share(share), _) => share,
        })
    }
}

/// A QUIC link says something at least once a second where there are several ways; without an answer for so long its way is blocked.
const UNANSWERED: Duration = Duration::from_millis(750);
/// The same for KCP, which the multiplexer makes speak.
const KCP_UNANSWERED: Duration = Duration::from_secs(1);
/// The same for TCP, which sends again after 200 ms at the soonest, then after twice as long each time (RFC 6298).
const TCP_UNANSWERED: Duration = Duration::from_millis(1500);
/// A link from which nothing was heard for so long is asked something.
const QUIET: Duration = Duration::from_millis(900);
/// Fewer packets say nothing about loss.
const ENOUGH_PACKETS: u64 = 100;
/// From so many bytes per second on a link is busy.
const BUSY: f64 = 125_000.0;

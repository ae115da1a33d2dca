//! Reads a client's log while it is written, so that each line has the time at which it came.

use std::time::{Duration, Instant};

use e2e::{Client, relay::field};

/// What a client has said about its links.
#[derive(Debug)]
pub(crate) struct Watch<'a> {
    client: &'a Client,
    lines: usize,
    links: Vec<Link>,
    /// When, where to, why.
    moves: Vec<(Instant, String)>,
}

/// A link that came up.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) at: Instant,
    pub(crate) scheme: String,
}

impl<'a> Watch<'a> {
    pub(crate) fn new(client: &'a Client) -> Self {
        Self {
            client,
            lines: 0,
            links: Vec::new(),
            moves: Vec::new(),
        }
    }

    /// Reads what is new. Times are as exact as this is called often.
    pub(crate) fn look(&mut self) {
        let now = Instant::now();
        let new = self.client.process.log_from(self.lines);
        self.lines += new.len();
        for line in new {
            if line.contains("the links go another way") {
                let reason = line.split("reason=").nth(1).unwrap_or_default();
                self.moves.push((now, reason.trim_matches('"').to_owned()));
            } else if line.contains(": connected") || line.contains(" connected server=") {
                let server = field(&line, "server").unwrap_or_default();
                let scheme = server.split(':').next().unwrap_or_default().to_owned();
                self.links.push(Link { at: now, scheme });
            }
        }
    }

    /// Who is watched.
    pub(crate) fn client(&self) -> &'a Client {
        self.client
    }

    /// The newest link.
    pub(crate) fn link(&self) -> Option<&Link> {
        self.links.last()
    }

    /// The first link since then.
    pub(crate) fn first_since(&self, since: Instant) -> Option<&Link> {
        self.links.iter().find(|link| link.at >= since)
    }

    /// The first link of the newest one's transport after the last of another transport, since then.
    pub(crate) fn last_change(&self, since: Instant) -> Option<&Link> {
        let scheme = &self.links.last()?.scheme;
        let run = self.links.iter().rev();
        run.take_while(|link| link.scheme == *scheme && link.at >= since)
            .last()
    }

    /// Moves since then, and the last one's reason.
    pub(crate) fn moves_since(&self, since: Instant) -> (usize, Option<&str>) {
        let moves = || self.moves.iter().filter(|(at, _)| *at >= since);
        (moves().count(), moves().next_back().map(|(_, why)| &**why))
    }

    /// How long nothing has changed.
    pub(crate) fn quiet(&self, since: Instant) -> Duration {
        let moved = self.moves.iter().map(|(at, _)| *at);
        let linked = self.links.iter().map(|link| link.at);
        moved
            .chain(linked)
            .max()
            .map_or(since, |at| at.max(since))
            .elapsed()
    }
}

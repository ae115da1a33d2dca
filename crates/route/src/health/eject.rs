//! Ejection: a server that fails several requests in a row is left out for a while. Never more than half of an upstream is out this way, so that a
//! fault of the proxy's own network does not take everything out.

use std::time::Duration;

use super::{Change, Report};
use crate::ServerIndex;

/// When a server is ejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EjectorSpec {
    /// Failures in a row; at least 1.
    pub failures: u32,
    /// Time outside.
    pub time: Duration,
    /// Of all servers, at most this many per cent are out at one time, rounded down; one server alone is never ejected.
    pub max_percent: u8,
}

impl Default for EjectorSpec {
    fn default() -> Self {
        Self {
            failures: 5,
            time: Duration::from_secs(30),
            max_percent: 50,
        }
    }
}

/// The servers of one upstream.
#[derive(Debug)]
pub struct Ejector {
    spec: EjectorSpec,
    servers: Box<[State]>,
    out: usize,
}

#[derive(Debug, Clone, Copy, Default)]
struct State {
    failures: u32,
    until: Option<Duration>,
}

impl Ejector {
    /// All servers are in.
    pub fn new(spec: EjectorSpec, servers: usize) -> Self {
        Self {
            spec,
            servers: vec![State::default(); servers].into(),
            out: 0,
        }
    }

    /// The server is out.
    pub fn is_ejected(&self, server: ServerIndex, now: Duration) -> bool {
        let state = self.servers.get(usize::from(server.0));
        state
            .and_then(|state| state.until)
            .is_some_and(|until| now < until)
    }

    /// A request has ended.
    pub fn report(&mut self, server: ServerIndex, report: Report, now: Duration) -> Option<Change> {
        let most = self.servers.len() * usize::from(self.spec.max_percent.min(100)) / 100;
        let state = self.servers.get_mut(usize::from(server.0))?;
        if report == Report::Good {
            state.failures = 0;
            return None;
        }
        state.failures = state.failures.saturating_add(1);
        // Requests that were under way when it was ejected do not make it longer.
        if state.failures < self.spec.failures || state.until.is_some() || self.out >= most {
            return None;
        }
        state.until = Some(now.saturating_add(self.spec.time));
        self.out += 1;
        Some(Change::Down(server))
    }

    /// A server whose time is over. It is on probation: one failure ejects it again, one good answer clears it.
    pub fn readmit(&mut self, now: Duration) -> Option<Change> {
        if self.out == 0 {
            return None;
        }
        let (n, state) = self
            .servers
            .iter_mut()
            .enumerate()
            .find(|(_, state)| state.until.is_some_and(|until| until <= now))?;
        *state = State {
            failures: self.spec.failures.saturating_sub(1),
            until: None,
        };
        self.out -= 1;
        Some(Change::Up(ServerIndex(n as u16)))
    }

    /// Servers that are out.
    pub fn ejected(&self) -> usize {
        self.out
    }
}

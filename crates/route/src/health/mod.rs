//! Which servers are fit: active checks, ejection by what requests show, a circuit breaker, a budget for retries.

mod active;
mod breaker;
mod eject;
mod retry;

use std::time::Duration;

pub use active::{ActiveCheck, ActiveCheckSpec};
pub use breaker::{Admission, Breaker, BreakerSpec, Ticket};
pub use eject::{Ejector, EjectorSpec};
pub use retry::{RetryBudget, RetryBudgetSpec};

use crate::ServerIndex;

/// What is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HealthSpec {
    /// Checks that the proxy makes.
    pub active: Option<ActiveCheckSpec>,
    /// What requests show.
    pub passive: Option<EjectorSpec>,
}

/// What a request showed of its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Report {
    /// It answered, with less than 500.
    Good,
    /// It answered with 500 or more.
    ServerError,
    /// No connection, or it broke or fell silent before an answer.
    Unreachable,
}

/// A server's fitness has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It is fit again; [`Balancer::came_up`](crate::Balancer::came_up) wants to know.
    Up(ServerIndex),
    /// It is not.
    Down(ServerIndex),
}

/// The health of one upstream's servers as one worker sees it.
#[derive(Debug)]
pub struct Health {
    checks: Box<[ActiveCheck]>,
    ejector: Option<Ejector>,
}

impl Health {
    /// All `servers` are fit at first. `random` gives bits that spread the checks.
    pub fn new(
        spec: &HealthSpec,
        servers: usize,
        now: Duration,
        mut random: impl FnMut() -> u32,
    ) -> Self {
        let checks = match spec.active {
            Some(check) => (0..servers)
                .map(|_| ActiveCheck::new(check, now, random()))
                .collect(),
            None => Box::default(),
        };
        Self {
            checks,
            ejector: spec.passive.map(|spec| Ejector::new(spec, servers)),
        }
    }

    /// Requests may be sent to the server.
    pub fn available(&self, server: ServerIndex, now: Duration) -> bool {
        self.checks
            .get(usize::from(server.0))
            .is_none_or(ActiveCheck::is_up)
            && self
                .ejector
                .as_ref()
                .is_none_or(|ejector| !ejector.is_ejected(server, now))
    }

    /// A request has ended. `Some` when that ejects its server.
    pub fn report(&mut self, server: ServerIndex, report: Report, now: Duration) -> Option<Change> {
        self.ejector.as_mut()?.report(server, report, now)
    }

    /// Servers whose time outside is over since the last call; to be called now and then, or before a pick. It costs nothing while nothing is ejected.
    pub fn readmit(&mut self, now: Duration) -> Option<Change> {
        self.ejector.as_mut()?.readmit(now)
    }

    /// The next check to be made and when; `None` without active checks, or while all are under way.
    pub fn next_check(&self) -> Option<(ServerIndex, Duration)> {
        let due = self.checks.iter().enumerate();
        due.filter_map(|(n, check)| Some((ServerIndex(n as u16), check.due()?)))
            .min_by_key(|(_, at)| *at)
    }

    /// A check begins.
    pub fn check_started(&mut self, server: ServerIndex) {
        if let Some(check) = self.checks.get_mut(usize::from(server.0)) {
            check.started();
        }
    }

    /// A check has ended. `Some` when that changes the server's fitness.
    pub fn check_ended(
        &mut self,
        server: ServerIndex,
        good: bool,
        now: Duration,
        random: u32,
    ) -> Option<Change> {
        let up = self
            .checks
            .get_mut(usize::from(server.0))?
            .ended(good, now, random)?;
        Some(if up {
            Change::Up(server)
        } else {
            Change::Down(server)
        })
    }

    /// Takes over what another worker found by a check.
    pub fn set_checked(&mut self, server: ServerIndex, up: bool) {
        if let Some(check) = self.checks.get_mut(usize::from(server.0)) {
            check.set(up);
        }
    }
}

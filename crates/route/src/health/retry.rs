//! A budget for retries: they may be a part of the requests of the last seconds, so that an upstream that fails gets little more load than one
//! that does not. Per worker.

use std::time::Duration;

/// How large the budget is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryBudgetSpec {
    /// Retries per hundred requests.
    pub percent: u32,
    /// Retries in [`RetryBudget::WINDOW`] that are always allowed, so that an upstream with few requests has some.
    pub floor: u32,
}

impl Default for RetryBudgetSpec {
    fn default() -> Self {
        Self {
            percent: 20,
            floor: 10,
        }
    }
}

/// Requests and retries of the last [`Self::WINDOW`].
#[derive(Debug)]
pub struct RetryBudget {
    spec: RetryBudgetSpec,
    seconds: [Second; SLOTS],
}

#[derive(Debug, Clone, Copy, Default)]
struct Second {
    at: u64,
    requests: u32,
    retries: u32,
}

const SLOTS: usize = 10;

impl RetryBudget {
    /// What is counted, to a second.
    pub const WINDOW: Duration = Duration::from_secs(SLOTS as u64);

    /// An empty count.
    pub fn new(spec: RetryBudgetSpec) -> Self {
        Self {
            spec,
            seconds: [Second::default(); SLOTS],
        }
    }

    /// A request begins; its retries are not told here.
    pub fn request(&mut self, now: Duration) {
        let second = self.second(now);
        second.requests = second.requests.saturating_add(1);
    }

    /// Takes one retry off the budget, if there is one.
    pub fn try_retry(&mut self, now: Duration) -> bool {
        let first = (now.as_secs() + 1).saturating_sub(SLOTS as u64);
        let recent = self.seconds.iter().filter(|second| second.at >= first);
        let (requests, retries) = recent.fold((0u64, 0u64), |(requests, retries), second| {
            (
                requests + u64::from(second.requests),
                retries + u64::from(second.retries),
            )
        });
        let budget = requests * u64::from(self.spec.percent) / 100;
        if retries >= budget.max(u64::from(self.spec.floor)) {
            return false;
        }
        let second = self.second(now);
        second.retries = second.retries.saturating_add(1);
        true
    }

    fn second(&mut self, now: Duration) -> &mut Second {
        let at = now.as_secs();
        let second = &mut self.seconds[(at % SLOTS as u64) as usize];
        if second.at != at {
            *second = Second {
                at,
                requests: 0,
                retries: 0,
            };
        }
        second
    }
}

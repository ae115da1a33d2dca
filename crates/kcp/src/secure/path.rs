//! Where the peer is. Its address follows it: the source of an authentic packet with the newest number is where it is now.
//!
//! An address that has not shown that it receives gets at most three times the bytes that came from it, so that a session cannot
//! be turned against somebody else. It shows it by answering a challenge; if it does not within three seconds, the last address that did is
//! taken up again.

use std::{net::SocketAddr, time::Duration};

use crate::Time;

const AMPLIFICATION: usize = 3;
const PATIENCE: Duration = Duration::from_secs(3);
const ASK_AGAIN: Duration = Duration::from_millis(400);

#[derive(Debug)]
pub(super) struct Path {
    remote: SocketAddr,
    /// A client's server stays where it is.
    fixed: bool,
    /// While the address is new.
    trial: Option<Trial>,
}

#[derive(Debug)]
struct Trial {
    /// The last address that has shown that it receives.
    proved: SocketAddr,
    token: [u8; 8],
    /// Bytes that may go there.
    credit: usize,
    ask_at: Time,
    until: Time,
}

impl Path {
    pub(super) fn new(remote: SocketAddr, fixed: bool) -> Self {
        Self {
            remote,
            fixed,
            trial: None,
        }
    }

    pub(super) fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// Notes where an authentic packet came from. `token` makes random bytes when they are needed. Returns whether the peer has moved.
    pub(super) fn heard(
        &mut self,
        now: Time,
        from: SocketAddr,
        length: usize,
        newest: bool,
        token: impl FnOnce() -> [u8; 8],
    ) -> bool {
        let earned = length.saturating_mul(AMPLIFICATION);
        if from == self.remote {
            if let Some(trial) = &mut self.trial {
                trial.credit = trial.credit.saturating_add(earned);
            }
            return false;
        }
        if self.fixed || !newest {
            return false;
        }
        let proved = self
            .trial
            .as_ref()
            .map_or(self.remote, |trial| trial.proved);
        self.remote = from;
        self.trial = (from != proved).then(|| Trial {
            proved,
            token: token(),
            credit: earned,
            ask_at: now,
            until: now + PATIENCE,
        });
        true
    }

    /// Takes the answer to a challenge.
    pub(super) fn answered(&mut self, token: [u8; 8]) {
        if self
            .trial
            .as_ref()
            .is_some_and(|trial| trial.token == token)
        {
            self.trial = None;
        }
    }

    /// The challenge that is due.
    pub(super) fn challenge(&mut self, now: Time) -> Option<[u8; 8]> {
        let trial = self.trial.as_mut().filter(|trial| trial.ask_at <= now)?;
        trial.ask_at = now + ASK_AGAIN;
        Some(trial.token)
    }

    /// Bytes that may be sent now.
    pub(super) fn credit(&self) -> usize {
        self.trial.as_ref().map_or(usize::MAX, |trial| trial.credit)
    }

    pub(super) fn spend(&mut self, length: usize) {
        if let Some(trial) = &mut self.trial {
            trial.credit = trial.credit.saturating_sub(length);
        }
    }

    /// The next deadline. `least`: bytes that a question takes, which the address must have earned.
    pub(super) fn due(&self, least: usize) -> Option<Time> {
        self.trial.as_ref().map(|trial| {
            if trial.credit < least {
                trial.until
            } else {
                trial.ask_at.min(trial.until)
            }
        })
    }

    pub(super) fn expire(&mut self, now: Time) {
        if let Some(trial) = self.trial.take_if(|trial| trial.until <= now) {
            self.remote = trial.proved;
        }
    }
}

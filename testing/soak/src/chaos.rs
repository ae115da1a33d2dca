//! Kills, drawn from the seed and carried out one at a time; each is in the ledger from before it happens until visitors get
//! through again.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::ledger::{Ledger, Service, Target};
use crate::relay::Relay;
use crate::rng::Rng;

/// A kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Reset all links of a client.
    CutLinks(usize),
    /// Hold back everything on a client's links for a while.
    FreezeLinks(usize, Duration),
    /// A service stops listening for a while and resets its connections.
    StopService(usize, Service, Duration),
    /// A service resets its connections and goes on.
    ResetService(usize, Service),
    /// SIGKILL to a client, and a new one.
    KillClient(usize),
}

impl Action {
    /// Draws the next kill.
    pub fn draw(rng: &mut Rng, clients: usize) -> Self {
        let client = rng.below(clients as u64) as usize;
        let service = if rng.once_in(2) {
            Service::Data
        } else {
            Service::Http
        };
        match rng.below(8) {
            0..3 => Self::CutLinks(client),
            3 => Self::FreezeLinks(client, Duration::from_millis(200 + rng.below(2_000))),
            4 => Self::StopService(
                client,
                service,
                Duration::from_millis(100 + rng.below(2_000)),
            ),
            5 | 6 => Self::ResetService(client, service),
            _ => Self::KillClient(client),
        }
    }

    /// The time from one kill's end to the next.
    pub fn pause(rng: &mut Rng) -> Duration {
        Duration::from_millis(200 + rng.below(1_800))
    }

    /// What it hits.
    pub fn target(self) -> Target {
        match self {
            Self::CutLinks(client) | Self::FreezeLinks(client, _) | Self::KillClient(client) => {
                Target::Client(client)
            }
            Self::StopService(client, service, _) | Self::ResetService(client, service) => {
                Target::Service(client, service)
            }
        }
    }

    /// Carries it out and waits until visitors get through again; gives the time that took after the kill was over.
    ///
    /// # Errors
    /// When they do not in time, or a part of the soak fails.
    pub fn carry_out(self, relay: &mut Relay, ledger: &Ledger) -> Result<Duration> {
        let open = ledger.open(self.target());
        let killed = self.kill(relay);
        let over = Instant::now();
        let (Target::Client(client) | Target::Service(client, _)) = self.target();
        let back = killed
            .and_then(|()| relay.await_through(client))
            .with_context(|| format!("after {self}"));
        ledger.close(open);
        back.map(|()| over.elapsed())
    }

    fn kill(self, relay: &mut Relay) -> Result<()> {
        match self {
            Self::CutLinks(client) => relay.clients[client].forwarder.cut().map(drop),
            Self::FreezeLinks(client, time) => {
                relay.clients[client].forwarder.freeze();
                // How long the network is away is part of the kill.
                std::thread::sleep(time);
                relay.clients[client].forwarder.thaw();
                Ok(())
            }
            Self::StopService(client, service, time) => {
                let service = relay.service(client, service);
                service.close();
                service.reset()?;
                std::thread::sleep(time);
                service.reopen()
            }
            Self::ResetService(client, service) => relay.service(client, service).reset().map(drop),
            Self::KillClient(client) => relay.restart_client(client),
        }
    }
}

impl Relay {
    fn service(&mut self, client: usize, service: Service) -> &mut crate::acceptor::Acceptor {
        let client = &mut self.clients[client];
        match service {
            Service::Data => &mut client.data,
            Service::Http => &mut client.http,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CutLinks(client) => write!(f, "cutting the links of client {client}"),
            Self::FreezeLinks(client, time) => {
                write!(f, "freezing the links of client {client} for {time:?}")
            }
            Self::StopService(client, service, time) => write!(
                f,
                "stopping the {service:?} service of client {client} for {time:?}"
            ),
            Self::ResetService(client, service) => {
                write!(f, "resetting the {service:?} service of client {client}")
            }
            Self::KillClient(client) => write!(f, "killing client {client}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_the_same_kills_and_all_kinds_of_them() {
        let draw = |seed| {
            let mut rng = Rng::new(seed);
            (0..200)
                .map(|_| Action::draw(&mut rng, 3))
                .collect::<Vec<_>>()
        };
        assert_eq!(draw(3), draw(3));
        let kinds: std::collections::HashSet<_> =
            draw(3).iter().map(std::mem::discriminant).collect();
        assert_eq!(kinds.len(), 5);
        let targets: Vec<Target> = draw(3).iter().map(|action| action.target()).collect();
        for client in 0..3 {
            assert!(targets.contains(&Target::Client(client)));
            assert!(targets.contains(&Target::Service(client, Service::Http)));
        }
    }
}

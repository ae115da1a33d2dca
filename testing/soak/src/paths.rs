//! Changes of the clients' paths, drawn from the seed: another address, as a NAT that forgets or another network gives, and UDP that is
//! blocked for a while. No visit may fail by them: a QUIC or KCP link goes on from its new address, and a link that hears nothing keeps
//! its visits until it hears again, while new visits take another way.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::relay::Relay;
use crate::rng::Rng;
use crate::tally::Tally;

/// One change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// Datagrams of a client come from other ports than before.
    Address(usize),
    /// The same while UDP is blocked.
    AddressBlocked(usize, Duration),
    /// Nothing passes over UDP, in both directions.
    Block(usize, Duration),
}

impl Change {
    fn draw(rng: &mut Rng, clients: usize) -> Self {
        let client = rng.below(clients as u64) as usize;
        // Less than the silence that ends a QUIC link, and than a visit may take.
        let time = Duration::from_millis(200 + rng.below(6_000));
        match rng.below(8) {
            0..4 => Self::Address(client),
            4 => Self::AddressBlocked(client, time),
            _ => Self::Block(client, time),
        }
    }

    fn carry_out(self, relay: &Relay) {
        match self {
            Self::Address(client) => relay.clients[client]
                .udp
                .iter()
                .for_each(|udp| udp.rebind()),
            Self::AddressBlocked(client, time) => {
                block(relay, client, time, true);
            }
            Self::Block(client, time) => block(relay, client, time, false),
        }
    }
}

fn block(relay: &Relay, client: usize, time: Duration, moves: bool) {
    let paths = &relay.clients[client].udp;
    paths.iter().for_each(|udp| udp.block(true));
    // How long it is blocked is part of the change.
    std::thread::sleep(time);
    if moves {
        paths.iter().for_each(|udp| udp.rebind());
    }
    paths.iter().for_each(|udp| udp.block(false));
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(client) => write!(f, "another address for client {client}"),
            Self::AddressBlocked(client, time) => write!(
                f,
                "UDP of client {client} blocked for {time:?}, then another address"
            ),
            Self::Block(client, time) => write!(f, "UDP of client {client} blocked for {time:?}"),
        }
    }
}

/// Changes paths for a time, one after the other.
pub(crate) fn change(relay: &mut Relay, mut rng: Rng, time: Duration, tally: &Tally) {
    let end = Instant::now() + time;
    loop {
        let pause = Duration::from_millis(100 + rng.below(2_000));
        // Between two changes things run undisturbed.
        std::thread::sleep(pause.min(end.saturating_duration_since(Instant::now())));
        if Instant::now() >= end || tally.is_hopeless() {
            return;
        }
        let change = Change::draw(&mut rng, relay.clients.len());
        eprintln!("{change}");
        change.carry_out(relay);
        if let Err(error) = relay.check_running() {
            return tally.fail(format!("{error:#}"));
        }
    }
}

/// Says how often links went another way.
///
/// # Errors
/// When none did: then nothing was shown.
pub(crate) fn report(relay: &Relay) -> Result<()> {
    let mut all = 0;
    for client in &relay.clients {
        let moves = client
            .program
            .log()
            .matches("the links go another way")
            .count();
        eprintln!("{}: its links went another way {moves} times", client.name);
        all += moves;
    }
    ensure!(all > 0, "no client's links went another way");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_the_same_changes_and_all_kinds_of_them_for_all_clients() {
        let draw = |seed| {
            let mut rng = Rng::new(seed);
            (0..100)
                .map(|_| Change::draw(&mut rng, 3))
                .collect::<Vec<_>>()
        };
        assert_eq!(draw(3), draw(3));
        let kinds: std::collections::HashSet<_> =
            draw(3).iter().map(std::mem::discriminant).collect();
        assert_eq!(kinds.len(), 3);
        for client in 0..3 {
            assert!(draw(3).contains(&Change::Address(client)));
        }
    }
}

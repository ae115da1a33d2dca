//! Asks whether a way works that no link goes, and how long answers take there.

use std::{
    cell::RefCell,
    rc::Rc,
    time::{Duration, Instant},
};

use config::{Remote, Scheme};

use super::Ways;
use crate::{
    agent::Agent,
    choice::Figures,
    dial::{DialError, Dialler, connect, dial_quic, dial_stream},
};

/// Which ways are being probed.
#[derive(Clone, Debug, Default)]
pub(super) struct Probes(Rc<RefCell<Vec<usize>>>);

impl Probes {
    /// Looks at ways that are not used, if it is time: one after the other, or at several where none is known to work.
    pub(super) fn start_due(&self, agent: &Rc<Agent>) {
        let Some(ways) = &agent.shared.ways else {
            return;
        };
        let due = {
            let mut choice = ways.choice();
            if !choice.is_racing() && !self.0.borrow().is_empty() {
                return;
            }
            choice.due(ways.started.elapsed())
        };
        // One that takes long answers for the new one too.
        let Some(way) = due.filter(|way| !self.0.borrow().contains(way)) else {
            return;
        };
        self.0.borrow_mut().push(way);
        let (agent, probes) = (Rc::clone(agent), self.clone());
        tokio::task::spawn_local(async move {
            if let Some(ways) = &agent.shared.ways {
                look(ways, way, &agent.shared.dialler).await;
            }
            probes.0.borrow_mut().retain(|other| *other != way);
        });
    }
}

/// Probes a way and says what was found.
async fn look(ways: &Ways, way: usize, dialler: &Dialler) {
    let remote = &ways.remotes[way];
    let answered = || {
        ways.choice().answered(ways.started.elapsed(), way);
        ways.decide();
    };
    let probed = probe(remote, dialler, answered).await;
    let now = ways.started.elapsed();
    match probed {
        Ok(rtt) => {
            let figures = Figures {
                rtt: Some(rtt),
                ..Figures::default()
            };
            let mut choice = ways.choice();
            choice.worked(now, way, figures);
            let (of_it, in_use) = (choice.known(way), choice.known(choice.current()));
            drop(choice);
            tracing::debug!(server = %remote, ?rtt, %of_it, %in_use, "a way works");
        }
        Err(error) => {
            tracing::debug!(server = %remote, %error, "a way does not work");
            ways.choice().failed(now, way);
        }
    }
}

/// Goes as far as encryption goes, says so, and measures a round trip: the shortest of several, as the time in which both ends wake up and compute is
/// in each, and is long where they are busy.
async fn probe(
    remote: &Remote,
    dialler: &Dialler,
    answered: impl Fn(),
) -> Result<Duration, DialError> {
    let first = tokio::time::timeout(PATIENCE, handshake(remote, dialler)).await;
    let mut shortest = first.map_err(|_| DialError::Timeout)??;
    answered();
    // The first one may have met a cold cache, or lost a packet; one that takes much longer than it would not change the figure.
    let quickly = shortest.saturating_mul(4).clamp(QUICKLY, PATIENCE);
    for _ in 1..HANDSHAKES {
        let again = tokio::time::timeout(quickly, handshake(remote, dialler));
        let Ok(Ok(rtt)) = again.await else {
            break;
        };
        shortest = shortest.min(rtt);
    }
    Ok(shortest)
}

/// One handshake's round trip.
async fn handshake(remote: &Remote, dialler: &Dialler) -> Result<Duration, DialError> {
    let began = Instant::now();
    match remote.scheme {
        Scheme::Quic => {
            let (connection, _client) = dial_quic(remote, dialler).await?;
            let rtt = connection.rtt();
            connection.close(quic::VarInt::from_u32(0), b"");
            Ok(rtt)
        }
        Scheme::Kcp => {
            drop(dial_stream(remote, dialler).await?);
            Ok(began.elapsed() / KCP_TRIPS)
        }
        Scheme::Tcp | Scheme::Ws => {
            drop(connect(&remote.host, remote.port).await?);
            Ok(began.elapsed())
        }
        Scheme::Tls | Scheme::Wss => {
            let tcp = connect(&remote.host, remote.port).await?;
            // The peer's kernel answers sooner than its program, which the other ways wait for.
            let began = Instant::now();
            drop(dialler.tls.connect(tcp, &remote.host).await?);
            Ok(began.elapsed())
        }
    }
}

/// Handshakes per probe, of which the shortest counts.
const HANDSHAKES: u32 = 3;
/// What a further handshake may take at least.
const QUICKLY: Duration = Duration::from_millis(150);
/// Round trips of a KCP handshake: cookie and answer.
const KCP_TRIPS: u32 = 2;
/// Three times TCP sends its first segment by then (RFC 6298), as does QUIC (RFC 9002 §6.2.2).
const PATIENCE: Duration = Duration::from_secs(5);

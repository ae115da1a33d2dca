//! Keeps the links of a client on the best of several ways to its server: measures, asks [`Choice`], and tells the links' loops to move.
//!
//! Each worker looks at its links a few times a second (`watched`); the first one also probes the ways that are not used (`probe`), and decides. A move is made by
//! the loop of each link (`keep`): it brings up a link over the new way and leaves the old one, whose streams end there.

mod probe;
mod watched;

use std::{
    rc::Rc,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use config::{Remote, Scheme};
use net::WorkerHandle;
use tokio::sync::watch;

use crate::{
    agent::{Agent, Shared, lock},
    choice::{Choice, Figures, Kind, Move, Reason, Traits},
};

use probe::Probes;
pub(crate) use watched::Watched;

/// The ways to one server.
pub(crate) struct Ways {
    remotes: Vec<Remote>,
    choice: Mutex<Choice>,
    current: watch::Sender<usize>,
    /// Times that a way was found to answer while none did.
    found: watch::Sender<u64>,
    /// Why the links went where they are, and when.
    last_move: Mutex<Option<(Instant, String)>>,
    started: Instant,
}

/// The last move of the links, for status pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastMove {
    /// Since when they are where they are.
    pub ago: Duration,
    /// Why, with the figures, as the log has it.
    pub reason: String,
}

/// One way, for status pages and metrics.
#[derive(Clone, Debug, PartialEq)]
pub struct WayStatus {
    /// The server, as `remote` names it.
    pub remote: String,
    /// Links go this way.
    pub in_use: bool,
    /// Whether it works; `None` before it was tried.
    pub works: Option<bool>,
    /// The shortest round-trip time of the last minute, once measured.
    pub rtt: Option<Duration>,
    /// Share of packets lost, 0 to 1, where the transport tells.
    pub loss: Option<f64>,
    /// Bytes per second when it was busy, of late.
    pub goodput: Option<f64>,
}

impl Ways {
    /// `None` when there is nothing to choose. `before` is the way that a former process used.
    pub(crate) fn new(config: &config::Client, before: Option<&Remote>) -> Option<Self> {
        if !config.choose || config.remotes.len() < 2 {
            return None;
        }
        let remotes = config.remotes.clone();
        let first = before
            .and_then(|before| remotes.iter().position(|remote| remote == before))
            .unwrap_or(0);
        let traits = remotes
            .iter()
            .map(|remote| traits(remote.scheme, config.bbr));
        Some(Self {
            choice: Mutex::new(Choice::new(traits, first, Duration::ZERO)),
            current: watch::Sender::new(first),
            found: watch::Sender::new(0),
            last_move: Mutex::new(None),
            started: Instant::now(),
            remotes,
        })
    }

    pub(crate) fn current(&self) -> Remote {
        self.remotes[*self.current.borrow()].clone()
    }

    /// Completes when links go another way than `remote`.
    pub(crate) async fn left(&self, remote: &Remote) {
        let mut current = self.current.subscribe();
        let elsewhere = |way: &usize| self.remotes[*way] != *remote;
        if current.wait_for(elsewhere).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Changes when some way answers after none did.
    pub(crate) fn found(&self) -> watch::Receiver<u64> {
        self.found.subscribe()
    }

    /// How long dialling may take: where nobody says that UDP is blocked, another way has to be tried soon.
    pub(crate) fn patience(remote: &Remote) -> Option<Duration> {
        matches!(remote.scheme, Scheme::Quic | Scheme::Kcp).then_some(UDP_PATIENCE)
    }

    /// A handshake went well.
    pub(crate) fn worked(&self, remote: &Remote) {
        if let Some(way) = self.number(remote) {
            let now = self.started.elapsed();
            self.choice().worked(now, way, Figures::default());
        }
    }

    /// The server could not be reached this way. Returns whether another is to be tried at once.
    pub(crate) fn failed(&self, remote: &Remote) -> bool {
        let Some(way) = self.number(remote) else {
            return false;
        };
        let now = self.started.elapsed();
        let hope = {
            let mut choice = self.choice();
            choice.failed(now, way);
            choice.has_hope()
        };
        self.decide();
        hope
    }

    pub(crate) fn status(&self) -> Vec<WayStatus> {
        let choice = self.choice();
        let way = |(number, remote): (usize, &Remote)| {
            let known = choice.known(number);
            WayStatus {
                remote: remote.to_string(),
                in_use: choice.current() == number,
                works: known.works,
                rtt: known.rtt,
                loss: known.loss,
                goodput: known.goodput,
            }
        };
        self.remotes.iter().enumerate().map(way).collect()
    }

    /// Times that links went another way.
    pub(crate) fn moves(&self) -> u64 {
        self.choice().moves()
    }

    /// Why the links are where they are; `None` while they are where they began.
    pub(crate) fn last_move(&self) -> Option<LastMove> {
        let last = lock(&self.last_move);
        last.as_ref().map(|(at, reason)| LastMove {
            ago: at.elapsed(),
            reason: reason.clone(),
        })
    }

    fn decide(&self) {
        let moved = self.choice().decide(self.started.elapsed());
        if let Some(Move { from, to, reason }) = moved {
            tracing::info!(from = %self.remotes[from], to = %self.remotes[to], %reason, "the links go another way");
            *lock(&self.last_move) = Some((Instant::now(), reason.to_string()));
            self.current.send_replace(to);
            if matches!(reason, Reason::Sooner { .. }) {
                self.found.send_modify(|times| *times += 1);
            }
        }
    }

    fn number(&self, remote: &Remote) -> Option<usize> {
        self.remotes.iter().position(|other| other == remote)
    }

    fn choice(&self) -> MutexGuard<'_, Choice> {
        lock(&self.choice)
    }
}

fn traits(scheme: Scheme, bbr: bool) -> Traits {
    let tcp_yields = !net::tcp_uses_bbr();
    let (loss_weight, burden, yields, kind) = match scheme {
        // A lost packet stops everything behind it.
        Scheme::Tcp | Scheme::Tls => (25.0, 1.05, tcp_yields, Kind::Tcp),
        Scheme::Ws | Scheme::Wss => (25.0, 1.1, tcp_yields, Kind::Tcp),
        // A lost packet stops its own stream.
        Scheme::Quic => (8.0, 1.0, !bbr, Kind::Udp),
        // Repairs before it is asked to, at the cost of more bytes.
        Scheme::Kcp => (4.0, 1.15, false, Kind::Udp),
    };
    Traits {
        loss_weight,
        burden,
        yields,
        kind,
    }
}

/// Starts to look at links and ways.
pub(crate) fn start(shared: &Arc<Shared>, workers: &[WorkerHandle]) {
    if shared.ways.is_none() {
        return;
    }
    for (number, handle) in workers.iter().enumerate() {
        let _ = handle.spawn(move || async move {
            let Some(agent) = Agent::current() else {
                return;
            };
            let stopping = agent.shared.stopping.clone();
            tokio::select! {
                () = watch_links(Rc::clone(&agent), number == 0) => {}
                () = stopping.wait() => {}
            }
        });
    }
}

async fn watch_links(agent: Rc<Agent>, decides: bool) {
    let Some(ways) = &agent.shared.ways else {
        return;
    };
    let probes = Probes::default();
    let mut measure_at = Instant::now();
    let mut looked_at = Instant::now();
    loop {
        tokio::time::sleep(LOOK).await;
        let now = Instant::now();
        let late = now.duration_since(looked_at) > LOOK * 3;
        looked_at = now;
        let current = ways.current();
        let measures = now.duration_since(measure_at) >= MEASURE;
        let mut links = agent.watched.borrow_mut();
        // What a way carries shows while no other one has a part of the load: visitors of links that were left stay there until they end.
        let mut shared = false;
        let left = |watched: &&mut Watched| measures && watched.is_left();
        for watched in links.iter_mut().filter(left) {
            shared |= watched.is_busy(now);
        }
        for watched in links.iter_mut() {
            if watched.is_left() || *watched.remote() != current {
                continue;
            }
            if watched.is_silent(now, late) {
                tracing::debug!(server = %current, "a link gets no answers");
                ways.choice()
                    .failed(ways.started.elapsed(), ways.number(&current).unwrap_or(0));
            } else if measures {
                let mut figures = watched.figures(now);
                figures.goodput = figures.goodput.filter(|_| !shared);
                let mut choice = ways.choice();
                if choice.current() == ways.number(&current).unwrap_or(0) {
                    choice.measured(ways.started.elapsed(), figures);
                }
            }
        }
        drop(links);
        if measures {
            measure_at = now;
        }
        if decides {
            ways.decide();
            probes.start_due(&agent);
        }
    }
}

/// Between two looks at the links.
const LOOK: Duration = Duration::from_millis(250);
const MEASURE: Duration = Duration::from_secs(1);
/// What dialling over UDP may take: QUIC sends its first packet again after a second (RFC 9002 §6.2.2).
const UDP_PATIENCE: Duration = Duration::from_secs(2);

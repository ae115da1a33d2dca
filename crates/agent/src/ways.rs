//! Keeps the links of a client on the best of several ways to its server: measures, asks [`Choice`], and tells the links' loops to move.
//!
//! Each worker looks at its links a few times a second; the first one also probes the ways that are not used, and decides. A move is made by
//! the loop of each link (`keep`): it brings up a link over the new way and leaves the old one, whose streams end there.

use std::{
    cell::RefCell,
    rc::Rc,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use config::{Remote, Scheme};
use link::Link;
use net::{Lost, PathFigures, WorkerHandle};
use tokio::sync::watch;

use crate::{
    agent::{Agent, Shared, lock},
    choice::{Choice, Figures, Kind, Move, Traits},
    dial::{DialError, Dialler, connect, dial_quic, dial_stream},
};

/// The ways to one server.
pub(crate) struct Ways {
    remotes: Vec<Remote>,
    choice: Mutex<Choice>,
    current: watch::Sender<usize>,
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
    /// Smoothed round-trip time, once measured.
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

/// A link that is looked at.
pub(crate) struct Watched {
    link: Link,
    remote: Remote,
    sent: u64,
    received: u64,
    measured_at: Instant,
    /// The longest round-trip time since then.
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
        Self {
            counted: link.path().unwrap_or_default(),
            silence: Silence::new(limit, now),
            link,
            remote,
            sent,
            received,
            measured_at: now,
            longest: None,
        }
    }

    pub(crate) fn is(&self, link: &Link) -> bool {
        self.link.is(link)
    }

    /// Whether the link speaks and gets no answer, on any transport: their acknowledgements come by themselves.
    fn is_silent(&mut self, now: Instant, late: bool) -> bool {
        let Some(path) = self.link.path() else {
            return false;
        };
        self.longest = self.longest.max(path.rtt);
        match self.silence.look(now, late, path) {
            Look::Fine => false,
            Look::Quiet => {
                self.link.ping();
                false
            }
            Look::Silent => true,
        }
    }

    fn figures(&mut self, now: Instant) -> Figures {
        let seconds = now.duration_since(self.measured_at).as_secs_f64();
        self.measured_at = now;
        let (sent, received) = self.link.bytes();
        let moved = (sent - self.sent).max(received - self.received);
        (self.sent, self.received) = (sent, received);
        let rate = moved as f64 / seconds.max(0.001);
        let path = self.link.path();
        let loss = path.and_then(|path| self.loss(path));
        // As probes see it, with the time that both ends take to wake up; the kernel's figure would make TCP look better than it is.
        let rtt = Some(self.link.round_trip()).filter(|rtt| !rtt.is_zero());
        let rtt = rtt.or_else(|| path.and_then(|path| path.rtt));
        Figures {
            rtt,
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

async fn watch_links(agent: Rc<Agent>, decides: bool) {
    let Some(ways) = &agent.shared.ways else {
        return;
    };
    let probing: Rc<RefCell<bool>> = Rc::default();
    let mut measure_at = Instant::now();
    let mut looked_at = Instant::now();
    loop {
        tokio::time::sleep(LOOK).await;
        let now = Instant::now();
        let late = now.duration_since(looked_at) > LOOK * 3;
        looked_at = now;
        let current = ways.current();
        let measures = now.duration_since(measure_at) >= MEASURE;
        for watched in agent.watched.borrow_mut().iter_mut() {
            if watched.remote != current {
                continue;
            }
            if watched.is_silent(now, late) {
                tracing::debug!(server = %current, "a link gets no answers");
                ways.choice()
                    .failed(ways.started.elapsed(), ways.number(&current).unwrap_or(0));
            } else if measures {
                let figures = watched.figures(now);
                let mut choice = ways.choice();
                if choice.current() == ways.number(&current).unwrap_or(0) {
                    choice.measured(ways.started.elapsed(), figures);
                }
            }
        }
        if measures {
            measure_at = now;
        }
        if decides {
            ways.decide();
            probe_due(&agent, &probing);
        }
    }
}

/// Looks at one way that is not used, if it is time; one after the other.
fn probe_due(agent: &Rc<Agent>, probing: &Rc<RefCell<bool>>) {
    let Some(ways) = &agent.shared.ways else {
        return;
    };
    if *probing.borrow() {
        return;
    }
    let Some(way) = ways.choice().due(ways.started.elapsed()) else {
        return;
    };
    *probing.borrow_mut() = true;
    let (agent, probing) = (Rc::clone(agent), Rc::clone(probing));
    tokio::task::spawn_local(async move {
        if let Some(ways) = &agent.shared.ways {
            let remote = &ways.remotes[way];
            let limit = Ways::patience(remote).unwrap_or(PROBE_PATIENCE);
            let probed = tokio::time::timeout(limit, probe(remote, &agent.shared.dialler)).await;
            let now = ways.started.elapsed();
            match probed {
                Ok(Ok(rtt)) => {
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
                Ok(Err(error)) => {
                    tracing::debug!(server = %remote, %error, "a way does not work");
                    ways.choice().failed(now, way);
                }
                Err(_) => {
                    tracing::debug!(server = %remote, "a way does not work: no answer in time");
                    ways.choice().failed(now, way);
                }
            }
        }
        *probing.borrow_mut() = false;
    });
}

/// Goes as far as encryption goes, and measures a round trip.
async fn probe(remote: &Remote, dialler: &Dialler) -> Result<Duration, DialError> {
    let began = Instant::now();
    match remote.scheme {
        Scheme::Quic => {
            let (connection, _client) = dial_quic(remote, dialler).await?;
            let mut rtt = connection.rtt();
            connection.close(quic::VarInt::from_u32(0), b"");
            // One handshake's figure has the time in it that both ends took to wake up and to compute, which is long where they are busy: on short
            // paths that would decide.
            for _ in 1..HANDSHAKES {
                let again = dial_quic(remote, dialler);
                let Ok(Ok((connection, _client))) = tokio::time::timeout(QUICKLY, again).await
                else {
                    break;
                };
                rtt = rtt.min(connection.rtt());
                connection.close(quic::VarInt::from_u32(0), b"");
            }
            Ok(rtt)
        }
        Scheme::Kcp => {
            drop(dial_stream(remote, dialler).await?);
            let mut took = began.elapsed();
            // A handshake that has lost a packet takes much longer than the way does.
            for _ in 1..HANDSHAKES {
                let began = Instant::now();
                drop(dial_stream(remote, dialler).await?);
                took = took.min(began.elapsed());
            }
            Ok(took / KCP_TRIPS)
        }
        Scheme::Tcp | Scheme::Ws | Scheme::Tls | Scheme::Wss => {
            let tcp = connect(&remote.host, remote.port).await?;
            let took = began.elapsed();
            let stream = if remote.scheme.is_encrypted() {
                dialler.tls.connect(tcp, &remote.host).await?
            } else {
                tcp
            };
            drop(stream);
            Ok(took)
        }
    }
}

/// Between two looks at the links.
const LOOK: Duration = Duration::from_millis(250);
const MEASURE: Duration = Duration::from_secs(1);
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
/// What dialling over UDP may take: QUIC sends its first packet again after a second (RFC 9002 §6.2.2).
const UDP_PATIENCE: Duration = Duration::from_secs(2);
/// Handshakes per probe, of which the shortest counts.
const HANDSHAKES: u32 = 3;
/// What a further handshake of QUIC may take; longer ones would not change the figure by much.
const QUICKLY: Duration = Duration::from_millis(150);
/// Round trips of a KCP handshake: cookie and answer.
const KCP_TRIPS: u32 = 2;
const PROBE_PATIENCE: Duration = Duration::from_secs(10);

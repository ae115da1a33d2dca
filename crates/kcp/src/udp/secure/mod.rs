//! gt's own mode on UDP sockets: [`connect`] and [`Listener`] give [`Stream`]s, byte streams with an end in each direction.
//!
//! A client's session has a socket of its own. A server has a group of sockets on one port, one per thread ([`shards`]); a session lives on
//! the thread where its handshake arrived and cannot move to another. When the client's address changes, the system may hand its datagrams to another
//! socket of the group: the session's id says whose they are, and they are passed on.
//!
//! Processes that follow one another on the same sockets have epochs ([`Shard::with_epoch`]), which ids carry too. One that is replaced stops reading
//! ([`Listener::retire`]) and gets the datagrams of its sessions from the next ([`Elsewhere`]) through its [`Entrance`].
//!
//! One task per socket does all I/O, as in the module above. A dropped [`Stream`] still sends what was written, and its end, for a short
//! while; what the peer sends to it then is answered with a reset.

mod kind;
mod link;
mod stream;

use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use tokio::sync::mpsc;

pub use self::stream::{Monitor, Stream};
use self::{
    kind::{Secure, Server},
    link::Common,
};
use super::{
    Clock,
    driver::Driver,
    link::Shared,
    socket::{Scratch, Socket},
};
use crate::secure::{ConnectError, Connecting, Gate, GateLimits, Options, Stats, receiver};

/// Socket buffers: see the module above.
const BUFFER: usize = 4 << 20;
/// Datagrams on their way from one socket of a group to another; more are lost, as on any path.
const PASSED_ON: usize = 1024;
/// Sessions that wait to be accepted.
const BACKLOG: usize = 128;

/// What a listener's sessions and strangers may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Sessions per socket.
    pub sessions: usize,
    /// Handshakes per socket.
    pub gate: GateLimits,
}

impl Default for Limits {
    /// 16,384 sessions.
    fn default() -> Self {
        Self {
            sessions: 16_384,
            gate: GateLimits::default(),
        }
    }
}

/// Sums over all sessions of a group, gone ones included; written by the drivers about once a second.
#[derive(Debug, Default)]
pub struct Totals {
    sent: AtomicU64,
    received: AtomicU64,
    retransmitted: AtomicU64,
    recovered: AtomicU64,
    parity: AtomicU64,
    refused: AtomicU64,
    moves: AtomicU64,
    /// Datagrams that belong to no session.
    strays: AtomicU64,
    /// Handshake datagrams.
    handshakes: AtomicU64,
}

impl Totals {
    /// The sums of the sessions' figures.
    pub fn stats(&self) -> Stats {
        Stats {
            sent: self.sent.load(Relaxed),
            received: self.received.load(Relaxed),
            retransmitted: self.retransmitted.load(Relaxed),
            recovered: self.recovered.load(Relaxed),
            parity: self.parity.load(Relaxed),
            refused: self.refused.load(Relaxed),
            moves: self.moves.load(Relaxed),
        }
    }

    /// Datagrams that belong to no session.
    pub fn strays(&self) -> u64 {
        self.strays.load(Relaxed)
    }

    /// Handshake datagrams that came.
    pub fn handshakes(&self) -> u64 {
        self.handshakes.load(Relaxed)
    }

    /// Adds what happened between two looks at a session.
    fn add(&self, before: &Stats, now: &Stats) {
        let add = |sum: &AtomicU64, before: u64, now: u64| {
            sum.fetch_add(now.saturating_sub(before), Relaxed);
        };
        add(&self.sent, before.sent, now.sent);
        add(&self.received, before.received, now.received);
        add(&self.retransmitted, before.retransmitted, now.retransmitted);
        add(&self.recovered, before.recovered, now.recovered);
        add(&self.parity, before.parity, now.parity);
        add(&self.refused, before.refused, now.refused);
        add(&self.moves, before.moves, now.moves);
    }
}

/// A datagram that came to another socket of the group.
type Passed = (SocketAddr, Vec<u8>);

/// Takes datagrams of sessions that another process has. It never waits: what it cannot pass on is lost.
pub trait Elsewhere: Send + fmt::Debug {
    /// A datagram for the process of this epoch.
    fn pass(&mut self, epoch: u8, from: SocketAddr, datagram: &[u8]);

    /// The turn is over: whatever was taken must be on its way.
    fn flush(&mut self);
}

/// The way into a group for datagrams that another process has read.
#[derive(Clone, Debug)]
pub struct Entrance(Arc<[mpsc::Sender<Passed>]>);

impl Entrance {
    /// Gives a datagram to the socket whose session it is for; lost when that is gone or too busy.
    pub fn give(&self, from: SocketAddr, datagram: &[u8]) {
        if let Some(id) = receiver(datagram)
            && let Some(shard) = self.0.get(usize::from(id.to_le_bytes()[7]))
        {
            let _ = shard.try_send((from, datagram.to_vec()));
        }
    }
}

/// One socket of a group, not yet served.
#[derive(Debug)]
pub struct Shard {
    socket: UdpSocket,
    index: u8,
    options: Options,
    limits: Limits,
    secret: [u8; 32],
    totals: Arc<Totals>,
    passed: mpsc::Receiver<Passed>,
    others: Arc<[mpsc::Sender<Passed>]>,
    epoch: u8,
    elsewhere: Option<Box<dyn Elsewhere>>,
}

/// Makes a listener of bound sockets that share one address (SO_REUSEPORT), at most 256: one shard per thread.
pub fn shards(
    sockets: Vec<UdpSocket>,
    options: &Options,
    limits: Limits,
    totals: &Arc<Totals>,
) -> Vec<Shard> {
    let secret = rand::random();
    let (senders, receivers): (Vec<_>, Vec<_>) =
        sockets.iter().map(|_| mpsc::channel(PASSED_ON)).unzip();
    let others: Arc<[_]> = senders.into();
    let made = sockets.into_iter().zip(receivers).zip(0..=u8::MAX);
    made.map(|((socket, passed), index)| Shard {
        socket,
        index,
        options: options.clone(),
        limits,
        secret,
        totals: Arc::clone(totals),
        passed,
        others: Arc::clone(&others),
        epoch: 0,
        elsewhere: None,
    })
    .collect()
}

impl Shard {
    /// Makes it one of the process `epoch`; datagrams for others go to `elsewhere`. Without this the epoch is 0 and there are no others.
    #[must_use]
    pub fn with_epoch(mut self, epoch: u8, elsewhere: Box<dyn Elsewhere>) -> Self {
        self.epoch = epoch;
        self.elsewhere = Some(elsewhere);
        self
    }

    /// The way into the whole group.
    #[must_use]
    pub fn entrance(&self) -> Entrance {
        Entrance(Arc::clone(&self.others))
    }

    /// Serves the socket on the current runtime, in a task of its own.
    ///
    /// # Errors
    /// The system's, when the event queue does not take the socket.
    pub fn listen(self) -> io::Result<Listener> {
        let socket = Socket::adopt(self.socket, BUFFER)?;
        let shared = Shared::new(Clock::start(), socket, Common::new(self.totals))?;
        let (accepts, accepted) = mpsc::channel(BACKLOG);
        let server = Server {
            gate: Gate::new(self.index, self.options, self.limits.gate, &self.secret)
                .with_epoch(self.epoch),
            index: self.index,
            epoch: self.epoch,
            elsewhere: self.elsewhere,
            sessions: self.limits.sessions,
            accepts,
            passed: self.passed,
            others: self.others,
        };
        let kind = Secure::new(Some(server));
        tokio::spawn(Driver::new(Arc::clone(&shared), kind));
        Ok(Listener { accepted, shared })
    }
}

/// Accepts sessions whose clients have proved their address and their keys, but not who they are.
///
/// Dropping it ends accepting; sessions go on.
#[derive(Debug)]
pub struct Listener {
    accepted: mpsc::Receiver<Stream>,
    shared: Arc<Shared<Secure>>,
}

impl Listener {
    /// The next session. Cancel safe.
    ///
    /// # Errors
    /// When the socket is of no use any more.
    pub async fn accept(&mut self) -> io::Result<Stream> {
        self.accepted.recv().await.ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotConnected,
                "the UDP socket of the listener is closed",
            )
        })
    }

    /// The address it listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.shared.local
    }

    /// Ends accepting, and reads no more from the socket, which is another process's to read from now on. Sessions go on with what comes
    /// through the [`Entrance`]; they send as before.
    pub fn retire(self) {
        self.shared.retire();
    }
}

/// Opens a session with a listener at `remote`, on a socket of its own. Tries without end: the caller bounds its time.
///
/// # Errors
/// The system's for the socket; `ConnectionRefused` when the server is full or stops, `Unsupported` when it
/// speaks another version.
pub async fn connect(remote: SocketAddr, options: Options) -> io::Result<Stream> {
    let any: IpAddr = if remote.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    };
    let socket = Socket::adopt(UdpSocket::bind(SocketAddr::new(any, 0))?, BUFFER)?;
    let shared = Shared::new(Clock::start(), socket, Common::new(Arc::default()))?;
    let mut random = [0; 72];
    rand::fill(&mut random);
    let clock = shared.clock;
    let mut connecting =
        Connecting::new(clock.now(), remote, options, &random).map_err(io::Error::other)?;
    let mut scratch = Scratch::new();
    let session = loop {
        if let Some(datagram) = connecting.poll_transmit(clock.now()) {
            let size = datagram.len();
            // A refusal of the system (no route now) may pass, as the network may lose a datagram.
            let _ = std::future::poll_fn(|cx| shared.socket.poll_send(cx, remote, datagram, size))
                .await;
        }
        let mut found = Ok(None);
        let due = connecting.poll_timeout();
        let receive = std::future::poll_fn(|cx| {
            shared.socket.poll_recv(cx, &mut scratch, |_, datagram| {
                if let Ok(None) = found {
                    found = connecting.handle_datagram(clock.now(), datagram);
                }
            })
        });
        let until = clock.instant(due);
        // An error here is an answer to an earlier send (ICMP).
        let received = tokio::time::timeout_at(until, receive).await;
        match found {
            Ok(Some(session)) => break session,
            Ok(None) => {}
            Err(error @ ConnectError::Refused) => {
                return Err(io::Error::new(io::ErrorKind::ConnectionRefused, error));
            }
            Err(error) => return Err(io::Error::new(io::ErrorKind::Unsupported, error)),
        }
        if let Ok(Err(error)) = received
            && error.kind() != io::ErrorKind::ConnectionRefused
        {
            tokio::time::sleep_until(until).await;
        }
    };
    drop(scratch);
    let mut driver = Driver::new(shared, Secure::new(None));
    let stream = driver
        .kind
        .add(&mut driver.core, session)
        .ok_or(io::ErrorKind::InvalidInput)?;
    tokio::spawn(driver);
    Ok(stream)
}

//! A link's handle, for those on its worker thread who open streams on it. What carries the streams is one of two: gt's multiplexer over a
//! byte transport (`framed`), or QUIC (`quic`). Nothing above can tell.

use std::{
    future::Future,
    pin::Pin,
    rc::Rc,
    sync::{Arc, atomic::AtomicU64},
    task::{Context, Poll},
    time::Duration,
};

use mux::{Config, OpenError, Side};
use net::PathFigures;

use crate::{
    end::LinkEnd,
    framed::{self, Framed},
    join::{Join, JoinOptions},
    pace::Traffic,
    quic,
    stream::Stream,
    transport::{self, Transport},
};

/// `TCP_NOTSENT_LOWAT` that a link over TCP begins with, in bytes: enough to keep a fast path busy between two turns of the event loop. On a
/// slower path the link holds back more, so that what matters more than what waits can still go first.
pub const UNSENT: u32 = 128 << 10;

/// Told what the peer does. Called on the link's task: return at once, spawn what takes time.
pub trait Handler {
    /// The peer opened a stream.
    fn opened(&self, link: &Link, header: Vec<u8>, stream: Stream);
    /// The peer sent a control message.
    fn control(&self, link: &Link, message: &[u8]);
}

/// What a link is made with.
#[derive(Clone, Debug)]
pub struct LinkOptions {
    /// Which end this is.
    pub side: Side,
    /// Windows and limits, as the handshake agreed. Of these, QUIC uses `max_streams`: its windows and keep-alive are set where its
    /// endpoint is made.
    pub config: Config,
    /// How often idle streams are looked for.
    pub sweep_every: Duration,
    /// How datagrams of UDP visitors are covered on their way to the peer (QUIC), if it takes that ([`tunnel::Features::DATAGRAM_FEC`]).
    pub fec: Option<Fec>,
}

/// Datagrams of a group, and parity: at most 32 and 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fec(kcp::Shards);

impl Fec {
    /// `None` for numbers that are not allowed.
    #[must_use]
    pub fn new(data: u8, parity: u8) -> Option<Self> {
        let fits = usize::from(data) <= quic::fec::MOST_DATA
            && usize::from(parity) <= quic::fec::MOST_PARITY;
        let shards = kcp::Shards::new(data.into(), parity.into()).ok();
        shards.filter(|_| fits).map(Self)
    }

    pub(crate) fn shards(self) -> kcp::Shards {
        self.0
    }
}

/// A handle on one link; cheap to clone, stays on its thread.
#[derive(Clone)]
pub struct Link(Kind);

#[derive(Clone)]
enum Kind {
    Framed(Framed),
    Quic(quic::Link),
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").finish_non_exhaustive()
    }
}

impl Link {
    /// A link over a transport whose handshake is done, and the driver that must be spawned.
    pub fn start(
        transport: Transport,
        options: &LinkOptions,
        handler: Rc<dyn Handler>,
    ) -> (Self, Driver) {
        match transport.into_kind() {
            transport::Kind::Bytes(stream) => {
                let (link, driver) = Framed::start(stream, options, handler);
                let driver = Driver(Work::Framed(Box::new(driver)));
                (Self(Kind::Framed(link)), driver)
            }
            transport::Kind::Quic(control) => {
                let (link, driver) = quic::Link::start(*control, options, handler);
                (Self(Kind::Quic(link)), Driver(Work::Quic(driver)))
            }
        }
    }

    pub(crate) fn framed(shared: Rc<framed::Shared>) -> Self {
        Self(Kind::Framed(Framed::from_shared(shared)))
    }

    pub(crate) fn quic(link: quic::Link) -> Self {
        Self(Kind::Quic(link))
    }

    /// Opens a stream and joins a socket to it. `first` was read from the socket already and goes before what it sends next; it rides
    /// with the header, so the peer needs no second read to start.
    ///
    /// # Errors
    /// [`OpenError`] and the socket, when the link is about to end or has as many streams as it may.
    pub fn open(
        &self,
        header: &[u8],
        first: Vec<u8>,
        socket: net::Stream,
        options: JoinOptions,
    ) -> Result<Join, (net::Stream, OpenError)> {
        match &self.0 {
            Kind::Framed(link) => link.open(header, first, socket, options).map(Join::from),
            Kind::Quic(link) => link.open(header, first, socket, options).map(Join::from),
        }
    }

    /// Opens a stream to be read and written here.
    ///
    /// # Errors
    /// As [`Link::open`].
    pub fn open_stream(
        &self,
        header: &[u8],
        traffic: Option<Arc<Traffic>>,
    ) -> Result<Stream, OpenError> {
        match &self.0 {
            Kind::Framed(link) => link.open_stream(header, traffic).map(Stream::from),
            Kind::Quic(link) => link.open_stream(header, traffic).map(Stream::from),
        }
    }

    /// Sends a message to the peer's [`Handler::control`]: at most [`mux::MAX_PAYLOAD`] bytes.
    pub fn send_control(&self, message: &[u8]) {
        match &self.0 {
            Kind::Framed(link) => link.send_control(message),
            Kind::Quic(link) => link.send_control(message),
        }
    }

    /// Ends the link after what waits has been sent; streams that are open are reset.
    pub fn close(&self) {
        match &self.0 {
            Kind::Framed(link) => link.close(),
            Kind::Quic(link) => link.close(),
        }
    }

    /// Whether streams can still be opened.
    #[must_use]
    pub fn is_open(&self) -> bool {
        match &self.0 {
            Kind::Framed(link) => link.is_open(),
            Kind::Quic(link) => link.is_open(),
        }
    }

    /// Streams on the link.
    #[must_use]
    pub fn stream_count(&self) -> usize {
        match &self.0 {
            Kind::Framed(link) => link.stream_count(),
            Kind::Quic(link) => link.stream_count(),
        }
    }

    /// Smoothed round-trip time; zero until it was measured.
    #[must_use]
    pub fn round_trip(&self) -> Duration {
        match &self.0 {
            Kind::Framed(link) => link.round_trip(),
            Kind::Quic(link) => link.round_trip(),
        }
    }

    /// Bytes sent and received on the transport: before encryption on byte transports, of UDP payload on QUIC.
    #[must_use]
    pub fn bytes(&self) -> (u64, u64) {
        match &self.0 {
            Kind::Framed(link) => link.bytes(),
            Kind::Quic(link) => link.bytes(),
        }
    }

    /// How the way below the link fares; `None` until it is known, and where nobody can tell. On byte transports it is what was seen shortly after
    /// the last call.
    #[must_use]
    pub fn path(&self) -> Option<PathFigures> {
        match &self.0 {
            Kind::Framed(link) => link.path(),
            Kind::Quic(link) => Some(link.path()),
        }
    }

    /// Says something that the peer answers, so that silence means something. QUIC does so by itself, where its endpoint is made with a short
    /// keep-alive.
    pub fn ping(&self) {
        if let Kind::Framed(link) = &self.0 {
            link.ping();
        }
    }

    /// Counts datagrams of UDP visitors that were lost on their way here and repaired; to be read on any thread.
    #[must_use]
    pub fn repaired(&self) -> Arc<AtomicU64> {
        match &self.0 {
            Kind::Framed(_) => Arc::default(),
            Kind::Quic(link) => link.repaired(),
        }
    }

    /// Whether both are the same link.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Kind::Framed(one), Kind::Framed(other)) => one.is(other),
            (Kind::Quic(one), Kind::Quic(other)) => one.is(other),
            _ => false,
        }
    }
}

/// Moves the bytes of one link until it ends. Spawn it on the worker that the link belongs to.
#[must_use = "a link works only while its driver is polled"]
pub struct Driver(Work);

enum Work {
    Framed(Box<framed::Driver>),
    Quic(quic::Driver),
}

impl Future for Driver {
    type Output = LinkEnd;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<LinkEnd> {
        match &mut self.0 {
            Work::Framed(driver) => Pin::new(&mut **driver).poll(cx),
            Work::Quic(driver) => driver.as_mut().poll(cx),
        }
    }
}

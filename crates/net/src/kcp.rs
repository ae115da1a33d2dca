//! KCP links: streams over UDP in gt's own mode of the crate `kcp`.
//!
//! A server binds one socket per worker ([`crate::bind_udp_group`]), makes [`shards`] of them and listens with each on its worker; a client
//! connects. Either gives a [`Stream`], with an end in each direction as any other, that cannot move to another worker
//! ([`Stream::can_move`]). It is encrypted, but the peer is nobody in particular until a protocol above has proved who it is, over
//! [`Stream::channel_binding`]; a server then calls [`Stream::peer_is_known`].

use std::{
    io,
    net::{SocketAddr, UdpSocket},
    sync::Arc,
    time::Duration,
};

use ::kcp::{Mode, udp::secure};
pub use ::kcp::{
    secure::{FecPolicy, Options, Stats},
    udp::secure::{Limits, Monitor, Totals},
};

use crate::{Inlet, Outlet, Steering, Stream};

/// How long an address that is not the last one is tried.
const ATTEMPT: Duration = Duration::from_secs(4);
/// How long the last address is tried: nobody says that nobody listens there, and another server may be had. Ten questions, or so, are enough
/// on any path that is of use.
const LAST_ATTEMPT: Duration = Duration::from_secs(10);

/// Options by the names that users write: a mode (`normal`, `fast`, `fast2`, `fast3`), FEC (`auto`, `on`, `off`), and the largest
/// datagram in bytes of UDP payload, 1200 to 1500. A name that does not exist means the default.
#[must_use]
pub fn options(mode: &str, fec: &str, mtu: usize) -> Options {
    let basis = Options::default();
    Options {
        mode: Mode::named(mode).unwrap_or(basis.mode),
        fec: match fec {
            "off" => FecPolicy::Off,
            "on" => FecPolicy::On,
            _ => FecPolicy::Auto,
        },
        mtu,
        ..basis
    }
}

/// One socket of a listening group, for one worker.
#[derive(Debug)]
pub struct Shard(secure::Shard);

/// Makes a listener of a group of sockets on one address, at most 256. `totals` sums up what happens on all of them. With `steering`, datagrams
/// of sessions that an older process has are passed on to it.
#[must_use]
pub fn shards(
    sockets: Vec<UdpSocket>,
    options: &Options,
    totals: &Arc<Totals>,
    steering: Option<&Steering>,
) -> Vec<Shard> {
    let shards = secure::shards(sockets, options, Limits::default(), totals);
    let made = shards.into_iter().map(|shard| match steering {
        Some(steering) => {
            shard.with_epoch(steering.epoch(), Box::new(Other(steering.outlet(LABEL))))
        }
        None => shard,
    });
    made.map(Shard).collect()
}

/// Another process of the same service.
#[derive(Debug)]
struct Other(Outlet);

impl secure::Elsewhere for Other {
    fn pass(&mut self, epoch: u8, from: SocketAddr, datagram: &[u8]) {
        self.0.pass(epoch, from, 0, datagram);
    }

    fn flush(&mut self) {
        self.0.flush();
    }
}

/// The way into a group of [`Shard`]s that other processes have when this one reads no more.
#[derive(Clone, Debug)]
pub struct Entrance {
    entrance: secure::Entrance,
    steering: Steering,
}

impl Entrance {
    /// Of a group; `None` when it has no socket.
    #[must_use]
    pub fn of(shards: &[Shard], steering: Steering) -> Option<Self> {
        let entrance = shards.first()?.0.entrance();
        Some(Self { entrance, steering })
    }

    /// Opens it. From then on nothing is lost if [`Acceptor::retire`] follows.
    ///
    /// # Errors
    /// The system's.
    pub fn open(&self) -> io::Result<OpenEntrance> {
        Ok(OpenEntrance {
            entrance: self.entrance.clone(),
            inlet: self.steering.inlet(LABEL)?,
        })
    }
}

/// An [`Entrance`] that others find.
#[derive(Debug)]
pub struct OpenEntrance {
    entrance: secure::Entrance,
    inlet: Inlet,
}

impl OpenEntrance {
    /// Takes what comes, without end, on a worker.
    ///
    /// # Errors
    /// When its socket is of no use any more.
    pub async fn serve(self) -> io::Result<()> {
        let Self { entrance, inlet } = self;
        inlet
            .serve(move |from, _, datagram| entrance.give(from, datagram))
            .await
    }
}

const LABEL: &str = "kcp";

impl Shard {
    /// Listens on the current worker.
    ///
    /// # Errors
    /// The system's, when the event queue does not take the socket.
    pub fn listen(self) -> io::Result<Acceptor> {
        self.0.listen().map(Acceptor)
    }
}

/// Takes sessions on one worker. Dropping it ends accepting; streams go on.
#[derive(Debug)]
pub struct Acceptor(secure::Listener);

impl Acceptor {
    /// The next stream and its peer. Cancel safe.
    ///
    /// # Errors
    /// Only when the socket is of no use any more.
    pub async fn accept(&mut self) -> io::Result<(Stream, SocketAddr)> {
        let stream = self.0.accept().await?;
        let peer = stream.peer_addr();
        Ok((Stream::from(stream), peer))
    }

    /// Accepts no more and reads no more: another process does. Streams go on with what comes through the [`Entrance`].
    pub fn retire(self) {
        self.0.retire();
    }

    /// The address listened on.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.0.local_addr()
    }
}

/// Connects to the first of `addrs` that answers, one after the other, for some seconds each.
///
/// # Errors
/// The last attempt's; `InvalidInput` when there is no address.
pub async fn connect(addrs: &[SocketAddr], options: &Options) -> io::Result<Stream> {
    let Some((last, others)) = addrs.split_last() else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    for addr in others {
        let attempt = secure::connect(*addr, options.clone());
        if let Ok(Ok(stream)) = tokio::time::timeout(ATTEMPT, attempt).await {
            return Ok(Stream::from(stream));
        }
    }
    let attempt = secure::connect(*last, options.clone());
    match tokio::time::timeout(LAST_ATTEMPT, attempt).await {
        Ok(connected) => connected.map(Stream::from),
        Err(_) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "no answer over UDP: is kcpAddr open in the firewall?",
        )),
    }
}

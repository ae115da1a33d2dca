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

use crate::Stream;

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

/// Makes a listener of a group of sockets on one address, at most 256. `totals` sums up what happens on all of them.
#[must_use]
pub fn shards(sockets: Vec<UdpSocket>, options: &Options, totals: &Arc<Totals>) -> Vec<Shard> {
    let shards = secure::shards(sockets, options, Limits::default(), totals);
    shards.into_iter().map(Shard).collect()
}

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

//! Sessions and listeners on UDP sockets, with tokio.
//!
//! One task per socket, the *driver*, does all I/O: it receives in batches, feeds the pipelines, acts on deadlines, and
//! sends what the pipelines have made, many datagrams per system call where the system can. [`Session`] and [`Listener`]
//! are handles: they lock one session's pipeline for a moment and tell the driver that there is something to do. The
//! driver wakes for datagrams, for deadlines and for handles; an idle session costs nothing.
//!
//! Datagrams are sent with the don't-fragment bit: the MTU must fit the path (kcptun's 1350 fits nearly all).
//!
//! KCP has no end-of-stream. A reader learns from its own protocol that the peer is done; a session whose peer has
//! vanished fails with [`std::io::ErrorKind::TimedOut`] when it tries to send. A dropped [`Session`] is kept by the driver
//! until what was written has been acknowledged, at most [`Options::linger`].

mod classic;
mod driver;
mod link;
mod outbox;
#[cfg(feature = "secure")]
pub mod secure;
mod socket;
mod table;

use std::{num::NonZeroU32, sync::Arc, time::Duration};

pub use self::classic::{Listener, Session};
use crate::{Config, Time, seal::Seal};

/// Options of a socket and of the sessions on it.
#[derive(Clone, Debug)]
pub struct Options {
    /// Options of each session.
    pub config: Config,
    /// The cipher with its key.
    pub seal: Arc<Seal>,
    /// How long a dropped session may go on until its data is acknowledged.
    pub linger: Duration,
    /// Most sessions that wait to be accepted; a listener ignores new peers while so many wait. At least 1.
    pub backlog: usize,
    /// Most sessions of a listener; new peers are ignored while there are so many.
    pub max_sessions: usize,
    /// The socket's receive buffer in bytes; the system may give less.
    pub recv_buffer: Option<usize>,
    /// The socket's send buffer in bytes; the system may give less.
    pub send_buffer: Option<usize>,
    /// The differentiated-services code point of datagrams, 0 to 63.
    pub dscp: Option<u8>,
    /// Whether several sockets may share a listener's port, each taking its share of peers.
    pub reuse_port: bool,
    /// Bytes per second that each session sends at most.
    pub rate_limit: Option<NonZeroU32>,
}

/// Socket buffers without a wish: kcptun's size. A system's usual 208 KiB hold some 90 full datagrams with their
/// bookkeeping, less than a window.
const BUFFER: usize = 4 << 20;

impl Options {
    /// Options with a session's configuration and cipher, the rest at defaults: linger 10 s, backlog 128, 65,536 sessions,
    /// buffers of 4 MiB.
    pub fn new(config: Config, seal: Arc<Seal>) -> Self {
        Self {
            config,
            seal,
            linger: Duration::from_secs(10),
            backlog: 128,
            max_sessions: 65_536,
            recv_buffer: Some(BUFFER),
            send_buffer: Some(BUFFER),
            dscp: None,
            reuse_port: false,
            rate_limit: None,
        }
    }
}

/// The time of a socket's sessions: since the socket was opened.
#[derive(Clone, Copy, Debug)]
struct Clock(tokio::time::Instant);

impl Clock {
    fn start() -> Self {
        Self(tokio::time::Instant::now())
    }

    fn now(self) -> Time {
        Time::ZERO + self.0.elapsed()
    }

    fn instant(self, time: Time) -> tokio::time::Instant {
        self.0 + time.since(Time::ZERO)
    }
}

//! gt's own mode: KCP sessions whose every datagram is authenticated. The wire is described in `docs/protocol/kcp-link.md`.
//!
//! ```text
//!  client                                   server
//!  Connecting ── Initiate (padded) ───────► Gate        keeps nothing
//!             ◄───────── Retry (cookie) ───
//!             ── Initiate with cookie ────► Gate        keeps a half-open session, bounded
//!             ◄───────── Accept ───────────
//!  Session    ── first data ──────────────► Gate::confirm ─► Session
//! ```
//!
//! Both ends contribute an X25519 key that lives for one session. Out of the shared secret and the hash of what was said come one
//! AEAD key per direction and 32 bytes that name the channel ([`Session::binding`]). Who the peer is remains unknown here: a
//! protocol above proves it over those bytes, so that somebody in between is found out.
//!
//! A [`Session`] joins the AEAD, a replay window, `arq`, FEC whose ratio follows the loss that the peer reports, keep-alive, an
//! end for each direction, and the peer's address, which follows the peer. Sans-IO as the rest of the crate: datagrams go in by
//! `handle_*` and come out by `poll_transmit`; time and random bytes are arguments. Sockets and tasks are in `udp::secure`.

mod control;
mod cookie;
mod fec;
mod gate;
mod handshake;
mod keys;
mod path;
mod ratio;
mod replay;
mod session;
mod wire;

use std::time::Duration;

pub use self::{
    fec::{GroupDecoder, GroupEncoder},
    gate::{Gate, GateLimits, Reply},
    handshake::Connecting,
    ratio::{FecPolicy, Ratio},
    replay::ReplayWindow,
    session::{End, Session, Stats, Transmit},
    wire::{CipherSet, OVERHEAD, PacketKind, receiver},
};
use crate::{Config, Control, MTU_MAX, Mode};

/// The protocol's version, sent in every handshake datagram.
pub const VERSION: u8 = 1;
/// Bytes of a client's first datagrams: no answer is longer, and a path that drops datagrams of this size shows at once.
pub const INITIATE_LEN: usize = 1200;
/// Largest datagrams without a wish, in bytes of UDP payload: fits an Ethernet path with IPv6 and a tunnel's headers.
pub const MTU_DEFAULT: usize = 1350;

/// Options of one end's sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// How eagerly segments are sent again.
    pub mode: Mode,
    /// What decides how much is sent, beside the windows.
    pub control: Control,
    /// Most segments in flight, 1 to 65535.
    pub send_window: u32,
    /// Most segments received and not read, 1 to 65535.
    pub recv_window: u32,
    /// Largest datagram in bytes of UDP payload, [`INITIATE_LEN`] to [`MTU_MAX`]; the smaller of both ends' counts.
    pub mtu: usize,
    /// Ciphers that may be used.
    pub ciphers: CipherSet,
    /// Parity.
    pub fec: FecPolicy,
    /// Silence after which the peer is asked whether it lives.
    pub keep_alive: Duration,
    /// Silence after which the session is dead.
    pub idle_timeout: Duration,
}

impl Default for Options {
    /// `fast2`, paced, windows of 4096 segments (some 5 MB: 100 Mbit/s over 400 ms), FEC as loss asks for, a question after 10 s of silence, death after
    /// 30 s.
    fn default() -> Self {
        Self {
            mode: Mode::FAST2,
            control: Control::Paced,
            send_window: 4096,
            recv_window: 4096,
            mtu: MTU_DEFAULT,
            ciphers: CipherSet::ALL,
            fec: FecPolicy::Auto,
            keep_alive: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(30),
        }
    }
}

impl Options {
    /// The MTU within its bounds.
    pub(crate) fn mtu(&self) -> usize {
        self.mtu.clamp(INITIATE_LEN, MTU_MAX)
    }

    /// What the ARQ below is told.
    pub(crate) fn arq(&self, recv_window: u32) -> Config {
        Config {
            mode: self.mode,
            send_window: self.send_window.clamp(1, 65_535),
            recv_window: recv_window.clamp(1, 65_535),
            mtu: self.mtu(),
            control: self.control,
            stream: true,
            ack_nodelay: false,
            write_delay: false,
            ..Config::default()
        }
    }
}

/// Why a datagram was refused. Nothing in the session has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It is no datagram of this protocol, or too short.
    #[error("not a datagram of this protocol")]
    Malformed,
    /// It is addressed to another session.
    #[error("the datagram is for another session")]
    Other,
    /// Its number was seen before, or is too old to tell.
    #[error("the datagram came before")]
    Replayed,
    /// It does not authenticate: forged, damaged, or of another session.
    #[error("the datagram is not authentic")]
    Forged,
}

/// Why a handshake failed for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// The server speaks other versions of this protocol.
    #[error(
        "the server speaks versions {min} to {max} of the KCP link protocol, this program version 1"
    )]
    Version {
        /// Its oldest.
        min: u8,
        /// Its newest.
        max: u8,
    },
    /// The server is full, or stops.
    #[error("the server takes no more sessions now")]
    Refused,
    /// The random bytes made no key.
    #[error("no key could be made")]
    Key,
}

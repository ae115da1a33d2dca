//! What the two ends tell each other in the handshake.

use std::{
    fmt,
    ops::{BitAnd, BitOr},
    time::Duration,
};

use crate::{ClientId, Message, Name, SessionId, VERSION, open_enum::open_enum};

/// Protocol versions from `min` to `max`, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionRange {
    /// The oldest.
    pub min: u16,
    /// The newest.
    pub max: u16,
}

impl VersionRange {
    /// Whether `version` is one of them.
    #[must_use]
    pub fn contains(self, version: u16) -> bool {
        (self.min..=self.max).contains(&version)
    }

    /// The newest version that both have.
    #[must_use]
    pub fn newest_common(self, other: Self) -> Option<u16> {
        let (min, max) = (self.min.max(other.min), self.max.min(other.max));
        (min <= max).then_some(max)
    }
}

impl Default for VersionRange {
    /// What this crate speaks.
    fn default() -> Self {
        Self {
            min: VERSION,
            max: VERSION,
        }
    }
}

impl fmt::Display for VersionRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.min == self.max {
            write!(f, "{}", self.min)
        } else {
            write!(f, "{} to {}", self.min, self.max)
        }
    }
}

/// Optional abilities, one bit each. The client offers, the server picks. Bits that are not named here are for later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Features(pub u64);

impl Features {
    /// No optional ability.
    pub const NONE: Self = Self(0);
    /// Services may have [`HttpRules`](crate::HttpRules) and speak HTTP/2 in HTTP mode. A server without it would let visitors in
    /// whom the rules keep out, so such services are declared only to servers that have it.
    pub const HTTP_RULES: Self = Self(1);
    /// Takes datagrams of UDP visitors that are covered by forward error correction (docs/protocol/quic-link.md).
    pub const DATAGRAM_FEC: Self = Self(2);

    /// Whether all of `other` are here.
    #[must_use]
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitAnd for Features {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl BitOr for Features {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

open_enum! {
    /// How a handshake is tied to its channel.
    BindingKind(u8) {
        /// Not at all.
        None = 0, "none";
        /// By exported key material of TLS or QUIC.
        TlsExporter = 1, "tls-exporter";
    }
}

open_enum! {
    /// The transport a client believes it uses: for status pages, never for a decision.
    TransportKind(u8) {
        /// Plain TCP.
        Tcp = 1, "tcp";
        /// TLS over TCP.
        Tls = 2, "tls";
        /// WebSocket over TCP.
        Ws = 3, "ws";
        /// WebSocket over TLS.
        Wss = 4, "wss";
        /// QUIC.
        Quic = 5, "quic";
        /// KCP.
        Kcp = 6, "kcp";
        /// A direct path between peers.
        Peer = 7, "peer";
    }
}

/// How many bytes a side is ready to receive ahead of its reader; neither is zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Windows {
    /// Per stream, in bytes.
    pub stream: u32,
    /// For all streams of the link together, in bytes.
    pub link: u32,
}

impl Default for Windows {
    fn default() -> Self {
        Self {
            stream: 256 * 1024,
            link: 4 * 1024 * 1024,
        }
    }
}

/// What a client says about itself. Only the id is proved, and only if the server checked the proof.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientInfo {
    /// Who it is.
    pub id: ClientId,
    /// The session this link is to join.
    pub session: Option<SessionId>,
    /// The agreed protocol version.
    pub version: u16,
    /// The agreed features.
    pub features: Features,
    /// How the link is bound.
    pub binding: BindingKind,
    /// The transport as the client sees it.
    pub transport: TransportKind,
    /// What the client is ready to receive.
    pub windows: Windows,
    /// Name and version of its software; may be empty.
    pub software: Name,
}

/// What a server grants to a link it accepts. On the wire it is the Accept message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The session the link belongs to, new or joined.
    pub session: SessionId,
    /// The number of this link within the session.
    pub link_number: u16,
    /// How many links the session may have; at least 1.
    pub max_links: u16,
    /// How many links serve this server best (one per worker thread), at most `max_links`; `None` if it does not say.
    pub wanted_links: Option<u16>,
    /// Time between keep-alive pings, at millisecond precision; zero for none. A client should not ping more often than once a
    /// second, whatever it is told.
    pub keepalive: Duration,
    /// What the server is ready to receive.
    pub windows: Windows,
    /// How many streams may be open on this link at a time.
    pub max_streams: u32,
    /// A word to the user; may be empty.
    pub notice: Message,
}

impl Grant {
    /// The first and only link of a session, with 15 s of keep-alive and room for 65,536 streams.
    #[must_use]
    pub fn new(session: SessionId) -> Self {
        Self {
            session,
            link_number: 0,
            max_links: 1,
            wanted_links: None,
            keepalive: Duration::from_secs(15),
            windows: Windows::default(),
            max_streams: 65_536,
            notice: Message::default(),
        }
    }
}

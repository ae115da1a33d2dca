//! What an endpoint allows: numbers and times for a server that strangers can reach, and how they are said to quinn.

use std::{sync::Arc, time::Duration};

use quinn::{
    AckFrequencyConfig, MtuDiscoveryConfig, TransportConfig, VarInt,
    congestion::{BbrConfig, ControllerFactory, CubicConfig, NewRenoConfig},
    crypto::HandshakeTokenKey,
};

use super::packet::{LARGEST, USUAL, first_window};

/// How fast a connection may send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Congestion {
    /// CUBIC (RFC 9438): what most of the internet does.
    #[default]
    Cubic,
    /// BBR: paced by the bandwidth that is measured, hardly by losses. For paths that lose packets without being full. quinn calls it experimental.
    Bbr,
    /// NewReno (RFC 9002 §7).
    NewReno,
}

impl Congestion {
    /// By the name that users write: `cubic`, `bbr` or `newreno`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "cubic" => Some(Self::Cubic),
            "bbr" => Some(Self::Bbr),
            "newreno" => Some(Self::NewReno),
            _ => None,
        }
    }

    /// `window`: what may be sent at first, if not as usual.
    fn factory(self, window: Option<u64>) -> Arc<dyn ControllerFactory + Send + Sync> {
        match self {
            Self::Cubic => {
                let mut config = CubicConfig::default();
                window.map(|window| config.initial_window(window));
                Arc::new(config)
            }
            // Begins with more than any.
            Self::Bbr => Arc::new(BbrConfig::default()),
            Self::NewReno => {
                let mut config = NewRenoConfig::default();
                window.map(|window| config.initial_window(window));
                Arc::new(config)
            }
        }
    }
}

/// What holds for one connection, of a server or a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transport {
    /// Bidirectional streams the peer may have open at once.
    pub bidi_streams: u32,
    /// Unidirectional streams the peer may have open at once. HTTP/3 needs three, and may be offered more (RFC 9114 §6.2).
    pub uni_streams: u32,
    /// Bytes of one stream that may wait here unread.
    pub stream_window: u32,
    /// Bytes of all streams of a connection that may wait here unread: bounds a connection's memory.
    pub connection_window: u32,
    /// Bytes of all streams that were written and not yet acknowledged: bounds the other direction's.
    pub send_window: u32,
    /// Silence after which a connection is given up.
    pub idle: Duration,
    /// Silence after which a sign of life is sent; `None`: never. Less than half of `idle` keeps a connection.
    pub keep_alive: Option<Duration>,
    /// Bytes of datagrams (RFC 9221) that may wait unread, older ones making way; 0: no datagrams.
    pub datagrams: usize,
    /// Bytes of datagrams that may wait to be sent.
    pub datagram_send: usize,
    /// How fast to send.
    pub congestion: Congestion,
    /// The largest UDP payload that is tried, in bytes. From 1200 on, larger ones are searched for (RFC 8899): up to 1452, or, in networks of
    /// one's own, up to what the route to the peer takes, if that is more and the system tells.
    pub largest_packet: u16,
    /// Many packets in one system call (UDP GSO), where the system can.
    pub offload: bool,
    /// How often the peer is asked to acknowledge; `None`, and where the peer does not offer to be asked: after every second packet (RFC 9000
    /// §13.2.2).
    pub acks: Option<Acks>,
}

/// How often a peer acknowledges what is sent to it (draft-ietf-quic-ack-frequency). A packet that comes out of order is acknowledged at once, so that
/// a loss is known no later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acks {
    /// Packets after which it does, 1 at least.
    pub every: u32,
    /// How long it waits for so many, 1 ms at least. What a path carries that has room for fewer is delayed by this in each round trip.
    pub delay: Duration,
    /// Bytes: only where packets of this size or larger are tried are peers asked ([`Transport::largest_packet`]); 0: everywhere.
    pub packets_from: u16,
}

impl Acks {
    fn quinn(self) -> AckFrequencyConfig {
        let mut config = AckFrequencyConfig::default();
        config
            .ack_eliciting_threshold(self.every.saturating_sub(1).into())
            .max_ack_delay(Some(self.delay))
            .reordering_threshold(VarInt::from_u32(1));
        config
    }
}

impl Default for Transport {
    fn default() -> Self {
        Self {
            bidi_streams: 128,
            uni_streams: 8,
            stream_window: 1 << 20,
            connection_window: 8 << 20,
            send_window: 8 << 20,
            idle: Duration::from_secs(30),
            keep_alive: None,
            datagrams: 256 << 10,
            datagram_send: 256 << 10,
            congestion: Congestion::default(),
            largest_packet: LARGEST,
            offload: true,
            acks: None,
        }
    }
}

impl Transport {
    /// Said to quinn, for peers to whom packets of `largest` bytes may be tried.
    pub(crate) fn quinn(&self, largest: u16) -> TransportConfig {
        let mut transport = TransportConfig::default();
        let mut search = MtuDiscoveryConfig::default();
        search.upper_bound(largest.max(LEAST_PACKET));
        transport
            .max_concurrent_bidi_streams(self.bidi_streams.into())
            .max_concurrent_uni_streams(self.uni_streams.into())
            .stream_receive_window(self.stream_window.into())
            .receive_window(self.connection_window.into())
            .send_window(self.send_window.into())
            .max_idle_timeout(Some(milliseconds(self.idle).into()))
            .keep_alive_interval(self.keep_alive)
            .datagram_receive_buffer_size((self.datagrams > 0).then_some(self.datagrams))
            .datagram_send_buffer_size(self.datagram_send)
            .congestion_controller_factory(self.congestion.factory(first_window(largest)))
            .mtu_discovery_config((largest > LEAST_PACKET).then_some(search))
            .enable_segmentation_offload(self.offload)
            .ack_frequency_config(
                self.acks
                    .filter(|acks| largest >= acks.packets_from)
                    .map(Acks::quinn),
            );
        transport
    }
}

/// RFC 9000 §14.1.
const LEAST_PACKET: u16 = 1200;

fn milliseconds(time: Duration) -> VarInt {
    u64::try_from(time.as_millis())
        .ok()
        .and_then(|milliseconds| VarInt::from_u64(milliseconds).ok())
        .unwrap_or(VarInt::MAX)
}

/// What holds for a server's endpoints; numbers are for each worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Each connection's limits.
    pub transport: Transport,
    /// Connections at once; more are refused.
    pub connections: usize,
    /// Handshakes at once; more are ignored, as if their packets had been lost.
    pub handshakes: usize,
    /// Handshakes under way from which on a client has to prove its address first (Retry, RFC 9000 §8.1.2), which costs it a round trip. 0: always.
    pub retry_from: usize,
    /// How long a handshake may take.
    pub handshake_time: Duration,
    /// Whether clients may change their address during a connection.
    pub migration: bool,
    /// Bytes a socket's buffers should have, in each direction.
    pub socket_buffer: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            transport: Transport::default(),
            connections: 16_384,
            handshakes: 1024,
            retry_from: 128,
            handshake_time: Duration::from_secs(10),
            migration: true,
            socket_buffer: 4 << 20,
        }
    }
}

impl Config {
    /// Said to quinn, with the cryptography of the moment.
    pub(crate) fn quinn(
        &self,
        crypto: Arc<dyn quinn::crypto::ServerConfig>,
        token_key: &Arc<dyn HandshakeTokenKey>,
    ) -> quinn::ServerConfig {
        let mut config = quinn::ServerConfig::new(crypto, Arc::clone(token_key));
        config
            .transport_config(Arc::new(
                self.transport
                    .quinn(self.transport.largest_packet.min(USUAL)),
            ))
            .migration(self.migration)
            .max_incoming(self.handshakes.max(1))
            .incoming_buffer_size(EARLY)
            .incoming_buffer_size_total(EARLY_TOTAL);
        config
    }
}

/// Bytes kept of a connection before it is looked at: a ClientHello and a few requests of early data.
const EARLY: u64 = 64 << 10;
/// The same for all of an endpoint.
const EARLY_TOTAL: u64 = 8 << 20;

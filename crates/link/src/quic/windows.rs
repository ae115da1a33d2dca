//! What holds for a QUIC link's connection, for whoever makes its endpoint.

use std::time::Duration;

use ::quic::{Acks, Congestion, Transport};

/// A server's connections. Until a client has proved who it is, it has one stream and little room; [`crate::Transport::peer_is_known`]
/// gives it the rest.
#[must_use]
pub fn server_transport(bbr: bool) -> Transport {
    Transport {
        bidi_streams: 1,
        connection_window: STRANGERS_WINDOW,
        send_window: STRANGERS_WINDOW,
        idle: SILENCE,
        keep_alive: Some(KEEP_ALIVE),
        ..client_transport(bbr, SILENCE, KEEP_ALIVE)
    }
}

/// A client's connections: given up after `silence`, with a sign of life after each `keep_alive` in which nothing was sent or received.
#[must_use]
pub fn client_transport(bbr: bool, silence: Duration, keep_alive: Duration) -> Transport {
    Transport {
        bidi_streams: STREAMS_AT_FIRST,
        uni_streams: 0,
        stream_window: STREAM_WINDOW,
        connection_window: LINK_WINDOW,
        send_window: LINK_WINDOW,
        idle: silence,
        keep_alive: Some(keep_alive),
        datagrams: DATAGRAMS,
        datagram_send: DATAGRAMS,
        congestion: if bbr {
            Congestion::Bbr
        } else {
            Congestion::Cubic
        },
        acks: Some(ACKS),
        ..Transport::default()
    }
}

/// Bytes that a peer may send on one stream ahead of its reader: fills a path of 80 Mbit/s and 100 ms. QUIC can not take back
/// a window that it gave (RFC 9000 §4.1), so this is also what a visitor who does not read holds.
pub const STREAM_WINDOW: u32 = 1 << 20;

/// Bytes that a peer may send on all streams of a link ahead of their readers; and what this end may have sent without having heard that
/// it arrived. Visitors that do not read may hold three quarters of it (see `stalled.rs`).
pub const LINK_WINDOW: u32 = 256 << 20;

/// Streams that the server may have open on a link at first. Each one that may be opened costs some 40 bytes at the client, so the number
/// grows when half of it is in use.
pub const STREAMS_AT_FIRST: u32 = 1024;

/// What gt asks of gt, where packets are large: on one machine, or in a network with jumbo frames. Elsewhere not: over a path of Ethernet's packets that
/// loses 1 %, with a round trip of 20 ms, a download had 5 to 9 % less, because the window's last packets wait for the delay in each round trip.
const ACKS: Acks = Acks {
    every: 10,
    delay: Duration::from_millis(2),
    packets_from: 4096,
};
/// Bytes that a client may send, and be sent, before it is known: several times what a handshake takes.
const STRANGERS_WINDOW: u32 = 64 << 10;
/// Silence after which a link is given up.
const SILENCE: Duration = Duration::from_secs(30);
/// A third of it, so that one lost sign of life is none too many.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Bytes of datagrams that wait in each direction: 20 ms at 400 Mbit/s.
const DATAGRAMS: usize = 1 << 20;

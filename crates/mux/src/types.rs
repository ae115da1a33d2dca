//! The words of the public face: what a caller configures, is told, and can do wrong.

use std::{borrow::Cow, time::Duration};

use crate::frame;

/// Which end of the transport this is; it decides which stream ids this end hands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The end that opened the transport: odd stream ids.
    Initiator,
    /// The end that accepted the transport: even stream ids.
    Acceptor,
}

/// Limits and windows of one link. Both ends must agree on the windows: what one announces is what the other may send.
/// Windows over 2^31 - 1 count as that.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Bytes the peer may send on a new stream before it gets credit.
    pub stream_window: u32,
    /// Bytes the peer may have unacknowledged on all streams together.
    pub link_window: u32,
    /// The peer's `stream_window`.
    pub peer_stream_window: u32,
    /// The peer's `link_window`.
    pub peer_link_window: u32,
    /// Bound to which a stream's receive window grows while its reader keeps up.
    pub max_stream_window: u32,
    /// Streams that may be open at once, opened by either end.
    pub max_streams: usize,
    /// Bytes of stream data that wait for the transport before streams have to wait for their turn; at least 1.
    pub output_limit: usize,
    /// Time between two pings; not zero. The link counts as dead when nothing has come for twice as long.
    pub keep_alive: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            stream_window: 256 << 10,
            link_window: 64 << 20,
            peer_stream_window: 256 << 10,
            peer_link_window: 64 << 20,
            max_stream_window: 8 << 20,
            max_streams: 65_536,
            output_limit: 64 << 10,
            keep_alive: Duration::from_secs(15),
        }
    }
}

/// Names one stream at this end. A key of a stream that has ended is never mistaken for a later stream: calls with it do
/// nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl Key {
    /// Position in a table as large as the number of open streams; reused after the stream has ended.
    #[must_use]
    pub fn index(self) -> usize {
        self.index as usize
    }
}

/// Why a stream was reset. The values belong to the protocol above (`tunnel`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reason(pub u16);

impl Reason {
    /// Sent by the multiplexer itself when [`Config::max_streams`] are open.
    pub const OVERLOADED: Self = Self(10);
}

/// What [`crate::Mux::receive`] found in the input.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'i> {
    /// The peer opened a stream. Its first payload, if any, follows as [`Event::Data`].
    Opened {
        /// The new stream.
        key: Key,
        /// The header that the peer gave to `open`.
        header: Cow<'i, [u8]>,
    },
    /// Bytes of a stream, in order. Report them with `consumed` when they have been passed on.
    Data {
        /// The stream.
        key: Key,
        /// Its next bytes.
        bytes: &'i [u8],
    },
    /// The peer sends nothing more on this stream (half-close).
    Finished {
        /// The stream.
        key: Key,
    },
    /// The peer gave the stream up in both directions; the key is dead.
    Reset {
        /// The stream.
        key: Key,
        /// The peer's reason.
        reason: Reason,
    },
    /// A message of the protocol above.
    Control {
        /// Its bytes.
        message: Cow<'i, [u8]>,
    },
    /// The peer answered a ping.
    Pong {
        /// Time between the ping and its answer.
        round_trip: Duration,
    },
}

/// Answer to a stream's wish to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Send now, at most so many bytes.
    Now(usize),
    /// `next_turn` will name the stream.
    Later,
    /// The stream has ended or its sending side is finished.
    Gone,
}

/// Why a stream could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// [`Config::max_streams`] are open.
    #[error("the link already carries its maximum number of streams")]
    TooManyStreams,
    /// The caller's fault: a header over [`frame::MAX_HEADER`] bytes.
    #[error("a stream header may have at most {} bytes", frame::MAX_HEADER)]
    HeaderTooLong,
}

/// The peer broke the protocol: the link must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A frame type that this version does not know.
    #[error("the peer sent a frame of unknown type {0:#04x}")]
    UnknownFrame(u8),
    /// A length that the frame type does not allow.
    #[error("the peer sent a frame of type {kind:#04x} with the impossible length {length}")]
    BadLength {
        /// Frame type.
        kind: u8,
        /// The length in its header.
        length: u16,
    },
    /// An id that is not the peer's to give out, or is in use.
    #[error("the peer opened a stream with the id {0}, which it may not use now")]
    BadStreamId(u32),
    /// More bytes than the window allowed.
    #[error("the peer sent more than its credit on stream {0} (0: on the link)")]
    OverCredit(u32),
    /// Credit beyond 2^31 - 1.
    #[error("the peer gave more credit than a window can hold")]
    CreditOverflow,
    /// Data after the end of a stream.
    #[error("the peer sent data on stream {0} after finishing it")]
    DataAfterFinish(u32),
}

/// Nothing has come from the peer for two keep-alive intervals, in which it had two pings to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the peer has not answered for {silence:?}")]
pub struct Dead {
    /// Time since anything was received.
    pub silence: Duration,
}

//! The words of the public face: what a caller configures, is told, and what can go wrong.

use std::time::Duration;

use crate::types::Key;

/// The version of the protocol; both ends must be set to the same, as nothing is negotiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Version {
    /// No flow control of streams: one that is not read stops all.
    V1 = 1,
    /// A window for each stream.
    V2 = 2,
}

/// Limits of one session. What is out of its bounds counts as the nearest bound.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The version that both ends speak.
    pub version: Version,
    /// Bytes of all streams together that may have come and not been passed on; at least 1. When they have, nothing more is to be
    /// read from the transport: see [`super::Smux::read_budget`]. Go's `MaxReceiveBuffer`, 4 MiB there too.
    pub receive_buffer: usize,
    /// Version 2: bytes of one stream that may have come and not been passed on, 1 to 2^31 - 1, and not over `receive_buffer`. The
    /// peer may send [`super::INITIAL_WINDOW`] bytes before it learns of this. Go's `MaxStreamBuffer`. A stream's window is less
    /// than this, but not less than the initial one, where it would be more than a quarter of what other streams' windows leave
    /// of `receive_buffer`.
    pub stream_buffer: u32,
    /// Most payload bytes of a frame that this end sends; at least 1. Smaller frames let other streams in between.
    pub max_frame: u16,
    /// Streams that may be open at once, opened by either end.
    pub max_streams: usize,
    /// Bytes of frames that wait for the transport before streams have to wait for their turn; at least 1.
    pub output_limit: usize,
    /// Time between two signs of life to the peer.
    pub keep_alive: Duration,
    /// Silence of the peer after which the session counts as dead. It must be longer than the peer's `keep_alive`.
    pub keep_alive_timeout: Duration,
    /// Version 2: how long a stream that the peer has finished may wait for window before its own sending is given up. Go's smux
    /// knows no half-close: who sent `FIN` reads no more, so its window stays shut.
    pub linger: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            version: Version::V2,
            receive_buffer: 4 << 20,
            stream_buffer: 1 << 20,
            max_frame: 32 << 10,
            max_streams: 4096,
            output_limit: 64 << 10,
            keep_alive: Duration::from_secs(10),
            keep_alive_timeout: Duration::from_secs(30),
            linger: Duration::from_secs(30),
        }
    }
}

impl Config {
    /// Within the bounds.
    pub(super) fn checked(self) -> Self {
        let receive_buffer = self.receive_buffer.max(1);
        let largest =
            u32::try_from(receive_buffer).map_or(LARGEST_WINDOW, |n| n.min(LARGEST_WINDOW));
        Self {
            receive_buffer,
            stream_buffer: self.stream_buffer.clamp(1, largest),
            max_frame: self.max_frame.max(1),
            output_limit: self.output_limit.max(1),
            // A wait of nothing would be a loop without end.
            keep_alive: self.keep_alive.max(Duration::from_millis(1)),
            ..self
        }
    }
}

/// Windows are compared as signed 32-bit numbers by the peer.
pub(super) const LARGEST_WINDOW: u32 = u32::MAX >> 1;

/// What [`super::Smux::receive`] found in the input.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'i> {
    /// The peer opened a stream.
    Opened {
        /// The new stream.
        key: Key,
    },
    /// Bytes of a stream, in order. Report them with `consumed` when they have been passed on.
    Data {
        /// The stream.
        key: Key,
        /// Its next bytes.
        bytes: &'i [u8],
    },
    /// The peer writes nothing more on this stream. smux does not say whether it still reads.
    Finished {
        /// The stream.
        key: Key,
    },
}

/// Why a stream could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// [`Config::max_streams`] are open.
    #[error("the session already carries its maximum number of streams")]
    TooManyStreams,
    /// All 2^31 ids of this end have been used; ids are used once. A new session is needed.
    #[error("the session has no stream ids left")]
    IdsUsedUp,
}

/// The peer broke the protocol: the session must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A version that this end is not set to (or something that is not smux at all).
    #[error("the peer speaks version {theirs} of smux; this end is set to version {ours}")]
    Version {
        /// What this end speaks.
        ours: u8,
        /// The first byte of the peer's frame.
        theirs: u8,
    },
    /// A command that the version does not have.
    #[error("the peer sent the unknown smux command {0:#04x}")]
    UnknownCommand(u8),
    /// A length that the command does not allow.
    #[error("the peer sent the smux command {command:#04x} with the impossible length {length}")]
    BadLength {
        /// The command.
        command: u8,
        /// The length in its header.
        length: u16,
    },
    /// An id that is not the peer's to give out, or is in use.
    #[error("the peer opened a stream with the id {0}, which it may not use now")]
    BadStreamId(u32),
    /// Version 2: more bytes than the window allowed.
    #[error("the peer sent more than its window on stream {0}")]
    OverWindow(u32),
    /// Version 2: more bytes consumed than were sent.
    #[error("the peer says it consumed more of stream {0} than was sent")]
    OverConsumed(u32),
}

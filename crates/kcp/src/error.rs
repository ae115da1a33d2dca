//! What can go wrong, and whose fault it is.

use thiserror::Error;

/// The peer (or whoever wrote the datagram) is at fault; the datagram was dropped from the offending byte on, and the
/// session goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum InputError {
    /// Too short for the packet header, or for one KCP segment.
    #[error("the datagram is too short")]
    Short,
    /// The checksum or the authentication tag does not match: another key, another cipher, or damage.
    #[error("the datagram does not decrypt: other key or cipher, or damaged")]
    Unsealed,
    /// A segment of another conversation.
    #[error("the datagram belongs to another conversation")]
    Conversation,
    /// A segment promises more bytes than the datagram holds.
    #[error("a segment is longer than its datagram")]
    Truncated,
    /// A command other than PUSH, ACK, WASK and WINS.
    #[error("unknown command {0}")]
    Command(u8),
    /// A FEC size field that does not fit the packet.
    #[error("the FEC size field does not match the packet")]
    FecSize,
}

/// The caller is at fault: the options cannot work.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// No cipher has this name.
    #[error("unknown cipher {0:?}")]
    Cipher(String),
    /// The key is shorter than the cipher takes.
    #[error("the key has {got} bytes, the cipher takes {want}")]
    Key {
        /// Bytes that the cipher takes.
        want: usize,
        /// Bytes given.
        got: usize,
    },
    /// Data or parity shards are zero, or more than 256 together.
    #[error(
        "{data} data and {parity} parity shards: both must be at least 1, and 256 at most together"
    )]
    Shards {
        /// Data shards given.
        data: usize,
        /// Parity shards given.
        parity: usize,
    },
    /// The MTU leaves no room for payload, or is over 1500 bytes.
    #[error(
        "an MTU of {0} bytes does not work: it must leave room for headers and be at most 1500"
    )]
    Mtu(usize),
    /// A window of zero, or over 65535 segments.
    #[error("a window of {0} segments does not work: 1 to 65535")]
    Window(u32),
}

/// Why data was not taken for sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SendError {
    /// The queue is full; try again when acknowledgements have made room.
    #[error("the send queue is full")]
    Full,
    /// A message needs more than 255 segments, or an out-of-band payload more than one datagram; or it is empty.
    #[error("the message is empty or too large")]
    Size,
    /// Out-of-band messages travel in FEC packets: FEC must be on.
    #[error("out-of-band messages need FEC")]
    NeedsFec,
    /// The link is dead or the session closed.
    #[error("the session is closed")]
    Closed,
}

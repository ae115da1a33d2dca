//! How streams and links end.

use std::{io, time::Duration};

use tunnel::ResetReason;

/// What a joined stream carried and how it ended.
#[derive(Debug)]
pub struct Outcome {
    /// Bytes from the joined socket into the link.
    pub sent: u64,
    /// Bytes from the link into the joined socket.
    pub received: u64,
    /// How it ended.
    pub end: End,
    /// The socket, if the other end gave the stream up before it had sent anything; else the socket is closed or was reset. Dropping it
    /// closes it in order: abort it, or say in its own language what went wrong.
    pub socket: Option<net::Stream>,
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Both directions were finished in order.
    Finished,
    /// The joined socket failed.
    Socket(io::ErrorKind),
    /// The other end of the link reset the stream.
    Reset(ResetReason),
    /// The link went away.
    LinkLost,
    /// Nothing was sent for longer than allowed.
    Idle,
    /// Dropped by its owner.
    Cancelled,
}

/// How a link ended.
#[derive(Debug, thiserror::Error)]
pub enum LinkEnd {
    /// This end closed it.
    #[error("closed by this end")]
    Closed,
    /// The peer closed the transport.
    #[error("the peer closed the connection")]
    PeerClosed,
    /// The transport failed.
    #[error("the connection failed: {0}")]
    Transport(#[from] io::Error),
    /// The peer broke the protocol.
    #[error("protocol violation: {0}")]
    Violation(#[from] mux::Violation),
    /// No sign of life.
    #[error("{0}")]
    Dead(#[from] mux::Dead),
    /// The QUIC connection timed out, or the peer does not know it any more.
    #[error("the connection was lost: {0}")]
    Lost(quinn::ConnectionError),
    /// The transport did not take what it should for too long after closing.
    #[error("the connection did not drain within {0:?}")]
    Stuck(Duration),
}

//! Links over any transport: both ends.
//!
//! ```text
//!   Transport (net::Stream or QUIC) ── handshake ──► Link::start ──► Driver, one task per link
//!                                                │
//!            Link::open / Handler::opened ──► Incoming, Stream ──► join(socket): bytes flow without another copy
//! ```
//!
//! A link and everything on it live on one worker thread. There are two kinds, and nothing above can tell: `framed` runs gt's multiplexer
//! over a byte transport, [`quic`] uses QUIC's own streams.
//!
//! Over a byte transport there is no lock and no atomic on the data path. The driver reads the transport
//! once per turn of the event loop and writes what it finds straight into the joined sockets; what the sockets' tasks produced in
//! the same turn it writes with one system call. That is where the relay's cost per request goes down, because a link's system
//! calls are shared by all streams that were active in the turn.
//!
//! Left to others: what a stream's header says and whom it concerns (`tunnel`, `server`, `agent`), when to connect again
//! (`agent`), how sockets work (`net`).

mod broken;
mod datagram;
mod end;
mod framed;
mod handshake;
mod join;
mod link;
mod pace;
pub mod quic;
mod stream;
mod transport;

pub use datagram::{DatagramReader, DatagramWriter};
pub use end::{End, LinkEnd, Outcome};
pub use handshake::{Accepting, HandshakeFailure, connect};
pub use join::{Join, JoinOptions};
pub use link::{Driver, Fec, Handler, Link, LinkOptions, UNSENT};
pub use mux::Side;
pub use pace::{Pace, Pacer, Traffic};
pub use stream::Stream;
pub use transport::Transport;

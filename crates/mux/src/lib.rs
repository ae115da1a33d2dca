//! Streams over one in-order byte transport: gt's own multiplexer, and in [`smux`] the one of kcptun. Sans-IO: no socket, no clock,
//! no task.
//!
//! ```text
//!   transport ──bytes──► Mux::receive ──Event──► caller ──► Mux::consumed (returns credit)
//!   transport ◄─bytes─── Mux::output  ◄──────── Mux::open / send_with / finish / reset / send_control
//! ```
//!
//! # Call order
//!
//! 1. Feed what the transport gave to [`Mux::receive`] until the input is used up; act on each [`Event`].
//! 2. A caller that has bytes for a stream asks for its turn with [`Mux::request`]. [`Turn::Now`] means send at once with
//!    [`Mux::send_with`]; [`Turn::Later`] means that [`Mux::next_turn`] names the stream when its turn has come.
//! 3. Call [`Mux::next_turn`] until it gives `None`: after input, because it may have brought credit, and after each
//!    [`Mux::advance`], because room was made. Then write [`Mux::output`] to the transport and call [`Mux::advance`].
//! 4. Call [`Mux::on_timeout`] when [`Mux::next_timeout`] has passed.
//! 5. While [`Mux::output_len`] is more than a few times [`Config::output_limit`], neither read from the transport nor open streams:
//!    answers to what the peer sends are not held up by the limit, so this is what bounds them. Sixteen times, and not less than
//!    64 KiB, is a good bound: if both ends stop reading, nothing moves until the link counts as dead.
//!
//! After a [`Violation`] or [`Dead`] the link is of no more use: close the transport.
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//! use mux::{Config, Event, Mux, Side};
//!
//! let now = Duration::ZERO;
//! let mut client = Mux::new(Side::Initiator, Config::default(), now);
//! let mut server = Mux::new(Side::Acceptor, Config::default(), now);
//!
//! let (stream, sent) = client.open(b"header", b"hello", now)?;
//! assert_eq!(sent, 5);
//! client.finish(stream);
//!
//! let wire = client.output().to_vec();
//! client.advance(wire.len());
//! let mut input = &wire[..];
//! let mut received = Vec::new();
//! while let Some(event) = server.receive(&mut input, now)? {
//!     match event {
//!         Event::Opened { header, .. } => assert_eq!(&header[..], b"header"),
//!         Event::Data { key, bytes } => {
//!             received.extend_from_slice(bytes);
//!             server.consumed(key, bytes.len(), now);
//!         }
//!         Event::Finished { key } => server.finish(key),
//!         _ => {}
//!     }
//! }
//! assert_eq!(received, b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Why turns
//!
//! A stream's bytes are not queued here: they stay where they are (a socket's receive buffer) until the link has room for
//! them, and then go straight into the link's output. So the memory of a link is bounded by [`Config::output_limit`] however
//! many streams are busy, a slow link pushes back on each visitor, and a keystroke never waits behind more than one output
//! buffer of somebody else's download.
//!
//! # Fairness
//!
//! Waiting streams are served by deficit round robin in two lists, after fq_codel (RFC 8290 §4.1): a stream that has used less
//! than its quantum goes before those that have used it up. A keystroke therefore passes bulk transfers without being marked.
//! Short streams without end cannot starve the long ones, which get a turn after each quantum that went to the short.
//!
//! # Credit
//!
//! A receiver announces a window per stream and one per link. Credit returns when the receiver's caller has passed bytes on
//! ([`Mux::consumed`]), so a slow stream stops itself. What one stream may hold of the link's window halves with each twentieth of
//! the window that is in use, so streams that are never read, however many, do not use it up: a thousand of them leave each
//! other stream 4 KiB of a window of 64 MiB. Windows of streams whose readers keep up grow until they last for the measured round trip
//! and for the times in which the transport stands still, at most to [`Config::max_stream_window`]. See docs/protocol/mux.md.

mod credit;
mod decode;
mod frame;
mod mux;
mod output;
mod path;
mod schedule;
pub mod smux;
mod stream;
mod types;

pub use frame::{MAX_HEADER, MAX_PAYLOAD};
pub use mux::Mux;
pub use types::{Config, Dead, Event, Key, OpenError, Reason, Side, Turn, Violation};

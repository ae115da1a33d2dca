//! smux, the multiplexer of kcptun, versions 1 and 2: streams over one in-order byte transport, byte-compatible with Go's smux.
//! Sans-IO like the rest of the crate; with the feature `tokio`, `io` runs it over `AsyncRead + AsyncWrite`.
//!
//! ```text
//!   transport ──bytes──► Smux::receive ──Event──► caller ──► Smux::consumed (makes room, returns window)
//!   transport ◄─bytes─── Smux::output  ◄──────── Smux::open / send_with / finish / close
//! ```
//!
//! # Call order
//!
//! 1. Read at most [`Smux::read_budget`] bytes from the transport, none if it is 0, and feed them to [`Smux::receive`] until it
//!    returns `None`; act on each [`Event`]. This bounds the bytes that wait for readers to [`Config::receive_buffer`].
//! 2. A caller that has bytes for a stream asks for its turn with [`Smux::request`]. [`Turn::Now`](crate::Turn::Now) means send at
//!    once with [`Smux::send_with`]; [`Turn::Later`](crate::Turn::Later) means that [`Smux::next_turn`] names the stream when its
//!    turn has come. Turns are dealt as in [`Mux`](crate::Mux).
//! 3. Call [`Smux::next_turn`] until it gives `None`: after input, because it may have brought window, and after each
//!    [`Smux::advance`], because room was made. Then write [`Smux::output`] to the transport and call [`Smux::advance`].
//! 4. Call [`Smux::on_timeout`] when [`Smux::next_timeout`] has passed, then [`Smux::next_given_up`] until it gives `None`.
//! 5. While [`Smux::output_len`] is more than a few times [`Config::output_limit`], neither read nor open streams.
//!
//! After a [`Violation`] or [`Dead`](crate::Dead) the session is of no more use: close the transport.
//!
//! # Frames
//!
//! `version u8 ‖ command u8 ‖ length u16 ‖ stream u32 ‖ payload`, little-endian. Commands: 0 `SYN` opens a stream, 1 `FIN` says that
//! its sender writes no more, 2 `PSH` carries bytes, 3 `NOP` shows life, and in version 2 4 `UPD` tells how many bytes of a stream
//! have been consumed and how large its window is (two u32). The end that opened the transport uses stream ids 3, 5, 7 …, the other
//! 2, 4, 6 …; an id is used once.
//!
//! # What smux cannot do
//!
//! - There is no handshake: versions must be configured, and a mismatch shows only with the first frame.
//! - There is no reset and no reason. A refused stream is answered by `FIN`, which looks like a service that closes at once.
//! - `FIN` does not say whether its sender still reads. Go's smux does not: what is sent to it then is dropped in silence (version
//!   1), or waits for a window that never opens (version 2; [`Config::linger`] ends that). And Go's version 2 stops writing
//!   to a peer that has finished once the window is full. So half-close works between two ends of this crate only.
//! - Version 1 has no flow control of streams: when readers leave [`Config::receive_buffer`] bytes, all streams of the session wait
//!   for the slowest. Version 2 does the same when more streams are not read than initial windows (256 KiB) fit the buffer; should
//!   their readers wait for window to write (an echo), which the peer has sent behind those bytes, they wait for ever. Give
//!   [`Config::receive_buffer`] 256 KiB for each stream that may be busy.
//! - Nothing is authenticated. The transport has to see to that.
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//! use mux::{Side, smux::{Config, Event, Smux}};
//!
//! let now = Duration::ZERO;
//! let mut client = Smux::new(Side::Initiator, Config::default(), now);
//! let mut server = Smux::new(Side::Acceptor, Config::default(), now);
//!
//! let stream = client.open()?;
//! assert_eq!(client.send(stream, b"hello"), 5);
//! client.finish(stream);
//!
//! let wire = client.output().to_vec();
//! client.advance(wire.len());
//! let mut input = &wire[..];
//! let mut received = Vec::new();
//! while let Some(event) = server.receive(&mut input, now)? {
//!     match event {
//!         Event::Opened { .. } => {}
//!         Event::Data { key, bytes } => {
//!             received.extend_from_slice(bytes);
//!             server.consumed(key, bytes.len(), now);
//!         }
//!         Event::Finished { key } => server.finish(key),
//!     }
//! }
//! assert_eq!(received, b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod decode;
mod frame;
#[cfg(feature = "tokio")]
pub mod io;
mod session;
mod stream;
mod types;

pub use self::{
    session::Smux,
    stream::INITIAL_WINDOW,
    types::{Config, Event, OpenError, Version, Violation},
};

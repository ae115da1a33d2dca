//! Streams over one in-order byte transport. Sans-IO: no socket, no clock, no task.
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
//! 3. Write [`Mux::output`] to the transport, then [`Mux::advance`]; then ask [`Mux::next_turn`] again, because room was made.
//! 4. Call [`Mux::on_timeout`] when [`Mux::next_timeout`] has passed.
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
//!
//! # Credit
//!
//! A receiver announces a window per stream and one per link. Credit returns when the receiver's caller has passed bytes on
//! ([`Mux::consumed`]), so a slow stream stops itself. No stream may hold more than what is left of the link's window, so slow
//! streams, however many, never use it up entirely (dynamic thresholds, Choudhury and Hahne 1998). Windows of streams that keep up
//! grow with the measured round trip, to [`Config::max_stream_window`].

mod decode;
mod frame;
mod mux;
mod output;
mod schedule;
mod stream;
mod types;

pub use frame::{MAX_HEADER, MAX_PAYLOAD};
pub use mux::Mux;
pub use types::{Config, Dead, Event, Key, OpenError, Reason, Side, Turn, Violation};

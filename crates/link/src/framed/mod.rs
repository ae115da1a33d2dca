//! Links over a byte transport: gt's multiplexer (`mux`) carries the streams.
//!
//! `driver.rs` is the link's task, `state.rs` what driver and streams share, `slot.rs` one stream's state, `join.rs` a stream joined to a
//! socket, `stream.rs` one that is read and written here, `link.rs` the handle. What the frames look like is left to `mux`.

mod driver;
mod join;
mod link;
mod slot;
mod state;
mod stream;

pub(crate) use driver::Driver;
pub(crate) use join::Join;
pub(crate) use link::Framed;
pub(crate) use state::Shared;
pub(crate) use stream::Stream;

//! HTTP/2 to servers: a few connections for each server and worker, shared by requests. A stream is made to look like an HTTP/1.1 connection
//! that carries one request, so that the exchange with the visitor is the same for both.
//!
//! ```text
//! pool (a connection with room, or another) ─► stream (one request) ─► translate (heads)
//! ```
//!
//! Framing and flow control are the `h2` crate's. What a server may send ahead of the visitor's reading is bounded by the windows below.

mod pool;
mod stream;
mod translate;

pub(crate) use self::{
    pool::{Below, Pool, Room},
    stream::ServerStream,
};

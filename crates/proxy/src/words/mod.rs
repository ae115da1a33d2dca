//! Streams of HTTP/2 and HTTP/3 as connections of HTTP/1.1: the same for both versions, so that every rule that holds for a visitor of HTTP/1.1 holds
//! for them.
//!
//! ```text
//! request ─► Asked ─ compose ─► h1's head     its body ─► Reading ─► bytes as HTTP/1.1 frames them
//! response, data, trailers ◄─ Telling ◄─ bytes of the answer, as h1 has written them
//! ```
//!
//! Frames, windows and what of a message is malformed there are left to `h2.rs`, `h3.rs` and the libraries below them.

mod asked;
mod told;

use std::io;

pub(crate) use asked::{Asked, Reading};
pub(crate) use told::{Piece, Telling};

pub(crate) fn invalid() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

/// For heads that this proxy has written: what they may have was decided when they were read.
pub(crate) const UNLIMITED: h1::Limits = h1::Limits {
    head: usize::MAX,
    fields: usize::MAX,
    target: usize::MAX,
    chunk_extension: usize::MAX,
    chunk_extensions: usize::MAX,
    trailers: usize::MAX,
    drain: u64::MAX,
    requests: u64::MAX,
    interim: u32::MAX,
};

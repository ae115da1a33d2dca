//! How much a QUIC link holds, for whoever makes its endpoint.

/// Bytes that a peer may send on one stream ahead of its reader: fills a path of 80 Mbit/s and 100 ms. QUIC can not take back
/// a window that it gave (RFC 9000 §4.1), so this is also what a visitor who does not read holds.
pub const STREAM_WINDOW: u32 = 1 << 20;

/// Bytes that a peer may send on all streams of a link ahead of their readers; and what this end may have sent without having heard that
/// it arrived. Visitors that do not read may hold three quarters of it (see `stalled.rs`).
pub const LINK_WINDOW: u32 = 256 << 20;

/// Streams that the server may have open on a link at first. Each one that may be opened costs some 40 bytes at the client, so the number
/// grows when half of it is in use.
pub const STREAMS_AT_FIRST: u32 = 1024;

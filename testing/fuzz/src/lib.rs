//! What every fuzz target checks, as plain functions: `libfuzzer/` drives them with new input, `tests/replay.rs` with the
//! committed corpora.

pub mod config;
pub mod datagram_fec;
pub mod h1;
pub mod h3;
pub mod kcp;
pub mod kcp_secure;
pub mod mux;
pub mod route;
pub mod smux;
pub mod sniff;
pub mod tunnel;
pub mod ws;

//! HTTP/3 for measuring servers of it: a server on crate `quic` that is as small as the one it stands beside, and a load for both.
//!
//! Both run as processes of their own (hidden commands of the bench), so that what a server costs can be read from `/proc`. Rounds and tables are made in
//! `run::http3`.

mod answer;
mod load;
mod serve;

pub use load::{Load, Options, Work, run};
pub use serve::serve;

/// What every body is made of.
const FILLING: u8 = b'x';

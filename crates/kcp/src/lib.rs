//! KCP: reliable streams over UDP, byte-compatible with kcp-go and kcptun.
pub mod arq;
mod config;
mod counters;
mod error;
pub mod fec;
pub mod seal;
mod time;

pub use self::{
    config::{Config, MTU_DEFAULT, MTU_MAX, Mode, Shards},
    counters::Counters,
    error::{ConfigError, InputError, SendError},
    time::Time,
};

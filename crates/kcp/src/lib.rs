//! KCP: reliable byte streams and messages over UDP, byte-compatible with kcp-go and kcptun.
//!
//! The crate is sans-IO: no socket, no clock, no task, no randomness. A [`Pipeline`] is one end of a session and joins
//!
//! - [`arq`]: numbered segments, acknowledgements, retransmission;
//! - [`fec`]: Reed-Solomon parity, so that a lost datagram need not be sent again;
//! - [`seal`]: packet encryption with a shared key.
//!
//! With the feature `tokio` the module `udp` has sessions and listeners on UDP sockets, as `AsyncRead` and `AsyncWrite`.
//!
//! Time and random bytes are arguments; datagrams go in by `handle_*` and come out by `poll_*`:
//!
//! ```
//! use std::sync::Arc;
//! use kcp::{Config, Pipeline, Time, arq::Conv, seal::{Cipher, Seal, derive_key}};
//!
//! let seal = Arc::new(Seal::new(Cipher::Aes128, &derive_key(b"a shared secret"))?);
//! let mut a = Pipeline::new(Conv(1), Config::default(), Arc::clone(&seal), [1; 32])?;
//! let mut b = Pipeline::new(Conv(1), Config::default(), seal, [2; 32])?;
//!
//! a.write(Time::ZERO, b"hello")?;
//! let mut datagram = [0; 1500];
//! while let Some(length) = a.poll_transmit(Time::ZERO, &mut datagram) {
//!     // A network would be here.
//!     b.handle_datagram(Time::ZERO, &mut datagram[..length])?;
//! }
//! let mut out = [0; 16];
//! let length = b.read(&mut out);
//! assert_eq!(&out[..length], b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
#![doc = include_str!("../README.md")]

pub mod arq;
mod config;
mod counters;
mod error;
pub mod fec;
mod pipeline;
pub mod seal;
mod time;
#[cfg(feature = "tokio")]
pub mod udp;

pub use self::{
    config::{Config, Control, MTU_DEFAULT, MTU_MAX, Mode, Shards},
    counters::Counters,
    error::{ConfigError, InputError, SendError},
    pipeline::{Peek, Pipeline},
    time::Time,
};

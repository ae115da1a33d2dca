//! The handshake that opens every link: Hello, Challenge, Proof, then Accept or Reject.
//!
//! `messages` is the wire format, `inbox` cuts received bytes into messages, `client` and `server` are the two machines.

mod client;
mod inbox;
mod messages;
mod server;
mod types;

pub use client::{ClientConfig, ClientEstablished, ClientHandshake, ServerProof};
pub use inbox::MAX_HANDSHAKE_MESSAGE;
pub use server::{
    AuthRequest, Authentication, BindingPolicy, ServerConfig, ServerEstablished, ServerHandshake,
    ServerStep,
};
pub use types::{BindingKind, ClientInfo, Features, Grant, TransportKind, VersionRange, Windows};

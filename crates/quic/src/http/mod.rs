//! HTTP over QUIC with TCP beside it: [`serve`] and a [`Client`], one kind of message for all versions.
//!
//! A handler gets a request whose body is [`Received`] and gives a response whose body is a [`Body`]; a client the other way round. Bodies stream in both
//! directions and have trailers; nobody holds more of one than its windows.

mod body;
mod client;
mod exchange;
mod serve;
mod tcp;

pub use body::{Body, BodyError, BoxError, Received};
pub use client::{Client, ClientOptions, RequestError, Versions};
pub use serve::{ServeError, ServeOptions, Serving, serve, serve_with};

pub use crate::h3::{DatagramError, Datagrams, Protocol};

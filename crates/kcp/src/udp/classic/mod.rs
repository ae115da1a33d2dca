//! Sessions as kcp-go's: a datagram belongs to the session of its address; the first segment of a conversation makes a new one.

mod kind;
mod link;
mod listener;
mod rate;
mod session;

pub use self::{listener::Listener, session::Session};

//! A socket joined to a stream: bytes flow between the two until both directions have ended.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use crate::{
    end::Outcome,
    framed,
    pace::{Pacer, Traffic},
    quic,
};

/// What a joined stream is held to. All off by default.
#[derive(Clone, Debug, Default)]
pub struct JoinOptions {
    /// Limit from the socket into the link.
    pub send: Option<Arc<Pacer>>,
    /// Limit from the link into the socket.
    pub receive: Option<Arc<Pacer>>,
    /// Reset after so long without a byte in either direction (checked every few seconds).
    pub idle: Option<Duration>,
    /// Reset after so long without a byte in any one direction.
    pub idle_one_way: Option<Duration>,
    /// Counts the bytes.
    pub traffic: Option<Arc<Traffic>>,
}

/// Resolves when the stream has ended in both directions. Dropping it resets the stream and the socket.
#[must_use = "a joined stream moves bytes only while it is awaited"]
pub struct Join(Kind);

enum Kind {
    Framed(framed::Join),
    Quic(Box<quic::Join>),
}

impl From<framed::Join> for Join {
    fn from(join: framed::Join) -> Self {
        Self(Kind::Framed(join))
    }
}

impl From<quic::Join> for Join {
    fn from(join: quic::Join) -> Self {
        Self(Kind::Quic(Box::new(join)))
    }
}

impl Future for Join {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        match &mut self.0 {
            Kind::Framed(join) => Pin::new(join).poll(cx),
            Kind::Quic(join) => Pin::new(&mut **join).poll(cx),
        }
    }
}

//! HTTP/2 to relayed services: a stream of a link carries a connection, which carries the requests of many visitors.

use std::{
    cell::Cell,
    io,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tunnel::ResetReason;

use super::{NoStream, Pool, RelayService, RelayStream, Tag, Visit, pool::KEEP};
use crate::h2_server::{Below, Room, ServerStream};

impl Pool {
    /// A place on a connection that has room, if there is one.
    pub(crate) fn place(
        &self,
        service: &Arc<dyn RelayService>,
        tag: Tag,
        now: Duration,
    ) -> Option<ServerStream> {
        // What was found a moment ago may be another service by now.
        if service.tag() != tag {
            return None;
        }
        self.http2(service, tag).stream(KEEP, now)
    }

    /// A place on a connection: with room, new, or one that another request has left.
    pub(crate) async fn open(
        &self,
        service: &Arc<dyn RelayService>,
        tag: Tag,
        visit: Visit,
        now: Duration,
    ) -> Result<ServerStream, NoStream> {
        let connections = self.http2(service, tag);
        let changes = connections.changes();
        let until = tokio::time::Instant::now() + PATIENCE;
        let opening = loop {
            // Before the look, so that no change is missed between the two.
            let changed = changes.notified();
            match connections.room(KEEP, now) {
                Room::Stream(stream) => return Ok(stream),
                Room::Open(opening) => break opening,
                Room::Full if tokio::time::Instant::now() >= until => {
                    return Err(NoStream::Overloaded);
                }
                // That a service allows more than at first is no change that anybody tells.
                Room::Full => {
                    let _ = tokio::time::timeout(LOOK, changed).await;
                }
            }
        };
        let stream = Arc::clone(service).open(visit).await?;
        let refusal = Rc::default();
        let below = Below {
            secure: false,
            refusal: Rc::clone(&refusal),
        };
        let told = Told { stream, refusal };
        let started = connections.start(told, below, KEEP, now).await;
        drop(opening);
        started.map_err(|_| NoStream::Away)
    }
}

/// A stream that leaves word of why it ended.
#[derive(Debug)]
struct Told {
    stream: RelayStream,
    refusal: Rc<Cell<Option<ResetReason>>>,
}

impl Told {
    fn note<T>(&self, result: &Poll<io::Result<T>>) {
        if matches!(result, Poll::Ready(Err(_))) {
            self.refusal.set(self.stream.refusal());
        }
    }
}

impl AsyncRead for Told {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.note(&read);
        read
    }
}

impl AsyncWrite for Told {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.note(&written);
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// For a place, where all connections are full.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(20);

//! Datagrams of a request (RFC 9297): small messages that may be lost, in both directions, for as long as the request's stream is open.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
};

use bytes::{Buf, Bytes};
use tokio::sync::mpsc;

use super::{link::Link, varint};

/// A datagram was not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DatagramError {
    /// The peer, or the path, takes none as large as this.
    #[error("the datagram is too large for the path, which takes {0} bytes")]
    TooLarge(usize),
    /// The peer takes none.
    #[error("the peer takes no datagrams")]
    Unsupported,
    /// The connection has ended.
    #[error("the connection has ended")]
    Ended,
}

/// The datagrams of one request: in the extensions of a request (server) or of a response (client). Cheap to clone; clones take turns in receiving.
#[derive(Clone)]
pub struct Datagrams {
    inner: Arc<Inner>,
}

struct Inner {
    link: Arc<Link>,
    stream: u64,
    arrived: Mutex<mpsc::Receiver<Bytes>>,
}

impl Datagrams {
    /// Those of a stream; from now on what comes for it is kept.
    pub(crate) fn new(link: &Arc<Link>, stream: u64) -> Self {
        let (sender, arrived) = mpsc::channel(WAITING);
        link.keep_datagrams(stream / 4, sender);
        Self {
            inner: Arc::new(Inner {
                link: Arc::clone(link),
                stream,
                arrived: Mutex::new(arrived),
            }),
        }
    }

    /// Sends one; it may be lost, also on this side when too many wait.
    ///
    /// # Errors
    /// [`DatagramError`].
    pub fn send(&self, payload: &[u8]) -> Result<(), DatagramError> {
        let link = &self.inner.link;
        if !link.peer_takes_datagrams() {
            return Err(DatagramError::Unsupported);
        }
        let mut bytes = Vec::with_capacity(payload.len() + 8);
        // RFC 9297 §2.1: a quarter of the stream's id, as those of requests are multiples of four.
        varint::write(&mut bytes, self.inner.stream / 4);
        let head = bytes.len();
        bytes.extend_from_slice(payload);
        link.quinn.send_datagram(bytes.into()).map_err(|error| {
            use quinn::SendDatagramError::{ConnectionLost, Disabled, TooLarge, UnsupportedByPeer};
            match error {
                UnsupportedByPeer | Disabled => DatagramError::Unsupported,
                TooLarge => {
                    let most = link.quinn.max_datagram_size().unwrap_or(0);
                    DatagramError::TooLarge(most.saturating_sub(head))
                }
                ConnectionLost(_) => DatagramError::Ended,
            }
        })
    }

    /// The next one, or `None` at the connection's end. At most 64 wait; more are lost. Cancel safe.
    pub async fn receive(&self) -> Option<Bytes> {
        std::future::poll_fn(|cx| {
            let mut arrived = self.arrived();
            match arrived.poll_recv(cx) {
                Poll::Ready(payload) => Poll::Ready(payload),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }

    fn arrived(&self) -> MutexGuard<'_, mpsc::Receiver<Bytes>> {
        let arrived = self.inner.arrived.lock();
        arrived.unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Datagrams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Datagrams")
            .field("stream", &self.inner.stream)
            .finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.link.forget_datagrams(self.stream / 4);
    }
}

/// Takes a datagram apart: which request it is for, and what it says. `None`: it is none.
pub(crate) fn parse(mut datagram: Bytes) -> Option<(u64, Bytes)> {
    let (quarter, length) = varint::read(&datagram)?;
    // RFC 9297 §2.1: larger ones have no stream.
    if quarter > varint::MAX / 4 {
        return None;
    }
    datagram.advance(length);
    Some((quarter, datagram))
}

/// Datagrams that wait for their reader.
const WAITING: usize = 64;

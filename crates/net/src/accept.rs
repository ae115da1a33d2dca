//! Taking connections from one listening socket, through everything that can go wrong short of losing the socket.
//!
//! A connection that died in the queue is skipped. When descriptors or memory run out, the acceptor pauses, longer each
//! time, and says so once: the connections stay in the kernel's queue (bounded by its backlog), where they can still be
//! served when something is freed. No descriptor is kept in reserve to accept and close them: that would turn a short
//! shortage into refused visitors and would spin through the queue while it lasts. Limits and tuning of the accepted
//! socket are left to the caller.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::SockRef;
use tokio::net::TcpListener;
use tokio::time::{Sleep, sleep};

use crate::{
    Stream,
    local::{is_local, unpaced},
};

/// A listening socket on the current worker.
#[derive(Debug)]
pub struct Acceptor {
    listener: TcpListener,
    /// Peers come from this machine and from others.
    mixed: bool,
    pause: Option<Pin<Box<Sleep>>>,
    /// Shortages in a row.
    shortages: u32,
}

impl Acceptor {
    /// Wraps a listener (made non-blocking here) for the current runtime. Must be called on a worker.
    ///
    /// # Errors
    /// The system's, when the event queue does not take the socket.
    pub fn new(listener: std::net::TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        // One that this process has not opened may come from an older one.
        let ip = listener.local_addr()?.ip();
        crate::socket::prepare_accepted(SockRef::from(&listener), ip);
        Ok(Self {
            mixed: !is_local(ip),
            listener: TcpListener::from_std(listener)?,
            pause: None,
            shortages: 0,
        })
    }

    /// The address listened on.
    ///
    /// # Errors
    /// The system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The next connection and its peer. It has no delay for small writes, on systems where accepted sockets take after their listener (Linux does).
    /// Cancel safe.
    ///
    /// # Errors
    /// Only when the listening socket itself is of no use any more; nothing will come from it again.
    pub async fn accept(&mut self) -> io::Result<(Stream, SocketAddr)> {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// As [`Acceptor::accept`], for hand-written futures.
    pub fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(Stream, SocketAddr)>> {
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(cx));
                self.pause = None;
            }
            match ready!(self.listener.poll_accept(cx)) {
                Ok((tcp, peer)) => {
                    if self.shortages > 0 {
                        tracing::info!(pauses = self.shortages, "connections are accepted again");
                        self.shortages = 0;
                    }
                    if self.mixed && is_local(peer.ip()) {
                        unpaced(SockRef::from(&tcp));
                    }
                    return Poll::Ready(Ok((Stream::from(tcp), peer)));
                }
                Err(error) => match Trouble::of(&error) {
                    Trouble::ThisConnection => {}
                    Trouble::Shortage => self.pause_after(&error),
                    Trouble::Socket => return Poll::Ready(Err(error)),
                },
            }
        }
    }

    fn pause_after(&mut self, error: &io::Error) {
        if self.shortages == 0 {
            tracing::error!(
                %error,
                "no connection can be accepted for now: raise the limit of open files (ulimit -n) or lower the load"
            );
        }
        self.pause = Some(Box::pin(sleep(pause_length(self.shortages))));
        self.shortages = self.shortages.saturating_add(1);
    }
}

/// 50 ms, doubling up to 1 s: short enough not to be noticed once, long enough not to burn a core.
fn pause_length(shortages_before: u32) -> Duration {
    (Duration::from_millis(50) * (1 << shortages_before.min(5))).min(Duration::from_secs(1))
}

/// What an error of accept(2) is about.
enum Trouble {
    ThisConnection,
    Shortage,
    Socket,
}

impl Trouble {
    fn of(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOBUFS) => Self::Shortage,
            Some(libc::EBADF | libc::EINVAL | libc::ENOTSOCK | libc::EOPNOTSUPP | libc::EFAULT)
            | None => Self::Socket,
            // accept(2): Linux passes on network errors already pending on the new socket, and EPERM for a firewall's
            // refusal.
            Some(_) => Self::ThisConnection,
        }
    }
}

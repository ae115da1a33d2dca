//! Opening connections.
//!
//! [`connect_tcp`] tries a name's addresses as RFC 8305 advises: families in turn, each attempt given a head start
//! before the next begins beside it, the first to succeed wins and the others are dropped. Resolving names and limiting
//! the whole time are left to the caller.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::SockRef;
use tokio::net::{TcpSocket, TcpStream, UnixStream};
use tokio::time::{Sleep, sleep};

use crate::{
    Stream,
    local::{is_local, unpaced},
};

/// How long an attempt runs alone (RFC 8305 §8: 250 ms recommended).
pub const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Connects to the first of `addrs` that answers, from the local address `bind` if one is given.
///
/// Addresses of another family than `bind` are skipped. Cancel safe: dropping it closes every attempt.
///
/// # Errors
/// The last attempt's, when all have failed; `InvalidInput` when no address is left to try.
pub async fn connect_tcp(addrs: &[SocketAddr], bind: Option<IpAddr>) -> io::Result<Stream> {
    let waiting = in_turn(
        addrs
            .iter()
            .copied()
            .filter(|addr| bind.is_none_or(|ip| ip.is_ipv4() == addr.is_ipv4())),
    );
    let mut race = Race {
        waiting,
        bind,
        running: Vec::new(),
        head_start: None,
        last_error: None,
    };
    poll_fn(|cx| race.poll(cx)).await.map(Stream::from)
}

/// Connects to the Unix socket at `path`.
///
/// # Errors
/// The system's.
pub async fn connect_unix(path: &Path) -> io::Result<Stream> {
    UnixStream::connect(path).await.map(Stream::from)
}

type Attempt = Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>;

struct Race {
    waiting: VecDeque<SocketAddr>,
    bind: Option<IpAddr>,
    running: Vec<Attempt>,
    head_start: Option<Pin<Box<Sleep>>>,
    last_error: Option<io::Error>,
}

impl Race {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<TcpStream>> {
        loop {
            let mut index = 0;
            while index < self.running.len() {
                match self.running[index].as_mut().poll(cx) {
                    Poll::Ready(Ok(stream)) => return Poll::Ready(Ok(stream)),
                    Poll::Ready(Err(error)) => {
                        drop(self.running.swap_remove(index));
                        self.last_error = Some(error);
                        // RFC 8305 §5: a failure ends the head start.
                        self.head_start = None;
                    }
                    Poll::Pending => index += 1,
                }
            }
            if let Some(head_start) = &mut self.head_start
                && head_start.as_mut().poll(cx).is_pending()
            {
                return Poll::Pending;
            }
            self.head_start = None;
            let Some(addr) = self.waiting.pop_front() else {
                return if self.running.is_empty() {
                    Poll::Ready(Err(self.failure()))
                } else {
                    Poll::Pending
                };
            };
            self.running.push(Box::pin(attempt(addr, self.bind)));
            if !self.waiting.is_empty() {
                self.head_start = Some(Box::pin(sleep(ATTEMPT_DELAY)));
            }
        }
    }

    fn failure(&mut self) -> io::Error {
        self.last_error.take().unwrap_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "no address to connect to")
        })
    }
}

async fn attempt(addr: SocketAddr, bind: Option<IpAddr>) -> io::Result<TcpStream> {
    let socket = if addr.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    if let Some(ip) = bind {
        socket.bind(SocketAddr::new(ip, 0))?;
    }
    if is_local(addr.ip()) {
        unpaced(SockRef::from(&socket));
    }
    socket.connect(addr).await
}

/// Orders addresses by family in turn, starting with the resolver's first choice (RFC 8305 §4).
fn in_turn(addrs: impl Iterator<Item = SocketAddr>) -> VecDeque<SocketAddr> {
    let mut first = VecDeque::new();
    let mut second = VecDeque::new();
    for addr in addrs {
        if first
            .front()
            .is_none_or(|chosen: &SocketAddr| chosen.is_ipv4() == addr.is_ipv4())
        {
            first.push_back(addr);
        } else {
            second.push_back(addr);
        }
    }
    let mut ordered = VecDeque::with_capacity(first.len() + second.len());
    while let Some(addr) = first.pop_front() {
        ordered.push_back(addr);
        ordered.extend(second.pop_front());
    }
    ordered.extend(second);
    ordered
}

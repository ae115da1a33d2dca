//! A session as its user holds it: a byte stream both ways, and the knobs.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    num::NonZeroU32,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep_until},
};

use super::{kind::Classic, link::State, listener::check, rate::Rate};
use crate::{
    Config, Counters, Mode, SendError,
    arq::Conv,
    udp::{
        Clock, Options,
        driver::Driver,
        link::{Link, Shared, note},
        socket::Socket,
    },
};

/// One end of a session.
///
/// Writing takes bytes as long as the send queue has room (twice the window) and waits otherwise. Reading waits for
/// bytes; there is no end of stream. Shutting down waits until the peer has acknowledged all. Dropping does not wait:
/// what was written is still sent.
#[derive(Debug)]
pub struct Session {
    link: Arc<Link<Classic>>,
    remote: SocketAddr,
    read_deadline: Option<Pin<Box<Sleep>>>,
    write_deadline: Option<Pin<Box<Sleep>>>,
}

impl Session {
    pub(super) fn new(link: Arc<Link<Classic>>, remote: SocketAddr) -> Self {
        Self {
            link,
            remote,
            read_deadline: None,
            write_deadline: None,
        }
    }

    /// A new session with a listener at `remote`, on a socket of its own. Sends nothing yet: KCP has no handshake, so
    /// whether anybody answers shows when something has been written. Must be called within a tokio runtime.
    pub fn connect(remote: SocketAddr, options: Options) -> io::Result<Self> {
        check(&options)?;
        let any: IpAddr = if remote.is_ipv4() {
            Ipv4Addr::UNSPECIFIED.into()
        } else {
            Ipv6Addr::UNSPECIFIED.into()
        };
        let socket = Socket::bind(SocketAddr::new(any, 0), &options)?;
        let shared = Shared::new(Clock::start(), socket, Mutex::default())?;
        let mut driver = Driver::new(shared, Classic::new(options, None));
        let session = driver
            .kind
            .open(&mut driver.core, remote, Conv(rand::random()))
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        tokio::spawn(driver);
        Ok(session)
    }

    /// The conversation's number.
    pub fn conv(&self) -> Conv {
        self.link.lock().pipeline.conv()
    }

    /// The peer's address.
    pub fn remote_addr(&self) -> SocketAddr {
        self.remote
    }

    /// The socket's address.
    pub fn local_addr(&self) -> SocketAddr {
        self.link.shared.local
    }

    /// The retransmission timeout.
    pub fn rto(&self) -> Duration {
        self.link.lock().pipeline.rto()
    }

    /// The smoothed round-trip time, once one was measured.
    pub fn srtt(&self) -> Option<Duration> {
        self.link.lock().pipeline.srtt()
    }

    /// The mean deviation of the round-trip time.
    pub fn rtt_variation(&self) -> Duration {
        self.link.lock().pipeline.rtt_variation()
    }

    /// What happened in this session.
    pub fn counters(&self) -> Counters {
        self.link.lock().pipeline.counters()
    }

    /// Changes options; an error says why they cannot work, and nothing has changed then. FEC cannot be changed.
    pub fn configure(&self, change: impl FnOnce(&mut Config)) -> io::Result<()> {
        let mut state = self.link.lock();
        let mut config = state.pipeline.config().clone();
        change(&mut config);
        let result = state.pipeline.reconfigure(config);
        drop(state);
        self.link.mark_dirty();
        result.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
    }

    /// Sets how eagerly the session works.
    pub fn set_mode(&self, mode: Mode) {
        // A mode is valid with any other option.
        let _ = self.configure(|config| config.mode = mode);
    }

    /// Sets the windows, in segments, 1 to 65535.
    pub fn set_window(&self, send: u32, recv: u32) -> io::Result<()> {
        self.configure(|config| (config.send_window, config.recv_window) = (send, recv))
    }

    /// Sets the largest datagram, in bytes of UDP payload.
    pub fn set_mtu(&self, mtu: usize) -> io::Result<()> {
        self.configure(|config| config.mtu = mtu)
    }

    /// Limits what is sent, in bytes per second; `None` lifts the limit.
    pub fn set_rate_limit(&self, limit: Option<NonZeroU32>) {
        let now = self.link.shared.clock.now();
        self.link.lock().rate = limit.map(|limit| Rate::new(limit, now));
        self.link.mark_dirty();
    }

    /// When reads fail with `TimedOut`; `None`: never.
    pub fn set_read_deadline(&mut self, at: Option<Instant>) {
        self.read_deadline = at.map(|at| Box::pin(sleep_until(at)));
    }

    /// When writes and shutting down fail with `TimedOut`; `None`: never.
    pub fn set_write_deadline(&mut self, at: Option<Instant>) {
        self.write_deadline = at.map(|at| Box::pin(sleep_until(at)));
    }

    /// The largest out-of-band message in bytes; 0 without FEC.
    pub fn oob_max(&self) -> usize {
        self.link.lock().pipeline.oob_max()
    }

    /// Sends a message beside the stream: at once, once, lost with its datagram. Needs FEC.
    pub fn send_oob(&self, message: &[u8]) -> Result<(), SendError> {
        let mut state = self.link.lock();
        if state.end.is_some() {
            return Err(SendError::Closed);
        }
        let result = state.pipeline.send_oob(message);
        drop(state);
        self.link.mark_dirty();
        result
    }

    /// The next out-of-band message.
    pub async fn recv_oob(&self) -> io::Result<Vec<u8>> {
        std::future::poll_fn(|cx| {
            let mut state = self.link.lock();
            if let Some(message) = state.pipeline.recv_oob() {
                return Poll::Ready(Ok(message));
            }
            if let Some(end) = state.end {
                return Poll::Ready(Err(end.into()));
            }
            note(&mut state.oob_reader, cx);
            Poll::Pending
        })
        .await
    }

    /// Runs `check` until it gives something, the session ends, or the deadline passes.
    fn poll_until<T>(
        link: &Link<Classic>,
        deadline: &mut Option<Pin<Box<Sleep>>>,
        cx: &mut Context<'_>,
        check: impl FnOnce(&mut State) -> Option<T>,
        waker: impl FnOnce(&mut State) -> &mut Option<std::task::Waker>,
    ) -> Poll<io::Result<T>> {
        let mut state = link.lock();
        if let Some(value) = check(&mut state) {
            return Poll::Ready(Ok(value));
        }
        if let Some(end) = state.end {
            return Poll::Ready(Err(end.into()));
        }
        note(waker(&mut state), cx);
        drop(state);
        match deadline {
            Some(deadline) => deadline
                .as_mut()
                .poll(cx)
                .map(|()| Err(io::ErrorKind::TimedOut.into())),
            None => Poll::Pending,
        }
    }
}

impl AsyncRead for Session {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if out.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let this = &mut *self;
        let read = |state: &mut State| {
            let count = state.pipeline.read(out.initialize_unfilled());
            out.advance(count);
            (count > 0).then(|| state.pipeline.has_window_news())
        };
        let tell = std::task::ready!(Self::poll_until(
            &this.link,
            &mut this.read_deadline,
            cx,
            read,
            |state| &mut state.reader
        ));
        if tell? {
            this.link.mark_dirty();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Session {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        if data.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let this = &mut *self;
        let now = this.link.shared.clock.now();
        let write = |state: &mut State| {
            if state.shut {
                return Some(Err(io::ErrorKind::BrokenPipe.into()));
            }
            if state.end.is_some() {
                return None;
            }
            match state.pipeline.write(now, data) {
                Ok(0) | Err(_) => None,
                Ok(count) => Some(Ok(count)),
            }
        };
        let count = std::task::ready!(Self::poll_until(
            &this.link,
            &mut this.write_deadline,
            cx,
            write,
            |state| { &mut state.writer }
        ))?;
        this.link.mark_dirty();
        Poll::Ready(count)
    }

    /// Does not wait: what was written is on its way.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let flushed = |state: &mut State| {
            state.shut = true;
            state.pipeline.is_flushed().then_some(())
        };
        Self::poll_until(&this.link, &mut this.write_deadline, cx, flushed, |state| {
            &mut state.flusher
        })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.link.lock().dropped = true;
        self.link.mark_dirty();
    }
}

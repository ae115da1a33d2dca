//! Reads and writes of TCP that ask the runtime only when the socket has nothing to give or no room: a small request costs as much for the
//! runtime's bookkeeping as for its bytes otherwise. The system is entered without the C library, whose calls are points where a thread
//! could be cancelled, which costs again as much.
//!
//! The runtime's budget for one turn of a task is not asked either: who calls these in a loop bounds the loop.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::net::{RecvFlags, SendFlags};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

use super::{Kind, Stream};

impl Stream {
    /// Reads into `buf`, which is not empty; 0 bytes mean that the peer has ended its direction.
    ///
    /// Unlike [`AsyncRead::poll_read`] it does not make a task yield that reads without end.
    ///
    /// # Errors
    /// As a read.
    pub fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        if let (Kind::Tcp(tcp), None) = (&self.kind, &self.prefix) {
            loop {
                match try_receive(tcp, buf) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        ready!(tcp.poll_read_ready(cx))?;
                    }
                    received => return Poll::Ready(received),
                }
            }
        }
        let mut buf = ReadBuf::new(buf);
        let read = Pin::new(self).poll_read(cx, &mut buf);
        read.map_ok(|()| buf.filled().len())
    }

    /// Writes of `buf` what there is room for; not 0 bytes unless it is empty.
    ///
    /// Unlike [`AsyncWrite::poll_write`] it does not make a task yield that writes without end.
    ///
    /// # Errors
    /// As a write.
    pub fn poll_send(&mut self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if let Kind::Tcp(tcp) = &self.kind {
            match try_send(tcp, buf) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                sent => return Poll::Ready(sent),
            }
        }
        Pin::new(self).poll_write(cx, buf)
    }

    /// Whether nothing has come that was not read: neither bytes nor an end nor an error. A byte that came is lost. Costs a system call
    /// only if the event queue has reported something.
    pub fn is_quiet(&mut self) -> bool {
        let mut byte = [0];
        if let (Kind::Tcp(tcp), None) = (&self.kind, &self.prefix) {
            let received = try_receive(tcp, &mut byte);
            return received.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
        }
        let mut buf = ReadBuf::new(&mut byte);
        let mut cx = Context::from_waker(std::task::Waker::noop());
        Pin::new(self).poll_read(&mut cx, &mut buf).is_pending()
    }
}

/// One receive, if the socket is known to be readable. A short count clears the readiness along with it, so that the next call does not have
/// to learn from the system that nothing is left.
fn try_receive(socket: &TcpStream, buf: &mut [u8]) -> io::Result<usize> {
    let len = buf.len();
    short_or_whole(socket, Interest::READABLE, || {
        let (_, n) = rustix::net::recv(socket, buf, RecvFlags::empty())?;
        // None is the end, which stays.
        Ok((n, n == 0 || n == len))
    })
}

/// One send, if the socket is known to be writable; likewise.
pub(super) fn try_send(socket: &TcpStream, buf: &[u8]) -> io::Result<usize> {
    short_or_whole(socket, Interest::WRITABLE, || {
        let n = rustix::net::send(socket, buf, NO_SIGNAL)?;
        Ok((n, n == buf.len()))
    })
}

/// Does `act`, whose answer says whether it can be done again at once.
fn short_or_whole(
    socket: &TcpStream,
    interest: Interest,
    act: impl FnOnce() -> io::Result<(usize, bool)>,
) -> io::Result<usize> {
    let mut done = None;
    let outcome = socket.try_io(interest, || {
        let (n, again) = act()?;
        done = Some(n);
        match again {
            true => Ok(()),
            false => Err(io::ErrorKind::WouldBlock.into()),
        }
    });
    match done {
        Some(n) => Ok(n),
        None => outcome.and(Err(io::ErrorKind::WouldBlock.into())),
    }
}

#[cfg(not(target_vendor = "apple"))]
const NO_SIGNAL: SendFlags = SendFlags::NOSIGNAL;
#[cfg(target_vendor = "apple")]
const NO_SIGNAL: SendFlags = SendFlags::empty();

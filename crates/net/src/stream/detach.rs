//! Moving a stream to another worker.
//!
//! A stream is bound to the event queue of the runtime it was made on. Detaching takes the socket out, together with all
//! state above it (TLS session, frame parser, bytes not yet read or not yet sent); attaching registers it with the
//! current runtime, which reports at once what the socket is ready for. Nothing is read or written in between.

use std::io;

use bytes::Bytes;
use tokio::net::{TcpStream, UnixStream};

use super::{Kind, Stream};
use crate::tls::stream::{TlsState, TlsStream};
use crate::ws::stream::{WsState, WsStream};

/// A stream between two workers. Dropping it closes the connection.
#[derive(Debug)]
pub struct Detached {
    kind: DetachedKind,
    prefix: Option<Box<Bytes>>,
}

#[derive(Debug)]
enum DetachedKind {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
    Tls(Box<(Detached, TlsState)>),
    Ws(Box<(Detached, WsState)>),
}

impl Stream {
    /// Takes the stream off its worker.
    ///
    /// # Errors
    /// `Unsupported` where it cannot move ([`Stream::can_move`]); else the system's, when the event queue does not let go of the socket. The
    /// connection is closed then.
    pub fn detach(self) -> io::Result<Detached> {
        let kind = match self.kind {
            Kind::Tcp(tcp) => DetachedKind::Tcp(tcp.into_std()?),
            Kind::Unix(unix) => DetachedKind::Unix(unix.into_std()?),
            Kind::Tls(tls) => {
                let (below, state) = tls.into_parts();
                DetachedKind::Tls(Box::new((below.detach()?, state)))
            }
            Kind::Kcp(_) => return Err(io::ErrorKind::Unsupported.into()),
            Kind::Ws(ws) => {
                let (below, state) = ws.into_parts();
                DetachedKind::Ws(Box::new((below.detach()?, state)))
            }
        };
        Ok(Detached {
            kind,
            prefix: self.prefix,
        })
    }
}

impl Detached {
    /// Puts the stream on the current worker.
    ///
    /// # Errors
    /// The system's, when the event queue does not take the socket; the connection is closed then.
    pub fn attach(self) -> io::Result<Stream> {
        let kind = match self.kind {
            DetachedKind::Tcp(tcp) => Kind::Tcp(TcpStream::from_std(tcp)?),
            DetachedKind::Unix(unix) => Kind::Unix(UnixStream::from_std(unix)?),
            DetachedKind::Tls(parts) => {
                let (below, state) = *parts;
                Kind::Tls(Box::new(TlsStream::from_parts(below.attach()?, state)))
            }
            DetachedKind::Ws(parts) => {
                let (below, state) = *parts;
                Kind::Ws(Box::new(WsStream::from_parts(below.attach()?, state)))
            }
        };
        Ok(Stream {
            kind,
            prefix: self.prefix,
        })
    }
}

impl From<std::net::TcpStream> for Detached {
    /// A socket from elsewhere; it is put in non-blocking mode.
    fn from(tcp: std::net::TcpStream) -> Self {
        // Fails on a descriptor that is no socket only, which the type rules out.
        let _ = tcp.set_nonblocking(true);
        Self {
            kind: DetachedKind::Tcp(tcp),
            prefix: None,
        }
    }
}

impl From<std::os::unix::net::UnixStream> for Detached {
    /// A socket from elsewhere; it is put in non-blocking mode.
    fn from(unix: std::os::unix::net::UnixStream) -> Self {
        let _ = unix.set_nonblocking(true);
        Self {
            kind: DetachedKind::Unix(unix),
            prefix: None,
        }
    }
}

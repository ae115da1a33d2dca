//! TLS over a [`Stream`].
//!
//! Down: plaintext is encrypted into rustls' queue (at most 64 KiB of it) and leaves in one vectored write. Up: one large
//! read from below into the thread's scratch buffer, fed to rustls from memory, and as much plaintext as fits goes to
//! the reader. What rustls has decrypted, and ciphertext it has no room for yet, is served before the socket is asked
//! again. Between calls only rustls' own state stays. Certificates and handshake policy are left to the neighbours.

use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustls::{Connection, ProtocolVersion};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::Stream;
use crate::scratch::Scratch;

/// A stream below with a TLS session on it.
pub(crate) struct TlsStream {
    below: Stream,
    state: TlsState,
}

/// All of a TLS stream but the socket.
pub(crate) struct TlsState {
    session: Connection,
    /// Ciphertext read from below that the session had no room for. Empty, without capacity, as a rule.
    incoming: Vec<u8>,
    /// Plaintext bytes waiting inside the session.
    plaintext: usize,
    /// Found while plaintext was being returned; told by the next read.
    failed: Option<rustls::Error>,
    /// close_notify has been queued.
    closed: bool,
    /// The session's input buffer has grown since it was last trimmed.
    grown: bool,
    /// In TLS 1.2, the master secret is of this handshake alone (RFC 7627).
    extended_master_secret: bool,
}

impl TlsStream {
    /// `extended_master_secret`: the peer is known to have agreed to it, should this become TLS 1.2.
    pub(crate) fn new(
        below: Stream,
        session: Connection,
        incoming: Vec<u8>,
        extended_master_secret: bool,
    ) -> Self {
        let state = TlsState {
            session,
            incoming,
            plaintext: 0,
            failed: None,
            closed: false,
            grown: true,
            extended_master_secret,
        };
        Self { below, state }
    }

    pub(crate) fn from_parts(below: Stream, state: TlsState) -> Self {
        Self { below, state }
    }

    pub(crate) fn into_parts(self) -> (Stream, TlsState) {
        (self.below, self.state)
    }

    pub(crate) fn below(&self) -> &Stream {
        &self.below
    }

    /// Drives the handshake to its end, this side's last flight included.
    pub(crate) fn poll_handshake(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), HandshakeFailure>> {
        loop {
            if !self.state.incoming.is_empty() {
                let incoming = std::mem::take(&mut self.state.incoming);
                if let Err(error) = self.state.feed_and_keep(&incoming, None) {
                    return self.refuse(error);
                }
            }
            ready!(self.poll_send(cx)).map_err(HandshakeFailure::Io)?;
            if !self.state.session.is_handshaking() {
                ready!(Pin::new(&mut self.below).poll_flush(cx)).map_err(HandshakeFailure::Io)?;
                return Poll::Ready(Ok(()));
            }
            let mut scratch = Scratch::borrow();
            let n = ready!(self.poll_below(cx, &mut scratch, usize::MAX))
                .map_err(HandshakeFailure::Io)?;
            if n == 0 {
                return Poll::Ready(Err(HandshakeFailure::Io(
                    io::ErrorKind::UnexpectedEof.into(),
                )));
            }
            if let Err(error) = self.state.feed_and_keep(&scratch[..n], None) {
                return self.refuse(error);
            }
        }
    }

    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let start = buf.filled().len();
        loop {
            self.state.drain(buf)?;
            if !self.state.incoming.is_empty() && buf.remaining() > 0 && self.state.failed.is_none()
            {
                let incoming = std::mem::take(&mut self.state.incoming);
                self.digest(&incoming, buf);
                continue;
            }
            // Never ask the socket when there is something to return.
            if buf.filled().len() > start {
                return Poll::Ready(Ok(()));
            }
            if let Some(error) = &self.state.failed {
                return Poll::Ready(Err(protocol_error(error)));
            }
            if self.state.session_ended()? {
                return Poll::Ready(Ok(()));
            }
            let mut scratch = Scratch::borrow();
            let want = (buf.remaining() + RECORD_OVERHEAD).max(MAX_RECORD);
            let Poll::Ready(outcome) = self.poll_below(cx, &mut scratch, want) else {
                self.state.trim();
                return Poll::Pending;
            };
            let n = outcome?;
            if n == 0 {
                self.state.session.read_tls(&mut io::empty())?;
            } else {
                self.digest(&scratch[..n], buf);
            }
        }
    }

    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.state.check_open()?;
        ready!(self.poll_send(cx))?;
        // The socket just took everything; what it takes of this is settled without registering again.
        Poll::Ready(self.encrypt_and_send(bufs))
    }

    pub(crate) fn try_write(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.state.check_open()?;
        self.send_now()?;
        if self.state.session.wants_write() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.encrypt_and_send(bufs)
    }

    pub(crate) fn try_flush(&mut self) -> io::Result<()> {
        self.send_now()?;
        self.below.try_flush()
    }

    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(cx))?;
        Pin::new(&mut self.below).poll_flush(cx)
    }

    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.state.closed {
            self.state.session.send_close_notify();
            self.state.closed = true;
        }
        ready!(self.poll_send(cx))?;
        Pin::new(&mut self.below).poll_shutdown(cx)
    }

    pub(crate) fn needs_flush(&self) -> bool {
        self.state.session.wants_write() || self.below.needs_flush()
    }

    pub(crate) fn has_buffered_input(&self) -> bool {
        self.state.plaintext > 0
            || !self.state.incoming.is_empty()
            || self.below.has_buffered_input()
    }

    pub(crate) fn alpn(&self) -> Option<&[u8]> {
        self.state.session.alpn_protocol()
    }

    pub(crate) fn peer_certificate(&self) -> Option<&[u8]> {
        let chain = self.state.session.peer_certificates()?;
        chain.first().map(|certificate| &**certificate)
    }

    pub(crate) fn server_name(&self) -> Option<&str> {
        match &self.state.session {
            Connection::Server(server) => server.server_name(),
            Connection::Client(_) => None,
        }
    }

    pub(crate) fn export(
        &self,
        label: &[u8],
        context: Option<&[u8]>,
        out: &mut [u8],
    ) -> io::Result<()> {
        // RFC 9266 §4.2 and RFC 5705 §4: without it, somebody in between can have two sessions with the same master secret (the
        // triple handshake), and what is exported from them binds to nothing.
        let tls12 = self.state.session.protocol_version() == Some(ProtocolVersion::TLSv1_2);
        if tls12 && !self.state.extended_master_secret {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "TLS 1.2 without extended master secret (RFC 7627) has nothing to bind to",
            ));
        }
        let refused = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
        match &self.state.session {
            Connection::Server(server) => server
                .export_keying_material(out, label, context)
                .map(drop)
                .map_err(refused),
            Connection::Client(client) => client
                .export_keying_material(out, label, context)
                .map(drop)
                .map_err(refused),
        }
    }

    /// Feeds ciphertext and returns plaintext; an error waits for the next call if there is plaintext to return first.
    fn digest(&mut self, ciphertext: &[u8], buf: &mut ReadBuf<'_>) {
        if let Err(error) = self.state.feed_and_keep(ciphertext, Some(buf)) {
            self.state.failed = Some(error);
        }
        if self.state.session.wants_write() {
            // An alert, a key update, session tickets. What does not go now shows in `needs_flush`; a dead
            // connection shows in the next call.
            let _ = self.send_now();
        }
    }

    fn refuse(&mut self, error: rustls::Error) -> Poll<Result<(), HandshakeFailure>> {
        // The alert tells the peer why. It is small and the socket is fresh: one attempt is enough.
        let _ = self.try_flush();
        Poll::Ready(Err(HandshakeFailure::Tls(error)))
    }

    fn encrypt_and_send(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let n = self.state.session.writer().write_vectored(bufs)?;
        self.send_now()?;
        Ok(n)
    }

    fn send_now(&mut self) -> io::Result<()> {
        while self.state.session.wants_write() {
            match self.state.session.write_tls(&mut Now(&mut self.below)) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.state.session.wants_write() {
            match self.state.session.write_tls(&mut Registering {
                below: &mut self.below,
                cx,
            }) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// One read of at most `limit` bytes into the scratch buffer.
    fn poll_below(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut [u8],
        limit: usize,
    ) -> Poll<io::Result<usize>> {
        let limit = limit.min(scratch.len());
        let mut room = ReadBuf::new(&mut scratch[..limit]);
        ready!(Pin::new(&mut self.below).poll_read(cx, &mut room))?;
        Poll::Ready(Ok(room.filled().len()))
    }
}

impl TlsState {
    /// Moves plaintext from the session to the reader.
    fn drain(&mut self, buf: &mut ReadBuf<'_>) -> io::Result<()> {
        if self.plaintext > 0 && buf.remaining() > 0 {
            let n = self.session.reader().read(buf.initialize_unfilled())?;
            buf.advance(n);
            self.plaintext -= n.min(self.plaintext);
        }
        Ok(())
    }

    /// Feeds ciphertext as far as the session has room; the rest is kept for later.
    fn feed_and_keep(
        &mut self,
        ciphertext: &[u8],
        buf: Option<&mut ReadBuf<'_>>,
    ) -> Result<(), rustls::Error> {
        let rest = self.feed(ciphertext, buf)?;
        if !rest.is_empty() {
            self.incoming = rest.to_vec();
        }
        Ok(())
    }

    fn feed<'a>(
        &mut self,
        mut bytes: &'a [u8],
        mut buf: Option<&mut ReadBuf<'_>>,
    ) -> Result<&'a [u8], rustls::Error> {
        while !bytes.is_empty() {
            if let Some(buf) = buf.as_deref_mut() {
                self.drain(buf)
                    .map_err(|error| rustls::Error::General(error.to_string()))?;
            }
            if self.plaintext > 0 {
                break;
            }
            match self.session.read_tls(&mut bytes) {
                // After close_notify the session takes nothing more (RFC 8446 §6.1: what follows is ignored).
                Ok(0) => return Ok(&[]),
                Ok(_) => self.grown = true,
                Err(error) => return Err(rustls::Error::General(error.to_string())),
            }
            self.plaintext = self
                .session
                .process_new_packets()?
                .plaintext_bytes_to_read();
        }
        if let Some(buf) = buf {
            self.drain(buf)
                .map_err(|error| rustls::Error::General(error.to_string()))?;
        }
        Ok(bytes)
    }

    /// Has the session give up the buffer of a large record that has been read, before the stream goes idle.
    ///
    /// rustls shrinks it (to 4 KiB, its least) only when it is about to read more: so it is made to, from nothing. With
    /// a part of a record in it the buffer stays.
    fn trim(&mut self) {
        if std::mem::take(&mut self.grown) {
            // Always `WouldBlock`, which changes nothing else.
            let _ = self.session.read_tls(&mut NothingYet);
        }
    }

    /// Whether the peer ended the session. Only asked when no plaintext is left.
    ///
    /// # Errors
    /// `UnexpectedEof` when the connection ended without close_notify: something may have been cut off.
    fn session_ended(&mut self) -> io::Result<bool> {
        match self.session.reader().into_first_chunk() {
            Ok(chunk) => Ok(chunk.is_empty()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(_) => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the connection ended without TLS close_notify: data may have been cut off",
            )),
        }
    }

    fn check_open(&self) -> io::Result<()> {
        if self.closed {
            return Err(io::Error::new(
                io::ErrorKind::BrokenPipe,
                "the stream has been shut down",
            ));
        }
        Ok(())
    }
}

impl fmt::Debug for TlsState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsState").finish_non_exhaustive()
    }
}

/// Why a handshake did not end well.
pub(crate) enum HandshakeFailure {
    Io(io::Error),
    Tls(rustls::Error),
}

fn protocol_error(error: &rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.clone())
}

/// A source that has no bytes for now.
struct NothingYet;

impl Read for NothingYet {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }
}

/// Writes below without registering.
struct Now<'a>(&'a mut Stream);

impl Write for Now<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.try_write(buf)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes below and has the task woken when a refused write can go on.
struct Registering<'a, 'b> {
    below: &'a mut Stream,
    cx: &'a mut Context<'b>,
}

impl Write for Registering<'_, '_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(buf)])
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        match Pin::new(&mut *self.below).poll_write_vectored(self.cx, bufs) {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Header and expansion of one record, at most (RFC 8446 §5.2).
const RECORD_OVERHEAD: usize = 5 + 256;

/// The largest record on the wire (RFC 5246 §6.2.3 allows the most: 2^14 + 2048, with its header).
const MAX_RECORD: usize = 16 * 1024 + 2048 + 5;

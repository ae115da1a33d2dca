//! A byte stream in WebSocket frames over a [`Stream`] (RFC 6455 §5).
//!
//! The framing is our own, not tungstenite's: that one keeps a read buffer of 128 KiB per connection and allocates a
//! message for every frame, while a byte stream needs neither. Up: bytes from below are read into the reader's own
//! buffer and unframed in place, since a payload is never longer than its frame; no frame is ever collected, so its
//! size needs no bound. Down: each write becomes one binary frame of at most [`MAX_PAYLOAD`] bytes, built in the
//! thread's scratch buffer; what the socket refuses is kept until flushed.
//!
//! Close ends one direction: after ours is sent, reading goes on until the peer's. The handshake is left to
//! `handshake.rs`, frame headers to `frame.rs`.

use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::frame::{self, Control, Role, Unframer};
use crate::Stream;
use crate::scratch::Scratch;

/// A stream below with WebSocket frames on it.
pub(crate) struct WsStream {
    below: Stream,
    state: WsState,
}

/// All of a WebSocket stream but the socket.
pub(crate) struct WsState {
    role: Role,
    unframer: Unframer,
    /// Frames taken but refused by the socket. Empty, without capacity, as a rule.
    out: Vec<u8>,
    /// What the peer did wrong; told by every read from then on.
    failed: Option<frame::Violation>,
    close_sent: bool,
}

impl WsStream {
    pub(crate) fn new(below: Stream, role: Role) -> Self {
        let state = WsState {
            role,
            unframer: Unframer::new(role),
            out: Vec::new(),
            failed: None,
            close_sent: false,
        };
        Self { below, state }
    }

    pub(crate) fn from_parts(below: Stream, state: WsState) -> Self {
        Self { below, state }
    }

    pub(crate) fn into_parts(self) -> (Stream, WsState) {
        (self.below, self.state)
    }

    pub(crate) fn below(&self) -> &Stream {
        &self.below
    }

    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            if let Some(violation) = self.state.failed {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, violation)));
            }
            if self.state.unframer.closed() {
                return Poll::Ready(Ok(()));
            }
            let start = buf.filled().len();
            ready!(Pin::new(&mut self.below).poll_read(cx, buf))?;
            if buf.filled().len() == start {
                return Poll::Ready(Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the connection ended without a WebSocket Close frame: data may have been cut off",
                )));
            }
            let payload = self.unframe(&mut buf.filled_mut()[start..]);
            buf.set_filled(start + payload);
            if payload > 0 {
                return Poll::Ready(Ok(()));
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
        Poll::Ready(self.frame_and_send(bufs))
    }

    pub(crate) fn try_write(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.state.check_open()?;
        self.send_now()?;
        if !self.state.out.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.frame_and_send(bufs)
    }

    pub(crate) fn try_flush(&mut self) -> io::Result<()> {
        self.send_now()?;
        self.below.try_flush()
    }

    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(cx))?;
        Pin::new(&mut self.below).poll_flush(cx)
    }

    /// Sends Close. The connection below is ended too once the peer's Close has been read (RFC 6455 §7.1.1).
    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.state.queue_close(frame::CLOSE_NORMAL);
        ready!(self.poll_flush(cx))?;
        if self.state.unframer.closed() {
            return Pin::new(&mut self.below).poll_shutdown(cx);
        }
        Poll::Ready(Ok(()))
    }

    pub(crate) fn needs_flush(&self) -> bool {
        !self.state.out.is_empty() || self.below.needs_flush()
    }

    pub(crate) fn has_buffered_input(&self) -> bool {
        self.below.has_buffered_input()
    }

    /// Strips the frames from `bytes`; the payload is moved to the front and its length returned.
    fn unframe(&mut self, bytes: &mut [u8]) -> usize {
        let state = &mut self.state;
        let (out, role, close_sent) = (&mut state.out, state.role, state.close_sent);
        let outcome = state.unframer.strip(bytes, |control| {
            // RFC 6455 §5.5.3: only the latest ping need be answered, so a flood of them is not. Nothing follows a
            // Close of ours (§5.5.1).
            if let Control::Ping(data) = control
                && !close_sent
                && out.len() < PONG_ROOM
            {
                frame::append(out, role, frame::PONG, data);
            }
        });
        let payload = match outcome {
            Ok(payload) => payload,
            Err((payload, violation)) => {
                state.queue_close(violation.code());
                state.failed = Some(violation);
                payload
            }
        };
        if !self.state.out.is_empty() {
            // What does not go now shows in `needs_flush`; a dead connection shows in the next call.
            let _ = self.send_now();
        }
        payload
    }

    /// Takes up to one frame's payload. Only called when nothing is left from before.
    fn frame_and_send(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let n = bufs
            .iter()
            .map(|buf| buf.len())
            .sum::<usize>()
            .min(MAX_PAYLOAD);
        if n == 0 {
            return Ok(0);
        }
        let mut scratch = Scratch::borrow();
        let len = frame::build(&mut scratch, self.state.role, frame::BINARY, bufs, n);
        let sent = match self.below.try_write(&scratch[..len]) {
            Ok(sent) => sent,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error),
        };
        if sent < len {
            self.state.out = scratch[sent..len].to_vec();
        }
        Ok(n)
    }

    fn send_now(&mut self) -> io::Result<()> {
        while !self.state.out.is_empty() {
            match self.below.try_write(&self.state.out) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => self.state.sent(n),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.state.out.is_empty() {
            match ready!(Pin::new(&mut self.below).poll_write(cx, &self.state.out))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                n => self.state.sent(n),
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl WsState {
    fn sent(&mut self, n: usize) {
        if n == self.out.len() {
            self.out = Vec::new();
        } else {
            self.out.drain(..n);
        }
    }

    fn queue_close(&mut self, code: u16) {
        if !self.close_sent {
            frame::append(&mut self.out, self.role, frame::CLOSE, &code.to_be_bytes());
            self.close_sent = true;
        }
    }

    fn check_open(&self) -> io::Result<()> {
        if self.close_sent {
            return Err(io::Error::new(
                io::ErrorKind::BrokenPipe,
                "the stream has been shut down",
            ));
        }
        Ok(())
    }
}

impl fmt::Debug for WsState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WsState").finish_non_exhaustive()
    }
}

/// Payload of one frame of ours, in bytes: the most a 16-bit length can say, for the shortest header that suits bulk.
pub(crate) const MAX_PAYLOAD: usize = 0xffff;

/// Bytes that may wait before pings stop being answered.
const PONG_ROOM: usize = 1024;

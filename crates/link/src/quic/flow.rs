//! One QUIC stream: both directions, their ends, and gt's reasons in QUIC's codes.

use std::{
    future::Future,
    io,
    pin::{Pin, pin},
    task::{Context, Poll},
};

use bytes::Bytes;
use quinn::{ReadError, RecvStream, SendStream, VarInt, WriteError};
use tokio::io::ReadBuf;
use tunnel::ResetReason;

use super::link::Pair;
use crate::end::End;

/// Both directions of a stream, and how urgent what it sends is.
pub(super) struct Flow {
    pub(super) send: SendStream,
    receive: RecvStream,
    /// Completes when the peer does not want what is sent; only made when nothing is received that would tell.
    stopped: Option<Stopped>,
    /// Bytes sent without a pause.
    burst: usize,
    bulk: bool,
}

type Stopped = Pin<Box<dyn Future<Output = Result<Option<VarInt>, quinn::StoppedError>>>>;

impl Flow {
    pub(super) fn new((send, receive): Pair) -> Self {
        let _ = send.set_priority(INTERACTIVE);
        Self {
            send,
            receive,
            stopped: None,
            burst: 0,
            bulk: false,
        }
    }

    /// The number that datagrams of the stream bear.
    pub(super) fn id(&self) -> u64 {
        VarInt::from(self.send.id()).into_inner()
    }

    /// Sends some of `bytes` and takes it off their front; waits for room.
    pub(super) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &mut Bytes,
    ) -> Poll<Result<usize, End>> {
        let chunks = std::slice::from_mut(bytes);
        let written = std::task::ready!(pin!(self.send.write_chunks(chunks)).poll(cx));
        Poll::Ready(match written {
            Ok(written) => {
                self.count(written.bytes);
                Ok(written.bytes)
            }
            Err(error) => Err(unsent(&error)),
        })
    }

    /// As [`Flow::poll_send`], of borrowed bytes, which are copied.
    pub(super) fn poll_copy(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize, End>> {
        let written = std::task::ready!(pin!(self.send.write(bytes)).poll(cx));
        Poll::Ready(match written {
            Ok(n) => {
                self.count(n);
                Ok(n)
            }
            Err(error) => Err(unsent(&error)),
        })
    }

    /// There was nothing to send for a while: what comes next is short, as far as anybody knows.
    pub(super) fn paused(&mut self) {
        self.burst = 0;
        if std::mem::take(&mut self.bulk) {
            let _ = self.send.set_priority(INTERACTIVE);
        }
    }

    fn count(&mut self, n: usize) {
        self.burst = self.burst.saturating_add(n);
        if self.burst > BURST && !self.bulk {
            self.bulk = true;
            let _ = self.send.set_priority(BULK);
        }
    }

    /// Reads some bytes; none are the end.
    pub(super) fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<(), End>> {
        let read = self.receive.poll_read_buf(cx, buffer);
        read.map(|read| read.map_err(|error| unread(&error)))
    }

    /// Whether the peer has given up a stream that it sends nothing more on. Not needed while it sends: then reading tells.
    pub(super) fn poll_stopped(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        let stopped = self
            .stopped
            .get_or_insert_with(|| Box::pin(self.send.stopped()));
        match stopped.as_mut().poll(cx) {
            Poll::Ready(Ok(Some(code))) => Poll::Ready(End::Reset(reason(code))),
            Poll::Ready(Ok(None)) => {
                // Everything has arrived: there is nothing left to be stopped, and the future may not be asked again.
                self.stopped = Some(Box::pin(std::future::pending()));
                Poll::Pending
            }
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(_)) => Poll::Ready(End::LinkLost),
        }
    }

    /// Nothing more is sent.
    pub(super) fn finish(&mut self) {
        let _ = self.send.finish();
    }

    /// Nothing more is wanted; what was sent still arrives.
    pub(super) fn stop(&mut self, reason: ResetReason) {
        let code = VarInt::from_u32(u16::from(reason).into());
        let _ = self.receive.stop(code);
    }

    /// Gives both directions up. Those that have ended by themselves stay as they are.
    pub(super) fn reset(&mut self, reason: ResetReason) {
        let code = VarInt::from_u32(u16::from(reason).into());
        let _ = self.send.reset(code);
        let _ = self.receive.stop(code);
    }
}

/// What the peer is told of an end that was found here.
pub(super) fn told(end: End) -> ResetReason {
    match end {
        End::Socket(_) => ResetReason::Reset,
        End::Reset(reason) => reason,
        End::LinkLost => ResetReason::LinkLost,
        End::Idle => ResetReason::IdleTimeout,
        End::Cancelled | End::Finished => ResetReason::Cancelled,
    }
}

fn reason(code: VarInt) -> ResetReason {
    // A code that is none of gt's is as good as any that is not known.
    ResetReason::from(u16::try_from(code.into_inner()).unwrap_or(u16::MAX))
}

fn unsent(error: &WriteError) -> End {
    match error {
        WriteError::Stopped(code) => End::Reset(reason(*code)),
        WriteError::ConnectionLost(_) | WriteError::ZeroRttRejected => End::LinkLost,
        WriteError::ClosedStream => End::Cancelled,
    }
}

fn unread(error: &ReadError) -> End {
    match error {
        ReadError::Reset(code) => End::Reset(reason(*code)),
        ReadError::ConnectionLost(_) | ReadError::ZeroRttRejected => End::LinkLost,
        ReadError::ClosedStream | ReadError::IllegalOrderedRead => End::Cancelled,
    }
}

/// How a stream's end looks to who reads or writes it as bytes.
pub(super) fn io_error(end: End) -> io::Error {
    match end {
        End::Idle => io::ErrorKind::TimedOut.into(),
        End::Socket(kind) => kind.into(),
        End::Finished | End::Reset(_) | End::LinkLost | End::Cancelled => {
            io::ErrorKind::ConnectionReset.into()
        }
    }
}

/// A stream that sends little goes before those that send much; QUIC shares fairly among equals.
const INTERACTIVE: i32 = 1;
const BULK: i32 = 0;
/// Bytes without a pause that make a stream one that sends much: the quantum of gt's multiplexer.
const BURST: usize = 64 << 10;

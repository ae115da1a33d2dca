//! One request on one upstream connection and its answer, both bodies at once: whatever can move, moves, and who does not take its bytes stops
//! the other's from being read.
//!
//! ```text
//! Exchange::run ─► poll ─┬─► up: the request's head and body ─► upstream
//!                        └─► down: visitor ◄─ the answer's head (by the caller's `on_head`) and body
//! then, by how it ended:     finish (both connections go on), or give_back (the right to answer)
//! ```
//!
//! What the heads say is decided by the caller; here they are only written, awaited and followed.

mod down;
mod up;

use std::{
    future::{Future, poll_fn},
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use h1::{
    Awaiting, RequestBody, Responder, Response, ResponseError, ResponseHead, ResponseWriter,
    WriteError,
};
use tokio::io::AsyncWrite;

use crate::{
    answer::Turn,
    buffer::{Input, Output},
    clock::Deadline,
    compress::{Compressed, Encoder},
    conn::Conn,
    flow::{BadBody, Downward, Flow, Sink, Source, Upward},
};

/// One side: its connection, what was read from it, what is to be written to it.
#[derive(Debug)]
pub(crate) struct Side<'a> {
    pub(crate) conn: &'a mut Conn,
    pub(crate) input: &'a mut Input,
    pub(crate) output: &'a mut Output,
}

/// How long an exchange may stand still.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// From the request's end to the answer's head.
    pub(crate) response: Duration,
    /// Between two moves of a body.
    pub(crate) body: Duration,
}

/// What follows the answer's head.
pub(crate) enum Behind<'b> {
    /// A body, and then the next request; this is the body of the one that is answered.
    Body(&'b RequestBody),
    /// No HTTP any more.
    Tunnel(RequestBody),
}

/// What was written of an answer, and how its body goes on.
pub(crate) enum Begun {
    Body(ResponseWriter),
    /// Through an encoder.
    Compressed(ResponseWriter, Encoder),
    Tunnel,
}

/// Writes the answer's head for the visitor.
pub(crate) type OnHead<'a> =
    dyn FnMut(Response<'_>, Responder, Behind<'_>, &mut Vec<u8>) -> Result<Begun, WriteError> + 'a;

/// What is to be done, and how far it is. It stays where it was made: it is large, and moving it costs more than a field or two.
pub(crate) struct Exchange<'a> {
    pub(crate) visitor: Side<'a>,
    pub(crate) upstream: Side<'a>,
    pub(crate) head: &'a mut ResponseHead,
    /// Until the answer's head is there.
    pub(crate) awaiting: Option<Awaiting<Responder>>,
    pub(crate) limits: &'a h1::Limits,
    /// `None` once it has become a tunnel.
    pub(crate) request: Option<Upward>,
    pub(crate) answer: Down,
    pub(crate) patience: Patience,
    pub(crate) deadline: &'a Deadline,
    pub(crate) on_head: &'a mut OnHead<'a>,
    pub(crate) so_far: SoFar,
}

/// How far the answer is.
#[derive(Debug)]
pub(crate) enum Down {
    /// By what the exchange has for it.
    Awaited,
    Body(Downward),
    Compressed(Box<Compressed>),
    Tunnel,
    /// There is none that could be passed on.
    Lost(Option<Responder>),
}

/// What both directions want to know of the exchange.
#[derive(Debug, Default)]
pub(crate) struct SoFar {
    upload: Upload,
    waits_for: Blocked,
    /// The upstream has sent something.
    heard: bool,
    /// What follows on both connections is no HTTP.
    pub(crate) tunnel: bool,
    /// Of the answer whose head was passed on.
    pub(crate) status: Option<u16>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Upload {
    #[default]
    Going,
    Done,
    /// The upstream takes no more, but may have answered.
    Refused,
}

/// Who is waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Blocked {
    Visitor,
    #[default]
    Upstream,
}

/// Why it did not end well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    /// The visitor has gone or reset its connection.
    VisitorGone,
    /// The visitor does not send or take bytes.
    VisitorSlow,
    /// The request's body breaks its framing.
    VisitorBody(BadBody),
    /// The upstream closed or reset the connection; `silent`: before the first byte of an answer.
    UpstreamGone { silent: bool },
    /// No head, or no more body, in time.
    UpstreamSlow,
    /// The whole exchange has taken as long as it may.
    TooLong,
    /// The answer's head is none.
    UpstreamHead(ResponseError),
    /// The answer's body breaks its framing or was cut off.
    UpstreamBody,
}

/// What an exchange that ended well leaves.
#[derive(Debug)]
pub(crate) struct Finished {
    /// The upstream's connection can carry another exchange.
    pub(crate) reusable: bool,
    /// Of the visitor's connection.
    pub(crate) next: h1::Next,
}

impl Exchange<'_> {
    /// Runs it to its end. Behind that, one of [`finish`](Self::finish) and [`give_back`](Self::give_back) takes what is left.
    pub(crate) fn run(&mut self) -> impl Future<Output = Result<(), Failed>> {
        self.set_deadline();
        poll_fn(|cx| self.poll(cx))
    }

    /// Bytes of the request's body that were read, and of the answer's that were sent.
    pub(crate) fn moved(&self) -> (u64, u64) {
        let sent = match &self.answer {
            Down::Body(answer) => answer.moved,
            Down::Compressed(answer) => answer.moved,
            Down::Awaited | Down::Tunnel | Down::Lost(_) => 0,
        };
        (
            self.request.as_ref().map_or(0, |request| request.moved),
            sent,
        )
    }

    /// Of one that ended well: what follows on both connections. `None` for one that has become a tunnel.
    pub(crate) fn finish(&mut self) -> Option<Finished> {
        let mut request = self.request.take()?;
        request.drop_unwritten(self.visitor.input);
        // Bytes behind the answer belong to no request.
        let leftover = self.upstream.input.bytes().len();
        let (from, to) = match std::mem::replace(&mut self.answer, Down::Tunnel) {
            Down::Body(answer) => (answer.from, answer.to),
            Down::Compressed(answer) => answer.into_parts(),
            Down::Awaited | Down::Tunnel | Down::Lost(_) => return None,
        };
        let kept = from.finish(request.to, leftover).is_some();
        Some(Finished {
            reusable: kept && self.so_far.upload == Upload::Done,
            next: to.finish(request.from),
        })
    }

    /// Of one that did not: the right to answer, if no answer was passed on.
    pub(crate) fn give_back(&mut self) -> Option<Turn> {
        let mut request = self.request.take()?;
        request.drop_unwritten(self.visitor.input);
        let responder = match &mut self.answer {
            Down::Awaited => self.awaiting.take().map(Awaiting::abandon),
            Down::Lost(responder) => responder.take(),
            Down::Body(_) | Down::Compressed(_) | Down::Tunnel => None,
        };
        let body = request.from;
        responder.map(|responder| Turn { body, responder })
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failed>> {
        if self.so_far.upload == Upload::Going {
            match self.poll_up(cx) {
                Poll::Ready(Ok(())) => {
                    self.so_far.upload = Upload::Done;
                    self.set_deadline();
                }
                Poll::Ready(Err(failed)) => return Poll::Ready(Err(failed)),
                Poll::Pending => {}
            }
        }
        if let Poll::Ready(end) = self.poll_down(cx) {
            return Poll::Ready(end);
        }
        ready!(self.deadline.poll(cx));
        if self.deadline.is_bound_over() {
            return Poll::Ready(Err(Failed::TooLong));
        }
        Poll::Ready(Err(match self.so_far.waits_for {
            Blocked::Visitor => Failed::VisitorSlow,
            Blocked::Upstream => Failed::UpstreamSlow,
        }))
    }

    fn set_deadline(&self) {
        let patience = self.patience;
        let sent = self.so_far.upload == Upload::Done
            || (self.request.as_ref()).is_some_and(Flow::is_read);
        let after = if sent && matches!(self.answer, Down::Awaited) {
            patience.response
        } else {
            patience.body
        };
        self.deadline.set(Some(after));
    }
}

/// Reads and writes of one direction before others get their turn: a quarter of a megabyte. Those of tokio's own would be 2 MiB.
const TURNS: u32 = 16;

fn touch(deadline: &Deadline, patience: Patience) {
    deadline.set(Some(patience.body));
}

/// One write of what the output has and what may pass behind it.
fn poll_write<R: Source, W: Sink>(
    to: &mut Side<'_>,
    flow: Option<&mut Flow<R, W>>,
    input: &mut Input,
    cx: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    let parts = match &flow {
        Some(flow) => flow.parts(to.output, input),
        None => [to.output.bytes(), &[], &[]],
    };
    let conn = Pin::new(&mut *to.conn);
    let n = match parts {
        [made, [], _] => ready!(conn.poll_write(cx, made))?,
        [[], passed, []] => ready!(conn.poll_write(cx, passed))?,
        parts => ready!(conn.poll_write_vectored(cx, &parts.map(IoSlice::new)))?,
    };
    if n == 0 {
        return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
    }
    match flow {
        Some(flow) => flow.written(n, to.output, input),
        None => to.output.advance(n),
    }
    Poll::Ready(Ok(()))
}

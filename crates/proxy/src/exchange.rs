//! One request on one upstream connection and its answer, both bodies at once: whatever can move, moves, and who does not take its bytes stops
//! the other's from being read.
//!
//! What the heads say is decided by the caller; here they are only written, awaited and followed.

use std::{
    future::poll_fn,
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use h1::{
    Answer, Awaiting, RequestBody, Responder, Response, ResponseError, ResponseHead,
    ResponseWriter, WriteError,
};
use tokio::io::AsyncWrite;

use crate::{
    answer::Turn,
    buffer::{BUFFER, Input, Output},
    clock::Deadline,
    compress::{Compressed, Encoder},
    conn::Conn,
    flow::{BadBody, Downward, Flow, Sink, Source, Step, Upward},
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

/// What is to be done.
pub(crate) struct Exchange<'a> {
    pub(crate) visitor: Side<'a>,
    pub(crate) upstream: Side<'a>,
    pub(crate) head: &'a mut ResponseHead,
    /// Until the answer's head is there.
    pub(crate) awaiting: Option<Awaiting<Responder>>,
    pub(crate) limits: &'a h1::Limits,
    /// `None` once it has become a tunnel.
    pub(crate) request: Option<Upward>,
    pub(crate) patience: Patience,
    pub(crate) deadline: &'a Deadline,
    pub(crate) on_head: &'a mut OnHead<'a>,
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

/// What came of it.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) end: Result<(), Failed>,
    /// Of the answer whose head was passed on.
    pub(crate) status: Option<u16>,
    /// Bytes of bodies.
    pub(crate) received: u64,
    pub(crate) sent: u64,
    /// The upstream's connection can carry another exchange.
    pub(crate) reusable: bool,
    /// The right to answer, if no answer was passed on.
    pub(crate) turn: Option<Turn>,
    /// What the answer leaves of the visitor's connection.
    pub(crate) next: Option<h1::Next>,
    /// What follows on both connections is no HTTP.
    pub(crate) tunnel: bool,
}

impl Exchange<'_> {
    /// Runs it where it stands: it is large, and moving it costs more than a field or two.
    pub(crate) async fn run(&mut self) -> Report {
        let mut running = Running {
            upload: Upload::Going,
            answer: Down::Awaited,
            status: None,
            tunnel: false,
            heard: false,
            waits_for: Blocked::Upstream,
            exchange: self,
        };
        running.set_deadline();
        let end = poll_fn(|cx| running.poll(cx)).await;
        running.report(end)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Upload {
    Going,
    Done,
    /// The upstream takes no more, but may have answered.
    Refused,
}

/// Who is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blocked {
    Visitor,
    Upstream,
}

/// How far the answer is.
#[derive(Debug)]
enum Down {
    /// By what the exchange has for it.
    Awaited,
    Body(Downward),
    Compressed(Box<Compressed>),
    Tunnel,
    /// There is none that could be passed on.
    Lost(Option<Responder>),
}

impl Down {
    fn is_awaited(&self) -> bool {
        matches!(self, Self::Awaited)
    }
}

struct Running<'r, 'a> {
    exchange: &'r mut Exchange<'a>,
    upload: Upload,
    answer: Down,
    status: Option<u16>,
    tunnel: bool,
    /// The upstream has sent something.
    heard: bool,
    waits_for: Blocked,
}

impl Running<'_, '_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failed>> {
        if self.upload == Upload::Going {
            match self.poll_up(cx) {
                Poll::Ready(Ok(())) => {
                    self.upload = Upload::Done;
                    self.set_deadline();
                }
                Poll::Ready(Err(failed)) => return Poll::Ready(Err(failed)),
                Poll::Pending => {}
            }
        }
        if let Poll::Ready(end) = self.poll_down(cx) {
            return Poll::Ready(end);
        }
        ready!(self.exchange.deadline.poll(cx));
        if self.exchange.deadline.is_bound_over() {
            return Poll::Ready(Err(Failed::TooLong));
        }
        Poll::Ready(Err(match self.waits_for {
            Blocked::Visitor => Failed::VisitorSlow,
            Blocked::Upstream => Failed::UpstreamSlow,
        }))
    }

    /// From the visitor to the upstream.
    fn poll_up(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failed>> {
        let Exchange {
            visitor,
            upstream,
            request,
            deadline,
            patience,
            ..
        } = &mut *self.exchange;
        let (deadline, patience) = (*deadline, *patience);
        let Some(request) = request else {
            return Poll::Ready(Ok(()));
        };
        let mut left = TURNS;
        loop {
            if left == 0 {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            left -= 1;
            let step = match request.step(visitor.input, upstream.output) {
                Ok(step) => step,
                Err(bad) => return Poll::Ready(Err(Failed::VisitorBody(bad))),
            };
            match step {
                Step::Write => match poll_write(upstream, Some(request), visitor.input, cx) {
                    Poll::Ready(Ok(())) => touch(deadline, patience),
                    Poll::Ready(Err(_)) => {
                        // Its answer may be on the way: 413, or a close that the reading will see.
                        self.upload = Upload::Refused;
                        return Poll::Pending;
                    }
                    Poll::Pending => {
                        self.waits_for = Blocked::Upstream;
                        return Poll::Pending;
                    }
                },
                Step::Read => {
                    if upstream.conn.needs_flush() {
                        let _ = Pin::new(&mut *upstream.conn).poll_flush(cx);
                    }
                    match visitor.input.poll_fill(visitor.conn, BUFFER, cx) {
                        Poll::Ready(Ok(0)) => match request.end_of_input() {
                            Ok(()) => {}
                            Err(_) => return Poll::Ready(Err(Failed::VisitorGone)),
                        },
                        Poll::Ready(Ok(_)) => {
                            touch(deadline, patience);
                        }
                        Poll::Ready(Err(_)) => return Poll::Ready(Err(Failed::VisitorGone)),
                        Poll::Pending => {
                            self.waits_for = Blocked::Visitor;
                            return Poll::Pending;
                        }
                    }
                }
                Step::Done => {
                    if upstream.conn.needs_flush()
                        && ready!(Pin::new(&mut *upstream.conn).poll_flush(cx)).is_err()
                    {
                        self.upload = Upload::Refused;
                        return Poll::Pending;
                    }
                    // Nothing is left to send: who waits for an answer holds no buffer.
                    upstream.output.rest();
                    self.waits_for = Blocked::Upstream;
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }

    /// From the upstream to the visitor.
    fn poll_down(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failed>> {
        let mut left = TURNS;
        loop {
            if left == 0 {
                // Others on this thread get their turn.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            left -= 1;
            let Exchange {
                visitor, upstream, ..
            } = &mut *self.exchange;
            let step = match &mut self.answer {
                Down::Awaited => match self.parse_head() {
                    Ok(true) => continue,
                    // An interim answer may wait to be written.
                    Ok(false) if !self.exchange.visitor.output.is_empty() => Step::Write,
                    Ok(false) => Step::Read,
                    Err(error) => return Poll::Ready(Err(Failed::UpstreamHead(error))),
                },
                Down::Body(answer) => match answer.step(upstream.input, visitor.output) {
                    Ok(step) => step,
                    Err(_) => return Poll::Ready(Err(Failed::UpstreamBody)),
                },
                Down::Compressed(answer) => match answer.step(upstream.input, visitor.output) {
                    Ok(step) => step,
                    Err(_) => return Poll::Ready(Err(Failed::UpstreamBody)),
                },
                Down::Tunnel | Down::Lost(_) if visitor.output.is_empty() => Step::Done,
                Down::Tunnel | Down::Lost(_) => Step::Write,
            };
            let done = match step {
                Step::Write => ready!(self.write_down(cx)),
                Step::Read => ready!(self.read_down(cx)),
                Step::Done => {
                    let visitor = &mut self.exchange.visitor;
                    if visitor.conn.needs_flush() {
                        self.waits_for = Blocked::Visitor;
                        let flushed = ready!(Pin::new(&mut *visitor.conn).poll_flush(cx));
                        return Poll::Ready(flushed.map_err(|_| Failed::VisitorGone));
                    }
                    return Poll::Ready(Ok(()));
                }
            };
            if let Err(failed) = done {
                return Poll::Ready(Err(failed));
            }
        }
    }

    fn write_down(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failed>> {
        let Exchange {
            visitor, upstream, ..
        } = &mut *self.exchange;
        let answer = match &mut self.answer {
            Down::Body(answer) => Some(answer),
            _ => None,
        };
        match poll_write(visitor, answer, upstream.input, cx) {
            Poll::Ready(Ok(())) => {
                let more = match &self.answer {
                    Down::Body(answer) => !answer.is_read(),
                    Down::Compressed(answer) => !answer.from.is_complete(),
                    _ => false,
                };
                if more {
                    self.set_deadline();
                }
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(_)) => Poll::Ready(Err(Failed::VisitorGone)),
            Poll::Pending => {
                self.waits_for = Blocked::Visitor;
                Poll::Pending
            }
        }
    }

    fn read_down(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failed>> {
        let Exchange {
            visitor,
            upstream,
            head,
            limits,
            ..
        } = &mut *self.exchange;
        if visitor.conn.needs_flush() {
            let _ = Pin::new(&mut *visitor.conn).poll_flush(cx);
        }
        let ceiling = if self.answer.is_awaited() {
            limits.head.max(BUFFER)
        } else {
            BUFFER
        };
        if let Down::Compressed(answer) = &mut self.answer
            && answer.yields()
        {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let read = match upstream.input.poll_fill(upstream.conn, ceiling, cx) {
            Poll::Ready(read) => read,
            Poll::Pending => {
                if let Down::Compressed(answer) = &mut self.answer {
                    match answer.pause(visitor.output) {
                        Ok(true) => return Poll::Ready(Ok(())),
                        Ok(false) => {}
                        Err(_) => return Poll::Ready(Err(Failed::UpstreamBody)),
                    }
                }
                if self.upload != Upload::Going || !self.answer.is_awaited() {
                    self.waits_for = Blocked::Upstream;
                }
                return Poll::Pending;
            }
        };
        Poll::Ready(match (read, &mut self.answer) {
            (Ok(0), Down::Body(answer)) => answer.end_of_input().map_err(|_| Failed::UpstreamBody),
            (Ok(0), Down::Compressed(answer)) => {
                answer.end_of_input().map_err(|_| Failed::UpstreamBody)
            }
            (Err(_), Down::Body(_) | Down::Compressed(_)) => Err(Failed::UpstreamBody),
            (Ok(0) | Err(_), _) => Err(Failed::UpstreamGone {
                silent: !self.heard,
            }),
            (Ok(n), answer) => {
                if !self.heard && n == upstream.input.bytes().len() {
                    upstream.conn.take_head(head);
                }
                self.heard = true;
                if !answer.is_awaited() {
                    touch(self.exchange.deadline, self.exchange.patience);
                }
                Ok(())
            }
        })
    }

    /// Whether a head was taken off the input.
    fn parse_head(&mut self) -> Result<bool, ResponseError> {
        let Exchange {
            visitor,
            upstream,
            head,
            limits,
            request,
            on_head,
            deadline,
            patience,
            awaiting,
            ..
        } = &mut *self.exchange;
        if upstream.input.is_empty() {
            return Ok(false);
        }
        let Some(length) = head.parse(upstream.input.bytes(), limits)? else {
            return Ok(false);
        };
        let Some(response) = head.view(upstream.input.bytes()) else {
            return Ok(false);
        };
        // Whatever is wrong with it from here on, nobody else is asked.
        self.answer = Down::Lost(None);
        let Some(asked) = awaiting.take() else {
            return Ok(false);
        };
        let out = visitor.output.buffer();
        self.answer = match asked.answer(response) {
            Ok(Answer::Interim(mut asked)) => {
                if let Some(mut writer) = asked.payload().interim(response.status(), out) {
                    writer.copy(response.fields(), |_| true);
                    writer.finish();
                }
                *awaiting = Some(asked);
                Down::Awaited
            }
            Ok(Answer::Final { body, payload }) => {
                self.status = Some(response.status());
                if !body.is_complete() {
                    touch(deadline, *patience);
                }
                let asked = request.as_ref().map(|request| &request.from);
                let begun = asked.map(|asked| on_head(response, payload, Behind::Body(asked), out));
                match begun {
                    Some(Ok(Begun::Body(writer))) => Down::Body(Flow::new(body, writer)),
                    Some(Ok(Begun::Compressed(writer, encoder))) => {
                        Down::Compressed(Box::new(Compressed::new(body, writer, encoder)))
                    }
                    _ => return Err(ResponseError::StatusLine),
                }
            }
            // Whoever agrees to what it has not read yet cannot mean it.
            Ok(Answer::Tunnel { payload, .. }) if self.upload != Upload::Done => {
                self.answer = Down::Lost(Some(payload));
                return Err(ResponseError::UnaskedUpgrade);
            }
            Ok(Answer::Tunnel { payload, .. }) => {
                self.status = Some(response.status());
                let written = request
                    .take()
                    .map(|request| on_head(response, payload, Behind::Tunnel(request.from), out));
                if !matches!(written, Some(Ok(_))) {
                    return Err(ResponseError::UnaskedUpgrade);
                }
                self.tunnel = true;
                Down::Tunnel
            }
            Err((error, responder)) => {
                self.answer = Down::Lost(Some(responder));
                return Err(error);
            }
        };
        upstream.input.consume(length);
        head.clear();
        Ok(true)
    }

    fn set_deadline(&self) {
        let patience = self.exchange.patience;
        let sent = self.upload == Upload::Done
            || (self.exchange.request.as_ref()).is_some_and(Flow::is_read);
        let after = if sent && self.answer.is_awaited() {
            patience.response
        } else {
            patience.body
        };
        self.exchange.deadline.set(Some(after));
    }

    fn report(self, end: Result<(), Failed>) -> Report {
        let Exchange {
            visitor,
            upstream,
            request,
            awaiting,
            ..
        } = self.exchange;
        let request = request.take();
        let mut report = Report {
            end,
            status: self.status,
            received: request.as_ref().map_or(0, |request| request.moved),
            sent: 0,
            reusable: false,
            turn: None,
            next: None,
            tunnel: self.tunnel,
        };
        let Some(mut request) = request else {
            return report;
        };
        request.drop_unwritten(visitor.input);
        let (body, writer) = (request.from, request.to);
        match self.answer {
            Down::Body(answer) => {
                report.sent = answer.moved;
                if end.is_ok() {
                    // Bytes behind the answer belong to no request.
                    let leftover = upstream.input.bytes().len();
                    let kept = answer.from.finish(writer, leftover).is_some();
                    report.reusable = kept && self.upload == Upload::Done;
                    report.next = Some(answer.to.finish(body));
                }
            }
            Down::Compressed(answer) => {
                let answer = *answer;
                report.sent = answer.moved;
                if end.is_ok() {
                    let leftover = upstream.input.bytes().len();
                    let kept = answer.from.finish(writer, leftover).is_some();
                    report.reusable = kept && self.upload == Upload::Done;
                    report.next = Some(answer.to.finish(body));
                }
            }
            Down::Awaited => {
                let responder = awaiting.take().map(Awaiting::abandon);
                report.turn = responder.map(|responder| Turn { body, responder });
            }
            Down::Lost(responder) => {
                report.turn = responder.map(|responder| Turn { body, responder });
            }
            Down::Tunnel => {}
        }
        report
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

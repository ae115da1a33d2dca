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

use h1::{Asked, Framing, Response, ResponseError, ResponseHead};
use tokio::io::AsyncWrite;

use crate::{
    buffer::{BUFFER, Input, Output},
    clock::Deadline,
    conn::Conn,
    flow::{BadBody, Flow, Step},
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

/// Writes the answer's head for the visitor, and says how its body is to be framed.
pub(crate) type OnHead<'a> = dyn FnMut(&Response<'_>, &mut Vec<u8>) -> Framing + 'a;

/// What is to be done.
pub(crate) struct Exchange<'a> {
    pub(crate) visitor: Side<'a>,
    pub(crate) upstream: Side<'a>,
    pub(crate) head: &'a mut ResponseHead,
    pub(crate) asked: Asked,
    pub(crate) limits: h1::Limits,
    /// Interim answers (100, 103) may be passed on.
    pub(crate) interim: bool,
    pub(crate) request: Flow,
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
    /// The answer's head is none.
    UpstreamHead(ResponseError),
    /// The answer's body breaks its framing or was cut off.
    UpstreamBody,
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report {
    pub(crate) end: Result<(), Failed>,
    /// Of the answer whose head was passed on.
    pub(crate) status: Option<u16>,
    /// Bytes of bodies.
    pub(crate) received: u64,
    pub(crate) sent: u64,
    /// The upstream's connection can carry another exchange.
    pub(crate) reusable: bool,
    /// The request was read to its end.
    pub(crate) request_read: bool,
    /// What follows on both connections is no HTTP.
    pub(crate) tunnel: bool,
}

impl Exchange<'_> {
    pub(crate) async fn run(self) -> Report {
        let mut running = Running {
            upload: Upload::Going,
            answer: None,
            status: None,
            keep_alive: false,
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

struct Running<'a> {
    exchange: Exchange<'a>,
    upload: Upload,
    /// The answer's body, once there is a head.
    answer: Option<Flow>,
    status: Option<u16>,
    keep_alive: bool,
    tunnel: bool,
    /// The upstream has sent something.
    heard: bool,
    waits_for: Blocked,
}

impl Running<'_> {
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
        } = &mut self.exchange;
        let (deadline, patience) = (*deadline, *patience);
        loop {
            let step = match request.step(visitor.input, upstream.output) {
                Ok(step) => step,
                Err(bad) => return Poll::Ready(Err(Failed::VisitorBody(bad))),
            };
            match step {
                Step::Write => match poll_write(upstream, request, visitor.input, cx) {
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
                    self.waits_for = Blocked::Upstream;
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }

    /// From the upstream to the visitor.
    fn poll_down(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failed>> {
        loop {
            let step = match &mut self.answer {
                None => match self.parse_head() {
                    Ok(true) => continue,
                    // An interim answer may wait to be written.
                    Ok(false) if !self.exchange.visitor.output.is_empty() => Step::Write,
                    Ok(false) => Step::Read,
                    Err(error) => return Poll::Ready(Err(Failed::UpstreamHead(error))),
                },
                Some(answer) => {
                    let Exchange {
                        visitor, upstream, ..
                    } = &mut self.exchange;
                    match answer.step(upstream.input, visitor.output) {
                        Ok(step) => step,
                        Err(_) => return Poll::Ready(Err(Failed::UpstreamBody)),
                    }
                }
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
        } = &mut self.exchange;
        let mut none = Flow::new(Framing::None, Framing::None, None);
        let answer = self.answer.as_mut().unwrap_or(&mut none);
        match poll_write(visitor, answer, upstream.input, cx) {
            Poll::Ready(Ok(())) => {
                if self.answer.as_ref().is_some_and(|answer| !answer.is_read()) {
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
            limits,
            ..
        } = &mut self.exchange;
        if visitor.conn.needs_flush() {
            let _ = Pin::new(&mut *visitor.conn).poll_flush(cx);
        }
        let ceiling = if self.answer.is_none() {
            limits.head.max(BUFFER)
        } else {
            BUFFER
        };
        let read = match upstream.input.poll_fill(upstream.conn, ceiling, cx) {
            Poll::Ready(read) => read,
            Poll::Pending => {
                if self.upload != Upload::Going || self.answer.is_some() {
                    self.waits_for = Blocked::Upstream;
                }
                return Poll::Pending;
            }
        };
        Poll::Ready(match (read, &mut self.answer) {
            (Ok(0), Some(answer)) => answer.end_of_input().map_err(|_| Failed::UpstreamBody),
            (Ok(0) | Err(_), None) => Err(Failed::UpstreamGone {
                silent: !self.heard,
            }),
            (Err(_), Some(_)) => Err(Failed::UpstreamBody),
            (Ok(_), answer) => {
                self.heard = true;
                if answer.is_some() {
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
            asked,
            limits,
            interim,
            on_head,
            deadline,
            patience,
            ..
        } = &mut self.exchange;
        if upstream.input.is_empty() {
            return Ok(false);
        }
        let Some(length) = head.parse(upstream.input.bytes(), *asked, limits)? else {
            return Ok(false);
        };
        let response = head.view(upstream.input.bytes());
        if response.is_interim() {
            if *interim {
                write_interim(&response, visitor.output);
            }
        } else {
            self.status = Some(response.status());
            self.keep_alive = response.keep_alive();
            self.tunnel = response.is_tunnel();
            let to = on_head(&response, visitor.output.buffer());
            self.answer = Some(Flow::new(response.framing(), to, None));
            if response.framing() != Framing::None {
                touch(deadline, *patience);
            }
        }
        upstream.input.consume(length);
        head.clear();
        Ok(true)
    }

    fn set_deadline(&self) {
        let patience = self.exchange.patience;
        let waits = self.answer.is_none() && self.upload == Upload::Done;
        let waits = waits || self.exchange.request.is_read();
        let after = if waits && self.answer.is_none() {
            patience.response
        } else {
            patience.body
        };
        self.exchange.deadline.set(Some(after));
    }

    fn report(&self, end: Result<(), Failed>) -> Report {
        let request_read = self.upload == Upload::Done || self.exchange.request.is_read();
        Report {
            end,
            status: self.status,
            received: self.exchange.request.moved,
            sent: self.answer.as_ref().map_or(0, |answer| answer.moved),
            reusable: end.is_ok()
                && self.upload == Upload::Done
                && self.keep_alive
                && !self.tunnel
                // Bytes behind the answer belong to no request.
                && self.exchange.upstream.input.is_empty(),
            request_read,
            tunnel: self.tunnel,
        }
    }
}

fn touch(deadline: &Deadline, patience: Patience) {
    deadline.set(Some(patience.body));
}

/// One write of what the output has and what may pass behind it.
fn poll_write(
    to: &mut Side<'_>,
    flow: &mut Flow,
    input: &mut Input,
    cx: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    let (made, passed) = (to.output.bytes(), flow.ready(input));
    let conn = Pin::new(&mut *to.conn);
    let n = match (made.is_empty(), passed.is_empty()) {
        (false, false) => {
            ready!(conn.poll_write_vectored(cx, &[IoSlice::new(made), IoSlice::new(passed)]))?
        }
        (false, true) => ready!(conn.poll_write(cx, made))?,
        (true, _) => ready!(conn.poll_write(cx, passed))?,
    };
    if n == 0 {
        return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
    }
    let of_made = n.min(made.len());
    to.output.advance(of_made);
    flow.written(n - of_made, input);
    Poll::Ready(Ok(()))
}

fn write_interim(response: &Response<'_>, output: &mut Output) {
    let out = output.buffer();
    let mut writer = h1::HeadWriter::response(
        out,
        h1::Version::Http11,
        response.status(),
        response.reason(),
    );
    writer.copy_fields(response.fields(), |_| true);
    writer.finish(Framing::None);
}

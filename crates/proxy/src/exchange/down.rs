//! From the upstream to the visitor: heads until one is the answer's, and its body.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use h1::{Answer, ResponseError};
use tokio::io::AsyncWrite;

use super::{Begun, Behind, Blocked, Down, Exchange, Failed, TURNS, Upload, poll_write, touch};
use crate::{
    buffer::BUFFER,
    compress::Compressed,
    flow::{Flow, Step},
};

impl Exchange<'_> {
    /// From the upstream to the visitor.
    pub(super) fn poll_down(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failed>> {
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
            } = self;
            let step = match &mut self.answer {
                Down::Awaited => match self.parse_head() {
                    Ok(true) => continue,
                    // An interim answer may wait to be written.
                    Ok(false) if !self.visitor.output.is_empty() => Step::Write,
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
                    let visitor = &mut self.visitor;
                    if visitor.conn.needs_flush() {
                        self.so_far.waits_for = Blocked::Visitor;
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
        } = self;
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
                self.so_far.waits_for = Blocked::Visitor;
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
            answer,
            so_far,
            ..
        } = self;
        if visitor.conn.needs_flush() {
            let _ = Pin::new(&mut *visitor.conn).poll_flush(cx);
        }
        let awaited = matches!(answer, Down::Awaited);
        let ceiling = if awaited {
            limits.head.max(BUFFER)
        } else {
            BUFFER
        };
        if let Down::Compressed(answer) = answer
            && answer.yields()
        {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let read = match upstream.input.poll_fill(upstream.conn, ceiling, cx) {
            Poll::Ready(read) => read,
            Poll::Pending => {
                if let Down::Compressed(answer) = answer {
                    match answer.pause(visitor.output) {
                        Ok(true) => return Poll::Ready(Ok(())),
                        Ok(false) => {}
                        Err(_) => return Poll::Ready(Err(Failed::UpstreamBody)),
                    }
                }
                if so_far.upload != Upload::Going || !awaited {
                    so_far.waits_for = Blocked::Upstream;
                }
                return Poll::Pending;
            }
        };
        Poll::Ready(match (read, answer) {
            (Ok(0), Down::Body(answer)) => answer.end_of_input().map_err(|_| Failed::UpstreamBody),
            (Ok(0), Down::Compressed(answer)) => {
                answer.end_of_input().map_err(|_| Failed::UpstreamBody)
            }
            (Err(_), Down::Body(_) | Down::Compressed(_)) => Err(Failed::UpstreamBody),
            (Ok(0) | Err(_), _) => Err(Failed::UpstreamGone {
                silent: !so_far.heard,
            }),
            (Ok(n), _) => {
                if !so_far.heard && n == upstream.input.bytes().len() {
                    upstream.conn.take_head(head);
                }
                so_far.heard = true;
                if !awaited {
                    touch(self.deadline, self.patience);
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
        } = self;
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
                self.so_far.status = Some(response.status());
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
            Ok(Answer::Tunnel { payload, .. }) if self.so_far.upload != Upload::Done => {
                self.answer = Down::Lost(Some(payload));
                return Err(ResponseError::UnaskedUpgrade);
            }
            Ok(Answer::Tunnel { payload, .. }) => {
                self.so_far.status = Some(response.status());
                let written = request
                    .take()
                    .map(|request| on_head(response, payload, Behind::Tunnel(request.from), out));
                if !matches!(written, Some(Ok(_))) {
                    return Err(ResponseError::UnaskedUpgrade);
                }
                self.so_far.tunnel = true;
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
}

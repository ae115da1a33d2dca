//! One request on a connection to a server, as an HTTP/1.1 connection: what is written is a request's head and body, what is read its answer's.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use ::h2::{
    Reason, RecvStream, SendStream,
    client::{ResponseFuture, SendRequest},
};
use ::tunnel::ResetReason;
use bytes::{Buf, Bytes};
use h1::{RequestBody, RequestHead};
use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::io::ReadBuf;

use super::{
    pool::Place,
    translate::{self, Framed},
};
use crate::words::UNLIMITED;

/// The stream of one request. Dropped before its end, it is reset.
#[derive(Debug)]
pub(crate) struct ServerStream {
    place: Place,
    /// Requests that its connection had before.
    before: u32,
    sender: Option<SendRequest<Bytes>>,
    writing: Writing,
    out: Option<SendStream<Bytes>>,
    reading: Reading,
    /// Made and not yet read.
    made: Bytes,
    unprocessed: bool,
    /// The method is HEAD.
    head_only: bool,
}

#[derive(Debug)]
enum Writing {
    /// The request's head so far.
    Head(Vec<u8>),
    Body(Box<RequestBody>),
    Ended,
}

#[derive(Debug)]
enum Reading {
    /// No request was sent.
    Nothing,
    Head(ResponseFuture),
    Chunks(RecvStream),
    Plain(RecvStream),
    Trailers(RecvStream),
    Ended,
    /// The request could not be sent.
    Failed,
}

impl ServerStream {
    pub(super) fn new(place: Place, before: u32) -> Self {
        Self {
            sender: Some(place.connection().sender()),
            place,
            before,
            writing: Writing::Head(Vec::new()),
            out: None,
            reading: Reading::Nothing,
            made: Bytes::new(),
            unprocessed: false,
            head_only: false,
        }
    }

    pub(crate) fn requests_before(&self) -> u32 {
        self.before
    }

    /// Why the client of a relayed service gave up the stream that the connection is on.
    pub(crate) fn refusal(&self) -> Option<ResetReason> {
        self.place.connection().below.refusal.get()
    }

    /// The server has said that it has not looked at the request: it may be sent again, whatever it is (RFC 9113 §8.7).
    pub(crate) fn is_unprocessed(&self) -> bool {
        self.unprocessed
    }

    /// Gives the request up. A connection on which nothing came back is not used again.
    pub(crate) fn abort(mut self) {
        if matches!(self.reading, Reading::Head(_)) && !self.unprocessed {
            self.place.connection().give_up();
        }
        if let Some(out) = &mut self.out {
            out.send_reset(Reason::CANCEL);
        }
    }

    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            if !self.made.is_empty() {
                let n = self.made.len().min(buffer.remaining());
                buffer.put_slice(&self.made[..n]);
                self.made.advance(n);
                return Poll::Ready(Ok(()));
            }
            match &mut self.reading {
                // Whoever writes the request is woken, and then reads too.
                Reading::Nothing => return Poll::Pending,
                Reading::Failed => {
                    return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
                }
                Reading::Ended => return Poll::Ready(Ok(())),
                Reading::Head(answer) => {
                    let answer = match ready!(Pin::new(answer).poll(cx)) {
                        Ok(answer) => answer,
                        Err(error) => return Poll::Ready(Err(self.broken(&error))),
                    };
                    let (parts, body) = answer.into_parts();
                    let ends = body.is_end_stream();
                    let (head, framed) = translate::answer(&parts, ends, self.head_only);
                    self.made = head.into();
                    self.reading = match framed {
                        Framed::Nothing => Reading::Ended,
                        Framed::Chunks => Reading::Chunks(body),
                        Framed::Length => Reading::Plain(body),
                    };
                }
                Reading::Chunks(body) | Reading::Plain(body) => {
                    let data = ready!(body.poll_data(cx));
                    if let Err(error) = self.take(data) {
                        return Poll::Ready(Err(self.broken(&error)));
                    }
                }
                Reading::Trailers(body) => {
                    let trailers = match ready!(body.poll_trailers(cx)) {
                        Ok(trailers) => trailers,
                        Err(error) => return Poll::Ready(Err(self.broken(&error))),
                    };
                    self.made = translate::last_chunk(trailers.as_ref()).into();
                    self.reading = Reading::Ended;
                }
            }
        }
    }

    /// A piece of the body, or its end.
    fn take(&mut self, data: Option<Result<Bytes, ::h2::Error>>) -> Result<(), ::h2::Error> {
        let reading = std::mem::replace(&mut self.reading, Reading::Ended);
        self.reading = match (reading, data.transpose()?) {
            (Reading::Chunks(mut body), Some(data)) => {
                // What was taken is held here until it is read: at most one frame.
                let _ = body.flow_control().release_capacity(data.len());
                if !data.is_empty() {
                    self.made = translate::chunk(&data);
                }
                Reading::Chunks(body)
            }
            (Reading::Plain(mut body), Some(data)) => {
                let _ = body.flow_control().release_capacity(data.len());
                self.made = data;
                Reading::Plain(body)
            }
            (Reading::Chunks(body), None) => Reading::Trailers(body),
            (_, _) => Reading::Ended,
        };
        Ok(())
    }

    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.writing {
            Writing::Ended => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            Writing::Head(_) => self.poll_head(cx, bytes),
            Writing::Body(_) => {
                ready!(self.poll_room(cx))?;
                self.write_body(bytes)
            }
        }
    }

    fn poll_head(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        // Asked before anything is taken, so that what is not taken can be offered again.
        if let Some(sender) = &mut self.sender
            && let Err(error) = ready!(sender.poll_ready(cx))
        {
            return Poll::Ready(Err(self.not_sent(&error)));
        }
        let Writing::Head(read) = &mut self.writing else {
            return Poll::Ready(Err(invalid()));
        };
        let before = read.len();
        read.extend_from_slice(bytes);
        let mut head = RequestHead::default();
        let parsed = head.parse(read, &UNLIMITED);
        let Some(length) = parsed.map_err(|_| invalid())? else {
            return Poll::Ready(Ok(bytes.len()));
        };
        let Some(request) = head.view(read) else {
            return Poll::Ready(Err(invalid()));
        };
        let secure = self.place.connection().below.secure;
        let translated = translate::request(&request, secure).ok_or_else(invalid)?;
        let (mut body, _) = h1::Visitor::new(&UNLIMITED).begin(request);
        let _ = body.decoder();
        let ends = body.is_complete();
        self.head_only = request.method() == b"HEAD";
        if request.expects_continue() {
            // The connection has been there before the request: whoever waits need not wait for the server.
            self.made = Bytes::from_static(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
        let Some(mut sender) = self.sender.take() else {
            return Poll::Ready(Err(invalid()));
        };
        match sender.send_request(translated, ends) {
            Ok((answer, out)) => {
                self.reading = Reading::Head(answer);
                self.out = Some(out);
                self.writing = if ends {
                    Writing::Ended
                } else {
                    Writing::Body(Box::new(body))
                };
                Poll::Ready(Ok(length - before))
            }
            Err(error) => Poll::Ready(Err(self.not_sent(&error))),
        }
    }

    /// The connection takes no more requests.
    fn not_sent(&mut self, error: &::h2::Error) -> io::Error {
        self.unprocessed = true;
        self.reading = Reading::Failed;
        self.place.connection().give_up();
        io::Error::new(io::ErrorKind::ConnectionReset, error.to_string())
    }

    fn write_body(&mut self, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let (Writing::Body(body), Some(out)) = (&mut self.writing, &mut self.out) else {
            return Poll::Ready(Err(invalid()));
        };
        let decoded = body.decoder().decode(bytes).map_err(|_| invalid())?;
        let data = &bytes[decoded.data];
        let trailers = decoded
            .end
            .then(|| fields(body.decoder().trailers().iter()));
        let trailers = trailers.filter(|trailers| !trailers.is_empty());
        let ends = decoded.end && trailers.is_none();
        let sent = if data.is_empty() && !ends {
            Ok(())
        } else {
            // The decoder has counted all of it, so all is taken; that the server's window is full is felt at the next write.
            out.send_data(Bytes::copy_from_slice(data), ends)
        };
        let sent = sent.and_then(|()| match trailers {
            Some(trailers) => out.send_trailers(trailers),
            None => Ok(()),
        });
        if decoded.end {
            self.writing = Writing::Ended;
        }
        match sent {
            Ok(()) => Poll::Ready(Ok(decoded.consumed)),
            Err(error) => Poll::Ready(Err(self.broken(&error))),
        }
    }

    /// Whether the server's window has room.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(out) = &mut self.out else {
            return Poll::Ready(Err(invalid()));
        };
        if out.capacity() > 0 {
            return Poll::Ready(Ok(()));
        }
        out.reserve_capacity(LEAST_ROOM);
        match ready!(out.poll_capacity(cx)) {
            Some(Ok(_)) => Poll::Ready(Ok(())),
            Some(Err(error)) => Poll::Ready(Err(self.broken(&error))),
            None => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    /// A failure in the words of a connection, and what it says of the connection.
    fn broken(&mut self, error: &::h2::Error) -> io::Error {
        if error.reason() == Some(Reason::REFUSED_STREAM) && error.is_remote() {
            self.unprocessed = true;
        } else if error.is_go_away() && error.is_remote() {
            // Only streams behind the last one that the server has looked at end with it.
            self.unprocessed = true;
            self.place.connection().give_up();
        } else if !error.is_reset() {
            self.place.connection().give_up();
        }
        io::Error::new(io::ErrorKind::ConnectionReset, error.to_string())
    }
}

fn fields<'a>(all: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in all {
        let name = HeaderName::from_bytes(name);
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value)) {
            map.append(name, value);
        }
    }
    map
}

fn invalid() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

/// The window must have so much room before another piece of a body is taken.
const LEAST_ROOM: usize = 16 << 10;

//! HTTP/2 visitors: each stream is made to look like an HTTP/1.1 connection with one request, so that every rule that holds for those holds for
//! these, and answers come back the same way.
//!
//! Framing is the `h2` crate's; what is refused there (bad pseudo-fields, a body that is not as long as it said) never gets here.

use std::{
    io,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};

use ::h2::{
    Reason, RecvStream, SendStream,
    ext::Protocol,
    server::{Builder, SendResponse},
};
use bytes::{Buf, Bytes};
use h1::{Answer, Awaiting, ResponseBody, ResponseHead};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use tokio::io::ReadBuf;

use crate::{
    conn::Conn,
    crew::Crew,
    visitor::About,
    words::{Reading, UNLIMITED, awaiting, chunk, field, invalid, translate, write_head},
    worker::Worker,
};

/// Serves a connection until it ends.
pub(crate) async fn serve(worker: Rc<Worker>, stream: net::Stream, about: About) {
    let list = worker
        .local()
        .site
        .routes
        .iter()
        .map(|route| route.limits.header_list_bytes)
        .max();
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(list.unwrap_or(64 << 10))
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buffer_size(SEND_BUFFER)
        .enable_connect_protocol();
    let handshake = tokio::time::timeout(HANDSHAKE, builder.handshake::<_, Bytes>(stream)).await;
    let Ok(Ok(mut connection)) = handshake else {
        return;
    };
    let deadline = worker.clock.deadline();
    let crew = Crew::new(&worker, about);
    let mut closing = false;
    loop {
        let idle = crew.is_idle();
        // A connection that rests has no tasks that wait for requests.
        let rests = idle && !crew.waits();
        deadline.set(Some(match idle {
            true if rests => IDLE,
            true => REST,
            false => LOOK,
        }));
        let accepted = deadline
            .limit(|cx| {
                if worker.is_draining() && !closing {
                    closing = true;
                    connection.graceful_shutdown();
                }
                connection.poll_accept(cx)
            })
            .await;
        match accepted {
            Ok(Some(Ok((request, respond)))) => {
                if let Some(conn) = H2Stream::new(request, respond) {
                    crew.serve(Conn::H2(Box::new(conn)));
                }
            }
            Ok(Some(Err(error))) => return tracing::debug!(%error, "an HTTP/2 connection failed"),
            Ok(None) => return,
            Err(_) if rests && closing => return,
            Err(_) if rests => {
                closing = true;
                connection.graceful_shutdown();
            }
            // No new stream for a while: nobody waits for one, whatever is still under way.
            Err(_) => crew.dismiss(),
        }
    }
}

/// One stream, as an HTTP/1.1 connection.
#[derive(Debug)]
pub(crate) struct H2Stream {
    /// Made and not yet read.
    made: Bytes,
    request: RecvStream,
    reading: Reading,
    respond: SendResponse<Bytes>,
    answer: Option<SendStream<Bytes>>,
    head: ResponseHead,
    /// An answer's head that is not complete.
    unparsed: Vec<u8>,
    writing: Writing,
}

#[derive(Debug)]
enum Writing {
    Head(Awaiting<()>),
    Body(ResponseBody),
    Tunnel,
    Ended,
}

impl H2Stream {
    /// `None` if the request cannot be said in HTTP/1.1; it has been answered then.
    fn new(request: Request<RecvStream>, mut respond: SendResponse<Bytes>) -> Option<Self> {
        let protocol = request.extensions().get::<Protocol>().cloned();
        let (parts, body) = request.into_parts();
        let websocket = protocol
            .as_ref()
            .is_some_and(|protocol| protocol.as_str() == "websocket");
        if parts.method == Method::CONNECT && !websocket {
            let refusal = Response::builder()
                .status(StatusCode::METHOD_NOT_ALLOWED)
                .body(());
            let _ = refusal.map(|refusal| respond.send_response(refusal, true));
            return None;
        }
        let (made, reading) = write_head(&parts, body.is_end_stream(), websocket);
        let awaiting = awaiting(parts.method == Method::HEAD, websocket);
        Some(Self {
            made: made.into(),
            request: body,
            reading,
            respond,
            answer: None,
            head: ResponseHead::default(),
            unparsed: Vec::new(),
            writing: Writing::Head(awaiting),
        })
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
            match self.reading {
                Reading::Ended => return Poll::Ready(Ok(())),
                Reading::Chunks | Reading::Plain => match ready!(self.request.poll_data(cx)) {
                    Some(Ok(data)) => {
                        // What was taken is held here until it is read: at most one frame.
                        let _ = self.request.flow_control().release_capacity(data.len());
                        self.made = if self.reading == Reading::Plain || data.is_empty() {
                            data
                        } else {
                            chunk(&data)
                        };
                    }
                    Some(Err(error)) => return Poll::Ready(Err(broken(&error))),
                    None if self.reading == Reading::Plain => self.reading = Reading::Ended,
                    None => self.reading = Reading::Trailers,
                },
                Reading::Trailers => {
                    let trailers =
                        ready!(self.request.poll_trailers(cx)).map_err(|error| broken(&error))?;
                    self.reading = Reading::Ended;
                    let mut end = b"0\r\n".to_vec();
                    for (name, value) in trailers.iter().flatten() {
                        field(&mut end, name.as_str(), value.as_bytes());
                    }
                    end.extend_from_slice(b"\r\n");
                    self.made = end.into();
                }
            }
        }
    }

    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.writing {
            Writing::Head(_) => Poll::Ready(self.write_head(bytes)),
            Writing::Tunnel => self.poll_send(cx, bytes),
            Writing::Ended => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            Writing::Body(body) => {
                let decoded = body.decoder().decode(bytes).map_err(|_| invalid())?;
                if !decoded.data.is_empty() {
                    ready!(self.poll_body(cx, &bytes[decoded.data], decoded.end))?;
                } else if decoded.end {
                    self.end_body()?;
                }
                Poll::Ready(Ok(decoded.consumed))
            }
        }
    }

    /// Ends the direction towards the visitor.
    pub(crate) fn poll_shutdown(&mut self) -> Poll<io::Result<()>> {
        if matches!(self.writing, Writing::Tunnel)
            && let Some(answer) = &mut self.answer
        {
            let _ = answer.send_data(Bytes::new(), true);
            self.writing = Writing::Ended;
        }
        Poll::Ready(Ok(()))
    }

    pub(crate) fn abort(mut self) {
        match &mut self.answer {
            Some(answer) => answer.send_reset(Reason::INTERNAL_ERROR),
            None => self.respond.send_reset(Reason::INTERNAL_ERROR),
        }
    }

    fn write_head(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let before = self.unparsed.len();
        let mut head = bytes;
        if before > 0 {
            self.unparsed.extend_from_slice(bytes);
            head = &self.unparsed;
        }
        let parsed = self.head.parse(head, &UNLIMITED);
        let Some(length) = parsed.map_err(|_| invalid())? else {
            if before == 0 {
                self.unparsed.extend_from_slice(bytes);
            }
            return Ok(bytes.len());
        };
        let text = Bytes::copy_from_slice(&head[..length]);
        let Some(answer) = self.head.view(&text) else {
            return Err(invalid());
        };
        let Writing::Head(awaiting) = std::mem::replace(&mut self.writing, Writing::Ended) else {
            return Err(invalid());
        };
        let (response, next, ends) = match awaiting.answer(answer).map_err(|_| invalid())? {
            Answer::Interim(awaiting) => {
                self.writing = Writing::Head(awaiting);
                self.head.clear();
                self.unparsed.clear();
                return Ok(length - before);
            }
            Answer::Tunnel { .. } => {
                self.reading = Reading::Plain;
                (translate(&text, &answer, true), Writing::Tunnel, false)
            }
            Answer::Final { body, .. } if body.is_complete() => {
                (translate(&text, &answer, false), Writing::Ended, true)
            }
            Answer::Final { body, .. } => {
                (translate(&text, &answer, false), Writing::Body(body), false)
            }
        };
        let sending = self.respond.send_response(response, ends);
        self.answer = Some(sending.map_err(|error| broken(&error))?);
        self.writing = next;
        self.head.clear();
        self.unparsed.clear();
        Ok(length - before)
    }

    /// Sends a part of the body that is known to be data; the decoder has counted all of it, so all is taken.
    fn poll_body(&mut self, cx: &mut Context<'_>, data: &[u8], ends: bool) -> Poll<io::Result<()>> {
        let Some(answer) = &mut self.answer else {
            return Poll::Ready(Err(invalid()));
        };
        answer.reserve_capacity(data.len());
        // The bytes are taken at once; that the visitor's window is full is felt at the next write.
        if let Poll::Ready(Some(Err(error))) = answer.poll_capacity(cx) {
            return Poll::Ready(Err(broken(&error)));
        }
        let sent = answer.send_data(Bytes::copy_from_slice(data), ends);
        if ends {
            self.writing = Writing::Ended;
        }
        Poll::Ready(sent.map_err(|error| broken(&error)))
    }

    /// Whether the visitor's window has room; asked before each write of a body.
    pub(crate) fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(answer) = &mut self.answer else {
            return Poll::Ready(Ok(()));
        };
        if !matches!(self.writing, Writing::Body(_) | Writing::Tunnel) || answer.capacity() > 0 {
            return Poll::Ready(Ok(()));
        }
        answer.reserve_capacity(LEAST_ROOM);
        match ready!(answer.poll_capacity(cx)) {
            Some(Ok(_)) => Poll::Ready(Ok(())),
            Some(Err(error)) => Poll::Ready(Err(broken(&error))),
            None => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_room(cx))?;
        let Some(answer) = &mut self.answer else {
            return Poll::Ready(Err(invalid()));
        };
        let n = bytes.len().min(answer.capacity());
        let sent = answer.send_data(Bytes::copy_from_slice(&bytes[..n]), false);
        Poll::Ready(sent.map(|()| n).map_err(|error| broken(&error)))
    }

    fn end_body(&mut self) -> io::Result<()> {
        let mut trailers = HeaderMap::new();
        if let Writing::Body(body) = &mut self.writing {
            for (name, value) in body.decoder().trailers().iter() {
                let name = HeaderName::from_bytes(name);
                if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value)) {
                    trailers.append(name, value);
                }
            }
        }
        self.writing = Writing::Ended;
        let Some(answer) = &mut self.answer else {
            return Ok(());
        };
        let ended = if trailers.is_empty() {
            answer.send_data(Bytes::new(), true)
        } else {
            answer.send_trailers(trailers)
        };
        ended.map_err(|error| broken(&error))
    }
}

fn broken(error: &::h2::Error) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, error.to_string())
}

/// Streams at one time, and so requests of one visitor under way.
const STREAMS: u32 = 128;
/// What a visitor may send of one body, and of all, before it is passed on.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;
/// What may wait for a visitor, per stream.
const SEND_BUFFER: usize = 256 << 10;
/// The window must have so much room before another piece of an answer is taken.
const LEAST_ROOM: usize = 16 << 10;
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Without a stream.
const IDLE: Duration = Duration::from_secs(75);
/// After this without a stream nothing is kept for the next one.
const REST: Duration = Duration::from_secs(1);
/// How often it is asked whether there are streams.
const LOOK: Duration = Duration::from_secs(5);

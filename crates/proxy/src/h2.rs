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
use bytes::Bytes;
use h1::{RequestError, RequestHead};
use http::{Method, Request, Response, StatusCode};
use tokio::io::ReadBuf;

use crate::{
    conn::Conn,
    crew::Crew,
    visitor::{self, About},
    words::{Asked, Piece, Reading, Telling, invalid},
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
    let streams = Rc::clone(&worker);
    let crew = Crew::new(KEPT, async move |conn| {
        visitor::serve_stream(&streams, conn, &about).await;
    });
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
                    crew.take(Conn::H2(Box::new(conn)));
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
    /// Until its head is put together.
    asked: Option<Asked>,
    request: RecvStream,
    reading: Reading,
    respond: SendResponse<Bytes>,
    answer: Option<SendStream<Bytes>>,
    telling: Telling,
    /// Bytes of the answer that the visitor's window is not asked for.
    free: usize,
}

impl H2Stream {
    /// `None` if the request cannot be said in HTTP/1.1; it has been answered then.
    fn new(request: Request<RecvStream>, mut respond: SendResponse<Bytes>) -> Option<Self> {
        let protocol = request.extensions().get::<Protocol>();
        let websocket = protocol.is_some_and(|protocol| protocol.as_str() == "websocket");
        let (parts, body) = request.into_parts();
        if parts.method == Method::CONNECT && !websocket {
            let refusal = Response::builder()
                .status(StatusCode::METHOD_NOT_ALLOWED)
                .body(());
            let _ = refusal.map(|refusal| respond.send_response(refusal, true));
            return None;
        }
        let asked = Asked::new(parts, websocket);
        Some(Self {
            telling: Telling::to(&asked),
            asked: Some(asked),
            request: body,
            reading: Reading::nothing(),
            respond,
            answer: None,
            free: FREE,
        })
    }

    /// The request's head in HTTP/1.1's words; once.
    pub(crate) fn compose(
        &mut self,
        limits: &h1::Limits,
        head: &mut RequestHead,
        out: &mut Vec<u8>,
    ) -> Result<(), RequestError> {
        if let Some(asked) = self.asked.take() {
            let ended = self.request.is_end_stream();
            self.reading = asked.compose(ended, limits, head, out)?;
        }
        Ok(())
    }

    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while !self.reading.read(buffer) {
            match ready!(self.request.poll_data(cx)) {
                Some(Ok(data)) => {
                    // What was taken is held here until it is read: at most one frame.
                    let _ = self.request.flow_control().release_capacity(data.len());
                    self.reading.take(data);
                }
                Some(Err(error)) => return Poll::Ready(Err(broken(&error))),
                None if !self.reading.has_trailers() => self.reading.end(None),
                None => {
                    let trailers = ready!(self.request.poll_trailers(cx));
                    let trailers = trailers.map_err(|error| broken(&error))?;
                    self.reading.end(trailers.as_ref());
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let begins = !self.telling.is_open();
        let mut taken = 0;
        if begins {
            taken = self.take(bytes)?;
        }
        // A short body goes with its head.
        let rest = &bytes[taken..];
        if rest.is_empty() || !self.telling.is_open() {
            return Poll::Ready(Ok(taken));
        }
        if rest.len() > self.free {
            match self.poll_room(cx) {
                Poll::Ready(room) => room?,
                Poll::Pending if begins => return Poll::Ready(Ok(taken)),
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(Ok(taken + self.take(rest)?))
    }

    /// Ends the direction towards the visitor.
    pub(crate) fn poll_shutdown(&mut self) -> Poll<io::Result<()>> {
        if self.telling.end_tunnel()
            && let Some(answer) = &mut self.answer
        {
            let _ = answer.send_data(Bytes::new(), true);
        }
        Poll::Ready(Ok(()))
    }

    pub(crate) fn abort(mut self) {
        match &mut self.answer {
            Some(answer) => answer.send_reset(Reason::INTERNAL_ERROR),
            None => self.respond.send_reset(Reason::INTERNAL_ERROR),
        }
    }

    fn take(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (n, piece) = self.telling.take(bytes, PORTION)?;
        self.send(piece)?;
        Ok(n)
    }

    fn send(&mut self, piece: Piece) -> io::Result<()> {
        let sent = match (piece, &mut self.answer) {
            (Piece::Nothing, _) => return Ok(()),
            (
                Piece::Head {
                    response,
                    ends,
                    tunnel,
                },
                None,
            ) => {
                if tunnel {
                    self.reading.open();
                }
                let sent = self.respond.send_response(response, ends);
                sent.map(|answer| self.answer = Some(answer))
            }
            (Piece::Data { data, ends }, Some(answer)) => {
                self.free = self.free.saturating_sub(data.len());
                answer.send_data(data, ends)
            }
            (Piece::End(trailers), Some(answer)) if trailers.is_empty() => {
                answer.send_data(Bytes::new(), true)
            }
            (Piece::End(trailers), Some(answer)) => answer.send_trailers(trailers),
            _ => return Err(invalid()),
        };
        sent.map_err(|error| {
            self.telling.give_up();
            broken(&error)
        })
    }

    /// Whether the visitor's window has room for more of a body. What is taken then is taken whole, so that a full window is felt at the next write.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(answer) = &mut self.answer else {
            return Poll::Ready(Ok(()));
        };
        if answer.capacity() > 0 {
            return Poll::Ready(Ok(()));
        }
        answer.reserve_capacity(LEAST_ROOM);
        match ready!(answer.poll_capacity(cx)) {
            Some(Ok(_)) => Poll::Ready(Ok(())),
            Some(Err(error)) => Poll::Ready(Err(broken(&error))),
            None => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
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
/// So much of each answer waits for the visitor without having asked for room: asking costs more than a short answer does.
const FREE: usize = 4 << 10;
/// Tasks that wait for streams of a connection, no longer than until it rests.
const KEPT: usize = 32;
/// What is copied of an answer at a time.
const PORTION: usize = 32 << 10;
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Without a stream.
const IDLE: Duration = Duration::from_secs(75);
/// After this without a stream nothing is kept for the next one.
const REST: Duration = Duration::from_secs(1);
/// How often it is asked whether there are streams.
const LOOK: Duration = Duration::from_secs(5);

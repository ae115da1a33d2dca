//! The two directions of an exchange. Each is polled by itself, and ends by itself: a half that is dropped before its end is reset, so that what
//! came of it is never taken for all.

use std::{
    collections::VecDeque,
    fmt,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};

use bytes::Bytes;
use http::HeaderMap;
use quinn::{ReadError, WriteError};

use super::{
    Code, Error,
    frame::{self, Frame, Frames, Role},
    link::{Link, Side},
    message::{self, Added, Unfit},
    qpack::Unusable,
};

/// A part of a message behind its head.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    /// Of the body.
    Data(Bytes),
    /// Fields behind the body; nothing follows.
    Trailers(HeaderMap),
}

/// What the peer sends: a head, a body, trailers.
pub struct ReceiveHalf {
    stream: quinn::RecvStream,
    link: Arc<Link>,
    frames: Frames,
    at: At,
    /// Of a body whose length was said.
    left: Option<u64>,
    /// Bytes behind those that `frames` has: what had come when the stream was asked last.
    ahead: VecDeque<Bytes>,
    /// What [`ReceiveHalf::look_ahead`] met, until it is asked for.
    failed: Option<Box<ReadError>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Head,
    Body,
    /// Behind a CONNECT: data and nothing else.
    Tunnel,
    Trailers,
    Ended,
}

impl ReceiveHalf {
    pub(crate) fn new(stream: quinn::RecvStream, link: &Arc<Link>) -> Self {
        Self {
            frames: Frames::new(
                match link.side {
                    Side::Server => Role::Request,
                    Side::Client => Role::Response,
                },
                link.limits.size,
            ),
            stream,
            link: Arc::clone(link),
            at: At::Head,
            left: None,
            ahead: VecDeque::new(),
            failed: None,
        }
    }

    /// The next part of the message, or `None` at its end. The peer may send on at the rate at which this is polled.
    ///
    /// # Errors
    /// [`Error`]: what came so far is not all.
    pub fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Piece>, Error>> {
        loop {
            if self.at == At::Ended {
                return Poll::Ready(Ok(None));
            }
            match ready!(self.poll_frame(cx))? {
                Some(Frame::Data(data)) if matches!(self.at, At::Body | At::Tunnel) => {
                    if let Some(left) = &mut self.left {
                        // RFC 9114 §4.1.2: neither more than was said, nor less.
                        match left.checked_sub(data.len() as u64) {
                            Some(rest) => *left = rest,
                            None => return Poll::Ready(Err(self.malformed())),
                        }
                    }
                    return Poll::Ready(Ok(Some(Piece::Data(data))));
                }
                Some(Frame::Headers(block)) if self.at == At::Body => {
                    let trailers = message::trailers(&block, self.link.limits);
                    let trailers = trailers.map_err(|unfit| self.unfit(unfit))?;
                    self.at = At::Trailers;
                    self.check_length()?;
                    return Poll::Ready(Ok(Some(Piece::Trailers(trailers))));
                }
                // §4.1: nothing but a head comes first, nothing behind trailers; §4.4: no trailers in a tunnel.
                Some(_) => return Poll::Ready(Err(self.link.fail(Code::FRAME_UNEXPECTED))),
                None => {
                    self.check_length()?;
                    self.at = At::Ended;
                }
            }
        }
    }

    /// As [`ReceiveHalf::poll_piece`], to be awaited. Cancel safe.
    ///
    /// # Errors
    /// As there.
    pub async fn piece(&mut self) -> Result<Option<Piece>, Error> {
        std::future::poll_fn(|cx| self.poll_piece(cx)).await
    }

    /// Whether everything has been taken.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.at == At::Ended
    }

    /// Tells the peer that the rest is not wanted.
    pub fn stop(&mut self, code: Code) {
        if self.at != At::Ended {
            if !self.has_come() {
                let _ = self.stream.stop(code.var());
            }
            self.at = At::Ended;
        }
    }

    /// Whether the stream's end is the next to be read: there is nothing that the peer could leave out then. Who has taken trailers need not look for
    /// what must not be behind them: it is done here.
    fn has_come(&mut self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        match self.poll_frame(&mut cx) {
            Poll::Pending => false,
            Poll::Ready(Ok(Some(_))) if self.at == At::Trailers => {
                self.link.fail(Code::FRAME_UNEXPECTED);
                true
            }
            Poll::Ready(Ok(Some(_))) => false,
            Poll::Ready(Ok(None) | Err(_)) => true,
        }
    }

    /// Whether the stream came as early data.
    pub(crate) fn is_early(&self) -> bool {
        self.stream.is_0rtt()
    }

    /// The next head, as a field section. `None`: the stream has ended without.
    pub(crate) async fn head(&mut self) -> Result<Option<Bytes>, Error> {
        std::future::poll_fn(|cx| {
            Poll::Ready(match ready!(self.poll_frame(cx))? {
                Some(Frame::Headers(block)) => Ok(Some(block)),
                Some(_) => Err(self.link.fail(Code::FRAME_UNEXPECTED)),
                None => {
                    self.at = At::Ended;
                    Ok(None)
                }
            })
        })
        .await
    }

    /// The head has been read; the body has this length, if it is known.
    pub(crate) fn expect_body(&mut self, length: Option<u64>) {
        self.at = At::Body;
        self.left = length;
    }

    /// The head has been read; what follows is a tunnel's.
    pub(crate) fn expect_tunnel(&mut self) {
        self.at = At::Tunnel;
    }

    /// Takes the end of a message without a body that has come with its head, as that of most requests. Who drops a message before its
    /// end asks for the rest not to be sent: a frame more in the answer, and a packet more where it is late.
    pub(crate) fn look_ahead(&mut self, cx: &mut Context<'_>) {
        if self.at != At::Body || !self.frames.may_end() {
            return;
        }
        match self.poll_stream(cx) {
            Poll::Ready(Ok(Some(bytes))) => self.frames.push(bytes),
            // A body that should be there is missed when it is asked for.
            Poll::Ready(Ok(None)) if matches!(self.left, None | Some(0)) => self.at = At::Ended,
            Poll::Ready(Err(error)) => self.failed = Some(Box::new(error)),
            Poll::Ready(Ok(None)) | Poll::Pending => {}
        }
    }

    /// What a section that is no message leads to.
    pub(crate) fn unfit(&mut self, unfit: Unfit) -> Error {
        match unfit {
            Unfit::Malformed => self.malformed(),
            Unfit::Section(Unusable::Bad) => self.link.fail(Code::DECOMPRESSION_FAILED),
            Unfit::Section(Unusable::TooLarge) => Error::TooLarge,
        }
    }

    fn malformed(&mut self) -> Error {
        self.stop(Code::MESSAGE_ERROR);
        Error::Malformed
    }

    fn check_length(&mut self) -> Result<(), Error> {
        match self.left {
            Some(1..) => Err(self.malformed()),
            _ => Ok(()),
        }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Frame>, Error>> {
        loop {
            match self.frames.next() {
                Ok(Some(frame)) => return Poll::Ready(Ok(Some(frame))),
                Ok(None) => {}
                Err(code) => return Poll::Ready(Err(self.link.fail(code))),
            }
            let read = match self.failed.take() {
                Some(error) => Err(*error),
                None => ready!(self.poll_stream(cx)),
            };
            match read {
                Ok(Some(bytes)) => self.frames.push(bytes),
                Ok(None) if self.frames.may_end() => return Poll::Ready(Ok(None)),
                Ok(None) => return Poll::Ready(Err(self.link.fail(Code::FRAME_ERROR))),
                Err(error) => {
                    self.at = At::Ended;
                    return Poll::Ready(Err(match error {
                        ReadError::Reset(code) => Error::Reset(Code(code.into_inner())),
                        ReadError::ConnectionLost(error) => Error::Connection(error),
                        ReadError::ZeroRttRejected => Error::EarlyRejected,
                        ReadError::ClosedStream | ReadError::IllegalOrderedRead => {
                            Error::Reset(Code::REQUEST_CANCELLED)
                        }
                    }));
                }
            }
        }
    }
}

impl ReceiveHalf {
    /// The next bytes of the stream. What comes is in pieces of a packet each, and each look takes the connection's lock: so several are
    /// taken at a time.
    fn poll_stream(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, ReadError>> {
        if let Some(bytes) = self.ahead.pop_front() {
            return Poll::Ready(Ok(Some(bytes)));
        }
        let mut pieces = [const { Bytes::new() }; AT_ONCE];
        let read = ready!(pin!(self.stream.read_chunks(&mut pieces)).poll(cx))?;
        let Some(count) = read else {
            return Poll::Ready(Ok(None));
        };
        let mut pieces = pieces.into_iter().take(count);
        let first = pieces.next();
        self.ahead.extend(pieces);
        Poll::Ready(Ok(first))
    }
}

impl Drop for ReceiveHalf {
    fn drop(&mut self) {
        // §4.1: a server that has answered without all of a request asks for the rest not to be sent.
        self.stop(match self.link.side {
            Side::Server => Code::NO_ERROR,
            Side::Client => Code::REQUEST_CANCELLED,
        });
    }
}

impl fmt::Debug for ReceiveHalf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceiveHalf")
            .field("stream", &self.stream.id())
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}

/// What this end sends. Parts are queued and travel with [`SendHalf::poll_flush`]; who waits for that before the next part holds one part at a time.
pub struct SendHalf {
    stream: quinn::SendStream,
    link: Arc<Link>,
    queue: VecDeque<Bytes>,
    /// The end of the queue while it is written: a head, a short body and what frames them are one portion.
    open: Vec<u8>,
    ended: bool,
}

impl SendHalf {
    pub(crate) fn new(stream: quinn::SendStream, link: &Arc<Link>) -> Self {
        Self {
            stream,
            link: Arc::clone(link),
            queue: VecDeque::new(),
            open: Vec::new(),
            ended: false,
        }
    }

    /// The stream's id.
    #[must_use]
    pub fn id(&self) -> u64 {
        super::link::number(self.stream.id())
    }

    /// Completes when the peer has acknowledged everything, its end included, or when nobody waits for that any more.
    pub fn delivered(&self) -> impl Future<Output = ()> + Send + use<> {
        let stopped = self.stream.stopped();
        async move {
            let _ = stopped.await;
        }
    }

    /// Queues a response's head; interim ones (1xx) may come before the last.
    ///
    /// # Errors
    /// [`Error::TooLargeForPeer`]; nothing is queued then.
    pub fn response<T>(&mut self, response: &http::Response<T>) -> Result<(), Error> {
        self.response_with(response, &Added::default())
    }

    /// As [`SendHalf::response`], with fields that are not in the response's own.
    pub(crate) fn response_with<T>(
        &mut self,
        response: &http::Response<T>,
        added: &Added,
    ) -> Result<(), Error> {
        self.section(|into| message::write_response(into, response, added))
    }

    /// Queues a request's head.
    ///
    /// # Errors
    /// [`Error::TooLargeForPeer`].
    pub(crate) fn request<T>(&mut self, request: &http::Request<T>) -> Result<(), Error> {
        self.section(|into| message::write_request(into, request))
    }

    /// Queues a part of the body.
    pub fn data(&mut self, data: Bytes) {
        if data.is_empty() {
            return;
        }
        let short = data.len() <= SHORT;
        self.open
            .reserve(FRAME + if short { data.len() } else { 0 });
        frame::write_header(&mut self.open, frame::DATA, data.len());
        if short {
            // Two portions less to keep track of until they are acknowledged.
            self.open.extend_from_slice(&data);
        } else {
            self.shut();
            self.queue.push_back(data);
        }
    }

    /// Queues trailers; [`SendHalf::finish`] has to follow.
    ///
    /// # Errors
    /// [`Error::TooLargeForPeer`].
    pub fn trailers(&mut self, trailers: &HeaderMap) -> Result<(), Error> {
        self.section(|into| message::write_trailers(into, trailers))
    }

    /// Sends what is queued, as far as the peer's windows go.
    ///
    /// # Errors
    /// [`Error`]: it will not arrive.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.shut();
        while !self.queue.is_empty() {
            let portions = self.queue.make_contiguous();
            let written = ready!(pin!(self.stream.write_chunks(portions)).poll(cx));
            match written {
                Ok(written) => {
                    self.queue.drain(..written.chunks);
                }
                Err(error) => {
                    self.queue.clear();
                    self.ended = true;
                    return Poll::Ready(Err(failed(error)));
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    /// As [`SendHalf::poll_flush`], to be awaited. Cancel safe.
    ///
    /// # Errors
    /// As there.
    pub async fn flush(&mut self) -> Result<(), Error> {
        std::future::poll_fn(|cx| self.poll_flush(cx)).await
    }

    /// Ends the message. Everything must have been flushed.
    pub fn finish(&mut self) {
        debug_assert!(self.queued() == 0, "what is queued would be lost");
        self.ended = true;
        let _ = self.stream.finish();
    }

    /// Gives the message up: the peer will not take it for complete.
    pub fn reset(&mut self, code: Code) {
        if !self.ended {
            self.ended = true;
            let _ = self.stream.reset(code.var());
        }
    }

    /// Bytes queued and not yet taken by the connection.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.open.len() + self.queue.iter().map(Bytes::len).sum::<usize>()
    }

    /// Completes when the peer does not want the rest, or has all of it.
    pub(crate) fn stopped(&self) -> impl Future<Output = ()> + use<> {
        let stopped = self.stream.stopped();
        async move {
            let _ = stopped.await;
        }
    }

    fn section(&mut self, write: impl FnOnce(&mut Vec<u8>) -> u64) -> Result<(), Error> {
        self.open.reserve(HEAD);
        let start = self.open.len();
        frame::begin_headers(&mut self.open);
        let size = write(&mut self.open);
        if let Some(peer) = self.link.peer()
            && size > peer.section_bytes
        {
            self.open.truncate(start);
            return Err(Error::TooLargeForPeer {
                size,
                allowed: peer.section_bytes,
            });
        }
        frame::end_headers(&mut self.open, start);
        Ok(())
    }

    /// What is written becomes a portion.
    fn shut(&mut self) {
        if !self.open.is_empty() {
            self.queue.push_back(std::mem::take(&mut self.open).into());
        }
    }
}

impl Drop for SendHalf {
    fn drop(&mut self) {
        self.reset(match self.link.side {
            Side::Server => Code::INTERNAL_ERROR,
            Side::Client => Code::REQUEST_CANCELLED,
        });
    }
}

impl fmt::Debug for SendHalf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendHalf")
            .field("stream", &self.stream.id())
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

fn failed(error: WriteError) -> Error {
    match error {
        WriteError::Stopped(code) => Error::Reset(Code(code.into_inner())),
        WriteError::ConnectionLost(error) => Error::Connection(error),
        WriteError::ZeroRttRejected => Error::EarlyRejected,
        WriteError::ClosedStream => Error::Reset(Code::REQUEST_CANCELLED),
    }
}

/// Pieces taken from the connection at a time. Each is of one packet, so this bounds what is credited to the peer and not yet asked for: about 22 KiB
/// on usual paths.
const AT_ONCE: usize = 16;
/// Data up to this is copied behind its frame's head.
const SHORT: usize = 1024;
/// The head of a frame, at most.
const FRAME: usize = 16;
/// A usual message's head.
const HEAD: usize = 256;

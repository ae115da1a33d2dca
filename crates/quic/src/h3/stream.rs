//! The two directions of an exchange. Each is polled by itself, and ends by itself: a half that is dropped before its end is reset, so that what
//! came of it is never taken for all.

use std::{
    collections::VecDeque,
    fmt,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::HeaderMap;
use quinn::{ReadError, WriteError};

use super::{
    Code, Error,
    frame::{self, Frame, Frames, Role},
    link::{Link, Side},
    message::{self, Unfit},
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
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Head,
    Body,
    Trailers,
    Ended,
}

impl ReceiveHalf {
    pub(crate) fn new(stream: quinn::RecvStream, link: &Arc<Link>) -> Self {
        Self {
            frames: Frames::new(Role::Request, link.limits.size),
            stream,
            link: Arc::clone(link),
            at: At::Head,
            left: None,
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
                Some(Frame::Data(data)) if self.at == At::Body => {
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
                // §4.1: nothing but a head comes first, nothing behind trailers.
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
            self.at = At::Ended;
            let _ = self.stream.stop(code.var());
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
            let read = ready!(pin!(self.stream.read_chunk(PORTION, true)).poll(cx));
            match read {
                Ok(Some(chunk)) => self.frames.push(chunk.bytes),
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
    ended: bool,
}

impl SendHalf {
    pub(crate) fn new(stream: quinn::SendStream, link: &Arc<Link>) -> Self {
        Self {
            stream,
            link: Arc::clone(link),
            queue: VecDeque::new(),
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
        self.section(message::write_response(response))
    }

    /// Queues a request's head.
    ///
    /// # Errors
    /// [`Error::TooLargeForPeer`].
    pub(crate) fn request<T>(&mut self, request: &http::Request<T>) -> Result<(), Error> {
        self.section(message::write_request(request))
    }

    /// Queues a part of the body.
    pub fn data(&mut self, data: Bytes) {
        if data.is_empty() {
            return;
        }
        let mut head = Vec::with_capacity(16);
        frame::write_header(&mut head, frame::DATA, data.len());
        if data.len() <= SHORT {
            // One portion less to keep track of until it is acknowledged.
            head.extend_from_slice(&data);
            self.queue.push_back(head.into());
        } else {
            self.queue.push_back(head.into());
            self.queue.push_back(data);
        }
    }

    /// Queues trailers; [`SendHalf::finish`] has to follow.
    ///
    /// # Errors
    /// [`Error::TooLargeForPeer`].
    pub fn trailers(&mut self, trailers: &HeaderMap) -> Result<(), Error> {
        self.section(message::write_trailers(trailers))
    }

    /// Sends what is queued, as far as the peer's windows go.
    ///
    /// # Errors
    /// [`Error`]: it will not arrive.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
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
        debug_assert!(self.queue.is_empty(), "what is queued would be lost");
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
        self.queue.iter().map(Bytes::len).sum()
    }

    /// Completes when the peer does not want the rest, or has all of it.
    pub(crate) fn stopped(&self) -> impl Future<Output = ()> + use<> {
        let stopped = self.stream.stopped();
        async move {
            let _ = stopped.await;
        }
    }

    fn section(&mut self, (block, size): (Vec<u8>, u64)) -> Result<(), Error> {
        if let Some(peer) = self.link.peer()
            && size > peer.section_bytes
        {
            return Err(Error::TooLargeForPeer {
                size,
                allowed: peer.section_bytes,
            });
        }
        let mut bytes = Vec::with_capacity(block.len() + 8);
        frame::write_header(&mut bytes, frame::HEADERS, block.len());
        bytes.extend_from_slice(&block);
        self.queue.push_back(bytes.into());
        Ok(())
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

/// What is taken from the connection at a time.
const PORTION: usize = 64 << 10;
/// Data up to this is copied behind its frame's head.
const SHORT: usize = 1024;

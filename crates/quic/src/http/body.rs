//! Bodies: what is given to be sent, and what arrives.

use std::{
    convert::Infallible,
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::{BodyExt as _, combinators::UnsyncBoxBody};
use tokio::time::{Instant, Sleep, sleep};

use crate::h3::{self, Piece, ReceiveHalf};

/// Any error, of whoever makes a body.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A body to be sent: nothing, bytes that are there, or a stream with trailers. An error in a stream resets the message.
pub struct Body(Kind);

enum Kind {
    Empty,
    Whole(Bytes),
    Stream(UnsyncBoxBody<Bytes, BoxError>),
}

impl Body {
    /// No body.
    #[must_use]
    pub fn empty() -> Self {
        Self(Kind::Empty)
    }

    /// A stream of data, and trailers if it has any. It is asked for more when the peer has room.
    pub fn stream<B>(body: B) -> Self
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Self(Kind::Stream(body.map_err(Into::into).boxed_unsync()))
    }

    /// Whether nothing will come.
    pub(crate) fn is_empty(&self) -> bool {
        self.is_end_stream()
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.0 {
            Kind::Empty => Poll::Ready(None),
            Kind::Whole(bytes) => {
                let bytes = std::mem::take(bytes);
                self.0 = Kind::Empty;
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Kind::Stream(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Empty => true,
            Kind::Whole(bytes) => bytes.is_empty(),
            Kind::Stream(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Empty => SizeHint::with_exact(0),
            Kind::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Stream(body) => body.size_hint(),
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Body").field(&self.size_hint()).finish()
    }
}

impl Default for Body {
    fn default() -> Self {
        Self::empty()
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self(Kind::Whole(bytes))
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Bytes::from(text).into()
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Self {
        Bytes::from_static(text.as_bytes()).into()
    }
}

impl From<()> for Body {
    fn from((): ()) -> Self {
        Self::empty()
    }
}

impl From<Received> for Body {
    /// Passes on what arrives as it arrives.
    fn from(received: Received) -> Self {
        Self::stream(received)
    }
}

/// A body did not arrive whole.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// HTTP/3 says so.
    #[error(transparent)]
    Http3(#[from] h3::Error),
    /// HTTP/1 or 2 says so.
    #[error(transparent)]
    Tcp(#[from] hyper::Error),
    /// Nothing came for too long.
    #[error("nothing more of the body came for {} s", .0.as_secs())]
    Silence(Duration),
    /// It is longer than whoever reads it wants.
    #[error("the body is longer than {0} bytes")]
    TooLong(usize),
}

/// A body that arrives. Who drops it before its end tells the peer that the rest is not wanted.
pub struct Received {
    source: Source,
    /// How long nothing may come.
    patience: Duration,
    /// Set while something is waited for.
    deadline: Option<Pin<Box<Sleep>>>,
}

enum Source {
    Http3(ReceiveHalf),
    Tcp(hyper::body::Incoming),
}

impl Received {
    pub(crate) fn http3(half: ReceiveHalf, patience: Duration) -> Self {
        Self::new(Source::Http3(half), patience)
    }

    pub(crate) fn tcp(body: hyper::body::Incoming, patience: Duration) -> Self {
        Self::new(Source::Tcp(body), patience)
    }

    fn new(source: Source, patience: Duration) -> Self {
        Self {
            source,
            patience,
            deadline: None,
        }
    }

    /// The next part of the data, or `None` when there is no more (trailers are skipped).
    ///
    /// # Errors
    /// [`BodyError`].
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, BodyError> {
        while let Some(frame) = self.frame().await {
            if let Ok(data) = frame?.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }

    /// All of the data, and the trailers if there are some. At most `most` bytes are taken.
    ///
    /// # Errors
    /// [`BodyError`].
    pub async fn collect_up_to(
        mut self,
        most: usize,
    ) -> Result<(Bytes, Option<HeaderMap>), BodyError> {
        let (mut data, mut trailers) = (BytesMut::new(), None);
        while let Some(frame) = self.frame().await {
            match frame?.into_data() {
                Ok(part) if part.len() > most - data.len() => {
                    return Err(BodyError::TooLong(most));
                }
                Ok(part) => data.extend_from_slice(&part),
                Err(frame) => trailers = frame.into_trailers().ok(),
            }
        }
        Ok((data.freeze(), trailers))
    }

    fn poll_source(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.source {
            Source::Http3(half) => match ready!(half.poll_piece(cx)) {
                Ok(Some(Piece::Data(data))) => Poll::Ready(Some(Ok(Frame::data(data)))),
                Ok(Some(Piece::Trailers(fields))) => Poll::Ready(Some(Ok(Frame::trailers(fields)))),
                Ok(None) => Poll::Ready(None),
                Err(error) => Poll::Ready(Some(Err(error.into()))),
            },
            Source::Tcp(body) => {
                let frame = ready!(Pin::new(body).poll_frame(cx));
                Poll::Ready(frame.map(|frame| frame.map_err(BodyError::from)))
            }
        }
    }
}

impl HttpBody for Received {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Poll::Ready(frame) = self.poll_source(cx) {
            self.deadline = None;
            return Poll::Ready(frame);
        }
        let patience = self.patience;
        let deadline = self
            .deadline
            .get_or_insert_with(|| Box::pin(sleep(patience)));
        if deadline.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        // Asked again, it waits again.
        deadline.as_mut().reset(Instant::now() + patience);
        Poll::Ready(Some(Err(BodyError::Silence(patience))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Http3(half) => half.is_ended(),
            Source::Tcp(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Http3(_) => SizeHint::default(),
            Source::Tcp(body) => body.size_hint(),
        }
    }
}

impl fmt::Debug for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Received").finish_non_exhaustive()
    }
}

impl From<Infallible> for BodyError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

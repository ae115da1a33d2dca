//! The visitor's side of an exchange. Each state is a value that the step to the next one consumes, so that answers come in the order of
//! their requests, one for each:
//!
//! ```text
//!            begin                    respond, forward             finish
//!   Visitor ───────► RequestBody ─────────────────────────────────────┬──► Next::Idle(Visitor)
//!                    Responder ───────► HeadWriter ► ResponseWriter ──┤      ▲
//!                        │                                            ├──► Next::Drain(Drain)
//!                        └── tunnel ──► HeadWriter ► Tunnel           └──► Next::Close
//! ```

use crate::{
    body::{BodyDecoder, BodyEncoder, Framing},
    error::{BodyError, WriteError},
    lines::{Caps, Limits},
    request::Request,
    response::Response,
    token::Version,
    write::{HeadWriter, check_value},
};

/// A visitor's connection that awaits a request.
#[derive(Debug)]
pub struct Visitor(Box<Kept>);

/// What lasts as long as the connection, and what the request under way has said: in one place, because each step of an exchange moves it.
#[derive(Debug)]
struct Kept {
    requests: u64,
    most_requests: u64,
    drain: u64,
    bodies: Caps,
    method: Method,
    version: Version,
    keep_alive: bool,
    upgrade: bool,
    awaits_continue: bool,
}

/// The body of the request that was begun.
#[derive(Debug)]
pub struct RequestBody {
    decoder: BodyDecoder,
}

/// The right to answer the request that was begun, once.
#[derive(Debug)]
#[must_use = "every request has to be answered, or its connection closed"]
pub struct Responder(Box<Kept>);

/// What of a method matters to the framing of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Head,
    Connect,
    Other,
}

/// Where the start of an answer's head comes from.
#[derive(Clone, Copy)]
enum Start<'b> {
    Made { status: u16, reason: &'b [u8] },
    Of(Response<'b>),
}

/// An answer whose head was written.
#[derive(Debug)]
#[must_use = "finish it to learn whether the connection can go on"]
pub struct ResponseWriter {
    kept: Box<Kept>,
    encoder: BodyEncoder,
}

/// A connection that speaks HTTP no more: bytes pass in both directions as they are. What was read behind the head is the first of them.
#[derive(Debug)]
pub struct Tunnel(());

/// What becomes of a visitor's connection after an answer.
#[derive(Debug)]
#[must_use]
pub enum Next {
    /// It awaits the next request, which may be in the buffer already.
    Idle(Visitor),
    /// The answer came before the request's body was complete; what is left of it has to be read first.
    Drain(Drain),
    /// It ends here: write what is to be written, stop sending, and give the visitor a moment to read it before the socket is closed.
    Close,
}

/// Reads the rest of a body that nobody wants.
#[derive(Debug)]
#[must_use]
pub struct Drain(Box<Rest>);

#[derive(Debug)]
struct Rest {
    kept: Box<Kept>,
    decoder: BodyDecoder,
    left: u64,
}

/// How far a [`Drain`] is.
#[derive(Debug)]
#[must_use]
pub enum Drained {
    /// More is to come.
    More(Drain),
    /// It is done.
    Idle(Visitor),
    /// It is too much, or broken, as if [`Next::Close`].
    Close,
}

impl Visitor {
    /// A new connection.
    #[must_use]
    pub fn new(limits: &Limits) -> Self {
        Self(Box::new(Kept {
            requests: 0,
            most_requests: limits.requests,
            drain: limits.drain,
            bodies: Caps::of(limits),
            method: Method::Other,
            version: Version::default(),
            keep_alive: false,
            upgrade: false,
            awaits_continue: false,
        }))
    }

    /// How many requests were begun.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.0.requests
    }

    /// Takes the request whose head is complete. The bytes behind its head are its body's.
    pub fn begin(self, request: Request<'_>) -> (RequestBody, Responder) {
        let mut kept = self.0;
        kept.requests += 1;
        kept.method = Method::of(request.method());
        kept.version = request.version();
        kept.keep_alive = request.keep_alive() && kept.requests < kept.most_requests;
        kept.upgrade = request.upgrade().is_some();
        kept.awaits_continue = request.expects_continue();
        let body = RequestBody {
            decoder: BodyDecoder::new(request.framing(), kept.bodies),
        };
        (body, Responder(kept))
    }
}

impl RequestBody {
    /// What follows the body.
    pub fn decoder(&mut self) -> &mut BodyDecoder {
        &mut self.decoder
    }

    /// Whether all of it was read.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.decoder.is_complete()
    }

    /// Allows only so many bytes of data.
    ///
    /// # Errors
    /// [`BodyError::TooLarge`] at once if the announced length is larger.
    pub fn set_limit(&mut self, bytes: u64) -> Result<(), BodyError> {
        self.decoder.set_limit(bytes)
    }
}

impl Responder {
    /// Makes this answer the connection's last.
    pub fn close(&mut self) {
        self.0.keep_alive = false;
    }

    /// Whether the visitor waits for 100 before it sends the body, and did not get it yet.
    #[must_use]
    pub fn awaits_continue(&self) -> bool {
        self.0.awaits_continue
    }

    /// Begins an interim answer: 100 if the visitor waits for it (once), 102, 103 and others for all but HTTP/1.0. `None` if this one is not
    /// for this visitor; then leave it out.
    pub fn interim<'o>(&mut self, status: u16, out: &'o mut Vec<u8>) -> Option<HeadWriter<'o, ()>> {
        let reason: &[u8] = match status {
            100 if !std::mem::take(&mut self.0.awaits_continue) => return None,
            100 => b"Continue",
            102 => b"Processing",
            103 => b"Early Hints",
            104..=199 => b"",
            _ => return None,
        };
        // RFC 9110 §15.2: never to HTTP/1.0.
        (self.0.version == Version::Http11)
            .then(|| HeadWriter::status_line(out, status, reason, ()))
    }

    /// Begins an answer of one's own, or one that came by another protocol. `content` says how long it is: [`Framing::None`] is an empty one,
    /// [`Framing::Chunked`] or [`Framing::UntilClose`] one of unknown length. Answers without a body by rule (HEAD, 204, 304, 2xx to
    /// CONNECT) get none, whatever it says; a length is announced where it may be.
    ///
    /// `body` decides whether the connection can go on: with more left of it than is worth reading, or none sent because of
    /// `Expect`, it cannot.
    ///
    /// # Errors
    /// [`WriteError::Status`] if the status is not from 200 to 599, or the reason has control characters. The connection is to be closed.
    pub fn respond<'o>(
        self,
        body: &RequestBody,
        status: u16,
        reason: &[u8],
        content: Framing,
        out: &'o mut Vec<u8>,
    ) -> Result<HeadWriter<'o, ResponseWriter>, WriteError> {
        if check_value(reason).is_err() {
            return Err(WriteError::Status);
        }
        let start = Start::Made { status, reason };
        self.begin(body, start, content, out)
    }

    /// Begins the answer that an upstream gave: its status, reason and length; fields are for the caller to [copy](HeadWriter::copy).
    ///
    /// # Errors
    /// As [`respond`](Self::respond): not for an answer of [`Answer::Final`](crate::Answer::Final).
    pub fn forward<'o>(
        self,
        body: &RequestBody,
        response: Response<'_>,
        out: &'o mut Vec<u8>,
    ) -> Result<HeadWriter<'o, ResponseWriter>, WriteError> {
        let content = match response.content_length() {
            Some(length) => Framing::Length(length),
            None if response.status() == 204 => Framing::None,
            None => Framing::Chunked,
        };
        self.begin(body, Start::Of(response), content, out)
    }

    fn begin<'o>(
        self,
        body: &RequestBody,
        start: Start<'_>,
        content: Framing,
        out: &'o mut Vec<u8>,
    ) -> Result<HeadWriter<'o, ResponseWriter>, WriteError> {
        let status = start.status();
        if !(200..=599).contains(&status) {
            return Err(WriteError::Status);
        }
        let mut kept = self.0;
        let (announced, sent) = kept.framing(status, content);
        kept.keep_alive &= sent != Framing::UntilClose && kept.can_drain(body);
        if kept.method == Method::Connect && (200..300).contains(&status) {
            // It would be taken for a tunnel.
            kept.keep_alive = false;
        }
        let (keep_alive, version) = (kept.keep_alive, kept.version);
        let next = ResponseWriter {
            kept,
            encoder: BodyEncoder::new(sent),
        };
        let mut head = start.write(announced, out, next);
        match (keep_alive, version) {
            (false, _) => head.own(b"Connection", b"close"),
            (true, Version::Http10) => head.own(b"Connection", b"keep-alive"),
            (true, Version::Http11) => {}
        }
        Ok(head)
    }

    /// Ends HTTP on this connection: 101 with the `protocol` that is agreed on, or 2xx to CONNECT.
    ///
    /// # Errors
    /// [`WriteError::NoTunnel`] if the request does not allow it, and [`WriteError::Value`] for a protocol or reason that is none. The
    /// connection is to be closed.
    pub fn tunnel<'o>(
        self,
        body: RequestBody,
        status: u16,
        reason: &[u8],
        protocol: &[u8],
        out: &'o mut Vec<u8>,
    ) -> Result<HeadWriter<'o, Tunnel>, WriteError> {
        check_value(protocol)?;
        check_value(reason)?;
        let allowed = match status {
            101 => self.0.upgrade && !protocol.is_empty(),
            200..=299 => self.0.method == Method::Connect,
            _ => false,
        };
        if !allowed || !body.is_complete() {
            return Err(WriteError::NoTunnel);
        }
        let mut head = HeadWriter::status_line(out, status, reason, Tunnel(()));
        if status == 101 {
            head.own(b"Connection", b"upgrade");
            head.own(b"Upgrade", protocol);
        }
        Ok(head)
    }
}

impl Kept {
    /// What the head says, and how the body is sent (RFC 9112 §6.3).
    fn framing(&self, status: u16, content: Framing) -> (Framing, Framing) {
        if status == 204 || (self.method == Method::Connect && status < 300) {
            return (Framing::None, Framing::None);
        }
        if self.method == Method::Head || status == 304 {
            let announced = match content {
                Framing::Length(_) => content,
                Framing::None if status != 304 => Framing::Length(0),
                _ => Framing::None,
            };
            return (announced, Framing::None);
        }
        let framing = match content {
            Framing::Length(_) => content,
            Framing::None => Framing::Length(0),
            Framing::Chunked | Framing::UntilClose if self.version == Version::Http11 => {
                Framing::Chunked
            }
            Framing::Chunked | Framing::UntilClose => Framing::UntilClose,
        };
        (framing, framing)
    }

    fn can_drain(&self, body: &RequestBody) -> bool {
        let decoder = &body.decoder;
        if decoder.is_complete() {
            return true;
        }
        // Nobody can tell whether the next bytes are the body or the next request (RFC 9110 §10.1.1).
        let never_sent = self.awaits_continue && !decoder.is_started();
        !never_sent && decoder.remaining().is_none_or(|left| left <= self.drain)
    }
}

impl Start<'_> {
    fn status(&self) -> u16 {
        match self {
            Self::Made { status, .. } => *status,
            Self::Of(response) => response.status(),
        }
    }

    /// The status line, and how the body is framed; lines that came as they would be written pass as they are.
    fn write<'o, N>(self, framing: Framing, out: &'o mut Vec<u8>, next: N) -> HeadWriter<'o, N> {
        let (line, length, reason) = match self {
            Self::Made { reason, .. } => (None, None, reason),
            Self::Of(response) => (response.line(), response.length_line(), response.reason()),
        };
        let mut head = match line {
            Some(line) => HeadWriter::of_lines(out, line, next),
            None => HeadWriter::status_line(out, self.status(), reason, next),
        };
        match (framing, length) {
            // The body's length is always the one that was announced.
            (Framing::Length(_), Some(line)) => head.lines(line),
            _ => head.framing(framing),
        }
        head
    }
}

impl ResponseWriter {
    /// Writes the body.
    pub fn encoder(&mut self) -> &mut BodyEncoder {
        &mut self.encoder
    }

    /// Whether the head told the visitor that the connection goes on.
    #[must_use]
    pub fn keeps_alive(&self) -> bool {
        self.kept.keep_alive
    }

    /// The end of the exchange. An answer that is not complete, or a request's body that broke, ends the connection.
    pub fn finish(self, body: RequestBody) -> Next {
        let Self { kept, encoder } = self;
        if !kept.keep_alive || !encoder.is_complete() {
            return Next::Close;
        }
        if body.is_complete() {
            return Next::Idle(Visitor(kept));
        }
        Next::Drain(Drain(Box::new(Rest {
            left: kept.drain,
            kept,
            decoder: body.decoder,
        })))
    }
}

impl Drain {
    /// Bytes that are known to be left, for a body of known length.
    #[must_use]
    pub fn remaining(&self) -> Option<u64> {
        self.0.decoder.remaining()
    }

    /// Takes from what arrived: how many bytes, and what is next.
    pub fn receive(mut self, input: &[u8]) -> (usize, Drained) {
        let mut consumed = 0;
        loop {
            let rest = &mut *self.0;
            if rest.decoder.is_complete() {
                return (consumed, Drained::Idle(Visitor(self.0.kept)));
            }
            if consumed == input.len() {
                return (consumed, Drained::More(self));
            }
            let Ok(step) = rest.decoder.decode(&input[consumed..]) else {
                return (consumed, Drained::Close);
            };
            consumed += step.consumed;
            match rest.left.checked_sub(step.consumed as u64) {
                Some(left) => rest.left = left,
                None => return (consumed, Drained::Close),
            }
        }
    }
}

impl Tunnel {
    pub(crate) const fn new() -> Self {
        Self(())
    }
}

impl Method {
    pub(crate) fn of(method: &[u8]) -> Self {
        match method {
            b"HEAD" => Self::Head,
            b"CONNECT" => Self::Connect,
            _ => Self::Other,
        }
    }
}

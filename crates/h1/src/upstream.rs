//! The upstream's side of an exchange. Each state is a value that the step to the next one consumes: a connection carries one request at a
//! time, what was asked is known when the answer is read, and what belongs to the request (`T`, such as the
//! [`Responder`](crate::Responder)) comes back with its answer and with no other.
//!
//! ```text
//!             send                                   answer
//!   Upstream ───────► HeadWriter ► Sent { body ───────────────────────────────────┐
//!      ▲                                  awaiting ──┬─► Answer::Interim           │
//!      │                                             ├─► Answer::Tunnel            ▼
//!      └──────────────────────────────── finish ◄────┴─► Answer::Final { body } ───┘
//! ```

use crate::{
    body::{BodyDecoder, BodyEncoder, Framing},
    error::{ResponseError, WriteError},
    lines::{Caps, Limits},
    request::{MOST_METHOD, Request},
    response::Response,
    scan::is_target_byte,
    target::Host,
    token::is_token,
    visitor::{Method, Tunnel},
    write::HeadWriter,
};

/// A connection to an upstream that carries no request. What arrives on it now belongs to nothing: close it then.
#[derive(Debug)]
pub struct Upstream {
    bodies: Caps,
    /// Interim answers to one request.
    interim: u32,
}

/// The start of a request, checked: what is asked, of whom, and how its body is framed.
#[derive(Clone, Copy, Debug)]
pub struct RequestLine<'b> {
    method: &'b [u8],
    target: &'b [u8],
    host: &'b [u8],
    framing: Framing,
    upgrade: Option<&'b [u8]>,
    trailers: bool,
    /// The request line and Host's, where they came just as they are written.
    lines: Option<&'b [u8]>,
}

/// A request whose head was written.
#[derive(Debug)]
pub struct Sent<T> {
    /// Writes the body.
    pub body: RequestWriter,
    /// Reads the answer, which may come before the body is complete.
    pub awaiting: Awaiting<T>,
}

/// Writes the body of a request.
#[derive(Debug)]
pub struct RequestWriter {
    encoder: BodyEncoder,
}

/// A request that awaits its answer.
#[derive(Debug)]
#[must_use]
pub struct Awaiting<T> {
    payload: T,
    bodies: Caps,
    /// Interim answers that may still come, of so many.
    interim: u32,
    most_interim: u32,
    method: Method,
    upgrade: Wish,
}

/// What the request asked to go on with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Nothing,
    WebSocket,
    Other,
}

/// What an answer is to its request.
#[derive(Debug)]
#[must_use]
pub enum Answer<T> {
    /// 1xx: pass it on with [`Responder::interim`](crate::Responder::interim); another answer follows.
    Interim(Awaiting<T>),
    /// The answer.
    Final {
        /// Reads its body.
        body: ResponseBody,
        /// What was given with the request.
        payload: T,
    },
    /// 101, or 2xx to CONNECT: HTTP ends here.
    Tunnel {
        /// The proof of it.
        tunnel: Tunnel,
        /// What was given with the request.
        payload: T,
    },
}

/// The body of an answer.
#[derive(Debug)]
pub struct ResponseBody {
    decoder: BodyDecoder,
    most_interim: u32,
    keep_alive: bool,
}

impl<'b> RequestLine<'b> {
    /// A request of one's own, or one that came by another protocol. `host` may be empty if nothing is known. [`Framing::UntilClose`] is sent
    /// in chunks.
    ///
    /// # Errors
    /// [`WriteError::Method`], [`WriteError::Target`] or [`WriteError::Host`].
    pub fn new(
        method: &'b [u8],
        target: &'b [u8],
        host: &'b [u8],
        framing: Framing,
    ) -> Result<Self, WriteError> {
        if !is_token(method) || method.len() > MOST_METHOD {
            return Err(WriteError::Method);
        }
        let line = Self {
            method,
            target: b"/",
            host: b"",
            framing: if framing == Framing::UntilClose {
                Framing::Chunked
            } else {
                framing
            },
            upgrade: None,
            trailers: false,
            lines: None,
        };
        line.with_target(target)?.with_host(host)
    }

    /// The request as it came, in origin form.
    #[must_use]
    pub fn of(request: Request<'b>) -> Self {
        Self {
            method: request.method(),
            target: request.target(),
            host: request.authority(),
            framing: request.framing(),
            upgrade: request.upgrade(),
            trailers: request.accepts_trailers(),
            lines: request.lines(),
        }
    }

    /// With another target: a path, perhaps with a query; `*` with OPTIONS; host and port with CONNECT.
    ///
    /// # Errors
    /// [`WriteError::Target`].
    pub fn with_target(self, target: &'b [u8]) -> Result<Self, WriteError> {
        let good = match self.method {
            b"CONNECT" => Host::parse(target).is_some_and(|host| host.port.is_some()),
            b"OPTIONS" if target == b"*" => true,
            _ => target.first() == Some(&b'/') && target.iter().all(|byte| is_target_byte(*byte)),
        };
        let lines = None;
        good.then_some(Self {
            target,
            lines,
            ..self
        })
        .ok_or(WriteError::Target)
    }

    /// With another host and port.
    ///
    /// # Errors
    /// [`WriteError::Host`].
    pub fn with_host(self, host: &'b [u8]) -> Result<Self, WriteError> {
        let good = host.is_empty() || Host::parse(host).is_some();
        let lines = None;
        good.then_some(Self {
            host,
            lines,
            ..self
        })
        .ok_or(WriteError::Host)
    }

    /// Asks to go on with another protocol, such as `websocket`.
    ///
    /// # Errors
    /// [`WriteError::Value`] if it is none, or there is a body, which comes first.
    pub fn with_upgrade(self, protocol: &'b [u8]) -> Result<Self, WriteError> {
        let has_body = !matches!(self.framing, Framing::None | Framing::Length(0));
        let good = crate::request::is_protocol(protocol) && !has_body;
        let upgrade = Some(protocol);
        good.then_some(Self { upgrade, ..self })
            .ok_or(WriteError::Value)
    }

    /// Without the visitor's wish to go on with another protocol.
    #[must_use]
    pub fn without_upgrade(self) -> Self {
        Self {
            upgrade: None,
            ..self
        }
    }
}

impl Upstream {
    /// A new connection.
    #[must_use]
    pub fn new(limits: &Limits) -> Self {
        Self {
            bodies: Caps::of(limits),
            interim: limits.interim,
        }
    }

    /// Begins a request. `payload` is what belongs to it.
    pub fn send<'o, T>(
        self,
        line: &RequestLine<'_>,
        payload: T,
        out: &'o mut Vec<u8>,
    ) -> HeadWriter<'o, Sent<T>> {
        let upgrade = match line.upgrade {
            None => Wish::Nothing,
            Some(protocol) if protocol.eq_ignore_ascii_case(b"websocket") => Wish::WebSocket,
            Some(_) => Wish::Other,
        };
        let sent = Sent {
            body: RequestWriter {
                encoder: BodyEncoder::new(line.framing),
            },
            awaiting: Awaiting {
                payload,
                bodies: self.bodies,
                interim: self.interim,
                most_interim: self.interim,
                method: Method::of(line.method),
                upgrade,
            },
        };
        let mut head = match line.lines {
            Some(lines) => HeadWriter::of_lines(out, lines, sent),
            None => {
                let mut head = HeadWriter::request_line(out, line.method, line.target, sent);
                head.own(b"Host", line.host);
                head
            }
        };
        head.framing(line.framing);
        match (line.upgrade, line.trailers) {
            (None, false) => {}
            (None, true) => head.own(b"Connection", b"te"),
            (Some(_), false) => head.own(b"Connection", b"upgrade"),
            (Some(_), true) => head.own(b"Connection", b"upgrade, te"),
        }
        if let Some(protocol) = line.upgrade {
            head.own(b"Upgrade", protocol);
        }
        if line.trailers {
            head.own(b"TE", b"trailers");
        }
        head
    }
}

impl RequestWriter {
    /// Writes the body.
    pub fn encoder(&mut self) -> &mut BodyEncoder {
        &mut self.encoder
    }
}

impl<T> Awaiting<T> {
    /// For an answer to a request that was sent by other means, such as another version of HTTP. `method` is the request's; `websocket` says that it
    /// asked to go on with that.
    pub fn to(method: &[u8], websocket: bool, limits: &Limits, payload: T) -> Self {
        Self {
            payload,
            bodies: Caps::of(limits),
            interim: limits.interim,
            most_interim: limits.interim,
            method: Method::of(method),
            upgrade: if websocket {
                Wish::WebSocket
            } else {
                Wish::Nothing
            },
        }
    }

    /// What was given with the request.
    pub fn payload(&mut self) -> &mut T {
        &mut self.payload
    }

    /// Gives the answer up: the connection is to be closed.
    pub fn abandon(self) -> T {
        self.payload
    }

    /// Takes an answer whose head is complete. The bytes behind the head are its body's, the next answer's, or the tunnel's.
    ///
    /// # Errors
    /// An answer that cannot be one to this request, with what was given with it. The connection is to be closed.
    pub fn answer(mut self, response: Response<'_>) -> Result<Answer<T>, (ResponseError, T)> {
        let status = response.status();
        if status == 101 {
            return if self.agrees(response) {
                Ok(self.tunnel())
            } else {
                Err((ResponseError::UnaskedUpgrade, self.payload))
            };
        }
        if status < 200 {
            return match self.interim.checked_sub(1) {
                Some(left) => {
                    self.interim = left;
                    Ok(Answer::Interim(self))
                }
                None => Err((ResponseError::TooManyInterim, self.payload)),
            };
        }
        if self.method == Method::Connect && status < 300 {
            return Ok(self.tunnel());
        }
        let framing = match self.method {
            Method::Head => Framing::None,
            Method::Connect | Method::Other => response.framing(),
        };
        let body = ResponseBody {
            decoder: BodyDecoder::new(framing, self.bodies),
            most_interim: self.most_interim,
            keep_alive: response.keep_alive() && framing != Framing::UntilClose,
        };
        Ok(Answer::Final {
            body,
            payload: self.payload,
        })
    }

    fn agrees(&self, response: Response<'_>) -> bool {
        let Some(protocol) = response.upgrade() else {
            return false;
        };
        match self.upgrade {
            Wish::Nothing => false,
            Wish::WebSocket => protocol.eq_ignore_ascii_case(b"websocket"),
            Wish::Other => !protocol.is_empty() && !protocol.eq_ignore_ascii_case(b"websocket"),
        }
    }

    fn tunnel(self) -> Answer<T> {
        Answer::Tunnel {
            tunnel: Tunnel::new(),
            payload: self.payload,
        }
    }
}

impl ResponseBody {
    /// What follows the body.
    pub fn decoder(&mut self) -> &mut BodyDecoder {
        &mut self.decoder
    }

    /// Whether all of it was read.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.decoder.is_complete()
    }

    /// The end of the exchange: the connection for the next one, or `None` if it has to be closed, because either body is not complete, the upstream wants
    /// it so, or there are bytes left over (`leftover` of them, read behind the body), which were not asked for.
    #[must_use]
    pub fn finish(self, request: RequestWriter, leftover: usize) -> Option<Upstream> {
        let good = self.keep_alive
            && self.decoder.is_complete()
            && request.encoder.is_complete()
            && leftover == 0;
        good.then(|| Upstream {
            bodies: self.decoder.limits(),
            interim: self.most_interim,
        })
    }
}

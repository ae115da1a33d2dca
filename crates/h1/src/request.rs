//! A request's head: parsed as it arrives, checked as a whole.

use std::ops::Range;

use crate::{
    body::{Decoder, Framing},
    error::{FieldError, RequestError},
    fields::{Fields, Known, Places},
    lines::{Limits, Progress},
    target::{self, Form, Host, Parts},
    token::{self, Version, is_token, is_token_prefix, list},
};

/// What an answer's meaning depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    pub(crate) head_only: bool,
    pub(crate) connect: bool,
    pub(crate) upgrade: bool,
}

impl Asked {
    /// For a request that did not come as HTTP/1. `upgrade`: whether 101 may answer it.
    #[must_use]
    pub fn new(method: &[u8], upgrade: bool) -> Self {
        Self {
            head_only: method == b"HEAD",
            connect: method == b"CONNECT",
            upgrade,
        }
    }

    /// The same without the wish to upgrade, for when it was not passed on.
    #[must_use]
    pub const fn without_upgrade(self) -> Self {
        Self {
            upgrade: false,
            ..self
        }
    }

    /// Whether the request was HEAD.
    #[must_use]
    pub const fn is_head(self) -> bool {
        self.head_only
    }
}

/// The parser and what it found; made once per connection and used for each of its requests.
#[derive(Debug, Default)]
pub struct RequestHead {
    progress: Progress,
    stage: Stage,
    method: Range<usize>,
    target: Range<usize>,
    parts: Parts,
    version: Version,
    places: Places,
    host: Range<usize>,
    facts: Facts,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// An empty line may come first (RFC 9112 §2.2).
    #[default]
    MaybeEmpty,
    RequestLine,
    Fields,
    Done,
}

/// What the whole head says.
#[derive(Clone, Copy, Debug, Default)]
struct Facts {
    framing: Framing,
    keep_alive: bool,
    upgrade: bool,
    expects_continue: bool,
    accepts_trailers: bool,
}

impl RequestHead {
    /// Forgets the last request; the room it needed is kept.
    pub fn clear(&mut self) {
        self.progress = Progress::default();
        self.stage = Stage::MaybeEmpty;
        self.places.clear();
        self.facts = Facts::default();
        self.host = 0..0;
    }

    /// Reads on. `bytes` are all that arrived since the request began; what was looked at is not looked at again. `Some` length of the head when
    /// it is complete, `None` if more is needed. After `Some` or an error, call [`RequestHead::clear`] before the next request.
    ///
    /// # Errors
    /// As soon as a complete line breaks a rule; the start of the first line is checked before it is complete, so that other protocols
    /// are not waited for. At the latest when the head reaches its limit.
    pub fn parse(&mut self, bytes: &[u8], limits: &Limits) -> Result<Option<usize>, RequestError> {
        loop {
            let Some((start, line)) = self.progress.next(bytes, limits)? else {
                if matches!(self.stage, Stage::MaybeEmpty | Stage::RequestLine) {
                    check_start(&bytes[self.progress.line..], limits)?;
                }
                return Ok(None);
            };
            match self.stage {
                Stage::MaybeEmpty if line.is_empty() => self.stage = Stage::RequestLine,
                Stage::MaybeEmpty | Stage::RequestLine => {
                    self.request_line(start, line, limits)?;
                    self.stage = Stage::Fields;
                }
                Stage::Fields if line.is_empty() => {
                    self.stage = Stage::Done;
                    let end = self.progress.line;
                    self.check(&bytes[..end])?;
                    return Ok(Some(end));
                }
                Stage::Fields => {
                    self.places.add(start, line, limits.fields)?;
                }
                Stage::Done => return Ok(Some(start)),
            }
        }
    }

    /// The request in the bytes it was parsed from (at least its head).
    #[must_use]
    pub fn view<'b>(&'b self, bytes: &'b [u8]) -> Request<'b> {
        Request { head: self, bytes }
    }

    fn request_line(
        &mut self,
        start: usize,
        line: &[u8],
        limits: &Limits,
    ) -> Result<(), RequestError> {
        if line == b"PRI * HTTP/2.0" {
            return Err(RequestError::Http2);
        }
        let mut words = line.split(|byte| *byte == b' ');
        let (Some(method), Some(target), Some(version), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(RequestError::RequestLine);
        };
        if method.len() > MOST_METHOD || !is_token(method) {
            return Err(RequestError::Method);
        }
        self.version = match version {
            b"HTTP/1.1" => Version::Http11,
            b"HTTP/1.0" => Version::Http10,
            [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
                if major.is_ascii_digit() && minor.is_ascii_digit() =>
            {
                return Err(RequestError::Version);
            }
            _ => return Err(RequestError::RequestLine),
        };
        if target.len() > limits.target {
            return Err(RequestError::TargetTooLong);
        }
        self.parts = target::parse(method, target).ok_or(RequestError::Target)?;
        self.method = start..start + method.len();
        let target_start = self.method.end + 1;
        self.target = target_start..target_start + target.len();
        Ok(())
    }

    fn check(&mut self, bytes: &[u8]) -> Result<(), RequestError> {
        self.check_host(bytes)?;
        self.check_framing(bytes)?;
        let connection = self
            .places
            .apply_connection(bytes)
            .map_err(|()| RequestError::Connection)?;
        let fields = self.places.view(bytes);
        let http11 = self.version == Version::Http11;
        self.facts.keep_alive = !connection.close && (http11 || connection.keep_alive);
        self.facts.upgrade = http11
            && connection.upgrade
            && fields.known(Known::Upgrade).any(|value| !value.is_empty());
        self.facts.accepts_trailers = fields
            .known(Known::Te)
            .flat_map(list)
            .any(|coding| coding.eq_ignore_ascii_case(b"trailers"));
        for expectation in fields.known(Known::Expect) {
            if !expectation.eq_ignore_ascii_case(b"100-continue") {
                return Err(RequestError::Expect);
            }
            // RFC 9110 §10.1.1: an HTTP/1.0 client does not wait.
            self.facts.expects_continue = http11 && self.facts.framing != Framing::None;
        }
        Ok(())
    }

    fn check_host(&mut self, bytes: &[u8]) -> Result<(), RequestError> {
        let fields = self.places.view(bytes);
        let mut hosts = fields.known(Known::Host);
        let field = hosts.next();
        if hosts.next().is_some() {
            return Err(RequestError::ManyHosts);
        }
        let field = match field {
            None if self.version == Version::Http11 => return Err(RequestError::NoHost),
            None | Some([]) => None,
            Some(text) => Some((text, Host::parse(text).ok_or(RequestError::Host)?)),
        };
        let place = |part: &[u8]| {
            let start = part.as_ptr() as usize - bytes.as_ptr() as usize;
            start..start + part.len()
        };
        let authority = &bytes[self.target.clone()][self.parts.authority.clone()];
        let named = Host::parse(authority);
        self.host = match (&named, &field) {
            (Some(named), Some((_, host))) => {
                let default_port = if self.parts.scheme_is_https { 443 } else { 80 };
                if !named.is_same(host, default_port) {
                    return Err(RequestError::HostDiffers);
                }
                place(authority)
            }
            // RFC 9112 §3.2: Host must be sent as in the authority; an empty one differs.
            (Some(_), None) if self.version == Version::Http11 => {
                return Err(RequestError::HostDiffers);
            }
            (Some(_), None) => place(authority),
            (None, Some((text, _))) => place(text),
            (None, None) => 0..0,
        };
        Ok(())
    }

    fn check_framing(&mut self, bytes: &[u8]) -> Result<(), RequestError> {
        let fields = self.places.view(bytes);
        let mut codings = fields.known(Known::TransferEncoding);
        let mut lengths = fields.known(Known::ContentLength);
        let framing = match (codings.next(), lengths.next()) {
            (Some(_), Some(_)) => return Err(RequestError::BothLengths),
            (Some(coding), None) => {
                if self.version == Version::Http10 || codings.next().is_some() {
                    return Err(RequestError::TransferEncoding);
                }
                if !coding.eq_ignore_ascii_case(b"chunked") {
                    return Err(RequestError::Coding);
                }
                Framing::Chunked
            }
            (None, Some(length)) => {
                if lengths.next().is_some() {
                    return Err(RequestError::ContentLength);
                }
                Framing::Length(token::decimal(length).ok_or(RequestError::ContentLength)?)
            }
            (None, None) => Framing::None,
        };
        let method = &bytes[self.method.clone()];
        if !matches!(framing, Framing::None | Framing::Length(0))
            && matches!(method, b"CONNECT" | b"TRACE")
        {
            return Err(RequestError::BodyNotAllowed);
        }
        self.facts.framing = framing;
        Ok(())
    }
}

/// The first line before it is complete: is it going to be a request line?
fn check_start(bytes: &[u8], limits: &Limits) -> Result<(), RequestError> {
    let bytes = if bytes == b"\r" { &[] } else { bytes };
    let end = memchr::memchr(b' ', bytes).unwrap_or(bytes.len());
    if end > MOST_METHOD || !is_token_prefix(&bytes[..end]) {
        return Err(RequestError::Method);
    }
    let target = bytes.get(end + 1..).unwrap_or_default();
    if memchr::memchr(b' ', target).unwrap_or(target.len()) > limits.target {
        return Err(RequestError::TargetTooLong);
    }
    if target.contains(&0) {
        return Err(RequestError::Field(FieldError::Value));
    }
    Ok(())
}

/// A request's head in the bytes it came as.
#[derive(Clone, Copy, Debug)]
pub struct Request<'b> {
    head: &'b RequestHead,
    bytes: &'b [u8],
}

impl<'b> Request<'b> {
    /// The method.
    #[must_use]
    pub fn method(self) -> &'b [u8] {
        &self.bytes[self.head.method.clone()]
    }

    /// The target as it goes on: for an absolute form what follows the authority, `/` if that is nothing, `*` for OPTIONS with nothing
    /// (RFC 9112 §3.2.1, §3.2.4).
    #[must_use]
    pub fn target(self) -> &'b [u8] {
        let target = self.raw_target();
        if self.head.parts.form != Form::Absolute {
            return target;
        }
        let parts = &self.head.parts;
        if parts.path.is_empty() {
            return if self.method() == b"OPTIONS" {
                b"*"
            } else {
                b"/"
            };
        }
        &target[parts.path.start..]
    }

    /// The target as sent.
    #[must_use]
    pub fn raw_target(self) -> &'b [u8] {
        &self.bytes[self.head.target.clone()]
    }

    /// The path without query; `*` or empty for targets that have none.
    #[must_use]
    pub fn path(self) -> &'b [u8] {
        let path = &self.raw_target()[self.head.parts.path.clone()];
        if path.is_empty() && self.head.parts.form == Form::Absolute {
            return b"/";
        }
        path
    }

    /// What follows the `?`.
    #[must_use]
    pub fn query(self) -> Option<&'b [u8]> {
        Some(&self.raw_target()[self.head.parts.query.clone()?])
    }

    /// The scheme, where the target is an absolute URL: true for `https`.
    #[must_use]
    pub fn says_https(self) -> Option<bool> {
        let parts = &self.head.parts;
        (parts.form == Form::Absolute).then_some(parts.scheme_is_https)
    }

    /// Host and port as asked for, checked; empty if the request names none (HTTP/1.0, or an empty Host).
    #[must_use]
    pub fn authority(self) -> &'b [u8] {
        &self.bytes[self.head.host.clone()]
    }

    /// The host without port, an IPv6 address in brackets.
    #[must_use]
    pub fn host(self) -> &'b [u8] {
        Host::parse(self.authority()).map_or(&[], |host| host.name)
    }

    /// The port that was asked for.
    #[must_use]
    pub fn port(self) -> Option<u16> {
        Host::parse(self.authority())?.port
    }

    /// The version.
    #[must_use]
    pub fn version(self) -> Version {
        self.head.version
    }

    /// The fields.
    #[must_use]
    pub fn fields(self) -> Fields<'b> {
        self.head.places.view(self.bytes)
    }

    /// How the body is framed.
    #[must_use]
    pub fn framing(self) -> Framing {
        self.head.facts.framing
    }

    /// A decoder for the body.
    #[must_use]
    pub fn decoder(self) -> Decoder {
        Decoder::new(self.framing())
    }

    /// Whether the visitor wants to go on after this exchange.
    #[must_use]
    pub fn keep_alive(self) -> bool {
        self.head.facts.keep_alive
    }

    /// Whether it asks for another protocol on this connection (Connection: upgrade, with Upgrade).
    #[must_use]
    pub fn upgrade(self) -> bool {
        self.head.facts.upgrade
    }

    /// Whether it waits for 100 before it sends the body.
    #[must_use]
    pub fn expects_continue(self) -> bool {
        self.head.facts.expects_continue
    }

    /// Whether it takes trailers (TE: trailers).
    #[must_use]
    pub fn accepts_trailers(self) -> bool {
        self.head.facts.accepts_trailers
    }

    /// What the answer's framing depends on.
    #[must_use]
    pub fn asked(self) -> Asked {
        Asked::new(self.method(), self.upgrade())
    }
}

/// Longer than any method in use.
const MOST_METHOD: usize = 32;

//! A request's head: parsed as it arrives, checked as a whole.

mod compose;
mod view;

use std::ops::Range;

pub use compose::Composer;
pub use view::Request;

use crate::{
    body::Framing,
    error::{FieldError, RequestError},
    fields::Known,
    lines::{Limits, Lines},
    places::Places,
    scan::{target_end, token_end},
    target::{self, Host, Parts},
    token::{self, Version, is_token, list},
};

/// The parser and what it found; made once per connection and used for each of its requests.
#[derive(Debug, Default)]
pub struct RequestHead {
    stage: Stage,
    /// Bytes of the start line that were looked at.
    at: usize,
    lines: Lines,
    method: Range<usize>,
    target: Range<usize>,
    parts: Parts,
    version: Version,
    places: Places,
    /// What is asked for: host and port, and the host alone with its port, taken apart once.
    host: Range<usize>,
    host_name: usize,
    port: Option<u16>,
    facts: Facts,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Start,
    Method,
    Target,
    Version,
    Fields,
    Done(usize),
    Failed(RequestError),
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
    /// Ends with the last request, so that the next one can be read. The room it needed is kept, and so is what was found: perhaps the next
    /// one is the same.
    pub fn clear(&mut self) {
        self.stage = Stage::Start;
        self.places.go_on();
    }

    fn forget(&mut self) {
        self.places.clear();
        self.facts = Facts::default();
        self.parts = Parts::default();
        self.method = 0..0;
        self.target = 0..0;
        self.host = 0..0;
        self.host_name = 0;
        self.port = None;
    }

    /// Gives back room that only an unusual request needed: for connections that fall idle.
    pub fn shrink(&mut self) {
        self.places.shrink();
    }

    /// Reads on. `bytes` are all that arrived since the request began; what was looked at is not looked at again. `Some` length of the head when
    /// it is complete, `None` if more is needed. After `Some`, call [`RequestHead::clear`] before the next request; until then, and after an
    /// error, the answer stays the same.
    ///
    /// # Errors
    /// As soon as a byte breaks a rule, at the latest when the head reaches its limit. [`RequestError::Http2`] is a result of its own: the bytes
    /// begin with the whole preface of HTTP/2, and belong to another codec.
    pub fn parse(&mut self, bytes: &[u8], limits: &Limits) -> Result<Option<usize>, RequestError> {
        match self.stage {
            Stage::Done(len) => return Ok(Some(len)),
            Stage::Failed(error) => return Err(error),
            Stage::Start => {
                let same = self.places.again(bytes, limits);
                if let Some(len) = same.filter(|_| self.target.len() <= limits.target) {
                    self.stage = Stage::Done(len);
                    return Ok(Some(len));
                }
                self.forget();
            }
            _ => {}
        }
        let within = &bytes[..bytes.len().min(limits.most())];
        let mut result = self.read(within, limits);
        if result == Ok(None) && bytes.len() >= limits.most() {
            result = Err(if self.stage == Stage::Fields {
                RequestError::Field(FieldError::TooLong)
            } else {
                RequestError::TargetTooLong
            });
        }
        match result {
            Ok(Some(len)) => self.stage = Stage::Done(len),
            Err(error) => self.stage = Stage::Failed(error),
            Ok(None) => {}
        }
        result
    }

    /// The request in the bytes it was parsed from (at least its head; what follows does not matter). `None` until it is complete.
    #[must_use]
    pub fn view<'b>(&'b self, bytes: &'b [u8]) -> Option<Request<'b>> {
        let Stage::Done(len) = self.stage else {
            return None;
        };
        let bytes = bytes.get(..len)?;
        Some(Request { head: self, bytes })
    }

    fn read(&mut self, bytes: &[u8], limits: &Limits) -> Result<Option<usize>, RequestError> {
        loop {
            let more = match self.stage {
                Stage::Start => self.start(bytes)?,
                Stage::Method => self.method(bytes)?,
                Stage::Target => self.target(bytes, limits)?,
                Stage::Version => self.version(bytes)?,
                Stage::Fields => {
                    let len = self.lines.read(bytes, &mut self.places, limits.fields)?;
                    if let Some(len) = len {
                        self.check(&bytes[..len])?;
                        self.places.remember(&bytes[..len]);
                    }
                    return Ok(len);
                }
                Stage::Done(_) | Stage::Failed(_) => return Ok(None),
            };
            if !more {
                return Ok(None);
            }
        }
    }

    /// One empty line may come first (RFC 9112 §2.2).
    fn start(&mut self, bytes: &[u8]) -> Result<bool, RequestError> {
        let start = match bytes {
            [b'\r', b'\n', ..] => 2,
            [] | [b'\r'] => return Ok(false),
            [b'\r', ..] => return Err(FieldError::BareCr.into()),
            _ => 0,
        };
        let begun = bytes.len().min(PREFACE.len());
        if start == 0 && bytes[0] == PREFACE[0] && bytes[..begun] == PREFACE[..begun] {
            return if begun == PREFACE.len() {
                Err(RequestError::Http2)
            } else {
                Ok(false)
            };
        }
        self.at = start;
        self.method = start..start;
        self.stage = Stage::Method;
        Ok(true)
    }

    fn method(&mut self, bytes: &[u8]) -> Result<bool, RequestError> {
        let end = token_end(bytes, self.at);
        self.at = end;
        self.method.end = end;
        if self.method.len() > MOST_METHOD {
            return Err(RequestError::Method);
        }
        match bytes.get(end) {
            None => Ok(false),
            Some(b' ') if !self.method.is_empty() => {
                self.at = end + 1;
                self.target = self.at..self.at;
                self.stage = Stage::Target;
                Ok(true)
            }
            Some(b'\n') => Err(FieldError::BareLf.into()),
            Some(b'\r') => Err(RequestError::RequestLine),
            Some(_) => Err(RequestError::Method),
        }
    }

    fn target(&mut self, bytes: &[u8], limits: &Limits) -> Result<bool, RequestError> {
        let longest = self.target.start.saturating_add(limits.target);
        let end = target_end(
            &bytes[..bytes.len().min(longest.saturating_add(1))],
            self.at,
        );
        self.at = end;
        self.target.end = end;
        if end > longest {
            return Err(RequestError::TargetTooLong);
        }
        match bytes.get(end) {
            None => Ok(false),
            Some(b' ') if !self.target.is_empty() => {
                self.at = end + 1;
                self.stage = Stage::Version;
                Ok(true)
            }
            Some(b'\n') => Err(FieldError::BareLf.into()),
            Some(b' ' | b'\r') => Err(RequestError::RequestLine),
            Some(_) => Err(RequestError::Target),
        }
    }

    fn version(&mut self, bytes: &[u8]) -> Result<bool, RequestError> {
        let rest = &bytes[self.at..];
        self.version = match rest {
            [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'1', ..] => Version::Http11,
            [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'0', ..] => Version::Http10,
            _ if !is_version_prefix(rest) => return Err(RequestError::RequestLine),
            _ if rest.len() >= VERSION_LEN => return Err(RequestError::Version),
            _ => return Ok(false),
        };
        match &rest[VERSION_LEN..] {
            [] | [b'\r'] => return Ok(false),
            [b'\r', b'\n', ..] => {}
            [b'\r', ..] => return Err(FieldError::BareCr.into()),
            [b'\n', ..] => return Err(FieldError::BareLf.into()),
            _ => return Err(RequestError::RequestLine),
        }
        let (method, target) = (&bytes[self.method.clone()], &bytes[self.target.clone()]);
        self.parts = target::parse(method, target).ok_or(RequestError::Target)?;
        self.lines = Lines::starting_at(self.at + VERSION_LEN + 2);
        self.stage = Stage::Fields;
        Ok(true)
    }

    fn check(&mut self, bytes: &[u8]) -> Result<(), RequestError> {
        self.check_host(bytes)?;
        self.check_framing(bytes)?;
        let connection = self
            .places
            .apply_connection(bytes)
            .map_err(|()| RequestError::Connection)?;
        let http11 = self.version == Version::Http11;
        let has_body = !matches!(self.facts.framing, Framing::None | Framing::Length(0));
        self.facts.keep_alive = !connection.close && (http11 || connection.keep_alive);
        // An upgrade behind a body would have to wait for it (RFC 9110 §7.8): as good as not asked for. h2c is never agreed to: it would take the
        // connection out of the hands of whoever checks requests.
        self.facts.upgrade = http11
            && connection.upgrade
            && !has_body
            && !self.places.has_several(Known::Upgrade)
            && self
                .places
                .value(Known::Upgrade, bytes)
                .is_some_and(is_protocol);
        let fields = self.places.view(bytes);
        self.facts.accepts_trailers = fields
            .known(Known::Te)
            .flat_map(list)
            .any(|coding| coding.eq_ignore_ascii_case(b"trailers"));
        for expectation in fields.known(Known::Expect) {
            if !expectation.eq_ignore_ascii_case(b"100-continue") {
                return Err(RequestError::Expect);
            }
            // RFC 9110 §10.1.1: an HTTP/1.0 client does not wait.
            self.facts.expects_continue = http11 && has_body;
        }
        Ok(())
    }

    fn check_host(&mut self, bytes: &[u8]) -> Result<(), RequestError> {
        if self.places.has_several(Known::Host) {
            return Err(RequestError::ManyHosts);
        }
        let field = match self.places.value(Known::Host, bytes) {
            None if self.version == Version::Http11 => return Err(RequestError::NoHost),
            None => None,
            Some(text) => Some((text, Host::parse(text).ok_or(RequestError::Host)?)),
        };
        let authority = &bytes[self.target.clone()][self.parts.authority.clone()];
        let place = |part: &[u8]| {
            let start = part.as_ptr() as usize - bytes.as_ptr() as usize;
            start..start + part.len()
        };
        if authority.is_empty() {
            if let Some((text, host)) = field {
                self.host = place(text);
                self.host_name = host.name.len();
                self.port = host.port;
            }
            return Ok(());
        }
        let named = Host::parse(authority).ok_or(RequestError::Target)?;
        let default_port = if self.parts.scheme_is_https { 443 } else { 80 };
        if field.is_some_and(|(_, host)| !named.is_same(&host, default_port)) {
            return Err(RequestError::HostDiffers);
        }
        self.host = place(authority);
        self.host_name = named.name.len();
        self.port = named.port;
        Ok(())
    }

    fn check_framing(&mut self, bytes: &[u8]) -> Result<(), RequestError> {
        let length = self.places.value(Known::ContentLength, bytes);
        let framing = match (self.places.value(Known::TransferEncoding, bytes), length) {
            (Some(_), Some(_)) => return Err(RequestError::BothLengths),
            (Some(coding), None) => {
                if self.version == Version::Http10
                    || self.places.has_several(Known::TransferEncoding)
                {
                    return Err(RequestError::TransferEncoding);
                }
                if !coding.eq_ignore_ascii_case(b"chunked") {
                    return Err(RequestError::Coding);
                }
                Framing::Chunked
            }
            (None, Some(length)) => {
                if self.places.has_several(Known::ContentLength) {
                    return Err(RequestError::ContentLength);
                }
                Framing::Length(token::content_length(length).ok_or(RequestError::ContentLength)?)
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

fn is_version_prefix(bytes: &[u8]) -> bool {
    bytes
        .iter()
        .take(VERSION_LEN)
        .zip(b"HTTP/0.0")
        .all(|(byte, model)| match model {
            b'0' => byte.is_ascii_digit(),
            _ => byte == model,
        })
}

/// A protocol's name, perhaps with a version (RFC 9110 §7.8), which a proxy may pass on.
pub(crate) fn is_protocol(value: &[u8]) -> bool {
    let mut parts = value.splitn(2, |byte| *byte == b'/');
    let name = parts.next().unwrap_or_default();
    is_token(name) && parts.next().is_none_or(is_token) && !name.eq_ignore_ascii_case(b"h2c")
}

/// Longer than any method in use.
pub(crate) const MOST_METHOD: usize = 32;
/// Of `HTTP/1.1`.
const VERSION_LEN: usize = 8;
/// RFC 9113 §3.4.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

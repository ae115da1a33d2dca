//! An answer's head. What it means depends on its request: see [`Awaiting`](crate::Awaiting).

use std::ops::Range;

use crate::{
    body::Framing,
    error::{FieldError, ResponseError},
    fields::{Fields, Known},
    lines::{Limits, Lines},
    places::Places,
    scan::value_end,
    token::{self, Version},
};

/// The parser and what it found; made once per connection and used for each of its answers.
#[derive(Debug, Default)]
pub struct ResponseHead {
    stage: Stage,
    at: usize,
    lines: Lines,
    version: Version,
    status: u16,
    reason: Range<usize>,
    places: Places,
    facts: Facts,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Status,
    Reason,
    Fields,
    Done(usize),
    Failed(ResponseError),
}

#[derive(Clone, Copy, Debug, Default)]
struct Facts {
    length: Option<u64>,
    chunked: bool,
    keep_alive: bool,
    upgrade: bool,
}

impl ResponseHead {
    /// Ends with the last answer, so that the next one can be read. The room it needed is kept, and so is what was found: perhaps the next one
    /// is the same.
    pub fn clear(&mut self) {
        self.stage = Stage::Status;
        self.places.go_on();
    }

    fn forget(&mut self) {
        self.places.clear();
        self.facts = Facts::default();
        self.reason = 0..0;
    }

    /// Gives back room that only an unusual answer needed: for connections that fall idle.
    pub fn shrink(&mut self) {
        self.places.shrink();
    }

    /// Reads on, as [`RequestHead::parse`](crate::RequestHead::parse). Interim answers (1xx) are heads of their own: call
    /// [`ResponseHead::clear`] and parse again behind them.
    ///
    /// # Errors
    /// Whatever cannot be passed on without doubt. The connection is of no use then.
    pub fn parse(&mut self, bytes: &[u8], limits: &Limits) -> Result<Option<usize>, ResponseError> {
        match self.stage {
            Stage::Done(len) => return Ok(Some(len)),
            Stage::Failed(error) => return Err(error),
            Stage::Status => {
                if let Some(len) = self.places.again(bytes, limits) {
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
            result = Err(FieldError::TooLong.into());
        }
        match result {
            Ok(Some(len)) => self.stage = Stage::Done(len),
            Err(error) => self.stage = Stage::Failed(error),
            Ok(None) => {}
        }
        result
    }

    /// The answer in the bytes it was parsed from. `None` until it is complete.
    #[must_use]
    pub fn view<'b>(&'b self, bytes: &'b [u8]) -> Option<Response<'b>> {
        let Stage::Done(len) = self.stage else {
            return None;
        };
        let bytes = bytes.get(..len)?;
        Some(Response { head: self, bytes })
    }

    fn read(&mut self, bytes: &[u8], limits: &Limits) -> Result<Option<usize>, ResponseError> {
        if self.stage == Stage::Status && !self.status(bytes)? {
            return Ok(None);
        }
        if self.stage == Stage::Reason && !self.reason(bytes)? {
            return Ok(None);
        }
        let len = self.lines.read(bytes, &mut self.places, limits.fields)?;
        if let Some(len) = len {
            self.check(&bytes[..len])?;
            self.places.remember(&bytes[..len]);
        }
        Ok(len)
    }

    /// `HTTP/1.1 200` and the byte behind it.
    fn status(&mut self, bytes: &[u8]) -> Result<bool, ResponseError> {
        let model = b"HTTP/0.0 000";
        let fits = |n: usize| {
            bytes
                .iter()
                .take(n)
                .zip(model)
                .all(|(byte, model)| match model {
                    b'0' => byte.is_ascii_digit(),
                    _ => byte == model,
                })
        };
        // The version first, wherever the bytes end: the same mistake gets the same answer.
        let usual = bytes.starts_with(b"HTTP/1.1 ")
            && matches!(
                bytes.get(9..12),
                Some([b'0'..=b'9', b'0'..=b'9', b'0'..=b'9'])
            );
        if !usual && !fits(8) {
            return Err(ResponseError::StatusLine);
        }
        self.version = match bytes.get(5..8) {
            None => return Ok(false),
            Some(b"1.1") => Version::Http11,
            Some(b"1.0") => Version::Http10,
            Some(_) => return Err(ResponseError::Version),
        };
        if !usual && !fits(model.len()) {
            return Err(ResponseError::StatusLine);
        }
        let Some(digits) = bytes.get(9..12) else {
            return Ok(false);
        };
        self.status = digits
            .iter()
            .fold(0, |status, digit| status * 10 + u16::from(digit - b'0'));
        if !(100..=599).contains(&self.status) {
            return Err(ResponseError::StatusLine);
        }
        // The space behind the status is obligatory, yet often left out with an empty reason.
        self.at = match bytes.get(12) {
            None => return Ok(false),
            Some(b' ') => REASON,
            Some(b'\r') => 12,
            Some(_) => return Err(ResponseError::StatusLine),
        };
        self.reason = self.at..self.at;
        self.stage = Stage::Reason;
        Ok(true)
    }

    fn reason(&mut self, bytes: &[u8]) -> Result<bool, ResponseError> {
        let end = value_end(bytes, self.at);
        self.at = end;
        self.reason.end = end;
        match bytes.get(end..).unwrap_or_default() {
            [] | [b'\r'] => return Ok(false),
            [b'\r', b'\n', ..] => {}
            [b'\r', ..] => return Err(FieldError::BareCr.into()),
            [b'\n', ..] => return Err(FieldError::BareLf.into()),
            _ => return Err(ResponseError::StatusLine),
        }
        self.lines = Lines::starting_at(end + 2);
        self.stage = Stage::Fields;
        Ok(true)
    }

    fn check(&mut self, bytes: &[u8]) -> Result<(), ResponseError> {
        let connection = self
            .places
            .apply_connection(bytes)
            .map_err(|()| ResponseError::Connection)?;
        let http11 = self.version == Version::Http11;
        let coding = self.places.value(Known::TransferEncoding, bytes);
        let length = self.places.value(Known::ContentLength, bytes);
        if coding.is_some() && length.is_some() {
            return Err(ResponseError::BothLengths);
        }
        if let Some(coding) = coding {
            let good = http11
                && !self.places.has_several(Known::TransferEncoding)
                && coding.eq_ignore_ascii_case(b"chunked");
            if !good {
                return Err(ResponseError::Coding);
            }
            self.facts.chunked = true;
        }
        if let Some(text) = length {
            let length = token::content_length(text).ok_or(ResponseError::ContentLength)?;
            if self.places.has_several(Known::ContentLength) {
                return Err(ResponseError::ContentLength);
            }
            self.facts.length = Some(length);
        }
        self.facts.upgrade = connection.upgrade;
        self.facts.keep_alive = !connection.close && (http11 || connection.keep_alive);
        Ok(())
    }
}

/// An answer's head in the bytes it came as.
#[derive(Clone, Copy, Debug)]
pub struct Response<'b> {
    head: &'b ResponseHead,
    bytes: &'b [u8],
}

impl<'b> Response<'b> {
    /// The status, 100 to 599.
    #[must_use]
    pub fn status(self) -> u16 {
        self.head.status
    }

    /// The reason phrase; may be empty.
    #[must_use]
    pub fn reason(self) -> &'b [u8] {
        &self.bytes[self.head.reason.clone()]
    }

    /// The status line, if it is such as this crate would write it.
    pub(crate) fn line(self) -> Option<&'b [u8]> {
        let reason = &self.head.reason;
        // A line without reason may also lack the space before it.
        let usual = self.head.version == Version::Http11 && reason.start == REASON;
        usual.then(|| &self.bytes[..reason.end + 2])
    }

    /// The line of Content-Length, if it is such as this crate would write it.
    pub(crate) fn length_line(self) -> Option<&'b [u8]> {
        (self.head.places).line(Known::ContentLength, b"Content-Length: ", self.bytes)
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

    /// Whether another head follows: 1xx, but not 101.
    #[must_use]
    pub fn is_interim(self) -> bool {
        matches!(self.head.status, 100..=199) && self.head.status != 101
    }

    /// How the body that follows is framed if the request was neither HEAD nor CONNECT (RFC 9112 §6.3).
    /// [`ResponseBody`](crate::ResponseBody) knows better: it knows the request.
    #[must_use]
    pub fn framing(self) -> Framing {
        let facts = &self.head.facts;
        if matches!(self.head.status, 100..=199 | 204 | 304) {
            Framing::None
        } else if facts.chunked {
            Framing::Chunked
        } else {
            facts.length.map_or(Framing::UntilClose, Framing::Length)
        }
    }

    /// Content-Length as it was said; with HEAD and 304 it tells of a body that does not follow.
    #[must_use]
    pub fn content_length(self) -> Option<u64> {
        self.head.facts.length
    }

    /// The protocol that Upgrade names, if Connection says so too.
    #[must_use]
    pub fn upgrade(self) -> Option<&'b [u8]> {
        let meant = self.head.facts.upgrade;
        meant.then(|| self.fields().first(Known::Upgrade)).flatten()
    }

    /// Whether the upstream wants to go on after this exchange, as far as its head says.
    #[must_use]
    pub fn keep_alive(self) -> bool {
        let facts = &self.head.facts;
        // A body where there can be none would be taken for the next answer.
        let odd = matches!(self.head.status, 100..=199 | 204)
            && (facts.chunked || facts.length.is_some_and(|length| length > 0));
        facts.keep_alive && !odd
    }

    /// Length of the head in bytes, with the empty line that ends it.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a head is never empty")]
    pub fn len(self) -> usize {
        self.bytes.len()
    }
}

/// Where a reason begins, behind `HTTP/1.1 200 `.
const REASON: usize = 13;

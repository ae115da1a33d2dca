//! An answer's head, read with its request in mind.

use std::ops::Range;

use crate::{
    body::{Decoder, Framing},
    error::ResponseError,
    fields::{Fields, Known, Places},
    lines::{Limits, Progress},
    request::Asked,
    token::{self, Version, is_value},
};

/// The parser and what it found; made once per connection and used for each of its answers.
#[derive(Debug, Default)]
pub struct ResponseHead {
    progress: Progress,
    in_fields: bool,
    version: Version,
    status: u16,
    reason: Range<usize>,
    places: Places,
    framing: Framing,
    length: Option<u64>,
    keep_alive: bool,
    upgrade: bool,
}

impl ResponseHead {
    /// Forgets the last answer; the room it needed is kept.
    pub fn clear(&mut self) {
        self.progress = Progress::default();
        self.in_fields = false;
        self.places.clear();
        self.length = None;
    }

    /// Reads on, as [`RequestHead::parse`](crate::RequestHead::parse). `asked` is of the request that is answered. Interim answers (1xx but 101) are
    /// heads of their own: call [`ResponseHead::clear`] and parse again behind them.
    ///
    /// # Errors
    /// Whatever cannot be passed on without doubt. The connection is of no use then.
    pub fn parse(
        &mut self,
        bytes: &[u8],
        asked: Asked,
        limits: &Limits,
    ) -> Result<Option<usize>, ResponseError> {
        loop {
            let Some((start, line)) = self.progress.next(bytes, limits)? else {
                let begun = &bytes[self.progress.line.min(bytes.len())..];
                if !self.in_fields && !b"HTTP/1.".starts_with(&begun[..begun.len().min(7)]) {
                    return Err(ResponseError::StatusLine);
                }
                return Ok(None);
            };
            if !self.in_fields {
                self.status_line(start, line)?;
                self.in_fields = true;
            } else if line.is_empty() {
                let end = self.progress.line;
                self.check(&bytes[..end], asked)?;
                return Ok(Some(end));
            } else {
                self.places.add(start, line, limits.fields)?;
            }
        }
    }

    /// The answer in the bytes it was parsed from.
    #[must_use]
    pub fn view<'b>(&'b self, bytes: &'b [u8]) -> Response<'b> {
        Response { head: self, bytes }
    }

    fn status_line(&mut self, start: usize, line: &[u8]) -> Result<(), ResponseError> {
        self.version = match line.get(..9) {
            Some(b"HTTP/1.1 ") => Version::Http11,
            Some(b"HTTP/1.0 ") => Version::Http10,
            Some([b'H', b'T', b'T', b'P', b'/', _, b'.', _, b' ']) => {
                return Err(ResponseError::Version);
            }
            _ => return Err(ResponseError::StatusLine),
        };
        let digits = line.get(9..12).ok_or(ResponseError::StatusLine)?;
        let status = token::decimal(digits).ok_or(ResponseError::StatusLine)?;
        self.status = u16::try_from(status).map_err(|_| ResponseError::StatusLine)?;
        if !(100..=599).contains(&self.status) {
            return Err(ResponseError::StatusLine);
        }
        // The space behind the status is obligatory, yet often left out with an empty reason.
        let reason = match &line[12..] {
            [] => 0..0,
            [b' ', reason @ ..] if is_value(reason) => start + 13..start + line.len(),
            _ => return Err(ResponseError::StatusLine),
        };
        self.reason = reason;
        Ok(())
    }

    fn check(&mut self, bytes: &[u8], asked: Asked) -> Result<(), ResponseError> {
        let connection = self
            .places
            .apply_connection(bytes)
            .map_err(|()| ResponseError::Connection)?;
        let fields = self.places.view(bytes);
        let http11 = self.version == Version::Http11;
        let mut codings = fields.known(Known::TransferEncoding);
        let mut lengths = fields.known(Known::ContentLength);
        let (coding, length) = (codings.next(), lengths.next());
        if coding.is_some() && length.is_some() {
            return Err(ResponseError::BothLengths);
        }
        if let Some(coding) = coding
            && (!http11 || codings.next().is_some() || !coding.eq_ignore_ascii_case(b"chunked"))
        {
            return Err(ResponseError::Coding);
        }
        if lengths.next().is_some() {
            return Err(ResponseError::ContentLength);
        }
        self.length = match length {
            Some(text) => Some(token::decimal(text).ok_or(ResponseError::ContentLength)?),
            None => None,
        };
        self.upgrade = self.status == 101 || (asked.connect && (200..300).contains(&self.status));
        if self.status == 101 && !asked.upgrade {
            return Err(ResponseError::UnaskedUpgrade);
        }
        // RFC 9112 §6.3, in its order.
        self.framing =
            if asked.head_only || matches!(self.status, 100..=199 | 204 | 304) || self.upgrade {
                Framing::None
            } else if coding.is_some() {
                Framing::Chunked
            } else if let Some(length) = self.length {
                Framing::Length(length)
            } else {
                Framing::UntilClose
            };
        self.keep_alive = !connection.close
            && (http11 || connection.keep_alive)
            && self.framing != Framing::UntilClose
            // A body where there is none would be taken for the next answer.
            && !(self.status == 204 && (coding.is_some() || self.length.is_some_and(|length| length > 0)));
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

    /// Whether what follows is no HTTP any more: 101, or 2xx to CONNECT.
    #[must_use]
    pub fn is_tunnel(self) -> bool {
        self.head.upgrade
    }

    /// How the body that follows is framed.
    #[must_use]
    pub fn framing(self) -> Framing {
        self.head.framing
    }

    /// Content-Length as it was said; with HEAD and 304 it tells of a body that does not follow.
    #[must_use]
    pub fn content_length(self) -> Option<u64> {
        self.head.length
    }

    /// A decoder for the body.
    #[must_use]
    pub fn decoder(self) -> Decoder {
        Decoder::new(self.framing())
    }

    /// Whether the connection can carry another exchange after this one, as far as the upstream is concerned.
    #[must_use]
    pub fn keep_alive(self) -> bool {
        self.head.keep_alive
    }
}

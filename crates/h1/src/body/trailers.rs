//! Trailer fields (RFC 9112 §7.1.2): collected, checked, and kept unless they are of a kind that must not come that late.

use crate::{
    error::FieldError,
    fields::Known,
    scan::{token_end, value_end},
    token::trim,
};

/// The trailer fields of a body, once it is complete: those that may travel on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trailers<'b> {
    /// `name: value` lines, each with CRLF.
    lines: &'b [u8],
}

impl<'b> Trailers<'b> {
    /// None.
    pub const NONE: Self = Self { lines: b"" };

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.lines.is_empty()
    }

    /// Names as sent and values without white space around them, in order.
    pub fn iter(self) -> impl Iterator<Item = (&'b [u8], &'b [u8])> {
        let mut rest = self.lines;
        std::iter::from_fn(move || {
            let end = memchr::memchr(b'\r', rest)?;
            let line = &rest[..end];
            rest = rest.get(end + 2..).unwrap_or_default();
            let colon = memchr::memchr(b':', line)?;
            Some((&line[..colon], trim(&line[colon + 1..])))
        })
    }

    pub(super) const fn lines(self) -> &'b [u8] {
        self.lines
    }
}

/// Collects the section as it arrives. Takes no room for bodies without trailers.
#[derive(Debug, Default)]
pub(super) struct Collector {
    /// Kept lines, then the one that is not complete.
    bytes: Vec<u8>,
    /// Where that one begins.
    line: usize,
    /// Bytes of the section so far, whether kept or not.
    total: usize,
}

impl Collector {
    /// Takes bytes up to the end of the section; how many. `true` when it is complete.
    pub(super) fn read(&mut self, input: &[u8], limit: usize) -> Result<(usize, bool), FieldError> {
        let mut taken = 0;
        while taken < input.len() {
            let rest = &input[taken..];
            let line_end = memchr::memchr(b'\n', rest);
            let n = line_end.map_or(rest.len(), |at| at + 1);
            // The empty line is not counted.
            if self.total + n > limit.saturating_add(2) {
                return Err(FieldError::TooLong);
            }
            self.total += n;
            self.bytes.extend_from_slice(&rest[..n]);
            taken += n;
            if line_end.is_some() && self.line_is_complete()? {
                return Ok((taken, true));
            }
        }
        Ok((taken, false))
    }

    pub(super) fn kept(&self) -> Trailers<'_> {
        Trailers {
            lines: self.bytes.get(..self.line).unwrap_or_default(),
        }
    }

    /// Whether it was the empty line.
    fn line_is_complete(&mut self) -> Result<bool, FieldError> {
        let line = &self.bytes[self.line..];
        let Some(line) = line.strip_suffix(b"\r\n") else {
            return Err(FieldError::BareLf);
        };
        if line.is_empty() {
            return Ok(true);
        }
        let colon = check(line)?;
        if is_allowed(&line[..colon]) {
            self.line = self.bytes.len();
        } else {
            self.bytes.truncate(self.line);
        }
        Ok(false)
    }
}

/// Where the colon of a good line is.
fn check(line: &[u8]) -> Result<usize, FieldError> {
    let colon = token_end(line, 0);
    match line.get(colon) {
        Some(b':') if colon > 0 => {}
        Some(b' ' | b'\t') if colon == 0 => return Err(FieldError::Folded),
        Some(b' ' | b'\t') => return Err(FieldError::SpaceInName),
        Some(b':') | None => return Err(FieldError::NoField),
        Some(_) => return Err(FieldError::Name),
    }
    match line.get(value_end(line, colon + 1)) {
        None => Ok(colon),
        Some(b'\r') => Err(FieldError::BareCr),
        Some(_) => Err(FieldError::Value),
    }
}

/// Fields of framing, routing, authentication and control must not come after the body (RFC 9110 §6.5.1): what decided already what to
/// do with the message would be contradicted.
fn is_allowed(name: &[u8]) -> bool {
    const FORBIDDEN: [&[u8]; 27] = [
        b"age",
        b"authentication-info",
        b"cache-control",
        b"content-range",
        b"expires",
        b"if-match",
        b"if-modified-since",
        b"if-none-match",
        b"if-range",
        b"if-unmodified-since",
        b"keep-alive",
        b"max-forwards",
        b"pragma",
        b"proxy-authentication-info",
        b"range",
        b"retry-after",
        b"sec-websocket-accept",
        b"sec-websocket-extensions",
        b"sec-websocket-key",
        b"sec-websocket-protocol",
        b"sec-websocket-version",
        b"trailer",
        b"vary",
        b"warning",
        b"www-authenticate",
        b"x-http-method-override",
        b"x-original-url",
    ];
    Known::of(name) == Known::Other
        && !FORBIDDEN
            .iter()
            .any(|other| crate::token::looks_like(name, other))
}

//! Heads written anew.

use crate::{
    body::Framing,
    error::WriteError,
    fields::{Field, Fields, Known},
    scan::value_end,
    token::{is_token, push_decimal},
};

/// Appends one head to a buffer. The start line, framing, Host and Connection were written by the state that made it
/// ([`Responder`](crate::Responder), [`Upstream`](crate::Upstream)); the caller adds the fields of the message. `N` is what the
/// connection is after the head.
#[derive(Debug)]
#[must_use = "a head is complete only when it is finished"]
pub struct HeadWriter<'o, N> {
    out: &'o mut Vec<u8>,
    next: N,
}

impl<'o, N> HeadWriter<'o, N> {
    /// Appends those end-to-end fields that `keep` wants, as they came but for the white space around values.
    pub fn copy(&mut self, fields: Fields<'_>, mut keep: impl FnMut(&Field<'_>) -> bool) {
        let bytes = fields.bytes();
        // Lines that are good as they are pass in runs as long as possible.
        let mut run = 0..0;
        for place in fields.travelling() {
            let field = place.field(bytes);
            if !keep(&field) {
                continue;
            }
            match place.line() {
                Some(line) if line.start == run.end => run.end = line.end,
                line => {
                    self.out.extend_from_slice(&bytes[run]);
                    if line.is_none() {
                        append(self.out, field.name, field.value);
                    }
                    run = line.unwrap_or_default();
                }
            }
        }
        self.out.extend_from_slice(&bytes[run]);
    }

    /// Appends a field. A configuration or a template cannot forge a head with it.
    ///
    /// # Errors
    /// If the name or the value is none, or the field is one that only this writer sets; nothing is written then.
    pub fn field(&mut self, name: &[u8], value: &[u8]) -> Result<(), WriteError> {
        check_name(name)?;
        check_value(value)?;
        append(self.out, name, value);
        Ok(())
    }

    /// Appends a field whose value the caller writes; the same rules hold. Whatever `value` removes from what was there before is lost.
    ///
    /// # Errors
    /// As [`field`](Self::field).
    pub fn field_with(
        &mut self,
        name: &[u8],
        value: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), WriteError> {
        check_name(name)?;
        let start = self.out.len();
        self.out.extend_from_slice(name);
        self.out.extend_from_slice(b": ");
        let at = self.out.len();
        value(self.out);
        let written = self.out.get(at..).ok_or(WriteError::Value)?;
        if let Err(error) = check_value(written) {
            self.out.truncate(start);
            return Err(error);
        }
        self.out.extend_from_slice(b"\r\n");
        Ok(())
    }

    /// Appends fields that were made before.
    pub fn prepared(&mut self, fields: &Prepared) {
        self.lines(&fields.lines);
    }

    /// Ends the head.
    pub fn finish(self) -> N {
        self.out.extend_from_slice(b"\r\n");
        self.next
    }

    pub(crate) fn request_line(
        out: &'o mut Vec<u8>,
        method: &[u8],
        target: &[u8],
        next: N,
    ) -> Self {
        out.reserve(USUAL_HEAD);
        out.extend_from_slice(method);
        out.push(b' ');
        out.extend_from_slice(target);
        out.extend_from_slice(b" HTTP/1.1\r\n");
        Self { out, next }
    }

    /// `status` has three digits and `reason` was checked. Always version 1.1, which is this end's own (RFC 9110 §6.2).
    pub(crate) fn status_line(out: &'o mut Vec<u8>, status: u16, reason: &[u8], next: N) -> Self {
        out.reserve(USUAL_HEAD);
        out.extend_from_slice(b"HTTP/1.1 ");
        push_decimal(out, status.into());
        out.push(b' ');
        out.extend_from_slice(reason);
        out.extend_from_slice(b"\r\n");
        Self { out, next }
    }

    /// A head that begins with lines that are good as they are.
    pub(crate) fn of_lines(out: &'o mut Vec<u8>, lines: &[u8], next: N) -> Self {
        out.reserve(USUAL_HEAD.max(lines.len()));
        out.extend_from_slice(lines);
        Self { out, next }
    }

    /// Lines that are good as they are.
    pub(crate) fn lines(&mut self, lines: &[u8]) {
        self.out.extend_from_slice(lines);
    }

    /// A field that the caller may not set.
    pub(crate) fn own(&mut self, name: &[u8], value: &[u8]) {
        append(self.out, name, value);
    }

    pub(crate) fn framing(&mut self, framing: Framing) {
        match framing {
            Framing::Length(length) => {
                self.out.extend_from_slice(b"Content-Length: ");
                push_decimal(self.out, length);
                self.out.extend_from_slice(b"\r\n");
            }
            Framing::Chunked => self.own(b"Transfer-Encoding", b"chunked"),
            Framing::None | Framing::UntilClose => {}
        }
    }
}

/// Fields that are checked and written once, for heads that are much alike.
#[derive(Clone, Debug, Default)]
pub struct Prepared {
    lines: Vec<u8>,
}

impl Prepared {
    /// Adds a field.
    ///
    /// # Errors
    /// As [`HeadWriter::field`]; nothing is added then.
    pub fn field(&mut self, name: &[u8], value: &[u8]) -> Result<(), WriteError> {
        check_name(name)?;
        check_value(value)?;
        append(&mut self.lines, name, value);
        Ok(())
    }

    /// Forgets all fields; the room they needed is kept.
    pub fn clear(&mut self) {
        self.lines.clear();
    }
}

pub(crate) fn check_value(value: &[u8]) -> Result<(), WriteError> {
    if value_end(value, 0) < value.len() {
        return Err(WriteError::Value);
    }
    Ok(())
}

fn check_name(name: &[u8]) -> Result<(), WriteError> {
    let known = Known::of(name);
    // What is known is a token.
    if matches!(known, Known::Other) && !is_token(name) {
        return Err(WriteError::Name);
    }
    // Who answers 401 or asks a proxy to sign in does so by itself.
    if known.is_own() && known != Known::ProxyAuth {
        return Err(WriteError::NotYours);
    }
    Ok(())
}

fn append(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    // Once for all of them.
    out.reserve(name.len() + value.len() + 4);
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Room that most heads do with, so that a new buffer grows once.
const USUAL_HEAD: usize = 512;

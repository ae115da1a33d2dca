//! Heads written anew.

use std::io::Write as _;

use crate::{
    body::Framing,
    fields::{Field, Fields},
    token::{Version, is_token, is_value},
};

/// Appends one head to a buffer. Framing and connection fields are written by [`HeadWriter::finish`] and its relatives only, so no message can have
/// two of them.
#[derive(Debug)]
#[must_use = "a head is complete only when it is finished"]
pub struct HeadWriter<'o> {
    out: &'o mut Vec<u8>,
}

impl<'o> HeadWriter<'o> {
    /// `method target HTTP/1.1`. Both were checked by a parser.
    pub fn request(out: &'o mut Vec<u8>, method: &[u8], target: &[u8]) -> Self {
        out.extend_from_slice(method);
        out.push(b' ');
        out.extend_from_slice(target);
        out.extend_from_slice(b" HTTP/1.1\r\n");
        Self { out }
    }

    /// `version status reason`. A status that nobody gave a name gets an empty reason.
    pub fn response(out: &'o mut Vec<u8>, version: Version, status: u16, reason: &[u8]) -> Self {
        out.extend_from_slice(version.as_str().as_bytes());
        let _ = write!(out, " {status} ");
        out.extend_from_slice(reason);
        out.extend_from_slice(b"\r\n");
        Self { out }
    }

    /// Appends the end-to-end fields that `keep` wants, as they came but for the white space around values.
    pub fn copy_fields(&mut self, fields: Fields<'_>, mut keep: impl FnMut(&Field<'_>) -> bool) {
        for field in fields.end_to_end() {
            if !keep(&field) {
                continue;
            }
            match field.raw {
                Some(raw) => self.out.extend_from_slice(raw),
                None => self.append(field.name, field.value),
            }
        }
    }

    /// Appends a field. Names and values that are none, or that this writer sets itself, are left out: a configuration or a template must not be
    /// able to forge a head.
    pub fn field(&mut self, name: &[u8], value: &[u8]) {
        let known = crate::fields::Known::of(name);
        if is_token(name) && is_value(value) && !known.is_hop_by_hop() {
            self.append(name, value);
        }
    }

    /// Appends a field whose value the caller writes; the same rules hold.
    pub fn field_with(&mut self, name: &[u8], value: impl FnOnce(&mut Vec<u8>)) {
        let start = self.out.len();
        self.out.extend_from_slice(name);
        self.out.extend_from_slice(b": ");
        let at = self.out.len();
        value(self.out);
        let known = crate::fields::Known::of(name);
        if at == self.out.len()
            || !is_token(name)
            || !is_value(&self.out[at..])
            || known.is_hop_by_hop()
        {
            self.out.truncate(start);
            return;
        }
        self.out.extend_from_slice(b"\r\n");
    }

    /// `TE: trailers`, which tells the upstream that trailers arrive.
    pub fn accept_trailers(&mut self) {
        self.out
            .extend_from_slice(b"TE: trailers\r\nConnection: TE\r\n");
    }

    /// Says that the connection ends after this exchange.
    pub fn close(&mut self) {
        self.out.extend_from_slice(b"Connection: close\r\n");
    }

    /// Says that the connection goes on, which only HTTP/1.0 needs to hear.
    pub fn keep_alive(&mut self) {
        self.out.extend_from_slice(b"Connection: keep-alive\r\n");
    }

    /// Asks for another protocol, or agrees to it.
    pub fn upgrade<'v>(&mut self, protocols: impl Iterator<Item = &'v [u8]>) {
        self.out.extend_from_slice(b"Connection: upgrade\r\n");
        for protocol in protocols {
            self.append(b"Upgrade", protocol);
        }
    }

    /// Content-Length of a body that does not follow: in answers to HEAD and in 304.
    pub fn would_be_length(&mut self, length: u64) {
        let _ = write!(self.out, "Content-Length: {length}\r\n");
    }

    /// Ends the head of a message whose body is framed so.
    pub fn finish(self, framing: Framing) {
        match framing {
            Framing::Length(length) => {
                let _ = write!(self.out, "Content-Length: {length}\r\n\r\n");
            }
            Framing::Chunked => self
                .out
                .extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n"),
            Framing::None | Framing::UntilClose => self.out.extend_from_slice(b"\r\n"),
        }
    }

    fn append(&mut self, name: &[u8], value: &[u8]) {
        self.out.extend_from_slice(name);
        self.out.extend_from_slice(b": ");
        self.out.extend_from_slice(value);
        self.out.extend_from_slice(b"\r\n");
    }
}

/// The line before a chunk of `size` bytes. 0 is the last one: then come trailers and an empty line.
pub fn write_chunk_header(out: &mut Vec<u8>, size: u64) {
    let _ = write!(out, "{size:x}\r\n");
}

//! Field lines as they arrive: each byte is looked at once, however small the pieces are that it comes in, and a byte that breaks a
//! rule is refused when it comes, not when its line or head is complete.

use crate::{
    error::FieldError,
    places::Places,
    scan::{token_end, value_end},
};

/// What a message may have. All of it bounds memory or work; time is bounded by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Start line and fields together, with their line ends, in bytes.
    pub head: usize,
    /// Number of fields.
    pub fields: usize,
    /// Length of a request target in bytes.
    pub target: usize,
    /// Extensions of one chunk, in bytes.
    pub chunk_extension: usize,
    /// Extensions of all chunks of one body together, in bytes: they cost work and carry nothing.
    pub chunk_extensions: usize,
    /// All trailer lines of a body, in bytes with their line ends.
    pub trailers: usize,
    /// How much of a request's body is read and thrown away after an early answer, in bytes, before the connection is closed instead.
    pub drain: u64,
    /// Requests on one visitor's connection, after which it is closed.
    pub requests: u64,
    /// Interim answers (1xx) to one request.
    pub interim: u32,
}

impl Default for Limits {
    /// 16 KiB of head, 100 fields, 8 KiB of target, 256 bytes of extension per chunk and 16 KiB per body, 8 KiB of trailers, 64 KiB
    /// drained, a million requests, 32 interim answers.
    fn default() -> Self {
        Self {
            head: 16 << 10,
            fields: 100,
            target: 8 << 10,
            chunk_extension: 256,
            chunk_extensions: 16 << 10,
            trailers: 8 << 10,
            drain: 64 << 10,
            requests: 1_000_000,
            interim: 32,
        }
    }
}

impl Limits {
    /// The most bytes of a head that are looked at: positions in it fit into 32 bits, whatever the limit is.
    pub(crate) fn most(&self) -> usize {
        self.head.min(u32::MAX as usize)
    }
}

/// What bodies need of [`Limits`]: small, because they are moved with every step. A limit that does not fit is none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caps {
    pub(crate) extension: u32,
    pub(crate) extensions: u32,
    pub(crate) trailers: u32,
}

impl Caps {
    pub(crate) fn of(limits: &Limits) -> Self {
        let narrow = |limit| u32::try_from(limit).unwrap_or(u32::MAX);
        Self {
            extension: narrow(limits.chunk_extension),
            extensions: narrow(limits.chunk_extensions),
            trailers: narrow(limits.trailers),
        }
    }
}

/// How far the fields of a head have been read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lines {
    /// Where the line begins that is not complete.
    line: usize,
    /// Bytes before this were looked at.
    at: usize,
    /// Where the colon of this line is; 0 until it was found, for no field begins at 0.
    colon: usize,
}

impl Lines {
    pub(crate) fn starting_at(at: usize) -> Self {
        Self {
            line: at,
            at,
            colon: 0,
        }
    }

    /// Reads all lines that are there into `places`. The length of the head once it is complete.
    pub(crate) fn read(
        &mut self,
        bytes: &[u8],
        places: &mut Places,
        limit: usize,
    ) -> Result<Option<usize>, FieldError> {
        let Self {
            mut line,
            mut at,
            mut colon,
        } = *self;
        let length = loop {
            if colon == 0 {
                if at == line {
                    match bytes.get(at) {
                        Some(b'\r') => match bytes.get(at + 1) {
                            None => break None,
                            Some(b'\n') => break Some(at + 2),
                            Some(_) => return Err(FieldError::BareCr),
                        },
                        None => break None,
                        Some(b' ' | b'\t') => return Err(FieldError::Folded),
                        Some(_) if places.len() >= limit => return Err(FieldError::TooMany),
                        Some(_) => {}
                    }
                    if let Some(end) = places.add_again(bytes, line) {
                        line = end;
                        at = end;
                        continue;
                    }
                }
                at = token_end(bytes, at);
                match bytes.get(at) {
                    Some(b':') if at > line => colon = at,
                    None => break None,
                    Some(b':' | b'\r') => return Err(FieldError::NoField),
                    Some(b'\n') => return Err(FieldError::BareLf),
                    Some(b' ' | b'\t') => return Err(FieldError::SpaceInName),
                    Some(_) => return Err(FieldError::Name),
                }
                at += 1;
            }
            at = value_end(bytes, at);
            match bytes.get(at..).unwrap_or_default() {
                [b'\r', b'\n', ..] => {}
                [] | [b'\r'] => break None,
                [b'\r', ..] => return Err(FieldError::BareCr),
                [b'\n', ..] => return Err(FieldError::BareLf),
                _ => return Err(FieldError::Value),
            }
            places.add(bytes, line, colon, at);
            line = at + 2;
            at = line;
            colon = 0;
        };
        *self = Self { line, at, colon };
        Ok(length)
    }
}

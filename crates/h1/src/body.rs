//! Bodies as they pass: where they end, and which bytes of them can go on as they are.

use std::ops::Range;

use crate::{
    error::{BodyError, FieldError},
    fields::{Known, split},
};

/// How a body's end is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Framing {
    /// There is no body.
    #[default]
    None,
    /// So many bytes.
    Length(u64),
    /// In chunks (RFC 9112 §7.1).
    Chunked,
    /// Until the connection ends; answers only.
    UntilClose,
}

/// What the next bytes of a body are. Ranges count from the first byte of the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Data.
    Data(Range<usize>),
    /// The line before a chunk of this size; `canonical` if the input has it as it would be written anew. Size 0: trailers follow.
    ChunkHeader {
        /// Where the line is.
        line: Range<usize>,
        /// Bytes in the chunk.
        size: u64,
        /// Hexadecimal without leading zeros or extension.
        canonical: bool,
    },
    /// The CRLF behind a chunk's data.
    ChunkEnd(Range<usize>),
    /// A trailer field's line, with its CRLF; `allowed` unless it is one that must not be in a trailer (RFC 9110 §6.5.1).
    Trailer {
        /// Where the line is.
        line: Range<usize>,
        /// Whether it may go on.
        allowed: bool,
    },
    /// The empty line behind the trailers.
    TrailerEnd(Range<usize>),
}

impl Piece {
    /// The bytes it is made of.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        match self {
            Self::Data(range)
            | Self::ChunkHeader { line: range, .. }
            | Self::ChunkEnd(range)
            | Self::Trailer { line: range, .. }
            | Self::TrailerEnd(range) => range.clone(),
        }
    }
}

/// Follows one body.
#[derive(Debug)]
pub struct Decoder {
    state: State,
    /// Bytes of extensions and trailers so far: neither is data, and neither may go on for ever.
    overhead: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Done,
    Length(u64),
    UntilClose,
    ChunkHeader,
    ChunkData(u64),
    ChunkEnd,
    Trailers,
}

impl Decoder {
    /// For a body framed so.
    #[must_use]
    pub const fn new(framing: Framing) -> Self {
        let state = match framing {
            Framing::None | Framing::Length(0) => State::Done,
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => State::ChunkHeader,
            Framing::UntilClose => State::UntilClose,
        };
        Self { state, overhead: 0 }
    }

    /// Whether the body is complete.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Whether an end of the connection is the body's end.
    #[must_use]
    pub fn ends_with_connection(&self) -> bool {
        self.state == State::UntilClose
    }

    /// Bytes that are known to follow, for a body of known length.
    #[must_use]
    pub fn remaining(&self) -> Option<u64> {
        match self.state {
            State::Done => Some(0),
            State::Length(left) => Some(left),
            _ => None,
        }
    }

    /// The next piece of `input`, which begins where the last piece ended; `None` if more input is needed, or if the body is done.
    /// A line that is not complete needs all of its bytes again: at most 4 KiB and a few.
    ///
    /// # Errors
    /// [`BodyError`]: the connection is of no use any more.
    pub fn next(&mut self, input: &[u8]) -> Result<Option<Piece>, BodyError> {
        match self.state {
            State::Done => Ok(None),
            _ if input.is_empty() => Ok(None),
            State::UntilClose => Ok(Some(Piece::Data(0..input.len()))),
            State::Length(left) => {
                let n = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
                let left = left - n as u64;
                self.state = if left == 0 {
                    State::Done
                } else {
                    State::Length(left)
                };
                Ok(Some(Piece::Data(0..n)))
            }
            State::ChunkHeader => self.chunk_header(input),
            State::ChunkData(left) => {
                let n = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
                let left = left - n as u64;
                self.state = if left == 0 {
                    State::ChunkEnd
                } else {
                    State::ChunkData(left)
                };
                Ok(Some(Piece::Data(0..n)))
            }
            State::ChunkEnd => match input {
                [b'\r', b'\n', ..] => {
                    self.state = State::ChunkHeader;
                    Ok(Some(Piece::ChunkEnd(0..2)))
                }
                b"\r" => Ok(None),
                _ => Err(BodyError::ChunkEnd),
            },
            State::Trailers => self.trailer(input),
        }
    }

    fn chunk_header(&mut self, input: &[u8]) -> Result<Option<Piece>, BodyError> {
        let mut size = 0u64;
        let mut digits = 0;
        while let Some(digit) = input
            .get(digits)
            .and_then(|byte| char::from(*byte).to_digit(16))
        {
            if digits >= MOST_DIGITS {
                return Err(BodyError::ChunkSize);
            }
            size = size << 4 | u64::from(digit);
            digits += 1;
        }
        if digits == 0 {
            return Err(BodyError::ChunkSize);
        }
        let plain = match &input[digits..] {
            [] | [b'\r'] => return Ok(None),
            [b'\r', b'\n', ..] => true,
            [b';', ..] => false,
            _ => return Err(BodyError::ChunkSize),
        };
        let end = if plain {
            digits + 2
        } else {
            match self.extension(&input[digits..])? {
                Some(length) => digits + length,
                None => return Ok(None),
            }
        };
        self.state = if size == 0 {
            State::Trailers
        } else {
            State::ChunkData(size)
        };
        Ok(Some(Piece::ChunkHeader {
            line: 0..end,
            size,
            canonical: plain && (input[0] != b'0' || digits == 1),
        }))
    }

    /// The length of an extension with its CRLF.
    fn extension(&mut self, input: &[u8]) -> Result<Option<usize>, BodyError> {
        let Some(at) = memchr::memchr2(b'\r', b'\n', input) else {
            let wrong = !crate::token::is_value(input) || input.len() > MOST_LINE;
            return if wrong {
                Err(BodyError::ChunkExtension)
            } else {
                Ok(None)
            };
        };
        if at > MOST_LINE || !crate::token::is_value(&input[..at]) {
            return Err(BodyError::ChunkExtension);
        }
        match &input[at..] {
            [b'\r', b'\n', ..] => self
                .count(at)
                .then_some(Some(at + 2))
                .ok_or(BodyError::ChunkExtension),
            [b'\r'] => Ok(None),
            _ => Err(BodyError::ChunkExtension),
        }
    }

    fn trailer(&mut self, input: &[u8]) -> Result<Option<Piece>, BodyError> {
        let too_long = BodyError::Trailer(FieldError::TooLong);
        let Some(at) = memchr::memchr(b'\n', input) else {
            return if input.len() > MOST_LINE {
                Err(too_long)
            } else {
                Ok(None)
            };
        };
        let line = input[..at]
            .strip_suffix(b"\r")
            .ok_or(BodyError::Trailer(FieldError::BareLf))?;
        if line.is_empty() {
            self.state = State::Done;
            return Ok(Some(Piece::TrailerEnd(0..2)));
        }
        if line.len() > MOST_LINE || !self.count(line.len()) {
            return Err(too_long);
        }
        let (name_len, _) = split(line).map_err(BodyError::Trailer)?;
        Ok(Some(Piece::Trailer {
            line: 0..at + 1,
            allowed: is_allowed(&line[..name_len]),
        }))
    }

    fn count(&mut self, bytes: usize) -> bool {
        self.overhead += bytes;
        self.overhead <= MOST_OVERHEAD
    }
}

/// Fields of framing, routing, authentication and control must not come after the body (RFC 9110 §6.5.1): what decided already what to do with the
/// message would be contradicted.
fn is_allowed(name: &[u8]) -> bool {
    const FORBIDDEN: [&[u8]; 22] = [
        b"authorization",
        b"age",
        b"cache-control",
        b"content-encoding",
        b"content-length",
        b"content-range",
        b"content-type",
        b"cookie",
        b"date",
        b"expires",
        b"host",
        b"if-match",
        b"if-none-match",
        b"location",
        b"max-forwards",
        b"pragma",
        b"range",
        b"set-cookie",
        b"trailer",
        b"vary",
        b"www-authenticate",
        b"warning",
    ];
    Known::of(name) == Known::Other
        && !FORBIDDEN
            .iter()
            .any(|other| name.eq_ignore_ascii_case(other))
}

/// Hexadecimal digits of a chunk's size: up to 2^60.
const MOST_DIGITS: usize = 15;
/// Length of a chunk extension or a trailer field, in bytes.
const MOST_LINE: usize = 4 << 10;
/// All extensions and trailers of one body.
const MOST_OVERHEAD: usize = 16 << 10;

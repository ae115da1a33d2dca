//! Writes one body with the framing that its head announced.

use std::ops::Range;

use super::{BodyDecoder, Framing, Kind, Trailers};
use crate::error::{BodyError, WriteError};

/// A few bytes of framing: a chunk's line, or its end, or nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mark {
    bytes: [u8; 18],
    len: u8,
}

/// A step of relaying. Write `prefix`, then `data` of the input, then `suffix`; call again with the input behind `consumed` while it is
/// not empty and `end` is not set; then call [`BodyEncoder::finish`] with the decoder's trailers.
#[derive(Clone, Debug)]
pub struct Relayed {
    /// Bytes of the input that are dealt with.
    pub consumed: usize,
    /// What comes before the data.
    pub prefix: Mark,
    /// Where the bytes to pass on are in the input; may be empty.
    pub data: Range<usize>,
    /// What comes behind the data.
    pub suffix: Mark,
    /// Whether the body is complete.
    pub end: bool,
}

/// What [`BodyEncoder::relay_into`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Bytes of the input that are dealt with.
    pub consumed: usize,
    /// Whether the body is complete and its end was written.
    pub end: bool,
}

/// Writes one body. What it was told with the head, it holds to: a body of another length is an error, and the connection cannot be used
/// again.
#[derive(Debug)]
pub struct BodyEncoder {
    mode: Mode,
    /// Within a chunk of somebody else's, which passes as it is.
    in_chunk: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Length(u64),
    Chunked,
    UntilClose,
    Done,
}

impl BodyEncoder {
    pub(crate) fn new(framing: Framing) -> Self {
        let mode = match framing {
            Framing::None | Framing::Length(0) => Mode::Done,
            Framing::Length(length) => Mode::Length(length),
            Framing::Chunked => Mode::Chunked,
            Framing::UntilClose => Mode::UntilClose,
        };
        Self {
            mode,
            in_chunk: false,
        }
    }

    /// Whether all of it was written. A message without a body is complete with its head.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.mode == Mode::Done
    }

    /// Passes on what `from` finds in `input`. Whole chunks pass as one range with their framing, if their lines have neither extension nor leading zeros;
    /// the lines of others are written anew.
    ///
    /// # Errors
    /// What is wrong with the input, and [`RelayError::Write`] if the two bodies do not fit each other.
    pub fn relay(&mut self, from: &mut BodyDecoder, input: &[u8]) -> Result<Relayed, RelayError> {
        if self.mode == Mode::Chunked && from.framing() == Framing::Chunked {
            return Ok(self.relay_chunks(from, input)?);
        }
        let decoded = from.decode(input)?;
        let (prefix, suffix) = if decoded.data.is_empty() {
            (Mark::NONE, Mark::NONE)
        } else {
            self.data(decoded.data.len())?
        };
        Ok(Relayed {
            consumed: decoded.consumed,
            prefix,
            data: decoded.data,
            suffix,
            end: decoded.end,
        })
    }

    /// Copies into `out` all that `from` finds in `input`, and the end of the body when it comes. For small bodies, which are cheaper to copy
    /// behind their head than to write by themselves.
    ///
    /// # Errors
    /// As [`relay`](Self::relay).
    pub fn relay_into(
        &mut self,
        from: &mut BodyDecoder,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Moved, RelayError> {
        let mut consumed = 0;
        loop {
            let step = self.relay(from, &input[consumed..])?;
            out.extend_from_slice(step.prefix.as_bytes());
            out.extend_from_slice(&input[consumed..][step.data]);
            out.extend_from_slice(step.suffix.as_bytes());
            consumed += step.consumed;
            if step.end {
                self.finish(from.trailers(), out)?;
            }
            if step.end || consumed == input.len() {
                return Ok(Moved {
                    consumed,
                    end: step.end,
                });
            }
        }
    }

    /// What goes before and behind `len` bytes of data that the caller writes.
    ///
    /// # Errors
    /// [`WriteError::TooMuchBody`].
    pub fn data(&mut self, len: usize) -> Result<(Mark, Mark), WriteError> {
        let none = Ok((Mark::NONE, Mark::NONE));
        match self.mode {
            _ if len == 0 => none,
            Mode::Done => Err(WriteError::TooMuchBody),
            Mode::UntilClose => none,
            Mode::Length(left) => {
                let left = left
                    .checked_sub(len as u64)
                    .ok_or(WriteError::TooMuchBody)?;
                self.mode = Mode::Length(left);
                none
            }
            Mode::Chunked if self.in_chunk => Err(WriteError::TooMuchBody),
            Mode::Chunked => Ok((Mark::chunk(len as u64), Mark::CRLF)),
        }
    }

    /// Ends the body: in chunks with the last one and the trailers, which other framings have no place for. Again is no error.
    ///
    /// # Errors
    /// [`WriteError::TooLittleBody`].
    pub fn finish(&mut self, trailers: Trailers<'_>, out: &mut Vec<u8>) -> Result<(), WriteError> {
        match self.mode {
            Mode::Done => return Ok(()),
            Mode::Length(left) if left > 0 => return Err(WriteError::TooLittleBody),
            Mode::Chunked if self.in_chunk => return Err(WriteError::TooLittleBody),
            Mode::Chunked => {
                out.extend_from_slice(b"0\r\n");
                out.extend_from_slice(trailers.lines());
                out.extend_from_slice(b"\r\n");
            }
            Mode::Length(_) | Mode::UntilClose => {}
        }
        self.mode = Mode::Done;
        Ok(())
    }

    fn relay_chunks(&mut self, from: &mut BodyDecoder, input: &[u8]) -> Result<Relayed, BodyError> {
        let mut relayed = Relayed {
            consumed: 0,
            prefix: Mark::NONE,
            data: 0..0,
            suffix: Mark::NONE,
            end: from.is_complete(),
        };
        while relayed.consumed < input.len() && !relayed.end {
            let step = from.step(&input[relayed.consumed..])?;
            relayed.consumed += step.consumed;
            match step.kind {
                Kind::Data | Kind::ChunkEnd | Kind::Header { whole: true, .. } => {
                    if relayed.data.is_empty() {
                        relayed.data.start = relayed.consumed - step.consumed;
                    }
                    relayed.data.end = relayed.consumed;
                }
                Kind::Header { size, whole: false } if relayed.data.is_empty() => {
                    relayed.prefix = Mark::chunk(size);
                }
                Kind::Header { size, whole: false } => {
                    relayed.suffix = Mark::chunk(size);
                    break;
                }
                // The beginning of a line, or the end of the body: no data of this input comes behind it.
                Kind::Nothing => {}
                Kind::End => relayed.end = true,
            }
        }
        relayed.end = from.is_complete();
        self.in_chunk = from.is_in_chunk();
        Ok(relayed)
    }
}

/// Why a body cannot be passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum RelayError {
    /// It breaks its framing: the sender's fault.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// It is written with a head that announced another one: the caller's fault.
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl Mark {
    const NONE: Self = Self {
        bytes: [0; 18],
        len: 0,
    };

    const CRLF: Self = {
        let mut bytes = [0; 18];
        bytes[0] = b'\r';
        bytes[1] = b'\n';
        Self { bytes, len: 2 }
    };

    /// The line of a chunk.
    fn chunk(size: u64) -> Self {
        let digits = (16 - size.leading_zeros() as usize / 4).max(1);
        let mut mark = Self::NONE;
        for (at, byte) in mark.bytes.iter_mut().take(digits).enumerate() {
            let digit = (size >> (4 * (digits - 1 - at))) & 0xF;
            *byte = b"0123456789abcdef"[digit as usize];
        }
        mark.bytes[digits] = b'\r';
        mark.bytes[digits + 1] = b'\n';
        mark.len = digits as u8 + 2;
        mark
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

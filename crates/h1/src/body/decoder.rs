//! Follows one body to its end.

use std::ops::Range;

use super::{Framing, Trailers, extension::Extension, trailers::Collector};
use crate::{
    error::BodyError,
    lines::{Caps, Limits},
};

/// What of the input is data. Call again with the input behind `consumed` while it is not empty and `end` is not set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// Bytes of the input that are dealt with, including those of `data`.
    pub consumed: usize,
    /// Where data is in the input; may be empty.
    pub data: Range<usize>,
    /// Whether the body is complete. What follows in the input belongs to the next message.
    pub end: bool,
}

/// Follows one body. Every byte is taken when it comes: nothing has to be shown twice, and no answer depends on how the input was split.
#[derive(Debug)]
pub struct BodyDecoder {
    framing: Framing,
    state: State,
    /// Data that may still come.
    allowed: u64,
    /// Extensions, in bytes, of this chunk and of the body.
    extension: u32,
    extensions: u32,
    limits: Caps,
    /// Boxed, because nearly no body has any.
    trailers: Option<Box<Collector>>,
    started: bool,
    /// Bytes of data so far.
    received: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Done,
    Length(u64),
    UntilClose,
    Size {
        size: u64,
        digits: u8,
        canonical: bool,
    },
    Extension {
        size: u64,
        at: Extension,
    },
    /// Behind the CR of a chunk's line.
    SizeLf {
        size: u64,
        canonical: bool,
    },
    Data(u64),
    DataCr,
    DataLf,
    Trailers,
    Failed(BodyError),
}

/// A step through the input: so many bytes of one kind.
pub(crate) struct Step {
    pub(crate) consumed: usize,
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing that goes on by itself.
    Nothing,
    /// A chunk's line came to its end; `whole` if all of it is in this step, just as it would be written anew.
    Header {
        size: u64,
        whole: bool,
    },
    Data,
    /// The CRLF behind a chunk's data, or half of it.
    ChunkEnd,
    End,
}

impl BodyDecoder {
    /// For a body whose framing is known by other means than a head that was read here.
    #[must_use]
    pub fn of(framing: Framing, limits: &Limits) -> Self {
        Self::new(framing, Caps::of(limits))
    }

    pub(crate) fn new(framing: Framing, limits: Caps) -> Self {
        let state = match framing {
            Framing::None | Framing::Length(0) => State::Done,
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => NEXT_CHUNK,
            Framing::UntilClose => State::UntilClose,
        };
        Self {
            framing,
            state,
            allowed: u64::MAX,
            extension: 0,
            extensions: 0,
            limits,
            trailers: None,
            started: false,
            received: 0,
        }
    }

    pub(crate) fn limits(&self) -> Caps {
        self.limits
    }

    /// How the body is framed.
    #[must_use]
    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// Whether the body is complete.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.state == State::Done
    }

    /// Whether any byte of it has been taken.
    #[must_use]
    pub fn is_started(&self) -> bool {
        self.started
    }

    /// Bytes of data that were found so far, without framing and trailers.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received
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

    /// Allows only so many bytes of data from here on; the size of a chunk counts when it is announced.
    ///
    /// # Errors
    /// [`BodyError::TooLarge`] at once if the length is known and larger.
    pub fn set_limit(&mut self, bytes: u64) -> Result<(), BodyError> {
        self.allowed = bytes;
        match self.state {
            State::Length(left) if left > bytes => self.fail(BodyError::TooLarge),
            _ => Ok(()),
        }
    }

    /// Takes the next bytes, up to the end of the first piece of data in them.
    ///
    /// # Errors
    /// [`BodyError`], again at each call.
    pub fn decode(&mut self, input: &[u8]) -> Result<Decoded, BodyError> {
        let mut consumed = 0;
        let mut data = 0..0;
        while data.is_empty() && consumed < input.len() && !self.is_complete() {
            let step = self.step(&input[consumed..])?;
            if step.kind == Kind::Data {
                data = consumed..consumed + step.consumed;
            }
            consumed += step.consumed;
        }
        Ok(Decoded {
            consumed,
            data,
            end: self.is_complete(),
        })
    }

    /// The connection has ended: which completes a body that lasts until then.
    ///
    /// # Errors
    /// [`BodyError::Truncated`] if there was more to come.
    pub fn end_of_input(&mut self) -> Result<(), BodyError> {
        match self.state {
            State::Done => Ok(()),
            State::UntilClose => {
                self.state = State::Done;
                Ok(())
            }
            State::Failed(error) => Err(error),
            _ => self.fail(BodyError::Truncated),
        }
    }

    /// The trailer fields that may travel on; none before the body is complete.
    #[must_use]
    pub fn trailers(&self) -> Trailers<'_> {
        if self.is_complete() {
            self.trailers
                .as_deref()
                .map_or(Trailers::NONE, Collector::kept)
        } else {
            Trailers::NONE
        }
    }

    /// Whether the last bytes were within a chunk, line end included.
    pub(crate) fn is_in_chunk(&self) -> bool {
        matches!(self.state, State::Data(_) | State::DataCr | State::DataLf)
    }

    /// One step. `input` is not empty unless the body is complete.
    pub(crate) fn step(&mut self, input: &[u8]) -> Result<Step, BodyError> {
        self.started |= !input.is_empty();
        let result = match self.state {
            State::Done => Ok((0, Kind::End)),
            State::Failed(error) => return Err(error),
            State::UntilClose => {
                let n = input.len() as u64;
                match self.allowed.checked_sub(n) {
                    Some(left) => {
                        self.allowed = left;
                        Ok((input.len(), Kind::Data))
                    }
                    None => Err(BodyError::TooLarge),
                }
            }
            State::Length(left) => {
                let (n, left) = take(left, input);
                self.state = if left == 0 {
                    State::Done
                } else {
                    State::Length(left)
                };
                Ok((n, Kind::Data))
            }
            State::Data(left) => {
                let (n, left) = take(left, input);
                self.state = if left == 0 {
                    State::DataCr
                } else {
                    State::Data(left)
                };
                Ok((n, Kind::Data))
            }
            State::DataCr | State::DataLf => self.chunk_end(input),
            State::Size { .. } | State::Extension { .. } | State::SizeLf { .. } => self.line(input),
            State::Trailers => match self
                .trailers
                .get_or_insert_default()
                .read(input, self.limits.trailers as usize)
            {
                Ok((n, false)) => Ok((n, Kind::Nothing)),
                Ok((n, true)) => {
                    self.state = State::Done;
                    Ok((n, Kind::End))
                }
                Err(error) => Err(BodyError::Trailer(error)),
            },
        };
        match result {
            Ok((consumed, kind)) => {
                if kind == Kind::Data {
                    self.received += consumed as u64;
                }
                Ok(Step { consumed, kind })
            }
            Err(error) => {
                self.state = State::Failed(error);
                Err(error)
            }
        }
    }

    fn chunk_end(&mut self, input: &[u8]) -> Result<(usize, Kind), BodyError> {
        let wanted: &[u8] = if self.state == State::DataCr {
            b"\r\n"
        } else {
            b"\n"
        };
        let n = wanted.len().min(input.len());
        if input[..n] != wanted[..n] {
            return Err(BodyError::ChunkEnd);
        }
        self.state = if n == wanted.len() {
            NEXT_CHUNK
        } else {
            State::DataLf
        };
        Ok((n, Kind::ChunkEnd))
    }

    /// A chunk's line, as far as it is there.
    fn line(&mut self, input: &[u8]) -> Result<(usize, Kind), BodyError> {
        let from_start = self.state == NEXT_CHUNK;
        for (at, byte) in input.iter().enumerate() {
            match self.state {
                State::Size {
                    size,
                    digits,
                    canonical,
                } => {
                    self.state = self.size(*byte, size, digits, canonical)?;
                }
                State::Extension { size, at } => {
                    self.state = self.extension(*byte, size, at)?;
                }
                State::SizeLf { size, canonical } => {
                    if *byte != b'\n' {
                        return Err(BodyError::ChunkSize);
                    }
                    return self.header(size, at + 1, from_start && canonical);
                }
                _ => break,
            }
        }
        Ok((input.len(), Kind::Nothing))
    }

    fn size(
        &mut self,
        byte: u8,
        size: u64,
        digits: u8,
        canonical: bool,
    ) -> Result<State, BodyError> {
        if let Some(digit) = char::from(byte).to_digit(16) {
            if digits >= MOST_DIGITS {
                return Err(BodyError::ChunkSize);
            }
            return Ok(State::Size {
                size: size << 4 | u64::from(digit),
                digits: digits + 1,
                canonical: canonical && !(digits > 0 && size == 0),
            });
        }
        match byte {
            b'\r' if digits > 0 => Ok(State::SizeLf { size, canonical }),
            b';' if digits > 0 => {
                self.extension = 0;
                self.count_extension()?;
                Ok(State::Extension {
                    size,
                    at: Extension::BeforeName,
                })
            }
            _ => Err(BodyError::ChunkSize),
        }
    }

    fn extension(&mut self, byte: u8, size: u64, at: Extension) -> Result<State, BodyError> {
        if byte == b'\r' && at.may_end() {
            return Ok(State::SizeLf {
                size,
                canonical: false,
            });
        }
        self.count_extension()?;
        let at = at.next(byte).ok_or(BodyError::ChunkExtension)?;
        Ok(State::Extension { size, at })
    }

    fn count_extension(&mut self) -> Result<(), BodyError> {
        self.extension = self.extension.saturating_add(1);
        self.extensions = self.extensions.saturating_add(1);
        let good =
            self.extension <= self.limits.extension && self.extensions <= self.limits.extensions;
        good.then_some(()).ok_or(BodyError::ChunkExtension)
    }

    fn header(
        &mut self,
        size: u64,
        consumed: usize,
        whole: bool,
    ) -> Result<(usize, Kind), BodyError> {
        self.allowed = self.allowed.checked_sub(size).ok_or(BodyError::TooLarge)?;
        if size == 0 {
            self.state = State::Trailers;
            return Ok((consumed, Kind::Nothing));
        }
        self.state = State::Data(size);
        Ok((consumed, Kind::Header { size, whole }))
    }

    fn fail(&mut self, error: BodyError) -> Result<(), BodyError> {
        self.state = State::Failed(error);
        Err(error)
    }
}

fn take(left: u64, input: &[u8]) -> (usize, u64) {
    let n = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
    (n, left - n as u64)
}

const NEXT_CHUNK: State = State::Size {
    size: 0,
    digits: 0,
    canonical: true,
};
/// Hexadecimal digits of a chunk's size, leading zeros included: sizes stay below 2^60, which no arithmetic behind this one overflows at.
const MOST_DIGITS: u8 = 15;

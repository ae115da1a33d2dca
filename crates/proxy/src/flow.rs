//! One direction of a body: bytes are written from the buffer that they were read into; only framing that has to change is written anew.

use h1::{BodyError, Decoder, Framing, Piece, write_chunk_header};

use crate::buffer::{Input, Output};

/// Follows a body from one message to the other.
#[derive(Debug)]
pub(crate) struct Flow {
    decoder: Decoder,
    from: Framing,
    to: Framing,
    /// Bytes at the front of the input that may be written as they are, behind what is in the output.
    pass: usize,
    /// What comes behind them and must not.
    held: Option<Piece>,
    /// The end that the output's framing wants has been written.
    closed: bool,
    /// Bytes of body so far.
    pub(crate) moved: u64,
    /// Most bytes of body.
    limit: Option<u64>,
}

/// What can be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// There is something to write.
    Write,
    /// More must be read.
    Read,
    /// All is read and written.
    Done,
}

/// Why a body is not followed further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadBody {
    Framing(BodyError),
    TooLarge,
    /// The connection ended within it.
    Cut,
}

impl Flow {
    pub(crate) fn new(from: Framing, to: Framing, limit: Option<u64>) -> Self {
        Self {
            decoder: Decoder::new(from),
            from,
            to,
            pass: 0,
            held: None,
            closed: false,
            moved: 0,
            limit,
        }
    }

    /// Everything was read, whether or not it was written.
    pub(crate) fn is_read(&self) -> bool {
        self.decoder.is_done()
    }

    /// Bytes that may be written behind the output's.
    pub(crate) fn ready<'i>(&self, input: &'i Input) -> &'i [u8] {
        input.slice(0..self.pass)
    }

    /// So many of them were written.
    pub(crate) fn written(&mut self, n: usize, input: &mut Input) {
        self.pass -= n;
        input.consume(n);
    }

    /// Looks at what has been read.
    pub(crate) fn step(&mut self, input: &mut Input, output: &mut Output) -> Result<Step, BadBody> {
        loop {
            if let Some(piece) = self.held.take() {
                if self.pass > 0 {
                    self.held = Some(piece);
                    return Ok(Step::Write);
                }
                self.replace(&piece, input, output);
                continue;
            }
            if self.decoder.is_done() {
                self.close(output);
                break;
            }
            let rest = &input.bytes()[self.pass..];
            let Some(piece) = self.decoder.next(rest).map_err(BadBody::Framing)? else {
                break;
            };
            if let Piece::Data(range) = &piece {
                self.moved += range.len() as u64;
                if self.limit.is_some_and(|limit| self.moved > limit) {
                    return Err(BadBody::TooLarge);
                }
            }
            if self.passes(&piece) {
                self.pass += piece.range().end;
            } else {
                self.held = Some(piece);
            }
        }
        Ok(if self.pass > 0 || !output.is_empty() {
            Step::Write
        } else if self.decoder.is_done() {
            Step::Done
        } else {
            Step::Read
        })
    }

    /// The connection that the body comes from has ended.
    pub(crate) fn end_of_input(&mut self) -> Result<(), BadBody> {
        if !self.decoder.ends_with_connection() {
            return Err(BadBody::Cut);
        }
        self.decoder = Decoder::new(Framing::None);
        Ok(())
    }

    fn passes(&self, piece: &Piece) -> bool {
        match (piece, self.to) {
            (Piece::Data(_), Framing::Chunked) => self.from == Framing::Chunked,
            (Piece::Data(_), _) => true,
            (Piece::ChunkHeader { canonical, .. }, Framing::Chunked) => *canonical,
            (Piece::Trailer { allowed, .. }, Framing::Chunked) => *allowed,
            (Piece::ChunkEnd(_) | Piece::TrailerEnd(_), Framing::Chunked) => true,
            _ => false,
        }
    }

    /// Takes a piece off the input and writes what stands for it.
    fn replace(&self, piece: &Piece, input: &mut Input, output: &mut Output) {
        if self.to == Framing::Chunked {
            match piece {
                Piece::ChunkHeader { size, .. } => write_chunk_header(output.buffer(), *size),
                Piece::Data(range) => {
                    let out = output.buffer();
                    write_chunk_header(out, range.len() as u64);
                    out.extend_from_slice(input.slice(range.clone()));
                    out.extend_from_slice(b"\r\n");
                }
                _ => {}
            }
        }
        input.consume(piece.range().end);
    }

    fn close(&mut self, output: &mut Output) {
        if self.closed {
            return;
        }
        // Behind bytes that still pass there is no place yet; only a body without chunks needs an end, and its data is never passed.
        self.closed = true;
        if self.to == Framing::Chunked && self.from != Framing::Chunked {
            output.buffer().extend_from_slice(b"0\r\n\r\n");
        }
    }
}

//! One direction of a body: bytes are written from the buffer that they were read into; only framing that has to change is written anew.
//!
//! ```text
//! input ─► BodyDecoder ─► BodyEncoder ─► [made][front of the input][tail]
//! ```
//!
//! `made` and `tail` are in the output. What is framing and what is data, `h1` says; writing is left to the exchange.

use h1::{
    BodyDecoder, BodyEncoder, BodyError, RelayError, RequestBody, RequestWriter, ResponseBody,
    ResponseWriter,
};

use crate::buffer::{Input, Output};

/// Where a body comes from.
pub(crate) trait Source {
    fn decoder(&mut self) -> &mut BodyDecoder;
    fn is_complete(&self) -> bool;
}

impl Source for RequestBody {
    fn decoder(&mut self) -> &mut BodyDecoder {
        self.decoder()
    }
    fn is_complete(&self) -> bool {
        self.is_complete()
    }
}

impl Source for ResponseBody {
    fn decoder(&mut self) -> &mut BodyDecoder {
        self.decoder()
    }
    fn is_complete(&self) -> bool {
        self.is_complete()
    }
}

/// Where it goes.
pub(crate) trait Sink {
    fn encoder(&mut self) -> &mut BodyEncoder;
}

impl Sink for RequestWriter {
    fn encoder(&mut self) -> &mut BodyEncoder {
        self.encoder()
    }
}

impl Sink for ResponseWriter {
    fn encoder(&mut self) -> &mut BodyEncoder {
        self.encoder()
    }
}

/// Follows a body from one message to the other.
#[derive(Debug)]
pub(crate) struct Flow<R, W> {
    pub(crate) from: R,
    pub(crate) to: W,
    /// Bytes at the front of the input that are written as they are.
    pass: usize,
    /// Bytes behind them that are dealt with and not written.
    skip: usize,
    /// While something passes: so many of the output's last bytes come behind it.
    tail: usize,
    /// The end that the other framing wants has been made.
    closed: bool,
    /// Bytes of body so far.
    pub(crate) moved: u64,
}

/// From the visitor.
pub(crate) type Upward = Flow<RequestBody, RequestWriter>;
/// To the visitor.
pub(crate) type Downward = Flow<ResponseBody, ResponseWriter>;

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
    /// It breaks its framing, or does not fit the head it is sent with.
    Framing,
    TooLarge,
}

impl From<RelayError> for BadBody {
    fn from(error: RelayError) -> Self {
        match error {
            RelayError::Body(BodyError::TooLarge) => Self::TooLarge,
            RelayError::Body(_) | RelayError::Write(_) => Self::Framing,
        }
    }
}

impl<R: Source, W: Sink> Flow<R, W> {
    pub(crate) fn new(from: R, to: W) -> Self {
        Self {
            from,
            to,
            pass: 0,
            skip: 0,
            tail: 0,
            closed: false,
            moved: 0,
        }
    }

    /// Everything was read, whether or not it was written.
    pub(crate) fn is_read(&self) -> bool {
        self.from.is_complete()
    }

    /// What is to be written, in this order: of the output, of the input, of the output again.
    pub(crate) fn parts<'b>(&self, output: &'b Output, input: &'b Input) -> [&'b [u8]; 3] {
        let made = output.bytes();
        let (made, tail) = made.split_at(made.len().saturating_sub(self.tail));
        [made, input.slice(0..self.pass), tail]
    }

    /// So many bytes of the parts were written.
    pub(crate) fn written(&mut self, n: usize, output: &mut Output, input: &mut Input) {
        let made = output.bytes().len().saturating_sub(self.tail).min(n);
        let passed = self.pass.min(n - made);
        output.advance(made);
        self.pass -= passed;
        input.consume(passed);
        if self.pass == 0 {
            self.tail = 0;
            output.advance(n - made - passed);
        }
    }

    /// Looks at what has been read.
    pub(crate) fn step(&mut self, input: &mut Input, output: &mut Output) -> Result<Step, BadBody> {
        while self.pass == 0 {
            if self.skip > 0 {
                input.consume(std::mem::take(&mut self.skip));
            }
            if self.from.is_complete() {
                self.close(output)?;
                break;
            }
            if input.is_empty() {
                break;
            }
            self.relay(input, output)?;
        }
        Ok(if self.pass > 0 || !output.is_empty() {
            Step::Write
        } else if self.from.is_complete() {
            Step::Done
        } else {
            Step::Read
        })
    }

    /// The connection that the body comes from has ended.
    pub(crate) fn end_of_input(&mut self) -> Result<(), BodyError> {
        self.from.decoder().end_of_input()
    }

    /// Nothing more is written: what is dealt with leaves the input, so that it begins with what follows.
    pub(crate) fn drop_unwritten(&mut self, input: &mut Input) {
        input.consume(std::mem::take(&mut self.pass) + std::mem::take(&mut self.skip));
    }

    fn relay(&mut self, input: &mut Input, output: &mut Output) -> Result<(), BadBody> {
        let decoder = self.from.decoder();
        let relayed = self.to.encoder().relay(decoder, input.bytes())?;
        self.moved = decoder.received();
        let out = output.buffer();
        out.extend_from_slice(relayed.prefix.as_bytes());
        let data = relayed.data;
        let passes = data.len() > SMALL;
        if !passes {
            out.extend_from_slice(input.slice(data.clone()));
        }
        let made = out.len();
        out.extend_from_slice(relayed.suffix.as_bytes());
        if relayed.end {
            self.close(output)?;
        }
        if passes {
            self.tail = output.buffer().len() - made;
            input.consume(data.start);
            self.pass = data.len();
            self.skip = relayed.consumed - data.end;
        } else {
            input.consume(relayed.consumed);
        }
        Ok(())
    }

    fn close(&mut self, output: &mut Output) -> Result<(), BadBody> {
        if self.closed {
            return Ok(());
        }
        self.closed = true;
        let finished = if self.to.encoder().is_complete() {
            Ok(())
        } else {
            let trailers = self.from.decoder().trailers();
            self.to.encoder().finish(trailers, output.buffer())
        };
        finished.map_err(|_| BadBody::Framing)
    }
}

/// So many bytes are cheaper to copy behind what was made than to be written as a part of their own.
const SMALL: usize = 256;

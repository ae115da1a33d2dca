//! Answers that are compressed on their way: the body is taken out of its framing, goes through an encoder and is framed anew. At most one
//! piece of input is in the encoder's output at a time, and what the upstream has sent is never held back: when it pauses, the encoder is flushed.
//!
//! Whether an answer is compressed, `route` decides; the head is written by `request`.

use std::{
    cell::Cell,
    io::{self, Write},
    rc::Rc,
};

use flate2::write::GzEncoder;
use h1::{BodyError, ResponseBody, ResponseWriter, Trailers};
use route::Coding;
use zstd::zstd_safe::CParameter;

use crate::{
    buffer::{Input, Output},
    flow::{BadBody, Step},
};

/// How many answers of a worker are being compressed: their memory is bounded by this.
#[derive(Debug, Default)]
pub(crate) struct Places(Rc<Cell<usize>>);

impl Places {
    /// An encoder, unless there are as many as there may be.
    pub(crate) fn encoder(&self, coding: Coding) -> Option<Encoder> {
        if self.0.get() >= MOST {
            return None;
        }
        let kind = match coding {
            Coding::Gzip => Kind::Gzip(GzEncoder::new(Vec::new(), flate2::Compression::new(GZIP))),
            Coding::Brotli => Kind::Brotli(Box::new(brotli::CompressorWriter::new(
                Vec::new(),
                BROTLI_BUFFER,
                BROTLI,
                BROTLI_WINDOW,
            ))),
            Coding::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), ZSTD).ok()?;
                encoder
                    .set_parameter(CParameter::WindowLog(ZSTD_WINDOW))
                    .ok()?;
                Kind::Zstd(Box::new(encoder))
            }
        };
        self.0.set(self.0.get() + 1);
        Some(Encoder {
            kind,
            place: Rc::clone(&self.0),
        })
    }
}

/// Compresses one body. Its output is taken after each call.
pub(crate) struct Encoder {
    kind: Kind,
    place: Rc<Cell<usize>>,
}

enum Kind {
    Gzip(GzEncoder<Vec<u8>>),
    Brotli(Box<brotli::CompressorWriter<Vec<u8>>>),
    Zstd(Box<zstd::stream::write::Encoder<'static, Vec<u8>>>),
    /// Everything was written; this is the rest of it.
    Ended(Vec<u8>),
}

impl Encoder {
    pub(crate) fn write(&mut self, data: &[u8]) -> io::Result<()> {
        match &mut self.kind {
            Kind::Gzip(encoder) => encoder.write_all(data),
            Kind::Brotli(encoder) => encoder.write_all(data),
            Kind::Zstd(encoder) => encoder.write_all(data),
            Kind::Ended(_) => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Everything that was written can be decoded from what has come out.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        match &mut self.kind {
            Kind::Gzip(encoder) => encoder.flush(),
            Kind::Brotli(encoder) => encoder.flush(),
            Kind::Zstd(encoder) => encoder.flush(),
            Kind::Ended(_) => Ok(()),
        }
    }

    pub(crate) fn finish(&mut self) -> io::Result<()> {
        let kind = std::mem::replace(&mut self.kind, Kind::Ended(Vec::new()));
        self.kind = Kind::Ended(match kind {
            Kind::Gzip(encoder) => encoder.finish()?,
            Kind::Brotli(encoder) => encoder.into_inner(),
            Kind::Zstd(encoder) => encoder.finish()?,
            Kind::Ended(rest) => rest,
        });
        Ok(())
    }

    /// What has come out, to be taken.
    pub(crate) fn out(&mut self) -> &mut Vec<u8> {
        match &mut self.kind {
            Kind::Gzip(encoder) => encoder.get_mut(),
            Kind::Brotli(encoder) => encoder.get_mut(),
            Kind::Zstd(encoder) => encoder.get_mut(),
            Kind::Ended(rest) => rest,
        }
    }

    /// Moves what has come out behind `output`, framed by `to`.
    pub(crate) fn pour(
        &mut self,
        to: &mut ResponseWriter,
        output: &mut Output,
    ) -> Result<u64, BadBody> {
        let made = self.out();
        let n = made.len();
        if n > 0 {
            let (before, behind) = to.encoder().data(n).map_err(|_| BadBody::Framing)?;
            let out = output.buffer();
            out.extend_from_slice(before.as_bytes());
            out.extend_from_slice(made);
            out.extend_from_slice(behind.as_bytes());
            made.clear();
        }
        Ok(n as u64)
    }
}

impl Drop for Encoder {
    fn drop(&mut self) {
        self.place.set(self.place.get() - 1);
    }
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encoder").finish_non_exhaustive()
    }
}

/// Follows a body from an upstream to a visitor through an encoder.
#[derive(Debug)]
pub(crate) struct Compressed {
    pub(crate) from: ResponseBody,
    to: ResponseWriter,
    encoder: Encoder,
    /// Something was written that has perhaps not come out.
    unflushed: bool,
    ended: bool,
    /// Bytes of input since others on this thread had their turn.
    turn: usize,
    /// Bytes of body that were sent, as they were sent.
    pub(crate) moved: u64,
}

impl Compressed {
    pub(crate) fn new(from: ResponseBody, to: ResponseWriter, encoder: Encoder) -> Self {
        Self {
            from,
            to,
            encoder,
            unflushed: false,
            ended: false,
            turn: 0,
            moved: 0,
        }
    }

    /// Looks at what has been read. Nothing more is compressed while something waits to be written.
    pub(crate) fn step(&mut self, input: &mut Input, output: &mut Output) -> Result<Step, BadBody> {
        loop {
            if !output.is_empty() {
                return Ok(Step::Write);
            }
            if self.ended {
                return Ok(Step::Done);
            }
            if self.from.is_complete() {
                self.end(output)?;
                continue;
            }
            if input.is_empty() {
                return Ok(Step::Read);
            }
            let decoded = self.from.decoder().decode(input.bytes());
            let decoded = decoded.map_err(|_| BadBody::Framing)?;
            let data = input.slice(decoded.data.clone());
            self.turn += data.len();
            self.unflushed |= !data.is_empty();
            self.encoder.write(data).map_err(|_| BadBody::Framing)?;
            input.consume(decoded.consumed);
            self.moved += self.encoder.pour(&mut self.to, output)?;
        }
    }

    /// The upstream pauses: what it has sent goes on now. Whether that made something to write.
    pub(crate) fn pause(&mut self, output: &mut Output) -> Result<bool, BadBody> {
        self.turn = 0;
        if !std::mem::take(&mut self.unflushed) {
            return Ok(false);
        }
        self.encoder.flush().map_err(|_| BadBody::Framing)?;
        self.moved += self.encoder.pour(&mut self.to, output)?;
        Ok(!output.is_empty())
    }

    /// Whether it has had its share of the thread's time; if so, it has given it up.
    pub(crate) fn yields(&mut self) -> bool {
        let spent = self.turn >= TURN;
        if spent {
            self.turn = 0;
        }
        spent
    }

    /// What is left of both messages.
    pub(crate) fn into_parts(self) -> (ResponseBody, ResponseWriter) {
        (self.from, self.to)
    }

    /// The connection that the body comes from has ended.
    pub(crate) fn end_of_input(&mut self) -> Result<(), BodyError> {
        self.from.decoder().end_of_input()
    }

    fn end(&mut self, output: &mut Output) -> Result<(), BadBody> {
        self.encoder.finish().map_err(|_| BadBody::Framing)?;
        self.moved += self.encoder.pour(&mut self.to, output)?;
        let trailers: Trailers<'_> = self.from.decoder().trailers();
        let ended = self.to.encoder().finish(trailers, output.buffer());
        self.ended = true;
        ended.map_err(|_| BadBody::Framing)
    }
}

/// Answers of one worker that are compressed at one time; more pass as they are. At about 1.5 MiB for brotli and zstd and 0.3 MiB for gzip, a worker needs
/// less than 100 MiB.
const MOST: usize = 64;
/// Levels that cost a millisecond or less for 32 KiB of text.
const GZIP: u32 = 5;
const BROTLI: u32 = 4;
const ZSTD: i32 = 3;
/// Windows of 256 KiB: they bound the memory of both ends.
const BROTLI_WINDOW: u32 = 18;
const ZSTD_WINDOW: u32 = 18;
const BROTLI_BUFFER: usize = 4096;
/// Others on the thread have their turn after so many bytes: some milliseconds.
const TURN: usize = 128 << 10;

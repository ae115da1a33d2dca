//! Cuts the input into frames, however it is fragmented. Payloads of `PSH` pass through as they come; the rest is gathered in
//! 8 bytes. Knows nothing of streams' states.

use super::{
    frame::{Command, HEADER, Header},
    types::{Version, Violation},
};

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece<'i> {
    /// `SYN` of this stream.
    Open(u32),
    /// `FIN` of this stream.
    End(u32),
    /// Some bytes of a `PSH`, never none.
    Data(u32, &'i [u8]),
    /// A whole `UPD`.
    Update {
        stream: u32,
        consumed: u32,
        window: u32,
    },
}

#[derive(Debug)]
pub(super) struct Decoder {
    version: Version,
    state: State,
    /// The part of a header or update that has come.
    short: [u8; HEADER],
    short_len: usize,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Header,
    /// The payload of this stream's `UPD`.
    Update(u32),
    /// So many bytes of this stream's `PSH` are left.
    Data(u32, usize),
}

impl Decoder {
    pub(super) fn new(version: Version) -> Self {
        Self {
            version,
            state: State::Header,
            short: [0; HEADER],
            short_len: 0,
        }
    }

    /// The next piece of `input`, which is shortened by what was used; `None` when all of it was.
    pub(super) fn next<'i>(
        &mut self,
        input: &mut &'i [u8],
    ) -> Result<Option<Piece<'i>>, Violation> {
        loop {
            match self.state {
                State::Header => {
                    let Some(wire) = self.gather(input) else {
                        return Ok(None);
                    };
                    let header = Header::from_wire(wire, self.version)?;
                    match header.command {
                        Command::Syn => return Ok(Some(Piece::Open(header.stream))),
                        Command::Fin => return Ok(Some(Piece::End(header.stream))),
                        Command::Psh => {
                            self.state = State::Data(header.stream, usize::from(header.length));
                        }
                        Command::Nop => {}
                        Command::Upd => self.state = State::Update(header.stream),
                    }
                }
                State::Update(stream) => {
                    let Some([c0, c1, c2, c3, w0, w1, w2, w3]) = self.gather(input) else {
                        return Ok(None);
                    };
                    self.state = State::Header;
                    return Ok(Some(Piece::Update {
                        stream,
                        consumed: u32::from_le_bytes([c0, c1, c2, c3]),
                        window: u32::from_le_bytes([w0, w1, w2, w3]),
                    }));
                }
                State::Data(_, 0) => self.state = State::Header,
                State::Data(stream, left) => {
                    if input.is_empty() {
                        return Ok(None);
                    }
                    let (bytes, rest) = input.split_at(left.min(input.len()));
                    *input = rest;
                    self.state = State::Data(stream, left - bytes.len());
                    return Ok(Some(Piece::Data(stream, bytes)));
                }
            }
        }
    }

    /// The next 8 bytes, once all have come.
    fn gather(&mut self, input: &mut &[u8]) -> Option<[u8; HEADER]> {
        let (bytes, rest) = input.split_at((HEADER - self.short_len).min(input.len()));
        *input = rest;
        let end = self.short_len + bytes.len();
        self.short[self.short_len..end].copy_from_slice(bytes);
        self.short_len = if end == HEADER { 0 } else { end };
        (end == HEADER).then_some(self.short)
    }
}

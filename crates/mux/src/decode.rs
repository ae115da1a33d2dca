//! Cuts the input into frames, however it is fragmented. Payloads of data frames pass through as they come; the others are short
//! and are gathered whole. Knows nothing of streams' states.

use std::borrow::Cow;

use crate::{
    frame::{FIN, HEADER, Header, Kind, MAX_HEADER},
    types::Violation,
};

#[derive(Debug)]
pub(crate) enum Piece<'i> {
    /// A whole frame that is neither data nor an opening.
    Whole(Header, Cow<'i, [u8]>),
    /// The stream header of an opening; its data follows.
    Open(u32, Cow<'i, [u8]>),
    /// Some bytes of a stream.
    Data(u32, &'i [u8]),
    /// The frame that ends here was the stream's last.
    End(u32),
}

#[derive(Debug, Default)]
pub(crate) struct Decoder {
    state: State,
    /// What is gathered: a frame header, or a short payload.
    gathered: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Header,
    /// The payload of a frame that is handed out whole.
    Whole(Header),
    /// The two bytes that say how long the stream header is.
    OpenLength(Header),
    OpenHeader(Header, usize),
    /// So many bytes of data are left.
    Data(Header, usize),
}

impl Decoder {
    /// The next piece of `input`, which is shortened by what was used; `None` when all of it was.
    pub(crate) fn next<'i>(
        &mut self,
        input: &mut &'i [u8],
    ) -> Result<Option<Piece<'i>>, Violation> {
        loop {
            match self.state {
                State::Header => {
                    let Some(bytes) = self.gather(input, HEADER) else {
                        return Ok(None);
                    };
                    self.state = start(&bytes)?;
                }
                State::Whole(header) => {
                    let Some(payload) = self.gather(input, usize::from(header.length)) else {
                        return Ok(None);
                    };
                    self.state = State::Header;
                    return Ok(Some(Piece::Whole(header, payload)));
                }
                State::OpenLength(header) => {
                    let Some(bytes) = self.gather(input, 2) else {
                        return Ok(None);
                    };
                    let length = bytes
                        .iter()
                        .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
                    if length > MAX_HEADER || length + 2 > usize::from(header.length) {
                        return Err(Violation::BadLength {
                            kind: header.kind as u8,
                            length: header.length,
                        });
                    }
                    self.state = State::OpenHeader(header, length);
                }
                State::OpenHeader(header, length) => {
                    let Some(bytes) = self.gather(input, length) else {
                        return Ok(None);
                    };
                    self.state = State::Data(header, usize::from(header.length) - 2 - length);
                    return Ok(Some(Piece::Open(header.stream, bytes)));
                }
                State::Data(header, 0) => {
                    self.state = State::Header;
                    if header.flags & FIN != 0 {
                        return Ok(Some(Piece::End(header.stream)));
                    }
                }
                State::Data(header, left) => {
                    if input.is_empty() {
                        return Ok(None);
                    }
                    let (bytes, rest) = input.split_at(left.min(input.len()));
                    *input = rest;
                    self.state = State::Data(header, left - bytes.len());
                    return Ok(Some(Piece::Data(header.stream, bytes)));
                }
            }
        }
    }

    /// `n` contiguous bytes, borrowed where they lie together in the input.
    fn gather<'i>(&mut self, input: &mut &'i [u8], n: usize) -> Option<Cow<'i, [u8]>> {
        if self.gathered.is_empty() && input.len() >= n {
            let (bytes, rest) = input.split_at(n);
            *input = rest;
            return Some(Cow::Borrowed(bytes));
        }
        let missing = n - self.gathered.len();
        let (bytes, rest) = input.split_at(missing.min(input.len()));
        *input = rest;
        self.gathered.extend_from_slice(bytes);
        (self.gathered.len() == n).then(|| Cow::Owned(std::mem::take(&mut self.gathered)))
    }
}

fn start(bytes: &[u8]) -> Result<State, Violation> {
    let mut wire = [0; HEADER];
    wire.copy_from_slice(bytes);
    let header = Header::from_wire(wire).map_err(Violation::UnknownFrame)?;
    if !header.kind.allows(header.length) {
        return Err(Violation::BadLength {
            kind: header.kind as u8,
            length: header.length,
        });
    }
    Ok(match header.kind {
        Kind::Data => State::Data(header, usize::from(header.length)),
        Kind::Open => State::OpenLength(header),
        Kind::Credit | Kind::Reset | Kind::Ping | Kind::Control => State::Whole(header),
    })
}

//! Cuts the input into frames, however it is fragmented. Payloads of data frames pass through as they come; the others are short
//! and are gathered whole. Knows nothing of streams' states.

use std::borrow::Cow;

use crate::{
    frame::{FIN, HEADER, Header, Kind, MAX_HEADER},
    types::Violation,
};

#[derive(Debug)]
pub(crate) enum Piece<'i> {
    /// A whole frame of a kind that has at most [`SHORT`] bytes of payload; those lie at the front.
    Short(Header, [u8; SHORT]),
    /// A whole control message.
    Control(Cow<'i, [u8]>),
    /// The stream header of an opening; its data follows.
    Open(u32, Cow<'i, [u8]>),
    /// Some bytes of a stream.
    Data(u32, &'i [u8]),
    /// The frame that ends here was the stream's last.
    End(u32),
}

/// Longest payload of a credit, reset or ping.
pub(crate) const SHORT: usize = 8;

#[derive(Debug, Default)]
pub(crate) struct Decoder {
    state: State,
    /// The part of a frame header or short payload that has come.
    short: [u8; SHORT],
    short_len: usize,
    /// The part of a stream header or control message that has come.
    long: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Header,
    /// The payload of a credit, reset or ping.
    Short(Header),
    /// So many bytes of a control message.
    Control(usize),
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
                    let Some(wire) = self.gather_short(input, HEADER) else {
                        return Ok(None);
                    };
                    self.state = start(wire)?;
                }
                State::Short(header) => {
                    let Some(payload) = self.gather_short(input, usize::from(header.length)) else {
                        return Ok(None);
                    };
                    self.state = State::Header;
                    return Ok(Some(Piece::Short(header, payload)));
                }
                State::Control(length) => {
                    let Some(message) = self.gather_long(input, length) else {
                        return Ok(None);
                    };
                    self.state = State::Header;
                    return Ok(Some(Piece::Control(message)));
                }
                State::OpenLength(header) => {
                    let Some([high, low, ..]) = self.gather_short(input, 2) else {
                        return Ok(None);
                    };
                    self.state = open_header(header, u16::from_be_bytes([high, low]))?;
                }
                State::OpenHeader(header, length) => {
                    let Some(bytes) = self.gather_long(input, length) else {
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
                    let bytes = take(input, left);
                    self.state = State::Data(header, left - bytes.len());
                    return Ok(Some(Piece::Data(header.stream, bytes)));
                }
            }
        }
    }

    /// `n` bytes, at most [`SHORT`], at the front of an array.
    fn gather_short(&mut self, input: &mut &[u8], n: usize) -> Option<[u8; SHORT]> {
        if self.short_len == 0
            && let Some((wire, rest)) = input.split_first_chunk()
            && n == SHORT
        {
            *input = rest;
            return Some(*wire);
        }
        let bytes = take(input, n - self.short_len);
        let end = self.short_len + bytes.len();
        self.short[self.short_len..end].copy_from_slice(bytes);
        self.short_len = if end == n { 0 } else { end };
        (end == n).then_some(self.short)
    }

    /// `n` contiguous bytes, borrowed where they lie together in the input.
    fn gather_long<'i>(&mut self, input: &mut &'i [u8], n: usize) -> Option<Cow<'i, [u8]>> {
        if self.long.is_empty() && input.len() >= n {
            return Some(Cow::Borrowed(take(input, n)));
        }
        let bytes = take(input, n - self.long.len());
        self.long.extend_from_slice(bytes);
        (self.long.len() == n).then(|| Cow::Owned(std::mem::take(&mut self.long)))
    }
}

/// At most `n` bytes off the front of `input`.
fn take<'i>(input: &mut &'i [u8], n: usize) -> &'i [u8] {
    let (bytes, rest) = input.split_at(n.min(input.len()));
    *input = rest;
    bytes
}

/// What follows a frame header.
fn start(wire: [u8; HEADER]) -> Result<State, Violation> {
    let header = Header::from_wire(wire).map_err(Violation::UnknownFrame)?;
    if !header.kind.allows(header.length) {
        return Err(bad_length(header));
    }
    let length = usize::from(header.length);
    Ok(match header.kind {
        Kind::Data => State::Data(header, length),
        Kind::Open => State::OpenLength(header),
        Kind::Control => State::Control(length),
        Kind::Credit | Kind::Reset | Kind::Ping => State::Short(header),
    })
}

fn open_header(header: Header, length: u16) -> Result<State, Violation> {
    let length = usize::from(length);
    if length > MAX_HEADER || length + 2 > usize::from(header.length) {
        return Err(bad_length(header));
    }
    Ok(State::OpenHeader(header, length))
}

fn bad_length(header: Header) -> Violation {
    Violation::BadLength {
        kind: header.kind as u8,
        length: header.length,
    }
}

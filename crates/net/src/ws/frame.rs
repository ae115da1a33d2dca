//! WebSocket frames as bytes (RFC 6455 §5.2): building them, and stripping them off in place. No I/O.

use std::io::IoSlice;

/// Which end of the connection this is: a client masks what it sends, a server must not (RFC 6455 §5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It opened the connection.
    Client,
    /// It accepted the connection.
    Server,
}

/// A control frame from the peer that asks for something.
#[derive(Debug)]
pub enum Control<'a> {
    /// To be answered with the same bytes, at most 125 of them.
    Ping(&'a [u8]),
}

/// What a peer did against RFC 6455.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum Violation {
    #[error("the WebSocket peer sent a text frame; this stream carries binary frames only")]
    Text,
    #[error("the WebSocket peer sent a frame with reserved bits or an unknown opcode")]
    Reserved,
    #[error("the WebSocket peer, a client, sent a frame that is not masked")]
    Unmasked,
    #[error("the WebSocket peer, a server, sent a masked frame")]
    Masked,
    #[error("the WebSocket peer sent a control frame that is fragmented or longer than 125 bytes")]
    BadControl,
    #[error("the WebSocket peer mixed up the fragments of a message")]
    BadFragment,
    #[error("the WebSocket peer sent a frame length that is not allowed")]
    BadLength,
}

impl Violation {
    /// The status to close with (RFC 6455 §7.4.1): 1003 for data of a kind not accepted, 1002 for a broken protocol.
    pub(crate) fn code(self) -> u16 {
        if self == Self::Text { 1003 } else { 1002 }
    }
}

/// The opcode of data.
pub const BINARY: u8 = 0x2;
pub(crate) const CLOSE: u8 = 0x8;
pub(crate) const PONG: u8 = 0xa;
pub(crate) const CLOSE_NORMAL: u16 = 1000;
const CONTINUATION: u8 = 0x0;
const TEXT: u8 = 0x1;
const PING: u8 = 0x9;

/// Two bytes, a 64-bit length, a mask.
const MAX_HEADER: usize = 14;
const MAX_CONTROL: usize = 125;

/// Builds one final frame with the first `n` bytes of `bufs` at the front of `to`; returns its length.
///
/// `to` has room for `n` + 14 bytes, `n` is at most 65,535.
pub fn build(to: &mut [u8], role: Role, opcode: u8, bufs: &[IoSlice<'_>], n: usize) -> usize {
    let mask_bit = if role == Role::Client { 0x80 } else { 0 };
    to[0] = 0x80 | opcode;
    let mut at = if n < 126 {
        to[1] = mask_bit | (n as u8);
        2
    } else {
        to[1] = mask_bit | 126;
        to[2..4].copy_from_slice(&(n as u16).to_be_bytes());
        4
    };
    let mask = (role == Role::Client).then(rand::random::<[u8; 4]>);
    if let Some(mask) = mask {
        to[at..at + 4].copy_from_slice(&mask);
        at += 4;
    }
    let payload = at;
    for buf in bufs {
        let take = buf.len().min(payload + n - at);
        to[at..at + take].copy_from_slice(&buf[..take]);
        at += take;
    }
    if let Some(mask) = mask {
        apply_mask(&mut to[payload..at], mask);
    }
    at
}

/// Appends a control frame; `data` is at most 125 bytes.
pub(crate) fn append(out: &mut Vec<u8>, role: Role, opcode: u8, data: &[u8]) {
    let mut frame = [0; MAX_HEADER + MAX_CONTROL];
    let len = build(
        &mut frame,
        role,
        opcode,
        &[IoSlice::new(data)],
        data.len().min(MAX_CONTROL),
    );
    out.extend_from_slice(&frame[..len]);
}

/// XORs `bytes` with `mask`, starting with its first byte (RFC 6455 §5.3).
fn apply_mask(bytes: &mut [u8], mask: [u8; 4]) {
    let wide = u64::from_ne_bytes([
        mask[0], mask[1], mask[2], mask[3], mask[0], mask[1], mask[2], mask[3],
    ]);
    let (chunks, rest) = bytes.as_chunks_mut::<8>();
    for chunk in chunks {
        *chunk = (u64::from_ne_bytes(*chunk) ^ wide).to_ne_bytes();
    }
    for (byte, mask) in rest.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= mask;
    }
}

/// Strips frames off a stream of bytes that comes in pieces of any size.
#[derive(Debug)]
pub struct Unframer {
    role: Role,
    /// Bytes of a header, or of a control frame's payload, that a piece ended in.
    part: [u8; MAX_CONTROL],
    part_len: u8,
    state: State,
    /// A data message is unfinished.
    in_message: bool,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Header,
    Data { left: u64, mask: [u8; 4] },
    Control { opcode: u8, len: u8, mask: [u8; 4] },
    Closed,
}

struct Header {
    fin: bool,
    opcode: u8,
    len: u64,
    mask: [u8; 4],
}

impl Unframer {
    /// For the end that has `role`.
    #[must_use]
    pub fn new(role: Role) -> Self {
        Self {
            role,
            part: [0; MAX_CONTROL],
            part_len: 0,
            state: State::Header,
            in_message: false,
        }
    }

    /// Whether the peer's Close has come: nothing after it counts (RFC 6455 §5.5.1).
    #[must_use]
    pub fn closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    /// Moves the payload found in `bytes` to their front and returns its length; tells `on_control` what to answer.
    ///
    /// # Errors
    /// The violation, with the length of the payload before it.
    pub fn strip(
        &mut self,
        bytes: &mut [u8],
        mut on_control: impl FnMut(Control<'_>),
    ) -> Result<usize, (usize, Violation)> {
        let (mut read, mut written) = (0, 0);
        while read < bytes.len() {
            match self.state {
                State::Header => {
                    read += self
                        .take_header(&bytes[read..])
                        .map_err(|violation| (written, violation))?;
                }
                State::Data { left, mask } => {
                    let n = usize::try_from(left)
                        .unwrap_or(usize::MAX)
                        .min(bytes.len() - read);
                    bytes.copy_within(read..read + n, written);
                    if self.role == Role::Server {
                        apply_mask(&mut bytes[written..written + n], mask);
                    }
                    (read, written) = (read + n, written + n);
                    self.data_taken(left - n as u64, mask, n);
                }
                State::Control { opcode, len, mask } => {
                    let n = usize::from(len - self.part_len).min(bytes.len() - read);
                    self.keep(&bytes[read..read + n]);
                    read += n;
                    if self.part_len == len {
                        self.finish_control(opcode, mask, &mut on_control);
                    }
                }
                State::Closed => break,
            }
            if let State::Control {
                opcode,
                len: 0,
                mask,
            } = self.state
            {
                self.finish_control(opcode, mask, &mut on_control);
            }
        }
        Ok(written)
    }

    fn keep(&mut self, bytes: &[u8]) {
        let at = usize::from(self.part_len);
        self.part[at..at + bytes.len()].copy_from_slice(bytes);
        self.part_len += bytes.len() as u8;
    }

    /// Takes bytes for a header, going on with one begun earlier; returns how many were taken.
    fn take_header(&mut self, bytes: &[u8]) -> Result<usize, Violation> {
        let had = usize::from(self.part_len);
        self.keep(&bytes[..bytes.len().min(MAX_HEADER - had)]);
        let have = usize::from(self.part_len);
        let Some((header, len)) = parse_header(&self.part[..have], self.role)? else {
            return Ok(have - had);
        };
        self.part_len = 0;
        self.begin(&header)?;
        // What was kept beyond the header belongs to the payload and is read again.
        Ok(len - had)
    }

    fn begin(&mut self, header: &Header) -> Result<(), Violation> {
        if header.opcode >= 0x8 {
            self.state = State::Control {
                opcode: header.opcode,
                len: header.len as u8,
                mask: header.mask,
            };
            return Ok(());
        }
        // RFC 6455 §5.4: a message begins with its kind and goes on with continuations only.
        if (header.opcode == CONTINUATION) != self.in_message {
            return Err(Violation::BadFragment);
        }
        self.in_message = !header.fin;
        self.state = match header.len {
            0 => State::Header,
            left => State::Data {
                left,
                mask: header.mask,
            },
        };
        Ok(())
    }

    fn data_taken(&mut self, left: u64, mut mask: [u8; 4], n: usize) {
        mask.rotate_left(n % 4);
        self.state = if left == 0 {
            State::Header
        } else {
            State::Data { left, mask }
        };
    }

    fn finish_control(
        &mut self,
        opcode: u8,
        mask: [u8; 4],
        on_control: &mut impl FnMut(Control<'_>),
    ) {
        let data = &mut self.part[..usize::from(self.part_len)];
        if self.role == Role::Server {
            apply_mask(data, mask);
        }
        if opcode == PING {
            on_control(Control::Ping(data));
        }
        self.part_len = 0;
        self.state = if opcode == CLOSE {
            State::Closed
        } else {
            State::Header
        };
    }
}

/// The header at the front of `bytes` and its length, or `None` if they end before it does.
fn parse_header(bytes: &[u8], own_role: Role) -> Result<Option<(Header, usize)>, Violation> {
    let &[first, second, ..] = bytes else {
        return Ok(None);
    };
    let (fin, opcode) = (first & 0x80 != 0, first & 0x0f);
    let (masked, short) = (second & 0x80 != 0, second & 0x7f);
    if first & 0x70 != 0 || !matches!(opcode, CONTINUATION | TEXT | BINARY | CLOSE | PING | PONG) {
        return Err(Violation::Reserved);
    }
    if opcode == TEXT {
        return Err(Violation::Text);
    }
    match (own_role, masked) {
        (Role::Server, false) => return Err(Violation::Unmasked),
        (Role::Client, true) => return Err(Violation::Masked),
        _ => {}
    }
    if opcode >= 0x8 && (!fin || usize::from(short) > MAX_CONTROL) {
        return Err(Violation::BadControl);
    }
    let (len, at) = match short {
        126 => {
            let Some(&[a, b]) = bytes.get(2..4) else {
                return Ok(None);
            };
            (u64::from(u16::from_be_bytes([a, b])), 4)
        }
        127 => {
            let Some(Ok(wide)) = bytes.get(2..10).map(<[u8; 8]>::try_from) else {
                return Ok(None);
            };
            (u64::from_be_bytes(wide), 10)
        }
        short => (u64::from(short), 2),
    };
    // RFC 6455 §5.2: the most significant bit is 0.
    if len > i64::MAX as u64 {
        return Err(Violation::BadLength);
    }
    if !masked {
        return Ok(Some((
            Header {
                fin,
                opcode,
                len,
                mask: [0; 4],
            },
            at,
        )));
    }
    let Some(Ok(mask)) = bytes.get(at..at + 4).map(<[u8; 4]>::try_from) else {
        return Ok(None);
    };
    Ok(Some((
        Header {
            fin,
            opcode,
            len,
            mask,
        },
        at + 4,
    )))
}

//! Frames (RFC 9114 §7): a machine that takes a stream's bytes in any portions and gives what they mean.
//!
//! Bytes go in with [`Frames::push`], one portion at a time; [`Frames::next`] gives frames until it says `None` and wants more. DATA is passed on as
//! it comes, without a copy; HEADERS and what stands on control streams is collected, up to a bound that is checked against the frame's
//! length before the first byte is kept; frames nobody knows are counted and forgotten (§9).

use bytes::{Buf, Bytes};

use super::{Code, varint};

/// What a stream is for: it decides which frames may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// What a client sends on a request's stream.
    Request,
    /// What a server sends on it.
    Response,
    /// A control stream.
    Control,
}

/// What came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// A part of a body.
    Data(Bytes),
    /// A field section, encoded.
    Headers(Bytes),
    /// Numbers and values of the peer's settings.
    Settings(Vec<(u64, u64)>),
    /// The first stream the peer will not serve.
    Goaway(u64),
    /// How many pushes a client would take.
    MaxPushId(u64),
    /// About one push, of which there are none here.
    CancelPush,
}

/// Reads one stream.
#[derive(Debug)]
pub(crate) struct Frames {
    role: Role,
    /// Bytes that came and were not looked at.
    fresh: Bytes,
    /// The beginning of a frame whose type and length are not complete.
    header: Vec<u8>,
    at: At,
    /// The longest HEADERS frame that is taken.
    most: usize,
    /// Frames without meaning in a row: nobody needs many on a request's stream.
    empty: u32,
    /// Nothing has come yet.
    first: bool,
}

#[derive(Debug)]
enum At {
    Header,
    Data(u64),
    /// Collecting a frame of that type.
    Whole {
        kind: u64,
        left: usize,
        held: Vec<u8>,
    },
    Skip(u64),
}

impl Frames {
    /// `most`: the longest field section in bytes as sent.
    pub(crate) fn new(role: Role, most: usize) -> Self {
        Self {
            role,
            fresh: Bytes::new(),
            header: Vec::new(),
            at: At::Header,
            most,
            empty: 0,
            first: true,
        }
    }

    /// The next portion; only when the last one is used up.
    pub(crate) fn push(&mut self, bytes: Bytes) {
        self.fresh = bytes;
    }

    /// The next frame, or `None` when more bytes are needed.
    ///
    /// # Errors
    /// The code to end the connection with.
    pub(crate) fn next(&mut self) -> Result<Option<Frame>, Code> {
        loop {
            if self.fresh.is_empty() {
                return Ok(None);
            }
            match &mut self.at {
                At::Header => {
                    if let Some(frame) = self.read_header()? {
                        return Ok(Some(frame));
                    }
                }
                At::Data(left) => {
                    let n = self
                        .fresh
                        .len()
                        .min(usize::try_from(*left).unwrap_or(usize::MAX));
                    *left -= n as u64;
                    if *left == 0 {
                        self.at = At::Header;
                    }
                    return Ok(Some(Frame::Data(self.fresh.split_to(n))));
                }
                At::Skip(left) => {
                    let n = self
                        .fresh
                        .len()
                        .min(usize::try_from(*left).unwrap_or(usize::MAX));
                    *left -= n as u64;
                    self.fresh.advance(n);
                    if *left == 0 {
                        self.at = At::Header;
                    }
                }
                At::Whole { kind, left, held } => {
                    let kind = *kind;
                    if held.is_empty() && self.fresh.len() >= *left {
                        let payload = self.fresh.split_to(*left);
                        self.at = At::Header;
                        return whole(kind, payload).map(Some);
                    }
                    let n = self.fresh.len().min(*left);
                    held.extend_from_slice(&self.fresh[..n]);
                    self.fresh.advance(n);
                    *left -= n;
                    if *left == 0 {
                        let payload = std::mem::take(held).into();
                        self.at = At::Header;
                        return whole(kind, payload).map(Some);
                    }
                }
            }
        }
    }

    /// Whether the stream may end here (§7.1: not within a frame).
    pub(crate) fn may_end(&self) -> bool {
        matches!(self.at, At::Header) && self.header.is_empty() && self.fresh.is_empty()
    }

    /// Bytes that are kept until a frame is complete.
    #[cfg(feature = "fuzz")]
    pub(crate) fn held(&self) -> usize {
        match &self.at {
            At::Whole { held, .. } => held.len(),
            _ => self.header.len(),
        }
    }

    /// Takes bytes until type and length of a frame are there. Gives a frame where there is nothing to wait for.
    fn read_header(&mut self) -> Result<Option<Frame>, Code> {
        let (kind, length) = if self.header.is_empty()
            && let Some((kind, length, used)) = kind_and_length(&self.fresh)
        {
            self.fresh.advance(used);
            (kind, length)
        } else {
            // At most 16 bytes, and seldom in two portions.
            let before = self.header.len();
            let n = self.fresh.len().min(HEADER - before);
            self.header.extend_from_slice(&self.fresh[..n]);
            let Some((kind, length, used)) = kind_and_length(&self.header) else {
                self.fresh.advance(n);
                return Ok(None);
            };
            self.fresh.advance(used - before);
            self.header.clear();
            (kind, length)
        };
        self.begin(kind, length)
    }

    fn begin(&mut self, kind: u64, length: u64) -> Result<Option<Frame>, Code> {
        let first = std::mem::take(&mut self.first);
        // §6.2.1, §7.2.4: whatever else there is to say.
        if first && self.role == Role::Control && kind != SETTINGS {
            return Err(Code::MISSING_SETTINGS);
        }
        let most = match (self.role, kind) {
            (Role::Request | Role::Response, DATA) => {
                if length == 0 {
                    self.count_empty()?;
                } else {
                    self.empty = 0;
                    self.at = At::Data(length);
                }
                return Ok(None);
            }
            (Role::Request | Role::Response, HEADERS) => self.most,
            // §7.2.5: no push was allowed.
            (Role::Response, PUSH_PROMISE) => return Err(Code::ID_ERROR),
            (Role::Control, SETTINGS) => MOST_SETTINGS,
            (Role::Control, GOAWAY | MAX_PUSH_ID | CANCEL_PUSH) => 8,
            // §7.2: frames on streams where they must not be, and those of HTTP/2 that have no meaning any more (§7.2.8).
            (_, DATA | HEADERS | CANCEL_PUSH | SETTINGS | PUSH_PROMISE | GOAWAY | MAX_PUSH_ID) => {
                return Err(Code::FRAME_UNEXPECTED);
            }
            (_, 0x02 | 0x06 | 0x08 | 0x09) => return Err(Code::FRAME_UNEXPECTED),
            _ => {
                // On a control stream they go on for as long as the connection does: browsers say priorities there (RFC 9218 §7).
                if self.role != Role::Control {
                    self.count_empty()?;
                }
                if length > 0 {
                    self.at = At::Skip(length);
                }
                return Ok(None);
            }
        };
        self.empty = 0;
        let left = usize::try_from(length).ok().filter(|left| *left <= most);
        let left = left.ok_or(match kind {
            HEADERS => Code::EXCESSIVE_LOAD,
            _ => Code::FRAME_ERROR,
        })?;
        if left == 0 {
            return whole(kind, Bytes::new()).map(Some);
        }
        self.at = At::Whole {
            kind,
            left,
            held: Vec::new(),
        };
        Ok(None)
    }

    fn count_empty(&mut self) -> Result<(), Code> {
        self.empty += 1;
        if self.empty > MOST_EMPTY {
            return Err(Code::EXCESSIVE_LOAD);
        }
        Ok(())
    }
}

fn kind_and_length(bytes: &[u8]) -> Option<(u64, u64, usize)> {
    let (kind, first) = varint::read(bytes)?;
    let (length, second) = varint::read(&bytes[first..])?;
    Some((kind, length, first + second))
}

fn whole(kind: u64, payload: Bytes) -> Result<Frame, Code> {
    match kind {
        HEADERS => Ok(Frame::Headers(payload)),
        SETTINGS => settings(&payload).map(Frame::Settings),
        _ => match varint::read(&payload) {
            Some((value, length)) if length == payload.len() => Ok(match kind {
                GOAWAY => Frame::Goaway(value),
                MAX_PUSH_ID => Frame::MaxPushId(value),
                _ => Frame::CancelPush,
            }),
            _ => Err(Code::FRAME_ERROR),
        },
    }
}

fn settings(mut payload: &[u8]) -> Result<Vec<(u64, u64)>, Code> {
    let mut settings: Vec<(u64, u64)> = Vec::new();
    while !payload.is_empty() {
        let (id, value, used) = kind_and_length(payload).ok_or(Code::FRAME_ERROR)?;
        payload = &payload[used..];
        // §7.2.4: each once; §7.2.4.1: not those of HTTP/2.
        let again = settings.iter().any(|(known, _)| *known == id);
        if again || matches!(id, 0x00 | 0x02..=0x05) {
            return Err(Code::SETTINGS_ERROR);
        }
        settings.push((id, value));
    }
    Ok(settings)
}

/// Appends a frame's type and length.
pub(crate) fn write_header(into: &mut Vec<u8>, kind: u64, length: usize) {
    varint::write(into, kind);
    varint::write(into, length as u64);
}

/// Begins a HEADERS frame, with room for its length.
pub(crate) fn begin_headers(into: &mut Vec<u8>) {
    into.extend_from_slice(&[HEADERS as u8, 0, 0]);
}

/// Ends the HEADERS frame that began at `start`. Its length is said in two bytes although one might do (RFC 9000 §16 allows it), so that
/// what is written stays where it is.
pub(crate) fn end_headers(into: &mut Vec<u8>, start: usize) {
    let length = into.len() - start - 3;
    match u16::try_from(length) {
        Ok(short) if short < 0x4000 => {
            into[start + 1..start + 3].copy_from_slice(&(0x4000 | short).to_be_bytes());
        }
        _ => {
            let mut head = Vec::new();
            write_header(&mut head, HEADERS, length);
            into.splice(start..start + 3, head);
        }
    }
}

pub(crate) const DATA: u64 = 0x00;
pub(crate) const HEADERS: u64 = 0x01;
pub(crate) const CANCEL_PUSH: u64 = 0x03;
pub(crate) const SETTINGS: u64 = 0x04;
pub(crate) const PUSH_PROMISE: u64 = 0x05;
pub(crate) const GOAWAY: u64 = 0x07;
pub(crate) const MAX_PUSH_ID: u64 = 0x0d;

/// Two integers.
const HEADER: usize = 16;
/// A dozen settings are known; peers add a few that mean nothing.
pub(crate) const MOST_SETTINGS: usize = 1024;
/// A frame that says nothing costs its sender two bytes.
const MOST_EMPTY: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(role: Role, portions: &[&[u8]]) -> Result<Vec<Frame>, Code> {
        let mut frames = Frames::new(role, 100);
        let mut seen = Vec::new();
        for portion in portions {
            frames.push(Bytes::copy_from_slice(portion));
            while let Some(frame) = frames.next()? {
                seen.push(frame);
            }
        }
        assert!(frames.may_end());
        Ok(seen)
    }

    #[test]
    fn portions_do_not_matter() {
        // An unknown frame, HEADERS, DATA in a long form, DATA.
        let bytes = b"\x21\x03abc\x01\x02hi\x00\x40\x03one\x00\x01!";
        for cut in 0..bytes.len() {
            let (one, two) = bytes.split_at(cut);
            let seen = read(Role::Request, &[one, two]).unwrap();
            assert_eq!(seen[0], Frame::Headers(Bytes::from_static(b"hi")));
            let body: Vec<u8> = seen[1..]
                .iter()
                .flat_map(|frame| match frame {
                    Frame::Data(data) => data.to_vec(),
                    other => panic!("{other:?}"),
                })
                .collect();
            assert_eq!(body, b"one!");
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert!(read(Role::Request, &single).is_ok());
    }

    #[test]
    fn headers_of_any_length_are_read_as_they_were_written() {
        for length in [0, 1, 63, 64, 0x3fff, 0x4000, 0x1_0000] {
            let mut bytes = vec![DATA as u8, 1, b'!'];
            let start = bytes.len();
            begin_headers(&mut bytes);
            bytes.resize(bytes.len() + length, 7);
            end_headers(&mut bytes, start);
            let mut frames = Frames::new(Role::Request, length);
            frames.push(bytes.into());
            assert_eq!(
                frames.next(),
                Ok(Some(Frame::Data(Bytes::from_static(b"!"))))
            );
            assert_eq!(
                frames.next(),
                Ok(Some(Frame::Headers(vec![7; length].into())))
            );
            assert!(frames.may_end());
        }
    }

    #[test]
    fn an_end_within_a_frame_is_none() {
        for bytes in [
            &b"\x01\x05abc"[..],
            b"\x00\x05abc",
            b"\x21\x05abc",
            b"\x40",
            b"\x00",
        ] {
            let mut frames = Frames::new(Role::Request, 100);
            frames.push(Bytes::copy_from_slice(bytes));
            while frames.next().unwrap().is_some() {}
            assert!(!frames.may_end(), "{bytes:?}");
        }
    }

    #[test]
    fn lengths_are_bounded_before_anything_is_kept() {
        let huge = b"\x01\xc0\x00\x00\x00\xff\xff\xff\xff";
        assert_eq!(read(Role::Request, &[huge]), Err(Code::EXCESSIVE_LOAD));
        let huge = b"\x04\xc0\x00\x00\x00\xff\xff\xff\xff";
        assert_eq!(read(Role::Control, &[huge]), Err(Code::FRAME_ERROR));
        let nothing = [0x00, 0x00].repeat(100);
        assert_eq!(read(Role::Request, &[&nothing]), Err(Code::EXCESSIVE_LOAD));
    }

    #[test]
    fn frames_out_of_place_end_the_connection() {
        for (role, kinds) in [
            (Role::Request, &[3u8, 4, 5, 7, 13, 2, 6, 8, 9][..]),
            (Role::Response, &[3, 4, 7, 13, 2, 6, 8, 9][..]),
            (Role::Control, &[0, 1, 5, 2, 6, 8, 9][..]),
        ] {
            for kind in kinds {
                let before: &[u8] = if role == Role::Control {
                    b"\x04\x00"
                } else {
                    b""
                };
                let read = read(role, &[before, &[*kind, 1, 0]]);
                assert_eq!(read, Err(Code::FRAME_UNEXPECTED), "{role:?} {kind}");
            }
        }
    }

    #[test]
    fn settings_come_before_all_else() {
        for kind in [0, 1, 3, 5, 7, 13, 0x21] {
            let read = read(Role::Control, &[&[kind, 1, 0, 4, 0]]);
            assert_eq!(read, Err(Code::MISSING_SETTINGS), "{kind}");
        }
    }

    #[test]
    fn priorities_may_be_said_for_ever() {
        // PRIORITY_UPDATE of a request, as browsers send it.
        let update = [&b"\x80\x0f\x07\x00\x04\x00u=1"[..]; 1000].concat();
        let seen = read(Role::Control, &[b"\x04\x00", &update, b"\x07\x01\x04"]).unwrap();
        assert_eq!(seen, [Frame::Settings(Vec::new()), Frame::Goaway(4)]);
    }

    #[test]
    fn settings_come_once_each() {
        let good = read(Role::Control, &[b"\x04\x04\x01\x00\x33\x01"]).unwrap();
        assert_eq!(good, [Frame::Settings(vec![(1, 0), (0x33, 1)])]);
        let twice = read(Role::Control, &[b"\x04\x04\x01\x00\x01\x01"]);
        assert_eq!(twice, Err(Code::SETTINGS_ERROR));
        let http2 = read(Role::Control, &[b"\x04\x02\x03\x00"]);
        assert_eq!(http2, Err(Code::SETTINGS_ERROR));
        assert_eq!(
            read(Role::Control, &[b"\x04\x01\x40"]),
            Err(Code::FRAME_ERROR)
        );
        assert_eq!(
            read(Role::Control, &[b"\x04\x00\x07\x02\x04\x04"]),
            Err(Code::FRAME_ERROR)
        );
    }
}

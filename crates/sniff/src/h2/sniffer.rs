//! Walks the frames up to the end of the first header block, and picks the authority out of its fields.
//!
//! The state is the position of the next frame and the pieces of a header block that came in several frames. A frame is judged
//! when its header is complete, a header block when its last frame is, so an answer does not depend on how the bytes came in.

use std::ops::Range;

use super::{H2Error, HpackError, PREFACE, hpack};
use crate::{
    host::{Authority, AuthorityError},
    http::{RoutedBy, agree},
};

/// Bounds of what comes before the end of the first header block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes from the preface to the end of the first header block.
    pub head: usize,
    /// Most bytes of decoded fields, counted as in SETTINGS_MAX_HEADER_LIST_SIZE (RFC 9113 §6.5.2): 32 more for each.
    pub list: usize,
}

impl Default for Limits {
    /// 16 KiB, 64 KiB.
    fn default() -> Self {
        Self {
            head: 16 * 1024,
            list: 64 * 1024,
        }
    }
}

/// Where the first request of a connection wants to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The authority that routes: `:authority`, or else `host`, or the field that was asked for. None when there is none.
    pub authority: Option<Authority>,
    /// Where the authority was found; `:authority` counts as the target.
    pub routed_by: Option<RoutedBy>,
    /// The stream of the request.
    pub stream: u32,
    /// Where the first acknowledgement of SETTINGS is in the buffer, when the client sent one before its request.
    pub settings_ack: Option<Range<usize>>,
    /// Length in bytes of what was read. Bytes behind it belong to the connection too.
    pub len: usize,
}

/// Reads the first request from a growing buffer.
#[derive(Clone, Debug)]
pub struct HeadSniffer {
    limits: Limits,
    route_by: Option<Box<str>>,
    /// Where the next frame begins. May be behind the end of the buffer.
    next: usize,
    settings_seen: bool,
    settings_ack: Option<Range<usize>>,
    /// The header block so far, once its first frame is in.
    block: Option<Block>,
    end: Option<Result<Head, H2Error>>,
}

#[derive(Clone, Debug)]
struct Block {
    stream: u32,
    bytes: Vec<u8>,
}

const FRAME_HEADER: usize = 9;
/// RFC 9113 §4.2: as long as the server has not said otherwise.
const MAX_FRAME: usize = 1 << 14;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const ACK: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const WITH_PRIORITY: u8 = 0x20;

#[derive(Clone, Copy)]
struct Frame {
    length: usize,
    kind: u8,
    flags: u8,
    stream: u32,
}

impl HeadSniffer {
    /// A sniffer that has seen nothing and routes by `:authority` and `host`.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            route_by: None,
            next: 0,
            settings_seen: false,
            settings_ack: None,
            block: None,
            end: None,
        }
    }

    /// Routes by the field called `name` (whatever its case) and by nothing else.
    #[must_use]
    pub fn route_by(mut self, name: &str) -> Self {
        self.route_by =
            (!name.eq_ignore_ascii_case("host")).then(|| name.to_ascii_lowercase().into());
        self
    }

    /// Looks at what is new in `buf`, the whole buffer from the first byte of the preface. `None`: the first request is not
    /// complete. Once it is, or is refused, the answer stays the same.
    ///
    /// # Errors
    /// The connection is refused; see [`H2Error`].
    pub fn advance(&mut self, buf: &[u8]) -> Result<Option<Head>, H2Error> {
        if self.end.is_none() {
            self.end = self.walk(buf).transpose();
        }
        self.end.clone().transpose()
    }

    /// Whether the client has said all that it may say before it knows the server's settings, and has begun nothing since. `buf`
    /// is what was last given to [`advance`](Self::advance).
    #[must_use]
    pub fn waits_for_server(&self, buf: &[u8]) -> bool {
        self.end.is_none() && self.settings_seen && self.block.is_none() && self.next == buf.len()
    }

    fn walk(&mut self, buf: &[u8]) -> Result<Option<Head>, H2Error> {
        let window = &buf[..buf.len().min(self.limits.head)];
        let starved = if buf.len() < self.limits.head {
            Ok(None)
        } else {
            Err(H2Error::TooLong)
        };
        if self.next < PREFACE.len() {
            let n = window.len().min(PREFACE.len());
            if window[..n] != PREFACE[..n] {
                return Err(H2Error::NotPreface);
            }
            if n < PREFACE.len() {
                return starved;
            }
            self.next = PREFACE.len();
        }
        loop {
            let Some(header) = window
                .get(self.next..)
                .and_then(|b| b.first_chunk::<FRAME_HEADER>())
            else {
                return starved;
            };
            let frame = Frame::read(header);
            let (start, end) = (
                self.next + FRAME_HEADER,
                self.next + FRAME_HEADER + frame.length,
            );
            self.check(&frame)?;
            if end > self.limits.head {
                return Err(H2Error::TooLong);
            }
            if matches!(frame.kind, HEADERS | CONTINUATION) {
                let Some(payload) = window.get(start..end) else {
                    return starved;
                };
                self.next = end;
                if let Some(head) = self.header_frame(&frame, payload)? {
                    return Ok(Some(head));
                }
            } else {
                if frame.kind == SETTINGS && frame.flags & ACK != 0 && self.settings_ack.is_none() {
                    self.settings_ack = Some(self.next..end);
                }
                self.settings_seen = true;
                self.next = end;
            }
        }
    }

    /// Judges a frame by its header.
    fn check(&self, frame: &Frame) -> Result<(), H2Error> {
        let in_place = match frame.kind {
            CONTINUATION => self
                .block
                .as_ref()
                .is_some_and(|block| block.stream == frame.stream),
            _ if self.block.is_some() => false,
            SETTINGS => self.settings_seen || frame.flags & ACK == 0,
            DATA | RST_STREAM | PUSH_PROMISE | GOAWAY => false,
            _ => self.settings_seen,
        };
        if !in_place {
            return Err(H2Error::UnexpectedFrame);
        }
        let good = match frame.kind {
            HEADERS => frame.stream % 2 == 1,
            PRIORITY => frame.length == 5 && frame.stream != 0,
            SETTINGS if frame.flags & ACK != 0 => frame.length == 0 && frame.stream == 0,
            SETTINGS => frame.length.is_multiple_of(6) && frame.stream == 0,
            PING => frame.length == 8 && frame.stream == 0,
            WINDOW_UPDATE => frame.length == 4,
            _ => true,
        };
        if good && frame.length <= MAX_FRAME {
            Ok(())
        } else {
            Err(H2Error::BadFrame)
        }
    }

    /// Takes a piece of the header block; gives the head when it was the last one.
    fn header_frame(&mut self, frame: &Frame, payload: &[u8]) -> Result<Option<Head>, H2Error> {
        let payload = if frame.kind == HEADERS {
            fragment(frame.flags, payload)?
        } else {
            payload
        };
        let last = frame.flags & END_HEADERS != 0;
        if last && self.block.is_none() {
            return self.head(frame.stream, payload).map(Some);
        }
        let block = self.block.get_or_insert_with(|| Block {
            stream: frame.stream,
            bytes: Vec::new(),
        });
        block.bytes.extend_from_slice(payload);
        if !last {
            return Ok(None);
        }
        let Some(block) = self.block.take() else {
            return Ok(None);
        };
        self.head(block.stream, &block.bytes).map(Some)
    }

    fn head(&self, stream: u32, block: &[u8]) -> Result<Head, H2Error> {
        let mut fields = Routing {
            route_by: self.route_by.as_deref(),
            ..Routing::default()
        };
        hpack::decode(block, self.limits.list, |name, value| {
            fields.add(name, value)
        })?;
        let (authority, routed_by) = fields.choose()?.unzip();
        Ok(Head {
            authority,
            routed_by,
            stream,
            settings_ack: self.settings_ack.clone(),
            len: self.next,
        })
    }
}

impl Frame {
    fn read(&[a, b, c, kind, flags, ref stream @ ..]: &[u8; FRAME_HEADER]) -> Self {
        let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        Self {
            length,
            kind,
            flags,
            stream: u32::from_be_bytes(*stream) & 0x7FFF_FFFF,
        }
    }
}

/// The part of a HEADERS frame that belongs to the header block (RFC 9113 §6.2).
fn fragment(flags: u8, mut payload: &[u8]) -> Result<&[u8], H2Error> {
    let mut padding = 0;
    if flags & PADDED != 0 {
        let (&length, rest) = payload.split_first().ok_or(H2Error::BadFrame)?;
        (padding, payload) = (usize::from(length), rest);
    }
    if flags & WITH_PRIORITY != 0 {
        payload = payload.get(5..).ok_or(H2Error::BadFrame)?;
    }
    payload
        .len()
        .checked_sub(padding)
        .and_then(|n| payload.get(..n))
        .ok_or(H2Error::BadFrame)
}

/// The fields that matter, as they are found.
#[derive(Default)]
struct Routing<'r> {
    route_by: Option<&'r str>,
    pseudo_seen: u8,
    regular_seen: bool,
    authority: Option<Authority>,
    host: Option<Authority>,
    host_seen: bool,
    named: Option<Authority>,
    named_seen: bool,
}

impl Routing<'_> {
    fn add(&mut self, name: &[u8], value: &[u8]) -> Result<(), H2Error> {
        if name.first() == Some(&b':') {
            // RFC 9113 §8.3.1; :protocol is that of RFC 8441.
            let known: [&[u8]; 5] = [
                b":authority",
                b":method",
                b":path",
                b":scheme",
                b":protocol",
            ];
            let bit = known
                .iter()
                .position(|known| *known == name)
                .map(|i| 1 << i)
                .ok_or(H2Error::BadPseudoField)?;
            if self.regular_seen || self.pseudo_seen & bit != 0 {
                return Err(H2Error::BadPseudoField);
            }
            self.pseudo_seen |= bit;
            if name == known[0] {
                self.authority = authority(value)?;
            }
            return Ok(());
        }
        self.regular_seen = true;
        if name == b"host" {
            if std::mem::replace(&mut self.host_seen, true) {
                return Err(H2Error::SeveralHosts);
            }
            self.host = authority(value)?;
        } else if self
            .route_by
            .is_some_and(|wanted| wanted.as_bytes() == name)
        {
            if std::mem::replace(&mut self.named_seen, true) {
                return Err(H2Error::SeveralHosts);
            }
            self.named = authority(value)?;
        }
        Ok(())
    }

    fn choose(self) -> Result<Option<(Authority, RoutedBy)>, H2Error> {
        if let (Some(authority), Some(host)) = (&self.authority, &self.host)
            && !agree(authority, host, None)
        {
            return Err(H2Error::HostMismatch);
        }
        Ok(match (self.route_by, self.authority, self.host) {
            (Some(_), ..) => self.named.map(|named| (named, RoutedBy::NamedField)),
            (None, Some(authority), _) => Some((authority, RoutedBy::Target)),
            (None, None, host) => host.map(|host| (host, RoutedBy::Host)),
        })
    }
}

fn authority(value: &[u8]) -> Result<Option<Authority>, H2Error> {
    if value.is_empty() {
        return Ok(None);
    }
    let text =
        std::str::from_utf8(value).map_err(|_| H2Error::BadHost(AuthorityError::BadCharacter))?;
    Authority::parse(text).map(Some).map_err(H2Error::BadHost)
}

impl From<HpackError> for H2Error {
    fn from(error: HpackError) -> Self {
        Self::Hpack(error)
    }
}

//! An answer, as this proxy has written it in HTTP/1.1's words, for a stream of HTTP/2 or 3.
//!
//! What it may have was decided when it was read or made, and `h1` has written it: here its lines are only found again. Whole heads are written at once.

use std::io;

use bytes::Bytes;
use h1::BodyDecoder;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};

use super::{Asked, UNLIMITED, invalid};

/// Takes an answer apart, from its head to its end.
#[derive(Debug)]
pub(crate) struct Telling {
    state: State,
    head_only: bool,
    websocket: bool,
}

#[derive(Debug)]
enum State {
    Head,
    /// So many bytes are left.
    Sized(u64),
    Chunks(Box<BodyDecoder>),
    Tunnel,
    Ended,
}

/// What a stream is to send.
#[derive(Debug)]
pub(crate) enum Piece {
    /// It was framing, or is not for streams.
    Nothing,
    /// The answer's head; `tunnel`: a WebSocket was agreed on.
    Head {
        response: Response<()>,
        ends: bool,
        tunnel: bool,
    },
    Data {
        data: Bytes,
        ends: bool,
    },
    /// The end of a body; there may be trailers.
    End(HeaderMap),
}

impl Telling {
    pub(crate) fn to(asked: &Asked) -> Self {
        Self {
            state: State::Head,
            head_only: asked.is_head_only(),
            websocket: asked.is_websocket(),
        }
    }

    /// The head was taken, and not the end.
    pub(crate) fn is_open(&self) -> bool {
        !matches!(self.state, State::Head | State::Ended)
    }

    /// Ends a tunnel: whether it was one.
    pub(crate) fn end_tunnel(&mut self) -> bool {
        let tunnel = matches!(self.state, State::Tunnel);
        if tunnel {
            self.state = State::Ended;
        }
        tunnel
    }

    /// Nothing more is taken.
    pub(crate) fn give_up(&mut self) {
        self.state = State::Ended;
    }

    /// Takes from the front of `bytes`, of a body at most `most` bytes: how many, and what they are.
    pub(crate) fn take(&mut self, bytes: &[u8], most: usize) -> io::Result<(usize, Piece)> {
        let some = &bytes[..bytes.len().min(most)];
        match &mut self.state {
            State::Head => self.head(bytes),
            State::Ended => Err(io::ErrorKind::BrokenPipe.into()),
            State::Tunnel => {
                let data = Bytes::copy_from_slice(some);
                Ok((some.len(), Piece::Data { data, ends: false }))
            }
            State::Sized(left) => {
                let n = usize::try_from(*left).map_or(some.len(), |left| left.min(some.len()));
                *left -= n as u64;
                let ends = *left == 0;
                if ends {
                    self.state = State::Ended;
                }
                let data = Bytes::copy_from_slice(&some[..n]);
                Ok((n, Piece::Data { data, ends }))
            }
            State::Chunks(decoder) => {
                let decoded = decoder.decode(some).map_err(|_| invalid())?;
                let mut taken = decoded.consumed;
                let mut ends = decoded.end;
                if decoded.data.is_empty() {
                    if !ends {
                        return Ok((taken, Piece::Nothing));
                    }
                    let trailers = map_of(decoder.trailers().iter());
                    self.state = State::Ended;
                    return Ok((taken, Piece::End(trailers)));
                }
                let data = Bytes::copy_from_slice(&some[decoded.data]);
                // The end of a short body travels with it.
                if &some[taken..] == LAST_CHUNK {
                    ends = decoder.decode(LAST_CHUNK).map_err(|_| invalid())?.end;
                    taken += LAST_CHUNK.len();
                }
                if ends {
                    self.state = State::Ended;
                }
                Ok((taken, Piece::Data { data, ends }))
            }
        }
    }

    fn head(&mut self, bytes: &[u8]) -> io::Result<(usize, Piece)> {
        // What is behind a head is little, as a rule; else it is not kept with the head's values.
        let text = match bytes.len() {
            ..=SHORT => Bytes::copy_from_slice(bytes),
            _ => {
                let end = memchr::memmem::find(bytes, b"\r\n\r\n").ok_or_else(invalid)?;
                Bytes::copy_from_slice(&bytes[..end + 4])
            }
        };
        let status = status(&text).ok_or_else(invalid)?;
        let tunnel = status == 101;
        let mut headers = HeaderMap::with_capacity(USUAL_FIELDS);
        let mut body = State::Ended;
        let mut lines = Lines::of(&text);
        while let Some((name, value)) = lines.next()? {
            let name = match own(name) {
                Own::Connection => continue,
                Own::Coding => {
                    body =
                        State::Chunks(Box::new(BodyDecoder::of(h1::Framing::Chunked, &UNLIMITED)));
                    continue;
                }
                Own::Accept if tunnel => continue,
                Own::Length => {
                    let length = std::str::from_utf8(value)
                        .ok()
                        .and_then(|text| text.parse().ok());
                    body = State::Sized(length.ok_or_else(invalid)?);
                    header::CONTENT_LENGTH
                }
                Own::Accept | Own::No => match name_of(name) {
                    Some(name) => name,
                    None => continue,
                },
            };
            if let Ok(value) = HeaderValue::from_maybe_shared(text.slice_ref(value)) {
                headers.append(name, value);
            }
        }
        let length = lines.at;
        if status < 200 && !tunnel {
            return Ok((length, Piece::Nothing));
        }
        if tunnel && !self.websocket {
            return Err(invalid());
        }
        let bodiless = self.head_only || matches!(status, 204 | 304);
        self.state = match body {
            _ if tunnel => State::Tunnel,
            State::Sized(0) => State::Ended,
            _ if bodiless => State::Ended,
            State::Ended => return Err(invalid()),
            body => body,
        };
        let mut response = Response::new(());
        let status = if tunnel { 200 } else { status };
        *response.status_mut() = StatusCode::from_u16(status).map_err(|_| invalid())?;
        *response.headers_mut() = headers;
        let ends = matches!(self.state, State::Ended);
        let head = Piece::Head {
            response,
            ends,
            tunnel,
        };
        Ok((length, head))
    }
}

/// Of a line that `h1` has written.
fn status(text: &[u8]) -> Option<u16> {
    let digits = text.get(9..12)?;
    digits.iter().try_fold(0, |status, digit| {
        let digit = digit.wrapping_sub(b'0');
        (digit < 10).then(|| status * 10 + u16::from(digit))
    })
}

/// The fields of a head that `h1` has written: `name: value`, CRLF.
struct Lines<'t> {
    text: &'t [u8],
    /// Where the next line begins.
    at: usize,
}

impl<'t> Lines<'t> {
    fn of(text: &'t [u8]) -> Self {
        let at = memchr::memchr(b'\n', text).map_or(text.len(), |end| end + 1);
        Self { text, at }
    }

    /// `None` behind the empty line that ends the head.
    fn next(&mut self) -> io::Result<Option<(&'t [u8], &'t [u8])>> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        if let [b'\r', b'\n', ..] = rest {
            self.at += 2;
            return Ok(None);
        }
        let colon = memchr::memchr(b':', rest).ok_or_else(invalid)?;
        let value = rest.get(colon + 2..).ok_or_else(invalid)?;
        let end = memchr::memchr(b'\r', value).ok_or_else(invalid)?;
        self.at += colon + 2 + end + 2;
        Ok(Some((&rest[..colon], &value[..end])))
    }
}

/// Fields that are the connection's, or mean something else on a stream.
enum Own {
    No,
    /// Not for streams at all.
    Connection,
    Coding,
    Length,
    Accept,
}

fn own(name: &[u8]) -> Own {
    let is = |known: &[u8], own| match name.eq_ignore_ascii_case(known) {
        true => own,
        false => Own::No,
    };
    match name.len() {
        7 => is(b"upgrade", Own::Connection),
        10 if name[0] | 0x20 == b'k' => is(b"keep-alive", Own::Connection),
        10 => is(b"connection", Own::Connection),
        14 => is(b"content-length", Own::Length),
        16 => is(b"proxy-connection", Own::Connection),
        17 => is(b"transfer-encoding", Own::Coding),
        18 => is(b"proxy-authenticate", Own::Connection),
        20 => is(b"sec-websocket-accept", Own::Accept),
        _ => Own::No,
    }
}

/// Names as servers usually write them cost nothing to find.
fn name_of(name: &[u8]) -> Option<HeaderName> {
    Some(match name {
        b"Date" | b"date" => header::DATE,
        b"ETag" | b"etag" => header::ETAG,
        b"Vary" | b"vary" => header::VARY,
        b"Server" | b"server" => header::SERVER,
        b"Expires" | b"expires" => header::EXPIRES,
        b"Location" | b"location" => header::LOCATION,
        b"Set-Cookie" | b"set-cookie" => header::SET_COOKIE,
        b"Content-Type" | b"content-type" => header::CONTENT_TYPE,
        b"Last-Modified" | b"last-modified" => header::LAST_MODIFIED,
        b"Cache-Control" | b"cache-control" => header::CACHE_CONTROL,
        b"Accept-Ranges" | b"accept-ranges" => header::ACCEPT_RANGES,
        b"Content-Encoding" | b"content-encoding" => header::CONTENT_ENCODING,
        other => return HeaderName::from_bytes(other).ok(),
    })
}

fn map_of<'a>(fields: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in fields {
        if let (Some(name), Ok(value)) = (name_of(name), HeaderValue::from_bytes(value)) {
            map.append(name, value);
        }
    }
    map
}

/// Behind the data of the last chunk but one, if no trailers follow.
const LAST_CHUNK: &[u8] = b"\r\n0\r\n\r\n";
/// A head with a body this short is kept as one.
const SHORT: usize = 2 << 10;
/// So that the map of most answers grows once.
const USUAL_FIELDS: usize = 8;

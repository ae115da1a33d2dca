//! A stream's request in HTTP/1.1's words.

use std::io::Write as _;

use bytes::{Buf, Bytes};
use h1::{Limits, RequestError, RequestHead};
use http::{HeaderMap, Method, header, request::Parts};
use tokio::io::ReadBuf;

/// What a stream asks for, not yet held to HTTP/1.1's rules.
#[derive(Debug)]
pub(crate) struct Asked {
    parts: Parts,
    websocket: bool,
}

/// How a request's body is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Chunks,
    Plain,
    /// Nothing more is said, whatever comes.
    Ended,
}

/// A request's body, as HTTP/1.1 frames it. Holds one piece of it at most.
#[derive(Debug)]
pub(crate) struct Reading {
    framing: Framing,
    made: Bytes,
}

impl Asked {
    /// `websocket`: by an extended CONNECT (RFC 8441, RFC 9220).
    pub(crate) fn new(parts: Parts, websocket: bool) -> Self {
        Self { parts, websocket }
    }

    pub(crate) fn is_head_only(&self) -> bool {
        self.parts.method == Method::HEAD
    }

    pub(crate) fn is_websocket(&self) -> bool {
        self.websocket
    }

    /// Puts the head together in `out`, for `head` to view; `ended`: it has no body. Names and values are what `http` allows; all else that
    /// HTTP/1.1 refuses is refused here.
    pub(crate) fn compose(
        &self,
        ended: bool,
        limits: &Limits,
        head: &mut RequestHead,
        out: &mut Vec<u8>,
    ) -> Result<Reading, RequestError> {
        let Parts {
            method,
            uri,
            headers,
            ..
        } = &self.parts;
        let method = match self.websocket {
            true => "GET",
            false => method.as_str(),
        };
        let target = uri.path_and_query().map_or("/", |target| target.as_str());
        let mut composer = head.compose(method.as_bytes(), target.as_bytes(), limits, out)?;
        // RFC 9113 §8.3.1: they must agree; a second field is refused, and an empty one.
        let authority = uri
            .authority()
            .map(|authority| authority.as_str().as_bytes());
        let mut hosts = headers.get_all(header::HOST).iter();
        let (host, another) = (hosts.next(), hosts.next());
        match authority {
            Some(authority) => composer.field(b"host", authority)?,
            None if host.is_none() => composer.field(b"host", b"")?,
            None => {}
        }
        let said = authority.filter(|_| another.is_none());
        let mut sized = None;
        let mut cookies = Vec::new();
        for (name, value) in headers {
            let value = value.as_bytes();
            match name.as_str() {
                "host" if said.is_some_and(|said| said.eq_ignore_ascii_case(value)) => {}
                "transfer-encoding" | "connection" | "upgrade" => {}
                "sec-websocket-key" if self.websocket => {}
                // RFC 9113 §8.2.3: crumbs are put together.
                "cookie" => {
                    if !cookies.is_empty() {
                        cookies.extend_from_slice(b"; ");
                    }
                    cookies.extend_from_slice(value);
                }
                "content-length" => {
                    let none = value == b"0";
                    sized.get_or_insert(!none);
                    // Complete as it stands for HTTP/1.1, though data may follow that makes it malformed (RFC 9113 §8.1.1): its end is awaited.
                    if !none || ended {
                        composer.field(b"content-length", value)?;
                    }
                }
                name => composer.field(name.as_bytes(), value)?,
            }
        }
        if !cookies.is_empty() {
            composer.field(b"cookie", &cookies)?;
        }
        let framing = if self.websocket {
            let key: [u8; 16] = rand::random();
            composer.field(b"connection", b"upgrade")?;
            composer.field(b"upgrade", b"websocket")?;
            composer.field(b"sec-websocket-key", &base64(&key))?;
            // Nothing is read before the tunnel is there.
            Framing::Ended
        } else if ended {
            Framing::Ended
        } else if sized == Some(true) {
            Framing::Plain
        } else {
            composer.field(b"transfer-encoding", b"chunked")?;
            Framing::Chunks
        };
        composer.finish()?;
        Ok(Reading {
            framing,
            made: Bytes::new(),
        })
    }
}

impl Reading {
    /// Nothing was asked.
    pub(crate) fn nothing() -> Self {
        Self {
            framing: Framing::Ended,
            made: Bytes::new(),
        }
    }

    /// From now on bytes pass as they are.
    pub(crate) fn open(&mut self) {
        self.framing = Framing::Plain;
    }

    /// Whether trailers have a place in it: a body whose length was said has none for them.
    pub(crate) fn has_trailers(&self) -> bool {
        self.framing == Framing::Chunks
    }

    /// Hands out what there is. False if another piece has to be [taken](Self::take) first.
    pub(crate) fn read(&mut self, buffer: &mut ReadBuf<'_>) -> bool {
        if self.made.is_empty() {
            return self.framing == Framing::Ended;
        }
        let n = self.made.len().min(buffer.remaining());
        buffer.put_slice(&self.made[..n]);
        self.made.advance(n);
        true
    }

    /// A piece of the body; only when there is nothing to [read](Self::read).
    pub(crate) fn take(&mut self, data: Bytes) {
        self.made = match self.framing {
            Framing::Chunks if !data.is_empty() => chunk(&data),
            _ => data,
        };
    }

    /// Its end.
    pub(crate) fn end(&mut self, trailers: Option<&HeaderMap>) {
        if self.framing == Framing::Chunks {
            let mut made = b"0\r\n".to_vec();
            for (name, value) in trailers.into_iter().flatten() {
                for piece in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                    made.extend_from_slice(piece);
                }
            }
            made.extend_from_slice(b"\r\n");
            self.made = made.into();
        }
        self.framing = Framing::Ended;
    }
}

fn chunk(data: &Bytes) -> Bytes {
    let mut out = Vec::with_capacity(data.len() + 12);
    let _ = write!(out, "{:x}\r\n", data.len());
    out.extend_from_slice(data);
    out.extend_from_slice(b"\r\n");
    out.into()
}

fn base64(bytes: &[u8; 16]) -> Vec<u8> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = Vec::with_capacity(24);
    for three in bytes.chunks(3) {
        let group = u32::from(three[0]) << 16
            | u32::from(three.get(1).copied().unwrap_or_default()) << 8
            | u32::from(three.get(2).copied().unwrap_or_default());
        for n in 0..4 {
            let six = (group >> (18 - 6 * n) & 63) as usize;
            out.push(if n > three.len() { b'=' } else { ALPHABET[six] });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_said_in_base64() {
        assert_eq!(base64(b"the sample nonce"), b"dGhlIHNhbXBsZSBub25jZQ==");
    }
}

//! A stream's request and answer in HTTP/1.1's words and back: the same for HTTP/2 and HTTP/3.

use std::io::{self, Write as _};

use bytes::Bytes;
use h1::Awaiting;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};

/// How a request's body is said in HTTP/1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    Chunks,
    Plain,
    Trailers,
    Ended,
}

/// What the answer is read with: of the request only what its framing depends on.
pub(crate) fn awaiting(head_only: bool, websocket: bool) -> Awaiting<()> {
    let method: &[u8] = if head_only { b"HEAD" } else { b"GET" };
    Awaiting::to(method, websocket, &UNLIMITED, ())
}

/// The request in HTTP/1.1's words; `ended`: it has no body. Names and values are what `http` allows, so no line can be forged; what else is wrong with them the strict
/// parser behind this will say.
pub(crate) fn write_head(
    parts: &http::request::Parts,
    ended: bool,
    websocket: bool,
) -> (Vec<u8>, Reading) {
    let mut out = Vec::with_capacity(512);
    let method = if websocket {
        "GET"
    } else {
        parts.method.as_str()
    };
    let target = parts
        .uri
        .path_and_query()
        .map_or("/", |target| target.as_str());
    // Piece by piece: formatting costs more than all of the rest.
    for piece in [method, " ", target, " HTTP/1.1\r\n"] {
        out.extend_from_slice(piece.as_bytes());
    }
    let authority = parts.uri.authority().map(|authority| authority.as_str());
    let hosts = || parts.headers.get_all(http::header::HOST).iter();
    // RFC 9113 §8.3.1: they must agree; the parser refuses a second field, and an empty one.
    if let Some(authority) = authority {
        field(&mut out, "host", authority.as_bytes());
    } else if hosts().next().is_none() {
        field(&mut out, "host", b"");
    }
    let said = authority.filter(|_| hosts().count() == 1);
    for host in hosts().map(HeaderValue::as_bytes) {
        if !said.is_some_and(|said| said.as_bytes().eq_ignore_ascii_case(host)) {
            field(&mut out, "host", host);
        }
    }
    let mut cookies = Vec::new();
    for (name, value) in &parts.headers {
        match name.as_str() {
            "host" | "transfer-encoding" | "connection" | "upgrade" => {}
            "sec-websocket-key" if websocket => {}
            // Complete as it stands for the parser, though data may follow that makes it malformed (RFC 9113 §8.1.1): its end is awaited.
            "content-length" if value == "0" && !ended => {}
            // RFC 9113 §8.2.3: crumbs are put together.
            "cookie" => {
                if !cookies.is_empty() {
                    cookies.extend_from_slice(b"; ");
                }
                cookies.extend_from_slice(value.as_bytes());
            }
            name => field(&mut out, name, value.as_bytes()),
        }
    }
    if !cookies.is_empty() {
        field(&mut out, "cookie", &cookies);
    }
    let reading = if websocket {
        let key: [u8; 16] = rand::random();
        out.extend_from_slice(b"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-key: ");
        out.extend_from_slice(&base64(&key));
        out.extend_from_slice(b"\r\n");
        // Nothing is read before the tunnel is there.
        Reading::Ended
    } else if ended {
        Reading::Ended
    } else if parts
        .headers
        .get(http::header::CONTENT_LENGTH)
        .is_some_and(|length| length != "0")
    {
        Reading::Plain
    } else {
        out.extend_from_slice(b"transfer-encoding: chunked\r\n");
        Reading::Chunks
    };
    out.extend_from_slice(b"\r\n");
    (out, reading)
}

pub(crate) fn field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// `text` is what the answer was read from: its values are shared with the response, not copied one by one.
pub(crate) fn translate(text: &Bytes, answer: &h1::Response<'_>, tunnel: bool) -> Response<()> {
    let mut response = Response::new(());
    // With what may come beside them, so that the map grows once.
    *response.headers_mut() = HeaderMap::with_capacity(answer.fields().len() + 1);
    let status = if tunnel { 200 } else { answer.status() };
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
    for found in answer.fields().end_to_end() {
        if tunnel && found.name.eq_ignore_ascii_case(b"sec-websocket-accept") {
            continue;
        }
        if let (Ok(name), Ok(value)) = (
            HeaderName::from_bytes(found.name),
            HeaderValue::from_maybe_shared(text.slice_ref(found.value)),
        ) {
            response.headers_mut().append(name, value);
        }
    }
    if let Some(length) = answer.content_length() {
        response
            .headers_mut()
            .insert(http::header::CONTENT_LENGTH, length.into());
    }
    response
}

pub(crate) fn chunk(data: &Bytes) -> Bytes {
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

pub(crate) fn invalid() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

/// For heads that this proxy has written: what they may have was decided when they were read.
pub(crate) const UNLIMITED: h1::Limits = h1::Limits {
    head: usize::MAX,
    fields: usize::MAX,
    target: usize::MAX,
    chunk_extension: usize::MAX,
    chunk_extensions: usize::MAX,
    trailers: usize::MAX,
    drain: u64::MAX,
    requests: u64::MAX,
    interim: u32::MAX,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_said_in_base64() {
        assert_eq!(base64(b"the sample nonce"), b"dGhlIHNhbXBsZSBub25jZQ==");
    }
}

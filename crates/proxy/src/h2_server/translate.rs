//! Heads between HTTP/1.1 and HTTP/2 towards servers (RFC 9113 §8.3).

use std::io::Write as _;

use bytes::Bytes;
use h1::{Framing, Request};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header, response, uri};

/// How an answer's body is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framed {
    /// There is none.
    Nothing,
    /// As long as Content-Length says.
    Length,
    /// In chunks, with trailers.
    Chunks,
}

/// The head that this proxy has written for the server. `None` if HTTP/2 cannot say it.
pub(super) fn request(from: &Request<'_>, secure: bool) -> Option<http::Request<()>> {
    let scheme = if secure {
        uri::Scheme::HTTPS
    } else {
        uri::Scheme::HTTP
    };
    let target = Uri::builder()
        .scheme(scheme)
        .authority(from.authority())
        .path_and_query(from.target())
        .build()
        .ok()?;
    let mut request = http::Request::new(());
    *request.method_mut() = Method::from_bytes(from.method()).ok()?;
    *request.uri_mut() = target;
    let headers = request.headers_mut();
    for field in from.fields().end_to_end() {
        let name = HeaderName::from_bytes(field.name).ok()?;
        // The authority says it; 100 Continue was said already.
        if name == header::HOST || name == header::EXPECT || name == header::CONTENT_LENGTH {
            continue;
        }
        headers.append(name, HeaderValue::from_bytes(field.value).ok()?);
    }
    if let Framing::Length(length) = from.framing() {
        headers.insert(header::CONTENT_LENGTH, length.into());
    }
    if from.accepts_trailers() {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
    Some(request)
}

/// An answer's head in HTTP/1.1's words. `ends`: no body follows.
pub(super) fn answer(from: &response::Parts, ends: bool, head_only: bool) -> (Vec<u8>, Framed) {
    let mut out = Vec::with_capacity(256);
    let status = from.status.as_u16();
    // Writing to a Vec does not fail.
    let _ = write!(out, "HTTP/1.1 {status} \r\n");
    for (name, value) in &from.headers {
        let hop = [
            header::CONNECTION,
            header::TRANSFER_ENCODING,
            header::UPGRADE,
            header::CONTENT_LENGTH,
        ];
        if !hop.contains(name) {
            field(&mut out, name.as_str().as_bytes(), value.as_bytes());
        }
    }
    let bodiless = head_only || matches!(status, 204 | 304);
    let length = from.headers.get(header::CONTENT_LENGTH);
    let framed = match length {
        // The `h2` crate has checked that it is one number, and checks that the body is as long.
        Some(length) if status != 204 => {
            field(&mut out, b"content-length", length.as_bytes());
            Framed::Length
        }
        None if ends && !bodiless => {
            field(&mut out, b"content-length", b"0");
            Framed::Nothing
        }
        None if !bodiless => {
            field(&mut out, b"transfer-encoding", b"chunked");
            Framed::Chunks
        }
        _ => Framed::Nothing,
    };
    out.extend_from_slice(b"\r\n");
    let none = ends || bodiless;
    (out, if none { Framed::Nothing } else { framed })
}

/// What ends a body in chunks.
pub(super) fn last_chunk(trailers: Option<&HeaderMap>) -> Vec<u8> {
    let mut out = b"0\r\n".to_vec();
    for (name, value) in trailers.into_iter().flatten() {
        field(&mut out, name.as_str().as_bytes(), value.as_bytes());
    }
    out.extend_from_slice(b"\r\n");
    out
}

/// One chunk.
pub(super) fn chunk(data: &Bytes) -> Bytes {
    let mut out = Vec::with_capacity(data.len() + 12);
    let _ = write!(out, "{:x}\r\n", data.len());
    out.extend_from_slice(data);
    out.extend_from_slice(b"\r\n");
    out.into()
}

fn field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(build: http::response::Builder, ends: bool, head_only: bool) -> (String, Framed) {
        let (parts, ()) = build.body(()).expect("an answer").into_parts();
        let (head, framed) = answer(&parts, ends, head_only);
        (String::from_utf8(head).expect("text"), framed)
    }

    #[test]
    fn an_answer_says_how_its_body_ends() {
        let of = |status: u16| http::Response::builder().status(status);
        let chunked = "HTTP/1.1 200 \r\ntransfer-encoding: chunked\r\n\r\n";
        assert_eq!(
            said(of(200), false, false),
            (chunked.into(), Framed::Chunks)
        );
        let empty = "HTTP/1.1 200 \r\ncontent-length: 0\r\n\r\n";
        assert_eq!(said(of(200), true, false), (empty.into(), Framed::Nothing));
        let five = "HTTP/1.1 200 \r\ncontent-length: 5\r\n\r\n";
        let with_length = || of(200).header("content-length", "5");
        assert_eq!(
            said(with_length(), false, false),
            (five.into(), Framed::Length)
        );
        assert_eq!(
            said(with_length(), true, true),
            (five.into(), Framed::Nothing)
        );
        let nothing = "HTTP/1.1 204 \r\n\r\n";
        assert_eq!(
            said(of(204), true, false),
            (nothing.into(), Framed::Nothing)
        );
    }
}

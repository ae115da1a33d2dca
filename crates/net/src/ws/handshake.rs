//! The WebSocket handshake (RFC 6455 §4), with tungstenite's parsing, checks and key derivation.
//!
//! Heads are read up to [`MAX_HEAD`] bytes; what comes after a head is the first of the frames.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tungstenite::error::ProtocolError;
use tungstenite::handshake::machine::TryParse;
use tungstenite::handshake::{client, derive_accept_key, server};
use tungstenite::http::{Request, header};

use super::frame::Role;
use super::stream::WsStream;
use crate::Stream;

/// Bytes a request or response head may have.
pub const MAX_HEAD: usize = 16 * 1024;

/// Why a WebSocket connection did not come about.
#[derive(Debug, thiserror::Error)]
pub enum WsError {
    /// The client's request is no valid upgrade (its fault); it has been answered with `status`.
    #[error("the request is no WebSocket upgrade ({reason}); answered with status {status}")]
    BadRequest {
        /// What is wrong.
        reason: String,
        /// 400, or 426 when only the version is not 13.
        status: u16,
    },
    /// The server did not upgrade (its choice, or something between that does not know WebSocket).
    #[error(
        "the server answered with status {status} instead of upgrading to WebSocket: check the address and path"
    )]
    Refused {
        /// Its HTTP status.
        status: u16,
    },
    /// The server's answer breaks the protocol (its fault).
    #[error("the server's WebSocket answer is wrong: {reason}")]
    BadResponse {
        /// What is wrong.
        reason: String,
    },
    /// The peer's head has more than [`MAX_HEAD`] bytes.
    #[error("the peer's HTTP head is longer than {MAX_HEAD} bytes")]
    HeadTooLong,
    /// `host` or `path` cannot stand in a request (the caller's fault).
    #[error("no WebSocket request can be made for host {host:?}, path {path:?}")]
    BadTarget {
        /// As given.
        host: String,
        /// As given.
        path: String,
    },
    /// The connection failed (the system's or the network's fault).
    #[error("the connection failed during the WebSocket handshake: {0}")]
    Io(#[from] io::Error),
}

/// Answers a client's upgrade request and gives the byte stream above it.
///
/// `head` is what has been read of the request so far: none of it, a part, the whole head, or more. A request that is
/// no upgrade is answered (400 or 426) before the error is returned.
///
/// # Errors
/// See [`WsError`].
pub async fn accept(stream: Stream, head: &[u8]) -> Result<Stream, WsError> {
    accept_protocol(stream, head, None).await
}

/// As [`accept`], confirming a subprotocol that the caller has found among those offered (RFC 6455 §4.2.2).
///
/// # Errors
/// See [`WsError`].
pub async fn accept_protocol(
    mut stream: Stream,
    head: &[u8],
    protocol: Option<&'static str>,
) -> Result<Stream, WsError> {
    let (request, rest) = match read_head::<server::Request>(&mut stream, head.to_vec(), true).await
    {
        Ok(parsed) => parsed,
        Err(HeadError::Parse(error)) => return Err(reject(&mut stream, &error).await),
        Err(HeadError::TooLong) => return Err(WsError::HeadTooLong),
        Err(HeadError::Io(error)) => return Err(WsError::Io(error)),
    };
    let answer = match server::create_response(&request) {
        Ok(mut response) => {
            if let Some(protocol) = protocol {
                let value = header::HeaderValue::from_static(protocol);
                response
                    .headers_mut()
                    .insert(header::SEC_WEBSOCKET_PROTOCOL, value);
            }
            let mut bytes = Vec::with_capacity(160);
            server::write_response(&mut bytes, &response).map(|()| bytes)
        }
        Err(error) => Err(error),
    };
    match answer {
        Ok(bytes) => {
            stream.write_all(&bytes).await?;
            stream.flush().await?;
        }
        Err(error) => return Err(reject(&mut stream, &error).await),
    }
    Ok(upgraded(stream, Role::Server, rest))
}

/// Asks the server at the other end to upgrade, and gives the byte stream above it.
///
/// `host` is the Host header (with the port, if it is not the scheme's own), `path` begins with `/`.
///
/// # Errors
/// See [`WsError`].
pub async fn connect(stream: Stream, host: &str, path: &str) -> Result<Stream, WsError> {
    connect_protocol(stream, host, path, None).await
}

/// As [`connect`], offering one subprotocol (RFC 6455 §1.9). A server that does not confirm it is taken as it is.
///
/// # Errors
/// See [`WsError`].
pub async fn connect_protocol(
    mut stream: Stream,
    host: &str,
    path: &str,
    protocol: Option<&str>,
) -> Result<Stream, WsError> {
    let (request, key) = request(host, path, protocol).ok_or_else(|| WsError::BadTarget {
        host: host.to_owned(),
        path: path.to_owned(),
    })?;
    stream.write_all(&request).await?;
    stream.flush().await?;
    let (response, rest) = read_head::<client::Response>(&mut stream, Vec::new(), false)
        .await
        .map_err(|error| match error {
            HeadError::Parse(error) => WsError::BadResponse {
                reason: error.to_string(),
            },
            HeadError::TooLong => WsError::HeadTooLong,
            HeadError::Io(error) => WsError::Io(error),
        })?;
    check_response(&response, &key, protocol)?;
    Ok(upgraded(stream, Role::Client, rest))
}

fn upgraded(stream: Stream, role: Role, rest: Vec<u8>) -> Stream {
    Stream::from_ws(WsStream::new(stream.with_prefix(rest), role))
}

enum HeadError {
    Parse(tungstenite::Error),
    TooLong,
    Io(io::Error),
}

/// Reads until a head is complete; gives it with the bytes after it.
async fn read_head<T: TryParse>(
    stream: &mut Stream,
    mut bytes: Vec<u8>,
    accept_lone_head: bool,
) -> Result<(T, Vec<u8>), HeadError> {
    // A caller may hand over the head of a request it has parsed itself; only the parser knows whether it is whole.
    let mut grown = accept_lone_head && !bytes.is_empty();
    loop {
        if grown && let Some((len, head)) = T::try_parse(&bytes).map_err(HeadError::Parse)? {
            return if len > MAX_HEAD {
                Err(HeadError::TooLong)
            } else {
                Ok((head, bytes.split_off(len)))
            };
        }
        if bytes.len() >= MAX_HEAD {
            return Err(HeadError::TooLong);
        }
        let read = stream.read_buf(&mut bytes).await.map_err(HeadError::Io)?;
        if read == 0 {
            return Err(HeadError::Io(io::ErrorKind::UnexpectedEof.into()));
        }
        grown = true;
    }
}

async fn reject(stream: &mut Stream, error: &tungstenite::Error) -> WsError {
    let wrong_version = matches!(
        error,
        tungstenite::Error::Protocol(ProtocolError::MissingSecWebSocketVersionHeader)
    );
    let (status, answer): (u16, &[u8]) = if wrong_version {
        (426, b"HTTP/1.1 426 Upgrade Required\r\nSec-WebSocket-Version: 13\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
    } else {
        (
            400,
            b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
        )
    };
    // The reason for the failure is told either way.
    let _ = stream.write_all(answer).await;
    let _ = stream.shutdown().await;
    WsError::BadRequest {
        reason: error.to_string(),
        status,
    }
}

fn request(host: &str, path: &str, protocol: Option<&str>) -> Option<(Vec<u8>, String)> {
    if !path.starts_with('/') || host.is_empty() {
        return None;
    }
    let mut request = Request::get(path);
    if let Some(protocol) = protocol {
        request = request.header("Sec-WebSocket-Protocol", protocol);
    }
    let request = request
        .header("Host", host)
        .header("Connection", "Upgrade")
        .header("Upgrade", "websocket")
        .header("Sec-WebSocket-Version", "13")
        .header("Sec-WebSocket-Key", client::generate_key())
        .body(())
        .ok()?;
    client::generate_request(request).ok()
}

/// RFC 6455 §4.1, what a client must check of the answer.
fn check_response(
    response: &client::Response,
    key: &str,
    protocol: Option<&str>,
) -> Result<(), WsError> {
    let status = response.status().as_u16();
    if status != 101 {
        return Err(WsError::Refused { status });
    }
    let headers = response.headers();
    let text = |name: &header::HeaderName| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    };
    let wrong = |reason: &str| {
        Err(WsError::BadResponse {
            reason: reason.to_owned(),
        })
    };
    if !text(&header::UPGRADE).eq_ignore_ascii_case("websocket") {
        return wrong("no `Upgrade: websocket`");
    }
    if !text(&header::CONNECTION)
        .split(',')
        .any(|part| part.trim().eq_ignore_ascii_case("upgrade"))
    {
        return wrong("no `Connection: Upgrade`");
    }
    if text(&header::SEC_WEBSOCKET_ACCEPT) != derive_accept_key(key.as_bytes()) {
        return wrong("Sec-WebSocket-Accept does not fit the key");
    }
    // RFC 6455 §4.1, points 5 and 6: nothing but what was offered.
    let confirmed = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL);
    let unasked = confirmed
        .iter()
        .any(|value| Some(value.as_bytes()) != protocol.map(str::as_bytes));
    if headers.contains_key(header::SEC_WEBSOCKET_EXTENSIONS) || unasked {
        return wrong("an extension or subprotocol that was not asked for");
    }
    Ok(())
}

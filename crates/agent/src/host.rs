//! `useLocalAsHTTPHost` in stream mode: the first request's Host is replaced. Later requests on the same connection would pass
//! untouched, so the service is asked to close the connection after the first, unless the request upgrades it.

use std::io;

use link::Stream;
use tokio::io::AsyncReadExt;

/// Reads the request head and gives it back rewritten, with whatever came after it.
pub(crate) async fn rewrite_host(
    mut stream: Stream,
    authority: &str,
) -> io::Result<(Stream, Vec<u8>)> {
    let mut read = Vec::with_capacity(1024);
    let end = loop {
        if let Some(end) = head_end(&read) {
            break end;
        }
        if read.len() > LONGEST_HEAD {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the request head is too long",
            ));
        }
        if stream.read_buf(&mut read).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    };
    let mut rewritten = rewrite(&read[..end], authority);
    rewritten.extend_from_slice(&read[end..]);
    Ok((stream, rewritten))
}

fn head_end(bytes: &[u8]) -> Option<usize> {
    bytes
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .map(|at| at + 4)
}

/// `head` ends with an empty line.
fn rewrite(head: &[u8], authority: &str) -> Vec<u8> {
    let lines: Vec<&[u8]> = head[..head.len() - 4]
        .split(|byte| *byte == b'\n')
        .map(<[u8]>::trim_ascii_end)
        .collect();
    let named = |line: &[u8], name: &str| {
        line.iter()
            .position(|byte| *byte == b':')
            .is_some_and(|colon| line[..colon].eq_ignore_ascii_case(name.as_bytes()))
    };
    let upgrades = lines.iter().any(|line| named(line, "upgrade"));
    let mut out = Vec::with_capacity(head.len() + authority.len() + 32);
    for line in lines {
        if named(line, "host") {
            out.extend_from_slice(format!("Host: {authority}\r\n").as_bytes());
        } else if upgrades || !(named(line, "connection") || named(line, "keep-alive")) {
            out.extend_from_slice(line);
            out.extend_from_slice(b"\r\n");
        }
    }
    if !upgrades {
        out.extend_from_slice(b"Connection: close\r\n");
    }
    out.extend_from_slice(b"\r\n");
    out
}

const LONGEST_HEAD: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_replaced_and_the_connection_ends_after_the_request() {
        let head = b"GET /a HTTP/1.1\r\nhOsT: id.example.com\r\nConnection: keep-alive\r\nAccept: */*\r\n\r\n";
        let expected =
            "GET /a HTTP/1.1\r\nHost: localhost:3000\r\nAccept: */*\r\nConnection: close\r\n\r\n";
        assert_eq!(
            String::from_utf8_lossy(&rewrite(head, "localhost:3000")),
            expected
        );
    }

    #[test]
    fn an_upgrade_keeps_its_connection_header() {
        let head =
            b"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        let expected =
            "GET /ws HTTP/1.1\r\nHost: b\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        assert_eq!(String::from_utf8_lossy(&rewrite(head, "b")), expected);
    }
}

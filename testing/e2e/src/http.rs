//! A visitor that speaks HTTP/1.1 by hand, so that tests see every byte and its time.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use crate::{pattern::Sha256, wait};

/// A connection on which responses are read. Requests are written as bytes.
pub struct HttpConn<S> {
    stream: S,
    read: Vec<u8>,
}

/// Status line and headers of a response.
#[derive(Clone, Debug)]
pub struct Head {
    /// Status code.
    pub status: u16,
    /// Headers in order; names in lower case.
    pub headers: Vec<(String, String)>,
}

/// A whole response.
#[derive(Clone, Debug)]
pub struct Response {
    /// Status code.
    pub status: u16,
    /// Headers in order; names in lower case.
    pub headers: Vec<(String, String)>,
    /// The content.
    pub body: Vec<u8>,
}

impl Head {
    /// The first header of that name (lower case).
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }
}

impl Response {
    /// The first header of that name (lower case).
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }

    /// The content as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

fn header<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers
        .iter()
        .find(|(other, _)| other == name)
        .map(|(_, value)| value.as_str())
}

/// Connects; reads and writes on the socket fail after [`STUCK`] instead of hanging.
///
/// # Errors
/// Those of connecting.
pub fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, Duration::from_secs(10))?;
    stream.set_read_timeout(Some(STUCK))?;
    stream.set_write_timeout(Some(STUCK))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// One GET on a connection of its own.
///
/// # Errors
/// No connection, or no whole response.
pub fn get(address: SocketAddr, host: &str, target: &str) -> io::Result<Response> {
    HttpConn::new(connect(address)?).get(host, target)
}

/// GETs until the status is `status`; for what needs a moment to be known everywhere.
///
/// # Panics
/// When it is not within [`crate::PATIENCE`].
#[track_caller]
pub fn get_until(address: SocketAddr, host: &str, target: &str, status: u16) -> Response {
    wait::until(&format!("{status} for http://{host}{target}"), || {
        get(address, host, target)
            .ok()
            .filter(|response| response.status == status)
    })
}

impl<S: Read + Write> HttpConn<S> {
    /// On any stream.
    pub fn new(stream: S) -> Self {
        Self {
            stream,
            read: Vec::new(),
        }
    }

    /// The stream.
    pub fn stream(&mut self) -> &mut S {
        &mut self.stream
    }

    /// The stream, and what was read from it and not used.
    pub fn into_parts(self) -> (S, Vec<u8>) {
        (self.stream, self.read)
    }

    /// Writes bytes.
    ///
    /// # Errors
    /// Those of the stream.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref())?;
        self.stream.flush()
    }

    /// A GET on a connection that stays open.
    ///
    /// # Errors
    /// Those of the stream, or a response that is none.
    pub fn get(&mut self, host: &str, target: &str) -> io::Result<Response> {
        self.send(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"))?;
        self.response()
    }

    /// A POST with a Content-Length on a connection that stays open.
    ///
    /// # Errors
    /// Those of the stream, or a response that is none.
    pub fn post(&mut self, host: &str, target: &str, body: &[u8]) -> io::Result<Response> {
        let length = body.len();
        self.send(format!(
            "POST {target} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n"
        ))?;
        self.send(body)?;
        self.response()
    }

    /// Reads a status line with its headers.
    ///
    /// # Errors
    /// Those of the stream, or a response that is none.
    pub fn head(&mut self) -> io::Result<Head> {
        let (line, headers) = self.request_head()?;
        let status = line
            .strip_prefix("HTTP/1.")
            .and_then(|line| line.get(2..5)?.parse().ok());
        let status = status.ok_or_else(|| io::Error::other(format!("no status line: {line:?}")))?;
        Ok(Head { status, headers })
    }

    /// Reads the first line and the headers of a message.
    pub(crate) fn request_head(&mut self) -> io::Result<(String, Vec<(String, String)>)> {
        let end = self.read_until(b"\r\n\r\n")?;
        let text: Vec<u8> = self.read.drain(..end).collect();
        let text = String::from_utf8_lossy(&text);
        let mut lines = text.split("\r\n");
        let first = lines.next().unwrap_or_default().to_owned();
        let headers = lines.take_while(|line| !line.is_empty()).map(|line| {
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            (name.trim().to_ascii_lowercase(), value.trim().to_owned())
        });
        Ok((first, headers.collect()))
    }

    /// Reads some bytes, at least 1 and at most `most`.
    pub(crate) fn some(&mut self, most: usize) -> io::Result<Vec<u8>> {
        if self.read.is_empty() && self.fill()? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let n = self.read.len().min(most);
        Ok(self.read.drain(..n).collect())
    }

    /// Reads the content that follows `head`, in the pieces in which it comes.
    ///
    /// # Errors
    /// Those of the stream; an end before the announced one is `UnexpectedEof`.
    pub fn body(&mut self, head: &Head, mut sink: impl FnMut(&[u8])) -> io::Result<()> {
        if head
            .header("transfer-encoding")
            .is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"))
        {
            while let Some(piece) = self.chunk()? {
                sink(&piece);
            }
            return Ok(());
        }
        let length: Option<u64> = head
            .header("content-length")
            .and_then(|length| length.parse().ok());
        if head.status < 200 || head.status == 204 || head.status == 304 {
            return Ok(());
        }
        let mut left = length.unwrap_or(u64::MAX);
        while left > 0 {
            if self.read.is_empty() && self.fill()? == 0 {
                // RFC 9112 §6.3: without a length the content ends with the connection.
                return if length.is_none() {
                    Ok(())
                } else {
                    Err(io::ErrorKind::UnexpectedEof.into())
                };
            }
            let n = self
                .read
                .len()
                .min(usize::try_from(left).unwrap_or(usize::MAX));
            sink(&self.read[..n]);
            self.read.drain(..n);
            left -= n as u64;
        }
        Ok(())
    }

    /// Reads one chunk of a chunked content; `None` at its end.
    ///
    /// # Errors
    /// Those of the stream, or a chunk that is none.
    pub fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let end = self.read_until(b"\r\n")?;
        let line: Vec<u8> = self.read.drain(..end).collect();
        let line = String::from_utf8_lossy(&line);
        let size = line.trim().split(';').next().unwrap_or_default();
        let size = usize::from_str_radix(size, 16)
            .map_err(|_| io::Error::other(format!("no chunk size: {line:?}")))?;
        while self.read.len() < size + 2 {
            if self.fill()? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let piece = self.read.drain(..size + 2).take(size).collect();
        Ok((size > 0).then_some(piece))
    }

    /// Reads a whole response, interim ones left out.
    ///
    /// # Errors
    /// Those of [`HttpConn::head`] and [`HttpConn::body`].
    pub fn response(&mut self) -> io::Result<Response> {
        loop {
            let head = self.head()?;
            let mut body = Vec::new();
            self.body(&head, |piece| body.extend_from_slice(piece))?;
            if head.status >= 200 {
                return Ok(Response {
                    status: head.status,
                    headers: head.headers,
                    body,
                });
            }
        }
    }

    /// Reads a response of any size: its head, the content's length and SHA-256.
    ///
    /// # Errors
    /// Those of [`HttpConn::head`] and [`HttpConn::body`].
    pub fn digest(&mut self) -> io::Result<(Head, u64, String)> {
        let head = self.head()?;
        let (mut length, mut digest) = (0, Sha256::new());
        self.body(&head, |piece| {
            length += piece.len() as u64;
            digest.update(piece);
        })?;
        Ok((head, length, digest.hex()))
    }

    fn read_until(&mut self, end: &[u8]) -> io::Result<usize> {
        loop {
            if let Some(at) = self
                .read
                .windows(end.len())
                .position(|window| window == end)
            {
                return Ok(at + end.len());
            }
            if self.read.len() > LONGEST_HEAD {
                return Err(io::Error::other("a line or head is too long"));
            }
            if self.fill()? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    fn fill(&mut self) -> io::Result<usize> {
        let mut piece = [0; 32 << 10];
        let n = self.stream.read(&mut piece)?;
        self.read.extend_from_slice(&piece[..n]);
        Ok(n)
    }
}

/// A read or write that takes longer will never end.
pub const STUCK: Duration = Duration::from_secs(30);
const LONGEST_HEAD: usize = 1 << 20;

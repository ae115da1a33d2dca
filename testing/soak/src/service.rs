//! The services behind the clients: transfers over TCP, requests over HTTP. What they send and expect follows from the seed
//! that the visitor names.
//!
//! A data connection opens with one line: `GET n seed` is answered with n bytes of the seed's pattern and an end; `PUT n seed`
//! is followed by n bytes and a half-close, and answered with `right n` or `wrong at k`; `ECHO` gives back what comes until the
//! half-close. HTTP has `GET /n/seed` and `POST /n/seed` with the same meanings, on connections that are kept.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;

use anyhow::Result;

use crate::acceptor::{Acceptor, Guarded};
use crate::pattern::{Mismatch, Pattern};

/// Starts the data service.
///
/// # Errors
/// When the address cannot be had.
pub fn data(at: SocketAddr) -> Result<Acceptor> {
    Acceptor::open(at, |stream| {
        let watch = stream.try_clone();
        if serve_data(stream).is_err()
            && let Ok(watch) = watch
        {
            // Nothing that went wrong may look like an orderly end.
            watch.abort();
        }
    })
}

/// Starts the HTTP service.
///
/// # Errors
/// When the address cannot be had.
pub fn http(at: SocketAddr) -> Result<Acceptor> {
    Acceptor::open(at, |stream| {
        let _ = serve_http(stream);
    })
}

/// Writes `length` bytes of a seed's pattern.
///
/// # Errors
/// The writer's.
pub fn send_pattern(to: &mut impl Write, length: u64, seed: u64) -> io::Result<()> {
    let mut pattern = Pattern::new(seed);
    let mut buffer = [0; PIECE];
    while pattern.position() < length {
        let piece = usize::try_from(length - pattern.position())
            .unwrap_or(PIECE)
            .min(PIECE);
        pattern.fill(&mut buffer[..piece]);
        to.write_all(&buffer[..piece])?;
    }
    Ok(())
}

fn serve_data(mut stream: Guarded) -> io::Result<()> {
    let mut reader = BufReader::with_capacity(PIECE, stream.try_clone()?);
    let line = read_line(&mut reader)?;
    let mut words = line.split(' ');
    let verb = words.next();
    let mut number = || {
        words
            .next()
            .and_then(|word| word.parse().ok())
            .ok_or_else(bad_line)
    };
    match verb {
        Some("GET") => send_pattern(&mut stream, number()?, number()?)?,
        Some("PUT") => {
            let (length, seed) = (number()?, number()?);
            let verdict = check_all(&mut reader, seed)?;
            let verdict = match verdict {
                Ok(got) if got == length => format!("right {got}\n"),
                Ok(got) => format!("wrong length {got}\n"),
                Err(Mismatch(at)) => format!("wrong at {at}\n"),
            };
            stream.write_all(verdict.as_bytes())?;
        }
        Some("ECHO") => echo(&mut reader, &mut stream)?,
        _ => return Err(bad_line()),
    }
    stream.finish();
    Ok(())
}

fn echo(reader: &mut impl Read, stream: &mut impl Write) -> io::Result<()> {
    let mut buffer = [0; PIECE];
    loop {
        match reader.read(&mut buffer)? {
            0 => return Ok(()),
            n => stream.write_all(&buffer[..n])?,
        }
    }
}

fn check_all(reader: &mut impl Read, seed: u64) -> io::Result<Result<u64, Mismatch>> {
    let mut pattern = Pattern::new(seed);
    let mut buffer = [0; PIECE];
    let mut wrong = None;
    loop {
        match reader.read(&mut buffer)? {
            0 => return Ok(wrong.map_or(Ok(pattern.position()), Err)),
            n => wrong = wrong.or(pattern.check(&buffer[..n]).err()),
        }
    }
}

fn serve_http(mut stream: Guarded) -> io::Result<()> {
    let mut reader = BufReader::with_capacity(PIECE, stream.try_clone()?);
    loop {
        let first = read_line(&mut reader)?;
        if first.is_empty() {
            return Ok(());
        }
        let mut has_body = 0;
        loop {
            let line = read_line(&mut reader)?;
            match line.split_once(':') {
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    has_body = value.trim().parse().map_err(|_| bad_line())?;
                }
                _ if line.is_empty() => break,
                _ => {}
            }
        }
        let mut words = first.split(' ');
        let verb = words.next().unwrap_or_default();
        // The target may be in absolute form: the last two segments count.
        let target = words.next().ok_or_else(bad_line)?;
        let mut segments = target
            .rsplit('/')
            .map(|segment| segment.parse::<u64>().map_err(|_| bad_line()));
        let seed = segments.next().ok_or_else(bad_line)??;
        let length = segments.next().ok_or_else(bad_line)??;
        if verb == "POST" {
            let verdict = match check_all(&mut reader.by_ref().take(has_body), seed)? {
                Ok(got) if got == length => "right",
                _ => "wrong",
            };
            write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{verdict}"
            )?;
        } else {
            write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n"
            )?;
            send_pattern(&mut stream, length, seed)?;
        }
    }
}

/// A line without its end; empty at the end of the stream.
pub(crate) fn read_line(reader: &mut impl BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    reader
        .by_ref()
        .take(LONGEST_LINE)
        .read_until(b'\n', &mut line)?;
    let text = String::from_utf8(line).map_err(|_| bad_line())?;
    Ok(text.trim_end().to_owned())
}

fn bad_line() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "not a line of the soak's protocol",
    )
}

/// Bytes moved at a time.
pub(crate) const PIECE: usize = 16 * 1024;

const LONGEST_LINE: u64 = 8 * 1024;

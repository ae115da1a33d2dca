//! Visits made one at a time: an HTTP GET with a check of what came, a byte and its echo, a download that is only counted.
//!
//! Blocking sockets with a time limit on every wait, so that a relay that hangs fails a round and not the bench.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use socket2::{Domain, Socket, Type};

/// An answer to a GET.
#[derive(Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// Length of head and body together, in bytes.
    pub length: u64,
    /// The body.
    pub body: Vec<u8>,
}

/// Asks for a path and reads the answer by its Content-Length, as a keep-alive client does.
///
/// # Errors
/// When the connection fails or the answer is not HTTP with a length.
pub fn get(to: SocketAddr, host: &str, path: &str) -> Result<Answer> {
    get_on(&mut connect(to, None)?, host, path)
}

/// As [`get`], on a connection that stays.
///
/// # Errors
/// As [`get`].
pub fn get_on(stream: &mut TcpStream, host: &str, path: &str) -> Result<Answer> {
    let begun = ask(stream, host, path, "")?;
    whole(stream, begun)
}

/// As [`get`], with a request that says that it is the only one on its connection.
///
/// # Errors
/// As [`get`].
pub fn get_last(to: SocketAddr, host: &str, path: &str) -> Result<Answer> {
    let mut stream = connect(to, None)?;
    let begun = ask(&mut stream, host, path, "Connection: close\r\n")?;
    whole(&mut stream, begun)
}

fn whole(stream: &mut TcpStream, begun: Begun) -> Result<Answer> {
    let (status, head, length, mut body) = begun;
    let mut rest = vec![
        0;
        usize::try_from(length)
            .context("body too long")?
            .saturating_sub(body.len())
    ];
    stream.read_exact(&mut rest).context("read body")?;
    body.extend(rest);
    Ok(Answer {
        status,
        length: head + length,
        body,
    })
}

/// Downloads a path and throws it away; gives the number of body bytes and the time they took.
///
/// # Errors
/// When fewer bytes come than were announced, or the status is not 200.
pub fn download(to: SocketAddr, host: &str, path: &str) -> Result<(u64, Duration)> {
    let start = Instant::now();
    let got = AtomicU64::new(0);
    pull(to, host, path, &AtomicBool::new(false), &got)?;
    Ok((got.into_inner(), start.elapsed()))
}

/// Downloads a path again and again until `done`, counting the bytes in `got` as they come.
///
/// # Errors
/// As [`download`].
pub fn download_until(
    to: SocketAddr,
    host: &str,
    path: &str,
    done: &AtomicBool,
    got: &AtomicU64,
) -> Result<()> {
    while !done.load(Ordering::Relaxed) {
        pull(to, host, path, done, got)?;
    }
    Ok(())
}

fn pull(to: SocketAddr, host: &str, path: &str, done: &AtomicBool, got: &AtomicU64) -> Result<()> {
    let mut stream = connect(to, None)?;
    let (status, _, length, body) = ask(&mut stream, host, path, "")?;
    ensure!(status == 200, "status {status}");
    let mut here = body.len() as u64;
    got.fetch_add(here, Ordering::Relaxed);
    let mut buffer = vec![0; 256 * 1024];
    while here < length && !done.load(Ordering::Relaxed) {
        match stream.read(&mut buffer).context("read body")? {
            0 => bail!("{here} of {length} bytes came"),
            n => {
                here += n as u64;
                got.fetch_add(n as u64, Ordering::Relaxed);
            }
        }
    }
    Ok(())
}

/// Connects with limits of [`PATIENCE`] on every wait and without Nagle's delay, from a given source address if any.
///
/// # Errors
/// As `connect(2)` does.
pub fn connect(to: SocketAddr, from: Option<IpAddr>) -> Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
    if let Some(from) = from {
        socket
            .bind(&SocketAddr::new(from, 0).into())
            .with_context(|| format!("bind {from}"))?;
    }
    socket
        .connect_timeout(&to.into(), PATIENCE)
        .with_context(|| format!("connect to {to}"))?;
    let stream: TcpStream = socket.into();
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Sends a byte and waits for the same byte; gives the time between.
///
/// # Errors
/// When the connection ends, time runs out, or another byte comes.
pub fn echo_byte(stream: &mut TcpStream, byte: u8) -> Result<Duration> {
    let start = Instant::now();
    stream.write_all(&[byte]).context("send a byte")?;
    let mut back = [0];
    stream.read_exact(&mut back).context("await its echo")?;
    ensure!(back[0] == byte, "sent {byte}, got {}", back[0]);
    Ok(start.elapsed())
}

/// Repeats a probe until it succeeds or the time is over; gives the last error then.
///
/// # Errors
/// The probe's last one.
pub fn until_ready<T>(limit: Duration, mut probe: impl FnMut() -> Result<T>) -> Result<T> {
    let end = Instant::now() + limit;
    loop {
        match probe() {
            Ok(value) => return Ok(value),
            Err(error) if Instant::now() >= end => {
                return Err(error.context(format!("not ready after {limit:?}")));
            }
            // A program that starts gives no event to await: its port is knocked at.
            Err(_) => std::thread::sleep(Duration::from_millis(30)),
        }
    }
}

/// Longest wait for anything of a visit.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Sends a GET; gives the status, the head's length, the body's announced length, and the body bytes that came with the head.
/// Status, lengths of head and body, and what was read of the body.
type Begun = (u16, u64, u64, Vec<u8>);

/// `fields`: lines of the request's head beside Host.
fn ask(stream: &mut TcpStream, host: &str, path: &str, fields: &str) -> Result<Begun> {
    // At once: written piece by piece, a service could answer and close before it has read the last, and the reset for what it has
    // not read would overtake its answer.
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n");
    stream
        .write_all(request.as_bytes())
        .context("send request")?;
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        ensure!(bytes.len() <= MAX_HEAD, "head too long");
        match stream.read(&mut buffer).context("read head")? {
            0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)).context("read head"),
            n => bytes.extend_from_slice(&buffer[..n]),
        }
    };
    let body = bytes.split_off(end);
    let head = String::from_utf8_lossy(&bytes);
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|word| word.parse().ok())
        .context("no status")?;
    let lengths = head
        .lines()
        .filter_map(|line| line.split_once(':'))
        .filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let length = lengths
        .filter_map(|(_, value)| value.trim().parse().ok())
        .next()
        .context("no Content-Length")?;
    Ok((status, end as u64, length, body))
}

const MAX_HEAD: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Reads until what was said ends with `after`, answers, and closes: with nothing left unread it is no reset.
    fn answer_once(after: &'static [u8], answer: &'static [u8]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut said, mut byte) = (Vec::new(), [0]);
            while !said.ends_with(after) {
                stream.read_exact(&mut byte).unwrap();
                said.push(byte[0]);
            }
            for part in answer.chunks(7) {
                stream.write_all(part).unwrap();
            }
        });
        at
    }

    const END: &[u8] = b"\r\n\r\n";

    #[test]
    fn an_answer_in_pieces_is_put_together() {
        let answer = get(
            answer_once(END, b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"),
            "a",
            "/",
        )
        .unwrap();
        assert_eq!(
            (answer.status, answer.body.as_slice(), answer.length),
            (200, b"hello".as_slice(), 43)
        );
    }

    #[test]
    fn a_short_download_is_an_error() {
        let at = answer_once(END, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello");
        assert!(
            download(at, "a", "/")
                .unwrap_err()
                .to_string()
                .contains("5 of 9")
        );
    }

    #[test]
    fn a_wrong_echo_is_an_error() {
        let at = answer_once(b"x", b"y");
        let mut stream = connect(at, None).unwrap();
        assert!(echo_byte(&mut stream, b'x').is_err());
    }

    #[test]
    fn a_connection_leaves_from_the_address_asked_for() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let from: IpAddr = "127.0.0.9".parse().unwrap();
        let _stream = connect(listener.local_addr().unwrap(), Some(from)).unwrap();
        assert_eq!(listener.accept().unwrap().1.ip(), from);
    }
}

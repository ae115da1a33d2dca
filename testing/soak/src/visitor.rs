//! A visitor: one transfer of some kind through a relay, and what became of it.
//!
//! [`Visit::draw`] takes the kind and its sizes from the seed; [`Visit::make`] carries it out within a time limit. Every byte
//! received is compared, also those of a transfer that breaks off. Whether a broken transfer had the right to is not known here.

use std::fmt;
use std::io::{self, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::acceptor::is_timeout;
use crate::ledger::Service;
use crate::pattern::{Mismatch, Pattern};
use crate::rng::Rng;
use crate::service::{PIECE, read_line, send_pattern};

/// Where the services of one client are reached.
#[derive(Clone, Debug)]
pub struct Route {
    /// The TCP service's port at the server.
    pub data: SocketAddr,
    /// The server's HTTP address.
    pub http: SocketAddr,
    /// Host that selects the client.
    pub host: String,
}

/// A visit to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visit {
    /// Seed of the bytes.
    pub seed: u64,
    /// What to do.
    pub kind: Kind,
}

/// Kinds of visits; sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Receive until the end; a slow one pauses between pieces.
    Download {
        /// Bytes.
        size: u64,
        /// Pauses between pieces.
        slow: bool,
    },
    /// Send, half-close, await the verdict.
    Upload {
        /// Bytes.
        size: u64,
    },
    /// Send and receive at once, half-close after sending, receive to the end.
    Both {
        /// Bytes each way.
        size: u64,
    },
    /// Leave after some bytes of a longer download, with a reset or an orderly close.
    Abort {
        /// Bytes asked for.
        size: u64,
        /// Bytes read before leaving.
        after: u64,
        /// Leave with a reset.
        reset: bool,
    },
    /// A byte and its echo, nothing for a while, again a byte and its echo.
    Idle {
        /// Time without a byte.
        hold: Duration,
    },
    /// Requests one after the other on one connection; odd ones send a body.
    Requests {
        /// Number of requests.
        count: u64,
        /// The largest body.
        most: u64,
    },
}

/// What became of a visit.
#[derive(Debug)]
pub enum Outcome {
    /// All bytes right, end in order.
    Right,
    /// It ended early, with an error or an early end that can be told from success; what came before was right.
    Ended(String),
    /// A byte was wrong, or a broken transfer claimed to be whole.
    Wrong(String),
    /// Not over within the time limit.
    Late(String),
}

impl Visit {
    /// Draws a visit.
    pub fn draw(rng: &mut Rng) -> Self {
        let size = rng.size(MOST);
        let kind = match rng.below(10) {
            0 | 1 => Kind::Download {
                size,
                slow: rng.once_in(4),
            },
            2 | 3 => Kind::Upload { size },
            4 | 5 => Kind::Both { size },
            6 => Kind::Abort {
                size: MOST,
                after: rng.size(MOST / 4),
                reset: rng.once_in(2),
            },
            7 => Kind::Idle {
                hold: Duration::from_millis(rng.below(5_000)),
            },
            _ => Kind::Requests {
                count: 1 + rng.below(40),
                most: 1 << rng.below(17),
            },
        };
        Self {
            seed: rng.draw(),
            kind,
        }
    }

    /// The service it goes to.
    pub fn service(&self) -> Service {
        if matches!(self.kind, Kind::Requests { .. }) {
            Service::Http
        } else {
            Service::Data
        }
    }

    /// Makes the visit; it is over after `limit` at the latest.
    pub fn make(&self, route: &Route, limit: Duration) -> Outcome {
        match self.attempt(route, Instant::now() + limit) {
            Ok(()) => Outcome::Right,
            Err(Failure::Wrong(what)) => Outcome::Wrong(what),
            Err(Failure::Io(error)) if error.kind() == io::ErrorKind::TimedOut => {
                Outcome::Late(format!("not over after {limit:?}"))
            }
            Err(Failure::Io(error)) => Outcome::Ended(error.to_string()),
        }
    }

    fn attempt(&self, route: &Route, end: Instant) -> Result<(), Failure> {
        let at = if self.service() == Service::Http {
            route.http
        } else {
            route.data
        };
        let mut door = Door::connect(at, end)?;
        match self.kind {
            Kind::Download { size, slow } => {
                writeln!(door, "GET {size} {}", self.seed)?;
                receive(&mut door, self.seed, size, slow)?;
                ends(&mut door)
            }
            Kind::Upload { size } => self.upload(door, size),
            Kind::Both { size } => self.both(door, size),
            Kind::Abort { size, after, reset } => {
                writeln!(door, "GET {size} {}", self.seed)?;
                receive(&mut door, self.seed, after, false)?;
                if reset {
                    socket2::SockRef::from(&door.stream).set_linger(Some(Duration::ZERO))?;
                }
                Ok(())
            }
            Kind::Idle { hold } => {
                writeln!(door, "ECHO")?;
                for pause in [hold, Duration::ZERO] {
                    send_pattern(&mut door, 1, self.seed)?;
                    receive(&mut door, self.seed, 1, false)?;
                    // Being idle is what this visitor does.
                    std::thread::sleep(pause);
                }
                door.stream.shutdown(Shutdown::Write)?;
                ends(&mut door)
            }
            Kind::Requests { count, most } => self.requests(door, &route.host, count, most),
        }
    }

    fn upload(&self, mut door: Door, size: u64) -> Result<(), Failure> {
        writeln!(door, "PUT {size} {}", self.seed)?;
        send_pattern(&mut door, size, self.seed)?;
        door.stream.shutdown(Shutdown::Write)?;
        let mut verdict = String::new();
        door.read_to_string(&mut verdict)?;
        match verdict.trim_end() {
            "" => Err(early("an end instead of the verdict")),
            right if right == format!("right {size}") => Ok(()),
            // A cut-off upload must reach the service as a reset, not as an end.
            other => Err(Failure::Wrong(format!(
                "the service says of {size} bytes: {other}"
            ))),
        }
    }

    fn both(&self, mut door: Door, size: u64) -> Result<(), Failure> {
        writeln!(door, "ECHO")?;
        let mut sender = door.try_clone()?;
        let seed = self.seed;
        let sending = std::thread::spawn(move || {
            send_pattern(&mut sender, size, seed)?;
            sender.stream.shutdown(Shutdown::Write)
        });
        let received = receive(&mut door, seed, size, false).and_then(|()| ends(&mut door));
        if received.is_err() {
            let _ = door.stream.shutdown(Shutdown::Both);
        }
        let sent = sending
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the sender panicked")));
        received?;
        Ok(sent?)
    }

    fn requests(&self, mut door: Door, host: &str, count: u64, most: u64) -> Result<(), Failure> {
        let mut rng = Rng::new(self.seed);
        let mut reader = BufReader::with_capacity(PIECE, door.try_clone()?);
        for number in 0..count {
            let (size, seed) = (rng.size(most), rng.draw());
            if number % 2 == 0 {
                write!(door, "GET /{size}/{seed} HTTP/1.1\r\nHost: {host}\r\n\r\n")?;
            } else {
                write!(
                    door,
                    "POST /{size}/{seed} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {size}\r\n\r\n"
                )?;
                send_pattern(&mut door, size, seed)?;
            }
            let length = answer_head(&mut reader)?;
            if number % 2 == 0 {
                if length != size {
                    return Err(Failure::Wrong(format!(
                        "an answer of {length} bytes instead of {size}"
                    )));
                }
                receive(&mut reader, seed, size, false)?;
            } else {
                let mut verdict = vec![0; usize::try_from(length).unwrap_or(0).min(PIECE)];
                reader.read_exact(&mut verdict)?;
                if verdict != b"right" {
                    return Err(Failure::Wrong(format!(
                        "the service says: {}",
                        String::from_utf8_lossy(&verdict)
                    )));
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Right => write!(f, "right"),
            Self::Ended(why) => write!(f, "ended: {why}"),
            Self::Wrong(what) => write!(f, "wrong: {what}"),
            Self::Late(what) => write!(f, "late: {what}"),
        }
    }
}

/// Why an attempt did not succeed.
enum Failure {
    Io(io::Error),
    Wrong(String),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Mismatch> for Failure {
    fn from(Mismatch(at): Mismatch) -> Self {
        Self::Wrong(format!("byte {at} differs"))
    }
}

/// A connection whose every wait ends at one instant.
struct Door {
    stream: TcpStream,
    end: Instant,
}

impl Door {
    fn connect(at: SocketAddr, end: Instant) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&at, left(end)?)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, end })
    }

    fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            stream: self.stream.try_clone()?,
            end: self.end,
        })
    }
}

impl Read for Door {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(left(self.end)?))?;
        self.stream.read(buffer).map_err(in_time)
    }
}

impl Write for Door {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(left(self.end)?))?;
        self.stream.write(bytes).map_err(in_time)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn left(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() {
        Err(io::ErrorKind::TimedOut.into())
    } else {
        Ok(left)
    }
}

fn in_time(error: io::Error) -> io::Error {
    if is_timeout(&error) && error.kind() != io::ErrorKind::Interrupted {
        io::ErrorKind::TimedOut.into()
    } else {
        error
    }
}

fn receive(from: &mut impl Read, seed: u64, size: u64, slow: bool) -> Result<(), Failure> {
    let mut pattern = Pattern::new(seed);
    let mut buffer = [0; PIECE];
    let mut pauses = if slow { SLOW_PAUSES } else { 0 };
    while pattern.position() < size {
        let piece = usize::try_from(size - pattern.position())
            .unwrap_or(PIECE)
            .min(PIECE);
        match from.read(&mut buffer[..piece])? {
            0 => {
                return Err(early(&format!(
                    "an end after {} of {size} bytes",
                    pattern.position()
                )));
            }
            n => pattern.check(&buffer[..n])?,
        }
        if pauses > 0 {
            pauses -= 1;
            // A slow reader is what this visitor is.
            std::thread::sleep(SLOW_PAUSE);
        }
    }
    Ok(())
}

/// After the last byte comes the end, and nothing else.
fn ends(from: &mut impl Read) -> Result<(), Failure> {
    match from.read(&mut [0; 16])? {
        0 => Ok(()),
        n => Err(Failure::Wrong(format!("{n} bytes too many"))),
    }
}

fn answer_head(reader: &mut BufReader<Door>) -> Result<u64, Failure> {
    let first = read_line(reader)?;
    if first.is_empty() {
        return Err(early("an end instead of an answer"));
    }
    let status = first.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut length = None;
    loop {
        let line = read_line(reader)?;
        match line.split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.trim().parse().ok()
            }
            _ if line.is_empty() => break,
            _ => {}
        }
    }
    if status != "200" {
        return Err(early(&format!("status {status}")));
    }
    length.ok_or_else(|| Failure::Wrong("an answer without its length".into()))
}

fn early(what: &str) -> Failure {
    Failure::Io(io::Error::new(io::ErrorKind::UnexpectedEof, what))
}

/// The largest transfer.
const MOST: u64 = 4 << 20;

const SLOW_PAUSES: u32 = 60;
const SLOW_PAUSE: Duration = Duration::from_millis(25);

#[cfg(test)]
#[path = "visitor/tests.rs"]
mod tests;

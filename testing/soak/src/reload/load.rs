//! Visitors of the reload soak. Each has a way (an address and a host) and a kind; what it sends follows from the seed, what it gets is compared
//! byte by byte, and every request counts for itself.

use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tungstenite::{Message, WebSocket};

use super::count::{Counts, Fault};
use super::origin::Origin;
use crate::pattern::Pattern;
use crate::rng::Rng;
use crate::service::{PIECE, read_line};

/// Where visitors go.
#[derive(Clone, Debug)]
pub struct Way {
    /// For the table.
    pub name: String,
    /// Address of the HTTP door.
    pub at: SocketAddr,
    /// Host that selects the service.
    pub host: String,
}

/// What all visitors share.
pub struct Scene<'a> {
    /// Where results go.
    pub counts: &'a Counts,
    /// The service that the way `.0` leads to.
    pub origins: Vec<&'a Origin>,
    /// The ways.
    pub ways: Vec<Way>,
    /// Raised when it is over.
    pub stop: &'a AtomicBool,
    /// When it began.
    pub began: Instant,
}

/// The kinds that are made again and again.
pub const KINDS: [&str; 3] = ["one connection each", "keep-alive", "WebSocket"];

impl Scene<'_> {
    /// Runs visitors of one kind on one way until it is over.
    pub fn visit(&self, way: usize, kind: usize, mut rng: Rng) {
        let mut posts = Vec::new();
        while !self.stop.load(Relaxed) && !self.counts.is_hopeless() {
            match kind {
                0 => self.single(way, &mut rng),
                1 => self.kept(way, &mut rng, &mut posts),
                _ => self.socket(way, &mut rng),
            }
            std::thread::sleep(Duration::from_millis(1 + rng.below(10)));
        }
        self.judge(way, KINDS[1], &posts);
    }

    /// A transfer that takes as long as the soak: `bytes` over `time`, down or up.
    pub fn transfer(&self, way: usize, up: bool, bytes: u64, time: Duration, seed: u64) {
        let kind = if up { "long upload" } else { "long download" };
        let pace = Pace::new(bytes, time);
        let door = &self.ways[way];
        let done = Http::connect(door, time * 3 + PATIENCE).and_then(|mut http| match up {
            true => http.post(seed, bytes, Some(pace)),
            false => http.get(seed, bytes, false, Some(pace)),
        });
        self.count(way, kind, done.map(drop), None, bytes);
        if up {
            self.judge(way, kind, &[(seed, true)]);
        }
    }

    /// Whether POST requests came once; `true`: they were answered.
    fn judge(&self, way: usize, kind: &'static str, posts: &[(u64, bool)]) {
        let name = &self.ways[way].name;
        let came = |seed| self.origins[way].posted(seed);
        let doubled = posts.iter().filter(|(seed, _)| came(*seed) > 1).count();
        if doubled > 0 {
            self.counts.doubled(name, kind, doubled as u64);
        }
        for _ in posts
            .iter()
            .filter(|(seed, right)| *right && came(*seed) == 0)
        {
            let fault = Fault::Wrong("a POST request that never came was answered".into());
            self.counts.wrong(name, kind, &fault, self.began.elapsed());
        }
    }

    fn count(
        &self,
        way: usize,
        kind: &'static str,
        done: Result<(), Fault>,
        took: Option<Duration>,
        bytes: u64,
    ) -> bool {
        let name = &self.ways[way].name;
        match &done {
            Ok(()) => self.counts.right(name, kind, took, bytes),
            Err(fault) => self.counts.wrong(name, kind, fault, self.began.elapsed()),
        }
        done.is_ok()
    }

    fn single(&self, way: usize, rng: &mut Rng) {
        let (seed, length, from) = (rng.draw(), rng.below(LONGEST), Instant::now());
        let done = Http::connect(&self.ways[way], PATIENCE)
            .and_then(|mut http| http.get(seed, length, true, None));
        self.count(way, KINDS[0], done.map(drop), Some(from.elapsed()), length);
    }

    fn kept(&self, way: usize, rng: &mut Rng, posts: &mut Vec<(u64, bool)>) {
        let mut http = match Http::connect(&self.ways[way], PATIENCE) {
            Ok(http) => http,
            Err(fault) => {
                self.count(way, KINDS[1], Err(fault), None, 0);
                return;
            }
        };
        for number in 0..1 + rng.below(60) {
            let (seed, length, from) = (rng.draw(), rng.below(LONGEST), Instant::now());
            http.patience();
            let done = match number % 2 {
                0 => http.get(seed, length, false, None),
                _ => http.post(seed, length, None),
            };
            if number % 2 == 1 {
                posts.push((seed, done.is_ok()));
            }
            // An answer may say that it is the last: the next request needs another connection, and nothing is lost.
            let over = done.as_ref().is_ok_and(|last| *last);
            let right = self.count(way, KINDS[1], done.map(drop), Some(from.elapsed()), length);
            if over || !right || self.stop.load(Relaxed) {
                return;
            }
            // It waits between requests, as browsers do, so that a reload meets it idle.
            std::thread::sleep(Duration::from_millis(rng.below(30)));
        }
    }

    fn socket(&self, way: usize, rng: &mut Rng) {
        let mut socket = match web_socket(&self.ways[way]) {
            Ok(socket) => socket,
            Err(fault) => {
                self.count(way, KINDS[2], Err(fault), None, 0);
                return;
            }
        };
        let first = rng.draw() / 2;
        for number in 0..20 + rng.below(80) {
            let text = format!("message {}", first + number);
            let from = Instant::now();
            let done = socket
                .send(Message::text(text.clone()))
                .map_err(fault_of)
                .and_then(|()| match socket.read().map_err(fault_of)? {
                    Message::Text(back) if back.as_str() == text => Ok(()),
                    other => Err(Fault::Wrong(format!("{other} instead of {text}"))),
                });
            let right = self.count(way, KINDS[2], done, Some(from.elapsed()), text.len() as u64);
            if !right {
                return;
            }
            if self.stop.load(Relaxed) {
                break;
            }
            std::thread::sleep(Duration::from_millis(5 + rng.below(30)));
        }
        let _ = socket.close(None);
        let ended = loop {
            match socket.read() {
                Ok(_) => {}
                Err(tungstenite::Error::ConnectionClosed) => break Ok(()),
                Err(error) => break Err(fault_of(error)),
            }
        };
        if let Err(fault) = ended {
            self.count(way, KINDS[2], Err(fault), None, 0);
        }
    }
}

/// One connection.
struct Http {
    reader: BufReader<TcpStream>,
    stream: TcpStream,
    host: String,
    until: Instant,
}

impl Http {
    fn connect(way: &Way, patience: Duration) -> Result<Self, Fault> {
        let stream = TcpStream::connect_timeout(&way.at, PATIENCE)?;
        stream.set_nodelay(true)?;
        // A wait that is too long for anything that goes well.
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self {
            reader: BufReader::with_capacity(PIECE, stream.try_clone()?),
            stream,
            host: way.host.clone(),
            until: Instant::now() + patience,
        })
    }

    fn patience(&mut self) {
        self.until = Instant::now() + PATIENCE;
    }

    /// Returns whether the connection ends with the answer.
    fn get(
        &mut self,
        seed: u64,
        length: u64,
        last: bool,
        pace: Option<Pace>,
    ) -> Result<bool, Fault> {
        let close = if last { "Connection: close\r\n" } else { "" };
        let head = format!(
            "GET /{length}/{seed} HTTP/1.1\r\nHost: {}\r\n{close}\r\n",
            self.host
        );
        self.stream.write_all(head.as_bytes())?;
        let (announced, over) = self.answer()?;
        if announced != length {
            return Err(Fault::Wrong(format!(
                "{announced} bytes announced instead of {length}"
            )));
        }
        let mut pattern = Pattern::new(seed);
        let mut buffer = [0; PIECE];
        while pattern.position() < length {
            let left = usize::try_from(length - pattern.position()).unwrap_or(PIECE);
            let n = self.reader.read(&mut buffer[..left.min(PIECE)])?;
            if n == 0 {
                let at = pattern.position();
                return Err(Fault::Reset(format!("an end after {at} of {length} bytes")));
            }
            (pattern.check(&buffer[..n]))
                .map_err(|wrong| Fault::Wrong(format!("byte {} differs", wrong.0)))?;
            self.in_time()?;
            pace.iter().for_each(|pace| pace.wait(pattern.position()));
        }
        Ok(over)
    }

    fn post(&mut self, seed: u64, length: u64, pace: Option<Pace>) -> Result<bool, Fault> {
        let head = format!(
            "POST /{length}/{seed} HTTP/1.1\r\nHost: {}\r\nContent-Length: {length}\r\n\r\n",
            self.host
        );
        // One write for what is short: as most programs do.
        let mut buffer = head.into_bytes();
        let mut pattern = Pattern::new(seed);
        loop {
            let left = usize::try_from(length - pattern.position()).unwrap_or(PIECE);
            let start = buffer.len();
            buffer.resize(start + left.min(PIECE), 0);
            pattern.fill(&mut buffer[start..]);
            self.stream.write_all(&buffer)?;
            buffer.clear();
            if pattern.position() >= length {
                break;
            }
            self.in_time()?;
            pace.iter().for_each(|pace| pace.wait(pattern.position()));
        }
        let (length, over) = self.answer()?;
        let mut verdict = vec![0; usize::try_from(length.min(64)).unwrap_or(0)];
        self.reader.read_exact(&mut verdict)?;
        if verdict != b"right" {
            let said = String::from_utf8_lossy(&verdict).into_owned();
            return Err(Fault::Wrong(format!("the service says: {said}")));
        }
        Ok(over)
    }

    /// The length of the answer, and whether it is the last.
    fn answer(&mut self) -> Result<(u64, bool), Fault> {
        let first = read_line(&mut self.reader)?;
        if first.is_empty() {
            return Err(Fault::Reset("an end instead of an answer".into()));
        }
        let status = first.split(' ').nth(1).and_then(|word| word.parse().ok());
        let (mut length, mut over) = (None, false);
        loop {
            let line = read_line(&mut self.reader)?;
            let Some((name, value)) = line.split_once(':') else {
                break;
            };
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().ok();
            } else if name.eq_ignore_ascii_case("connection") {
                over = value.trim().eq_ignore_ascii_case("close");
            }
        }
        match (status, length) {
            (Some(200..=299), Some(length)) => Ok((length, over)),
            (Some(200..=299), None) => Err(Fault::Reset("an answer that ends in its head".into())),
            (status, _) => Err(Fault::Status(status.unwrap_or(0))),
        }
    }

    fn in_time(&self) -> Result<(), Fault> {
        (Instant::now() < self.until)
            .then_some(())
            .ok_or(Fault::Late)
    }
}

fn web_socket(way: &Way) -> Result<WebSocket<TcpStream>, Fault> {
    let stream = TcpStream::connect_timeout(&way.at, PATIENCE)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    match tungstenite::client(format!("ws://{}/1/1", way.host), stream) {
        Ok((socket, _)) => Ok(socket),
        Err(tungstenite::HandshakeError::Failure(error)) => Err(fault_of(error)),
        Err(tungstenite::HandshakeError::Interrupted(_)) => Err(Fault::Late),
    }
}

fn fault_of(error: tungstenite::Error) -> Fault {
    match error {
        tungstenite::Error::Io(error) => error.into(),
        tungstenite::Error::Http(answer) => Fault::Status(answer.status().as_u16()),
        other => Fault::Reset(other.to_string()),
    }
}

/// So many bytes in a time, evenly.
#[derive(Clone, Copy, Debug)]
struct Pace {
    began: Instant,
    /// Seconds for each byte.
    each: f64,
}

impl Pace {
    fn new(bytes: u64, time: Duration) -> Self {
        Self {
            began: Instant::now(),
            each: time.as_secs_f64() / bytes.max(1) as f64,
        }
    }

    /// Until it is time for the byte at `position`.
    fn wait(&self, position: u64) {
        let due = Duration::from_secs_f64(self.each * position as f64);
        std::thread::sleep(due.saturating_sub(self.began.elapsed()));
    }
}

impl From<crate::pattern::Mismatch> for Fault {
    fn from(wrong: crate::pattern::Mismatch) -> Self {
        Self::Wrong(format!("byte {} differs", wrong.0))
    }
}

/// What nothing here may take, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(20);
/// Bodies of ordinary requests.
const LONGEST: u64 = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visitors_of_a_service_without_anything_between_see_nothing_wrong() -> anyhow::Result<()> {
        let origin = Origin::open("127.0.0.1:0".parse()?)?;
        let (counts, stop) = (Counts::default(), AtomicBool::new(true));
        let scene = Scene {
            counts: &counts,
            ways: vec![Way {
                name: "none".into(),
                at: origin.at(),
                host: "a.test".into(),
            }],
            origins: vec![&origin],
            stop: &stop,
            began: Instant::now(),
        };
        let mut rng = Rng::new(1);
        let mut posts = Vec::new();
        scene.single(0, &mut rng);
        stop.store(false, Relaxed);
        scene.kept(0, &mut rng, &mut posts);
        scene.socket(0, &mut rng);
        for up in [false, true] {
            scene.transfer(0, up, 300_000, Duration::from_millis(20), 5 + u64::from(up));
        }
        scene.judge(0, KINDS[1], &posts);
        let (rows, words) = counts.table();
        assert_eq!((counts.faults(), rows.len()), (0, 5), "{words:?}");
        assert!(rows.iter().all(|(_, _, row)| row.right > 0));
        // What the origin has seen twice is found.
        scene.transfer(0, true, 10, Duration::ZERO, 6);
        assert_eq!(counts.faults(), 1, "the upload with seed 6 came twice");
        Ok(())
    }

    #[test]
    fn a_door_that_is_shut_is_a_refusal() -> std::io::Result<()> {
        let shut = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let way = Way {
            name: "shut".into(),
            at: shut,
            host: "a.test".into(),
        };
        assert!(matches!(Http::connect(&way, PATIENCE), Err(Fault::Refused)));
        Ok(())
    }
}

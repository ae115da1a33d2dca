//! An origin that accepts only what can be read in one way: every request that is not written in the plainest words of RFC 9112 is a finding.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use e2e::Service;

use crate::corpus::Meaning;

/// A request as it arrived, complete.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) meaning: Meaning,
    /// Names in lower case.
    pub(crate) fields: Vec<(String, Vec<u8>)>,
    /// What of it could be read in another way.
    pub(crate) problem: Option<String>,
}

/// The origin.
#[derive(Debug)]
pub(crate) struct Recorder {
    service: Service,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Recorder {
    /// The strict one.
    pub(crate) fn start() -> Self {
        Self::with(true)
    }

    /// One that takes everything whose framing is clear: for what stands behind an origin and tells what that has understood.
    pub(crate) fn lenient() -> Self {
        Self::with(false)
    }

    fn with(strict: bool) -> Self {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&seen);
        let service = Service::tcp(move |stream| {
            // Nothing of a test lasts so long: a connection that is kept ends with its proxy.
            stream.set_read_timeout(Some(Duration::from_secs(300)))?;
            let mut wire = Wire {
                stream,
                read: Vec::new(),
                strict,
            };
            while let Some((seen, goes_on)) = wire.request()? {
                let head_only = seen.meaning.method == b"HEAD";
                let status = if seen.problem.is_some() {
                    "400 Bad"
                } else {
                    "200 OK"
                };
                shared
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(seen);
                let close = if goes_on { "" } else { "Connection: close\r\n" };
                let body = if head_only { "" } else { "ok\n" };
                let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 3\r\n{close}\r\n{body}");
                wire.stream.write_all(answer.as_bytes())?;
                if !goes_on {
                    return Ok(());
                }
            }
            Ok(())
        });
        Self { service, seen }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.service.address()
    }

    /// All that came since the last call.
    pub(crate) fn take(&self) -> Vec<Seen> {
        std::mem::take(&mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

struct Wire {
    stream: TcpStream,
    read: Vec<u8>,
    strict: bool,
}

impl Wire {
    /// The next request, and whether another may follow. `None` when the connection ends, also within a request: that is none.
    fn request(&mut self) -> io::Result<Option<(Seen, bool)>> {
        let Some(head) = self.until(b"\r\n\r\n")? else {
            return Ok(None);
        };
        let mut head = Head::parse(&head, self.strict);
        if head.expects {
            self.stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        let mut body = Vec::new();
        match head.framing {
            Framing::Length(length) => match self.take(length)? {
                Some(bytes) => body = bytes,
                None => return Ok(None),
            },
            Framing::Chunked => match self.chunks(&mut head)? {
                Some(bytes) => body = bytes,
                None => return Ok(None),
            },
            Framing::Unknown => {}
        }
        let goes_on = !head.close && head.problem.is_none();
        let seen = Seen {
            meaning: Meaning::new(&head.method, &head.target, &body),
            fields: head.fields,
            problem: head.problem,
        };
        Ok(Some((seen, goes_on)))
    }

    fn chunks(&mut self, head: &mut Head) -> io::Result<Option<Vec<u8>>> {
        let mut body = Vec::new();
        loop {
            let Some(line) = self.until(b"\r\n")? else {
                return Ok(None);
            };
            let digits = &line[..line.len() - 2];
            let plain =
                !digits.is_empty() && digits.len() < 16 && digits.iter().all(u8::is_ascii_hexdigit);
            let text = String::from_utf8_lossy(digits).into_owned();
            let size = usize::from_str_radix(&text, 16);
            let (true, Ok(size)) = (plain, size) else {
                head.fault(format!("a chunk's size is {text:?}"));
                return Ok(Some(body));
            };
            if size == 0 {
                break;
            }
            let Some(mut data) = self.take(size + 2)? else {
                return Ok(None);
            };
            if !data.ends_with(b"\r\n") {
                head.fault("a chunk does not end where it should".to_owned());
            }
            data.truncate(size);
            body.append(&mut data);
        }
        loop {
            let Some(line) = self.until(b"\r\n")? else {
                return Ok(None);
            };
            if line == b"\r\n" {
                return Ok(Some(body));
            }
            head.trailer(&line[..line.len() - 2]);
        }
    }

    fn until(&mut self, mark: &[u8]) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(at) = self.read.windows(mark.len()).position(|part| part == mark) {
                return Ok(Some(self.read.drain(..at + mark.len()).collect()));
            }
            if !self.fill()? {
                return Ok(None);
            }
        }
    }

    fn take(&mut self, length: usize) -> io::Result<Option<Vec<u8>>> {
        while self.read.len() < length {
            if !self.fill()? {
                return Ok(None);
            }
        }
        Ok(Some(self.read.drain(..length).collect()))
    }

    fn fill(&mut self) -> io::Result<bool> {
        let mut piece = [0; 16 << 10];
        let n = self.stream.read(&mut piece)?;
        self.read.extend_from_slice(&piece[..n]);
        Ok(n > 0)
    }
}

#[derive(Debug, Default)]
struct Head {
    method: Vec<u8>,
    target: Vec<u8>,
    fields: Vec<(String, Vec<u8>)>,
    framing: Framing,
    expects: bool,
    close: bool,
    problem: Option<String>,
    strict: bool,
}

#[derive(Debug)]
enum Framing {
    Length(usize),
    Chunked,
    /// The head has a problem; no body is read.
    Unknown,
}

impl Default for Framing {
    fn default() -> Self {
        Self::Length(0)
    }
}

impl Head {
    fn parse(bytes: &[u8], strict: bool) -> Self {
        let mut head = Self {
            strict,
            ..Self::default()
        };
        let text = &bytes[..bytes.len() - 4];
        let odd =
            |byte: &u8| (*byte < b' ' && !matches!(byte, b'\r' | b'\n' | b'\t')) || *byte == 0x7f;
        let lone = text
            .windows(2)
            .any(|two| (two[0] == b'\r') != (two[1] == b'\n'));
        if text.iter().any(odd) || lone || text.starts_with(b"\n") || text.ends_with(b"\r") {
            head.fault("a control character, or half a line end".to_owned());
        }
        let mut lines = text
            .split(|byte| *byte == b'\n')
            .map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        head.request_line(lines.next().unwrap_or_default());
        for line in lines {
            head.field(line);
        }
        head.frame();
        head
    }

    fn fault(&mut self, problem: String) {
        if self.strict {
            self.problem.get_or_insert(problem);
            self.framing = Framing::Unknown;
        }
    }

    fn request_line(&mut self, line: &[u8]) {
        let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        if let [method, target, ..] = words[..] {
            self.method = method.to_vec();
            self.target = target.to_vec();
        }
        self.close = line.ends_with(b"0");
        let sound = match words[..] {
            [method, target, b"HTTP/1.1" | b"HTTP/1.0"] => {
                is_token(method) && !target.is_empty() && target.is_ascii()
            }
            _ => false,
        };
        if !sound {
            self.fault(format!(
                "the request line is {:?}",
                String::from_utf8_lossy(line)
            ));
        }
    }

    fn field(&mut self, line: &[u8]) {
        let colon = line
            .iter()
            .position(|byte| *byte == b':')
            .unwrap_or(line.len());
        let (name, value) = line.split_at(colon);
        if !is_token(name) || value.is_empty() {
            return self.fault(format!(
                "a field line is {:?}",
                String::from_utf8_lossy(line)
            ));
        }
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        self.fields.push((name, value[1..].trim_ascii().to_vec()));
    }

    fn trailer(&mut self, line: &[u8]) {
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(0);
        let name = String::from_utf8_lossy(&line[..colon])
            .to_ascii_lowercase()
            .replace('_', "-");
        let forbidden = [
            "content-length",
            "transfer-encoding",
            "host",
            "connection",
            "expect",
            "x-forwarded-for",
            "authorization",
            "cookie",
        ];
        let odd = line.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0));
        if !is_token(&line[..colon]) || odd || forbidden.contains(&&*name) {
            self.fault(format!(
                "a trailer line is {:?}",
                String::from_utf8_lossy(line)
            ));
        }
    }

    fn values(&self, name: &str) -> Vec<Vec<u8>> {
        let named = self.fields.iter().filter(|(other, _)| other == name);
        named.map(|(_, value)| value.to_ascii_lowercase()).collect()
    }

    fn frame(&mut self) {
        let (lengths, codings) = (
            self.values("content-length"),
            self.values("transfer-encoding"),
        );
        let hosts = self.values("host").len();
        if hosts != 1 {
            self.fault(format!("there are {hosts} Host fields"));
        }
        match (&lengths[..], &codings[..]) {
            ([], []) => {}
            ([], [coding]) if coding == b"chunked" => self.framing = Framing::Chunked,
            ([length], []) if length.iter().all(u8::is_ascii_digit) => {
                match String::from_utf8_lossy(length).parse() {
                    Ok(length) => self.framing = Framing::Length(length),
                    Err(_) => self.fault("the length is no number".to_owned()),
                }
            }
            _ => self.fault(format!("lengths {lengths:?}, codings {codings:?}")),
        }
        if self.problem.is_some() {
            self.framing = Framing::Unknown;
        }
        self.expects = !self.values("expect").is_empty();
        self.close |= self
            .values("connection")
            .iter()
            .any(|value| value == b"close");
        let mut names: Vec<String> = self
            .fields
            .iter()
            .map(|(name, _)| name.replace('_', "-"))
            .collect();
        names.retain(|name| matches!(&**name, "content-length" | "transfer-encoding" | "host"));
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        if all != names.len() {
            self.fault("a field looks like one of framing".to_owned());
        }
    }
}

fn is_token(bytes: &[u8]) -> bool {
    let good = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !bytes.is_empty() && bytes.iter().all(good)
}

#[test]
fn the_recorder_finds_what_could_be_read_in_two_ways() {
    let problem = |text: &str| Head::parse(text.as_bytes(), true).problem;
    assert_eq!(
        problem("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n"),
        None
    );
    for text in [
        "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: a\nY: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n X: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: +3\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent_Length: 4\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX : b\r\n\r\n",
        "GET / HTTP/1.1\r\nX: b\r\n\r\n",
    ] {
        assert!(problem(text).is_some(), "{text:?}");
    }
}

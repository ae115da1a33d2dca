//! The control socket: who runs on this machine as the same user asks a running supervisor here, one JSON line each way.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    time::{Duration, Instant},
};

use rustix::{net::sockopt::socket_peercred, process::getuid};
use serde::{Deserialize, Serialize};

use crate::place::Place;

/// What can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ask {
    /// Read the configuration again and run by it.
    Reload,
    /// Say what a reload would do.
    Plan,
    /// Become the program that lies on disk now, with new workers.
    Restart,
    /// Let what runs end, and end; asked again, end at once.
    Stop,
    /// What runs.
    Status,
    /// Open log files again.
    ReopenLogs,
}

#[derive(Debug, Serialize, Deserialize)]
struct Question {
    key: String,
    ask: Ask,
}

/// What a worker without a supervisor says to a new one. The answer brings the other end of a channel.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Adopt {
    pub(crate) key: String,
    /// Which configuration.
    pub(crate) adopt: String,
    pub(crate) generation: u32,
    pub(crate) what: String,
    pub(crate) handoff: Option<String>,
}

/// The answer to a worker that is not needed any more.
pub(crate) const ANOTHER_SERVES: &str = "another worker serves";

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// It was done.
    pub ok: bool,
    /// Lines for people.
    pub text: String,
    /// To [`Ask::Status`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
}

/// What runs under a supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The supervisor's process.
    pub pid: i32,
    /// Version of its program.
    pub version: String,
    /// Where its program lay when it was started; a restart runs what lies there then.
    pub program: String,
    /// Seconds since it was started.
    pub uptime_seconds: u64,
    /// What it was started for.
    pub configuration: String,
    /// A reload or restart is under way.
    pub busy: bool,
    /// Each configuration.
    pub units: Vec<UnitStatus>,
}

/// One configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitStatus {
    /// Its file, or what the command line asked for.
    pub name: String,
    /// Its workers, the oldest first.
    pub workers: Vec<WorkerStatus>,
    /// Sockets that are kept open.
    pub listeners: Vec<ListenerStatus>,
    /// Ports of services that are kept open.
    pub service_ports: usize,
    /// Deaths of workers in a row.
    pub deaths: u32,
    /// A change waits until an older worker has ended.
    pub change_waits: bool,
}

/// One worker process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// Its process.
    pub pid: i32,
    /// Counts the workers of the configuration.
    pub generation: u32,
    /// `starting`, `ready`, `serving`, `draining` or `ending`.
    pub state: String,
    /// Seconds since its start.
    pub uptime_seconds: u64,
    /// One line about itself.
    pub what: String,
    /// Visits that run, as far as it has said.
    pub visits: Option<u64>,
    /// Links that are up, as far as it has said.
    pub links: Option<u64>,
    /// Seconds until it is ended, while it drains.
    pub ends_within_seconds: Option<u64>,
}

/// A listening socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenerStatus {
    /// The option that names it.
    pub option: String,
    /// `tcp` or `udp`.
    pub protocol: String,
    /// Address and port.
    pub address: String,
}

/// Why a running gt was not reached.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Nobody is there.
    #[error("no gt runs for {0}, or another user runs it")]
    NotRunning(String),
    /// It did not answer.
    #[error("gt runs for {0}, but did not answer: {1}")]
    NoAnswer(String, io::Error),
}

/// Asks the supervisor of a configuration, and waits for the answer up to `patience`.
///
/// # Errors
/// [`AskError`].
pub fn ask(key: &str, ask: Ask, patience: Duration) -> Result<Answer, AskError> {
    let mut there = Place::candidates(key)
        .into_iter()
        .filter_map(|place| UnixStream::connect(place.socket()).ok());
    let stream = there
        .next()
        .ok_or_else(|| AskError::NotRunning(key.to_owned()))?;
    exchange(&stream, key, ask, patience).map_err(|error| AskError::NoAnswer(key.to_owned(), error))
}

fn exchange(
    mut stream: &UnixStream,
    key: &str,
    ask: Ask,
    patience: Duration,
) -> io::Result<Answer> {
    stream.set_read_timeout(Some(patience))?;
    let question = Question {
        key: key.to_owned(),
        ask,
    };
    stream.write_all(format!("{}\n", serde_json::to_string(&question)?).as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream.take(LONGEST_ANSWER)).read_line(&mut line)?;
    if line.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_str(&line)?)
}

/// Names a connection to the control socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnId(pub(crate) u64);

/// Somebody who asks.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) id: ConnId,
    pub(crate) stream: UnixStream,
    input: Vec<u8>,
    /// Its question is being worked on.
    pub(crate) asked: bool,
    pub(crate) since: Instant,
}

/// What came of reading a connection.
pub(crate) enum Heard {
    Nothing,
    Question(Ask),
    Adopt(Adopt),
    /// It has gone, or makes no sense.
    Gone,
}

impl Conn {
    /// The next one who comes and may.
    pub(crate) fn accept(listener: &UnixListener, id: ConnId, now: Instant) -> Option<Self> {
        let (stream, _) = listener.accept().ok()?;
        let peer = socket_peercred(&stream).ok()?;
        if peer.uid != getuid() && !peer.uid.is_root() {
            tracing::warn!(
                uid = peer.uid.as_raw(),
                "another user may not use the control socket"
            );
            return None;
        }
        stream.set_nonblocking(true).ok()?;
        Some(Self::new(id, stream, false, now))
    }

    pub(crate) fn new(id: ConnId, stream: UnixStream, asked: bool, since: Instant) -> Self {
        Self {
            id,
            stream,
            input: Vec::new(),
            asked,
            since,
        }
    }

    pub(crate) fn read(&mut self, key: &str) -> Heard {
        let mut buffer = [0; 1024];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Heard::Gone,
                // It has asked, and says more: nothing that is understood.
                Ok(_) if self.asked => return Heard::Gone,
                Ok(n) => self.input.extend_from_slice(&buffer[..n]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Heard::Gone,
            }
            if self.input.len() > LONGEST_QUESTION {
                return Heard::Gone;
            }
        }
        let line = self.input.iter().position(|byte| *byte == b'\n');
        // One question each: it stays in the buffer while it is worked on.
        let Some(end) = line.filter(|_| !self.asked) else {
            return Heard::Nothing;
        };
        if let Ok(adopt) = serde_json::from_slice::<Adopt>(&self.input[..end]) {
            self.asked = true;
            return if adopt.key == key {
                Heard::Adopt(adopt)
            } else {
                Heard::Gone
            };
        }
        match serde_json::from_slice::<Question>(&self.input[..end]) {
            Ok(question) if question.key == key => {
                self.asked = true;
                Heard::Question(question.ask)
            }
            Ok(_) => {
                let text = format!("this gt runs for {key}");
                self.answer(&failed(&text));
                Heard::Gone
            }
            Err(_) => Heard::Gone,
        }
    }

    /// Says the answer; whoever does not take it in one piece does without.
    pub(crate) fn answer(&mut self, answer: &Answer) {
        if let Ok(mut line) = serde_json::to_vec(answer) {
            line.push(b'\n');
            let _ = self.stream.write_all(&line);
        }
    }
}

pub(crate) fn failed(text: &str) -> Answer {
    Answer {
        ok: false,
        text: text.to_owned(),
        status: None,
    }
}

/// What one may take to ask.
pub(crate) const QUESTION_TIME: Duration = Duration::from_secs(5);
pub(crate) const MOST_CONNECTIONS: usize = 32;
const LONGEST_QUESTION: usize = 32 << 10;
const LONGEST_ANSWER: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn conn() -> (UnixStream, Conn) {
        let (theirs, ours) = UnixStream::pair().expect("a pair");
        ours.set_nonblocking(true).expect("set");
        (theirs, Conn::new(ConnId(1), ours, false, Instant::now()))
    }

    #[test]
    fn a_question_is_heard_once_however_it_comes() {
        let (mut theirs, mut conn) = conn();
        let question = br#"{"key":"/etc/gt.yml","ask":"reload"}"#;
        for byte in question {
            theirs.write_all(&[*byte]).expect("sent");
            assert!(matches!(conn.read("/etc/gt.yml"), Heard::Nothing));
        }
        theirs.write_all(b"\n").expect("sent");
        assert!(matches!(
            conn.read("/etc/gt.yml"),
            Heard::Question(Ask::Reload)
        ));
        // While it is worked on, the loop looks again and again.
        assert!(matches!(conn.read("/etc/gt.yml"), Heard::Nothing));
        theirs.write_all(question).expect("sent");
        assert!(matches!(conn.read("/etc/gt.yml"), Heard::Gone));
    }

    #[test]
    fn what_is_no_question_of_this_configuration_is_turned_away() {
        let said: [&[u8]; 3] = [
            b"{\"key\":\"/etc/other.yml\",\"ask\":\"stop\"}\n",
            b"stop\n",
            &[b'x'; LONGEST_QUESTION + 1],
        ];
        for bytes in said {
            let (mut theirs, mut conn) = conn();
            theirs.write_all(bytes).expect("sent");
            assert!(matches!(conn.read("/etc/gt.yml"), Heard::Gone));
        }
    }
}

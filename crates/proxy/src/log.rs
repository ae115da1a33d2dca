//! The access log: a line per exchange, made in a buffer of the worker and written by a thread of its own, so that no data thread waits for a
//! disk. A log that cannot be written loses lines and counts them; it never holds up a request.

use std::{
    cell::{Cell, RefCell},
    fmt::Write as _,
    fs::{File, OpenOptions},
    io::{self, Write as _},
    net::IpAddr,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, channel, sync_channel},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// An access log as it is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLogSpec {
    /// The file; made if it is not there, appended to.
    pub path: PathBuf,
    /// How lines look.
    pub format: Format,
    /// Of so many exchanges one is logged; 0 is taken as 1.
    pub one_of: u32,
    /// Bytes of lines that may wait for the disk, at least two buffers of 32 KiB; what comes on top is lost and counted.
    pub buffer: u64,
}

impl AccessLogSpec {
    /// The default of `buffer`: some seconds of lines of a busy proxy.
    pub const BUFFER: u64 = 4 << 20;

    /// Every exchange, in the combined format.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            format: Format::default(),
            one_of: 1,
            buffer: Self::BUFFER,
        }
    }
}

/// How lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// As Apache's and nginx's `combined`, with gt's timers and end code behind it.
    #[default]
    Combined,
    /// One JSON object per line.
    Json,
}

/// Who ended an exchange.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum EndedBy {
    /// It ended as it should.
    #[default]
    Nobody,
    Visitor,
    Upstream,
    Proxy,
}

/// In which phase it ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The request was being read.
    #[default]
    Request,
    /// A server was being chosen or waited for.
    Queue,
    Connect,
    /// The answer's head was awaited.
    Answer,
    /// Bodies were moving.
    Data,
}

/// One exchange, as it is logged. Borrowed: nothing is kept.
#[derive(Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) visitor: IpAddr,
    pub(crate) method: &'a [u8],
    pub(crate) target: &'a [u8],
    pub(crate) version: &'a str,
    pub(crate) host: &'a [u8],
    pub(crate) referer: &'a [u8],
    pub(crate) user_agent: &'a [u8],
    pub(crate) status: u16,
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) took: Duration,
    pub(crate) head_after: Option<Duration>,
    pub(crate) upstream: &'a str,
    pub(crate) route: &'a str,
    pub(crate) ended_by: EndedBy,
    pub(crate) phase: Phase,
}

impl Entry<'_> {
    /// What came was no request, or not in time.
    pub(crate) fn no_request(visitor: IpAddr, status: u16) -> Self {
        Self {
            visitor,
            method: b"",
            target: b"",
            version: "",
            host: b"",
            referer: b"",
            user_agent: b"",
            status,
            sent: 0,
            received: 0,
            took: Duration::ZERO,
            head_after: None,
            upstream: "",
            route: "",
            ended_by: EndedBy::Visitor,
            phase: Phase::Request,
        }
    }
}

/// The file and its thread. Dropping it writes what is left.
#[derive(Debug)]
pub(crate) struct AccessLog {
    shared: Arc<Shared>,
    /// Says when the thread has ended.
    ended: Receiver<()>,
}

#[derive(Debug)]
struct Shared {
    sender: SyncSender<Message>,
    format: Format,
    /// Of so many exchanges one is logged.
    one_of: u32,
    lost: Arc<AtomicU64>,
    reopen: AtomicBool,
    ending: AtomicBool,
}

#[derive(Debug)]
enum Message {
    Lines(Vec<u8>),
    /// Look at the flags.
    Wake,
}

impl AccessLog {
    /// Opens the file (made if it is not there, mode as the umask says, appended to) and starts the thread.
    ///
    /// # Errors
    /// The system's, when the file cannot be opened or the thread not started.
    pub(crate) fn open(spec: &AccessLogSpec) -> io::Result<Self> {
        let file = Writer::open(&spec.path)?;
        let waiting = usize::try_from(spec.buffer).unwrap_or(usize::MAX) / FLUSH_AT;
        let (sender, receiver) = sync_channel(waiting.clamp(2, MOST_WAITING));
        let shared = Arc::new(Shared {
            sender,
            format: spec.format,
            one_of: spec.one_of.max(1),
            lost: Arc::default(),
            reopen: AtomicBool::new(false),
            ending: AtomicBool::new(false),
        });
        let (end, ended) = channel();
        std::thread::Builder::new()
            .name("gt-access-log".into())
            .spawn({
                let shared = Arc::clone(&shared);
                let path = spec.path.clone();
                move || {
                    let _end = end;
                    write_all(&shared, &receiver, file, &path);
                }
            })?;
        Ok(Self { shared, ended })
    }

    /// Opens the file again by its name before the next line: for rotation by renaming.
    pub(crate) fn reopen(&self) {
        self.shared.reopen.store(true, Relaxed);
        let _ = self.shared.sender.try_send(Message::Wake);
    }

    /// Lines that were lost because the disk was too slow or refused them.
    pub(crate) fn lost_counter(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.shared.lost)
    }

    pub(crate) fn lines(&self) -> Lines {
        Lines {
            shared: Arc::clone(&self.shared),
            buffer: RefCell::default(),
            count: Cell::new(0),
        }
    }
}

impl Drop for AccessLog {
    /// Waits until what is there is written; for a disk that hangs, not for ever.
    fn drop(&mut self) {
        self.shared.ending.store(true, Relaxed);
        // If the queue is full, there is something that wakes it anyway.
        let _ = self.shared.sender.try_send(Message::Wake);
        if self.ended.recv_timeout(LAST_WORDS) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            tracing::warn!("the access log cannot be written in time; its last lines are lost");
        }
    }
}

/// One worker's end of the log.
#[derive(Debug)]
pub(crate) struct Lines {
    shared: Arc<Shared>,
    buffer: RefCell<Vec<u8>>,
    count: Cell<u32>,
}

impl Lines {
    /// Appends a line to the worker's buffer.
    pub(crate) fn add(&self, entry: &Entry<'_>) {
        self.count.set(self.count.get() + 1);
        if self.count.get() < self.shared.one_of {
            return;
        }
        self.count.set(0);
        let mut buffer = self.buffer.borrow_mut();
        match self.shared.format {
            Format::Combined => combined(&mut buffer, entry),
            Format::Json => json(&mut buffer, entry),
        }
        if buffer.len() >= FLUSH_AT {
            drop(buffer);
            self.flush();
        }
    }

    /// Hands what has gathered to the thread; called now and then.
    pub(crate) fn flush(&self) {
        let mut buffer = self.buffer.borrow_mut();
        if buffer.is_empty() {
            return;
        }
        let capacity = buffer.capacity();
        let lines = std::mem::replace(&mut *buffer, Vec::with_capacity(capacity));
        if let Err(
            TrySendError::Full(Message::Lines(lines))
            | TrySendError::Disconnected(Message::Lines(lines)),
        ) = self.shared.sender.try_send(Message::Lines(lines))
        {
            count_lost(&self.shared, &lines);
        }
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.flush();
    }
}

/// The open file.
struct Writer {
    file: File,
    /// The last line was cut off.
    torn: bool,
}

impl Writer {
    /// Never waits: a pipe that nobody reads is an error, and one that is full loses lines.
    fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(path)?;
        Ok(Self { file, torn: false })
    }

    /// Writes lines; on an error the rest of them comes back with it.
    fn write<'l>(&mut self, lines: &'l [u8]) -> Result<(), (io::Error, &'l [u8])> {
        if self.torn {
            // What follows must not become a part of the line that was cut off.
            self.file.write_all(b"\n").map_err(|error| (error, lines))?;
            self.torn = false;
        }
        let mut rest = lines;
        while !rest.is_empty() {
            match self.file.write(rest) {
                Ok(n @ 1..) => rest = rest.get(n..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                failed => {
                    let written = lines.len() - rest.len();
                    self.torn = written > 0 && lines.get(written - 1) != Some(&b'\n');
                    let error = failed.err().unwrap_or(io::ErrorKind::WriteZero.into());
                    return Err((error, rest));
                }
            }
        }
        Ok(())
    }
}

fn write_all(shared: &Shared, receiver: &Receiver<Message>, mut file: Writer, path: &Path) {
    let mut complained = false;
    loop {
        let message = match receiver.try_recv() {
            Ok(message) => message,
            Err(TryRecvError::Disconnected) => return,
            Err(TryRecvError::Empty) if shared.ending.load(Relaxed) => return,
            Err(TryRecvError::Empty) => match receiver.recv() {
                Ok(message) => message,
                Err(_) => return,
            },
        };
        if shared.reopen.swap(false, Relaxed) {
            match Writer::open(path) {
                Ok(again) => file = again,
                Err(error) => {
                    tracing::error!(%error, path = %path.display(), "the access log cannot be opened again; the old file is written on");
                }
            }
        }
        let Message::Lines(lines) = message else {
            continue;
        };
        match file.write(&lines) {
            Ok(()) => complained = false,
            Err((error, rest)) => {
                count_lost(shared, rest);
                if !complained {
                    tracing::error!(%error, path = %path.display(), "the access log cannot be written; lines are lost until it can");
                    complained = true;
                }
            }
        }
    }
}

fn count_lost(shared: &Shared, lines: &[u8]) {
    let lost = lines.iter().filter(|byte| **byte == b'\n').count();
    shared.lost.fetch_add(lost as u64, Relaxed);
}

fn combined(out: &mut Vec<u8>, entry: &Entry<'_>) {
    let mut line = Text(out);
    let _ = write!(line, "{} - - [", entry.visitor);
    let _ = line.write_str(&common_time(SystemTime::now()));
    let _ = line.write_str("] \"");
    if entry.method.is_empty() {
        let _ = line.write_str("-");
    } else {
        line.escaped(entry.method);
        let _ = line.write_str(" ");
        line.escaped(entry.target);
        let _ = write!(line, " {}", entry.version);
    }
    let _ = write!(line, "\" {} {} \"", entry.status, entry.sent);
    line.escaped_or_dash(entry.referer);
    let _ = line.write_str("\" \"");
    line.escaped_or_dash(entry.user_agent);
    let _ = line.write_str("\" \"");
    line.escaped_or_dash(entry.host);
    let head_after = entry.head_after.map_or(-1.0, |after| after.as_secs_f64());
    let _ = writeln!(
        line,
        "\" route={} upstream={} in={} total={:.3} head={head_after:.3} end={}{}",
        dash(entry.route),
        dash(entry.upstream),
        entry.received,
        entry.took.as_secs_f64(),
        entry.ended_by.code(),
        entry.phase.code(entry.ended_by),
    );
}

fn json(out: &mut Vec<u8>, entry: &Entry<'_>) {
    let mut line = Text(out);
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let _ = write!(
        line,
        "{{\"time\":{}.{:03},\"visitor\":\"{}\",\"method\":\"",
        now.as_secs(),
        now.subsec_millis(),
        entry.visitor
    );
    line.json(entry.method);
    for (name, value) in [
        ("host", entry.host),
        ("target", entry.target),
        ("version", entry.version.as_bytes()),
        ("referer", entry.referer),
        ("userAgent", entry.user_agent),
        ("route", entry.route.as_bytes()),
        ("upstream", entry.upstream.as_bytes()),
    ] {
        let _ = write!(line, "\",\"{name}\":\"");
        line.json(value);
    }
    let _ = write!(
        line,
        "\",\"status\":{},\"sent\":{},\"received\":{},\"seconds\":{:.6}",
        entry.status,
        entry.sent,
        entry.received,
        entry.took.as_secs_f64()
    );
    if let Some(after) = entry.head_after {
        let _ = write!(line, ",\"headSeconds\":{:.6}", after.as_secs_f64());
    }
    let _ = writeln!(
        line,
        ",\"end\":\"{}{}\"}}",
        entry.ended_by.code(),
        entry.phase.code(entry.ended_by)
    );
}

impl EndedBy {
    fn code(self) -> char {
        match self {
            Self::Nobody => '-',
            Self::Visitor => 'C',
            Self::Upstream => 'S',
            Self::Proxy => 'P',
        }
    }
}

impl Phase {
    fn code(self, by: EndedBy) -> char {
        match (by, self) {
            (EndedBy::Nobody, _) => '-',
            (_, Self::Request) => 'R',
            (_, Self::Queue) => 'Q',
            (_, Self::Connect) => 'C',
            (_, Self::Answer) => 'H',
            (_, Self::Data) => 'D',
        }
    }
}

fn dash(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}

/// Text into bytes, with what visitors sent made harmless.
struct Text<'a>(&'a mut Vec<u8>);

impl Text<'_> {
    /// As nginx does: quotes, backslashes, controls and bytes above 126 as `\xHH`.
    fn escaped(&mut self, bytes: &[u8]) {
        for byte in bytes {
            match byte {
                b'"' | b'\\' | 0..=31 | 127.. => {
                    let _ = write!(self, "\\x{byte:02X}");
                }
                byte => self.0.push(*byte),
            }
        }
    }

    fn escaped_or_dash(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            self.0.push(b'-');
        } else {
            self.escaped(bytes);
        }
    }

    /// Inside a JSON string: bytes that are no ASCII as the code points of Latin-1, so that no byte is lost and the line stays valid.
    fn json(&mut self, bytes: &[u8]) {
        for byte in bytes {
            match byte {
                b'"' => self.0.extend_from_slice(b"\\\""),
                b'\\' => self.0.extend_from_slice(b"\\\\"),
                0..=31 | 127.. => {
                    let _ = write!(self, "\\u{byte:04x}");
                }
                byte => self.0.push(*byte),
            }
        }
    }
}

impl std::fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

/// `21/Nov/2026:12:00:00 +0000`: in UTC, made once a second.
fn common_time(now: SystemTime) -> String {
    thread_local! {
        static LAST: RefCell<(u64, String)> = const { RefCell::new((u64::MAX, String::new())) };
    }
    let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    LAST.with_borrow_mut(|(at, text)| {
        if *at != seconds {
            *at = seconds;
            *text = format_time(seconds);
        }
        text.clone()
    })
}

fn format_time(seconds: u64) -> String {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let (day, in_day) = (seconds / 86_400, seconds % 86_400);
    // Days since 1 March of year 0, where a year ends with its leap day.
    let day = day + 719_468;
    let era = day / 146_097;
    let of_era = day % 146_097;
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    let name = usize::try_from(month - 1)
        .ok()
        .and_then(|index| MONTHS.get(index))
        .unwrap_or(&"Jan");
    format!(
        "{of_month:02}/{name}/{year}:{:02}:{:02}:{:02} +0000",
        in_day / 3_600,
        in_day / 60 % 60,
        in_day % 60
    )
}

/// Buffers that may wait for the disk: 1 GiB of them.
const MOST_WAITING: usize = 32 << 10;
/// What writing the last lines may take.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// A worker's buffer goes to the thread at this size, or when the worker's clock says so.
const FLUSH_AT: usize = 32 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(format_time(0), "01/Jan/1970:00:00:00 +0000");
        assert_eq!(format_time(951_782_400), "29/Feb/2000:00:00:00 +0000");
        assert_eq!(format_time(1_795_262_399), "21/Nov/2026:11:59:59 +0000");
    }

    #[test]
    fn what_a_visitor_sends_cannot_forge_a_line() {
        let mut out = Vec::new();
        let entry = Entry {
            visitor: IpAddr::from([127, 0, 0, 1]),
            method: b"GET",
            target: b"/\"\n",
            version: "HTTP/1.1",
            host: b"a\\b",
            referer: b"",
            user_agent: b"\xff",
            status: 200,
            sent: 1,
            received: 2,
            took: Duration::from_millis(3),
            head_after: None,
            upstream: "",
            route: "r",
            ended_by: EndedBy::Visitor,
            phase: Phase::Data,
        };
        combined(&mut out, &entry);
        json(&mut out, &entry);
        let text = String::from_utf8(out).expect("ASCII");
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].contains("\"GET /\\x22\\x0A HTTP/1.1\" 200 1 \"-\" \"\\xFF\" \"a\\x5Cb\" route=r upstream=- in=2 total=0.003 head=-1.000 end=CD"));
        assert!(lines[1].contains("\"target\":\"/\\\"\\u000a\""));
        assert!(lines[1].ends_with("\"end\":\"CD\"}"));
    }
}

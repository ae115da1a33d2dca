//! The access log: a line per exchange, made in a buffer of the worker and written by a thread of its own, so that no data thread waits for a
//! disk. A log that cannot be written loses lines and counts them; it never holds up a request.

mod line;

use std::{
    cell::{Cell, RefCell},
    fs::{File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, channel, sync_channel},
    },
    time::Duration,
};

pub use line::Format;
pub(crate) use line::{EndedBy, Entry, Phase};

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
        self.shared.format.write(&mut buffer, entry);
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

/// Buffers that may wait for the disk: 1 GiB of them.
const MOST_WAITING: usize = 32 << 10;
/// What writing the last lines may take.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// A worker's buffer goes to the thread at this size, or when the worker's clock says so.
const FLUSH_AT: usize = 32 << 10;

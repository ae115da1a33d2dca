//! Sets up the log: lines for people or JSON, to standard error or to a file that is rotated by size.
//!
//! The level comes from `logLevel` (flag or file), else from the environment variable `GT_LOG` (a level or
//! `target=level,...`), else it is info.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, IsTerminal, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use config::{Checked, Log, LogFormat};
use tracing_subscriber::{EnvFilter, fmt::MakeWriter};

/// Why there is no log.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LogError {
    /// `GT_LOG` is not understood.
    #[error(
        "GT_LOG is not a level (off, error, warn, info, debug, trace) nor `target=level,...`: {0}"
    )]
    Level(String),
    /// The file cannot be written.
    #[error("the log file {0} cannot be opened: {1}")]
    File(PathBuf, #[source] io::Error),
}

/// Starts the log of this process. Several configurations share one; that of the first counts.
pub(crate) fn start(configurations: &[Checked]) -> Result<(), LogError> {
    let logs: Vec<&Log> = configurations
        .iter()
        .map(|configuration| match configuration {
            Checked::Server(server) => &server.log,
            Checked::Client(client) => &client.log,
            Checked::Proxy(proxy) => &proxy.log,
        })
        .collect();
    let Some(log) = logs.first() else {
        return Ok(());
    };
    let filter = filter(log)?;
    match &log.file {
        None => subscribe_stderr(filter, log.format),
        Some(path) => {
            let file = RotatingFile::open(path, log.max_size, log.max_count);
            let file = file.map_err(|error| LogError::File(path.clone(), error))?;
            // A process has one log; a second call finds it set.
            let file = FILE.get_or_init(|| Mutex::new(file));
            let json = log.format == LogFormat::Json;
            subscribe(filter, log.format, false, move || {
                Steady::new(Lines(file), json)
            });
        }
    }
    if logs.iter().any(|other| other != log) {
        tracing::warn!("the files set different logs; that of the first file counts for all");
    }
    Ok(())
}

/// Starts the log of a process that has no configuration: standard error, at the level that `GT_LOG` says.
pub(crate) fn start_plain() -> Result<(), LogError> {
    let log = Log::default();
    let filter = filter(&log)?;
    subscribe_stderr(filter, log.format);
    Ok(())
}

fn subscribe_stderr(filter: EnvFilter, format: LogFormat) {
    let json = format == LogFormat::Json;
    let colour = io::stderr().is_terminal();
    subscribe(filter, format, colour, move || {
        Steady::new(io::stderr(), json)
    });
}

/// Opens the log file again, after something else has moved it away.
pub(crate) fn reopen() {
    let Some(file) = FILE.get() else { return };
    let reopened = file.lock().unwrap_or_else(PoisonError::into_inner).reopen();
    match reopened {
        Ok(()) => tracing::info!("the log file was opened again"),
        Err(error) => tracing::error!(%error, "the log file cannot be opened again"),
    }
}

/// The log file of this process, if it has one.
static FILE: OnceLock<Mutex<RotatingFile>> = OnceLock::new();

/// Lines that could not be written since the last one that could.
static LOST: AtomicU64 = AtomicU64::new(0);

/// Never fails: a full disk is no reason to stop serving, nor to say so line by line on a standard error that may be as full. What was lost
/// is counted, and the log says how many lines when it can again.
struct Steady<W> {
    to: W,
    json: bool,
}

impl<W: Write> Steady<W> {
    fn new(to: W, json: bool) -> Self {
        Self { to, json }
    }

    fn own_up(&mut self, lost: u64) -> io::Result<()> {
        let text = format!("{lost} lines of this log were lost: it could not be written");
        let line = match self.json {
            true => {
                format!("{{\"level\":\"WARN\",\"message\":\"{text}\",\"target\":\"gt::log\"}}\n")
            }
            // The last line may have been cut off.
            false => format!("\n WARN gt::log: {text}\n"),
        };
        self.to.write_all(line.as_bytes())
    }
}

impl<W: Write> Write for Steady<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let lost = LOST.swap(0, Relaxed);
        let told = if lost > 0 { self.own_up(lost) } else { Ok(()) };
        if told.is_err() {
            LOST.fetch_add(lost, Relaxed);
        }
        if told.and_then(|()| self.to.write_all(line)).is_err() {
            LOST.fetch_add(1, Relaxed);
            control::count_lost_log_line();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let _ = self.to.flush();
        Ok(())
    }
}

/// Writes to the file under its lock.
struct Lines(&'static Mutex<RotatingFile>);

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        file.write(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn filter(log: &Log) -> Result<EnvFilter, LogError> {
    let asked = match log.level {
        Some(level) => level.as_str().to_string(),
        None => std::env::var("GT_LOG")
            .ok()
            .filter(|text| !text.is_empty())
            .unwrap_or_else(|| "info".into()),
    };
    EnvFilter::builder()
        .parse(&asked)
        .map_err(|error| LogError::Level(error.to_string()))
}

fn subscribe<W>(filter: EnvFilter, format: LogFormat, colour: bool, writer: W)
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer)
        .with_ansi(colour);
    // It fails only when a log is set already, which then stays.
    let _ = match format {
        LogFormat::Human => tracing::subscriber::set_global_default(builder.finish()),
        LogFormat::Json => {
            tracing::subscriber::set_global_default(builder.json().flatten_event(true).finish())
        }
    };
}

/// A file that becomes `FILE.1` before it grows past `max_size` bytes (0 = never); `FILE.1` becomes `FILE.2`, and so on.
/// `max_count` of them are kept.
struct RotatingFile {
    path: PathBuf,
    file: File,
    size: u64,
    max_size: u64,
    max_count: u32,
}

impl RotatingFile {
    fn open(path: &Path, max_size: u64, max_count: u32) -> io::Result<Self> {
        let file = append(path)?;
        let size = file.metadata()?.len();
        Ok(Self {
            path: path.into(),
            file,
            size,
            max_size,
            max_count,
        })
    }

    fn reopen(&mut self) -> io::Result<()> {
        self.file = append(&self.path)?;
        self.size = self.file.metadata()?.len();
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        if self.max_count == 0 {
            self.file.set_len(0)?;
        } else {
            for number in (1..self.max_count).rev() {
                // Not all of them exist yet.
                let _ = fs::rename(
                    numbered(&self.path, number),
                    numbered(&self.path, number + 1),
                );
            }
            fs::rename(&self.path, numbered(&self.path, 1))?;
            self.file = append(&self.path)?;
        }
        self.size = 0;
        Ok(())
    }
}

impl Write for RotatingFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let full =
            self.max_size > 0 && self.size > 0 && self.size + line.len() as u64 > self.max_size;
        // A log that cannot be rotated is better than none.
        if full && self.rotate().is_err() {
            self.size = 0;
        }
        let written = self.file.write(line)?;
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Lines at level debug may hold visitors' addresses, so others may not read the file.
fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o640)
        .open(path)
}

fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(format!(".{number}"));
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("gt-log-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a temporary folder");
        folder
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted_and_told() {
        /// A disk with this much room.
        struct Disk<'a>(&'a mut usize, &'a mut Vec<u8>);
        impl Write for Disk<'_> {
            fn write(&mut self, line: &[u8]) -> io::Result<usize> {
                if *self.0 == 0 {
                    return Err(io::ErrorKind::StorageFull.into());
                }
                let n = line.len().min(*self.0);
                *self.0 -= n;
                self.1.extend_from_slice(&line[..n]);
                Ok(n)
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (mut room, mut written) = (8, Vec::new());
        let mut put = |room: &mut usize, line: &str| {
            let mut log = Steady::new(Disk(room, &mut written), false);
            log.write_all(line.as_bytes()).expect("never fails");
        };
        for line in ["one\n", "two\n", "three\n", "four\n"] {
            put(&mut room, line);
        }
        room = 1000;
        put(&mut room, "five\n");
        put(&mut room, "six\n");
        let text = String::from_utf8(written).expect("text");
        assert!(text.starts_with("one\ntwo\n"), "{text}");
        assert!(text.ends_with("five\nsix\n"), "{text}");
        assert_eq!(text.matches("2 lines of this log were lost").count(), 1);
    }

    #[test]
    fn a_full_log_is_rotated_and_the_oldest_is_dropped() {
        let folder = folder("rotate");
        let path = folder.join("gt.log");
        let mut log = RotatingFile::open(&path, 10, 2).expect("a log");
        for line in ["line 1\n", "line 2\n", "line 3\n", "line 4\n"] {
            log.write_all(line.as_bytes()).expect("written");
        }
        let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
        assert_eq!(read(&path), "line 4\n");
        assert_eq!(read(&numbered(&path, 1)), "line 3\n");
        assert_eq!(read(&numbered(&path, 2)), "line 2\n");
        assert!(!numbered(&path, 3).exists());
        fs::remove_dir_all(folder).expect("removed");
    }

    #[test]
    fn without_kept_files_a_full_log_starts_over_and_an_opened_one_goes_on() {
        let folder = folder("restart");
        let path = folder.join("gt.log");
        RotatingFile::open(&path, 10, 0)
            .and_then(|mut log| log.write_all(b"12345678"))
            .expect("written");
        let mut log = RotatingFile::open(&path, 10, 0).expect("a log");
        log.write_all(b"9").expect("written");
        assert_eq!(fs::read(&path).expect("read"), b"123456789");
        log.write_all(b"abc").expect("written");
        assert_eq!(fs::read(&path).expect("read"), b"abc");
        fs::remove_dir_all(folder).expect("removed");
    }
}

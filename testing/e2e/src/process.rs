//! A running program whose log is read as it is written.

use std::{
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use crate::{PATIENCE, TempDir, wait};

/// A process; killed when dropped. If the test has failed by then, its log is printed.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: Arc<Log>,
    ended: Option<ExitStatus>,
    /// It has children that outlive it.
    supervised: bool,
    /// Home of the process and place of its files.
    dir: TempDir,
}

#[derive(Debug, Default)]
struct Log {
    inner: Mutex<Lines>,
    grown: Condvar,
}

#[derive(Debug, Default)]
struct Lines {
    lines: Vec<String>,
    readers: u8,
}

impl Process {
    /// Starts `gt` with `args` as one process, without a supervisor: what is told and measured is the data plane's. The environment has
    /// no `GT_LOG`, and `dir` as home.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn gt<A: AsRef<OsStr>>(
        name: &str,
        args: impl IntoIterator<Item = A>,
        dir: TempDir,
    ) -> Self {
        let mut command = Command::new(gt_binary());
        command
            .args(args)
            .arg("--no-supervisor")
            .env_remove("GT_LOG")
            .env("HOME", dir.path())
            .env("XDG_STATE_HOME", dir.path());
        Self::start(name, command, dir)
    }

    /// Starts the program at `binary` with `args` under a supervisor that is found in `dir` (see [`Process::ask`]), as users do.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn gt_supervised<A: AsRef<OsStr>>(
        name: &str,
        binary: &Path,
        args: impl IntoIterator<Item = A>,
        dir: TempDir,
    ) -> Self {
        let run = dir.path().join("run");
        Self::gt_supervised_in(name, binary, args, dir, &run)
    }

    /// The same with another folder for its control socket.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn gt_supervised_in<A: AsRef<OsStr>>(
        name: &str,
        binary: &Path,
        args: impl IntoIterator<Item = A>,
        dir: TempDir,
        run: &Path,
    ) -> Self {
        let mut command = Command::new(binary);
        command
            .args(args)
            .env_remove("GT_LOG")
            .env("HOME", dir.path())
            .env("XDG_STATE_HOME", dir.path())
            .env("GT_RUNTIME_DIR", run);
        let mut process = Self::start(name, command, dir);
        process.supervised = true;
        process
    }

    /// Runs another gt that asks this one: `gt reload -c FILE`.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn ask(&self, args: &[&OsStr]) -> Output {
        match self.question(args).output() {
            Ok(output) => output,
            Err(error) => panic!("gt cannot be started: {error}"),
        }
    }

    /// `gt ARGS` that will ask this one.
    #[must_use]
    pub fn question(&self, args: &[&OsStr]) -> Command {
        let mut command = Command::new(gt_binary());
        command
            .args(args)
            .env("HOME", self.dir.path())
            .env("XDG_STATE_HOME", self.dir.path())
            .env("GT_RUNTIME_DIR", self.dir.path().join("run"))
            .stdin(Stdio::null());
        command
    }

    /// Starts any program.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start(name: &str, mut command: Command, dir: TempDir) -> Self {
        command.stdin(Stdio::null());
        Self::start_as_is(name, command, dir)
    }

    /// Starts any program with the standard input that `command` says.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start_as_is(name: &str, mut command: Command, dir: TempDir) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => panic!("{name}: {command:?} cannot be started: {error}"),
        };
        let log = Arc::new(Log::default());
        if let Some(out) = child.stdout.take() {
            follow(&log, out);
        }
        if let Some(err) = child.stderr.take() {
            follow(&log, err);
        }
        Self {
            name: name.to_owned(),
            child,
            log,
            ended: None,
            supervised: false,
            dir,
        }
    }

    /// The folder that goes with the process.
    #[must_use]
    pub fn dir(&self) -> &TempDir {
        &self.dir
    }

    /// The system's number of the process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a line, past or future, that has all of `parts`, and returns it.
    ///
    /// # Panics
    /// When none comes within [`PATIENCE`], or the process ends first.
    #[track_caller]
    pub fn wait_log(&self, parts: &[&str]) -> String {
        self.wait_log_times(parts, 1)
    }

    /// Waits until `times` lines have all of `parts`, and returns the last.
    ///
    /// # Panics
    /// When it does not happen within [`PATIENCE`], or the process ends first.
    #[track_caller]
    pub fn wait_log_times(&self, parts: &[&str], times: usize) -> String {
        let deadline = Instant::now() + PATIENCE;
        let mut inner = self.log.lock();
        loop {
            let mut found = inner.lines.iter().filter(|line| has_all(line, parts));
            if let Some(line) = times.checked_sub(1).and_then(|before| found.nth(before)) {
                return line.clone();
            }
            let over = inner.readers == 0;
            let left = deadline.saturating_duration_since(Instant::now());
            if over || left.is_zero() {
                drop(inner);
                let why = if over { "it ended" } else { "time is over" };
                panic!("{}: {why} without {times} lines with {parts:?}", self.name);
            }
            inner = self
                .log
                .grown
                .wait_timeout(inner, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// How many lines have all of `parts` so far.
    #[must_use]
    pub fn count_log(&self, parts: &[&str]) -> usize {
        self.log
            .lock()
            .lines
            .iter()
            .filter(|line| has_all(line, parts))
            .count()
    }

    /// The whole log so far.
    #[must_use]
    pub fn log(&self) -> String {
        self.log.lock().lines.join("\n")
    }

    /// The lines behind the first `at`, so far.
    #[must_use]
    pub fn log_from(&self, at: usize) -> Vec<String> {
        let inner = self.log.lock();
        inner.lines.get(at..).unwrap_or_default().to_vec()
    }

    /// Resident memory in KiB; 0 when the process is gone.
    #[must_use]
    pub fn rss_kib(&self) -> u64 {
        self.status("VmRSS:")
    }

    /// The largest resident memory so far in KiB; 0 when the process is gone.
    #[must_use]
    pub fn peak_rss_kib(&self) -> u64 {
        self.status("VmHWM:")
    }

    /// Says that it is a supervisor: it is ended in a way that ends its workers too.
    #[must_use]
    pub fn with_workers(mut self) -> Self {
        self.supervised = true;
        self
    }

    /// Puts another process in the place of this one, which has ended; the folder stays.
    pub fn replace(&mut self, other: Self) {
        let mut other = other;
        std::mem::swap(self, &mut other);
        std::mem::swap(&mut self.dir, &mut other.dir);
    }

    /// Waits for the end of the process.
    ///
    /// # Panics
    /// When it does not end within [`PATIENCE`].
    #[track_caller]
    pub fn wait_exit(&mut self) -> ExitStatus {
        let what = format!("{} ends", self.name);
        let status = wait::until(&what, || self.try_exit());
        // The last lines may still be on their way.
        let deadline = Instant::now() + Duration::from_secs(5);
        let mut inner = self.log.lock();
        while inner.readers > 0 && Instant::now() < deadline {
            inner = self
                .log
                .grown
                .wait_timeout(inner, Duration::from_millis(100))
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        status
    }

    /// The end of the process, if it has ended.
    pub fn try_exit(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten();
        }
        self.ended
    }

    /// Sends a signal (`TERM`, `INT`, `STOP`, `CONT`).
    ///
    /// # Panics
    /// When it cannot be sent.
    pub fn signal(&self, signal: &str) {
        let sent = Command::new("kill")
            .arg(format!("-{signal}"))
            .arg(self.pid().to_string())
            .status();
        assert!(
            sent.is_ok_and(|status| status.success()),
            "{}: SIG{signal} cannot be sent",
            self.name
        );
    }

    /// Kills it (SIGKILL) and waits for its end.
    pub fn kill(&mut self) {
        if self.try_exit().is_none() {
            let _ = self.child.kill();
            self.ended = self.child.wait().ok();
        }
    }

    /// Killed, a supervisor leaves its workers: it is told twice to end, which ends them at once.
    fn end_supervised(&mut self) {
        for _ in 0..2 {
            let _ = Command::new("kill").arg(self.pid().to_string()).status();
            thread::sleep(Duration::from_millis(20));
        }
        let deadline = Instant::now() + Duration::from_secs(5);
        while self.try_exit().is_none() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn status(&self, field: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        line.and_then(|line| line.split_whitespace().next()?.parse().ok())
            .unwrap_or(0)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let status = self.try_exit();
        if self.supervised && status.is_none() {
            self.end_supervised();
        }
        self.kill();
        if thread::panicking() {
            let end =
                status.map_or_else(|| "still running".to_owned(), |status| status.to_string());
            eprintln!(
                "--- log of {} ({end})\n{}\n--- end of log",
                self.name,
                self.log()
            );
        }
    }
}

impl Log {
    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn follow(log: &Arc<Log>, from: impl Read + Send + 'static) {
    log.lock().readers += 1;
    let log = Arc::clone(log);
    thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        while from.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            log.lock()
                .lines
                .push(String::from_utf8_lossy(&line).trim_end().to_owned());
            log.grown.notify_all();
            line.clear();
        }
        log.lock().readers -= 1;
        log.grown.notify_all();
    });
}

fn has_all(line: &str, parts: &[&str]) -> bool {
    parts.iter().all(|part| line.contains(part))
}

/// Where cargo has put the binary: it tells tests of its package, and else it lies beside the folder of the test.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn gt_binary() -> PathBuf {
    if let Some(path) = std::env::var_os("CARGO_BIN_EXE_gt") {
        return path.into();
    }
    let here = std::env::current_exe().unwrap_or_default();
    // Tests are in `deps` beside it, programs in the same folder.
    let path = here
        .ancestors()
        .skip(1)
        .take(2)
        .map(|folder| folder.join("gt"))
        .find(|path| path.is_file())
        .unwrap_or_default();
    assert!(
        path.exists(),
        "no gt binary at {}: run the tests of package gt",
        path.display()
    );
    path
}

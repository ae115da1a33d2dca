//! The place a measurement lives in: a temporary directory, ports, and child processes that never outlive it.
//!
//! A [`Line`] is a command to run and to print; [`Lab::start`] turns it into a [`Program`] whose output goes to a log file in
//! the lab and which is killed on drop. What the programs do is left to `peers` and `origin`.

use std::cell::{Cell, RefCell};
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

/// A temporary directory, removed on drop, with ports that were free when asked for.
pub struct Lab {
    dir: PathBuf,
    next_port: Cell<u16>,
    lines: RefCell<Vec<String>>,
}

/// A command line: what is run, and what a report prints.
#[derive(Clone, Debug)]
pub struct Line {
    program: PathBuf,
    args: Vec<OsString>,
    env: Vec<(&'static str, &'static str)>,
}

/// A running child process. Dropping it kills it and waits for its end.
pub struct Program {
    child: Child,
    log: PathBuf,
}

impl Lab {
    /// Makes the directory under the system's temporary one.
    ///
    /// # Errors
    /// When the directory cannot be made.
    pub fn new(purpose: &str) -> Result<Self> {
        let pid = std::process::id();
        let dir = std::env::temp_dir().join(format!("gt-{purpose}-{pid}"));
        fs::create_dir_all(&dir).with_context(|| format!("make {}", dir.display()))?;
        // Runs at the same time start at different places of the range.
        let spread = u16::try_from(pid % 400).unwrap_or(0) * 20;
        Ok(Self {
            dir,
            next_port: Cell::new(FIRST_PORT + spread),
            lines: RefCell::default(),
        })
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Writes a file into the directory and gives its path.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.dir.join(name);
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        Ok(path)
    }

    /// A loopback port that nobody listened on a moment ago, below the range the kernel takes for outgoing connections, so that
    /// no visitor's own port can collide with it.
    ///
    /// # Errors
    /// When the whole range is taken.
    pub fn port(&self) -> Result<u16> {
        for _ in FIRST_PORT..=LAST_PORT {
            let port = self.next_port.get();
            self.next_port.set(if port >= LAST_PORT {
                FIRST_PORT
            } else {
                port + 1
            });
            if TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok() {
                return Ok(port);
            }
        }
        bail!("no free port between {FIRST_PORT} and {LAST_PORT}")
    }

    /// A loopback address with a [free port](Self::port).
    ///
    /// # Errors
    /// As [`port`](Self::port).
    pub fn address(&self) -> Result<SocketAddr> {
        Ok((Ipv4Addr::LOCALHOST, self.port()?).into())
    }

    /// Starts a program; its output goes to `NAME.log`. `core` pins it to one core.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(&self, name: &str, line: &Line, core: Option<usize>) -> Result<Program> {
        let log = self.dir.join(format!("{name}.log"));
        let out = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .with_context(|| format!("open {}", log.display()))?;
        let mut command = line.wrapped(core);
        command
            .current_dir(&self.dir)
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out);
        let child = command.spawn().with_context(|| format!("start {line}"))?;
        self.lines.borrow_mut().push(self.shown(line));
        Ok(Program { child, log })
    }

    /// The command lines started so far, with the directory written as `$LAB`.
    pub fn started(&self) -> Vec<String> {
        self.lines.borrow().clone()
    }

    /// A line as a report prints it: without this machine's paths.
    pub fn shown(&self, line: &Line) -> String {
        line.to_string()
            .replace(&*self.dir.to_string_lossy(), "$LAB")
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

impl Line {
    /// A command without arguments.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
        }
    }

    /// Adds one argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets a variable of the environment.
    #[must_use]
    pub fn env(mut self, name: &'static str, value: &'static str) -> Self {
        self.env.push((name, value));
        self
    }

    /// The line as a command, optionally pinned to a core.
    pub fn command(&self, core: Option<usize>) -> Command {
        let mut words = Vec::new();
        if let Some(core) = core {
            words.extend(["taskset", "-c"].map(OsString::from));
            words.push(core.to_string().into());
        }
        self.words_after(words)
    }

    /// As [`command`](Self::command), and the process dies with the thread that starts it: a bench that is killed leaves nothing
    /// behind. `setpriv` and `taskset` replace themselves, so the process id stays the program's.
    fn wrapped(&self, core: Option<usize>) -> Command {
        let mut words: Vec<OsString> = Vec::new();
        if Path::new(SETPRIV).exists() {
            words.extend([SETPRIV, "--pdeathsig", "KILL"].map(OsString::from));
        }
        if let Some(core) = core {
            words.extend(["taskset", "-c"].map(OsString::from));
            words.push(core.to_string().into());
        }
        self.words_after(words)
    }

    fn words_after(&self, mut words: Vec<OsString>) -> Command {
        words.push(self.program.clone().into());
        words.extend(self.args.iter().cloned());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).envs(self.env.iter().copied());
        command
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.env {
            write!(f, "{name}={value} ")?;
        }
        let program = self.program.file_name().unwrap_or(self.program.as_os_str());
        write!(f, "{}", program.to_string_lossy())?;
        for arg in &self.args {
            let arg = arg.to_string_lossy();
            if arg.contains(' ') {
                write!(f, " '{arg}'")?
            } else {
                write!(f, " {arg}")?
            }
        }
        Ok(())
    }
}

impl Program {
    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Kills it at once and waits for its end.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// What it has said so far.
    pub fn log(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    }

    /// The last lines of its log, for an error message.
    pub fn log_tail(&self) -> String {
        let text = self.log();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(6)..].join("\n")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}

const SETPRIV: &str = "/usr/bin/setpriv";

/// Ports for listeners. Linux gives outgoing connections 32768 and up.
const FIRST_PORT: u16 = 20_000;
const LAST_PORT: u16 = 32_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_program_is_dead_and_its_lab_gone() {
        let lab = Lab::new("lab-drop").unwrap();
        let dir = lab.dir().to_owned();
        let program = lab
            .start("sleep", &Line::new("sleep").arg("60"), None)
            .unwrap();
        let proc_dir = PathBuf::from(format!("/proc/{}", program.pid()));
        assert!(proc_dir.exists());
        drop(program);
        assert!(!proc_dir.exists());
        drop(lab);
        assert!(!dir.exists());
    }

    #[test]
    fn ports_are_distinct_and_free() {
        let lab = Lab::new("lab-ports").unwrap();
        let first = lab.port().unwrap();
        let second = lab.port().unwrap();
        assert_ne!(first, second);
        TcpListener::bind((Ipv4Addr::LOCALHOST, first)).unwrap();
    }

    #[test]
    fn a_shown_line_hides_where_things_lie() {
        let lab = Lab::new("lab-shown").unwrap();
        let line = Line::new("/opt/x/bin/relay")
            .arg("-c")
            .arg(lab.dir().join("a.toml"))
            .env("LOG", "off");
        assert_eq!(lab.shown(&line), "LOG=off relay -c $LAB/a.toml");
    }
}

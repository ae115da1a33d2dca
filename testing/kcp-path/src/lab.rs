//! One measurement: a bridge, a receiver on the right, a sender on the left, and what they print.

use std::{
    io::{BufRead, BufReader},
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::Duration,
};

use anyhow::{Context, bail};
use netem::{Options, Plan, Report, TunBridge, TunOptions};

use crate::{
    Shared,
    ends::{CERTIFICATE, WINDOW},
    subject::Subject,
};

/// A bridge with processes at both ends.
pub(crate) struct Lab {
    bridge: TunBridge,
    right: Ipv4Addr,
    kcp_go: PathBuf,
    window: u32,
    scratch: PathBuf,
}

impl Lab {
    /// A bridge whose directions are `up` and `down`.
    pub(crate) fn new(up: &str, down: &str, seed: u64, shared: &Shared) -> anyhow::Result<Self> {
        let options = TunOptions::new(Options {
            up: Plan::parse(up)?,
            down: Plan::parse(down)?,
            seed,
            spin: Duration::ZERO,
        });
        let bridge = TunBridge::start(&options)?;
        for mut command in [bridge.left("sysctl"), bridge.right("sysctl")] {
            // What one flow has learned about the path must not help the next, and windows must hold path and queue.
            command.args([
                "-q",
                "-w",
                "net.ipv4.tcp_no_metrics_save=1",
                "net.ipv4.tcp_wmem=4096 65536 33554432",
                "net.ipv4.tcp_rmem=4096 131072 33554432",
            ]);
            anyhow::ensure!(command.status()?.success(), "sysctl failed");
        }
        let scratch = std::env::temp_dir().join(&options.left.namespace);
        std::fs::create_dir_all(&scratch)?;
        Ok(Self {
            bridge,
            right: options.right.address,
            kcp_go: shared.kcp_go.clone(),
            window: shared.window,
            scratch,
        })
    }

    /// The bridge's own figures.
    pub(crate) fn report(&self) -> Report {
        self.bridge.running.report()
    }

    /// Starts the receiver and waits until it is ready, then the sender. `(what, arguments)` of each after its address.
    pub(crate) fn start(
        &self,
        subject: Subject,
        port: u16,
        receiver: (&str, &[String]),
        sender: (&str, &[String]),
    ) -> anyhow::Result<Pair> {
        let address = SocketAddr::new(self.right.into(), port);
        let me = std::env::current_exe()?;
        let me = me.to_str().context("this program's path is not UTF-8")?;
        let build = |left: bool, (verb, arguments): (&str, &[String])| {
            let go = self.kcp_go.to_string_lossy().into_owned();
            let program = if subject.go().is_some() { &go } else { me };
            let mut command = match left {
                true => self.bridge.left(program),
                false => self.bridge.right(program),
            };
            command.arg(verb);
            match subject.go() {
                Some(fec) => command.arg(address.to_string()).args(fec),
                None => command.arg(subject.name()).arg(address.to_string()),
            };
            command
                .args(arguments)
                .env(WINDOW, self.window.to_string())
                .env(CERTIFICATE, self.scratch.join(format!("{port}.der")));
            command
        };
        let receiver = Process::start(build(false, receiver))?;
        receiver.expect("ready", Duration::from_secs(10))?;
        let sender = Process::start(build(true, sender))?;
        Ok(Pair { receiver, sender })
    }

    /// Segments that the kernel's only TCP connection on the left has sent again, and sent.
    pub(crate) fn tcp_retransmissions(&self) -> anyhow::Result<(u64, u64)> {
        let output = self.bridge.left("ss").args(["-tinH"]).output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let field = |name: &str| {
            let word = text
                .split_whitespace()
                .find_map(|word| word.strip_prefix(name))?;
            word.rsplit('/').next()?.parse().ok()
        };
        Ok((
            field("retrans:").unwrap_or(0),
            field("segs_out:").unwrap_or(0),
        ))
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // In the directory for temporary files, whatever stays.
        let _ = std::fs::remove_dir_all(&self.scratch);
    }
}

/// A receiver and its sender; ended when dropped.
pub(crate) struct Pair {
    pub(crate) receiver: Process,
    pub(crate) sender: Process,
}

/// A process whose lines are read.
pub(crate) struct Process {
    child: Child,
    lines: Receiver<String>,
}

impl Process {
    fn start(mut command: Command) -> anyhow::Result<Self> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("{command:?}"))?;
        let output = child.stdout.take().context("no standard output")?;
        let (send, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, lines })
    }

    /// The words after `word` of the next line, which must begin with it.
    pub(crate) fn expect(&self, word: &str, within: Duration) -> anyhow::Result<Vec<u64>> {
        let line = match self.lines.recv_timeout(within) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => bail!("no {word:?} within {within:?}"),
            Err(RecvTimeoutError::Disconnected) => bail!("the process ended before {word:?}"),
        };
        let mut words = line.split_whitespace();
        anyhow::ensure!(words.next() == Some(word), "{line:?} instead of {word:?}");
        words
            .map(|word| word.parse().with_context(|| line.clone()))
            .collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

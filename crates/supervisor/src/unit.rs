//! One configuration and the workers that run it: one that serves, one that is about to, and those that let their work end.

use std::{
    io,
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant, SystemTime},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{
    channel::Channel,
    message::{ToWorker, UnitSpec},
    notify::OWN_VARIABLES,
    sockets::{Sockets, WorkerId},
};

/// What a worker is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It opens its sockets.
    Starting { until: Instant },
    /// It waits to be told to accept.
    Ready,
    /// It serves.
    Active,
    /// Another one serves; it lets its work end. `acked`: it accepts no more.
    Leaving { until: Instant, acked: bool },
    /// It was told to end.
    Ending { until: Instant },
}

impl State {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Starting { .. } => "starting",
            Self::Ready => "ready",
            Self::Active => "serving",
            Self::Leaving { .. } => "draining",
            Self::Ending { .. } => "ending",
        }
    }

    pub(crate) fn until(self) -> Option<Instant> {
        match self {
            Self::Starting { until } | Self::Leaving { until, .. } | Self::Ending { until } => {
                Some(until)
            }
            Self::Ready | Self::Active => None,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) id: WorkerId,
    pub(crate) generation: u32,
    pub(crate) pid: Pid,
    pub(crate) channel: Channel,
    /// Nothing will come from it any more.
    pub(crate) closed: bool,
    /// Of this process; the end of another's child is seen on its channel.
    pub(crate) child: bool,
    pub(crate) state: State,
    pub(crate) since: Instant,
    /// Who was on the way to it has come.
    pub(crate) settled: bool,
    pub(crate) started: SystemTime,
    /// One line of its own about itself.
    pub(crate) what: String,
    /// Visits and links that are left.
    pub(crate) busy: Option<(u64, u64)>,
    /// Why it said that it cannot run, and whether trying again is of no use.
    pub(crate) failed: Option<(String, bool)>,
}

impl Worker {
    /// Tells it something. A worker that does not read is of no use and is killed; its end is noticed like any other.
    pub(crate) fn tell(&self, message: &ToWorker) {
        match self.channel.send(message, &[]) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                tracing::error!(
                    pid = self.pid.as_raw_nonzero(),
                    "a worker does not listen and is killed"
                );
                self.kill();
            }
            // It has ended; the system will say so.
            Err(_) => {}
        }
    }

    pub(crate) fn kill(&self) {
        let _ = kill_process(self.pid, Signal::KILL);
    }

    pub(crate) fn drain(&mut self, deadline: Duration, now: Instant) {
        self.tell(&ToWorker::Drain {
            deadline_ms: millis(deadline),
        });
        self.state = State::Leaving {
            until: now + deadline + OVERTIME,
            acked: false,
        };
    }

    pub(crate) fn stop(&mut self, patience: Duration, now: Instant) {
        self.tell(&ToWorker::Stop {
            patience_ms: millis(patience),
        });
        self.state = State::Ending {
            until: now + patience + OVERTIME,
        };
    }
}

/// A configuration and its workers.
#[derive(Debug)]
pub(crate) struct Unit {
    pub(crate) spec: UnitSpec,
    pub(crate) generation: u32,
    pub(crate) workers: Vec<Worker>,
    pub(crate) sockets: Sockets,
    /// What a worker left for the next.
    pub(crate) handoff: Option<String>,
    /// It has served at some time.
    pub(crate) ever_ready: bool,
    /// Deaths in a row, each within [`GOOD`].
    pub(crate) deaths: u32,
    pub(crate) respawn_at: Option<Instant>,
    /// It has ended for good, with this exit code.
    pub(crate) over: Option<u8>,
    /// It is not configured any more.
    pub(crate) removed: bool,
    /// A change needs a new worker and waits until an older one has ended.
    pub(crate) change_waits: bool,
}

impl Unit {
    pub(crate) fn new(spec: UnitSpec) -> Self {
        Self {
            spec,
            generation: 0,
            workers: Vec::new(),
            sockets: Sockets::default(),
            handoff: None,
            ever_ready: false,
            deaths: 0,
            respawn_at: None,
            over: None,
            removed: false,
            change_waits: false,
        }
    }

    pub(crate) fn active(&self) -> Option<&Worker> {
        let mut workers = self.workers.iter();
        workers.find(|worker| worker.state == State::Active)
    }

    pub(crate) fn active_mut(&mut self) -> Option<&mut Worker> {
        let mut workers = self.workers.iter_mut();
        workers.find(|worker| worker.state == State::Active)
    }

    pub(crate) fn worker(&self, id: WorkerId) -> Option<&Worker> {
        self.workers.iter().find(|worker| worker.id == id)
    }

    pub(crate) fn worker_mut(&mut self, id: WorkerId) -> Option<&mut Worker> {
        self.workers.iter_mut().find(|worker| worker.id == id)
    }

    /// Workers that let their work end.
    pub(crate) fn leaving(&self) -> usize {
        let leaving = |worker: &&Worker| matches!(worker.state, State::Leaving { .. });
        self.workers.iter().filter(leaving).count()
    }

    /// The worker that serves should not be replaced yet: who was on the way to it has not come.
    pub(crate) fn is_settling(&self, now: Instant) -> bool {
        self.active().is_some_and(|worker| {
            !worker.settled && now.saturating_duration_since(worker.since) < SETTLE_TIME
        })
    }

    /// A worker is about to serve.
    pub(crate) fn coming(&self) -> Option<WorkerId> {
        let coming =
            |worker: &&Worker| matches!(worker.state, State::Starting { .. } | State::Ready);
        self.workers.iter().find(coming).map(|worker| worker.id)
    }

    /// Starts a worker: this very program (not what may lie in its place now), in a process group of its own, so that a Ctrl-C in a
    /// terminal reaches the supervisor alone.
    pub(crate) fn start(
        &mut self,
        id: WorkerId,
        control: &Path,
        key: &str,
        now: Instant,
    ) -> io::Result<()> {
        let (ours, theirs) = Channel::pair()?;
        let mut command = Command::new(SELF);
        command
            .arg0("gt")
            .arg(crate::WORKER)
            .args(&self.spec.args)
            .stdin(Stdio::from(theirs.into_fd()))
            .process_group(0);
        for variable in OWN_VARIABLES {
            command.env_remove(variable);
        }
        self.generation += 1;
        ours.send(
            &ToWorker::Hello {
                generation: self.generation,
                takes_over: self.ever_ready,
                handoff: self.handoff.clone(),
                control: control.display().to_string(),
                key: key.to_owned(),
                unit: self.spec.name.clone(),
            },
            &[],
        )?;
        let child = command.spawn()?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        self.workers.push(Worker {
            id,
            generation: self.generation,
            pid: pid.ok_or(io::ErrorKind::InvalidData)?,
            channel: ours,
            closed: false,
            child: true,
            state: State::Starting {
                until: now + START_TIME,
            },
            since: now,
            settled: false,
            started: SystemTime::now(),
            what: String::new(),
            busy: None,
            failed: None,
        });
        Ok(())
    }

    /// Its worker has died: when to start the next. At once, the first time; then later and later while they die soon.
    pub(crate) fn died(&mut self, lived: Duration, now: Instant) -> Duration {
        if lived >= GOOD {
            self.deaths = 0;
        }
        let pause = match self.deaths {
            0 => Duration::ZERO,
            n => Duration::from_secs(1 << (n - 1).min(6)).min(GOOD),
        };
        self.deaths = self.deaths.saturating_add(1);
        self.respawn_at = Some(now + pause);
        pause
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The running program, even when its file has been replaced.
pub(crate) const SELF: &str = "/proc/self/exe";
/// A worker that lived so long did not die of its start.
const GOOD: Duration = Duration::from_secs(60);
/// What a worker may take to open its sockets; a client's, to find its server.
const START_TIME: Duration = Duration::from_secs(30);
/// How long a worker may take to settle; longer than a start and the wait for clients together as a rule.
const SETTLE_TIME: Duration = Duration::from_secs(8);
/// After its deadline a worker that still runs is killed.
const OVERTIME: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_restart_is_at_once_and_later_ones_wait_up_to_a_minute() {
        let mut unit = Unit::new(UnitSpec {
            name: "a".into(),
            args: Vec::new(),
        });
        let now = Instant::now();
        let soon = Duration::from_secs(1);
        let pauses: Vec<u64> = (0..9).map(|_| unit.died(soon, now).as_secs()).collect();
        assert_eq!(pauses, [0, 1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(unit.died(GOOD, now), Duration::ZERO);
        assert_eq!(unit.died(soon, now).as_secs(), 1);
    }
}

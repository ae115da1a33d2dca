//! The supervisor's loop: wait for signals, children, workers and those who ask; do what follows; wait again. It keeps no thread, no
//! timer and no buffer of anybody's bytes, and what comes from a worker is looked at before it is believed.

use std::{
    collections::VecDeque,
    fs, io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::{UnixListener, UnixStream},
    },
    path::PathBuf,
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::signal::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

use crate::{
    control::{Conn, ConnId},
    job::{Job, Kind},
    message::UnitSpec,
    notify::Notify,
    place::{Place, PlaceError},
    resume,
    unit::{State, Unit},
};

/// What a supervisor is started with.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the program lies: a restart runs what lies there then.
    pub program: PathBuf,
    /// All arguments of the program, to check the configuration with and to restart with.
    pub args: Vec<String>,
    /// Names the configuration on this machine: its canonical path, or what stands for it.
    pub key: String,
    /// Several may run with this key: a further one takes `KEY (2)`, and so on up to 16.
    pub key_may_repeat: bool,
    /// What to run, already checked.
    pub units: Vec<UnitSpec>,
    /// Version of the program.
    pub version: String,
}

/// Why a supervisor cannot run.
#[derive(Debug, thiserror::Error)]
pub enum SupervisorError {
    /// The control socket.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The control socket.
    #[error("the control socket {0} cannot be opened: {1}")]
    Control(PathBuf, io::Error),
    /// Signals, children, waiting.
    #[error("the supervisor cannot run: {0}")]
    System(#[from] io::Error),
    /// What a former image of this process left cannot be read.
    #[error("the state of the supervisor before the restart cannot be read: {0}")]
    Resume(String),
}

#[derive(Debug)]
pub(crate) struct Supervisor {
    pub(crate) options: Options,
    pub(crate) place: Place,
    /// Held for as long as this runs.
    pub(crate) lock: fs::File,
    pub(crate) listener: UnixListener,
    signals: Vec<(i32, UnixStream)>,
    pub(crate) notify: Notify,
    pub(crate) units: Vec<Unit>,
    pub(crate) conns: Vec<Conn>,
    pub(crate) job: Option<Job>,
    pub(crate) waiting: VecDeque<(Kind, Option<ConnId>)>,
    pub(crate) given: Vec<(String, OwnedFd)>,
    pub(crate) next_worker: u64,
    pub(crate) next_conn: u64,
    pub(crate) started: Instant,
    /// Not everything has served yet; until then any failure ends all.
    pub(crate) beginning: bool,
    pub(crate) ending: bool,
    pub(crate) exit: u8,
    /// Why the worker that ended last had to.
    pub(crate) last_failure: Option<String>,
    next_watchdog: Option<Instant>,
}

/// Runs until everything has ended or was told to; returns the exit code.
///
/// # Errors
/// [`SupervisorError`], before anything was started.
pub fn run(options: Options) -> Result<u8, SupervisorError> {
    // First of all: from here on no signal ends this process by itself.
    let signals = hear_signals()?;
    let supervisor = match resume::taken()? {
        Some(state) => resume::supervisor(state, options, signals)?,
        None => Supervisor::new(options, signals)?,
    };
    Ok(supervisor.serve()?)
}

fn claim(options: &Options) -> Result<(Place, fs::File), PlaceError> {
    let most = if options.key_may_repeat { 16 } else { 1 };
    let mut number = 1;
    loop {
        let place = match number {
            1 => Place::make(&options.key)?,
            number => Place::make(&format!("{} ({number})", options.key))?,
        };
        match place.lock() {
            Err(PlaceError::Running(_)) if number < most => number += 1,
            result => return result.map(|lock| (place, lock)),
        }
    }
}

fn hear_signals() -> io::Result<Vec<(i32, UnixStream)>> {
    let signals = [SIGHUP, SIGINT, SIGTERM, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD];
    let hear = |signal| {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        theirs.set_nonblocking(true)?;
        signal_hook::low_level::pipe::register(signal, theirs)?;
        Ok((signal, ours))
    };
    signals.into_iter().map(hear).collect()
}

impl Supervisor {
    fn new(options: Options, signals: Vec<(i32, UnixStream)>) -> Result<Self, SupervisorError> {
        let (place, lock) = claim(&options)?;
        let path = place.socket();
        // Left by one that was killed: the lock says that nobody uses it. Its workers may live and have the sockets.
        let orphans = fs::remove_file(&path).is_ok();
        let listener = UnixListener::bind(&path)
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            .map_err(|error| SupervisorError::Control(path, error))?;
        let mut supervisor = Self::with(options, signals, place, lock, listener);
        supervisor.given = net::take_inherited_sockets();
        let specs = supervisor.options.units.clone();
        supervisor.units = specs.into_iter().map(Unit::new).collect();
        supervisor.beginning = true;
        let pause = if orphans { ORPHAN_TIME } else { Duration::ZERO };
        for unit in &mut supervisor.units {
            unit.respawn_at = Some(Instant::now() + pause);
        }
        Ok(supervisor)
    }

    pub(crate) fn with(
        options: Options,
        signals: Vec<(i32, UnixStream)>,
        place: Place,
        lock: fs::File,
        listener: UnixListener,
    ) -> Self {
        let notify = Notify::from_env();
        let now = Instant::now();
        Self {
            next_watchdog: notify.watchdog_every().map(|every| now + every),
            options,
            place,
            lock,
            listener,
            signals,
            notify,
            units: Vec::new(),
            conns: Vec::new(),
            job: None,
            waiting: VecDeque::new(),
            given: Vec::new(),
            next_worker: 1,
            next_conn: 1,
            started: now,
            beginning: false,
            ending: false,
            exit: 0,
            last_failure: None,
        }
    }

    fn serve(mut self) -> io::Result<u8> {
        self.respawn(Instant::now());
        loop {
            self.wait()?;
            self.hear_workers();
            // Always: a child may have ended while this process became another program.
            self.signalled(SIGCHLD);
            self.reap();
            // Each of them is looked at: what is left unread wakes the loop again.
            let ends = [SIGTERM, SIGINT, SIGQUIT].map(|signal| self.signalled(signal));
            if ends.contains(&true) {
                self.stop();
            }
            if self.signalled(SIGHUP) {
                self.want(Kind::Reload, None);
            }
            if self.signalled(SIGUSR2) {
                self.want(Kind::Restart, None);
            }
            if self.signalled(SIGUSR1) {
                self.reopen_logs();
            }
            self.hear_conns();
            self.keep_time(Instant::now());
            if self.units.is_empty() {
                break;
            }
        }
        let _ = fs::remove_file(self.place.socket());
        Ok(self.exit)
    }

    /// Until something happens or it is time for something.
    fn wait(&self) -> io::Result<()> {
        let workers = self.units.iter().flat_map(|unit| &unit.workers);
        let mut fds: Vec<PollFd<'_>> = (self.signals.iter().map(|(_, pipe)| pipe.as_fd()))
            .chain([self.listener.as_fd()])
            .chain(self.conns.iter().map(|conn| conn.stream.as_fd()))
            .chain(
                workers
                    .filter(|worker| !worker.closed)
                    .map(|worker| worker.channel.as_fd()),
            )
            .map(|fd: BorrowedFd<'_>| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let timeout = self.patience().map(|patience| Timespec {
            tv_sec: i64::try_from(patience.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: patience.subsec_nanos().into(),
        });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// How long nothing needs to be done if nothing happens.
    fn patience(&self) -> Option<Duration> {
        let workers = || self.units.iter().flat_map(|unit| &unit.workers);
        let moving = self.job.is_some()
            || self.ending
            || workers().any(|worker| worker.state != State::Active)
            || self.units.iter().any(|unit| unit.respawn_at.is_some())
            || !self.conns.is_empty();
        let now = Instant::now();
        let watchdog = self
            .next_watchdog
            .map(|next| next.saturating_duration_since(now));
        let moving = moving.then_some(MOVING);
        let swept = self
            .units
            .iter()
            .any(|unit| unit.sockets.all().any(|(name, _)| name.is_of_service()))
            .then_some(SWEEP);
        [moving, watchdog, swept].into_iter().flatten().min()
    }

    fn signalled(&self, signal: i32) -> bool {
        let mut any = false;
        if let Some((_, pipe)) = self.signals.iter().find(|(other, _)| *other == signal) {
            let mut bytes = [0; 64];
            while io::Read::read(&mut &*pipe, &mut bytes).is_ok_and(|n| n > 0) {
                any = true;
            }
        }
        any
    }

    fn keep_time(&mut self, now: Instant) {
        for unit in &mut self.units {
            for worker in &unit.workers {
                if worker.state.until().is_some_and(|until| now >= until) {
                    tracing::warn!(
                        pid = worker.pid.as_raw_nonzero(),
                        state = worker.state.name(),
                        "a worker took too long and is killed"
                    );
                    worker.kill();
                }
            }
            let serving = unit.active().is_some();
            unit.sockets.sweep(serving, now);
        }
        if !self.ending {
            self.respawn(now);
            if self.job.is_none() && !self.beginning {
                self.begin_next();
            }
            self.advance(now);
        }
        self.units.retain(|unit| {
            let gone = unit.removed || self.ending;
            !(gone && unit.workers.is_empty())
        });
        if let (Some(next), Some(every)) = (self.next_watchdog, self.notify.watchdog_every())
            && now >= next
        {
            self.notify.watchdog();
            self.next_watchdog = Some(now + every);
        }
    }

    fn respawn(&mut self, now: Instant) {
        for index in 0..self.units.len() {
            let unit = &mut self.units[index];
            if unit.respawn_at.is_none_or(|at| now < at) {
                continue;
            }
            unit.respawn_at = None;
            if unit.active().is_some() || unit.coming().is_some() || unit.over.is_some() {
                continue;
            }
            if let Err(error) = self.start_worker(index, now) {
                tracing::error!(%error, "no process can be started");
                self.units[index].died(Duration::ZERO, now);
            }
        }
    }

    /// All that wait for the same are served together.
    fn begin_next(&mut self) {
        let Some((kind, asker)) = self.waiting.pop_front() else {
            return;
        };
        let mut askers: Vec<ConnId> = asker.into_iter().collect();
        self.waiting.retain(|(other, asker)| {
            let same = *other == kind;
            if same {
                askers.extend(*asker);
            }
            !same
        });
        self.begin(kind, askers);
    }

    /// The first time in order, the second time at once.
    pub(crate) fn stop(&mut self) {
        let now = Instant::now();
        self.notify.stopping();
        if self.ending {
            tracing::warn!("asked to end a second time: ending at once");
            self.exit = 1;
        }
        for unit in &mut self.units {
            unit.respawn_at = None;
            for worker in &mut unit.workers {
                if self.ending {
                    worker.kill();
                } else {
                    worker.stop(STOP_PATIENCE, now);
                }
            }
        }
        self.ending = true;
    }

    pub(crate) fn tell_state(&self) {
        let serving = self.units.iter().filter(|unit| unit.active().is_some());
        self.notify.ready(&format!(
            "{} of {} configurations are served",
            serving.count(),
            self.units.len()
        ));
    }
}

/// How long the work of a worker that is replaced may take to end.
pub(crate) const DRAIN: Duration = Duration::from_secs(120);
/// How long the work of a worker that has no successor may take to end.
pub(crate) const STOP_PATIENCE: Duration = Duration::from_secs(5);
/// How often to look at the time while something is under way.
pub(crate) const MOVING: Duration = Duration::from_millis(50);
const SWEEP: Duration = Duration::from_secs(10);
/// What the workers of a killed supervisor have to show up: they look every 100 ms.
const ORPHAN_TIME: Duration = Duration::from_secs(1);

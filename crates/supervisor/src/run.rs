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
    time::{Duration, Instant, SystemTime},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, WaitOptions, WaitStatus, wait},
};
use signal_hook::consts::signal::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

use crate::{
    channel::{Channel, MOST_FDS},
    control::{
        ANOTHER_SERVES, Adopt, Answer, Ask, Conn, ConnId, Heard, ListenerStatus, MOST_CONNECTIONS,
        QUESTION_TIME, Status, UnitStatus, WorkerStatus, failed,
    },
    job::{Job, Kind},
    message::{Protocol, SocketName, ToSupervisor, ToWorker, UnitSpec},
    notify::Notify,
    place::{Place, PlaceError},
    resume,
    sockets::{MOST_SOCKETS, WorkerId},
    unit::{State, Unit, Worker},
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
    waiting: VecDeque<(Kind, Option<ConnId>)>,
    pub(crate) given: Vec<(String, OwnedFd)>,
    pub(crate) next_worker: u64,
    next_conn: u64,
    pub(crate) started: Instant,
    /// Not everything has served yet; until then any failure ends all.
    pub(crate) beginning: bool,
    ending: bool,
    exit: u8,
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

    // ---- workers

    pub(crate) fn start_worker(&mut self, index: usize, now: Instant) -> io::Result<WorkerId> {
        let id = WorkerId(self.next_worker);
        self.next_worker += 1;
        let control = self.place.socket();
        self.units[index].start(id, &control, &self.place.key, now)?;
        Ok(id)
    }

    /// Lets a worker that is ready serve.
    pub(crate) fn go(&mut self, index: usize, id: WorkerId, now: Instant) {
        let unit = &mut self.units[index];
        let handoff = unit.handoff.clone();
        if let Some(worker) = unit.worker_mut(id) {
            worker.tell(&ToWorker::Go { handoff });
            worker.state = State::Active;
            let (pid, generation) = (worker.pid.as_raw_nonzero(), worker.generation);
            tracing::info!(
                pid,
                generation,
                unit = unit.spec.name,
                what = unit.worker(id).map(|worker| worker.what.as_str()),
                "a worker serves"
            );
        }
        unit.ever_ready = true;
        unit.sockets.sweep(true, now);
        self.begun();
    }

    /// Whether the first start is done.
    fn begun(&mut self) {
        if self.beginning && self.units.iter().all(|unit| unit.active().is_some()) {
            self.beginning = false;
            self.given.clear();
            self.tell_state();
        }
    }

    fn hear_workers(&mut self) {
        for index in 0..self.units.len() {
            let ids: Vec<WorkerId> = self.units[index]
                .workers
                .iter()
                .map(|worker| worker.id)
                .collect();
            for id in ids {
                self.hear_worker(index, id);
            }
        }
    }

    fn hear_worker(&mut self, index: usize, id: WorkerId) {
        // Bounded: one worker must not keep the loop from the others.
        for _ in 0..MOST_MESSAGES {
            let Some(worker) = self.units[index]
                .worker_mut(id)
                .filter(|worker| !worker.closed)
            else {
                return;
            };
            match worker.channel.recv::<ToSupervisor>(false) {
                Ok(Some((ToSupervisor::Kept { socket }, fds))) => {
                    let unit = &mut self.units[index];
                    unit.sockets.put(socket, fds, Some(id), Instant::now());
                }
                Ok(Some((message, _))) => self.heard(index, id, message, Instant::now()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Ok(None) => {
                    worker.closed = true;
                    if !worker.child {
                        return self.ended(index, id, "it has ended", None);
                    }
                }
                Err(error) => {
                    tracing::error!(%error, "a worker makes no sense and is killed");
                    worker.closed = true;
                    worker.kill();
                }
            }
        }
    }

    fn heard(&mut self, index: usize, id: WorkerId, message: ToSupervisor, now: Instant) {
        let unit = &mut self.units[index];
        match message {
            ToSupervisor::Listen {
                id: question,
                socket,
                count,
            } => self.listen(index, id, question, &socket, count, now),
            ToSupervisor::Release { socket } => unit.sockets.release(id, &socket, now),
            ToSupervisor::Ready { what } => {
                let Some(worker) = unit.worker_mut(id) else {
                    return;
                };
                worker.what = what;
                if matches!(worker.state, State::Starting { .. }) {
                    worker.state = State::Ready;
                }
                // Nobody has to make room first.
                if unit.active().is_none() && !unit.removed && !self.ending {
                    self.go(index, id, now);
                }
            }
            ToSupervisor::Settled => {
                if let Some(worker) = unit.worker_mut(id) {
                    worker.settled = true;
                }
            }
            ToSupervisor::Stopped => {
                unit.sockets.release_all(id, now);
                if let Some(worker) = unit.worker_mut(id)
                    && let State::Leaving { acked, .. } = &mut worker.state
                {
                    *acked = true;
                }
            }
            ToSupervisor::Busy { visits, links } => {
                if let Some(worker) = unit.worker_mut(id) {
                    worker.busy = Some((visits, links));
                }
            }
            ToSupervisor::Failed { error, for_good } => {
                if let Some(worker) = unit.worker_mut(id) {
                    worker.failed = Some((error, for_good));
                }
            }
            ToSupervisor::Handoff { state } => unit.handoff = Some(state),
            ToSupervisor::Reloaded(outcome) => {
                let name = unit.spec.name.clone();
                if unit.active().is_some_and(|worker| worker.id == id) {
                    self.reloaded(&name, outcome);
                }
            }
            // Its sockets are needed, so it is heard where they are.
            ToSupervisor::Kept { .. } => {}
        }
    }

    fn listen(
        &mut self,
        index: usize,
        id: WorkerId,
        question: u64,
        name: &SocketName,
        count: usize,
        now: Instant,
    ) {
        let unit = &mut self.units[index];
        let refused = |error: &io::Error| ToWorker::Listening {
            id: question,
            error: Some((error.raw_os_error().unwrap_or(0), error.to_string())),
            more: false,
        };
        let leaving = unit.worker(id).is_none_or(|worker| {
            matches!(worker.state, State::Leaving { .. } | State::Ending { .. })
        });
        if leaving {
            let error = io::Error::other("another worker serves now");
            if let Some(worker) = unit.worker(id) {
                worker.tell(&refused(&error));
            }
            return;
        }
        let Unit {
            sockets, workers, ..
        } = unit;
        let Some(worker) = workers.iter().find(|worker| worker.id == id) else {
            return;
        };
        let count = count.min(MOST_SOCKETS);
        match sockets.claim(id, name, count, &mut self.given, now) {
            Ok(fds) => {
                let last = fds.len().div_ceil(MOST_FDS).saturating_sub(1);
                for (n, part) in fds.chunks(MOST_FDS).enumerate() {
                    let message = ToWorker::Listening {
                        id: question,
                        error: None,
                        more: n < last,
                    };
                    if worker.channel.send(&message, part).is_err() {
                        worker.kill();
                        return;
                    }
                }
            }
            Err(error) => worker.tell(&refused(&error)),
        }
    }

    /// Children that have ended.
    fn reap(&mut self) {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if !self.check_ended(pid, status) {
                self.worker_ended(pid, status);
            }
        }
    }

    fn worker_ended(&mut self, pid: Pid, status: WaitStatus) {
        let Some((index, id)) = self.units.iter().enumerate().find_map(|(index, unit)| {
            let worker = unit.workers.iter().find(|worker| worker.pid == pid)?;
            Some((index, worker.id))
        }) else {
            return;
        };
        // Its last words.
        self.hear_worker(index, id);
        let code = status
            .exit_status()
            .and_then(|code| u8::try_from(code).ok());
        self.ended(index, id, &describe(status), code);
    }

    fn ended(&mut self, index: usize, id: WorkerId, end: &str, code: Option<u8>) {
        let now = Instant::now();
        let beginning = self.beginning;
        let unit = &mut self.units[index];
        let Some(at) = unit.workers.iter().position(|worker| worker.id == id) else {
            return;
        };
        let worker = unit.workers.remove(at);
        unit.sockets.release_all(id, now);
        let raw = worker.pid.as_raw_nonzero();
        let why = match &worker.failed {
            Some((error, _)) => error.clone(),
            None => end.to_owned(),
        };
        self.last_failure = Some(why.clone());
        let unplanned = match worker.state {
            State::Active => {
                tracing::warn!(pid = raw, unit = unit.spec.name, end, "a worker has died");
                true
            }
            State::Starting { .. } | State::Ready => {
                tracing::warn!(
                    pid = raw,
                    unit = unit.spec.name,
                    why,
                    "a worker did not start"
                );
                unit.active().is_none()
            }
            State::Leaving { .. } | State::Ending { .. } => {
                tracing::info!(
                    pid = raw,
                    unit = unit.spec.name,
                    end,
                    "an old worker has ended"
                );
                false
            }
        };
        if !unplanned || self.ending || unit.removed {
            return;
        }
        let for_good = worker.failed.is_some_and(|(_, for_good)| for_good);
        if for_good || beginning && !unit.ever_ready {
            unit.over = Some(code.filter(|code| *code > 0).unwrap_or(1));
            self.one_is_over();
        } else if unit.coming().is_none() {
            let pause = unit.died(now.saturating_duration_since(worker.since), now);
            if !pause.is_zero() {
                tracing::warn!(unit = unit.spec.name, ?pause, "the next worker has to wait");
            }
        }
    }

    /// A configuration has failed for good: if it is the last, or the first start is not done, that is the end.
    fn one_is_over(&mut self) {
        let codes = || self.units.iter().filter_map(|unit| unit.over);
        if self.beginning || codes().count() == self.units.len() {
            let code = codes().next().unwrap_or(1);
            self.stop();
            self.exit = code;
        }
    }

    // ---- those who ask

    fn hear_conns(&mut self) {
        let now = Instant::now();
        while self.conns.len() < MOST_CONNECTIONS {
            let id = ConnId(self.next_conn);
            let Some(conn) = Conn::accept(&self.listener, id, now) else {
                break;
            };
            self.next_conn += 1;
            self.conns.push(conn);
        }
        for index in (0..self.conns.len()).rev() {
            let conn = &mut self.conns[index];
            match conn.read(&self.place.key) {
                Heard::Nothing if !conn.asked && now > conn.since + QUESTION_TIME => {
                    self.conns.swap_remove(index);
                }
                Heard::Nothing => {}
                Heard::Gone => {
                    self.conns.swap_remove(index);
                }
                Heard::Question(ask) => {
                    let id = conn.id;
                    self.asked(id, ask);
                }
                Heard::Adopt(adopt) => {
                    let conn = self.conns.swap_remove(index);
                    if let Err(error) = self.adopt(conn, adopt, now) {
                        tracing::warn!(%error, "a worker of a former supervisor cannot be taken over");
                    }
                }
            }
        }
    }

    /// Takes over a worker whose supervisor has died, with its sockets; it is replaced when a new one is ready.
    fn adopt(&mut self, conn: Conn, adopt: Adopt, now: Instant) -> io::Result<()> {
        let index = self
            .units
            .iter()
            .position(|unit| unit.spec.name == adopt.adopt && !unit.removed);
        let index = index.ok_or(io::ErrorKind::NotFound)?;
        if self.ending {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        // A second one would serve beside the first.
        if self.units[index].active().is_some() {
            let _ = Channel::from_fd(conn.stream.into()).send(&failed(ANOTHER_SERVES), &[]);
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let peer = rustix::net::sockopt::socket_peercred(&conn.stream)?;
        let (ours, theirs) = Channel::pair()?;
        let answer = Answer {
            ok: true,
            text: String::new(),
            status: None,
        };
        Channel::from_fd(conn.stream.into()).send(&answer, &[theirs.as_fd()])?;
        let id = WorkerId(self.next_worker);
        self.next_worker += 1;
        let unit = &mut self.units[index];
        if let Some(coming) = unit.coming().and_then(|id| unit.worker(id)) {
            coming.kill();
        }
        unit.generation = unit.generation.max(adopt.generation);
        unit.handoff = adopt.handoff;
        unit.ever_ready = true;
        unit.respawn_at = None;
        unit.change_waits = true;
        unit.workers.push(Worker {
            id,
            generation: adopt.generation,
            pid: peer.pid,
            channel: ours,
            closed: false,
            child: false,
            state: State::Active,
            since: now,
            settled: true,
            started: SystemTime::now(),
            what: adopt.what,
            busy: None,
            failed: None,
        });
        tracing::info!(
            pid = peer.pid.as_raw_nonzero(),
            unit = unit.spec.name,
            "a worker of a former supervisor is taken over"
        );
        self.begun();
        Ok(())
    }

    fn asked(&mut self, id: ConnId, ask: Ask) {
        match ask {
            Ask::Reload => self.want(Kind::Reload, Some(id)),
            Ask::Plan => self.want(Kind::Plan, Some(id)),
            Ask::Restart => self.want(Kind::Restart, Some(id)),
            Ask::Stop => {
                self.answer(&[id], true, "it ends; asked again, it ends at once");
                self.stop();
            }
            Ask::ReopenLogs => {
                self.reopen_logs();
                self.answer(&[id], true, "log files are opened again");
            }
            Ask::Status => {
                let answer = Answer {
                    ok: true,
                    text: String::new(),
                    status: Some(self.status()),
                };
                if let Some(conn) = self.conns.iter_mut().find(|conn| conn.id == id) {
                    // A long answer does not fit into the socket at once; the asker reads it soon.
                    let _ = conn.stream.set_nonblocking(false);
                    let _ = conn.stream.set_write_timeout(Some(MOVING));
                    conn.answer(&answer);
                }
                self.conns.retain(|conn| conn.id != id);
            }
        }
    }

    fn want(&mut self, kind: Kind, asker: Option<ConnId>) {
        if self.ending {
            self.answer_one(asker, "gt is ending");
        } else if self.waiting.len() >= MOST_WAITING {
            self.answer_one(asker, "too many wait for the reload that is under way");
        } else {
            self.waiting.push_back((kind, asker));
        }
    }

    fn answer_one(&mut self, asker: Option<ConnId>, text: &str) {
        let answer = failed(text);
        for conn in self.conns.iter_mut().filter(|conn| Some(conn.id) == asker) {
            conn.answer(&answer);
        }
        self.conns.retain(|conn| Some(conn.id) != asker);
    }

    fn reopen_logs(&self) {
        for worker in self.units.iter().flat_map(|unit| &unit.workers) {
            worker.tell(&ToWorker::ReopenLogs);
        }
    }

    // ---- time

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
    fn stop(&mut self) {
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

    fn status(&self) -> Status {
        let now = Instant::now();
        let unit = |unit: &Unit| {
            let (service, configured): (Vec<_>, Vec<_>) = unit
                .sockets
                .addresses()
                .into_iter()
                .partition(|(option, ..)| option.is_empty());
            let listener = |(option, protocol, address)| ListenerStatus {
                option,
                protocol: match protocol {
                    Protocol::Tcp => "tcp".into(),
                    Protocol::Udp => "udp".into(),
                },
                address,
            };
            let worker = |worker: &Worker| WorkerStatus {
                pid: worker.pid.as_raw_nonzero().get(),
                generation: worker.generation,
                state: worker.state.name().into(),
                uptime_seconds: worker.started.elapsed().map_or(0, |age| age.as_secs()),
                what: worker.what.clone(),
                visits: worker.busy.map(|(visits, _)| visits),
                links: worker.busy.map(|(_, links)| links),
                ends_within_seconds: match worker.state {
                    State::Leaving { until, .. } | State::Ending { until } => {
                        Some(until.saturating_duration_since(now).as_secs())
                    }
                    _ => None,
                },
            };
            UnitStatus {
                name: unit.spec.name.clone(),
                workers: unit.workers.iter().map(worker).collect(),
                listeners: configured.into_iter().map(listener).collect(),
                service_ports: service.len(),
                deaths: unit.deaths,
                change_waits: unit.change_waits,
            }
        };
        Status {
            pid: rustix::process::getpid().as_raw_nonzero().get(),
            version: self.options.version.clone(),
            program: self.options.program.display().to_string(),
            uptime_seconds: now.saturating_duration_since(self.started).as_secs(),
            configuration: self.place.key.clone(),
            busy: self.job.is_some(),
            units: self.units.iter().map(unit).collect(),
        }
    }
}

fn describe(status: WaitStatus) -> String {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => format!("it ended with code {code}"),
        (None, Some(signal)) => format!("signal {signal} ended it"),
        _ => format!("{status:?}"),
    }
}

/// How long the work of a worker that is replaced may take to end.
pub(crate) const DRAIN: Duration = Duration::from_secs(120);
/// How long the work of a worker that has no successor may take to end.
pub(crate) const STOP_PATIENCE: Duration = Duration::from_secs(5);
/// How often to look at the time while something is under way.
const MOVING: Duration = Duration::from_millis(50);
const SWEEP: Duration = Duration::from_secs(10);
/// What the workers of a killed supervisor have to show up: they look every 100 ms.
const ORPHAN_TIME: Duration = Duration::from_secs(1);
const MOST_MESSAGES: usize = 256;
const MOST_WAITING: usize = 64;

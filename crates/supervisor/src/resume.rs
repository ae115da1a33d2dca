//! A restart: this process becomes the program that lies on disk now, without letting go of a socket. Its state goes into one end of a
//! socket pair, descriptors and all; the other end becomes standard input; after exec(2) the new program reads it from there. Process
//! id, children, lock and control socket stay what they were.

use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{
            net::{UnixListener, UnixStream},
            process::CommandExt,
        },
    },
    process::Command,
    time::{Duration, Instant, SystemTime},
};

use rustix::process::Pid;
use serde::{Deserialize, Serialize};

use crate::{
    channel::{Channel, MOST_FDS},
    control::{Conn, ConnId},
    job::Kind,
    message::{SocketName, UnitSpec},
    place::Place,
    run::{Options, Supervisor, SupervisorError},
    sockets::WorkerId,
    unit::{State, Unit, Worker},
};

/// Version of what follows. Another number: the programs cannot take over from one another.
pub const HANDOVER: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
enum Part {
    /// The control socket and the lock come with it.
    Head {
        uptime_ms: u64,
        next_worker: u64,
        key: String,
    },
    /// A configuration; what follows belongs to it.
    Unit {
        spec: UnitSpec,
        generation: u32,
        handoff: Option<String>,
        ever_ready: bool,
    },
    /// Its channel comes with it.
    Worker {
        id: u64,
        generation: u32,
        pid: i32,
        /// Milliseconds that are left to it, if it is about to end.
        leaving_ms: Option<u64>,
        age_ms: u64,
        /// Who was on the way to it has come.
        #[serde(default)]
        settled: bool,
        what: String,
    },
    /// Sockets of one group come with it; a large one has several of these.
    Sockets { name: SocketName },
    /// One who waits for the end of the restart comes with it.
    Asker,
    /// That was all.
    End,
}

/// Becomes the program on disk; returns only why it could not.
pub(crate) fn exec(supervisor: &Supervisor, askers: &[ConnId]) -> io::Error {
    match send(supervisor, askers).and_then(|kept| {
        rustix::stdio::dup2_stdin(&kept)?;
        Ok(kept)
    }) {
        // The end that was written to goes with the exec, so that the reader sees an end.
        Ok(_kept) => {
            let mut command = Command::new(&supervisor.options.program);
            command.args(&supervisor.options.args).env(RESUME, "1");
            for variable in ["LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"] {
                command.env_remove(variable);
            }
            let error = command.exec();
            if let Ok(null) = File::open("/dev/null") {
                let _ = rustix::stdio::dup2_stdin(null);
            }
            error
        }
        Err(error) => error,
    }
}

fn send(supervisor: &Supervisor, askers: &[ConnId]) -> io::Result<Channel> {
    let (to, from) = Channel::pair()?;
    to.widen();
    let now = Instant::now();
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    to.send(
        &Part::Head {
            uptime_ms: millis(supervisor.started.elapsed()),
            next_worker: supervisor.next_worker,
            key: supervisor.place.key.clone(),
        },
        &[supervisor.listener.as_fd(), supervisor.lock.as_fd()],
    )?;
    for unit in supervisor.units.iter().filter(|unit| !unit.removed) {
        to.send(
            &Part::Unit {
                spec: unit.spec.clone(),
                generation: unit.generation,
                handoff: unit.handoff.clone(),
                ever_ready: unit.ever_ready,
            },
            &[],
        )?;
        for worker in &unit.workers {
            let left = worker.state.until();
            to.send(
                &Part::Worker {
                    id: worker.id.0,
                    generation: worker.generation,
                    pid: worker.pid.as_raw_nonzero().get(),
                    leaving_ms: left.map(|until| millis(until.saturating_duration_since(now))),
                    age_ms: millis(worker.since.elapsed()),
                    settled: worker.settled,
                    what: worker.what.clone(),
                },
                &[worker.channel.as_fd()],
            )?;
        }
        for (name, sockets) in unit.sockets.all() {
            let fds: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
            for part in fds.chunks(MOST_FDS) {
                to.send(&Part::Sockets { name: name.clone() }, part)?;
            }
        }
    }
    for conn in supervisor
        .conns
        .iter()
        .filter(|conn| askers.contains(&conn.id))
    {
        to.send(&Part::Asker, &[conn.stream.as_fd()])?;
    }
    to.send(&Part::End, &[])?;
    Ok(from)
}

/// What a former image of this process left, if this is one that follows.
pub(crate) fn taken() -> Result<Option<Channel>, SupervisorError> {
    if std::env::var_os(RESUME).is_none() {
        return Ok(None);
    }
    let channel = Channel::from_stdin()?;
    if channel.is_none() {
        tracing::warn!(
            "{RESUME} is set although there is nothing to take over; it is for gt itself"
        );
    }
    Ok(channel)
}

/// Whether this process follows a former image of itself.
#[must_use]
pub fn is_resumed() -> bool {
    std::env::var_os(RESUME).is_some()
}

pub(crate) fn supervisor(
    from: Channel,
    options: Options,
    signals: Vec<(i32, UnixStream)>,
) -> Result<Supervisor, SupervisorError> {
    let bad = |what: &str| SupervisorError::Resume(what.to_owned());
    let (head, mut fds) = next(&from)?;
    let (
        Part::Head {
            uptime_ms,
            next_worker,
            key,
        },
        Some(lock),
        Some(listener),
    ) = (head, fds.pop(), fds.pop())
    else {
        return Err(bad("it does not begin with its head"));
    };
    let place = Place::make(&key)?;
    let options = Options { key, ..options };
    let listener = UnixListener::from(listener);
    let mut supervisor = Supervisor::with(options, signals, place, File::from(lock), listener);
    let now = Instant::now();
    let ago = |ms| now.checked_sub(Duration::from_millis(ms)).unwrap_or(now);
    supervisor.started = ago(uptime_ms);
    supervisor.next_worker = next_worker;
    let mut askers = Vec::new();
    loop {
        let (part, mut fds) = next(&from)?;
        let unit = supervisor.units.last_mut();
        match (part, unit) {
            (Part::End, _) => break,
            (
                Part::Unit {
                    spec,
                    generation,
                    handoff,
                    ever_ready,
                },
                _,
            ) => {
                supervisor.units.push(Unit {
                    generation,
                    handoff,
                    ever_ready,
                    ..Unit::new(spec)
                });
            }
            (
                Part::Worker {
                    id,
                    generation,
                    pid,
                    leaving_ms,
                    age_ms,
                    settled,
                    what,
                },
                Some(unit),
            ) => {
                let age = Duration::from_millis(age_ms);
                let state = match leaving_ms {
                    Some(ms) => State::Leaving {
                        until: now + Duration::from_millis(ms),
                        acked: true,
                    },
                    None => State::Active,
                };
                unit.workers.push(Worker {
                    id: WorkerId(id),
                    generation,
                    pid: Pid::from_raw(pid).ok_or_else(|| bad("a worker has no process"))?,
                    channel: Channel::from_fd(
                        fds.pop().ok_or_else(|| bad("a channel is missing"))?,
                    ),
                    closed: false,
                    child: true,
                    state,
                    since: ago(age_ms),
                    settled,
                    started: SystemTime::now()
                        .checked_sub(age)
                        .unwrap_or(SystemTime::UNIX_EPOCH),
                    what,
                    busy: None,
                    failed: None,
                });
            }
            (Part::Sockets { name }, Some(unit)) => {
                let claims = unit.active().map(|worker| worker.id);
                unit.sockets.put(name, fds, claims, now);
            }
            (Part::Asker, _) => {
                if let Some(fd) = fds.pop() {
                    // Numbers of this image begin at 1.
                    let id = ConnId(u64::MAX - askers.len() as u64);
                    supervisor
                        .conns
                        .push(Conn::new(id, UnixStream::from(fd), true, now));
                    askers.push(id);
                }
            }
            _ => return Err(bad("its parts are in no order")),
        }
    }
    // Configurations that came or went meanwhile.
    for spec in supervisor.options.units.clone() {
        if !supervisor
            .units
            .iter()
            .any(|unit| unit.spec.name == spec.name)
        {
            supervisor.units.push(Unit::new(spec));
        }
    }
    supervisor.begin(Kind::Renew, askers);
    Ok(supervisor)
}

fn next(from: &Channel) -> Result<(Part, Vec<OwnedFd>), SupervisorError> {
    match from.recv(true) {
        Ok(Some(packet)) => Ok(packet),
        Ok(None) => Err(SupervisorError::Resume("it ends too early".into())),
        Err(error) => Err(SupervisorError::Resume(error.to_string())),
    }
}

/// Set over the exec only.
pub(crate) const RESUME: &str = "GT_RESUMED_SUPERVISOR";

//! A worker's side: what it is told, what it says, and listening sockets that the supervisor keeps.
//!
//! A supervisor that dies takes nothing with it: the worker goes on, opens what it needs by itself, and looks for the next supervisor
//! of its configuration, which gets the sockets and replaces it in order.

use std::{
    collections::{BTreeMap, HashMap},
    io::{self, Write},
    net::{SocketAddr, TcpListener, UdpSocket},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::Path,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use net::{ListenSource, OwnSockets};
use signal_hook::consts::signal::{SIGHUP, SIGUSR1, SIGUSR2};

use crate::{
    channel::{Channel, MOST_FDS},
    control::{ANOTHER_SERVES, Adopt, Answer},
    message::{Outcome, Protocol, SocketName, ToSupervisor, ToWorker},
    place,
    run::DRAIN,
};

/// What a worker is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Begin to accept; with what the one before left when it stopped.
    Go(Option<String>),
    /// A successor serves: stop accepting, say [`Supervised::stopped`], let what runs end within the time, end.
    Drain(Duration),
    /// The same without a successor.
    Stop(Duration),
    /// Read the configuration again, and answer with [`Supervised::reloaded`]; only say what would be if `plan`.
    Reload {
        /// Say only.
        plan: bool,
    },
    /// Open log files again.
    ReopenLogs,
}

/// Who a worker is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Counts the workers of one configuration, from 1.
    pub generation: u32,
    /// There was one before, whose visitors and peers are on their way.
    pub takes_over: bool,
    /// What that one left.
    pub handoff: Option<String>,
}

/// The way to the supervisor. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Supervised(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    channel: Mutex<Channel>,
    /// There is no supervisor now.
    orphaned: AtomicBool,
    questions: AtomicU64,
    answers: Mutex<HashMap<u64, Heard>>,
    answered: Condvar,
    /// Another handle on each socket, for the next supervisor.
    kept: Mutex<BTreeMap<SocketName, Vec<OwnedFd>>>,
    stage: Mutex<Stage>,
    about: Mutex<About>,
}

/// How far the worker is; what it does without a supervisor depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Not everything is open.
    Starting,
    /// It waits for the one before to stop accepting.
    Ready,
    Serving,
    /// It lets its work end.
    Leaving,
}

#[derive(Debug, Default)]
struct About {
    generation: u32,
    control: String,
    key: String,
    unit: String,
    what: String,
    handoff: Option<String>,
}

#[derive(Debug, Default)]
struct Heard {
    sockets: Vec<OwnedFd>,
    error: Option<(i32, String)>,
    done: bool,
}

impl Supervised {
    /// Takes standard input as the way to the supervisor and waits for its first words.
    ///
    /// # Errors
    /// When standard input is nothing of the kind, or the supervisor is gone.
    pub fn from_stdin() -> io::Result<(Self, Hello, mpsc::Receiver<Command>)> {
        let channel = Channel::from_stdin()?.ok_or_else(|| {
            io::Error::other(
                "standard input is no way to a supervisor: gt starts its workers itself",
            )
        })?;
        Self::over(channel)
    }

    fn over(channel: Channel) -> io::Result<(Self, Hello, mpsc::Receiver<Command>)> {
        let Some((
            ToWorker::Hello {
                generation,
                takes_over,
                handoff,
                control,
                key,
                unit,
            },
            _,
        )) = channel.recv(true)?
        else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        // They are the supervisor's to hear; who sends one to all processes of gt must not end the workers with it.
        for signal in [SIGHUP, SIGUSR1, SIGUSR2] {
            signal_hook::flag::register(signal, Arc::default())?;
        }
        // The file of the running program is /proc/self/exe, which is no name for people.
        let _ = rustix::thread::set_name(c"gt");
        let listening = channel.try_clone()?;
        let inner = Arc::new(Inner {
            channel: Mutex::new(channel),
            orphaned: AtomicBool::new(false),
            questions: AtomicU64::new(1),
            answers: Mutex::default(),
            answered: Condvar::new(),
            kept: Mutex::default(),
            stage: Mutex::new(Stage::Starting),
            about: Mutex::new(About {
                generation,
                control,
                key,
                unit,
                what: String::new(),
                handoff: handoff.clone(),
            }),
        });
        let (commands, receiver) = mpsc::channel();
        let hearing = Arc::clone(&inner);
        thread::Builder::new()
            .name("gt-supervised".into())
            .spawn(move || hearing.hear(listening, &commands))?;
        let hello = Hello {
            generation,
            takes_over,
            handoff,
        };
        Ok((Self(inner), hello, receiver))
    }

    /// Everything is open. `what` is a line for people.
    pub fn ready(&self, what: &str) {
        lock(&self.0.about).what = what.to_owned();
        self.0.move_on(Stage::Starting, Stage::Ready);
        self.0.say(&ToSupervisor::Ready {
            what: shortened(what),
        });
    }

    /// Whoever was on the way from the process before has come. Said once after each [`Command::Go`]: before, it is not replaced if that
    /// can wait a few seconds.
    pub fn settled(&self) {
        self.0.say(&ToSupervisor::Settled);
    }

    /// It accepts no more. Its sockets are the others' from now on.
    pub fn stopped(&self) {
        *lock(&self.0.stage) = Stage::Leaving;
        lock(&self.0.kept).clear();
        self.0.say(&ToSupervisor::Stopped);
    }

    /// What is left while it ends.
    pub fn busy(&self, visits: u64, links: u64) {
        self.0.say(&ToSupervisor::Busy { visits, links });
    }

    /// It cannot run; `for_good`: trying again does not help.
    pub fn failed(&self, error: &str, for_good: bool) {
        self.0.say(&ToSupervisor::Failed {
            error: shortened(error),
            for_good,
        });
    }

    /// The answer to [`Command::Reload`].
    pub fn reloaded(&self, outcome: Outcome) {
        let outcome = match outcome {
            Outcome::InPlace { changes } => Outcome::InPlace {
                changes: few(changes),
            },
            Outcome::Replace { changes, reasons } => Outcome::Replace {
                changes: few(changes),
                reasons: few(reasons),
            },
            Outcome::Refused { error } => Outcome::Refused {
                error: shortened(&error),
            },
        };
        self.0.say(&ToSupervisor::Reloaded(outcome));
    }

    /// What the next worker should get, if this one has to be replaced; at most 16 KiB.
    pub fn hand_off(&self, state: &str) {
        lock(&self.0.about).handoff = Some(state.to_owned());
        self.0.say(&ToSupervisor::Handoff {
            state: state.to_owned(),
        });
    }

    fn claim(&self, name: SocketName, count: usize) -> io::Result<Option<Vec<OwnedFd>>> {
        let inner = &self.0;
        let id = inner.questions.fetch_add(1, SeqCst);
        lock(&inner.answers).insert(id, Heard::default());
        inner.say(&ToSupervisor::Listen {
            id,
            socket: name.clone(),
            count,
        });
        let until = Instant::now() + ANSWER_TIME;
        let mut answers = lock(&inner.answers);
        let heard = loop {
            if answers.get(&id).is_some_and(|heard| heard.done) {
                break answers.remove(&id).unwrap_or_default();
            }
            let left = until.saturating_duration_since(Instant::now());
            if inner.orphaned.load(SeqCst) {
                answers.remove(&id);
                return Ok(None);
            }
            if left.is_zero() {
                answers.remove(&id);
                let error =
                    io::Error::new(io::ErrorKind::TimedOut, "the supervisor does not answer");
                return Err(error);
            }
            answers = inner
                .answered
                .wait_timeout(answers, left.min(Duration::from_millis(200)))
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        };
        drop(answers);
        if let Some((number, text)) = heard.error {
            return Err(match number {
                0 => io::Error::other(text),
                number => io::Error::from_raw_os_error(number),
            });
        }
        self.keep(name, &heard.sockets)?;
        Ok(Some(heard.sockets))
    }

    fn keep(&self, name: SocketName, sockets: &[OwnedFd]) -> io::Result<()> {
        let handles = sockets.iter().map(OwnedFd::try_clone);
        let handles = handles.collect::<Result<Vec<_>, _>>()?;
        lock(&self.0.kept).insert(name, handles);
        Ok(())
    }

    fn open<T: From<OwnedFd> + Into<OwnedFd>>(
        &self,
        name: SocketName,
        count: usize,
        own: impl FnOnce() -> io::Result<Vec<T>>,
    ) -> io::Result<Vec<T>> {
        if let Some(sockets) = self.claim(name.clone(), count)? {
            return Ok(sockets.into_iter().map(T::from).collect());
        }
        let sockets: Vec<OwnedFd> = own()?.into_iter().map(Into::into).collect();
        self.keep(name, &sockets)?;
        Ok(sockets.into_iter().map(T::from).collect())
    }
}

impl ListenSource for Supervised {
    fn tcp(&self, option: &str, address: SocketAddr, count: usize) -> io::Result<Vec<TcpListener>> {
        let own = || OwnSockets.tcp(option, address, count);
        self.open(name(option, Protocol::Tcp, address), count, own)
    }

    fn udp(&self, option: &str, address: SocketAddr, count: usize) -> io::Result<Vec<UdpSocket>> {
        let own = || OwnSockets.udp(option, address, count);
        self.open(name(option, Protocol::Udp, address), count, own)
    }

    fn release(&self, option: &str, address: SocketAddr, udp: bool) {
        let protocol = if udp { Protocol::Udp } else { Protocol::Tcp };
        let socket = name(option, protocol, address);
        if lock(&self.0.kept).remove(&socket).is_some() {
            self.0.say(&ToSupervisor::Release { socket });
        }
    }

    fn steering(&self) -> Option<net::Steering> {
        let about = lock(&self.0.about);
        let folder = Path::new(&about.control).parent()?;
        // Short: a socket's path has 108 bytes at most.
        let stem = place::hash(&format!("{}\n{}", about.key, about.unit));
        Some(net::Steering::new(
            folder.join(format!("{stem:016x}")),
            about.generation,
        ))
    }
}

fn name(option: &str, protocol: Protocol, address: SocketAddr) -> SocketName {
    SocketName {
        option: option.to_owned(),
        protocol,
        address,
    }
}

impl Inner {
    /// Says it, unless there is nobody to say it to. A supervisor that is busy for a moment is waited for.
    fn say(&self, message: &ToSupervisor) {
        let until = Instant::now() + SEND_TIME;
        while !self.orphaned.load(SeqCst) {
            let sent = lock(&self.channel).send(message, &[]);
            match sent {
                Err(error)
                    if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < until =>
                {
                    thread::sleep(Duration::from_millis(5));
                }
                Err(error) => {
                    return tracing::debug!(%error, "the supervisor does not hear");
                }
                Ok(()) => return,
            }
        }
    }

    /// From one stage to the next, unless it is another one by now.
    fn move_on(&self, from: Stage, to: Stage) {
        let mut stage = lock(&self.stage);
        if *stage == from {
            *stage = to;
        }
    }

    fn hear(&self, mut channel: Channel, commands: &mpsc::Sender<Command>) {
        loop {
            match channel.recv::<ToWorker>(true) {
                Ok(Some((message, fds))) => {
                    if let Some(command) = self.heard(message, fds) {
                        match command {
                            Command::Go(_) => *lock(&self.stage) = Stage::Serving,
                            // A supervisor that comes later must not take it for one that serves.
                            Command::Drain(_) | Command::Stop(_) => {
                                *lock(&self.stage) = Stage::Leaving;
                            }
                            Command::Reload { .. } | Command::ReopenLogs => {}
                        }
                        if commands.send(command).is_err() {
                            return;
                        }
                    }
                }
                Ok(None) | Err(_) => {
                    self.orphaned.store(true, SeqCst);
                    self.answered.notify_all();
                    let next = self.without_supervisor(commands);
                    let Some(next) = next else { return };
                    match next.try_clone() {
                        Ok(clone) => *lock(&self.channel) = clone,
                        Err(_) => return,
                    }
                    self.orphaned.store(false, SeqCst);
                    channel = next;
                }
            }
        }
    }

    /// Until there is another one; `None` when this worker is not to have one.
    fn without_supervisor(&self, commands: &mpsc::Sender<Command>) -> Option<Channel> {
        let stage = *lock(&self.stage);
        match stage {
            Stage::Starting => {
                tracing::error!("the supervisor is gone before this worker could serve; it ends");
                let _ = commands.send(Command::Stop(Duration::ZERO));
                return None;
            }
            // The one before has been told to accept no more, or is about to be taken for dead: somebody must serve.
            Stage::Ready => {
                *lock(&self.stage) = Stage::Serving;
                let _ = commands.send(Command::Go(None));
            }
            Stage::Serving => {}
            Stage::Leaving => return None,
        }
        tracing::error!("the supervisor is gone; this worker goes on until there is another one");
        match self.look_for_another() {
            Looked::Found(channel) => Some(channel),
            Looked::NotNeeded => None,
            Looked::AnotherServes => {
                tracing::warn!("a new supervisor has another worker; what runs here may end");
                *lock(&self.stage) = Stage::Leaving;
                let _ = commands.send(Command::Drain(DRAIN));
                None
            }
        }
    }

    fn heard(&self, message: ToWorker, fds: Vec<OwnedFd>) -> Option<Command> {
        match message {
            ToWorker::Hello { .. } => None,
            ToWorker::Listening { id, error, more } => {
                let mut answers = lock(&self.answers);
                // Nobody waits any more for an answer that came too late; its sockets are closed here.
                if let Some(heard) = answers.get_mut(&id) {
                    heard.sockets.extend(fds);
                    heard.error = error;
                    heard.done = !more;
                    self.answered.notify_all();
                }
                None
            }
            ToWorker::Go { handoff } => Some(Command::Go(handoff)),
            ToWorker::Drain { deadline_ms } => {
                Some(Command::Drain(Duration::from_millis(deadline_ms)))
            }
            ToWorker::Stop { patience_ms } => {
                Some(Command::Stop(Duration::from_millis(patience_ms)))
            }
            ToWorker::Reload { plan } => Some(Command::Reload { plan }),
            ToWorker::ReopenLogs => Some(Command::ReopenLogs),
        }
    }

    fn look_for_another(&self) -> Looked {
        loop {
            thread::sleep(LOOK_EVERY);
            if *lock(&self.stage) != Stage::Serving {
                return Looked::NotNeeded;
            }
            match self.introduce() {
                Ok(channel) => {
                    tracing::info!("a new supervisor has taken over");
                    return Looked::Found(channel);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    return Looked::AnotherServes;
                }
                Err(error) => tracing::trace!(%error, "no new supervisor yet"),
            }
        }
    }

    fn introduce(&self) -> io::Result<Channel> {
        let about = lock(&self.about);
        let what = about.what.clone();
        let mut stream = UnixStream::connect(&about.control)?;
        let peer = rustix::net::sockopt::socket_peercred(&stream)?;
        if peer.uid != rustix::process::getuid() && !peer.uid.is_root() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        stream.set_read_timeout(Some(ANSWER_TIME))?;
        let adopt = Adopt {
            key: about.key.clone(),
            adopt: about.unit.clone(),
            generation: about.generation,
            what: about.what.clone(),
            handoff: about.handoff.clone(),
        };
        drop(about);
        stream.write_all(format!("{}\n", serde_json::to_string(&adopt)?).as_bytes())?;
        let answered = Channel::from_fd(stream.into()).recv::<Answer>(true)?;
        let channel = match answered {
            Some((answer, mut fds)) if answer.ok => fds.pop().map(Channel::from_fd),
            Some((answer, _)) if answer.text == ANOTHER_SERVES => {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            _ => None,
        };
        let channel = channel.ok_or(io::ErrorKind::ConnectionRefused)?;
        channel.widen();
        for (name, sockets) in &*lock(&self.kept) {
            let fds: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
            for part in fds.chunks(MOST_FDS) {
                channel.send(
                    &ToSupervisor::Kept {
                        socket: name.clone(),
                    },
                    part,
                )?;
            }
        }
        channel.send(&ToSupervisor::Ready { what }, &[])?;
        Ok(channel)
    }
}

/// What came of looking for a supervisor.
enum Looked {
    Found(Channel),
    /// The worker ends meanwhile.
    NotNeeded,
    AnotherServes,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What fits into a packet with room to spare.
fn shortened(text: &str) -> String {
    let mut text = text.to_owned();
    if text.len() > LONGEST_TEXT {
        let end = (0..=LONGEST_TEXT)
            .rev()
            .find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or(0));
        text.push('…');
    }
    text
}

fn few(mut lines: Vec<String>) -> Vec<String> {
    let more = lines.len().saturating_sub(MOST_LINES);
    lines.truncate(MOST_LINES);
    for line in &mut lines {
        if line.len() > LONGEST_LINE {
            let end = (0..=LONGEST_LINE)
                .rev()
                .find(|end| line.is_char_boundary(*end));
            line.truncate(end.unwrap_or(0));
            line.push('…');
        }
    }
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines
}

const ANSWER_TIME: Duration = Duration::from_secs(10);
const SEND_TIME: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(100);
const LONGEST_TEXT: usize = 8 << 10;
const LONGEST_LINE: usize = 300;
const MOST_LINES: usize = 40;

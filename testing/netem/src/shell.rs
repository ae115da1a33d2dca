//! The loop between two ends: packets come from sockets or devices, go through a [`Path`] per direction, and leave on time.
//!
//! One thread. A turn: read what has come (a bounded number from each source), pass on what is due, sleep until the next packet
//! or the next time a path names. The sleep is a timerfd in an epoll set: a high-resolution timer, without the milliseconds that
//! timeouts of epoll and of async runtimes are rounded to. On a machine that wakes threads late, [`Options::spin`] trades CPU for precision.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use rustix::{
    buffer::spare_capacity,
    event::{EventfdFlags, Timespec, epoll, eventfd},
    io::Errno,
    time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags},
};

use crate::{
    Filter, Packet, Path, Plan, Setting,
    counters::{Lateness, Report},
};

/// What every shell needs to know.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// From clients to the target; from the left namespace to the right one.
    pub up: Plan,
    /// The way back.
    pub down: Plan,
    /// The same seed and the same packets at the same times: the same impairment.
    pub seed: u64,
    /// How long before a packet is due the loop stops sleeping and asks the clock instead, at the cost of CPU.
    pub spin: Duration,
}

/// One of a path's two directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From clients to the target; from the left namespace to the right one.
    Up,
    /// The way back.
    Down,
}

/// A shell at work. Dropping it ends it.
#[derive(Debug)]
pub struct Running {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Running {
    pub(crate) fn start<E: Ends + Send + 'static>(ends: E, options: &Options) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            begun: Instant::now(),
            stop: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            state: Mutex::new(State {
                up: Path::new(options.up.clone(), options.seed),
                down: Path::new(options.down.clone(), !options.seed),
                filters: [Filter::default(), Filter::default()],
                filtered: 0,
                lateness: Lateness::default(),
                refused: 0,
                turned_away: 0,
            }),
        });
        let turns = Turns::new(ends, Arc::clone(&shared), options.spin)?;
        let thread = std::thread::Builder::new()
            .name("netem".to_owned())
            .spawn(|| turns.run())?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// What happened so far.
    pub fn report(&self) -> Report {
        let state = self.shared.lock();
        Report {
            time: self.shared.now(),
            up: state.up.counters().clone(),
            down: state.down.counters().clone(),
            lateness: state.lateness.clone(),
            filtered: state.filtered,
            refused: state.refused,
            turned_away: state.turned_away,
        }
    }

    /// Changes what a direction does from now on.
    pub fn change(&self, direction: Direction, changes: &[Setting]) {
        let mut state = self.shared.lock();
        // Under the lock, so that the path's time does not run backwards.
        let now = self.shared.now();
        for change in changes {
            state.path(direction).change(now, change);
        }
    }

    /// Puts a firewall before both directions, in the place of the one before: of a bridge, whose packets are IP packets.
    pub fn filter(&self, filter: &Filter) {
        self.shared.lock().filters = [filter.clone(), filter.clone()];
    }

    /// Whether it has ended by itself, which only an error of the system makes it do; [`stop`](Self::stop) tells.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// Ends it. Packets on the way are gone.
    ///
    /// # Errors
    /// What a socket, a device or the system answered, if the shell had ended by itself.
    pub fn stop(mut self) -> io::Result<Report> {
        self.end()?;
        Ok(self.report())
    }

    fn end(&mut self) -> io::Result<()> {
        let Some(thread) = self.thread.take() else {
            return Ok(());
        };
        rustix::io::write(&self.shared.stop, &1u64.to_ne_bytes())?;
        thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the thread of the path panicked")))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Nobody is left to be told of an error.
        let _ = self.end();
    }
}

/// Where packets come from and go to.
pub(crate) trait Ends {
    /// Adds every source to the set, with tokens from [`FIRST_TOKEN`] on.
    fn register(&self, set: BorrowedFd<'_>) -> io::Result<()>;

    /// Reads one packet of a source that has something; `None` when it has nothing more.
    fn receive(
        &mut self,
        token: u64,
        buffer: &mut [u8],
        now: Duration,
        set: BorrowedFd<'_>,
    ) -> io::Result<Received>;

    /// Passes a packet on; whether it was taken.
    fn send(&mut self, direction: Direction, tag: u64, bytes: &[u8]) -> bool;
}

/// What a source gave.
pub(crate) enum Received {
    /// A packet: where it is going, its tag, its length in the buffer.
    Packet(Direction, u64, usize),
    /// A packet of a client too many.
    TurnedAway,
    /// Nothing more for now.
    Empty,
}

/// The first token that a source may use.
pub(crate) const FIRST_TOKEN: u64 = 16;
const STOP: u64 = 0;
const TIMER: u64 = 1;
/// Packets read from one source before others and what is due have their turn.
const BUDGET: usize = 64;
/// The largest packet: a UDP datagram with room to spare.
const BUFFER: usize = 1 << 16;

#[derive(Debug)]
struct Shared {
    begun: Instant,
    stop: OwnedFd,
    state: Mutex<State>,
}

impl Shared {
    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Every change of the state is complete in itself, so a panic elsewhere leaves nothing half done.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct State {
    up: Path<u64>,
    down: Path<u64>,
    /// Up and down.
    filters: [Filter; 2],
    filtered: u64,
    lateness: Lateness,
    refused: u64,
    turned_away: u64,
}

impl State {
    fn path(&mut self, direction: Direction) -> &mut Path<u64> {
        match direction {
            Direction::Up => &mut self.up,
            Direction::Down => &mut self.down,
        }
    }

    fn next_time(&self) -> Option<Duration> {
        [self.up.next_time(), self.down.next_time()]
            .into_iter()
            .flatten()
            .min()
    }
}

struct Turns<E> {
    ends: E,
    shared: Arc<Shared>,
    spin: Duration,
    set: OwnedFd,
    timer: OwnedFd,
    /// What the timer is set to.
    armed: Option<Duration>,
    buffer: Vec<u8>,
}

impl<E: Ends> Turns<E> {
    fn new(ends: E, shared: Arc<Shared>, spin: Duration) -> io::Result<Self> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let timer = rustix::time::timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )?;
        watch(set.as_fd(), shared.stop.as_fd(), STOP)?;
        watch(set.as_fd(), timer.as_fd(), TIMER)?;
        ends.register(set.as_fd())?;
        Ok(Self {
            ends,
            shared,
            spin,
            set,
            timer,
            armed: None,
            buffer: vec![0; BUFFER],
        })
    }

    fn run(mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(256);
        loop {
            let pause = self.pause()?;
            events.clear();
            match epoll::wait(&self.set, spare_capacity(&mut events), pause.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                match event.data.u64() {
                    STOP => return Ok(()),
                    TIMER => self.acknowledge_timer(),
                    token => self.read(token)?,
                }
            }
            self.pass_on();
        }
    }

    /// How long epoll may wait: not at all, or until the timer, which is set here.
    fn pause(&mut self) -> io::Result<Option<Timespec>> {
        let next = self.shared.lock().next_time();
        let now = self.shared.now();
        if next.is_some_and(|next| next <= now + self.spin) {
            return Ok(Some(Timespec::default()));
        }
        let wake = next.map(|next| next - self.spin);
        if wake != self.armed {
            // A zero takes the timer back.
            let wait = wake.map_or(Duration::ZERO, |wake| wake - now);
            let spec = Itimerspec {
                it_interval: Timespec::default(),
                it_value: Timespec {
                    tv_sec: wait.as_secs() as _,
                    tv_nsec: wait.subsec_nanos().into(),
                },
            };
            rustix::time::timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &spec)?;
            self.armed = wake;
        }
        Ok(None)
    }

    fn acknowledge_timer(&mut self) {
        self.armed = None;
        // Only to make it unreadable; a timer set anew in between has nothing to read, which is as good.
        let _ = rustix::io::read(&self.timer, &mut [0u8; 8]);
    }

    fn read(&mut self, token: u64) -> io::Result<()> {
        let mut state = self.shared.lock();
        for _ in 0..BUDGET {
            let now = self.shared.now();
            match self
                .ends
                .receive(token, &mut self.buffer, now, self.set.as_fd())?
            {
                Received::Packet(direction, tag, length) => {
                    let bytes = self.buffer[..length].to_vec();
                    let now = self.shared.now();
                    if state.filters[direction as usize].admits(now, &bytes) {
                        state.path(direction).handle(now, Packet { tag, bytes });
                    } else {
                        state.filtered += 1;
                    }
                }
                Received::TurnedAway => state.turned_away += 1,
                Received::Empty => break,
            }
        }
        Ok(())
    }

    /// Sends what is due by now, but no endless stream of what becomes due meanwhile.
    fn pass_on(&mut self) {
        let mut state = self.shared.lock();
        let now = self.shared.now();
        for direction in [Direction::Up, Direction::Down] {
            while let Some(arrival) = state.path(direction).poll(now) {
                let packet = arrival.packet;
                if !self.ends.send(direction, packet.tag, &packet.bytes) {
                    state.refused += 1;
                }
                let late = self.shared.now().saturating_sub(arrival.due);
                state.lateness.record(late);
            }
        }
    }
}

/// Adds a source to an epoll set.
pub(crate) fn watch(set: BorrowedFd<'_>, source: BorrowedFd<'_>, token: u64) -> io::Result<()> {
    let data = epoll::EventData::new_u64(token);
    Ok(epoll::add(set, source, data, epoll::EventFlags::IN)?)
}

//! A bad network for datagrams: a UDP forwarder that delays every datagram and loses some, by a seed.
//!
//! Each address that sends to it gets a socket of its own towards the target, as behind a NAT; [`LossyPath::rebind`] gives all of them new
//! ones, as when a client changes its network.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use testkit::Random;

/// What the path does.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// Each way.
    pub delay: Duration,
    /// Of a thousand datagrams, how many are lost.
    pub loss_per_mille: u64,
    /// Which ones.
    pub seed: u64,
}

/// A running forwarder; dropping it ends it.
#[derive(Debug)]
pub struct LossyPath {
    shared: Arc<Shared>,
    address: SocketAddr,
}

#[derive(Debug)]
struct Shared {
    path: Path,
    target: SocketAddr,
    front: UdpSocket,
    /// Towards the target, by who sends.
    outer: Mutex<HashMap<SocketAddr, Arc<UdpSocket>>>,
    line: Mutex<Line>,
    news: Condvar,
    stop: AtomicBool,
    blocked: AtomicBool,
}

#[derive(Debug)]
struct Line {
    random: Random,
    count: u64,
    waiting: BinaryHeap<Reverse<Waiting>>,
}

/// When it goes, its number, and what.
#[derive(Debug)]
struct Waiting(Instant, u64, Arc<UdpSocket>, SocketAddr, Vec<u8>);

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.1 == other.1
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

impl LossyPath {
    /// A path to `target`.
    ///
    /// # Panics
    /// When there is no port.
    #[must_use]
    pub fn to(target: SocketAddr, path: Path) -> Self {
        let front = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let address = front.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            path,
            target,
            front,
            outer: Mutex::default(),
            line: Mutex::new(Line {
                random: Random::new(path.seed),
                count: 0,
                waiting: BinaryHeap::new(),
            }),
            news: Condvar::new(),
            stop: AtomicBool::new(false),
            blocked: AtomicBool::new(false),
        });
        let receiving = Arc::clone(&shared);
        thread::spawn(move || receiving.receive());
        let sending = Arc::clone(&shared);
        thread::spawn(move || sending.send());
        Self { shared, address }
    }

    /// Where to send to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Everybody comes from another port from now on.
    pub fn rebind(&self) {
        lock(&self.shared.outer).clear();
    }
}

impl LossyPath {
    /// Nothing passes any more, or everything as before.
    pub fn block(&self, blocked: bool) {
        self.shared.blocked.store(blocked, Relaxed);
    }
}

impl Drop for LossyPath {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        self.shared.news.notify_all();
    }
}

impl Shared {
    /// From those who send, until the end.
    fn receive(self: Arc<Self>) {
        let mut buffer = [0; 2048];
        let _ = self.front.set_read_timeout(Some(TICK));
        while !self.stop.load(Relaxed) {
            let Ok((length, from)) = self.front.recv_from(&mut buffer) else {
                continue;
            };
            let socket = self.outer_of(from);
            self.launch(socket, self.target, &buffer[..length]);
        }
    }

    fn outer_of(self: &Arc<Self>, from: SocketAddr) -> Arc<UdpSocket> {
        let mut outer = lock(&self.outer);
        let socket = outer.entry(from).or_insert_with(|| {
            let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").expect("a port"));
            let (shared, back) = (Arc::clone(self), Arc::clone(&socket));
            thread::spawn(move || shared.receive_back(&back, from));
            socket
        });
        Arc::clone(socket)
    }

    /// Answers for `to`, as long as its socket is in use.
    fn receive_back(self: Arc<Self>, socket: &Arc<UdpSocket>, to: SocketAddr) {
        let mut buffer = [0; 2048];
        let _ = socket.set_read_timeout(Some(TICK));
        let front = Arc::new(self.front.try_clone().expect("a socket"));
        let in_use = || {
            lock(&self.outer)
                .get(&to)
                .is_some_and(|now| Arc::ptr_eq(now, socket))
        };
        while !self.stop.load(Relaxed) && in_use() {
            if let Ok(length) = socket.recv(&mut buffer) {
                self.launch(Arc::clone(&front), to, &buffer[..length]);
            }
        }
    }

    fn launch(&self, socket: Arc<UdpSocket>, to: SocketAddr, datagram: &[u8]) {
        if self.blocked.load(Relaxed) {
            return;
        }
        let mut line = lock(&self.line);
        if line.random.number() % 1000 < self.path.loss_per_mille
            || line.waiting.len() >= MOST_WAITING
        {
            return;
        }
        line.count += 1;
        let waiting = Waiting(
            Instant::now() + self.path.delay,
            line.count,
            socket,
            to,
            datagram.to_vec(),
        );
        line.waiting.push(Reverse(waiting));
        drop(line);
        self.news.notify_one();
    }

    fn send(&self) {
        let mut line = lock(&self.line);
        while !self.stop.load(Relaxed) {
            let now = Instant::now();
            let wait = match line.waiting.peek() {
                Some(Reverse(next)) if next.0 <= now => {
                    if let Some(Reverse(Waiting(_, _, socket, to, datagram))) = line.waiting.pop() {
                        drop(line);
                        let _ = socket.send_to(&datagram, to);
                        line = lock(&self.line);
                    }
                    continue;
                }
                Some(Reverse(next)) => next.0 - now,
                None => TICK,
            };
            line = self
                .news
                .wait_timeout(line, wait.min(TICK))
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const TICK: Duration = Duration::from_millis(100);
const MOST_WAITING: usize = 20_000;

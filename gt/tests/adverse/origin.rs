//! The services of these tests: an HTTP origin that can stop in the middle of an answer until the test lets it go on, and a TCP service
//! that does what the first line says.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use e2e::{PATIENCE, pattern::Pattern};

/// A service on a free loopback port, for as long as the test process lives; a thread for each connection.
pub(crate) struct Origin {
    address: SocketAddr,
    gate: Arc<Gate>,
}

/// Holds answers back while it is shut.
#[derive(Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
    /// Bytes of patterns that the kernel has taken.
    sent: AtomicU64,
}

#[derive(Default)]
struct State {
    open: bool,
    waiting: usize,
}

impl Origin {
    /// HTTP/1.1 with keep-alive. `GET /bytes/N/SEED` answers with N bytes of the pattern; `/gated/N/SEED` with the same, but waits
    /// after a part for [`Origin::open_gate`]; `/until-close/N/SEED` as gated, without a length; `/drip/MS` sends a byte every MS
    /// milliseconds until the visitor goes; anything else with `hello`.
    pub(crate) fn http() -> Self {
        Self::start(http)
    }

    /// TCP. `echo` echoes; `gated N SEED` and `drip MS` as above.
    pub(crate) fn tcp() -> Self {
        Self::start(tcp)
    }

    fn start(serve: fn(TcpStream, &Gate) -> io::Result<()>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("bound");
        let gate = Arc::<Gate>::default();
        let shared = Arc::clone(&gate);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let gate = Arc::clone(&shared);
                // A visitor that goes away is part of these tests.
                thread::spawn(move || serve(stream, &gate));
            }
        });
        Self { address, gate }
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Lets the gated answers go on, those that wait and those that come.
    pub(crate) fn open_gate(&self) {
        self.gate.lock().open = true;
        self.gate.changed.notify_all();
    }

    /// Bytes of `/bytes` and the like that have been sent so far.
    pub(crate) fn sent(&self) -> u64 {
        self.gate.sent.load(Relaxed)
    }

    /// Waits until so many answers stand at the gate.
    pub(crate) fn wait_gated(&self, answers: usize) {
        let waiting = self
            .gate
            .changed
            .wait_timeout_while(self.gate.lock(), PATIENCE, |state| state.waiting < answers);
        let (state, timeout) = waiting.unwrap_or_else(PoisonError::into_inner);
        drop(state);
        assert!(
            !timeout.timed_out(),
            "{answers} answers did not come to the gate"
        );
    }
}

impl Gate {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pass(&self) {
        let mut state = self.lock();
        state.waiting += 1;
        self.changed.notify_all();
        let mut state = self
            .changed
            .wait_while(state, |state| !state.open)
            .unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
    }
}

fn http(stream: TcpStream, gate: &Gate) -> io::Result<()> {
    let mut from = BufReader::new(stream.try_clone()?);
    let mut to = &stream;
    loop {
        let Some(path) = request(&mut from)? else {
            return Ok(());
        };
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        match parts.as_slice() {
            [kind @ ("bytes" | "gated" | "until-close"), length, seed] => {
                let (length, seed) = (number(length), number(seed));
                if *kind == "until-close" {
                    to.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")?;
                } else {
                    write!(to, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n")?;
                }
                let mut pattern = Pattern::new(seed);
                let first = if *kind == "bytes" {
                    length
                } else {
                    before_gate(length)
                };
                pattern.write_to(Counted(to, &gate.sent), first)?;
                if first < length {
                    gate.pass();
                    pattern.write_to(Counted(to, &gate.sent), length - first)?;
                }
                if *kind == "until-close" {
                    return stream.shutdown(Shutdown::Write);
                }
            }
            ["drip", pause] => {
                to.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")?;
                return drip(to, number(pause));
            }
            _ => to.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")?,
        }
    }
}

/// Counts what the kernel takes.
struct Counted<'a>(&'a TcpStream, &'a AtomicU64);

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.0.write(bytes)?;
        self.1.fetch_add(n as u64, Relaxed);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// The path of the next request, if there is one.
fn request(from: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut path = None;
    loop {
        let mut line = String::new();
        if from.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        match line.trim_end() {
            "" => return Ok(path),
            line => {
                path = path.or_else(|| line.split(' ').nth(1).map(str::to_owned));
            }
        }
    }
}

fn tcp(stream: TcpStream, gate: &Gate) -> io::Result<()> {
    let mut from = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    from.read_line(&mut line)?;
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        ["gated", length, seed] => {
            let (length, mut pattern) = (number(length), Pattern::new(number(seed)));
            pattern.write_to(&stream, before_gate(length))?;
            gate.pass();
            pattern.write_to(&stream, length - before_gate(length))?;
        }
        ["drip", pause] => return drip(&stream, number(pause)),
        _ => {
            let mut buffer = [0; 4096];
            loop {
                match from.read(&mut buffer)? {
                    0 => break,
                    n => (&stream).write_all(&buffer[..n])?,
                }
            }
        }
    }
    stream.shutdown(Shutdown::Write)
}

/// The pause is the service's own slowness, not a wait for something.
fn drip(mut to: impl Write, milliseconds: u64) -> io::Result<()> {
    loop {
        to.write_all(b".")?;
        thread::sleep(Duration::from_millis(milliseconds));
    }
}

/// What comes before the gate: little enough to be on its way although the visitor does not read yet.
fn before_gate(length: u64) -> u64 {
    (length / 2).min(256 << 10)
}

fn number(text: &str) -> u64 {
    text.parse().expect("a number in a test's own request")
}

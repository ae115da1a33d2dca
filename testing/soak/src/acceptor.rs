//! A listener whose connections can all be reset, and that can stop and start again at the same address.
//!
//! Every connection runs in a thread of its own with a [`Guarded`] stream, whose waits end soon after a kill. A killed connection
//! is closed with a zero linger time, so that its peer sees a reset and not an orderly end.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// What is done with a connection. It returns when the connection is over.
pub type Handler = dyn Fn(Guarded) + Send + Sync;

/// A listener with its connections. Dropping it stops listening and resets them.
pub struct Acceptor {
    at: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// One end of a connection that a kill can reach.
#[derive(Debug)]
pub struct Guarded {
    stream: TcpStream,
    kill: Kill,
}

/// Tells a connection that it is to end: by its acceptor's reset, or by the other half of a pair.
#[derive(Clone, Debug)]
struct Kill {
    generation: Arc<AtomicU64>,
    born: u64,
    dead: Arc<AtomicBool>,
}

struct Shared {
    stopping: AtomicBool,
    generation: Arc<AtomicU64>,
    live: Mutex<Vec<u64>>,
    changed: Condvar,
    handler: Box<Handler>,
}

impl Acceptor {
    /// Listens at `at` (port 0 takes a free one).
    ///
    /// # Errors
    /// When the address cannot be had.
    pub fn open(at: SocketAddr, handler: impl Fn(Guarded) + Send + Sync + 'static) -> Result<Self> {
        let shared = Arc::new(Shared {
            stopping: AtomicBool::new(false),
            generation: Arc::default(),
            live: Mutex::default(),
            changed: Condvar::new(),
            handler: Box::new(handler),
        });
        let mut acceptor = Self {
            at,
            shared,
            thread: None,
        };
        acceptor.reopen()?;
        Ok(acceptor)
    }

    /// The address.
    pub fn at(&self) -> SocketAddr {
        self.at
    }

    /// Stops listening; connections stay.
    pub fn close(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        self.shared.stopping.store(true, Ordering::SeqCst);
        // accept() is woken by a connection.
        let _ = TcpStream::connect_timeout(&self.at, SLICE);
        let _ = thread.join();
    }

    /// Listens again at the same address.
    ///
    /// # Errors
    /// When somebody else has taken it.
    pub fn reopen(&mut self) -> Result<()> {
        if self.thread.is_some() {
            return Ok(());
        }
        let listener =
            TcpListener::bind(self.at).with_context(|| format!("listen at {}", self.at))?;
        self.at = listener.local_addr()?;
        self.shared.stopping.store(false, Ordering::SeqCst);
        let shared = self.shared.clone();
        self.thread = Some(std::thread::spawn(move || accept(&listener, &shared)));
        Ok(())
    }

    /// Resets all connections that are open now and waits until they are gone; gives their number.
    ///
    /// # Errors
    /// When one does not end in time: its handler hangs.
    pub fn reset(&self) -> Result<usize> {
        let killed = self.shared.generation.fetch_add(1, Ordering::SeqCst);
        let live = self.shared.live();
        let count = live.iter().filter(|&&born| born <= killed).count();
        let still = |live: &mut Vec<u64>| live.iter().any(|&born| born <= killed);
        let waited = self
            .shared
            .changed
            .wait_timeout_while(live, RESET_TIME, still);
        let (_live, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        ensure!(
            !waited.timed_out(),
            "a connection at {} outlives its reset",
            self.at
        );
        Ok(count)
    }

    /// Number of open connections.
    pub fn live(&self) -> usize {
        self.shared.live().len()
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.close();
        let _ = self.reset();
    }
}

impl Guarded {
    /// Connects elsewhere for the other half of a pair: both end together.
    ///
    /// # Errors
    /// As `connect(2)` does.
    pub fn dial(&self, to: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&to, RESET_TIME)?;
        prepare(&stream)?;
        Ok(Self {
            stream,
            kill: self.kill.clone(),
        })
    }

    /// A second handle for the other direction.
    ///
    /// # Errors
    /// When there is no descriptor left.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            stream: self.stream.try_clone()?,
            kill: self.kill.clone(),
        })
    }

    /// Ends the sending direction.
    pub fn finish(&self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Has the connection, and its pair, end with a reset when its handles are dropped.
    pub fn abort(&self) {
        self.kill.dead.store(true, Ordering::SeqCst);
        let _ = socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
    }

    /// Whether a kill or an abort has hit it.
    pub fn is_killed(&self) -> bool {
        self.kill.dead.load(Ordering::SeqCst)
            || self.kill.generation.load(Ordering::SeqCst) != self.kill.born
    }

    fn alive(&self) -> io::Result<()> {
        if self.is_killed() {
            self.abort();
            return Err(ErrorKind::ConnectionAborted.into());
        }
        Ok(())
    }
}

impl Read for Guarded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            self.alive()?;
            match self.stream.read(buffer) {
                Err(error) if is_timeout(&error) => {}
                other => return other,
            }
        }
    }
}

impl Write for Guarded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            self.alive()?;
            match self.stream.write(bytes) {
                Err(error) if is_timeout(&error) => {}
                other => return other,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Shared {
    fn live(&self) -> MutexGuard<'_, Vec<u64>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept() {
        if shared.stopping.load(Ordering::SeqCst) {
            break;
        }
        if prepare(&stream).is_err() {
            continue;
        }
        let mut live = shared.live();
        let born = shared.generation.load(Ordering::SeqCst);
        live.push(born);
        drop(live);
        let kill = Kill {
            generation: shared.generation.clone(),
            born,
            dead: Arc::default(),
        };
        let shared = shared.clone();
        std::thread::spawn(move || {
            (shared.handler)(Guarded { stream, kill });
            let mut live = shared.live();
            if let Some(at) = live.iter().position(|&other| other == born) {
                live.swap_remove(at);
            }
            shared.changed.notify_all();
        });
    }
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(SLICE))?;
    stream.set_write_timeout(Some(SLICE))
}

/// Whether a wait was only over its time slice.
pub fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}

/// How long a wait may take no notice of a kill.
const SLICE: Duration = Duration::from_millis(100);

/// A handler that has not ended by then hangs.
const RESET_TIME: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    fn echo() -> Acceptor {
        Acceptor::open("127.0.0.1:0".parse().unwrap(), |mut stream| {
            let mut buffer = [0; 64];
            while let Ok(n @ 1..) = stream.read(&mut buffer) {
                if stream.write_all(&buffer[..n]).is_err() {
                    break;
                }
            }
        })
        .unwrap()
    }

    #[test]
    fn a_reset_is_seen_as_a_reset() {
        let acceptor = echo();
        let mut stream = TcpStream::connect(acceptor.at()).unwrap();
        stream.write_all(b"x").unwrap();
        stream.read_exact(&mut [0]).unwrap();
        assert_eq!(acceptor.reset().unwrap(), 1);
        assert_eq!(
            stream.read(&mut [0]).unwrap_err().kind(),
            ErrorKind::ConnectionReset
        );
        assert_eq!(acceptor.live(), 0);
    }

    #[test]
    fn a_closed_acceptor_refuses_and_comes_back_at_the_same_address() {
        let mut acceptor = echo();
        let mut old = TcpStream::connect(acceptor.at()).unwrap();
        old.write_all(b"x").unwrap();
        old.read_exact(&mut [0]).unwrap();
        acceptor.close();
        assert_eq!(
            TcpStream::connect(acceptor.at()).unwrap_err().kind(),
            ErrorKind::ConnectionRefused
        );
        old.write_all(b"y").unwrap();
        old.read_exact(&mut [0])
            .expect("connections outlive the listener");
        acceptor.reopen().unwrap();
        TcpStream::connect(acceptor.at()).unwrap();
    }
}

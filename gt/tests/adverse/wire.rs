//! A stretch of network between a client and its server that can be cut, frozen, and turned to another server. Passes bytes on
//! untouched, and counts connections and bytes.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

/// Listens until the test process ends; what it carries ends with [`Wire::cut`] or with either end.
pub(crate) struct Wire {
    address: SocketAddr,
    inner: Arc<Inner>,
}

struct Inner {
    target: Mutex<SocketAddr>,
    attempts: AtomicUsize,
    connections: Mutex<Vec<Connection>>,
}

/// One connection that the wire carries or has carried.
#[derive(Clone)]
struct Connection {
    near: Arc<TcpStream>,
    far: Arc<TcpStream>,
    /// Bytes from the near end, which connected, to the far one.
    bytes: Arc<AtomicU64>,
}

impl Wire {
    /// A wire to `target`.
    pub(crate) fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("bound");
        let inner = Arc::new(Inner {
            target: Mutex::new(target),
            attempts: AtomicUsize::new(0),
            connections: Mutex::default(),
        });
        let shared = Arc::clone(&inner);
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                shared.attempts.fetch_add(1, SeqCst);
                let target = *lock(&shared.target);
                // Without its far end the near one is closed, as by a host that is down.
                if let Ok(far) = TcpStream::connect(target) {
                    let connection = Connection {
                        near: Arc::new(near),
                        far: Arc::new(far),
                        bytes: Arc::default(),
                    };
                    lock(&shared.connections).push(connection.clone());
                    connection.carry();
                }
            }
        });
        Self { address, inner }
    }

    /// Where to connect to.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections made to the wire so far, whether it could carry them or not.
    pub(crate) fn attempts(&self) -> usize {
        self.inner.attempts.load(SeqCst)
    }

    /// What connects from now on goes there.
    pub(crate) fn turn_to(&self, target: SocketAddr) {
        *lock(&self.inner.target) = target;
    }

    /// Ends all connections.
    pub(crate) fn cut(&self) {
        lock(&self.inner.connections)
            .iter()
            .for_each(Connection::cut);
    }

    /// Ends the connection that was made as number `index`.
    pub(crate) fn cut_one(&self, index: usize) {
        lock(&self.inner.connections)[index].cut();
    }

    /// Bytes from the near end to the far end, by connection in the order they were made.
    pub(crate) fn bytes(&self) -> Vec<u64> {
        lock(&self.inner.connections)
            .iter()
            .map(|connection| connection.bytes.load(SeqCst))
            .collect()
    }
}

impl Connection {
    fn carry(self) {
        let back = self.clone();
        thread::spawn(move || copy(&self.near, &self.far, &self.bytes));
        thread::spawn(move || copy(&back.far, &back.near, &AtomicU64::new(0)));
    }

    fn cut(&self) {
        let _ = self.near.shutdown(Shutdown::Both);
        let _ = self.far.shutdown(Shutdown::Both);
    }
}

fn copy(mut from: &TcpStream, mut to: &TcpStream, bytes: &AtomicU64) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(n @ 1..) = from.read(&mut buffer) {
        bytes.fetch_add(n as u64, SeqCst);
        if to.write_all(&buffer[..n]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! A TCP forwarder between a client and the server, whose connections can be cut with a reset or frozen for a while.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;

use crate::acceptor::{Acceptor, Guarded};

/// A running forwarder.
pub struct Forwarder {
    acceptor: Acceptor,
    gate: Arc<Gate>,
}

/// Holds bytes back while it is shut.
#[derive(Default)]
struct Gate {
    shut: Mutex<bool>,
    changed: Condvar,
}

impl Forwarder {
    /// Forwards connections made to `at` (port 0 takes a free one) to `target`.
    ///
    /// # Errors
    /// When the address cannot be had.
    pub fn open(at: SocketAddr, target: SocketAddr) -> Result<Self> {
        let gate = Arc::<Gate>::default();
        let passage = gate.clone();
        let acceptor = Acceptor::open(at, move |near| forward(near, target, &passage))?;
        Ok(Self { acceptor, gate })
    }

    /// Where it listens.
    pub fn at(&self) -> SocketAddr {
        self.acceptor.at()
    }

    /// Resets all connections on both sides and waits until they are gone; gives their number.
    ///
    /// # Errors
    /// When one does not end in time.
    pub fn cut(&self) -> Result<usize> {
        self.acceptor.reset()
    }

    /// Passes nothing on until [`thaw`](Self::thaw); connections stay open.
    pub fn freeze(&self) {
        self.gate.set(true);
    }

    /// Passes on what was held back.
    pub fn thaw(&self) {
        self.gate.set(false);
    }

    /// Number of connections.
    pub fn live(&self) -> usize {
        self.acceptor.live()
    }
}

impl Gate {
    fn set(&self, shut: bool) {
        *self.shut.lock().unwrap_or_else(PoisonError::into_inner) = shut;
        self.changed.notify_all();
    }

    fn pass(&self, stream: &Guarded) {
        let mut shut = self.shut.lock().unwrap_or_else(PoisonError::into_inner);
        while *shut && !stream.is_killed() {
            shut = self
                .changed
                .wait_timeout(shut, Duration::from_millis(100))
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}

fn forward(near: Guarded, target: SocketAddr, gate: &Arc<Gate>) {
    let Ok(far) = near.dial(target) else {
        near.abort();
        return;
    };
    let (Ok(near_too), Ok(far_too)) = (near.try_clone(), far.try_clone()) else {
        return;
    };
    let back_gate = gate.clone();
    let back = std::thread::spawn(move || pump(far_too, near_too, &back_gate));
    pump(near, far, gate);
    let _ = back.join();
}

fn pump(mut from: Guarded, mut to: Guarded, gate: &Gate) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let got = from.read(&mut buffer);
        gate.pass(&from);
        match got {
            Ok(0) => return to.finish(),
            Ok(n) if to.write_all(&buffer[..n]).is_ok() => {}
            _ => {
                // A reset on one side is a reset on the other.
                from.abort();
                return to.abort();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::net::{Shutdown, TcpStream};
    use std::time::Instant;

    use super::*;

    fn behind() -> (Acceptor, Forwarder) {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let target = Acceptor::open(any, |mut stream| {
            let mut all = Vec::new();
            let mut byte = [0];
            while let Ok(1) = stream.read(&mut byte) {
                all.push(byte[0]);
                if byte[0] == b'!' && stream.write_all(&all).is_err() {
                    return;
                }
            }
            let _ = stream.write_all(b"end");
        })
        .unwrap();
        let forwarder = Forwarder::open(any, target.at()).unwrap();
        (target, forwarder)
    }

    #[test]
    fn half_close_passes_through() {
        let (_target, forwarder) = behind();
        let mut stream = TcpStream::connect(forwarder.at()).unwrap();
        stream.write_all(b"abc").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut all = String::new();
        stream.read_to_string(&mut all).unwrap();
        assert_eq!(all, "end");
    }

    #[test]
    fn a_cut_resets_both_sides() {
        let (target, forwarder) = behind();
        let mut stream = TcpStream::connect(forwarder.at()).unwrap();
        stream.write_all(b"!").unwrap();
        stream.read_exact(&mut [0]).unwrap();
        assert_eq!(forwarder.cut().unwrap(), 1);
        assert_eq!(
            stream.read(&mut [0]).unwrap_err().kind(),
            ErrorKind::ConnectionReset
        );
        let end = Instant::now() + Duration::from_secs(5);
        while target.live() > 0 {
            assert!(Instant::now() < end, "the far side was not cut");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_frozen_forwarder_loses_nothing() {
        let (_target, forwarder) = behind();
        let mut stream = TcpStream::connect(forwarder.at()).unwrap();
        forwarder.freeze();
        stream.write_all(b"ab!").unwrap();
        stream
            .set_read_timeout(Some(Duration::from_millis(150)))
            .unwrap();
        assert!(stream.read(&mut [0]).is_err());
        forwarder.thaw();
        stream
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        let mut back = [0; 3];
        stream.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"ab!");
    }
}

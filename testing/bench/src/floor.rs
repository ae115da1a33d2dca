//! What the kernel allows: a proxy that does nothing a proxy could leave out, to hold the others against.
//!
//! One thread, one edge-triggered event queue. A visitor's connection is married to one connection to the origin when it comes; where a request's head
//! ends, two fields are put in; answers pass unread. Per request: two receives, two sends, a share of one wait, no allocation, and the queue is
//! never told anything after the two connections were added. This is how NiubiX works, which cannot be had any more, and it stands for it.
//!
//! [`Driver::Epoll`] is this file's. The others do the same by other means: [`Driver::IoUring`] (`floor/uring.rs`) and [`Driver::Hybrid`] (`floor/hybrid.rs`),
//! with [`Tricks`] for what of io_uring they use.
//!
//! It is no proxy to use: requests are not parsed, bodies of requests are not followed, and whoever sends a head in pieces is given up.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

use anyhow::{Context, Result};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::OwnedFd;

mod hybrid;
mod tricks;
mod uring;

pub use tricks::{Driver, Receive, TaskRun, Tricks};

/// Serves until it is killed.
///
/// # Errors
/// When the address is taken, the event queue or the ring fails, or io_uring is forbidden here.
pub fn serve(at: SocketAddr, origin: SocketAddr, driver: Driver, tricks: &Tricks) -> Result<()> {
    crate::origin::raise_descriptor_limit();
    serve_on(&listen(at)?, origin, driver, tricks)
}

/// Whether this system lets processes have an io_uring: containers often do not.
#[must_use]
pub fn has_io_uring() -> bool {
    uring::ring::build(&Tricks::default()).is_ok()
}

fn serve_on(
    listener: &TcpListener,
    origin: SocketAddr,
    driver: Driver,
    tricks: &Tricks,
) -> Result<()> {
    match driver {
        Driver::Epoll => by_epoll(listener, origin, tricks.buffer.unwrap_or(BUFFER)),
        Driver::IoUring => uring::serve_on(listener, origin, tricks),
        Driver::Hybrid => hybrid::serve_on(listener, origin, tricks, true),
        Driver::Late => hybrid::serve_on(listener, origin, tricks, false),
    }
}

fn by_epoll(listener: &TcpListener, origin: SocketAddr, buffer: usize) -> Result<()> {
    let queue = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(
        &queue,
        listener,
        EventData::new_u64(LISTENER),
        EventFlags::IN,
    )?;
    let mut floor = Floor {
        queue,
        origin,
        pairs: Vec::new(),
        free: Vec::new(),
        read: vec![0; buffer.max(1024)],
        made: Vec::with_capacity(BUFFER + 256),
    };
    let mut events = vec![
        Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(0)
        };
        1024
    ];
    loop {
        let n = match epoll::wait(&floor.queue, &mut events[..], None) {
            Ok(n) => n,
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        // Those who leave free their place at the end of the turn: until then events may name it.
        let mut left = Vec::new();
        for event in &events[..n] {
            let (data, flags) = (event.data.u64(), event.flags);
            if data == LISTENER {
                floor.accept(listener);
                continue;
            }
            let at = (data >> 1) as usize;
            if floor.turn(at, data & 1 == 1, flags).is_none() && floor.close(at) {
                left.push(at);
            }
        }
        floor.free.append(&mut left);
    }
}

struct Floor {
    queue: OwnedFd,
    origin: SocketAddr,
    pairs: Vec<Option<Pair>>,
    free: Vec<usize>,
    read: Vec<u8>,
    made: Vec<u8>,
}

struct Pair {
    visitor: TcpStream,
    origin: TcpStream,
    /// The two fields.
    fields: Vec<u8>,
    /// Of an answer, what the visitor's socket refused. Nothing is read from the origin meanwhile.
    waits: Vec<u8>,
}

/// Something that ends the pair: an end of either side, or an error.
type Goes = Option<()>;

impl Floor {
    fn accept(&mut self, listener: &TcpListener) {
        // Level-triggered, one at a time: what is left is reported again.
        let Ok((visitor, peer)) = listener.accept() else {
            return;
        };
        // The origin is near, and only connections pay for this wait.
        let Ok(origin) = TcpStream::connect(self.origin) else {
            return;
        };
        let ip = peer.ip();
        let pair = Pair {
            visitor,
            origin,
            fields: format!("X-Forwarded-For: {ip}\r\nX-Real-IP: {ip}\r\n\r\n").into_bytes(),
            waits: Vec::new(),
        };
        let at = self.free.pop().unwrap_or_else(|| {
            self.pairs.push(None);
            self.pairs.len() - 1
        });
        for (socket, side) in [(&pair.visitor, 0), (&pair.origin, 1)] {
            let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
            let data = EventData::new_u64((at as u64) << 1 | side);
            let ready = socket.set_nodelay(true).and(socket.set_nonblocking(true));
            if ready.is_err() || epoll::add(&self.queue, socket, data, flags).is_err() {
                self.free.push(at);
                return;
            }
        }
        self.pairs[at] = Some(pair);
    }

    fn close(&mut self, at: usize) -> bool {
        let Some(pair) = self.pairs[at].take() else {
            return false;
        };
        let _ = pair.visitor.shutdown(Shutdown::Write);
        true
    }

    fn turn(&mut self, at: usize, from_origin: bool, flags: EventFlags) -> Goes {
        let Some(pair) = self.pairs[at].as_mut() else {
            return Some(());
        };
        if from_origin {
            if !flags.intersects(EventFlags::IN) || !pair.waits.is_empty() {
                return Some(());
            }
            // An end is reported once, perhaps together with the last bytes.
            let ends = flags.intersects(EventFlags::RDHUP | EventFlags::HUP);
            return pair.answer(&mut self.read, ends);
        }
        if !pair.waits.is_empty() && flags.intersects(EventFlags::OUT) {
            let n = sent(pair.visitor.write(&pair.waits))?;
            pair.waits.drain(..n);
            if !pair.waits.is_empty() {
                return Some(());
            }
            // What the origin has reported meanwhile was left alone.
            pair.answer(&mut self.read, true)?;
        }
        if !flags.intersects(EventFlags::IN) {
            return Some(());
        }
        pair.request(&mut self.read, &mut self.made)
    }
}

impl Pair {
    fn request(&mut self, buffer: &mut [u8], made: &mut Vec<u8>) -> Goes {
        let n = received(self.visitor.read(buffer))?;
        let Some(n) = n else { return Some(()) };
        made.clear();
        let mut rest = &buffer[..n];
        while let Some(end) = end_of_head(rest) {
            made.extend_from_slice(&rest[..end - 2]);
            made.extend_from_slice(&self.fields);
            rest = &rest[end..];
        }
        // A request in pieces, or one that the socket does not take: none of the loads here does that.
        (rest.is_empty() && sent(self.origin.write(made))? == made.len()).then_some(())
    }

    /// `all`: reads until there is nothing.
    fn answer(&mut self, buffer: &mut [u8], all: bool) -> Goes {
        loop {
            let Some(n) = received(self.origin.read(buffer))? else {
                return Some(());
            };
            let m = sent(self.visitor.write(&buffer[..n]))?;
            if m < n {
                self.waits.extend_from_slice(&buffer[m..n]);
                return Some(());
            }
            // A read that did not fill the buffer has left nothing.
            if n < buffer.len() && !all {
                return Some(());
            }
        }
    }
}

/// `None`: over. `Some(None)`: nothing there.
fn received(read: std::io::Result<usize>) -> Option<Option<usize>> {
    match read {
        Ok(0) => None,
        Ok(n) => Some(Some(n)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Some(None),
        Err(_) => None,
    }
}

fn sent(written: std::io::Result<usize>) -> Option<usize> {
    match written {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Some(0),
        written => written.ok(),
    }
}

/// Behind the empty line.
fn end_of_head(bytes: &[u8]) -> Option<usize> {
    let at = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    Some(at + 4)
}

fn listen(at: SocketAddr) -> Result<TcpListener> {
    use socket2::{Domain, Socket, Type};
    let socket = Socket::new(Domain::for_address(at), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket
        .bind(&at.into())
        .with_context(|| format!("listen on {at}"))?;
    socket.listen(4096)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

const LISTENER: u64 = u64::MAX;
const BUFFER: usize = 32 << 10;

#[cfg(test)]
mod tests;

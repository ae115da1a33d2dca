//! The floor by half measures: epoll tells, `recv` receives, and only the sends of a turn go out together, in one `io_uring_enter` at its end.
//!
//! Or, to see what of it is the order and what the ring ([`super::Driver::Late`]): in one `send` each.
//!
//! What a runtime on epoll could do without changing how it waits. A send is queued once per socket and turn, from the buffer that was received into, and done or failed
//! when the system call returns; what a socket refuses waits for epoll's word.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use anyhow::Result;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::OwnedFd;

use super::tricks::Tricks;
use super::uring::request;
use super::uring::ring::{self, Completion, Ending, Piece, ROOM, Ring, Socket};
use super::{BUFFER, LISTENER, received, sent};

/// Serves until the process ends.
///
/// # Errors
/// When the ring or the event queue cannot be had, or fails.
pub(super) fn serve_on(
    listener: &TcpListener,
    origin: SocketAddr,
    tricks: &Tricks,
    by_ring: bool,
) -> Result<()> {
    let queue = epoll::create(CreateFlags::CLOEXEC)?;
    let data = EventData::new_u64(LISTENER);
    epoll::add(&queue, listener, data, EventFlags::IN)?;
    // Nothing is offered to the kernel: all buffers are spare ones.
    let tricks = Tricks {
        direct: false,
        buffers: 2,
        buffer: Some(tricks.buffer.unwrap_or(BUFFER)),
        ..tricks.clone()
    };
    let mut uring = ring::build(&tricks)?;
    let mut floor = Floor {
        queue,
        origin,
        ring: Ring::new(&mut uring, &tricks)?,
        pairs: Vec::new(),
        free: Vec::new(),
        made: Vec::new(),
        sends: Vec::new(),
        completions: Vec::new(),
        refused: Vec::new(),
        by_ring,
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
        let mut left = Vec::new();
        for event in &events[..n] {
            let (data, flags) = (event.data.u64(), event.flags);
            if data == LISTENER {
                floor.accept(listener);
                continue;
            }
            let at = (data >> 1) as usize;
            if floor.turn(at, data & 1 == 1, flags)?.is_none() {
                // Requests that were received before the end.
                floor.flush()?;
                left.extend(floor.close(at).then_some(at));
            }
        }
        floor.flush()?;
        floor.free.append(&mut left);
    }
}

struct Floor<'r> {
    queue: OwnedFd,
    origin: SocketAddr,
    ring: Ring<'r>,
    pairs: Vec<Option<Pair>>,
    free: Vec<usize>,
    made: Vec<u8>,
    /// Queued in this turn: a pair, and whether to its origin.
    sends: Vec<(usize, bool)>,
    completions: Vec<Completion>,
    /// Sends that are not done: which, and the result.
    refused: Vec<(usize, i32)>,
    /// Whether they go out by io_uring, or one by one.
    by_ring: bool,
}

struct Pair {
    visitor: TcpStream,
    origin: TcpStream,
    fields: Vec<u8>,
    /// What goes out with the turn.
    up: VecDeque<Piece>,
    down: VecDeque<Piece>,
    /// Of answers, what the visitor's socket refused.
    waits: Vec<u8>,
    /// A request was refused, or only taken in part: none of the loads makes such.
    broken: bool,
}

type Goes = Option<()>;

impl Floor<'_> {
    fn accept(&mut self, listener: &TcpListener) {
        let Ok((visitor, peer)) = listener.accept() else {
            return;
        };
        let Ok(origin) = TcpStream::connect(self.origin) else {
            return;
        };
        let ip = peer.ip();
        let fields = format!("X-Forwarded-For: {ip}\r\nX-Real-IP: {ip}\r\n\r\n").into_bytes();
        if fields.len() > ROOM {
            return;
        }
        let pair = Pair {
            visitor,
            origin,
            fields,
            up: VecDeque::new(),
            down: VecDeque::new(),
            waits: Vec::new(),
            broken: false,
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
        for piece in pair.up.into_iter().chain(pair.down) {
            self.ring.buffers.give_back(piece.held);
        }
        let _ = pair.visitor.shutdown(Shutdown::Write);
        true
    }

    fn turn(&mut self, at: usize, from_origin: bool, flags: EventFlags) -> Result<Goes> {
        let Some(pair) = self.pairs[at].as_mut() else {
            return Ok(Some(()));
        };
        if pair.broken {
            return Ok(None);
        }
        if from_origin {
            if !flags.intersects(EventFlags::IN) || !pair.waits.is_empty() {
                return Ok(Some(()));
            }
            let ends = flags.intersects(EventFlags::RDHUP | EventFlags::HUP);
            return self.answer(at, ends);
        }
        if !pair.waits.is_empty() && flags.intersects(EventFlags::OUT) {
            let Some(n) = sent(pair.visitor.write(&pair.waits)) else {
                return Ok(None);
            };
            pair.waits.drain(..n);
            if !pair.waits.is_empty() {
                return Ok(Some(()));
            }
            if self.answer(at, true)?.is_none() {
                return Ok(None);
            }
        }
        if !flags.intersects(EventFlags::IN) {
            return Ok(Some(()));
        }
        self.request(at)
    }

    fn request(&mut self, at: usize) -> Result<Goes> {
        let (read, piece) = self.read(at, false)?;
        let Some(Some(_)) = read else {
            return Ok(read.map(|_| ()));
        };
        let (Some(pair), Some(piece)) = (self.pairs[at].as_mut(), piece) else {
            return Ok(None);
        };
        let first = pair.up.is_empty();
        let whole = request(
            piece,
            &pair.fields,
            &mut self.ring.buffers,
            &mut self.made,
            &mut pair.up,
        );
        if first {
            self.sends.push((at, true));
        }
        Ok(whole.then_some(()))
    }

    fn answer(&mut self, at: usize, all: bool) -> Result<Goes> {
        loop {
            let (read, piece) = self.read(at, true)?;
            let Some(Some(n)) = read else {
                // What was received before the end is sent before the end; it is met again when that is done.
                if read.is_none() {
                    self.flush()?;
                }
                let waits = |pair: &Pair| !pair.waits.is_empty();
                let late = self.pairs[at].as_ref().is_some_and(waits);
                return Ok(read.map(|_| ()).or(late.then_some(())));
            };
            let (Some(pair), Some(piece)) = (self.pairs[at].as_mut(), piece) else {
                return Ok(None);
            };
            if pair.down.is_empty() {
                self.sends.push((at, false));
            }
            pair.down.push_back(piece);
            if n < self.ring.buffers.offered && !all {
                return Ok(Some(()));
            }
            if pair.down.len() < TOGETHER {
                continue;
            }
            self.flush()?;
            if self.pairs[at]
                .as_ref()
                .is_none_or(|pair| !pair.waits.is_empty())
            {
                return Ok(Some(()));
            }
        }
    }

    /// As [`received`], with the bytes if there are any.
    fn read(
        &mut self,
        at: usize,
        from_origin: bool,
    ) -> Result<(Option<Option<usize>>, Option<Piece>)> {
        let mut held = self.ring.buffers.spare();
        if held.is_none() {
            self.flush()?;
            held = self.ring.buffers.spare();
        }
        let (Some(mut held), Some(pair)) = (held, self.pairs[at].as_mut()) else {
            return Ok((None, None));
        };
        let offered = self.ring.buffers.offered;
        let buffer = &mut self.ring.buffers.whole_mut(&mut held)[..offered];
        let read = received(match from_origin {
            true => pair.origin.read(buffer),
            false => pair.visitor.read(buffer),
        });
        if let Some(Some(to)) = read {
            return Ok((read, Some(Piece { held, from: 0, to })));
        }
        self.ring.buffers.give_back(held);
        Ok((read, None))
    }

    /// Sends what was queued.
    fn flush(&mut self) -> Result<()> {
        if self.sends.is_empty() {
            return Ok(());
        }
        self.refused.clear();
        for (number, (at, to_origin)) in self.sends.iter().enumerate() {
            let Some(pair) = &self.pairs[*at] else {
                continue;
            };
            let (mut socket, queue) = match to_origin {
                true => (&pair.origin, &pair.up),
                false => (&pair.visitor, &pair.down),
            };
            if self.by_ring {
                let socket = Socket::Plain(socket.as_raw_fd());
                self.ring
                    .send(socket, queue.iter(), Ending::AtOnce, number as u64);
                continue;
            }
            for piece in queue {
                let bytes = self.ring.buffers.bytes(piece);
                let written = sent(socket.write(bytes));
                if written != Some(bytes.len()) {
                    let before: usize = queue
                        .iter()
                        .take_while(|p| !std::ptr::eq(*p, piece))
                        .map(|p| p.to - p.from)
                        .sum();
                    let done = written.map_or(-libc::EPIPE, |n| (before + n) as i32);
                    self.refused.push((number, done));
                    break;
                }
            }
        }
        if self.by_ring {
            self.ring.turn(false, &mut self.completions)?;
            let failed = self.completions.drain(..);
            self.refused
                .extend(failed.map(|failed| (failed.data as usize, failed.result)));
        }
        for (number, result) in self.refused.drain(..) {
            let (at, to_origin) = self.sends[number];
            let Some(pair) = self.pairs[at].as_mut() else {
                continue;
            };
            let done = match result {
                n if n >= 0 => n as usize,
                n if n == -libc::EAGAIN => 0,
                _ => {
                    pair.broken = true;
                    continue;
                }
            };
            pair.broken |= to_origin;
            if !to_origin {
                for piece in &pair.down {
                    pair.waits.extend_from_slice(self.ring.buffers.bytes(piece));
                }
                pair.waits.drain(..done);
            }
        }
        for (at, to_origin) in self.sends.drain(..) {
            let Some(pair) = self.pairs[at].as_mut() else {
                continue;
            };
            let queue = match to_origin {
                true => &mut pair.up,
                false => &mut pair.down,
            };
            for piece in queue.drain(..) {
                self.ring.buffers.give_back(piece.held);
            }
        }
        Ok(())
    }
}

/// Buffers for one socket in one turn, before they are sent at once.
const TOGETHER: usize = 4;

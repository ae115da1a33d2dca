//! The floor by io_uring: the same relay as by epoll, with what a modern kernel offers, each as a switch ([`Tricks`]).
//!
//! One system call per turn submits what the last turn queued and waits. A visitor's connection is married to one to the origin: pair `n` has the places
//! `2n` and `2n + 1` of the ring's table. Receives are armed once (multishot) and fill buffers that the kernel picks; those are sent from, without a copy,
//! and given back when the send is done. Where a request's head ends, two fields are written behind it in the same buffer.
//!
//! A send that finds room, as nearly all do, makes no completion: `MSG_DONTWAIT` makes it be done or failed by the time the system call returns, and
//! `MSG_WAITALL` makes a short one a failure; only what failed is sent again by a request that waits. A pair's place is used anew when all of its
//! requests have completed.
//!
//! Not here: `SQPOLL` (a thread that polls would burn another core), zero-copy sends (bodies are small; they pay from some 10 KiB), shutdowns (which io_uring gives to a
//! thread of its own).

#[allow(
    unsafe_code,
    reason = "the kernel reads and writes memory behind the compiler's back"
)]
pub(super) mod ring;

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, IntoRawFd, RawFd};

use anyhow::Result;
use socket2::SockAddr;

use self::ring::{ACCEPTS, Buffers, Completion, Ending, Piece, ROOM, Ring, SLOTS, Socket};
use super::end_of_head;
use super::tricks::{Receive, Tricks};

/// Serves until the process ends.
///
/// # Errors
/// When the ring cannot be had, or fails.
pub(super) fn serve_on(listener: &TcpListener, origin: SocketAddr, tricks: &Tricks) -> Result<()> {
    // Those who are accepted inherit it.
    socket2::SockRef::from(listener).set_tcp_nodelay(true)?;
    let mut uring = ring::build(tricks)?;
    let mut floor = Floor {
        ring: Ring::new(&mut uring, tricks)?,
        tricks: tricks.clone(),
        listener: listener.as_raw_fd(),
        origin,
        origin_address: origin.into(),
        pairs: Vec::new(),
        free: Vec::new(),
        accepting: [0; ACCEPTS],
        idle: Vec::new(),
        queued: Vec::new(),
        at_once: Vec::new(),
        starved: Vec::new(),
        pieces: Vec::new(),
        made: Vec::new(),
    };
    for number in 0..ACCEPTS {
        floor.accept(number);
    }
    let mut completions = Vec::new();
    loop {
        let wait = !floor.goes_on();
        floor.ring.turn(wait, &mut completions)?;
        floor.sent_at_once(&completions);
        for completion in completions.drain(..) {
            floor.completed(&completion);
        }
        floor.send_queued();
        floor.feed();
    }
}

struct Floor<'r> {
    ring: Ring<'r>,
    tricks: Tricks,
    listener: RawFd,
    origin: SocketAddr,
    origin_address: SockAddr,
    pairs: Vec<Pair>,
    free: Vec<u32>,
    /// By accept: the pair that it is for.
    accepting: [u32; ACCEPTS],
    /// Accepts that found no place.
    idle: Vec<usize>,
    /// Sockets for which this turn has something.
    queued: Vec<(u32, Side)>,
    /// Sends of this turn that are done or failed when it is submitted.
    at_once: Vec<(u32, Side)>,
    /// Receives that found no buffer.
    starved: Vec<(u32, Side)>,
    pieces: Vec<Piece>,
    made: Vec<u8>,
}

struct Pair {
    visitor: Half,
    origin: Half,
    fields: Vec<u8>,
    /// Requests that have not completed.
    pending: u32,
    phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Connecting,
    Open,
    /// The origin has ended: what is queued for the visitor still goes.
    Ending,
    /// Nothing is sent or received any more; requests are still to complete.
    Closing,
    Free,
}

/// One socket of a pair, and what waits to be sent to it.
struct Half {
    socket: Socket,
    receives: bool,
    /// Nothing is received while the other side does not take what was.
    held: bool,
    queue: VecDeque<Piece>,
    /// Something is to be sent at the end of this turn.
    queued: bool,
    /// How many pieces of the queue, and bytes, are being sent.
    sending: (usize, usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Visitor,
    Origin,
}

impl Floor<'_> {
    fn accept(&mut self, number: usize) {
        let Some(at) = self.place() else {
            self.idle.push(number);
            return;
        };
        self.accepting[number] = at;
        let to = self.pairs[at as usize].visitor.socket;
        self.ring
            .accept(self.listener, to, number, data(ACCEPT, number as u32));
    }

    fn place(&mut self) -> Option<u32> {
        if let Some(at) = self.free.pop() {
            return Some(at);
        }
        let at = self.pairs.len() as u32;
        if 2 * at + 1 >= SLOTS {
            return None;
        }
        let half = |slot| Half {
            socket: match self.tricks.direct {
                true => Socket::Direct(slot),
                false => Socket::Plain(-1),
            },
            receives: false,
            held: false,
            queue: VecDeque::new(),
            queued: false,
            sending: (0, 0),
        };
        self.pairs.push(Pair {
            visitor: half(2 * at),
            origin: half(2 * at + 1),
            fields: Vec::new(),
            pending: 0,
            phase: Phase::Free,
        });
        Some(at)
    }

    /// Whether something is to be done when the sends of this turn are, of which no completion will tell.
    fn goes_on(&self) -> bool {
        let more = |(at, side): &(u32, Side)| {
            let pair = &self.pairs[*at as usize];
            let (to, from) = match side {
                Side::Visitor => (&pair.visitor, &pair.origin),
                Side::Origin => (&pair.origin, &pair.visitor),
            };
            to.queue.len() > to.sending.0 || from.held || pair.phase != Phase::Open
        };
        !self.at_once.is_empty() && (!self.starved.is_empty() || self.at_once.iter().any(more))
    }

    /// Those sends of the turn just submitted of which no completion tells are done.
    fn sent_at_once(&mut self, completions: &[Completion]) {
        let mut sends = std::mem::take(&mut self.at_once);
        let kind = |completion: &Completion| completion.data >> 32;
        if !sends.is_empty() {
            for failed in completions.iter().filter(|c| kind(c) == SEND_AT_ONCE) {
                let (at, side) = whose(failed);
                sends.retain(|send| *send != (at, side));
            }
        }
        for (at, side) in sends.drain(..) {
            let bytes = self.pairs[at as usize].half(side).sending.1;
            self.sent(at, side, bytes);
            self.leave(at);
        }
        // Sends that this queued are of the next turn.
        if self.at_once.is_empty() {
            self.at_once = sends;
        }
    }

    fn completed(&mut self, completion: &Completion) {
        let (at, side) = whose(completion);
        match completion.data >> 32 {
            ACCEPT => return self.accepted(at as usize, completion.result),
            CONNECT => {
                self.pairs[at as usize].pending -= 1;
                self.connected(at, completion.result);
            }
            RECEIVE => self.received(at, side, completion),
            SEND => {
                self.pairs[at as usize].pending -= 1;
                match usize::try_from(completion.result) {
                    Ok(bytes) if bytes > 0 => self.sent(at, side, bytes),
                    _ => self.close(at),
                }
            }
            SEND_AT_ONCE if self.pairs[at as usize].phase == Phase::Closing => {}
            SEND_AT_ONCE => match completion.result {
                result if result > 0 => self.sent(at, side, result as usize),
                result if result == -libc::EAGAIN => self.send(at, side, Ending::Waits),
                _ => self.close(at),
            },
            _ => return,
        }
        self.leave(at);
    }

    fn accepted(&mut self, number: usize, result: i32) {
        let at = self.accepting[number];
        let peer = self.ring.peer(number);
        let pair = &mut self.pairs[at as usize];
        let (true, Some(ip)) = (result >= 0, peer) else {
            self.free.push(at);
            self.accept(number);
            return;
        };
        pair.fields = format!("X-Forwarded-For: {ip}\r\nX-Real-IP: {ip}\r\n\r\n").into_bytes();
        pair.phase = Phase::Connecting;
        pair.pending = 1;
        if !self.tricks.direct {
            pair.visitor.socket = Socket::Plain(result);
            match socket(self.origin) {
                Ok(fd) => pair.origin.socket = Socket::Plain(fd),
                Err(_) => {
                    pair.pending = 0;
                    self.close(at);
                    self.leave(at);
                    self.accept(number);
                    return;
                }
            }
        }
        let to = pair.origin.socket;
        if let Socket::Direct(slot) = to {
            self.ring.socket(slot, self.origin, IGNORE << 32);
        }
        self.ring
            .connect(to, &self.origin_address, data(CONNECT, at));
        self.accept(number);
    }

    fn connected(&mut self, at: u32, result: i32) {
        let pair = &mut self.pairs[at as usize];
        let fits = pair.fields.len() <= ROOM;
        if result < 0 || pair.phase != Phase::Connecting || !fits {
            return self.close(at);
        }
        pair.phase = Phase::Open;
        self.receive(at, Side::Visitor, false);
        self.receive(at, Side::Origin, true);
    }

    fn receive(&mut self, at: u32, side: Side, again: bool) {
        let pair = &mut self.pairs[at as usize];
        let half = pair.half(side);
        half.receives = true;
        half.held = false;
        let socket = half.socket;
        pair.pending += 1;
        self.ring
            .receive(socket, again, side_data(RECEIVE, at, side));
    }

    fn received(&mut self, at: u32, side: Side, completion: &Completion) {
        let mut pieces = std::mem::take(&mut self.pieces);
        self.ring.received(completion, &mut pieces);
        let pair = &mut self.pairs[at as usize];
        if !completion.more {
            pair.pending -= 1;
            pair.half(side).receives = false;
        }
        let closing = pair.phase == Phase::Closing;
        let fine = !closing && self.pass(at, side, &mut pieces);
        pieces
            .drain(..)
            .for_each(|piece| self.ring.buffers.give_back(piece.held));
        self.pieces = pieces;
        if closing {
            return;
        }
        if !fine {
            return self.close(at);
        }
        if completion.more {
            return;
        }
        match completion.result {
            0 if side == Side::Origin => {
                let pair = &mut self.pairs[at as usize];
                pair.phase = Phase::Ending;
                if pair.visitor.queue.is_empty() {
                    self.close(at);
                }
            }
            result if result == -libc::ENOBUFS => self.starved.push((at, side)),
            result if result > 0 && !self.pairs[at as usize].half(side).held => {
                // What did not fill the buffer has left nothing.
                let again = (result as usize) < self.ring.buffers.offered;
                self.receive(at, side, again);
            }
            result if result > 0 => {}
            // Cancelled because the other side is slow; or in the meantime it was not any more.
            result if result == -libc::ECANCELED => {
                let half = self.pairs[at as usize].half(side);
                if !half.held {
                    self.receive(at, side, false);
                }
            }
            _ => self.close(at),
        }
    }

    /// Queues what came from one side for the other. False: a request that none of the loads makes.
    fn pass(&mut self, at: u32, from: Side, pieces: &mut Vec<Piece>) -> bool {
        if pieces.is_empty() {
            return true;
        }
        let pair = &mut self.pairs[at as usize];
        if from == Side::Visitor {
            for piece in pieces.drain(..) {
                if !request(
                    piece,
                    &pair.fields,
                    &mut self.ring.buffers,
                    &mut self.made,
                    &mut pair.origin.queue,
                ) {
                    return false;
                }
            }
        } else {
            pair.visitor.queue.extend(pieces.drain(..));
        }
        let to = from.other();
        if pair.half(to).queue.len() > MOST {
            let half = pair.half(from);
            if !half.held {
                half.held = true;
                if half.receives && self.tricks.receive == Receive::Multishot {
                    self.ring
                        .cancel_request(side_data(RECEIVE, at, from), IGNORE << 32);
                }
            }
        }
        let half = self.pairs[at as usize].half(to);
        if half.sending.0 == 0 && !half.queued {
            half.queued = true;
            self.queued.push((at, to));
        }
        true
    }

    /// Sends what this turn has received, all of a socket together.
    fn send_queued(&mut self) {
        let mut queued = std::mem::take(&mut self.queued);
        for (at, to) in queued.drain(..) {
            let pair = &mut self.pairs[at as usize];
            let over = matches!(pair.phase, Phase::Closing | Phase::Free);
            let half = pair.half(to);
            half.queued = false;
            if !over && half.sending.0 == 0 && !half.queue.is_empty() {
                self.send(at, to, self.ending());
            }
        }
        self.queued = queued;
    }

    fn ending(&self) -> Ending {
        match self.tricks.skip_success {
            true => Ending::AtOnce,
            false => Ending::Waits,
        }
    }

    fn send(&mut self, at: u32, to: Side, ending: Ending) {
        let pair = &mut self.pairs[at as usize];
        let half = pair.half(to);
        let kind = match ending {
            Ending::AtOnce => SEND_AT_ONCE,
            Ending::Waits => SEND,
        };
        half.sending = self.ring.send(
            half.socket,
            half.queue.iter(),
            ending,
            side_data(kind, at, to),
        );
        match ending {
            Ending::AtOnce => self.at_once.push((at, to)),
            Ending::Waits => pair.pending += 1,
        }
    }

    /// So many bytes of what was being sent are.
    fn sent(&mut self, at: u32, to: Side, mut bytes: usize) {
        let pair = &mut self.pairs[at as usize];
        let half = pair.half(to);
        let short = bytes < half.sending.1;
        half.sending = (0, 0);
        while let Some(piece) = half.queue.front_mut() {
            let length = piece.to - piece.from;
            if bytes < length {
                piece.from += bytes;
                break;
            }
            bytes -= length;
            if let Some(piece) = half.queue.pop_front() {
                self.ring.buffers.give_back(piece.held);
            }
            if bytes == 0 {
                break;
            }
        }
        let left = half.queue.len();
        if pair.phase == Phase::Closing {
            return;
        }
        let source = pair.half(to.other());
        let resume = source.held && left <= MOST / 2;
        if resume {
            source.held = false;
        }
        // One that was not cancelled in time goes on by itself.
        let rearm = resume && !source.receives && pair.phase == Phase::Open;
        if left > 0 {
            let ending = if short { Ending::Waits } else { self.ending() };
            self.send(at, to, ending);
        } else if pair.phase == Phase::Ending {
            self.close(at);
            self.leave(at);
            return;
        }
        if rearm {
            self.receive(at, to.other(), false);
        }
    }

    /// Arms the receives that found no buffer, if there are any now.
    fn feed(&mut self) {
        if self.starved.is_empty() || !self.ring.buffers.any_offered() {
            return;
        }
        let mut starved = std::mem::take(&mut self.starved);
        for (at, side) in starved.drain(..) {
            let pair = &mut self.pairs[at as usize];
            let half = pair.half(side);
            if !half.receives && !half.held && pair.phase == Phase::Open {
                self.receive(at, side, false);
            }
        }
        self.starved = starved;
    }

    fn close(&mut self, at: u32) {
        let pair = &mut self.pairs[at as usize];
        if matches!(pair.phase, Phase::Closing | Phase::Free) {
            return;
        }
        pair.phase = Phase::Closing;
        for half in [&mut pair.visitor, &mut pair.origin] {
            if half.receives || half.sending.0 > 0 {
                self.ring.cancel(half.socket, IGNORE << 32);
            }
            // Requests that are not done keep the socket for themselves, not its place.
            if half.socket != Socket::Plain(-1) {
                self.ring.close(half.socket, IGNORE << 32);
            }
            if !self.tricks.direct {
                half.socket = Socket::Plain(-1);
            }
        }
    }

    /// Frees the place of a closing pair when nothing of it is on its way.
    fn leave(&mut self, at: u32) {
        let pair = &mut self.pairs[at as usize];
        let queued = || self.at_once.iter().any(|send| send.0 == at);
        if pair.phase != Phase::Closing || pair.pending > 0 || queued() {
            return;
        }
        pair.phase = Phase::Free;
        for half in [&mut pair.visitor, &mut pair.origin] {
            for piece in half.queue.drain(..) {
                self.ring.buffers.give_back(piece.held);
            }
            half.sending = (0, 0);
            half.held = false;
        }
        self.free.push(at);
        if let Some(number) = self.idle.pop() {
            self.accept(number);
        }
    }
}

impl Pair {
    fn half(&mut self, side: Side) -> &mut Half {
        match side {
            Side::Visitor => &mut self.visitor,
            Side::Origin => &mut self.origin,
        }
    }
}

impl Side {
    fn other(self) -> Self {
        match self {
            Self::Visitor => Self::Origin,
            Self::Origin => Self::Visitor,
        }
    }
}

/// Puts the fields in, in the same buffer if there is one request in it. False: one in pieces, or too many.
pub(super) fn request(
    mut piece: Piece,
    fields: &[u8],
    buffers: &mut Buffers,
    made: &mut Vec<u8>,
    queue: &mut VecDeque<Piece>,
) -> bool {
    let mut rest = buffers.bytes(&piece);
    if end_of_head(rest) == Some(rest.len()) {
        let end = piece.to - 2;
        piece.to = end + fields.len();
        buffers.whole_mut(&mut piece.held)[end..piece.to].copy_from_slice(fields);
        queue.push_back(piece);
        return true;
    }
    made.clear();
    while let Some(end) = end_of_head(rest) {
        made.extend_from_slice(&rest[..end - 2]);
        made.extend_from_slice(fields);
        rest = &rest[end..];
    }
    let whole = rest.is_empty();
    buffers.give_back(piece.held);
    if !whole {
        return false;
    }
    for part in made.chunks(buffers.offered) {
        let Some(mut held) = buffers.spare() else {
            return false;
        };
        buffers.whole_mut(&mut held)[..part.len()].copy_from_slice(part);
        queue.push_back(Piece {
            held,
            from: 0,
            to: part.len(),
        });
    }
    true
}

/// A socket of the process, without delay for small segments.
fn socket(to: SocketAddr) -> std::io::Result<RawFd> {
    use socket2::{Domain, Type};
    let socket = socket2::Socket::new(Domain::for_address(to), Type::STREAM, None)?;
    socket.set_tcp_nodelay(true)?;
    Ok(socket.into_raw_fd())
}

fn data(kind: u64, at: u32) -> u64 {
    kind << 32 | u64::from(at)
}

fn side_data(kind: u64, at: u32, side: Side) -> u64 {
    data(kind, at << 1 | u32::from(side == Side::Origin))
}

fn whose(completion: &Completion) -> (u32, Side) {
    let low = completion.data as u32;
    match completion.data >> 32 {
        ACCEPT | CONNECT | IGNORE => (low, Side::Visitor),
        _ if low & 1 == 1 => (low >> 1, Side::Origin),
        _ => (low >> 1, Side::Visitor),
    }
}

/// Pieces that wait for one side at which the other is not read any more.
const MOST: usize = 64;
// What a request is; the low half of its number says whose.
const IGNORE: u64 = 0;
const ACCEPT: u64 = 1;
const CONNECT: u64 = 2;
const RECEIVE: u64 = 3;
const SEND: u64 = 4;
const SEND_AT_ONCE: u64 = 5;

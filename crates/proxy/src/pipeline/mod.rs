//! Requests of one moment share a connection to a server: HTTP/1.1 pipelining (RFC 9112 §9.3.2), for routes that ask for it.
//!
//! ```text
//! exchange ─► PipedStream ─┐                             ┌─► PipedStream ─► exchange
//! exchange ─► PipedStream ─┼─► output ─► socket ─► demux ┼─► PipedStream ─► exchange
//! exchange ─► PipedStream ─┘   one write per turn        └─► PipedStream ─► exchange
//! ```
//!
//! An exchange sees a connection of its own. Heads are collected until the driver has its turn, and leave in one write; what comes back is cut where
//! one answer ends and the next begins. With many requests at one time this saves a read and a write of each, half of what the kernel does for it.
//!
//! The price: an answer waits for those before it, and a connection that breaks breaks all that wait on it. So only requests that may be sent
//! twice (GET and HEAD without a body) come here, [`DEPTH`] at most on one connection; one that got no answer is sent again alone, and so is one that
//! stood behind the same other for too long ([`KeepAlive::behind`]).

use std::{
    cell::RefCell,
    collections::VecDeque,
    io,
    rc::Rc,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use h1::{Answer, Awaiting, Framing, Limits, ResponseBody, ResponseHead};
use slab::Slab;
use tokio::io::ReadBuf;

use crate::{buffer::Input, clock::Clock, conn::Conn, site::KeepAlive};

mod driver;

use driver::Driver;

/// Requests on one connection that have no answer yet.
pub(crate) const DEPTH: usize = 16;
/// What may wait of one answer until its visitor takes it; beyond it nothing more is read, also for those behind.
const WAITING: usize = 64 << 10;
/// While so much waits for one visitor, nobody new is put behind it.
const SLOW: usize = 16 << 10;
/// How long answers that nobody wants any more are awaited.
const STRAGGLERS: Duration = Duration::from_secs(10);
/// Buffers that are kept for the next answers, and the largest of them.
const SPARE: usize = 2 * DEPTH;
const SPARE_BYTES: usize = 16 << 10;

/// One shared connection, as those see it who give out places on it. Dropped: it ends when its last answer has come.
#[derive(Debug)]
pub(crate) struct Pipe(Rc<Shared>);

/// What the driver and the exchanges share.
#[derive(Debug)]
struct Shared(RefCell<State>);

#[derive(Debug)]
struct State {
    limits: Limits,
    /// Heads that wait to be written.
    output: Vec<u8>,
    written: usize,
    /// Exchanges that have a place, whether or not they have written.
    places: Slab<Place>,
    /// Those that await their answer, in the order in which they asked.
    queue: VecDeque<usize>,
    /// Places without a complete answer.
    open: usize,
    /// Requests so far, and the most there may be.
    requests: u32,
    most: u32,
    /// How often another came to the front of the queue, and whether the one there has been for too long.
    turn: u64,
    stuck: bool,
    /// No request is taken any more.
    closing: bool,
    /// The connection is gone.
    closed: bool,
    driver: Option<Waker>,
    spare: Vec<Room>,
}

/// What an answer needs while it waits.
#[derive(Debug, Default)]
struct Room {
    /// Of the answer, not yet taken from `read` on.
    bytes: Vec<u8>,
    /// Its head as it was parsed when it was cut off, so that nobody has to do it again.
    head: ResponseHead,
}

/// One request and its answer.
#[derive(Debug)]
struct Place {
    stage: Stage,
    bytes: Vec<u8>,
    read: usize,
    head: ResponseHead,
    /// What `head` says is said of the next bytes that are taken, if all of it is.
    parsed: Parsed,
    waker: Option<Waker>,
    /// It has waited for too long and shall go elsewhere.
    sent_away: bool,
    /// Nobody takes the answer.
    abandoned: bool,
}

#[derive(Debug)]
enum Stage {
    /// The request is not written.
    New(Awaiting<()>),
    Head(Awaiting<()>),
    Body {
        body: ResponseBody,
        last: bool,
    },
    End(End),
}

/// Whether the reader can do without parsing the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parsed {
    No,
    /// It is of so many bytes, the first ones of the answer, none of which was taken.
    Waits(usize),
    /// They were taken with one read.
    Taken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The answer is complete, or the server has ended the connection in order.
    Orderly,
    /// The connection broke.
    Broken,
}

/// What an exchange has of it: a connection that carries its request only.
#[derive(Debug)]
pub(crate) struct PipedStream {
    shared: Rc<Shared>,
    key: usize,
}

impl Pipe {
    /// Shares a connection that carries no request, for `most` requests.
    pub(crate) fn new(
        conn: Conn,
        limits: &Limits,
        keep: KeepAlive,
        most: u32,
        clock: &Rc<Clock>,
    ) -> Self {
        let shared = Rc::new(Shared(RefCell::new(State {
            limits: *limits,
            output: Vec::new(),
            written: 0,
            places: Slab::with_capacity(DEPTH),
            queue: VecDeque::with_capacity(DEPTH),
            open: 0,
            requests: 0,
            most,
            turn: 0,
            stuck: false,
            closing: false,
            closed: false,
            driver: None,
            spare: Vec::new(),
        })));
        let driver = Driver {
            shared: Rc::clone(&shared),
            conn,
            input: Input::default(),
            head: ResponseHead::default(),
            deadline: clock.deadline(),
            keep,
            watched: None,
        };
        tokio::task::spawn_local(driver.run());
        Self(shared)
    }

    /// Whether it is of any use.
    pub(crate) fn is_open(&self) -> bool {
        let state = self.0.0.borrow();
        !state.closing && !state.closed
    }

    /// A place for a request, if there is one now. `head_only`: the method is HEAD.
    pub(crate) fn enter(&self, head_only: bool) -> Option<PipedStream> {
        let mut state = self.0.0.borrow_mut();
        let closing = state.closing || state.closed;
        if closing || state.stuck || state.open >= DEPTH || state.waits_in_front() > SLOW {
            return None;
        }
        // What the answer is cut by: of the request only what its framing depends on.
        let method: &[u8] = if head_only { b"HEAD" } else { b"GET" };
        let stage = Stage::New(Awaiting::to(method, false, &state.limits, ()));
        let Room { bytes, head } = state.spare.pop().unwrap_or_default();
        state.open += 1;
        state.requests += 1;
        if state.requests >= state.most {
            state.closing = true;
        }
        let key = state.places.insert(Place {
            stage,
            bytes,
            read: 0,
            head,
            parsed: Parsed::No,
            waker: None,
            sent_away: false,
            abandoned: false,
        });
        let shared = Rc::clone(&self.0);
        Some(PipedStream { shared, key })
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let mut state = self.0.0.borrow_mut();
        state.closing = true;
        state.wake_driver();
    }
}

impl PipedStream {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.shared.0.borrow_mut();
        let Some(place) = state.places.get_mut(self.key) else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        if place.waits() > 0 || place.sent_away || matches!(place.stage, Stage::End(_)) {
            return Poll::Ready(Ok(()));
        }
        if !(place.waker.as_ref()).is_some_and(|waker| waker.will_wake(cx.waker())) {
            place.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_readable(cx))?;
        let mut state = self.shared.0.borrow_mut();
        let Some(place) = state.places.get_mut(self.key) else {
            return Poll::Ready(Ok(()));
        };
        let waits = &place.bytes[place.read..];
        if waits.is_empty() {
            return Poll::Ready(match place.stage {
                Stage::End(End::Orderly) => Ok(()),
                _ => Err(io::ErrorKind::ConnectionReset.into()),
            });
        }
        let was_full = waits.len() >= WAITING;
        let n = waits.len().min(buffer.remaining());
        buffer.put_slice(&waits[..n]);
        place.parsed = match place.parsed {
            Parsed::Waits(length) if length <= n => Parsed::Taken,
            _ => Parsed::No,
        };
        place.read += n;
        if place.read == place.bytes.len() {
            place.read = 0;
            place.bytes.clear();
        }
        if was_full {
            state.wake_driver();
        }
        Poll::Ready(Ok(()))
    }

    /// Puts the head of the answer into `head`, if the last read was the first one and has taken all of it.
    pub(crate) fn take_head(&mut self, head: &mut ResponseHead) {
        let mut state = self.shared.0.borrow_mut();
        if let Some(place) = state.places.get_mut(self.key)
            && place.parsed == Parsed::Taken
        {
            place.parsed = Parsed::No;
            std::mem::swap(head, &mut place.head);
        }
    }

    /// Takes the whole request at once.
    pub(crate) fn poll_write(&mut self, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.shared.0.borrow_mut();
        let state = &mut *state;
        let place = state.places.get_mut(self.key);
        let stage = place.map(|place| &mut place.stage);
        // A place that was never written to is not in the queue, so that its end, too, is known here only by the connection's.
        if state.closed || matches!(stage, Some(Stage::End(_))) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let Some(stage) = stage else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        match std::mem::replace(stage, Stage::End(End::Broken)) {
            Stage::New(awaiting) => *stage = Stage::Head(awaiting),
            other => {
                *stage = other;
                // Bytes behind the head would be taken for another's request.
                return Poll::Ready(Err(io::ErrorKind::InvalidInput.into()));
            }
        }
        state.output.extend_from_slice(bytes);
        state.queue.push_back(self.key);
        state.wake_driver();
        Poll::Ready(Ok(bytes.len()))
    }
}

impl Drop for PipedStream {
    fn drop(&mut self) {
        let mut state = self.shared.0.borrow_mut();
        let Some(place) = state.places.get_mut(self.key) else {
            return;
        };
        match place.stage {
            Stage::End(_) => state.remove(self.key),
            Stage::New(_) => {
                state.open -= 1;
                state.remove(self.key);
                state.wake_driver();
            }
            Stage::Head(_) | Stage::Body { .. } => {
                place.abandoned = true;
                place.waker = None;
                place.bytes.clear();
                place.read = 0;
                state.wake_driver();
            }
        }
    }
}

impl Place {
    fn waits(&self) -> usize {
        self.bytes.len() - self.read
    }

    /// Nothing of an answer has been put there yet.
    fn is_untouched(&self) -> bool {
        self.bytes.is_empty() && self.parsed == Parsed::No && !self.abandoned
    }

    fn put(&mut self, bytes: &[u8]) {
        if !self.abandoned {
            self.bytes.extend_from_slice(bytes);
        }
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// Why the connection cannot go on.
struct Useless;

impl State {
    fn wake_driver(&mut self) {
        if let Some(driver) = self.driver.take() {
            driver.wake();
        }
    }

    /// Bytes that the visitor in front has not taken.
    fn waits_in_front(&self) -> usize {
        let front = self.queue.front().and_then(|key| self.places.get(*key));
        front.map_or(0, Place::waits)
    }

    /// Sends away all but the one in front.
    fn clear_behind(&mut self) {
        self.stuck = true;
        for key in self.queue.iter().skip(1) {
            if let Some(place) = self.places.get_mut(*key) {
                place.sent_away = true;
                place.wake();
            }
        }
    }

    fn only_stragglers(&self) -> bool {
        self.queue
            .iter()
            .all(|key| self.places.get(*key).is_some_and(|place| place.abandoned))
    }

    fn remove(&mut self, key: usize) {
        let Place {
            mut bytes,
            mut head,
            ..
        } = self.places.remove(key);
        if self.spare.len() < SPARE && bytes.capacity() <= SPARE_BYTES {
            bytes.clear();
            head.clear();
            self.spare.push(Room { bytes, head });
        }
    }

    /// Gives what was read to those it belongs to, until the one in front has too much already.
    fn demux(&mut self, input: &mut Input, head: &mut ResponseHead) -> Result<(), Useless> {
        while !input.is_empty() {
            // Bytes that nobody asked for.
            let key = *self.queue.front().ok_or(Useless)?;
            let place = self.places.get_mut(key).ok_or(Useless)?;
            let complete = match std::mem::replace(&mut place.stage, Stage::End(End::Broken)) {
                Stage::Head(awaiting) => {
                    let parsed = head.parse(input.bytes(), &self.limits);
                    let Some(length) = parsed.map_err(|_| Useless)? else {
                        place.stage = Stage::Head(awaiting);
                        return Ok(());
                    };
                    let answer = head.view(input.bytes()).ok_or(Useless)?;
                    let last = !answer.keep_alive() || answer.framing() == Framing::UntilClose;
                    let answer = awaiting.answer(answer).map_err(|_| Useless)?;
                    // Behind an interim answer that has not been taken, others' bytes would be read with it.
                    if place.is_untouched() && matches!(answer, Answer::Final { .. }) {
                        place.parsed = Parsed::Waits(length);
                        std::mem::swap(head, &mut place.head);
                    }
                    place.put(&input.bytes()[..length]);
                    input.consume(length);
                    head.clear();
                    match answer {
                        Answer::Interim(awaiting) => {
                            place.stage = Stage::Head(awaiting);
                            None
                        }
                        Answer::Final { body, .. } if body.is_complete() => Some(last),
                        Answer::Final { body, .. } => {
                            place.stage = Stage::Body { body, last };
                            None
                        }
                        Answer::Tunnel { .. } => return Err(Useless),
                    }
                }
                Stage::Body { mut body, last } => {
                    if place.waits() >= WAITING {
                        place.stage = Stage::Body { body, last };
                        return Ok(());
                    }
                    let decoded = body.decoder().decode(input.bytes()).map_err(|_| Useless)?;
                    place.put(&input.bytes()[..decoded.consumed]);
                    input.consume(decoded.consumed);
                    if decoded.end {
                        Some(last)
                    } else {
                        place.stage = Stage::Body { body, last };
                        None
                    }
                }
                Stage::New(_) | Stage::End(_) => return Err(Useless),
            };
            place.wake();
            if let Some(last) = complete {
                self.complete();
                if last {
                    return Err(Useless);
                }
            }
        }
        Ok(())
    }

    /// The answer in front has come to its end.
    fn complete(&mut self) {
        let Some(key) = self.queue.pop_front() else {
            return;
        };
        self.open -= 1;
        self.turn += 1;
        self.stuck = false;
        if let Some(place) = self.places.get_mut(key) {
            place.stage = Stage::End(End::Orderly);
            if place.abandoned {
                self.remove(key);
            }
        }
    }

    /// The connection is over. `orderly`: the server has ended it, so that a body that lasts until then is complete.
    fn close(&mut self, orderly: bool) {
        self.closed = true;
        self.output = Vec::new();
        let front = self.queue.front().copied();
        self.queue.clear();
        self.open = 0;
        self.places.retain(|key, place| {
            let answered = matches!(place.stage, Stage::Body { .. }) && Some(key) == front;
            if !matches!(place.stage, Stage::End(End::Orderly)) {
                place.stage = Stage::End(if answered && orderly {
                    End::Orderly
                } else {
                    End::Broken
                });
            }
            place.wake();
            !place.abandoned
        });
    }
}

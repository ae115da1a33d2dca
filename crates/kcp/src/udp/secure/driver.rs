//! The loop of a socket in gt's own mode: what streams did, what came, deadlines, sending; each with a bound per turn.

use std::{
    cell::RefCell,
    collections::VecDeque,
    future::Future,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    sync::mpsc,
    time::{Sleep, sleep_until},
};

use super::{
    super::socket::{BATCH_BYTES, Scratch},
    Elsewhere, Passed,
    link::{Link, Shared, State},
    stream::Stream,
    table::Table,
};
use crate::{
    MTU_MAX, Time,
    secure::{Gate, Reply, Session, receiver},
};

/// Receive calls per turn.
const RECEIVES: usize = 8;
/// Datagrams from other sockets of the group per turn.
const PASSED_PER_TURN: usize = 256;
/// Answers to handshakes and to peers of sessions that are gone that wait to be sent; more are dropped.
const ANSWERS: usize = 256;
/// Datagrams that one session sends before others have their turn.
const SESSION_SENDS: usize = 128;
/// Datagrams sent per turn.
const SENDS: usize = 1024;
/// How often figures are summed up, and memory taken back from sessions that have become idle.
const SWEEP: Duration = Duration::from_secs(1);
/// How long a session whose stream is gone may go on until its data has arrived.
const LINGER: Duration = Duration::from_secs(5);

thread_local! {
    static SCRATCH: RefCell<(Scratch, Vec<u8>)> = RefCell::new((Scratch::new(), vec![0; BATCH_BYTES]));
}

/// What a listening socket has beside its sessions.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) gate: Gate,
    pub(super) index: u8,
    pub(super) epoch: u8,
    pub(super) elsewhere: Option<Box<dyn Elsewhere>>,
    pub(super) sessions: usize,
    pub(super) accepts: mpsc::Sender<Stream>,
    pub(super) passed: mpsc::Receiver<Passed>,
    pub(super) others: Arc<[mpsc::Sender<Passed>]>,
}

pub(super) struct Driver {
    shared: Arc<Shared>,
    server: Option<Server>,
    table: Table,
    /// Sessions to look at.
    ready: VecDeque<usize>,
    dirty: Vec<Arc<Link>>,
    answers: Vec<(SocketAddr, Vec<u8>)>,
    /// Batches that the socket had no room for: where to, what, and the datagrams' size.
    blocked: VecDeque<(SocketAddr, Vec<u8>, usize)>,
    timer: Pin<Box<Sleep>>,
    /// What the timer is set to.
    armed: Option<Time>,
    sweep: Option<Time>,
}

impl Driver {
    pub(super) fn new(shared: Arc<Shared>, server: Option<Server>) -> Self {
        Self {
            shared,
            server,
            table: Table::default(),
            ready: VecDeque::new(),
            dirty: Vec::new(),
            answers: Vec::new(),
            blocked: VecDeque::new(),
            timer: Box::pin(sleep_until(tokio::time::Instant::now())),
            armed: None,
            sweep: None,
        }
    }

    /// Takes a session; `None` if its id is in use.
    pub(super) fn add(&mut self, session: Session) -> Option<Stream> {
        let id = session.local_id();
        if self.table.knows(id) {
            return None;
        }
        let key = self.table.next_key();
        let link = Arc::new(Link::new(key, Arc::clone(&self.shared), session));
        self.table.insert(Arc::clone(&link), id);
        self.queue(key);
        Some(Stream::new(link))
    }

    fn queue(&mut self, key: usize) {
        if let Some(entry) = self.table.get(key)
            && !entry.queued
        {
            entry.queued = true;
            self.ready.push_back(key);
        }
    }

    fn take_work(&mut self, cx: &Context<'_>) {
        self.shared.take_work(cx.waker(), &mut self.dirty);
        while let Some(link) = self.dirty.pop() {
            link.clean();
            // The place may belong to another session by now.
            if self
                .table
                .get(link.key)
                .is_some_and(|entry| Arc::ptr_eq(&entry.link, &link))
            {
                self.queue(link.key);
            }
        }
    }

    /// Returns whether there may be more.
    fn receive(&mut self, cx: &mut Context<'_>, scratch: &mut Scratch) -> io::Result<bool> {
        let shared = Arc::clone(&self.shared);
        let mut more = self.receive_passed(cx);
        if shared.is_retired() {
            return Ok(more);
        }
        for turn in 0..=RECEIVES {
            if turn == RECEIVES {
                more = true;
                break;
            }
            let now = shared.clock.now();
            match shared.socket.poll_recv(cx, scratch, |from, datagram| {
                self.on_datagram(now, from, datagram)
            }) {
                Poll::Pending => break,
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) if passes(&error) => {}
                Poll::Ready(Err(error)) => return Err(error),
            }
        }
        if let Some(elsewhere) = self.server.as_mut().and_then(|s| s.elsewhere.as_mut()) {
            elsewhere.flush();
        }
        Ok(more)
    }

    /// Takes what other sockets of the group got for sessions of this one.
    fn receive_passed(&mut self, cx: &mut Context<'_>) -> bool {
        let now = self.shared.clock.now();
        for _ in 0..PASSED_PER_TURN {
            let Some(server) = &mut self.server else {
                return false;
            };
            let Poll::Ready(Some((from, mut datagram))) = server.passed.poll_recv(cx) else {
                return false;
            };
            if let Some(id) = receiver(&datagram) {
                self.on_sealed(now, from, id, &mut datagram);
            }
        }
        true
    }

    fn on_datagram(&mut self, now: Time, from: SocketAddr, datagram: &mut [u8]) {
        let Some(id) = receiver(datagram) else {
            return self.on_handshake(now, from, datagram);
        };
        if let Some(server) = &mut self.server {
            let [.., epoch, owner] = id.to_le_bytes();
            if epoch != server.epoch {
                match &mut server.elsewhere {
                    Some(elsewhere) => elsewhere.pass(epoch, from, datagram),
                    None => drop(self.shared.totals.strays.fetch_add(1, Relaxed)),
                }
                return;
            }
            if owner != server.index {
                // Full or no such socket: lost, as on any path.
                if let Some(other) = server.others.get(usize::from(owner)) {
                    let _ = other.try_send((from, datagram.to_vec()));
                }
                return;
            }
        }
        self.on_sealed(now, from, id, datagram);
    }

    fn on_sealed(&mut self, now: Time, from: SocketAddr, id: u64, datagram: &mut [u8]) {
        if let Some(key) = self.table.key(id)
            && let Some(entry) = self.table.get(key)
        {
            let mut state = entry.link.lock();
            // Counted in the session.
            if state.session.handle_datagram(now, from, datagram).is_ok() {
                state.wake();
                drop(state);
                self.queue(key);
            }
            return;
        }
        let length = datagram.len();
        if let Some(server) = &mut self.server
            && let Some(session) = server.gate.confirm(now, from, id, datagram)
        {
            return self.accept(session);
        }
        self.shared.totals.strays.fetch_add(1, Relaxed);
        if let Some((to, farewell)) = self.table.farewell(id, now, length) {
            self.answer(to, farewell);
        }
    }

    fn accept(&mut self, mut session: Session) {
        let Some(server) = &self.server else { return };
        let accepts = server.accepts.clone();
        let Ok(place) = accepts.try_reserve() else {
            // Nobody takes it up: the client is told at once.
            if let Some(farewell) = session.farewell() {
                self.answer(session.remote(), farewell);
            }
            return;
        };
        if let Some(stream) = self.add(session) {
            place.send(stream);
        }
    }

    fn on_handshake(&mut self, now: Time, from: SocketAddr, datagram: &[u8]) {
        let totals = &self.shared.totals;
        let Some(server) = &mut self.server else {
            totals.strays.fetch_add(1, Relaxed);
            return;
        };
        totals.handshakes.fetch_add(1, Relaxed);
        let full = self.table.len() >= server.sessions || server.accepts.is_closed();
        let random = |bytes: &mut [u8; 72]| rand::fill(bytes);
        if let Reply::Send(reply) = server
            .gate
            .handle_handshake(now, from, datagram, full, random)
        {
            self.answer(from, reply);
        }
    }

    fn answer(&mut self, to: SocketAddr, datagram: Vec<u8>) {
        if self.answers.len() < ANSWERS {
            self.answers.push((to, datagram));
        }
    }

    fn expire(&mut self, now: Time) {
        while let Some(key) = self.table.expired(now) {
            self.queue(key);
        }
        if let Some(server) = &mut self.server {
            server.gate.expire(now);
        }
        if self.sweep.is_some_and(|at| at <= now) {
            self.sweep = None;
            let mut active = false;
            for entry in self.table.iter() {
                let mut state = entry.link.lock();
                if std::mem::take(&mut entry.active) {
                    active = true;
                    let stats = state.session.stats();
                    self.shared.totals.add(&entry.counted, &stats);
                    entry.counted = stats;
                } else {
                    state.session.trim();
                }
            }
            if active {
                self.sweep = Some(now + SWEEP);
            }
        }
    }

    /// Sends answers and looks at the sessions that are ready. Returns whether some are left though the socket has room.
    fn transmit(&mut self, cx: &mut Context<'_>, now: Time, buffer: &mut [u8]) -> bool {
        while let Some((to, batch, size)) = self.blocked.front() {
            if self
                .shared
                .socket
                .poll_send(cx, *to, batch, *size)
                .is_pending()
            {
                return false;
            }
            self.blocked.pop_front();
        }
        for (to, answer) in std::mem::take(&mut self.answers) {
            // One that finds no room is lost, as on any path.
            let _ = self.shared.socket.poll_send(cx, to, &answer, answer.len());
        }
        let mut left = SENDS;
        while left > 0 && self.blocked.is_empty() {
            let Some(key) = self.ready.pop_front() else {
                return false;
            };
            left = left.saturating_sub(self.turn_of(cx, key, now, buffer).max(1));
        }
        self.blocked.is_empty()
    }

    /// One session's turn: deadlines, sending, its next deadline, its end. Returns how many datagrams it sent.
    fn turn_of(&mut self, cx: &mut Context<'_>, key: usize, now: Time, buffer: &mut [u8]) -> usize {
        let Some(entry) = self.table.get(key) else {
            return 0;
        };
        entry.queued = false;
        entry.active = true;
        self.sweep.get_or_insert(now + SWEEP);
        let link = Arc::clone(&entry.link);
        let mut state = link.lock();
        if state.dropped {
            // Nobody reads any more: what comes is answered with a reset, as TCP does.
            if state.session.readable() > 0
                || (state.session.is_flushed() && state.session.is_shut())
            {
                state.session.reset();
            }
            state.session.shutdown(now);
            let until = *entry.linger.get_or_insert(now + LINGER);
            if until <= now {
                state.session.reset();
            }
        }
        state.session.handle_timeout(now);
        let (sent, again) = self.send_all(cx, &mut state, now, buffer);
        state.wake();
        let over = state.session.end().is_some();
        let mut deadline = state.session.poll_timeout();
        let dropped = state.dropped;
        drop(state);
        if over {
            self.close(key, now);
            return sent;
        }
        if dropped {
            deadline = deadline
                .into_iter()
                .chain(self.table.get(key).and_then(|entry| entry.linger))
                .min();
        }
        if again || !self.blocked.is_empty() {
            self.queue(key);
        } else if let Some(at) = deadline {
            self.table.schedule(key, at);
        }
        sent
    }

    /// Sends what a session has made. Returns how many datagrams, and whether there may be more.
    fn send_all(
        &mut self,
        cx: &mut Context<'_>,
        state: &mut State,
        now: Time,
        buffer: &mut [u8],
    ) -> (usize, bool) {
        let most = self.shared.socket.max_segments();
        let mut batch = Batch::default();
        while self.blocked.is_empty() {
            if batch.sent >= SESSION_SENDS {
                return (batch.sent, true);
            }
            let Some(to) = batch.fill(&mut state.session, now, buffer, most) else {
                break;
            };
            self.send(cx, to, &buffer[..batch.length], batch.size);
            if let Some((to, length)) = batch.odd.take() {
                self.send(cx, to, &buffer[batch.length..batch.length + length], length);
            }
        }
        (batch.sent, false)
    }

    fn send(&mut self, cx: &mut Context<'_>, to: SocketAddr, batch: &[u8], size: usize) {
        // Errors are the network's: what is lost is sent again.
        let socket = &self.shared.socket;
        if !self.blocked.is_empty() || socket.poll_send(cx, to, batch, size).is_pending() {
            self.blocked.push_back((to, batch.to_vec(), size));
        }
    }

    fn close(&mut self, key: usize, now: Time) {
        let Some(entry) = self.table.get(key) else {
            return;
        };
        let link = Arc::clone(&entry.link);
        let mut state = link.lock();
        let farewell = state
            .session
            .farewell()
            .map(|words| (state.session.remote(), words));
        state.wake();
        let stats = state.session.stats();
        drop(state);
        if self.server.is_none()
            && let Some((to, words)) = &farewell
        {
            // The socket ends with its session, so that the peer cannot ask again.
            self.shared.socket.send_now(*to, words);
        }
        if let Some(entry) = self.table.remove(key, now, farewell) {
            self.shared.totals.add(&entry.counted, &stats);
        }
    }

    fn is_done(&self) -> bool {
        self.table.len() == 0
            && self
                .server
                .as_ref()
                .is_none_or(|server| server.accepts.is_closed())
    }

    /// Sets the timer to the next deadline and returns whether that has passed already.
    fn arm(&mut self, cx: &mut Context<'_>) -> bool {
        let next = [
            self.table.next_deadline(),
            self.sweep,
            self.server
                .as_ref()
                .and_then(|server| server.gate.poll_timeout()),
        ]
        .into_iter()
        .flatten()
        .min();
        if next != self.armed {
            self.armed = next;
            if let Some(at) = next {
                self.timer.as_mut().reset(self.shared.clock.instant(at));
            }
        }
        self.armed.is_some() && self.timer.as_mut().poll(cx).is_ready()
    }
}

/// Datagrams at the front of a buffer that can go in one call: to one address and of one size, except that the last may be smaller.
#[derive(Debug, Default)]
struct Batch {
    length: usize,
    /// Bytes of each datagram but the last.
    size: usize,
    /// A datagram made after these that does not fit them: where to and how long. It lies behind them.
    odd: Option<(SocketAddr, usize)>,
    /// Datagrams of all batches so far.
    sent: usize,
}

impl Batch {
    /// Takes what the session has; where to, if anything.
    fn fill(
        &mut self,
        session: &mut Session,
        now: Time,
        buffer: &mut [u8],
        most: usize,
    ) -> Option<SocketAddr> {
        let first = session.poll_transmit(now, buffer)?;
        (self.length, self.size, self.odd) = (first.length, first.length, None);
        self.sent += 1;
        let mut count = 1;
        while count < most && self.length + MTU_MAX <= buffer.len() {
            let Some(made) = session.poll_transmit(now, &mut buffer[self.length..]) else {
                break;
            };
            self.sent += 1;
            if made.length > self.size || made.to != first.to {
                self.odd = Some((made.to, made.length));
                break;
            }
            self.length += made.length;
            count += 1;
            if made.length < self.size {
                break;
            }
        }
        Some(first.to)
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        SCRATCH.with_borrow_mut(|(scratch, buffer)| {
            this.take_work(cx);
            let more = match this.receive(cx, scratch) {
                Ok(more) => more,
                Err(_) => return Poll::Ready(()),
            };
            let now = this.shared.clock.now();
            this.expire(now);
            let unsent = this.transmit(cx, now, buffer);
            if this.is_done() {
                return Poll::Ready(());
            }
            if this.arm(cx) {
                this.armed = None;
                cx.waker().wake_by_ref();
            } else if more || unsent {
                cx.waker().wake_by_ref();
            }
            Poll::Pending
        })
    }
}

impl Drop for Driver {
    /// Nobody may wait for a driver that is gone, and peers need not find out by silence.
    fn drop(&mut self) {
        let socket = &self.shared.socket;
        for entry in self.table.iter() {
            let mut state = entry.link.lock();
            if let Some(words) = state.session.farewell() {
                socket.send_now(state.session.remote(), &words);
            }
            state.orphaned = true;
            state.wake();
        }
        self.shared.close_work();
    }
}

/// What ICMP said about some datagram is no reason to end; it cannot come without end.
fn passes(error: &io::Error) -> bool {
    use io::ErrorKind::{
        ConnectionRefused, ConnectionReset, HostUnreachable, Interrupted, NetworkUnreachable,
    };
    let passing = [
        ConnectionRefused,
        ConnectionReset,
        HostUnreachable,
        Interrupted,
        NetworkUnreachable,
    ];
    passing.contains(&error.kind())
}

//! The loop of a socket: receive, act on deadlines, look at what handles did, send; each with a bound per turn.

use std::{
    cell::RefCell,
    collections::VecDeque,
    future::Future,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    sync::mpsc,
    time::{Sleep, sleep_until},
};

use super::{
    Options,
    link::{End, Link, Shared, State},
    rate::Rate,
    session::Session,
    socket::{BATCH_BYTES, Scratch},
    table::Table,
};
use crate::{InputError, MTU_MAX, Peek, Pipeline, Time, arq::Conv};

/// Receive calls per turn.
const RECEIVES: usize = 8;
/// Datagrams that one session sends before others have their turn.
const SESSION_SENDS: usize = 128;
/// Datagrams sent per turn.
const SENDS: usize = 1024;
/// How often sessions that have become idle give memory back.
const SWEEP: Duration = Duration::from_secs(5);

thread_local! {
    static SCRATCH: RefCell<(Scratch, Vec<u8>)> = RefCell::new((Scratch::new(), vec![0; BATCH_BYTES]));
}

/// Where a listener's new sessions go.
pub(super) type Accepts = mpsc::Sender<Session>;

pub(super) struct Driver {
    shared: Arc<Shared>,
    options: Options,
    table: Table,
    /// Sessions to look at.
    ready: VecDeque<usize>,
    dirty: Vec<Arc<Link>>,
    accepts: Option<Accepts>,
    /// Batches that the socket had no room for: where to, what, and the datagrams' size.
    blocked: VecDeque<(SocketAddr, Vec<u8>, usize)>,
    timer: Pin<Box<Sleep>>,
    /// What the timer is set to.
    armed: Option<Time>,
    sweep: Option<Time>,
}

impl Driver {
    pub(super) fn new(shared: Arc<Shared>, options: Options, accepts: Option<Accepts>) -> Self {
        let timer = Box::pin(sleep_until(tokio::time::Instant::now()));
        Self {
            shared,
            options,
            table: Table::default(),
            ready: VecDeque::new(),
            dirty: Vec::new(),
            accepts,
            blocked: VecDeque::new(),
            timer,
            armed: None,
            sweep: None,
        }
    }

    /// Adds the session `conv` with `remote` and gives its handle. The configuration has been checked.
    pub(super) fn open(&mut self, remote: SocketAddr, conv: Conv) -> Option<Session> {
        let now = self.shared.clock.now();
        let options = &self.options;
        let pipeline = Pipeline::new(
            conv,
            options.config.clone(),
            Arc::clone(&options.seal),
            rand::random(),
        )
        .ok()?;
        let rate = options.rate_limit.map(|rate| Rate::new(rate, now));
        let link = Arc::new(Link::new(
            self.table.next_key(),
            remote,
            Arc::clone(&self.shared),
            pipeline,
            rate,
        ));
        self.table.insert(Arc::clone(&link), conv);
        let mut counters = self.shared.counters();
        counters.curr_estab += 1;
        counters.max_conn = counters.max_conn.max(counters.curr_estab);
        *(if self.accepts.is_some() {
            &mut counters.passive_opens
        } else {
            &mut counters.active_opens
        }) += 1;
        Some(Session::new(link))
    }

    /// Returns whether there may be more.
    fn receive(&mut self, cx: &mut Context<'_>, scratch: &mut Scratch) -> Result<bool, End> {
        let shared = Arc::clone(&self.shared);
        for _ in 0..RECEIVES {
            let now = shared.clock.now();
            match shared.socket.poll_recv(cx, scratch, |from, datagram| {
                self.on_datagram(now, from, datagram)
            }) {
                Poll::Pending => return Ok(false),
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => {
                    shared.counters().in_errs += 1;
                    // What ICMP said about some datagram is no reason to end; it cannot come without end.
                    use std::io::ErrorKind::{
                        ConnectionRefused, ConnectionReset, HostUnreachable, Interrupted,
                        NetworkUnreachable,
                    };
                    let passing = [
                        ConnectionRefused,
                        ConnectionReset,
                        HostUnreachable,
                        Interrupted,
                        NetworkUnreachable,
                    ];
                    if !passing.contains(&error.kind()) {
                        return Err(End::Socket);
                    }
                }
            }
        }
        Ok(true)
    }

    fn on_datagram(&mut self, now: Time, from: SocketAddr, datagram: &mut [u8]) {
        let seal = Arc::clone(&self.options.seal);
        let body = match seal.open(datagram) {
            Ok(body) => body,
            Err(error) => {
                let mut counters = self.shared.counters();
                *(if error == InputError::Unsealed {
                    &mut counters.in_csum_errors
                } else {
                    &mut counters.in_errs
                }) += 1;
                return;
            }
        };
        let Some(peek) = Peek::of(body) else {
            self.shared.counters().kcp_in_errors += 1;
            return;
        };
        let Some(key) = self.session_for(now, from, peek) else {
            return;
        };
        let Some(entry) = self.table.get(key) else {
            return;
        };
        let mut state = entry.link.lock();
        // Counted in the pipeline.
        let _ = state.pipeline.handle_opened(now, body);
        state.wake();
        drop(state);
        self.queue(key);
    }

    /// Whose datagram it is; a listener may make a session for it.
    fn session_for(&mut self, now: Time, from: SocketAddr, peek: Peek) -> Option<usize> {
        let existing = self.table.at(from);
        if let Some(key) = existing {
            let conv = self.table.get(key)?.conv;
            if peek.conv.is_none_or(|other| other == conv) {
                return Some(key);
            }
        }
        let conv = peek.conv?;
        let accepts = self.accepts.clone()?;
        let allowed = if existing.is_some() {
            peek.replaces()
        } else {
            peek.opens(self.options.config.recv_window)
        };
        if !allowed || self.table.is_gone(from, conv, now) {
            return None;
        }
        // A place in the queue first: nothing is replaced that cannot be taken up.
        let place = accepts.try_reserve().ok()?;
        if let Some(key) = existing {
            self.close(key, now, Some(End::Replaced));
        } else if self.table.len() >= self.options.max_sessions {
            return None;
        }
        let key = self.table.next_key();
        let session = self.open(from, conv)?;
        place.send(session);
        Some(key)
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

    fn expire(&mut self, now: Time) {
        while let Some(key) = self.table.expired(now) {
            self.queue(key);
        }
        if self.sweep.is_some_and(|at| at <= now) {
            self.sweep = None;
            let mut active = false;
            for entry in self.table.iter() {
                if std::mem::take(&mut entry.active) {
                    active = true;
                } else {
                    entry.link.lock().pipeline.trim();
                }
            }
            if active {
                self.sweep = Some(now + SWEEP);
            }
        }
    }

    /// Looks at the sessions that are ready. Returns whether some are left though the socket has room.
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
        state.pipeline.handle_timeout(now);
        if state.dropped {
            state.pipeline.answer_now(now);
        }
        let (sent, again, wait) = self.send_all(cx, &link, &mut state, now, buffer);
        if state.pipeline.is_dead() {
            drop(state);
            self.close(key, now, Some(End::Dead));
            return sent;
        }
        let mut deadline = state.pipeline.poll_timeout();
        let (dropped, flushed) = (state.dropped, state.pipeline.is_flushed());
        drop(state);
        let linger = self.options.linger;
        if dropped && let Some(entry) = self.table.get(key) {
            let until = *entry.linger.get_or_insert(now + linger);
            if flushed || until <= now {
                self.close(key, now, None);
                return sent;
            }
            deadline = deadline.min(Some(until)).or(Some(until));
        }
        if again || !self.blocked.is_empty() {
            self.queue(key);
        } else if let Some(at) = deadline
            .map(|at| wait.map_or(at, |wait| at.max(wait)))
            .into_iter()
            .chain(wait)
            .min()
        {
            self.table.schedule(key, at);
        }
        sent
    }

    /// Sends what a session has made. Returns how many datagrams, whether there may be more, and until when the rate
    /// limit holds them back.
    fn send_all(
        &mut self,
        cx: &mut Context<'_>,
        link: &Link,
        state: &mut State,
        now: Time,
        buffer: &mut [u8],
    ) -> (usize, bool, Option<Time>) {
        let (mut again, mut wait) = (false, None);
        let mut batch = Batch::default();
        while self.blocked.is_empty() {
            if batch.sent >= SESSION_SENDS {
                again = true;
                break;
            }
            wait = state.rate.as_mut().and_then(|rate| rate.wait(now));
            if wait.is_some() {
                break;
            }
            batch.fill(
                &mut state.pipeline,
                now,
                buffer,
                self.shared.socket.max_segments(),
            );
            if batch.length == 0 {
                break;
            }
            if let Some(rate) = &mut state.rate {
                rate.spend(batch.length);
            }
            let datagrams = &mut buffer[..batch.length];
            state.pipeline.seal_batch(datagrams, batch.size);
            self.send(cx, link.remote, datagrams, batch.size);
            batch.carry(buffer);
        }
        if batch.carried > 0 {
            // Made already, so it goes, whatever the reason to stop.
            let datagram = &mut buffer[..batch.carried];
            state.pipeline.seal_batch(datagram, batch.carried);
            self.send(cx, link.remote, datagram, batch.carried);
        }
        (batch.sent, again, wait)
    }

    fn send(&mut self, cx: &mut Context<'_>, to: SocketAddr, batch: &[u8], size: usize) {
        // Errors are the network's: what is lost is sent again.
        let socket = &self.shared.socket;
        if !self.blocked.is_empty() || socket.poll_send(cx, to, batch, size).is_pending() {
            self.blocked.push_back((to, batch.to_vec(), size));
        }
    }

    fn close(&mut self, key: usize, now: Time, end: Option<End>) {
        let Some(entry) = self.table.remove(key, now) else {
            return;
        };
        let mut state = entry.link.lock();
        state.finish(end.unwrap_or(End::Socket));
        let counters = state.pipeline.counters();
        drop(state);
        let mut total = self.shared.counters();
        total.add_totals(&counters);
        total.curr_estab = total.curr_estab.saturating_sub(1);
    }

    fn is_done(&self) -> bool {
        self.table.len() == 0 && self.accepts.as_ref().is_none_or(mpsc::Sender::is_closed)
    }

    /// Sets the timer to the next deadline and returns whether that has passed already.
    fn arm(&mut self, cx: &mut Context<'_>) -> bool {
        let next = [self.table.next_deadline(), self.sweep]
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

/// Datagrams at the front of a buffer that can go in one call: of one size, except that the last may be smaller.
#[derive(Debug, Default)]
struct Batch {
    /// Bytes of the batch.
    length: usize,
    /// Bytes of each datagram but the last.
    size: usize,
    /// Bytes of a datagram that was made and turned out too long for the batch. It lies behind the batch, and after
    /// [`Self::carry`] at the front. Not sealed yet.
    carried: usize,
    /// Datagrams of all batches so far.
    sent: usize,
}

impl Batch {
    fn fill(&mut self, pipeline: &mut Pipeline, now: Time, buffer: &mut [u8], most: usize) {
        (self.length, self.size, self.carried) = (self.carried, self.carried, 0);
        let mut count = usize::from(self.length > 0);
        while count < most && self.length + MTU_MAX <= buffer.len() {
            let Some(length) = pipeline.poll_unsealed(now, &mut buffer[self.length..]) else {
                break;
            };
            if count == 0 {
                self.size = length;
            } else if length > self.size {
                self.carried = length;
                break;
            }
            self.length += length;
            count += 1;
            if length < self.size {
                break;
            }
        }
        self.sent += count;
    }

    /// Moves what was carried to the front, once the batch has been sent.
    fn carry(&mut self, buffer: &mut [u8]) {
        buffer.copy_within(self.length..self.length + self.carried, 0);
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
    /// Nobody may wait for a driver that is gone.
    fn drop(&mut self) {
        for entry in self.table.iter() {
            entry.link.lock().finish(End::Socket);
        }
        self.shared.close_work();
    }
}

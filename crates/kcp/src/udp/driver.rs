//! The loop of a socket: what handles did, what came, deadlines, sending; each with a bound per turn.
//!
//! It is the same for all sessions. What kind of sessions they are (which of them a datagram is for, what makes a new one, when one is
//! over) is a [`Kind`]'s to know: [`super::classic`] speaks with kcp-go, [`super::secure`] with gt. What sessions have to say in a turn gathers in
//! an [`Outbox`] and goes out at its end, so that a crowd of sessions with one small datagram each needs few system calls.

use std::{
    cell::RefCell,
    collections::VecDeque,
    future::Future,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::{Sleep, sleep_until};

use super::{
    link::{Link, Shared},
    outbox::Outbox,
    socket::Scratch,
    table::{Entry, Table},
};
use crate::Time;

/// Receive calls per turn.
const RECEIVES: usize = 8;
/// Datagrams that one session sends before others have their turn.
pub(super) const SESSION_SENDS: usize = 128;
/// Datagrams sent per turn.
const SENDS: usize = 1024;

thread_local! {
    static SCRATCH: RefCell<(Scratch, Outbox)> = RefCell::new((Scratch::new(), Outbox::new()));
}

/// A kind of sessions, and what a socket's driver knows of them beside the table.
pub(super) trait Kind: Sized {
    /// What is behind each session's lock.
    type State;
    /// What handles and driver share beside the sessions.
    type Common;
    /// What the driver notes of each session.
    type Note;
    /// How often [`Self::sweep`] looks at the sessions.
    const SWEEP: Duration;

    /// Takes datagrams that came on other ways than the socket; returns whether there may be more.
    fn receive_passed(&mut self, _: &mut Core<Self>, _: &mut Context<'_>) -> bool {
        false
    }

    /// Whether the socket is this driver's to read.
    fn reads(&self, _: &Core<Self>) -> bool {
        true
    }

    /// Takes a datagram from the socket.
    fn on_datagram(
        &mut self,
        core: &mut Core<Self>,
        now: Time,
        from: SocketAddr,
        datagram: &mut [u8],
    );

    /// The socket refused to give something.
    fn on_error(&mut self, _: &Core<Self>) {}

    /// All that could be read for now has been.
    fn received(&mut self) {}

    /// Acts on deadlines that are not a session's.
    fn expire(&mut self, _: Time) {}

    /// When [`Self::expire`] wants to be called.
    fn deadline(&self) -> Option<Time> {
        None
    }

    /// Sends what is for no session's peer.
    fn answer(&mut self, _: &mut Core<Self>, _: &mut Context<'_>) {}

    /// One session's turn: deadlines, sending, its next deadline, its end. Returns how many datagrams it sent.
    fn turn(
        &mut self,
        core: &mut Core<Self>,
        cx: &mut Context<'_>,
        out: &mut Outbox,
        key: usize,
        now: Time,
    ) -> usize;

    /// Looks at a session now and then; `active`: something happened since.
    fn sweep(common: &Self::Common, entry: &mut Entry<Self>, active: bool);

    /// Whether no session can come any more.
    fn is_closed(&self) -> bool;

    /// The driver goes and leaves this session.
    fn leave(shared: &Shared<Self>, state: &mut Self::State);
}

/// What drivers of all kinds have.
pub(super) struct Core<K: Kind> {
    pub(super) shared: Arc<Shared<K>>,
    pub(super) table: Table<K>,
    /// Sessions to look at.
    ready: VecDeque<usize>,
    dirty: Vec<Arc<Link<K>>>,
    /// What the socket had no room for: where to, datagrams, and their size.
    blocked: VecDeque<(SocketAddr, Vec<u8>, usize)>,
    sweep: Option<Time>,
}

impl<K: Kind> Core<K> {
    /// Has the session looked at in this turn or the next.
    pub(super) fn queue(&mut self, key: usize) {
        if let Some(entry) = self.table.get(key)
            && !entry.queued
        {
            entry.queued = true;
            self.ready.push_back(key);
        }
    }

    /// A session's turn begins.
    pub(super) fn begin_turn(&mut self, key: usize, now: Time) -> Option<Arc<Link<K>>> {
        let entry = self.table.get(key)?;
        entry.queued = false;
        entry.active = true;
        self.sweep.get_or_insert(now + K::SWEEP);
        Some(Arc::clone(&entry.link))
    }

    /// A session's turn ends: it has more to send, or waits for its deadline.
    pub(super) fn end_turn(&mut self, key: usize, again: bool, deadline: Option<Time>) {
        if again {
            self.queue(key);
        } else if let Some(at) = deadline {
            self.table.schedule(key, at);
        }
    }

    /// Sends what has gathered. What the socket has no room for is kept, and until it is gone nothing more should be made.
    /// Returns whether there is room.
    pub(super) fn flush(&mut self, cx: &mut Context<'_>, out: &mut Outbox) -> bool {
        if self.blocked.is_empty() {
            out.send(cx, &self.shared.socket);
        }
        out.keep(&mut self.blocked);
        self.blocked.is_empty()
    }

    /// Sends what the socket had no room for. Returns whether all is gone.
    fn unblock(&mut self, cx: &mut Context<'_>) -> bool {
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
        true
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
            let mut any = false;
            for entry in self.table.iter() {
                let active = std::mem::take(&mut entry.active);
                K::sweep(&self.shared.common, entry, active);
                any |= active;
            }
            self.sweep = any.then(|| now + K::SWEEP);
        }
    }
}

/// The task of a socket.
pub(super) struct Driver<K: Kind> {
    pub(super) core: Core<K>,
    pub(super) kind: K,
    timer: Pin<Box<Sleep>>,
    /// What the timer is set to.
    armed: Option<Time>,
}

impl<K: Kind> Driver<K> {
    pub(super) fn new(shared: Arc<Shared<K>>, kind: K) -> Self {
        Self {
            core: Core {
                shared,
                table: Table::default(),
                ready: VecDeque::new(),
                dirty: Vec::new(),
                blocked: VecDeque::new(),
                sweep: None,
            },
            kind,
            timer: Box::pin(sleep_until(tokio::time::Instant::now())),
            armed: None,
        }
    }

    /// Returns whether there may be more.
    fn receive(&mut self, cx: &mut Context<'_>, scratch: &mut Scratch) -> io::Result<bool> {
        let Self { core, kind, .. } = self;
        let mut more = kind.receive_passed(core, cx);
        if !kind.reads(core) {
            return Ok(more);
        }
        let shared = Arc::clone(&core.shared);
        for turn in 0..=RECEIVES {
            if turn == RECEIVES {
                more = true;
                break;
            }
            let now = shared.clock.now();
            match shared.socket.poll_recv(cx, scratch, |from, datagram| {
                kind.on_datagram(core, now, from, datagram);
            }) {
                Poll::Pending => break,
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => {
                    kind.on_error(core);
                    if !passes(&error) {
                        return Err(error);
                    }
                }
            }
        }
        kind.received();
        Ok(more)
    }

    /// Looks at the sessions that are ready. Returns whether some are left though the socket has room.
    fn transmit(&mut self, cx: &mut Context<'_>, now: Time, out: &mut Outbox) -> bool {
        let Self { core, kind, .. } = self;
        if !core.unblock(cx) {
            return false;
        }
        kind.answer(core, cx);
        let mut left = SENDS;
        while left > 0
            && core.blocked.is_empty()
            && let Some(key) = core.ready.pop_front()
        {
            left = left.saturating_sub(kind.turn(core, cx, out, key, now).max(1));
        }
        core.flush(cx, out) && !core.ready.is_empty()
    }

    fn is_done(&self) -> bool {
        // What could not be sent yet is still to be sent.
        self.core.table.len() == 0 && self.core.blocked.is_empty() && self.kind.is_closed()
    }

    /// Sets the timer to the next deadline and returns whether that has passed already.
    fn arm(&mut self, cx: &mut Context<'_>) -> bool {
        let next = [
            self.core.table.next_deadline(),
            self.core.sweep,
            self.kind.deadline(),
        ]
        .into_iter()
        .flatten()
        .min();
        if next != self.armed {
            self.armed = next;
            if let Some(at) = next {
                self.timer
                    .as_mut()
                    .reset(self.core.shared.clock.instant(at));
            }
        }
        self.armed.is_some() && self.timer.as_mut().poll(cx).is_ready()
    }
}

/// Nothing in it is pinned but the timer, which has a box of its own.
impl<K: Kind> Unpin for Driver<K> {}

impl<K: Kind> Future for Driver<K> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        SCRATCH.with_borrow_mut(|(scratch, out)| {
            this.core.take_work(cx);
            let Ok(more) = this.receive(cx, scratch) else {
                return Poll::Ready(());
            };
            let now = this.core.shared.clock.now();
            this.kind.expire(now);
            this.core.expire(now);
            let unsent = this.transmit(cx, now, out);
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

impl<K: Kind> Drop for Driver<K> {
    /// Nobody may wait for a driver that is gone.
    fn drop(&mut self) {
        for entry in self.core.table.iter() {
            K::leave(&self.core.shared, &mut entry.link.lock());
        }
        self.core.shared.close_work();
    }
}

/// What ICMP said about some datagram is no reason to end; it cannot come without end.
fn passes(error: &io::Error) -> bool {
    use io::ErrorKind::{
        ConnectionRefused, ConnectionReset, HostUnreachable, Interrupted, NetworkUnreachable,
    };
    matches!(
        error.kind(),
        ConnectionRefused | ConnectionReset | HostUnreachable | Interrupted | NetworkUnreachable
    )
}

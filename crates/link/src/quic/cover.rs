//! Datagrams that are covered (`fec.rs`), on their way into QUIC. QUIC puts as many small datagrams into one packet as fit, and one lost packet
//! would then take a group's data and its parity together. So a shard is given to QUIC only when it comes into another packet than the
//! one before it; until then it waits here, for some 10 ms at most. Where congestion control
//! lets less go than there is, parity is given up first.
//!
//! Left to others: what shards are, and when a group ends without being full (`fec.rs`).

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    time::{Duration, Instant},
};

use bytes::Bytes;
use quic::Connection;
use tokio::{sync::Notify, task::yield_now, time::sleep};

use super::fec;

/// What a link's end sends covered.
pub(super) struct Cover {
    connection: Connection,
    sender: RefCell<fec::Sender>,
    /// A group has begun.
    grouped: Notify,
    /// Shards, and since when.
    waiting: RefCell<VecDeque<(Instant, Bytes)>>,
    /// Something waits.
    more: Notify,
    /// The room for datagrams in QUIC while none waits there.
    room: usize,
    /// The size of the last one that QUIC got from here.
    last: Cell<usize>,
}

impl Cover {
    /// For a connection on which no datagram has been sent.
    pub(super) fn new(connection: Connection, form: kcp::Shards) -> Self {
        Self {
            sender: RefCell::new(fec::Sender::new(form, Instant::now())),
            grouped: Notify::new(),
            waiting: RefCell::default(),
            more: Notify::new(),
            room: connection.datagram_send_buffer_space(),
            last: Cell::new(0),
            connection,
        }
    }

    /// Sends a datagram with something that repairs it.
    pub(super) fn send(&self, datagram: &[u8]) {
        let mut sender = self.sender.borrow_mut();
        let before = sender.flush_at();
        sender.send(Instant::now(), datagram, |shard| self.pass(shard));
        if before.is_none() && sender.flush_at().is_some() {
            self.grouped.notify_one();
        }
    }

    /// Ends groups that do not fill.
    pub(super) async fn flush(&self) {
        loop {
            let at = self.sender.borrow().flush_at();
            match at {
                Some(at) => {
                    tokio::time::sleep_until(at.into()).await;
                    let mut sender = self.sender.borrow_mut();
                    sender.flush(Instant::now(), |shard| self.pass(shard));
                }
                None => self.grouped.notified().await,
            }
        }
    }

    /// Gives QUIC what waits.
    pub(super) async fn spread(&self) {
        let mut looks = 0;
        loop {
            if self.waiting.borrow().is_empty() {
                looks = 0;
                self.more.notified().await;
            }
            // The connection's task sends what it may in the meantime.
            match looks {
                0..TURNS => yield_now().await,
                _ => sleep(PAUSE * (1 << (looks - TURNS).min(MOST_DOUBLED))).await,
            }
            looks = if self.next() { 0 } else { looks + 1 };
        }
    }

    fn pass(&self, shard: Bytes) {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.is_empty() && self.is_apart(&shard) {
            return self.give(shard);
        }
        waiting.push_back((Instant::now(), shard));
        if waiting.len() < MOST_WAITING {
            self.more.notify_one();
        } else {
            self.relieve(&mut waiting);
        }
    }

    /// False when the next one has to wait.
    fn next(&self) -> bool {
        let mut waiting = self.waiting.borrow_mut();
        let Some((since, shard)) = waiting.front() else {
            return true;
        };
        if !self.is_apart(shard) {
            if since.elapsed() > fec::FLUSH {
                self.relieve(&mut waiting);
            }
            return false;
        }
        if let Some((_, shard)) = waiting.pop_front() {
            self.give(shard);
        }
        true
    }

    /// Congestion control does not let all of it go: parity must not hold data up, and packets that hold more take less room.
    fn relieve(&self, waiting: &mut VecDeque<(Instant, Bytes)>) {
        for (_, shard) in waiting.drain(..) {
            if shard.first() == Some(&fec::DATA) {
                self.give(shard);
            }
        }
    }

    /// Whether it does not come into one packet with the last one.
    fn is_apart(&self, shard: &Bytes) -> bool {
        let most = self.connection.max_datagram_size().unwrap_or(0);
        self.last.get() + shard.len() > most
            || self.connection.datagram_send_buffer_space() >= self.room
    }

    fn give(&self, shard: Bytes) {
        self.last.set(shard.len());
        // One that cannot go is lost; the link's end is told elsewhere.
        let _ = self.connection.send_datagram(shard);
    }
}

/// How often the connection's task may run before this one sleeps: more often than it needs where nothing holds it up.
const TURNS: u32 = 3;
/// What this task sleeps while congestion control holds datagrams up, at first.
const PAUSE: Duration = Duration::from_millis(1);
/// Later it sleeps up to 8 ms.
const MOST_DOUBLED: u32 = 3;
/// Shards that wait: more than five of the largest groups.
const MOST_WAITING: usize = 256;

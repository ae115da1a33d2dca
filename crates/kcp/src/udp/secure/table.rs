//! The driver's sessions: by key, by id, by deadline; and last words for the peers of those that are gone.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, VecDeque},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use slab::Slab;

use super::link::Link;
use crate::{Time, secure::Stats};

/// How long, and for how many sessions that are gone, the last datagram is kept for a peer that has not heard of the end.
const REMEMBER: Duration = Duration::from_secs(30);
const REMEMBER_MOST: usize = 4096;
/// A peer that goes on sending is told so often.
const SAY_AGAIN: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) link: Arc<Link>,
    id: u64,
    /// The earliest deadline in the heap for this session.
    scheduled: Option<Time>,
    /// Waits in the list of sessions to look at.
    pub(super) queued: bool,
    /// Something happened since the last sweep.
    pub(super) active: bool,
    /// When a session whose stream is gone is given up.
    pub(super) linger: Option<Time>,
    /// What of its figures is in the sums.
    pub(super) counted: Stats,
}

#[derive(Debug)]
struct Gone {
    at: Time,
    to: SocketAddr,
    farewell: Vec<u8>,
    said: Option<Time>,
}

#[derive(Debug, Default)]
pub(super) struct Table {
    entries: Slab<Entry>,
    by_id: HashMap<u64, usize>,
    deadlines: BinaryHeap<Reverse<(Time, usize)>>,
    gone: HashMap<u64, Gone>,
    gone_order: VecDeque<(Time, u64)>,
}

impl Table {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The key that the next [`Self::insert`] gives.
    pub(super) fn next_key(&self) -> usize {
        self.entries.vacant_key()
    }

    pub(super) fn knows(&self, id: u64) -> bool {
        self.by_id.contains_key(&id)
    }

    pub(super) fn insert(&mut self, link: Arc<Link>, id: u64) {
        let entry = Entry {
            link,
            id,
            scheduled: None,
            queued: false,
            active: true,
            linger: None,
            counted: Stats::default(),
        };
        let key = self.entries.insert(entry);
        self.by_id.insert(id, key);
    }

    pub(super) fn key(&self, id: u64) -> Option<usize> {
        self.by_id.get(&id).copied()
    }

    pub(super) fn get(&mut self, key: usize) -> Option<&mut Entry> {
        self.entries.get_mut(key)
    }

    pub(super) fn iter(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.entries.iter_mut().map(|(_, entry)| entry)
    }

    /// Takes a session out; `farewell` is what its peer is told if it goes on sending.
    pub(super) fn remove(
        &mut self,
        key: usize,
        now: Time,
        farewell: Option<(SocketAddr, Vec<u8>)>,
    ) -> Option<Entry> {
        let entry = self.entries.try_remove(key)?;
        self.by_id.remove(&entry.id);
        while let Some(&(at, id)) = self.gone_order.front()
            && (self.gone_order.len() >= REMEMBER_MOST || now.since(at) > REMEMBER)
        {
            self.gone_order.pop_front();
            if self.gone.get(&id).is_some_and(|gone| gone.at == at) {
                self.gone.remove(&id);
            }
        }
        if let Some((to, farewell)) = farewell {
            self.gone_order.push_back((now, entry.id));
            self.gone.insert(
                entry.id,
                Gone {
                    at: now,
                    to,
                    farewell,
                    said: None,
                },
            );
        }
        Some(entry)
    }

    /// What to say to the peer of a session that is gone and from which a datagram of `length` bytes came. The words go to where the peer
    /// was last, and are never longer than what they answer.
    pub(super) fn farewell(
        &mut self,
        id: u64,
        now: Time,
        length: usize,
    ) -> Option<(SocketAddr, Vec<u8>)> {
        let gone = self.gone.get_mut(&id)?;
        let soon = gone.said.is_some_and(|said| now.since(said) < SAY_AGAIN);
        if soon || now.since(gone.at) > REMEMBER || gone.farewell.len() > length {
            return None;
        }
        gone.said = Some(now);
        Some((gone.to, gone.farewell.clone()))
    }

    /// Makes sure that the session comes up at `at` or before.
    pub(super) fn schedule(&mut self, key: usize, at: Time) {
        if let Some(entry) = self.entries.get_mut(key)
            && entry.scheduled.is_none_or(|scheduled| at < scheduled)
        {
            entry.scheduled = Some(at);
            self.deadlines.push(Reverse((at, key)));
        }
    }

    /// The next session whose time has come. It may come up without reason, after its deadline moved.
    pub(super) fn expired(&mut self, now: Time) -> Option<usize> {
        let at = self.next_deadline().filter(|&at| at <= now)?;
        let Reverse((_, key)) = self.deadlines.pop()?;
        if let Some(entry) = self.entries.get_mut(key)
            && entry.scheduled == Some(at)
        {
            entry.scheduled = None;
        }
        Some(key)
    }

    /// When [`Self::expired`] will have something.
    pub(super) fn next_deadline(&mut self) -> Option<Time> {
        while let Some(&Reverse((at, key))) = self.deadlines.peek() {
            if self
                .entries
                .get(key)
                .is_some_and(|entry| entry.scheduled == Some(at))
            {
                return Some(at);
            }
            self.deadlines.pop();
        }
        None
    }
}

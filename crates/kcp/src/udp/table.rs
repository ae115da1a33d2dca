//! The driver's sessions: by key, by address, by deadline; and the memory of those that are gone.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, VecDeque},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use slab::Slab;

use super::link::Link;
use crate::{Time, arq::Conv};

/// How long a session that is gone is remembered, so that its peer's late datagrams do not make a new one.
const REMEMBER: Duration = Duration::from_secs(60);
/// Most that are remembered.
const REMEMBER_MOST: usize = 8192;

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) link: Arc<Link>,
    pub(super) conv: Conv,
    /// The earliest deadline in the heap for this session.
    scheduled: Option<Time>,
    /// Waits in the list of sessions to look at.
    pub(super) queued: bool,
    /// Something came or went since the last sweep.
    pub(super) active: bool,
    /// When a session whose handle is gone is given up.
    pub(super) linger: Option<Time>,
}

#[derive(Debug, Default)]
pub(super) struct Table {
    entries: Slab<Entry>,
    by_remote: HashMap<SocketAddr, usize>,
    deadlines: BinaryHeap<Reverse<(Time, usize)>>,
    gone: HashMap<(SocketAddr, Conv), Time>,
    /// The same by time.
    gone_order: VecDeque<(Time, SocketAddr, Conv)>,
}

impl Table {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The key that the next [`Self::insert`] gives.
    pub(super) fn next_key(&self) -> usize {
        self.entries.vacant_key()
    }

    pub(super) fn insert(&mut self, link: Arc<Link>, conv: Conv) {
        let remote = link.remote;
        let entry = Entry {
            link,
            conv,
            scheduled: None,
            queued: false,
            active: true,
            linger: None,
        };
        let key = self.entries.insert(entry);
        self.by_remote.insert(remote, key);
    }

    pub(super) fn get(&mut self, key: usize) -> Option<&mut Entry> {
        self.entries.get_mut(key)
    }

    pub(super) fn at(&self, remote: SocketAddr) -> Option<usize> {
        self.by_remote.get(&remote).copied()
    }

    pub(super) fn iter(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.entries.iter_mut().map(|(_, entry)| entry)
    }

    pub(super) fn remove(&mut self, key: usize, now: Time) -> Option<Entry> {
        let entry = self.entries.try_remove(key)?;
        let remote = entry.link.remote;
        if self.by_remote.get(&remote) == Some(&key) {
            self.by_remote.remove(&remote);
        }
        let (gone, order) = (&mut self.gone, &mut self.gone_order);
        while let Some(&(at, remote, conv)) = order.front()
            && (order.len() >= REMEMBER_MOST || now.since(at) > REMEMBER)
        {
            order.pop_front();
            if gone.get(&(remote, conv)) == Some(&at) {
                gone.remove(&(remote, conv));
            }
        }
        order.push_back((now, remote, entry.conv));
        gone.insert((remote, entry.conv), now);
        Some(entry)
    }

    /// Whether this session was here a short while ago.
    pub(super) fn is_gone(&self, remote: SocketAddr, conv: Conv, now: Time) -> bool {
        self.gone
            .get(&(remote, conv))
            .is_some_and(|&at| now.since(at) <= REMEMBER)
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
        while let Some(&Reverse((at, key))) = self.deadlines.peek() {
            if at > now {
                return None;
            }
            self.deadlines.pop();
            if let Some(entry) = self
                .entries
                .get_mut(key)
                .filter(|entry| entry.scheduled == Some(at))
            {
                entry.scheduled = None;
                return Some(key);
            }
        }
        None
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

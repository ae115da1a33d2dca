//! The driver's sessions by key and by deadline, and the memory of those that are gone.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, VecDeque},
    hash::Hash,
    sync::Arc,
    time::Duration,
};

use slab::Slab;

use super::{driver::Kind, link::Link};
use crate::Time;

/// A session as its driver knows it.
pub(super) struct Entry<K: Kind> {
    pub(super) link: Arc<Link<K>>,
    /// What its kind notes of it.
    pub(super) note: K::Note,
    /// The earliest deadline in the heap for this session.
    scheduled: Option<Time>,
    /// Waits in the list of sessions to look at.
    pub(super) queued: bool,
    /// Something happened since the last sweep.
    pub(super) active: bool,
    /// When a session whose handle is gone is given up.
    pub(super) linger: Option<Time>,
}

/// The sessions of a socket.
pub(super) struct Table<K: Kind> {
    entries: Slab<Entry<K>>,
    deadlines: BinaryHeap<Reverse<(Time, usize)>>,
}

impl<K: Kind> Default for Table<K> {
    fn default() -> Self {
        Self {
            entries: Slab::new(),
            deadlines: BinaryHeap::new(),
        }
    }
}

impl<K: Kind> Table<K> {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The key that the next [`Self::insert`] gives.
    pub(super) fn next_key(&self) -> usize {
        self.entries.vacant_key()
    }

    pub(super) fn insert(&mut self, link: Arc<Link<K>>, note: K::Note) {
        self.entries.insert(Entry {
            link,
            note,
            scheduled: None,
            queued: false,
            active: true,
            linger: None,
        });
    }

    pub(super) fn get(&mut self, key: usize) -> Option<&mut Entry<K>> {
        self.entries.get_mut(key)
    }

    pub(super) fn iter(&mut self) -> impl Iterator<Item = &mut Entry<K>> {
        self.entries.iter_mut().map(|(_, entry)| entry)
    }

    pub(super) fn remove(&mut self, key: usize) -> Option<Entry<K>> {
        self.entries.try_remove(key)
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
        self.next_deadline().filter(|&at| at <= now)?;
        let Reverse((_, key)) = self.deadlines.pop()?;
        if let Some(entry) = self.entries.get_mut(key) {
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

/// What is remembered of sessions that are gone, for a while and for the last of them only.
#[derive(Debug)]
pub(super) struct Gone<N, V> {
    keep: Duration,
    most: usize,
    by_name: HashMap<N, (Time, V)>,
    order: VecDeque<(Time, N)>,
}

impl<N: Copy + Eq + Hash, V> Gone<N, V> {
    /// Remembers `most` sessions, each for as long as `keep`.
    pub(super) fn new(keep: Duration, most: usize) -> Self {
        Self {
            keep,
            most,
            by_name: HashMap::new(),
            order: VecDeque::new(),
        }
    }

    pub(super) fn add(&mut self, now: Time, name: N, value: V) {
        while let Some(&(at, old)) = self.order.front()
            && (self.order.len() >= self.most || now.since(at) > self.keep)
        {
            self.order.pop_front();
            // It may have come and gone again since.
            if self.by_name.get(&old).is_some_and(|(then, _)| *then == at) {
                self.by_name.remove(&old);
            }
        }
        self.order.push_back((now, name));
        self.by_name.insert(name, (now, value));
    }

    pub(super) fn get(&mut self, now: Time, name: N) -> Option<&mut V> {
        let (at, value) = self.by_name.get_mut(&name)?;
        (now.since(*at) <= self.keep).then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gone_are_forgotten_with_time_and_for_newer_ones() {
        let mut gone = Gone::new(Duration::from_millis(100), 2);
        gone.add(Time::ZERO, 1, 'a');
        gone.add(Time::from_millis(50), 2, 'b');
        assert_eq!(gone.get(Time::from_millis(100), 1), Some(&mut 'a'));
        assert_eq!(gone.get(Time::from_millis(101), 1), None);
        gone.add(Time::from_millis(60), 3, 'c');
        assert_eq!(gone.get(Time::from_millis(60), 1), None);
        assert_eq!(gone.get(Time::from_millis(60), 2), Some(&mut 'b'));
        assert!(gone.order.len() <= 2 && gone.by_name.len() <= 2);
    }

    #[test]
    fn one_that_is_gone_again_is_remembered_from_then() {
        let mut gone = Gone::new(Duration::from_millis(100), 8);
        gone.add(Time::ZERO, 1, 'a');
        gone.add(Time::from_millis(90), 1, 'b');
        gone.add(Time::from_millis(150), 2, 'c');
        assert_eq!(gone.get(Time::from_millis(180), 1), Some(&mut 'b'));
    }
}

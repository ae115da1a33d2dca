//! Credit: what streams may send, who waits for it, and when it is given back.

use super::{Mux, frame, live};
use crate::{credit, frame::Kind, types::Key};

impl Mux {
    // The sending side.

    /// Bytes the stream may send: its credit, and no more in all than its share of the link's window.
    pub(super) fn capacity(&self, key: Key) -> usize {
        let Some(stream) = self.get(key) else {
            return 0;
        };
        let free = self.link.send_credit;
        let share = u64::from(credit::share(self.config.peer_link_window, free));
        let left = share.saturating_sub(stream.send.outstanding);
        let left = u32::try_from(left).unwrap_or(u32::MAX);
        left.min(free).min(stream.send.credit) as usize
    }

    /// Puts a stream that may send into the schedule.
    pub(super) fn enqueue(&mut self, key: Key) {
        self.unpark(key);
        if let Some(stream) = live(&mut self.streams, key) {
            stream.send.wants = false;
            self.schedule.push(key, &mut stream.standing);
        }
    }

    /// Lets a stream that may not send wait: for its own credit, or in `parked` for the link's window.
    pub(super) fn park(&mut self, key: Key) {
        let Some(stream) = live(&mut self.streams, key) else {
            return;
        };
        if stream.send.finished {
            return;
        }
        stream.send.wants = true;
        if stream.send.credit > 0 && stream.send.parked.is_none() {
            let place = stream.send.outstanding;
            stream.send.parked = Some(place);
            self.parked.insert((place, key.index));
        }
    }

    pub(super) fn unpark(&mut self, key: Key) {
        if let Some(stream) = live(&mut self.streams, key)
            && let Some(place) = stream.send.parked.take()
        {
            self.parked.remove(&(place, key.index));
        }
    }

    /// The stream got credit of its own.
    pub(super) fn wake(&mut self, key: Key) {
        if !self.get(key).is_some_and(|stream| stream.send.wants) {
            return;
        }
        self.unpark(key);
        if self.capacity(key) > 0 {
            self.enqueue(key);
        } else {
            self.park(key);
        }
    }

    /// Whether the link's window has room for the stream that waits for it and holds least.
    pub(super) fn may_admit(&self) -> bool {
        let free = self.link.send_credit;
        self.parked.first().is_some_and(|(held, _)| {
            free > 0 && *held < u64::from(credit::share(self.config.peer_link_window, free))
        })
    }

    /// Moves streams from `parked` into the schedule: two for each turn that is given out, so that they keep up with those that
    /// are scheduled, and a byte of credit does not wake everybody.
    pub(super) fn admit(&mut self) {
        for _ in 0..2 {
            if !self.may_admit() {
                return;
            }
            let Some((_, index)) = self.parked.pop_first() else {
                return;
            };
            if let Some(stream) = self.streams.get_mut(index as usize) {
                stream.send.parked = None;
                let key = Key {
                    index,
                    generation: stream.generation,
                };
                self.enqueue(key);
            }
        }
    }

    /// The stream will send nothing more.
    pub(super) fn withdraw(&mut self, key: Key) {
        self.unpark(key);
        let Some(stream) = live(&mut self.streams, key) else {
            return;
        };
        stream.send.wants = false;
        let mut standing = stream.standing;
        let streams = &self.streams;
        self.schedule.forget(&mut standing, |other| {
            other != key
                && streams.get(other.index as usize).is_some_and(|stream| {
                    stream.generation == other.generation && stream.standing.queued
                })
        });
        if let Some(stream) = live(&mut self.streams, key) {
            stream.standing = standing;
        }
    }

    // The receiving side.

    /// `n` bytes of the link's window are free again; gives them back if they are many, or much of what is left.
    pub(super) fn consumed_on_link(&mut self, n: u32) {
        let window = self.config.link_window;
        self.link.consumed = self.link.consumed.saturating_add(n);
        if self.link.consumed > credit::link_hold(window, self.link.receive_credit) {
            let credit = std::mem::take(&mut self.link.consumed);
            self.push_credit(0, 0, credit);
            self.link.receive_credit = self.link.receive_credit.saturating_add(credit);
            // Only up: a relief that is due stays due.
            let relief_at = credit::next_level_at(window, self.link.receive_credit);
            self.link.relief_at = self.link.relief_at.max(relief_at);
        }
    }

    /// Each time that shares shrink, gives back the credit held back on every stream: otherwise a stream whose reader is done
    /// could look to the peer as if it used more than its share, and wait for ever.
    pub(super) fn relieve(&mut self) {
        if self.link.receive_credit > self.link.relief_at {
            return;
        }
        self.link.relief_at =
            credit::next_level_at(self.config.link_window, self.link.receive_credit);
        while let Some(index) = self.holders.pop() {
            let Some(stream) = self.streams.get_mut(index as usize) else {
                continue;
            };
            stream.receive.holder = None;
            let id = stream.id;
            if let Some(credit) = stream.receive.release() {
                self.push_credit(id, 0, credit);
            }
        }
    }

    /// Keeps `holders` true after a stream's `held` has changed.
    pub(super) fn note_holder(&mut self, key: Key) {
        let Some(stream) = live(&mut self.streams, key) else {
            return;
        };
        let receive = &mut stream.receive;
        match receive.holder {
            None if receive.held > 0 => {
                receive.holder = u32::try_from(self.holders.len()).ok();
                self.holders.push(key.index);
            }
            Some(place) if receive.held == 0 => {
                receive.holder = None;
                self.drop_holder(place);
            }
            _ => {}
        }
    }

    pub(super) fn drop_holder(&mut self, place: u32) {
        self.holders.swap_remove(place as usize);
        if let Some(moved) = self.holders.get(place as usize)
            && let Some(stream) = self.streams.get_mut(*moved as usize)
        {
            stream.receive.holder = Some(place);
        }
    }

    pub(super) fn push_credit(&mut self, id: u32, flags: u8, credit: u32) {
        let frame = frame(Kind::Credit, flags, id, 4);
        self.output.push(frame, &[&credit.to_be_bytes()]);
    }
}

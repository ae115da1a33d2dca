//! Streams whose reader does not keep up. Each may hold a stream's window of the link's window, and QUIC cannot take a window back; without
//! a bound, enough visitors who do not read would stop all others. So when those that stall might together hold three quarters of
//! the link's window, the one that has taken nothing for the longest is given up.

use std::{collections::BTreeMap, rc::Rc};

use super::{
    link::Slot,
    windows::{LINK_WINDOW, STREAM_WINDOW},
};

#[derive(Debug, Default)]
pub(crate) struct Stalled {
    next: u64,
    /// By the time of their last progress.
    waiting: BTreeMap<u64, Rc<Slot>>,
}

impl Stalled {
    /// The stream's reader takes nothing now. Returns whoever must be given up for it.
    pub(crate) fn enter(&mut self, slot: &Rc<Slot>) -> Option<Rc<Slot>> {
        if slot.stalled.get().is_some() {
            return None;
        }
        self.next += 1;
        slot.stalled.set(Some(self.next));
        self.waiting.insert(self.next, Rc::clone(slot));
        if self.waiting.len() <= MOST {
            return None;
        }
        let (_, longest) = self.waiting.pop_first()?;
        longest.stalled.set(None);
        Some(longest)
    }

    /// The stream's reader took something, or the stream has ended.
    pub(crate) fn leave(&mut self, slot: &Slot) {
        if let Some(number) = slot.stalled.take() {
            self.waiting.remove(&number);
        }
    }
}

/// Streams that may stall at a time.
const MOST: usize = (LINK_WINDOW / STREAM_WINDOW) as usize * 3 / 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_that_has_waited_longest_is_given_up_and_progress_counts() {
        let mut stalled = Stalled::default();
        let slots: Vec<Rc<Slot>> = (0..=MOST).map(|_| Rc::default()).collect();
        for slot in &slots[..MOST] {
            assert!(stalled.enter(slot).is_none());
            assert!(stalled.enter(slot).is_none(), "counts once");
        }
        // The first one takes something and stalls again.
        stalled.leave(&slots[0]);
        assert!(stalled.enter(&slots[0]).is_none());
        let given_up = stalled.enter(&slots[MOST]).expect("one too many");
        assert!(Rc::ptr_eq(&given_up, &slots[1]));
    }
}

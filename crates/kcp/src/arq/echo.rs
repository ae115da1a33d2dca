//! Small segments ride along in the datagrams that follow theirs, on a path that has lost something lately.
//!
//! A session that says little cannot repair a loss before a round trip has passed, and two before a second one. But its
//! datagrams are nearly empty: a segment that goes out once more with each of the next two costs bytes and no packets, and is lost only
//! if three datagrams in a row are. kcp-go has nothing like it; it takes the copies as what they are, segments that came again.

use std::collections::VecDeque;

use super::segment::Sn;

/// Largest payload in bytes that is worth it.
const SMALL: usize = 256;
/// Bytes of copies in a datagram, headers included.
const BUDGET: usize = 512;
/// Copies of a segment beside the one that was sent.
const COPIES: u8 = 2;
/// Segments that wait to be copied at most.
const WAITING: usize = 8;
/// For so many segments a loss makes the path count as lossy: at 10 % and three in a row, the next one is due before.
const MEMORY: u32 = 2000;

/// Which segments go out once more with the next datagram.
#[derive(Debug, Default)]
pub(super) struct Echo {
    /// Transmissions by order, the newest last, and the copies to come.
    waiting: VecDeque<(u64, Sn, u8)>,
    /// Segments until the path counts as sound again.
    lossy: u32,
}

impl Echo {
    /// A segment was lost.
    pub(super) fn lost(&mut self) {
        self.lossy = MEMORY;
    }

    /// A segment goes out whose payload has so many bytes; `order` is the transmission's.
    pub(super) fn sent(&mut self, order: u64, sn: Sn, payload: usize) {
        if self.lossy == 0 {
            return;
        }
        self.lossy -= 1;
        if payload > SMALL {
            return;
        }
        if self.waiting.len() == WAITING {
            self.waiting.pop_front();
        }
        self.waiting.push_back((order, sn, COPIES));
    }

    /// Takes the next one to be copied into a datagram whose own segments begin with order `own` and which has `room` bytes and
    /// `copied` bytes of copies. `size` gives the bytes that a transmission takes, if it is still out. `after` is what was given last.
    pub(super) fn take(
        &mut self,
        own: u64,
        after: Option<u64>,
        (room, copied): (usize, usize),
        size: impl Fn(u64, Sn) -> Option<usize>,
    ) -> Option<(u64, Sn)> {
        self.waiting
            .retain(|&(order, sn, left)| left > 0 && size(order, sn).is_some());
        let room = room.min(BUDGET.saturating_sub(copied));
        let before = after.unwrap_or(own);
        // The newest first: of the others the peer may have told by the next time.
        let (order, sn, left) = self.waiting.iter_mut().rev().find(|(order, sn, _)| {
            *order < before && size(*order, *sn).is_some_and(|size| size <= room)
        })?;
        *left -= 1;
        Some((*order, *sn))
    }

    /// Gives back its memory: nothing is in flight.
    pub(super) fn clear(&mut self) {
        self.waiting = VecDeque::new();
    }
}

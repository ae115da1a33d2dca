//! Datagrams of UDP visitors (RFC 9221): the number of the visitor's stream as a variable-length integer, then the payload. What is
//! received for a stream waits for its reader, within bounds; the rest is lost, as datagrams are.

use std::{
    cell::RefCell,
    collections::{HashMap, VecDeque},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use quinn::VarInt;

use super::{
    fec::{self, Receiver},
    link::Shared,
};

/// The datagrams of one stream.
pub(crate) struct Channel {
    shared: Rc<Shared>,
    id: u64,
    queue: Rc<RefCell<Queue>>,
}

#[derive(Debug, Default)]
struct Queue {
    datagrams: VecDeque<Bytes>,
    reader: Option<Waker>,
}

/// All of a link.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    open: HashMap<u64, Rc<RefCell<Queue>>>,
    /// For streams that are not known yet: their first bytes may come later.
    early: VecDeque<(u64, Bytes)>,
    repair: Receiver,
    /// What it has repaired, for other threads.
    repaired: Arc<AtomicU64>,
}

impl Channels {
    /// A datagram that has come.
    pub(super) fn deliver(&mut self, datagram: Bytes) {
        if !matches!(datagram.first(), Some(&(fec::DATA | fec::PARITY))) {
            return self.sort(datagram);
        }
        let mut repair = std::mem::take(&mut self.repair);
        repair.receive(datagram, |datagram| self.sort(datagram));
        self.repaired.store(repair.repaired(), Relaxed);
        self.repair = repair;
    }

    /// Datagrams that were lost and repaired: a counter that goes on.
    pub(super) fn repaired(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.repaired)
    }

    fn sort(&mut self, mut datagram: Bytes) {
        let Some(id) = take_varint(&mut datagram) else {
            return;
        };
        let Some(queue) = self.open.get(&id) else {
            if self.early.len() >= MOST_EARLY {
                self.early.pop_front();
            }
            // A copy: what came with it, tens of kilobytes at times, must not be kept for as long.
            self.early
                .push_back((id, Bytes::copy_from_slice(&datagram)));
            return;
        };
        let mut queue = queue.borrow_mut();
        if queue.datagrams.len() < MOST_WAITING {
            queue.datagrams.push_back(datagram);
        }
        if let Some(reader) = queue.reader.take() {
            reader.wake();
        }
    }

    pub(super) fn clear(&mut self) {
        self.early.clear();
        for (_, queue) in self.open.drain() {
            if let Some(reader) = queue.borrow_mut().reader.take() {
                reader.wake();
            }
        }
    }
}

impl Channel {
    /// `None` when the peer takes no datagrams.
    pub(super) fn open(shared: &Rc<Shared>, id: u64) -> Option<Self> {
        shared.connection.max_datagram_size()?;
        let queue: Rc<RefCell<Queue>> = Rc::default();
        let mut channels = shared.channels.borrow_mut();
        channels.open.insert(id, Rc::clone(&queue));
        {
            let mut queue = queue.borrow_mut();
            channels.early.retain(|(of, datagram)| {
                if *of == id {
                    queue.datagrams.push_back(datagram.clone());
                }
                *of != id
            });
        }
        Some(Self {
            shared: Rc::clone(shared),
            id,
            queue,
        })
    }

    /// Sends the datagram if it fits into one; what cannot go now takes the place of what has waited longest.
    pub(crate) fn send(&self, datagram: &[u8]) -> bool {
        let connection = &self.shared.connection;
        let most = connection.max_datagram_size().unwrap_or(0);
        if datagram.len() + VARINT > most {
            return false;
        }
        let mut bytes = BytesMut::with_capacity(VARINT + datagram.len());
        put_varint(self.id, &mut bytes);
        bytes.extend_from_slice(datagram);
        if bytes.len() + fec::OVERHEAD <= most
            && let Some(cover) = &self.shared.cover
        {
            cover.send(&bytes);
            return true;
        }
        connection.send_datagram(bytes.freeze()).is_ok()
    }

    pub(crate) fn poll_receive(&self, cx: &Context<'_>) -> Poll<Bytes> {
        let mut queue = self.queue.borrow_mut();
        match queue.datagrams.pop_front() {
            Some(datagram) => Poll::Ready(datagram),
            None => {
                queue.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.shared.channels.borrow_mut().open.remove(&self.id);
    }
}

/// RFC 9000 §16.
fn take_varint(bytes: &mut Bytes) -> Option<u64> {
    let first = *bytes.first()?;
    let length = 1_usize << (first >> 6);
    if bytes.len() < length {
        return None;
    }
    let mut value = u64::from(first & 0x3f);
    bytes.advance(1);
    for _ in 1..length {
        value = value << 8 | u64::from(bytes.get_u8());
    }
    Some(value)
}

/// Of a stream's number, which is below 2^62 (RFC 9000 §2.1).
fn put_varint(value: u64, out: &mut BytesMut) {
    debug_assert!(value <= VarInt::MAX.into_inner());
    match value {
        0..0x40 => out.put_u8(value as u8),
        0x40..0x4000 => out.put_u16(0x4000 | value as u16),
        0x4000..0x4000_0000 => out.put_u32(0x8000_0000 | value as u32),
        _ => out.put_u64(0xc000_0000_0000_0000 | value),
    }
}

/// The longest number.
const VARINT: usize = 8;
/// Datagrams that wait for one reader.
const MOST_WAITING: usize = 64;
/// Datagrams that wait for their stream.
const MOST_EARLY: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_rfc_9000_says() {
        // RFC 9000 §A.1.
        let examples: [(u64, &[u8]); 4] = [
            (
                151_288_809_941_952_652,
                &[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c],
            ),
            (494_878_333, &[0x9d, 0x7f, 0x3e, 0x7d]),
            (15_293, &[0x7b, 0xbd]),
            (37, &[0x25]),
        ];
        for (value, wire) in examples {
            let mut out = BytesMut::new();
            put_varint(value, &mut out);
            assert_eq!(out, wire);
            assert_eq!(take_varint(&mut out.freeze()), Some(value));
        }
    }

    #[test]
    fn a_number_that_is_cut_short_is_no_number() {
        for wire in [&[][..], &[0x40], &[0x80, 1, 2], &[0xc0, 1, 2, 3, 4, 5, 6]] {
            assert_eq!(take_varint(&mut Bytes::copy_from_slice(wire)), None);
        }
    }

    #[test]
    fn strangers_datagrams_are_kept_within_bounds() {
        let mut channels = Channels::default();
        for n in 0..1000_u64 {
            let mut datagram = BytesMut::new();
            put_varint(n, &mut datagram);
            channels.deliver(datagram.freeze());
        }
        assert_eq!(channels.early.len(), MOST_EARLY);
    }
}

//! What the peer's frames do. Every byte here is the peer's choice: what it may not do is a `Violation`, what it does without need
//! costs it at least as many bytes as it causes.

use super::Smux;
use crate::{
    smux::{
        frame::Command,
        types::{Version, Violation},
    },
    types::Key,
};

impl Smux {
    pub(super) fn opened(&mut self, id: u32) -> Result<Option<Key>, Violation> {
        // Go's ids may come out of order, as its streams are numbered before they take their turn to write.
        if id == 0 || id % 2 != self.peer_parity || self.by_id.contains_key(&id) {
            return Err(Violation::BadStreamId(id));
        }
        if self.streams.len() >= self.config.max_streams {
            self.push(Command::Fin, id, &[]);
            return Ok(None);
        }
        Ok(Some(self.insert(id)))
    }

    pub(super) fn data(&mut self, id: u32, n: usize) -> Result<Option<Key>, Violation> {
        let version: Version = self.config.version;
        // A stream that this end has closed; the peer cannot know yet, or never does.
        let Some((key, stream)) = self.by_id(id) else {
            return Ok(None);
        };
        // In Go a stream that is closed while it writes may do this.
        if stream.receive.finished {
            return Ok(None);
        }
        stream.receive.received(version, id, n)?;
        self.unconsumed += n;
        Ok(Some(key))
    }

    pub(super) fn finished(&mut self, id: u32) -> Option<Key> {
        let (key, stream) = self.by_id(id)?;
        if std::mem::replace(&mut stream.receive.finished, true) {
            return None;
        }
        self.remove_if_over(key);
        Some(key)
    }

    pub(super) fn updated(&mut self, id: u32, consumed: u32, window: u32) -> Result<(), Violation> {
        let version: Version = self.config.version;
        let Some((key, stream)) = self.by_id(id) else {
            return Ok(());
        };
        stream.send.update(id, consumed, window)?;
        if stream.send.wants && stream.send.capacity(version) > 0 {
            stream.send.wants = false;
            if let Some(stream) = super::live(&mut self.streams, key) {
                self.schedule.push(key, &mut stream.standing);
            }
        }
        Ok(())
    }
}

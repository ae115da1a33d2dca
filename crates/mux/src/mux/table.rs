//! The table of streams: by key for the caller, by wire id for the peer.

use std::time::Duration;

use super::{Mux, live};
use crate::{
    stream::Stream,
    types::{Config, Key},
};

impl Mux {
    pub(super) fn insert(&mut self, id: u32, now: Duration) -> Key {
        self.generation = self.generation.wrapping_add(1);
        let Config {
            peer_stream_window,
            stream_window,
            ..
        } = self.config;
        let (silence, _) = self.clock.path.silence();
        let stream = Stream::new(
            id,
            self.generation,
            peer_stream_window,
            stream_window,
            silence,
            now,
        );
        let index = u32::try_from(self.streams.insert(stream)).unwrap_or(u32::MAX);
        self.by_id.insert(id, index);
        Key {
            index,
            generation: self.generation,
        }
    }

    pub(super) fn remove_if_over(&mut self, key: Key) {
        if self.get(key).is_some_and(Stream::is_over) {
            self.remove(key);
        }
    }

    /// Forgets a stream; what it held of the link's window is free again.
    pub(super) fn remove(&mut self, key: Key) {
        self.withdraw(key);
        let stream = self.streams.remove(key.index as usize);
        self.by_id.remove(&stream.id);
        if let Some(place) = stream.receive.holder {
            self.drop_holder(place);
        }
        self.consumed_on_link(stream.receive.unconsumed);
    }

    pub(super) fn by_id(&self, id: u32) -> Option<Key> {
        let index = *self.by_id.get(&id)?;
        Some(Key {
            index,
            generation: self.streams.get(index as usize)?.generation,
        })
    }

    pub(super) fn get(&self, key: Key) -> Option<&Stream> {
        self.streams
            .get(key.index as usize)
            .filter(|stream| stream.generation == key.generation)
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut Stream> {
        live(&mut self.streams, key)
    }
}

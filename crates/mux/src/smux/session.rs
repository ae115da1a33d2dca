//! The streams of one session: calls in, frames out. What the peer's frames do is in `incoming`.

mod incoming;

use std::{collections::HashMap, convert::Infallible, time::Duration};

use slab::Slab;

use super::{
    decode::{Decoder, Piece},
    frame::{Command, Header},
    stream::{INITIAL_WINDOW, Stream},
    types::{Config, Event, OpenError, Version, Violation},
};
use crate::{
    output::Output,
    schedule::Schedule,
    types::{Dead, Key, Side, Turn},
};

/// One end of a smux session. See the module's head for the order of calls.
///
/// Times are durations since an origin of the caller's choice; they must not go back.
#[derive(Debug)]
pub struct Smux {
    config: Config,
    /// `None` when all ids have been used.
    next_id: Option<u32>,
    peer_parity: u32,
    generation: u32,
    streams: Slab<Stream>,
    by_id: HashMap<u32, u32>,
    schedule: Schedule,
    decoder: Decoder,
    output: Output,
    /// Bytes of all streams that the caller holds.
    unconsumed: usize,
    /// Windows of all streams.
    promised: usize,
    /// When the peer was last heard, or could be heard again.
    received_at: Duration,
    ping_at: Duration,
    /// Streams whose sending was given up; the caller does not know yet.
    given_up: Vec<Key>,
}

impl Smux {
    /// A session on which nothing was sent yet.
    #[must_use]
    pub fn new(side: Side, config: Config, now: Duration) -> Self {
        let config = config.checked();
        let (first, peer_parity) = match side {
            Side::Initiator => (3, 0),
            Side::Acceptor => (2, 1),
        };
        Self {
            next_id: Some(first),
            peer_parity,
            generation: 0,
            streams: Slab::new(),
            by_id: HashMap::new(),
            schedule: Schedule::default(),
            decoder: Decoder::new(config.version),
            output: Output::default(),
            unconsumed: 0,
            promised: 0,
            received_at: now,
            ping_at: now.saturating_add(config.keep_alive),
            given_up: Vec::new(),
            config,
        }
    }

    /// Opens a stream. While [`Smux::output_len`] is more than a few times the output limit, callers should wait with opening.
    pub fn open(&mut self) -> Result<Key, OpenError> {
        if self.streams.len() >= self.config.max_streams {
            return Err(OpenError::TooManyStreams);
        }
        let id = self.next_id.ok_or(OpenError::IdsUsedUp)?;
        self.next_id = id.checked_add(2);
        self.push(Command::Syn, id, &[]);
        let key = self.insert(id);
        // A large window is of use in the first round trip. The acceptor tells its own with the first bytes consumed only: Go
        // forgets what it hears of a stream before its own call to open one has returned.
        if self.config.stream_buffer != INITIAL_WINDOW {
            self.announce(key);
        }
        Ok(key)
    }

    /// Asks for the stream's turn to send. After [`Turn::Later`] there is no need to ask again.
    pub fn request(&mut self, key: Key) -> Turn {
        let uncontended = self.room() > 0 && !self.has_waiting();
        let version = self.config.version;
        let Some(stream) = live(&mut self.streams, key) else {
            return Turn::Gone;
        };
        if stream.send.finished {
            return Turn::Gone;
        }
        let capacity = stream.send.capacity(version);
        if capacity == 0 {
            stream.send.wants = true;
            return Turn::Later;
        }
        if uncontended && !stream.standing.queued {
            let allowance = stream.standing.allowance();
            return Turn::Now(self.limit(capacity, allowance));
        }
        self.schedule.push(key, &mut stream.standing);
        Turn::Later
    }

    /// The stream whose turn it is and how many bytes it may send; `None` while the output is full or nobody waits. A stream that
    /// has more to send than it did in its turn asks again.
    pub fn next_turn(&mut self) -> Option<(Key, usize)> {
        while self.room() > 0 {
            let key = self.schedule.pop()?;
            let stream = live(&mut self.streams, key).filter(|stream| stream.standing.queued);
            let Some(stream) = stream else {
                self.schedule.was_stale();
                continue;
            };
            stream.standing.queued = false;
            let allowance = stream.standing.allowance();
            let capacity = stream.send.capacity(self.config.version);
            if capacity == 0 {
                stream.send.wants = true;
                continue;
            }
            return Some((key, self.limit(capacity, allowance)));
        }
        None
    }

    /// Whether a stream waits for its turn.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        !self.schedule.is_empty()
    }

    /// Lets `fill` put up to `limit` bytes (what a turn allowed) of the stream straight into the output. Returns what `fill`
    /// returned; on `Err` or 0 nothing is sent.
    pub fn send_with<E>(
        &mut self,
        key: Key,
        limit: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let version = self.config.version;
        let Some(stream) = live(&mut self.streams, key) else {
            return Ok(0);
        };
        let limit = limit
            .min(stream.send.capacity(version))
            .min(usize::from(self.config.max_frame));
        if limit == 0 || stream.send.finished {
            return Ok(0);
        }
        let id = stream.id;
        let seal = |length| Header {
            version,
            command: Command::Psh,
            length,
            stream: id,
        };
        let sent = self.output.push_with(limit, fill, seal)?;
        stream.send.sent(sent);
        self.schedule.sent(&mut stream.standing, sent);
        Ok(sent)
    }

    /// Sends as much of `bytes` as a turn of the stream allows now; returns how much. For callers that hold the bytes already.
    pub fn send(&mut self, key: Key, bytes: &[u8]) -> usize {
        let mut sent = 0;
        while sent < bytes.len() {
            let Turn::Now(limit) = self.request(key) else {
                break;
            };
            match self.send_turn(key, limit, &bytes[sent..]) {
                0 => break,
                n => sent += n,
            }
        }
        sent
    }

    /// Sends the front of `bytes` in a turn of `limit` bytes; returns how much.
    pub fn send_turn(&mut self, key: Key, limit: usize, bytes: &[u8]) -> usize {
        let copied: Result<usize, Infallible> =
            self.send_with(key, limit.min(bytes.len()), |room| {
                room.copy_from_slice(&bytes[..room.len()]);
                Ok(room.len())
            });
        match copied {
            Ok(n) => n,
        }
    }

    /// Nothing more is sent on the stream; the peer reads to the end of what was. What the peer sends still comes, if it does: see
    /// the module's head.
    pub fn finish(&mut self, key: Key) {
        let Some(stream) = live(&mut self.streams, key) else {
            return;
        };
        if std::mem::replace(&mut stream.send.finished, true) {
            return;
        }
        let id = stream.id;
        self.withdraw(key);
        self.push(Command::Fin, id, &[]);
        self.remove_if_over(key);
    }

    /// Gives the stream up in both directions; the key is dead. Bytes not passed on are forgotten, bytes that still come ignored.
    pub fn close(&mut self, key: Key, now: Duration) {
        self.finish(key);
        if live(&mut self.streams, key).is_some() {
            let unconsumed = self.remove(key);
            self.free(unconsumed, now);
        }
    }

    /// `n` bytes that came as [`Event::Data`] were passed on: makes room for more. More than came count as what came.
    pub fn consumed(&mut self, key: Key, n: usize, now: Duration) {
        let Some(stream) = live(&mut self.streams, key) else {
            return;
        };
        let n = n.min(stream.receive.unconsumed);
        let tell = stream.receive.consume(n);
        if tell {
            self.announce(key);
        }
        self.free(n, now);
        self.remove_if_over(key);
    }

    /// How many bytes may be read from the transport now: what is left of [`Config::receive_buffer`].
    #[must_use]
    pub fn read_budget(&self) -> usize {
        self.config.receive_buffer.saturating_sub(self.unconsumed)
    }

    /// Takes bytes of the transport, however fragmented; `input` is shortened by what was used. Call until it returns `None`.
    pub fn receive<'i>(
        &mut self,
        input: &mut &'i [u8],
        now: Duration,
    ) -> Result<Option<Event<'i>>, Violation> {
        if !input.is_empty() {
            self.received_at = now;
        }
        while let Some(piece) = self.decoder.next(input)? {
            let event = match piece {
                Piece::Open(id) => self.opened(id)?.map(|key| Event::Opened { key }),
                Piece::Data(id, bytes) => self
                    .data(id, bytes.len())?
                    .map(|key| Event::Data { key, bytes }),
                Piece::End(id) => self.finished(id).map(|key| Event::Finished { key }),
                Piece::Update {
                    stream,
                    consumed,
                    window,
                } => {
                    self.updated(stream, consumed, window)?;
                    None
                }
            };
            if event.is_some() {
                return Ok(event);
            }
        }
        Ok(None)
    }

    /// What waits for the transport.
    #[must_use]
    pub fn output(&self) -> &[u8] {
        self.output.bytes()
    }

    /// Bytes of frames that wait for the transport.
    #[must_use]
    pub fn output_len(&self) -> usize {
        self.output.len()
    }

    /// The transport took `n` bytes of [`Smux::output`].
    pub fn advance(&mut self, n: usize) {
        self.output.advance(n);
    }

    /// When [`Smux::on_timeout`] is due.
    #[must_use]
    pub fn next_timeout(&self) -> Duration {
        if self.read_budget() == 0 {
            return self.ping_at;
        }
        self.ping_at.min(self.silent_at())
    }

    /// Shows life to the peer, looks for streams that will never be able to send, and gives idle memory back. Receive what the
    /// transport holds before calling this. A peer that this end does not read from, for want of room, is not called dead.
    pub fn on_timeout(&mut self, now: Duration) -> Result<(), Dead> {
        if self.read_budget() > 0 && now >= self.silent_at() {
            return Err(Dead {
                silence: now.saturating_sub(self.received_at),
            });
        }
        if now < self.ping_at {
            return Ok(());
        }
        self.ping_at = now.saturating_add(self.config.keep_alive);
        self.output.release();
        // Bytes that wait already will show life, and a transport that takes nothing must not gather more.
        if self.output.len() == 0 {
            self.push(Command::Nop, 0, &[]);
        }
        self.give_up_stuck(now);
        Ok(())
    }

    /// A stream whose sending was given up, because its peer has finished and opened no window for [`Config::linger`]. It counts
    /// as finished by this end; what its caller still had to send is lost.
    pub fn next_given_up(&mut self) -> Option<Key> {
        self.given_up.pop()
    }

    /// Streams that are open, or hold bytes that were not passed on.
    #[must_use]
    pub fn stream_count(&self) -> usize {
        self.streams.len()
    }

    fn give_up_stuck(&mut self, now: Duration) {
        let linger = self.config.linger;
        let generation_of = |(index, stream): (usize, &mut Stream)| {
            let stuck = stream.is_stuck(now, linger);
            stuck.then_some(Key {
                index: index as u32,
                generation: stream.generation,
            })
        };
        let stuck: Vec<Key> = self.streams.iter_mut().filter_map(generation_of).collect();
        for key in stuck {
            self.finish(key);
            self.given_up.push(key);
        }
    }

    fn insert(&mut self, id: u32) -> Key {
        self.generation = self.generation.wrapping_add(1);
        let stream = Stream::new(id, self.generation);
        let index = u32::try_from(self.streams.insert(stream)).unwrap_or(u32::MAX);
        self.by_id.insert(id, index);
        self.promised += INITIAL_WINDOW as usize;
        Key {
            index,
            generation: self.generation,
        }
    }

    /// Tells the peer what was consumed of the stream, and its window.
    fn announce(&mut self, key: Key) {
        if self.config.version == Version::V1 {
            return;
        }
        let Some(stream) = live(&mut self.streams, key) else {
            return;
        };
        let old = stream.receive.window as usize;
        let window = window(&self.config, self.promised - old);
        let consumed = stream.receive.announce(window);
        let id = stream.id;
        self.promised = self.promised - old + window as usize;
        self.push(
            Command::Upd,
            id,
            &[&consumed.to_le_bytes(), &window.to_le_bytes()],
        );
    }

    /// The caller holds `n` bytes less.
    fn free(&mut self, n: usize, now: Duration) {
        let was_full = self.read_budget() == 0;
        self.unconsumed -= n;
        if was_full && self.read_budget() > 0 {
            self.received_at = self.received_at.max(now);
        }
    }

    fn remove_if_over(&mut self, key: Key) {
        if live(&mut self.streams, key).is_some_and(|stream| stream.is_over()) {
            self.remove(key);
        }
    }

    /// Forgets a live stream; tells how many bytes of it the caller holds.
    fn remove(&mut self, key: Key) -> usize {
        let stream = self.streams.remove(key.index as usize);
        self.by_id.remove(&stream.id);
        self.promised -= stream.receive.window as usize;
        stream.receive.unconsumed
    }

    /// The stream needs no turn any more.
    fn withdraw(&mut self, key: Key) {
        let Some(stream) = live(&mut self.streams, key) else {
            return;
        };
        stream.send.wants = false;
        let mut standing = stream.standing;
        let streams = &self.streams;
        self.schedule.forget(&mut standing, |key| {
            streams
                .get(key.index as usize)
                .is_some_and(|s| s.generation == key.generation && !s.send.finished)
        });
        if let Some(stream) = live(&mut self.streams, key) {
            stream.standing = standing;
        }
    }

    fn push(&mut self, command: Command, stream: u32, parts: &[&[u8]]) {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let header = Header {
            version: self.config.version,
            command,
            length: u16::try_from(length).unwrap_or(u16::MAX),
            stream,
        };
        self.output.push(header, parts);
    }

    fn by_id(&mut self, id: u32) -> Option<(Key, &mut Stream)> {
        let index = *self.by_id.get(&id)?;
        let stream = self.streams.get_mut(index as usize)?;
        let generation = stream.generation;
        Some((Key { index, generation }, stream))
    }

    fn silent_at(&self) -> Duration {
        self.received_at
            .saturating_add(self.config.keep_alive_timeout)
    }

    /// Bytes until the output is full.
    fn room(&self) -> usize {
        self.config.output_limit.saturating_sub(self.output.len())
    }

    fn limit(&self, capacity: usize, allowance: usize) -> usize {
        let room = self.room().max(LEAST_SENT);
        capacity
            .min(allowance)
            .min(room)
            .min(usize::from(self.config.max_frame))
    }
}

/// The window of a stream when the others have been promised so much: a quarter of what is left of the buffer. If windows together
/// were larger than the buffer, streams that are not read could fill it; then nothing is read from the transport, not even
/// the windows that their readers may wait for to write on. Not less than what a peer assumes of a new stream anyway.
fn window(config: &Config, others: usize) -> u32 {
    let share = config.receive_buffer.saturating_sub(others) / 4;
    let share = u32::try_from(share).unwrap_or(u32::MAX);
    share.max(INITIAL_WINDOW).min(config.stream_buffer)
}

/// The stream that a key names, if it has not ended.
fn live(streams: &mut Slab<Stream>, key: Key) -> Option<&mut Stream> {
    streams
        .get_mut(key.index as usize)
        .filter(|stream| stream.generation == key.generation)
}

/// The output limit may be passed by so many bytes, so that a nearly full output does not cut streams into tiny frames.
const LEAST_SENT: usize = 4 << 10;

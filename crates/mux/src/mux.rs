//! The streams of one link: frames in, events out; calls in, frames out.

use std::{collections::HashMap, time::Duration};

use slab::Slab;

use crate::{
    decode::{Decoder, Piece},
    frame::{ACK, FIN, Header, Kind, MAX_HEADER, MAX_PAYLOAD},
    output::Output,
    schedule::Schedule,
    stream::Stream,
    types::{Config, Dead, Event, Key, OpenError, Reason, Side, Turn, Violation},
};

/// The multiplexer of one link. See the crate's head for the order of calls.
///
/// Times are durations since an origin of the caller's choice; they must not go back.
#[derive(Debug)]
pub struct Mux {
    config: Config,
    next_id: u32,
    peer_parity: u32,
    generation: u32,
    streams: Slab<Stream>,
    by_id: HashMap<u32, u32>,
    schedule: Schedule,
    decoder: Decoder,
    output: Output,
    link: Link,
    clock: Clock,
    /// The answer owed to the peer's latest ping: one, so that a flood of pings grows nothing.
    pong: Option<[u8; 8]>,
}

/// Credit of the link as a whole.
#[derive(Debug)]
struct Link {
    /// Bytes this end may send.
    send_credit: u32,
    /// Bytes the peer may send.
    receive_credit: u32,
    /// Bytes passed on for which no credit was given back.
    consumed: u32,
    /// When the peer's credit falls below this, all credit held back is given: see `Mux::relieve`.
    relief_below: u32,
}

#[derive(Debug)]
struct Clock {
    received_at: Duration,
    ping_at: Duration,
    /// Smoothed; zero until the first answer.
    round_trip: Duration,
}

impl Mux {
    /// A link on which nothing was sent yet. The first ping is due at once, so that the round trip is known early.
    #[must_use]
    pub fn new(side: Side, config: Config, now: Duration) -> Self {
        let (next_id, peer_parity) = match side {
            Side::Initiator => (1, 0),
            Side::Acceptor => (2, 1),
        };
        Self {
            next_id,
            peer_parity,
            generation: 0,
            streams: Slab::new(),
            by_id: HashMap::new(),
            schedule: Schedule::default(),
            decoder: Decoder::default(),
            output: Output::default(),
            link: Link {
                send_credit: config.peer_link_window,
                receive_credit: config.link_window,
                consumed: 0,
                relief_below: config.link_window / 2,
            },
            clock: Clock {
                received_at: now,
                ping_at: now,
                round_trip: Duration::ZERO,
            },
            pong: None,
            config,
        }
    }

    /// Opens a stream with a header of at most [`MAX_HEADER`] bytes and as much of `first` as credit allows; returns how much
    /// that was. The peer learns of both with one frame.
    pub fn open(
        &mut self,
        header: &[u8],
        first: &[u8],
        now: Duration,
    ) -> Result<(Key, usize), OpenError> {
        if header.len() > MAX_HEADER {
            return Err(OpenError::HeaderTooLong);
        }
        if self.streams.len() >= self.config.max_streams {
            return Err(OpenError::TooManyStreams);
        }
        // Ids come round after 2^31 streams; the few that are still open then are passed over.
        while self.by_id.contains_key(&self.next_id) || self.next_id == 0 {
            self.next_id = self.next_id.wrapping_add(2);
        }
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(2);
        let key = self.insert(id, now);
        let room = MAX_PAYLOAD - 2 - header.len();
        let first = &first[..first.len().min(room).min(self.capacity(key))];
        let length = u16::try_from(header.len()).unwrap_or(u16::MAX);
        let frame = self.frame(Kind::Open, 0, id, 2 + header.len() + first.len());
        self.output
            .push(frame, &[&length.to_be_bytes(), header, first]);
        self.sent(key, first.len());
        Ok((key, first.len()))
    }

    /// Asks for the stream's turn to send. After [`Turn::Later`] there is no need to ask again.
    pub fn request(&mut self, key: Key) -> Turn {
        let capacity = self.capacity(key);
        let uncontended = self.schedule.is_empty() && self.has_room();
        let Some(stream) = self.get_mut(key) else {
            return Turn::Gone;
        };
        if stream.send.finished {
            return Turn::Gone;
        }
        if capacity == 0 {
            stream.send.wants = true;
            return Turn::Later;
        }
        if uncontended && !stream.standing.queued {
            let allowance = stream.standing.allowance();
            return Turn::Now(self.limit(capacity, allowance));
        }
        let Self {
            schedule, streams, ..
        } = self;
        schedule.push(key.index, &mut streams[key.index as usize].standing);
        Turn::Later
    }

    /// The stream whose turn it is and how many bytes it may send; `None` while the output is full or nobody waits. A stream that
    /// has more to send than it did in its turn asks again.
    pub fn next_turn(&mut self) -> Option<(Key, usize)> {
        while self.has_room() {
            let index = self.schedule.pop()?;
            let Some(stream) = self.streams.get_mut(index as usize) else {
                continue;
            };
            if !std::mem::take(&mut stream.standing.queued) || stream.send.finished {
                continue;
            }
            let key = Key {
                index,
                generation: stream.generation,
            };
            let allowance = stream.standing.allowance();
            let capacity = self.capacity(key);
            if capacity == 0 {
                self.streams[index as usize].send.wants = true;
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
        let limit = limit.min(self.capacity(key)).min(MAX_PAYLOAD);
        let Some(stream) = self.get(key) else {
            return Ok(0);
        };
        let id = stream.id;
        if limit == 0 || stream.send.finished {
            return Ok(0);
        }
        let seal = |length| Header {
            kind: Kind::Data,
            flags: 0,
            length,
            stream: id,
        };
        let sent = self.output.push_with(limit, fill, seal)?;
        self.sent(key, sent);
        Ok(sent)
    }

    /// Sends as much of `bytes` as a turn of the stream allows now; returns how much. For callers that hold the bytes already.
    pub fn send(&mut self, key: Key, bytes: &[u8]) -> usize {
        let mut sent = 0;
        while sent < bytes.len() {
            let Turn::Now(limit) = self.request(key) else {
                break;
            };
            let n = limit.min(bytes.len() - sent);
            let copied: Result<usize, std::convert::Infallible> = self.send_with(key, n, |room| {
                let n = n.min(room.len());
                room[..n].copy_from_slice(&bytes[sent..sent + n]);
                Ok(n)
            });
            match copied {
                Ok(0) => break,
                Ok(n) => sent += n,
            }
        }
        sent
    }

    /// Half-close: nothing more is sent on the stream.
    pub fn finish(&mut self, key: Key) {
        let Some(stream) = self.get_mut(key) else {
            return;
        };
        if std::mem::replace(&mut stream.send.finished, true) {
            return;
        }
        let id = stream.id;
        let frame = self.frame(Kind::Data, FIN, id, 0);
        self.output.push(frame, &[]);
        self.remove_if_over(key);
    }

    /// Gives the stream up in both directions; the key is dead. Bytes not passed on are forgotten.
    pub fn reset(&mut self, key: Key, reason: Reason) {
        let Some(stream) = self.get(key) else { return };
        let id = stream.id;
        self.remove(key);
        let frame = self.frame(Kind::Reset, 0, id, 2);
        self.output.push(frame, &[&reason.0.to_be_bytes()]);
    }

    /// `n` bytes that came as [`Event::Data`] were passed on: returns credit to the peer.
    pub fn consumed(&mut self, key: Key, n: usize, now: Duration) {
        let round_trip = self.clock.round_trip;
        let window_limit = self.config.max_stream_window;
        // Never hold back so much of a stream's credit that its share of the link looks used up to the peer.
        let hold = self.link.receive_credit / 4;
        let Some(stream) = self.get_mut(key) else {
            return;
        };
        let n = u32::try_from(n).unwrap_or(u32::MAX);
        let id = stream.id;
        let credit = stream
            .receive
            .consume(n, window_limit, hold, round_trip, now);
        if let Some(credit) = credit {
            self.push_credit(id, credit);
        }
        self.remove_if_over(key);
        self.consumed_on_link(n);
    }

    /// A message for the protocol above the peer's multiplexer: 1 to [`MAX_PAYLOAD`] bytes; longer ones are cut off by debug
    /// assertions and ignored otherwise.
    pub fn send_control(&mut self, message: &[u8]) {
        debug_assert!(
            (1..=MAX_PAYLOAD).contains(&message.len()),
            "a control message fits one frame"
        );
        if (1..=MAX_PAYLOAD).contains(&message.len()) {
            let frame = self.frame(Kind::Control, 0, 0, message.len());
            self.output.push(frame, &[message]);
        }
    }

    /// Takes bytes of the transport, however fragmented; `input` is shortened by what was used. Call until it returns `None`.
    pub fn receive<'i>(
        &mut self,
        input: &mut &'i [u8],
        now: Duration,
    ) -> Result<Option<Event<'i>>, Violation> {
        if !input.is_empty() {
            self.clock.received_at = now;
        }
        while let Some(piece) = self.decoder.next(input)? {
            let event = match piece {
                Piece::Open(id, header) => self
                    .opened(id, now)?
                    .map(|key| Event::Opened { key, header }),
                Piece::Data(id, bytes) => {
                    self.data(id, bytes)?.map(|key| Event::Data { key, bytes })
                }
                Piece::End(id) => self.finished(id).map(|key| Event::Finished { key }),
                Piece::Whole(header, payload) => match header.kind {
                    Kind::Control => Some(Event::Control { message: payload }),
                    _ => self.short_frame(header, &payload, now)?,
                },
            };
            if event.is_some() {
                return Ok(event);
            }
        }
        Ok(None)
    }

    /// What waits for the transport.
    #[must_use]
    pub fn output(&mut self) -> &[u8] {
        if let Some(pong) = self.pong.take() {
            let frame = self.frame(Kind::Ping, ACK, 0, pong.len());
            self.output.push(frame, &[&pong]);
        }
        self.output.bytes()
    }

    /// Whether [`Mux::output`] has bytes.
    #[must_use]
    pub fn has_output(&self) -> bool {
        self.pong.is_some() || self.output.len() > 0
    }

    /// Bytes of frames that wait for the transport. While they are more than a few times [`Config::output_limit`], the peer does not
    /// read: stop reading from it.
    #[must_use]
    pub fn output_len(&self) -> usize {
        self.output.len()
    }

    /// The transport took `n` bytes of [`Mux::output`].
    pub fn advance(&mut self, n: usize) {
        self.output.advance(n);
    }

    /// Sets [`Config::output_limit`]: a caller that sees the transport drain fast raises it, one that sees it stall lowers it.
    pub fn set_output_limit(&mut self, bytes: usize) {
        self.config.output_limit = bytes;
    }

    /// When [`Mux::on_timeout`] is due.
    #[must_use]
    pub fn next_timeout(&self) -> Duration {
        self.clock.ping_at
    }

    /// Sends the ping that is due, and gives idle memory back. Receive what the transport holds before calling this.
    pub fn on_timeout(&mut self, now: Duration) -> Result<(), Dead> {
        if now < self.clock.ping_at {
            return Ok(());
        }
        let silence = now.saturating_sub(self.clock.received_at);
        if silence >= self.config.keep_alive * 2 {
            return Err(Dead { silence });
        }
        self.output.release();
        self.clock.ping_at = now + self.config.keep_alive;
        let token = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let frame = self.frame(Kind::Ping, 0, 0, 8);
        self.output.push(frame, &[&token.to_be_bytes()]);
        Ok(())
    }

    /// Smoothed round-trip time; zero until the first ping was answered.
    #[must_use]
    pub fn round_trip(&self) -> Duration {
        self.clock.round_trip
    }

    /// Streams that are open, or hold bytes that were not passed on.
    #[must_use]
    pub fn stream_count(&self) -> usize {
        self.streams.len()
    }

    // What follows is not public: first what frames do, then credit, then the table of streams.

    fn opened(&mut self, id: u32, now: Duration) -> Result<Option<Key>, Violation> {
        if id == 0 || id % 2 != self.peer_parity || self.by_id.contains_key(&id) {
            return Err(Violation::BadStreamId(id));
        }
        if self.streams.len() >= self.config.max_streams {
            let frame = self.frame(Kind::Reset, 0, id, 2);
            self.output
                .push(frame, &[&Reason::OVERLOADED.0.to_be_bytes()]);
            return Ok(None);
        }
        Ok(Some(self.insert(id, now)))
    }

    fn data(&mut self, id: u32, bytes: &[u8]) -> Result<Option<Key>, Violation> {
        let n = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.link.receive_credit = self
            .link
            .receive_credit
            .checked_sub(n)
            .ok_or(Violation::OverCredit(0))?;
        let Some(key) = self.by_id(id) else {
            // A stream that this end has reset; its last bytes were on the way.
            self.consumed_on_link(n);
            return Ok(None);
        };
        let receive = &mut self.streams[key.index as usize].receive;
        if receive.finished {
            return Err(Violation::DataAfterFinish(id));
        }
        receive.credit = receive
            .credit
            .checked_sub(n)
            .ok_or(Violation::OverCredit(id))?;
        receive.unconsumed += u64::from(n);
        self.relieve();
        Ok(Some(key))
    }

    fn finished(&mut self, id: u32) -> Option<Key> {
        let key = self.by_id(id)?;
        let receive = &mut self.streams[key.index as usize].receive;
        if std::mem::replace(&mut receive.finished, true) {
            return None;
        }
        self.remove_if_over(key);
        Some(key)
    }

    fn short_frame<'i>(
        &mut self,
        header: Header,
        payload: &[u8],
        now: Duration,
    ) -> Result<Option<Event<'i>>, Violation> {
        match header.kind {
            Kind::Credit => {
                let n = payload
                    .iter()
                    .fold(0, |sum, byte| sum << 8 | u32::from(*byte));
                self.credited(header.stream, n)?;
                Ok(None)
            }
            Kind::Reset => Ok(self.by_id(header.stream).map(|key| {
                self.remove(key);
                Event::Reset {
                    key,
                    reason: Reason(
                        payload
                            .iter()
                            .fold(0, |sum, byte| sum << 8 | u16::from(*byte)),
                    ),
                }
            })),
            Kind::Ping => {
                let mut token = [0; 8];
                token.copy_from_slice(payload);
                Ok(self.ping(header.flags & ACK != 0, token, now))
            }
            Kind::Data | Kind::Open | Kind::Control => Ok(None),
        }
    }

    fn ping<'i>(&mut self, answer: bool, token: [u8; 8], now: Duration) -> Option<Event<'i>> {
        if !answer {
            self.pong = Some(token);
            return None;
        }
        let sent_at = Duration::from_nanos(u64::from_be_bytes(token));
        // A token that was never sent gives nonsense, but only about the peer's own link.
        let sample = now
            .checked_sub(sent_at)
            .filter(|sample| *sample <= self.config.keep_alive * 2)?;
        self.clock.round_trip = match self.clock.round_trip {
            Duration::ZERO => sample,
            // RFC 6298 §2: SRTT with alpha = 1/8.
            smoothed => smoothed - smoothed / 8 + sample / 8,
        };
        Some(Event::Pong { round_trip: sample })
    }

    fn credited(&mut self, id: u32, n: u32) -> Result<(), Violation> {
        let add = |credit: u32| {
            credit
                .checked_add(n)
                .filter(|sum| i32::try_from(*sum).is_ok())
                .ok_or(Violation::CreditOverflow)
        };
        if id == 0 {
            self.link.send_credit = add(self.link.send_credit)?;
            let waiting: Vec<u32> = self
                .streams
                .iter()
                .filter(|(_, s)| s.send.wants)
                .filter_map(|(i, _)| u32::try_from(i).ok())
                .collect();
            waiting.into_iter().for_each(|index| self.wake(index));
        } else if let Some(key) = self.by_id(id) {
            let send = &mut self.streams[key.index as usize].send;
            send.credit = add(send.credit)?;
            send.outstanding = send.outstanding.saturating_sub(u64::from(n));
            self.wake(key.index);
        }
        Ok(())
    }

    /// Queues a stream that waited for credit, if it has some now.
    fn wake(&mut self, index: u32) {
        let Some(stream) = self.streams.get(index as usize) else {
            return;
        };
        let key = Key {
            index,
            generation: stream.generation,
        };
        if !stream.send.wants || self.capacity(key) == 0 {
            return;
        }
        let Self {
            schedule, streams, ..
        } = self;
        let stream = &mut streams[index as usize];
        stream.send.wants = false;
        schedule.push(index, &mut stream.standing);
    }

    /// Bytes the stream may send: its credit, and no more in all than what is left to everybody (dynamic threshold).
    fn capacity(&self, key: Key) -> usize {
        let Some(stream) = self.get(key) else {
            return 0;
        };
        let free = self.link.send_credit;
        let share = u64::from(free).saturating_sub(stream.send.outstanding);
        usize::try_from(share)
            .unwrap_or(usize::MAX)
            .min(stream.send.credit as usize)
    }

    fn limit(&self, capacity: usize, allowance: usize) -> usize {
        let room = self
            .config
            .output_limit
            .saturating_sub(self.output.len())
            .max(LEAST_READ);
        capacity.min(allowance).min(room).min(MAX_PAYLOAD)
    }

    fn has_room(&self) -> bool {
        self.output.len() < self.config.output_limit
    }

    fn sent(&mut self, key: Key, n: usize) {
        let bytes = u32::try_from(n).unwrap_or(u32::MAX);
        self.link.send_credit = self.link.send_credit.saturating_sub(bytes);
        if let Some(stream) = self.get_mut(key) {
            stream.send.credit = stream.send.credit.saturating_sub(bytes);
            stream.send.outstanding += u64::from(bytes);
            stream.standing.used(n);
        }
    }

    fn consumed_on_link(&mut self, n: u32) {
        self.link.consumed = self.link.consumed.saturating_add(n);
        // Rarely while there is plenty; at once when the peer is nearly out of credit.
        let hold = (self.config.link_window / 8).min(self.link.receive_credit / 2);
        if self.link.consumed > hold {
            let credit = std::mem::take(&mut self.link.consumed);
            self.push_credit(0, credit);
            self.link.receive_credit = self.link.receive_credit.saturating_add(credit);
            self.link.relief_below = self.link.relief_below.max(self.link.receive_credit / 2);
        }
    }

    /// Each time the peer's credit for the link has halved, gives back the credit held back on every stream: otherwise a stream
    /// whose reader is done could look to the peer as if it used more than its share, and wait for ever.
    fn relieve(&mut self) {
        if self.link.receive_credit >= self.link.relief_below {
            return;
        }
        self.link.relief_below = self.link.receive_credit / 2;
        let mut held: Vec<(u32, u32)> = Vec::new();
        for (_, stream) in &mut self.streams {
            if let Some(credit) = stream.receive.release() {
                held.push((stream.id, credit));
            }
        }
        held.into_iter()
            .for_each(|(id, credit)| self.push_credit(id, credit));
    }

    fn push_credit(&mut self, id: u32, credit: u32) {
        let frame = self.frame(Kind::Credit, 0, id, 4);
        self.output.push(frame, &[&credit.to_be_bytes()]);
    }

    #[allow(clippy::unused_self, reason = "reads as a part of the writer")]
    fn frame(&self, kind: Kind, flags: u8, stream: u32, length: usize) -> Header {
        Header {
            kind,
            flags,
            length: u16::try_from(length).unwrap_or(u16::MAX),
            stream,
        }
    }

    fn insert(&mut self, id: u32, now: Duration) -> Key {
        self.generation = self.generation.wrapping_add(1);
        let Config {
            peer_stream_window,
            stream_window,
            ..
        } = self.config;
        let stream = Stream::new(id, self.generation, peer_stream_window, stream_window, now);
        let index = u32::try_from(self.streams.insert(stream)).unwrap_or(u32::MAX);
        self.by_id.insert(id, index);
        Key {
            index,
            generation: self.generation,
        }
    }

    fn remove_if_over(&mut self, key: Key) {
        if self.get(key).is_some_and(Stream::is_over) {
            self.remove(key);
        }
    }

    fn remove(&mut self, key: Key) {
        let stream = self.streams.remove(key.index as usize);
        self.by_id.remove(&stream.id);
        self.consumed_on_link(u32::try_from(stream.receive.unconsumed).unwrap_or(u32::MAX));
    }

    fn by_id(&self, id: u32) -> Option<Key> {
        let index = *self.by_id.get(&id)?;
        Some(Key {
            index,
            generation: self.streams.get(index as usize)?.generation,
        })
    }

    fn get(&self, key: Key) -> Option<&Stream> {
        self.streams
            .get(key.index as usize)
            .filter(|stream| stream.generation == key.generation)
    }

    fn get_mut(&mut self, key: Key) -> Option<&mut Stream> {
        self.streams
            .get_mut(key.index as usize)
            .filter(|stream| stream.generation == key.generation)
    }
}

/// The output limit may be passed by so many bytes, because reading less from a socket at a time costs more than it keeps in order.
const LEAST_READ: usize = 4 << 10;

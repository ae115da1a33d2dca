//! The streams of one link: calls in, frames out. What frames do is in `incoming`, credit in `windows`, the streams in `table`.

mod incoming;
mod table;
mod windows;

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use slab::Slab;

use crate::{
    credit,
    decode::{Decoder, Piece},
    frame::{ACK, FIN, GROW, Header, Kind, MAX_HEADER, MAX_PAYLOAD},
    output::Output,
    path::Path,
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
    /// Streams that wait for the link's window: (outstanding, index), so that those that hold least come first and a frame of
    /// credit costs the same however many wait.
    parked: BTreeSet<(u64, u32)>,
    /// Streams that hold credit back.
    holders: Vec<u32>,
    decoder: Decoder,
    output: Output,
    link: Link,
    clock: Clock,
    /// The answer owed to the peer's latest ping: one, so that a flood of pings grows nothing.
    pong: Option<[u8; 8]>,
    /// The former answer is on the transport once this many bytes are.
    pong_taken_at: u64,
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
    /// When the peer's credit falls to this, all credit held back is given: see `Mux::relieve`.
    relief_at: u32,
    /// Bytes of streams that have ever come.
    received: u64,
}

#[derive(Debug)]
struct Clock {
    received_at: Duration,
    ping_at: Duration,
    /// What had come and gone when the latest ping was sent.
    moved_at_ping: u64,
    path: Path,
}

impl Mux {
    /// A link on which nothing was sent yet. The first ping is due at once, so that the round trip is known early.
    #[must_use]
    pub fn new(side: Side, mut config: Config, now: Duration) -> Self {
        for window in [
            &mut config.stream_window,
            &mut config.link_window,
            &mut config.peer_stream_window,
            &mut config.peer_link_window,
            &mut config.max_stream_window,
        ] {
            *window = (*window).min(LARGEST_WINDOW);
        }
        config.output_limit = config.output_limit.max(1);
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
            parked: BTreeSet::new(),
            holders: Vec::new(),
            decoder: Decoder::default(),
            output: Output::default(),
            link: Link {
                send_credit: config.peer_link_window,
                receive_credit: config.link_window,
                consumed: 0,
                relief_at: credit::next_level_at(config.link_window, config.link_window),
                received: 0,
            },
            clock: Clock {
                received_at: now,
                ping_at: now,
                moved_at_ping: 0,
                path: Path::default(),
            },
            pong: None,
            pong_taken_at: 0,
            config,
        }
    }

    /// Opens a stream with a header of at most [`MAX_HEADER`] bytes and as much of `first` as credit and [`Config::output_limit`]
    /// allow; returns how much that was. The peer learns of both with one frame. While [`Mux::output_len`] is more than a few times
    /// the output limit, callers should wait with opening.
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
        let room = (MAX_PAYLOAD - 2 - header.len()).min(self.room());
        let first = &first[..first.len().min(room).min(self.capacity(key))];
        let length = u16::try_from(header.len()).unwrap_or(u16::MAX);
        let frame = frame(Kind::Open, 0, id, 2 + header.len() + first.len());
        self.output
            .push(frame, &[&length.to_be_bytes(), header, first]);
        self.sent(key, first.len());
        Ok((key, first.len()))
    }

    /// Asks for the stream's turn to send. After [`Turn::Later`] there is no need to ask again.
    pub fn request(&mut self, key: Key) -> Turn {
        let capacity = self.capacity(key);
        let uncontended = self.room() > 0 && !self.has_waiting();
        let Some(stream) = self.get_mut(key) else {
            return Turn::Gone;
        };
        if stream.send.finished {
            return Turn::Gone;
        }
        if capacity == 0 {
            self.park(key);
            return Turn::Later;
        }
        if uncontended && !stream.standing.queued {
            let allowance = stream.standing.allowance();
            return Turn::Now(self.limit(capacity, allowance));
        }
        self.enqueue(key);
        Turn::Later
    }

    /// The stream whose turn it is and how many bytes it may send; `None` while the output is full or nobody waits. A stream that
    /// has more to send than it did in its turn asks again.
    pub fn next_turn(&mut self) -> Option<(Key, usize)> {
        while self.room() > 0 {
            self.admit();
            let key = self.schedule.pop()?;
            let stream = self.get_mut(key).filter(|stream| stream.standing.queued);
            let Some(stream) = stream else {
                self.schedule.was_stale();
                continue;
            };
            stream.standing.queued = false;
            let allowance = stream.standing.allowance();
            let capacity = self.capacity(key);
            if capacity == 0 {
                self.park(key);
                continue;
            }
            return Some((key, self.limit(capacity, allowance)));
        }
        None
    }

    /// Whether a stream waits for its turn.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        !self.schedule.is_empty() || self.may_admit()
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
        self.withdraw(key);
        let frame = frame(Kind::Data, FIN, id, 0);
        self.output.push(frame, &[]);
        self.remove_if_over(key);
    }

    /// Gives the stream up in both directions; the key is dead. Bytes not passed on are forgotten.
    pub fn reset(&mut self, key: Key, reason: Reason) {
        let Some(stream) = self.get(key) else { return };
        let id = stream.id;
        self.remove(key);
        let frame = frame(Kind::Reset, 0, id, 2);
        self.output.push(frame, &[&reason.0.to_be_bytes()]);
    }

    /// `n` bytes that came as [`Event::Data`] were passed on: returns credit to the peer. More than came count as what came.
    pub fn consumed(&mut self, key: Key, n: usize, now: Duration) {
        let limit = self.config.max_stream_window;
        // Never hold back so much of a stream's credit that its share of the link looks used up to the peer.
        let hold = credit::share(self.config.link_window, self.link.receive_credit) / 2;
        let Some(stream) = live(&mut self.streams, key) else {
            return;
        };
        let n = u32::try_from(n)
            .unwrap_or(u32::MAX)
            .min(stream.receive.unconsumed);
        let id = stream.id;
        let path = &self.clock.path;
        let grant = stream.receive.consume(n, limit, hold, path, now);
        if let Some(grant) = grant {
            self.push_credit(id, 0, grant.returned);
            if grant.grown > 0 {
                self.push_credit(id, GROW, grant.grown);
            }
        }
        self.note_holder(key);
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
            let frame = frame(Kind::Control, 0, 0, message.len());
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
            let after = now.saturating_sub(self.clock.received_at);
            self.clock.path.heard(after);
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
                Piece::Short(header, payload) => self.short_frame(header, payload, now)?,
                Piece::Control(message) => Some(Event::Control { message }),
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
        // One at a time waits for the transport, so that pings of a peer that does not read grow nothing.
        if self.output.taken() >= self.pong_taken_at
            && let Some(pong) = self.pong.take()
        {
            let frame = frame(Kind::Ping, ACK, 0, pong.len());
            self.output.push(frame, &[&pong]);
            self.pong_taken_at = self.output.taken() + self.output.len() as u64;
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
        self.config.output_limit = bytes.max(1);
    }

    /// When [`Mux::on_timeout`] is due: the next ping, or the peer's silence is over two intervals.
    #[must_use]
    pub fn next_timeout(&self) -> Duration {
        let silent_at = self.clock.received_at.saturating_add(self.patience());
        self.clock.ping_at.min(silent_at)
    }

    /// Sends the ping that is due, and gives idle memory back. Receive what the transport holds before calling this.
    pub fn on_timeout(&mut self, now: Duration) -> Result<(), Dead> {
        let silence = now.saturating_sub(self.clock.received_at);
        if silence >= self.patience() {
            return Err(Dead { silence });
        }
        if now < self.clock.ping_at {
            return Ok(());
        }
        self.output.release();
        self.send_ping(now);
        Ok(())
    }

    /// Sends a ping now; the next one is due an interval later.
    pub fn send_ping(&mut self, now: Duration) {
        self.clock.ping_at = now.saturating_add(self.config.keep_alive);
        self.clock.moved_at_ping = self.moved();
        let token = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let frame = frame(Kind::Ping, 0, 0, 8);
        self.output.push(frame, &[&token.to_be_bytes()]);
    }

    /// Smoothed round-trip time; zero until the first ping was answered.
    #[must_use]
    pub fn round_trip(&self) -> Duration {
        self.clock.path.smoothed_round_trip()
    }

    /// Streams that are open, or hold bytes that were not passed on.
    #[must_use]
    pub fn stream_count(&self) -> usize {
        self.streams.len()
    }

    /// Bytes of streams that came, and all that went.
    fn moved(&self) -> u64 {
        self.link.received.wrapping_add(self.output.taken())
    }

    /// Silence that means death.
    fn patience(&self) -> Duration {
        self.config.keep_alive.saturating_mul(2)
    }

    /// Bytes until the output is full.
    fn room(&self) -> usize {
        self.config.output_limit.saturating_sub(self.output.len())
    }

    fn limit(&self, capacity: usize, allowance: usize) -> usize {
        let room = self.room().max(LEAST_READ);
        capacity.min(allowance).min(room).min(MAX_PAYLOAD)
    }

    fn sent(&mut self, key: Key, n: usize) {
        let bytes = u32::try_from(n).unwrap_or(u32::MAX);
        self.link.send_credit = self.link.send_credit.saturating_sub(bytes);
        let Some(stream) = live(&mut self.streams, key) else {
            return;
        };
        stream.send.credit = stream.send.credit.saturating_sub(bytes);
        stream.send.outstanding += u64::from(bytes);
        self.schedule.sent(&mut stream.standing, n);
    }
}

/// The stream that a key names, if it has not ended.
fn live(streams: &mut Slab<Stream>, key: Key) -> Option<&mut Stream> {
    streams
        .get_mut(key.index as usize)
        .filter(|stream| stream.generation == key.generation)
}

fn frame(kind: Kind, flags: u8, stream: u32, length: usize) -> Header {
    Header {
        kind,
        flags,
        length: u16::try_from(length).unwrap_or(u16::MAX),
        stream,
    }
}

/// Credit is counted in 31 bits.
const LARGEST_WINDOW: u32 = u32::MAX >> 1;
/// The output limit may be passed by so many bytes, because reading less from a socket at a time costs more than it keeps in order.
const LEAST_READ: usize = 4 << 10;

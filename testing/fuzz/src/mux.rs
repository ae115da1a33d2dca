//! Fuzz checks of crate `mux`: the input is read as a list of steps, each a frame of the peer (well formed or raw bytes, in fragments)
//! or a call of the caller, who keeps the rules but for wild arguments.

use std::{collections::HashMap, convert::Infallible, time::Duration};

use mux::{Config, Event, Key, Mux, OpenError, Reason, Side, Turn};

/// Runs one input; panics on a finding.
pub fn check(data: &[u8]) {
    let mut input = Input(data);
    let mut run = Run::new(&mut input);
    while !input.0.is_empty() && !run.closed {
        run.step(&mut input);
        run.check_bounds();
    }
}

/// What is left of the input; zeros when nothing is.
struct Input<'i>(&'i [u8]);

impl<'i> Input<'i> {
    fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or_default()
    }

    fn number(&mut self) -> u32 {
        self.bytes(4)
            .iter()
            .fold(0, |sum, byte| sum << 8 | u32::from(*byte))
    }

    /// Small numbers are likelier than large ones.
    fn amount(&mut self) -> u32 {
        match self.byte() {
            255 => self.number(),
            n @ 200..255 => 1 << ((n - 200) % 32),
            n => u32::from(n),
        }
    }

    fn bytes(&mut self, n: usize) -> &'i [u8] {
        let (bytes, rest) = self.0.split_at(n.min(self.0.len()));
        self.0 = rest;
        bytes
    }
}

#[derive(Default)]
struct Stream {
    unconsumed: u64,
    peer_finished: bool,
    finished: bool,
}

struct Run {
    mux: Mux,
    config: Config,
    now: Duration,
    live: HashMap<Key, Stream>,
    /// Every key ever given out, in order; dead ones are used on purpose.
    keys: Vec<Key>,
    closed: bool,
    /// Output bound: rises by what calls may add.
    output_bound: usize,
}

impl Run {
    fn new(input: &mut Input<'_>) -> Self {
        let stream_window = input.amount();
        let link_window = input.amount();
        let config = Config {
            stream_window,
            link_window,
            peer_stream_window: input.amount(),
            peer_link_window: input.amount(),
            max_stream_window: input.amount(),
            max_streams: usize::from(input.byte()),
            output_limit: input.amount() as usize % 100_000,
            keep_alive: Duration::from_millis(u64::from(input.amount())),
        };
        let side = if input.byte().is_multiple_of(2) {
            Side::Acceptor
        } else {
            Side::Initiator
        };
        Self {
            mux: Mux::new(side, config, Duration::ZERO),
            config,
            now: Duration::ZERO,
            live: HashMap::new(),
            keys: Vec::new(),
            closed: false,
            output_bound: 0,
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.byte() % 16 {
            0..5 => {
                let frame = frame(input);
                self.receive(&frame, 1 + usize::from(input.byte()));
            }
            5 => {
                let n = usize::from(input.byte());
                self.receive(input.bytes(n), 1 + n / 2);
            }
            6 => self.open(input),
            7 => self.request(input),
            8 => self.turns(input.amount() as usize),
            9 => self.consume(input),
            10 => {
                let key = self.key(input);
                self.mux.finish(key);
                if let Some(stream) = self.live.get_mut(&key) {
                    stream.finished = true;
                }
                self.forget_if_over(key);
                self.output_bound += 8;
            }
            11 => {
                let key = self.key(input);
                self.mux.reset(key, Reason(7));
                self.live.remove(&key);
                // The credit of its bytes comes with it.
                self.output_bound += 10 + 12;
            }
            12 => self.write(input.amount() as usize),
            13 => {
                self.now += Duration::from_millis(u64::from(input.amount()));
                self.closed = self.mux.on_timeout(self.now).is_err();
                self.output_bound += 16;
            }
            14 => {
                let n = 1 + usize::from(input.byte());
                self.mux.send_control(&vec![1; n]);
                self.output_bound += 8 + n;
            }
            _ => self.mux.set_output_limit(self.config.output_limit),
        }
    }

    fn key(&self, input: &mut Input<'_>) -> Key {
        let n = usize::from(input.byte());
        match self.keys.len() {
            0 => self.any_key(),
            len => self.keys[len - 1 - n % len],
        }
    }

    /// A key of another link: it names nothing here.
    fn any_key(&self) -> Key {
        let mut other = Mux::new(Side::Initiator, Config::default(), self.now);
        other.open(&[], &[], self.now).expect("an empty link").0
    }

    fn learn(&mut self, key: Key) {
        assert!(!self.keys.contains(&key), "a key came twice");
        self.keys.push(key);
        assert!(
            self.live.keys().all(|other| other.index() != key.index()),
            "a place is used twice"
        );
        self.live.insert(key, Stream::default());
    }

    fn forget_if_over(&mut self, key: Key) {
        if self
            .live
            .get(&key)
            .is_some_and(|s| s.finished && s.peer_finished && s.unconsumed == 0)
        {
            self.live.remove(&key);
        }
    }

    fn receive(&mut self, wire: &[u8], fragment: usize) {
        // Refusals, and credit: 12 bytes for each byte of a stream that is gone, if they come one by one into a full window.
        self.output_bound += 24 + wire.len() * 13;
        for part in wire.chunks(fragment) {
            let mut part = part;
            loop {
                match self.mux.receive(&mut part, self.now) {
                    Ok(Some(event)) => {
                        let opened = on_event(&mut self.live, &event);
                        if let Some(key) = opened {
                            self.learn(key);
                        }
                        if let Event::Finished { key } = event {
                            self.forget_if_over(key);
                        }
                    }
                    Ok(None) => break,
                    Err(_) => {
                        self.closed = true;
                        return;
                    }
                }
            }
            assert!(part.is_empty(), "input is left though nothing came of it");
        }
    }

    fn open(&mut self, input: &mut Input<'_>) {
        let header = vec![2; input.amount() as usize % 2000];
        let first = vec![3; input.amount() as usize % 100_000];
        match self.mux.open(&header, &first, self.now) {
            Ok((key, sent)) => {
                assert!(sent <= first.len() && header.len() <= mux::MAX_HEADER);
                self.output_bound += 10 + header.len() + sent;
                self.learn(key);
            }
            Err(OpenError::TooManyStreams) => assert!(self.live.len() >= self.config.max_streams),
            Err(OpenError::HeaderTooLong) => assert!(header.len() > mux::MAX_HEADER),
        }
    }

    fn request(&mut self, input: &mut Input<'_>) {
        let key = self.key(input);
        match self.mux.request(key) {
            Turn::Now(n) => self.send(key, n, input.amount() as usize),
            Turn::Later => assert!(self.live.contains_key(&key)),
            Turn::Gone => assert!(self.live.get(&key).is_none_or(|stream| stream.finished)),
        }
    }

    fn turns(&mut self, wanted: usize) {
        for _ in 0..1 + wanted % 64 {
            let Some((key, n)) = self.mux.next_turn() else {
                return;
            };
            self.send(key, n, wanted);
        }
    }

    fn send(&mut self, key: Key, limit: usize, wanted: usize) {
        let stream = self.live.get(&key).expect("turns are for live streams");
        assert!(!stream.finished && limit > 0);
        let before = self.mux.output_len();
        assert!(
            before < self.config.output_limit.max(1),
            "a turn though the output is full"
        );
        let sent = self.mux.send_with(key, limit, |room| {
            assert!(room.len() <= limit);
            let n = wanted.min(room.len());
            room[..n].fill(4);
            Ok::<usize, Infallible>(n)
        });
        let Ok(sent) = sent;
        assert_eq!(sent, wanted.min(limit), "a turn is good for what it says");
        assert_eq!(
            self.mux.output_len(),
            before + if sent > 0 { 8 + sent } else { 0 }
        );
        assert!(sent <= self.config.output_limit.max(4 << 10));
        self.output_bound += 8 + sent;
    }

    fn consume(&mut self, input: &mut Input<'_>) {
        let key = self.key(input);
        let n = input.amount();
        self.mux.consumed(key, n as usize, self.now);
        if let Some(stream) = self.live.get_mut(&key) {
            stream.unconsumed = stream.unconsumed.saturating_sub(u64::from(n));
        }
        self.forget_if_over(key);
        self.output_bound += 36;
    }

    fn write(&mut self, n: usize) {
        let output = self.mux.output();
        let n = n.min(output.len());
        let before = output.len();
        self.mux.advance(n);
        assert_eq!(self.mux.output_len(), before - n);
        self.output_bound += 16;
        self.output_bound -= n;
    }

    fn check_bounds(&mut self) {
        if self.closed {
            return;
        }
        assert_eq!(self.mux.stream_count(), self.live.len());
        assert!(self.live.len() <= self.config.max_streams);
        let stored: u64 = self.live.values().map(|stream| stream.unconsumed).sum();
        assert!(
            stored <= u64::from(self.config.link_window),
            "the link's window: {stored}"
        );
        let window = self.config.stream_window.max(self.config.max_stream_window);
        for stream in self.live.values() {
            assert!(stream.unconsumed <= u64::from(window), "a stream's window");
        }
        // Credit held back, which may come at any time, is at most a frame for each stream; the ends' calls have paid for it.
        assert!(
            self.mux.output_len() <= self.output_bound,
            "{} > {}",
            self.mux.output_len(),
            self.output_bound
        );
        assert!(
            self.mux.next_timeout()
                <= self
                    .now
                    .saturating_add(self.config.keep_alive.max(Duration::from_secs(1)) * 2)
        );
    }
}

/// Keeps the model; gives the key of a new stream.
fn on_event(live: &mut HashMap<Key, Stream>, event: &Event<'_>) -> Option<Key> {
    match event {
        Event::Opened { key, header } => {
            assert!(header.len() <= mux::MAX_HEADER);
            return Some(*key);
        }
        Event::Data { key, bytes } => {
            assert!(!bytes.is_empty());
            let stream = live.get_mut(key).expect("data of a live stream");
            assert!(!stream.peer_finished);
            stream.unconsumed += bytes.len() as u64;
        }
        Event::Finished { key } => {
            let stream = live.get_mut(key).expect("the end of a live stream");
            assert!(
                !std::mem::replace(&mut stream.peer_finished, true),
                "an end came twice"
            );
        }
        Event::Reset { key, .. } => {
            live.remove(key).expect("the reset of a live stream");
        }
        Event::Control { message } => assert!(!message.is_empty()),
        Event::Pong { .. } => {}
    }
    None
}

/// A frame whose parts fit together, mostly.
fn frame(input: &mut Input<'_>) -> Vec<u8> {
    let kind = input.byte() % 8;
    let flags = input.byte() % 2;
    let stream = u32::from(input.byte() % 16);
    let payload = match kind {
        1 => {
            let header = usize::from(input.byte() % 8);
            let mut payload = (header as u16).to_be_bytes().to_vec();
            payload.resize(2 + header + usize::from(input.byte()), 5);
            payload
        }
        2 => input.amount().to_be_bytes().to_vec(),
        3 => vec![0, input.byte()],
        4 => u64::from(input.number()).to_be_bytes().to_vec(),
        _ => vec![6; input.amount() as usize % 70_000 % 65_536],
    };
    let mut wire = vec![kind, flags];
    wire.extend((payload.len() as u16).to_be_bytes());
    wire.extend(stream.to_be_bytes());
    wire.extend(payload);
    wire
}

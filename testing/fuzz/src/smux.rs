//! Fuzz checks of `mux::smux`: the input is read as a list of steps, each a frame of the peer (well formed or raw bytes, in fragments)
//! or a call of the caller, who keeps the rules but for wild arguments.

use std::{collections::HashMap, convert::Infallible, time::Duration};

use mux::{
    Key, Side, Turn,
    smux::{Config, Event, INITIAL_WINDOW, OpenError, Smux, Version},
};

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

    /// Small numbers are likelier than large ones.
    fn amount(&mut self) -> u32 {
        match self.byte() {
            255 => self
                .bytes(4)
                .iter()
                .fold(0, |sum, b| sum << 8 | u32::from(*b)),
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
    unconsumed: usize,
    peer_finished: bool,
    finished: bool,
}

struct Run {
    smux: Smux,
    config: Config,
    now: Duration,
    live: HashMap<Key, Stream>,
    /// Every key ever given out, in order; dead ones are used on purpose.
    keys: Vec<Key>,
    closed: bool,
    /// Rises by what calls may add to the output.
    output_bound: usize,
}

impl Run {
    fn new(input: &mut Input<'_>) -> Self {
        let version = match input.byte() % 2 {
            0 => Version::V1,
            _ => Version::V2,
        };
        let config = Config {
            version,
            receive_buffer: input.amount() as usize % (8 << 20),
            stream_buffer: input.amount(),
            max_frame: input.amount() as u16,
            max_streams: usize::from(input.byte()),
            output_limit: input.amount() as usize % 100_000,
            keep_alive: Duration::from_millis(u64::from(input.amount())),
            keep_alive_timeout: Duration::from_millis(u64::from(input.amount())),
            linger: Duration::from_millis(u64::from(input.amount())),
        };
        let side = match input.byte() % 2 {
            0 => Side::Acceptor,
            _ => Side::Initiator,
        };
        Self {
            smux: Smux::new(side, config, Duration::ZERO),
            config,
            now: Duration::ZERO,
            live: HashMap::new(),
            keys: Vec::new(),
            closed: false,
            output_bound: 0,
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.byte() % 12 {
            0..5 => {
                let frame = frame(self.config.version, input);
                self.receive(&frame, 1 + usize::from(input.byte()));
            }
            5 => {
                let n = usize::from(input.byte());
                self.receive(input.bytes(n), 1 + n / 2);
            }
            6 => match self.smux.open() {
                Ok(key) => {
                    self.output_bound += 8 + 16;
                    self.learn(key);
                }
                Err(OpenError::TooManyStreams) => {
                    assert!(self.live.len() >= self.config.max_streams);
                }
                Err(OpenError::IdsUsedUp) => panic!("so many were not opened"),
            },
            7 => self.send(input),
            8 => self.consume(input),
            9 => self.end(input),
            10 => {
                let n = (input.amount() as usize).min(self.smux.output_len());
                self.smux.advance(n);
                self.output_bound -= n;
            }
            _ => {
                self.now += Duration::from_millis(u64::from(input.amount()));
                self.closed = self.smux.on_timeout(self.now).is_err();
                self.output_bound += 8;
                while let Some(key) = self.smux.next_given_up() {
                    self.output_bound += 8;
                    let stream = self.live.get_mut(&key).expect("a live stream");
                    assert!(stream.peer_finished && !stream.finished);
                    stream.finished = true;
                    self.forget_if_over(key);
                }
            }
        }
    }

    fn key(&self, input: &mut Input<'_>) -> Option<Key> {
        let n = usize::from(input.byte());
        let len = self.keys.len();
        (len > 0).then(|| self.keys[len - 1 - n % len])
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
        let over = |s: &Stream| s.finished && s.peer_finished && s.unconsumed == 0;
        if self.live.get(&key).is_some_and(over) {
            self.live.remove(&key);
        }
    }

    /// As the rules say: no more than the budget at a time.
    fn receive(&mut self, wire: &[u8], fragment: usize) {
        // A refusal for each opening.
        self.output_bound += 8 + wire.len();
        let mut rest = wire;
        while !rest.is_empty() {
            let n = fragment.min(rest.len()).min(self.smux.read_budget());
            if n == 0 {
                // Nobody passes on; the transport would wait. Its bytes are lost here, so nothing can follow them.
                self.closed = true;
                return;
            }
            let (mut part, left) = rest.split_at(n);
            rest = left;
            loop {
                match self.smux.receive(&mut part, self.now) {
                    Ok(Some(event)) => self.on_event(&event),
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

    fn on_event(&mut self, event: &Event<'_>) {
        match event {
            Event::Opened { key } => self.learn(*key),
            Event::Data { key, bytes } => {
                assert!(!bytes.is_empty());
                let stream = self.live.get_mut(key).expect("data of a live stream");
                assert!(!stream.peer_finished);
                stream.unconsumed += bytes.len();
            }
            Event::Finished { key } => {
                let stream = self.live.get_mut(key).expect("the end of a live stream");
                let before = std::mem::replace(&mut stream.peer_finished, true);
                assert!(!before, "an end came twice");
                self.forget_if_over(*key);
            }
        }
    }

    fn send(&mut self, input: &mut Input<'_>) {
        let Some(key) = self.key(input) else { return };
        let wanted = input.amount() as usize;
        match self.smux.request(key) {
            Turn::Now(n) => self.turn(key, n, wanted),
            Turn::Later => assert!(self.live.contains_key(&key)),
            Turn::Gone => assert!(self.live.get(&key).is_none_or(|stream| stream.finished)),
        }
        for _ in 0..wanted % 64 {
            match self.smux.next_turn() {
                Some((key, n)) => self.turn(key, n, wanted),
                None => return,
            }
        }
    }

    fn turn(&mut self, key: Key, limit: usize, wanted: usize) {
        let stream = self.live.get(&key).expect("turns are for live streams");
        assert!(!stream.finished && limit > 0);
        assert!(limit <= usize::from(self.config.max_frame.max(1)));
        let before = self.smux.output_len();
        let Ok(sent) = self.smux.send_with(key, limit, |room| {
            let n = wanted.min(room.len());
            room[..n].fill(4);
            Ok::<usize, Infallible>(n)
        });
        assert_eq!(sent, wanted.min(limit), "a turn is good for what it says");
        let header = if sent > 0 { 8 } else { 0 };
        assert_eq!(self.smux.output_len(), before + header + sent);
        self.output_bound += header + sent;
    }

    fn consume(&mut self, input: &mut Input<'_>) {
        let Some(key) = self.key(input) else { return };
        let n = input.amount() as usize;
        self.smux.consumed(key, n, self.now);
        self.output_bound += 16;
        if let Some(stream) = self.live.get_mut(&key) {
            stream.unconsumed = stream.unconsumed.saturating_sub(n);
        }
        self.forget_if_over(key);
    }

    fn end(&mut self, input: &mut Input<'_>) {
        let Some(key) = self.key(input) else { return };
        self.output_bound += 8;
        if input.byte().is_multiple_of(2) {
            self.smux.close(key, self.now);
            self.live.remove(&key);
            return;
        }
        self.smux.finish(key);
        if let Some(stream) = self.live.get_mut(&key) {
            stream.finished = true;
        }
        self.forget_if_over(key);
    }

    fn check_bounds(&self) {
        if self.closed {
            return;
        }
        assert_eq!(self.smux.stream_count(), self.live.len());
        assert!(self.live.len() <= self.config.max_streams);
        let stored: usize = self.live.values().map(|stream| stream.unconsumed).sum();
        let buffer = self.config.receive_buffer.max(1);
        assert_eq!(self.smux.read_budget(), buffer - stored, "the buffer");
        if self.config.version == Version::V2 {
            let window = self.config.stream_buffer.max(INITIAL_WINDOW) as usize;
            for stream in self.live.values() {
                assert!(stream.unconsumed <= window, "a stream's window");
            }
        }
        let output = self.smux.output_len();
        assert!(
            output <= self.output_bound,
            "{output} > {}",
            self.output_bound
        );
    }
}

/// A frame whose parts fit together, mostly.
fn frame(version: Version, input: &mut Input<'_>) -> Vec<u8> {
    let command = input.byte() % 6;
    let stream = u32::from(input.byte() % 16);
    let payload = match command {
        2 => vec![6; input.amount() as usize % 70_000 % 65_536],
        4 => [input.amount().to_le_bytes(), input.amount().to_le_bytes()].concat(),
        _ => Vec::new(),
    };
    let mut wire = vec![version as u8, command];
    wire.extend((payload.len() as u16).to_le_bytes());
    wire.extend(stream.to_le_bytes());
    wire.extend(payload);
    wire
}

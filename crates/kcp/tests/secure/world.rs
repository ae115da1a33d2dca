//! A client, a server and a network between them that loses, delays, reorders, repeats and damages datagrams, with somebody on the path who
//! sends what they like; in virtual time and from one seed.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashSet},
    net::SocketAddr,
    time::Duration,
};

use kcp::{
    Time,
    secure::{Connecting, Gate, GateLimits, Options, PacketKind, Reply, Session, receiver},
};

pub(crate) use testkit::{Random, seeds};

/// What the network does to datagrams of either direction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Network {
    pub(crate) delay_ms: u64,
    pub(crate) jitter_ms: u64,
    pub(crate) loss_percent: u64,
    pub(crate) repeat_percent: u64,
    pub(crate) damage_percent: u64,
    /// Datagrams of others per datagram: replays from other addresses, bits flipped, rubbish with the right id.
    pub(crate) hostile_percent: u64,
    /// Bytes per millisecond in each direction, with a queue of 100 ms; 0 for any number.
    pub(crate) rate: u64,
}

pub(crate) const SERVER: usize = 1;
pub(crate) const CLIENT: usize = 0;
const QUEUE: Duration = Duration::from_millis(100);

/// What one application does: writes a pattern, ends it, checks what it reads.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct App {
    pub(crate) bytes: u64,
    /// 0 for as much as is taken; else this much every 20 ms.
    pub(crate) trickle: u64,
    pub(crate) ends: bool,
    pub(crate) written: u64,
    pub(crate) read: u64,
    pub(crate) at_end: bool,
    pub(crate) next_write: Option<Time>,
}

type Flying = (Time, u64, usize, SocketAddr, Vec<u8>);

pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) random: Random,
    pub(crate) network: Network,
    pub(crate) connecting: Option<Connecting>,
    pub(crate) gate: Gate,
    pub(crate) sessions: [Option<Session>; 2],
    pub(crate) apps: [App; 2],
    /// Where the client's datagrams come from.
    pub(crate) client_addr: SocketAddr,
    /// Bytes that the server sent, by address: to the client's present one, and to any other.
    pub(crate) to_client: u64,
    pub(crate) to_others: u64,
    pub(crate) datagrams: [u64; 2],
    /// What each end sealed under: it makes the AEAD's nonce.
    numbers: [HashSet<[u8; 8]>; 2],
    flying: BinaryHeap<Reverse<Flying>>,
    seen: Vec<Vec<u8>>,
    count: u64,
    /// When the bottleneck towards each end has sent what it has.
    free_at: [Time; 2],
}

pub(crate) fn addr(port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], port))
}

fn pattern(end: usize, at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9) >> 13) as u8 ^ if end == CLIENT { 0 } else { 0xa5 }
}

impl World {
    pub(crate) fn new(seed: u64, network: Network, options: [Options; 2], apps: [App; 2]) -> Self {
        let mut random = Random::new(seed);
        let now = Time::from_millis(random.pick(&[0, 1_000_000]));
        let [client, server] = options;
        let connecting = Connecting::new(now, addr(1), client, &random.bytes()).expect("a key");
        let gate = Gate::new(3, server, GateLimits::default(), &random.bytes());
        Self {
            now,
            network,
            connecting: Some(connecting),
            gate,
            sessions: [None, None],
            apps,
            client_addr: addr(1000),
            to_client: 0,
            to_others: 0,
            datagrams: [0; 2],
            flying: BinaryHeap::new(),
            seen: Vec::new(),
            count: 0,
            free_at: [now; 2],
            numbers: [HashSet::new(), HashSet::new()],
            random,
        }
    }

    /// Runs until `done`, or until `limit` has passed. True in the first case.
    pub(crate) fn run(&mut self, limit: Duration, mut done: impl FnMut(&Self) -> bool) -> bool {
        let end = self.now + limit;
        let mut standing = 0;
        while self.now < end {
            self.turn();
            if done(self) {
                return true;
            }
            match self.next_event() {
                Some(at) => {
                    // A deadline may take a second look, but not look after look.
                    let moves = at > self.now || self.due_now();
                    standing = if moves { 0 } else { standing + 1 };
                    let timers = self
                        .sessions
                        .each_mut()
                        .map(|s| s.as_mut().and_then(Session::poll_timeout));
                    assert!(standing < 10, "{:?} stands still: {timers:?}", self.now);
                    self.now = at.max(self.now);
                }
                None => return false,
            }
        }
        false
    }

    fn due_now(&self) -> bool {
        self.flying
            .peek()
            .is_some_and(|Reverse((at, ..))| *at <= self.now)
    }

    /// Both have read all and, where there was an end, have seen it.
    pub(crate) fn all_read(&self) -> bool {
        (0..2).all(|i| {
            let (app, other) = (&self.apps[i], &self.apps[1 - i]);
            app.read == other.bytes && app.at_end == other.ends
        })
    }

    fn turn(&mut self) {
        while self.due_now() {
            if let Some(Reverse((_, _, to, from, datagram))) = self.flying.pop() {
                self.arrive(to, from, datagram);
            }
        }
        if let Some(connecting) = &mut self.connecting
            && let Some(datagram) = connecting.poll_transmit(self.now)
        {
            let datagram = datagram.to_vec();
            self.launch(SERVER, self.client_addr, datagram);
        }
        for i in 0..2 {
            self.work(i);
        }
    }

    fn arrive(&mut self, to: usize, from: SocketAddr, mut datagram: Vec<u8>) {
        let now = self.now;
        if let Some(session) = &mut self.sessions[to]
            && PacketKind::of(&datagram) == Some(PacketKind::Data)
        {
            let _ = session.handle_datagram(now, from, &mut datagram);
            return;
        }
        if to == CLIENT {
            if let Some(connecting) = &mut self.connecting
                && let Some(session) = connecting
                    .handle_datagram(now, &datagram)
                    .expect("one version")
            {
                self.sessions[CLIENT] = Some(session);
                self.connecting = None;
            }
        } else if let Some(id) = receiver(&datagram) {
            if let Some(session) = self.gate.confirm(now, from, id, &mut datagram) {
                assert_eq!(id.to_le_bytes()[7], 3, "ids name the shard");
                self.sessions[SERVER] = Some(session);
            }
        } else {
            let random = self.random.bytes::<72>();
            let length = datagram.len();
            let reply = self
                .gate
                .handle_handshake(now, from, &datagram, false, |bytes| *bytes = random);
            if let Reply::Send(reply) = reply {
                assert!(
                    reply.len() <= length,
                    "an answer is no longer than its question"
                );
                if from == self.client_addr {
                    self.launch(CLIENT, addr(1), reply);
                }
            }
        }
    }

    fn work(&mut self, i: usize) {
        let now = self.now;
        let Some(session) = &mut self.sessions[i] else {
            return;
        };
        if i == SERVER {
            session.admit();
        }
        session.handle_timeout(now);
        let app = &mut self.apps[i];
        while app.written < app.bytes && app.next_write.is_none_or(|at| at <= now) {
            let most =
                if app.trickle > 0 { app.trickle } else { 5000 }.min(app.bytes - app.written);
            let data: Vec<u8> = (app.written..app.written + most)
                .map(|at| pattern(i, at))
                .collect();
            let taken = session.write(now, &data) as u64;
            app.written += taken;
            if app.trickle > 0 {
                app.next_write = Some(now + Duration::from_millis(20));
            }
            if taken == 0 {
                break;
            }
        }
        if app.ends && app.written == app.bytes {
            session.shutdown(now);
        }
        let mut out = [0; 4096];
        loop {
            let count = session.read(&mut out);
            for (k, byte) in out[..count].iter().enumerate() {
                assert_eq!(
                    *byte,
                    pattern(1 - i, app.read + k as u64),
                    "end {i} reads a wrong byte"
                );
            }
            app.read += count as u64;
            if count == 0 {
                break;
            }
        }
        app.at_end = session.is_at_end();
        self.transmit(i);
    }

    fn transmit(&mut self, i: usize) {
        let mut out = [0; 1500];
        while let Some(made) = self.sessions[i]
            .as_mut()
            .and_then(|s| s.poll_transmit(self.now, &mut out))
        {
            self.datagrams[i] += 1;
            // Kind and id, then the number (docs/protocol/kcp-link.md).
            let number = out[9..17].try_into().expect("eight bytes");
            assert!(
                self.numbers[i].insert(number),
                "end {i} used {number:?} twice"
            );
            if i == CLIENT {
                self.launch(SERVER, self.client_addr, out[..made.length].to_vec());
            } else if made.to == self.client_addr {
                self.to_client += made.length as u64;
                self.launch(CLIENT, addr(1), out[..made.length].to_vec());
            } else {
                self.to_others += made.length as u64;
            }
        }
    }

    /// Puts a datagram on its way, with what the network and others make of it.
    fn launch(&mut self, to: usize, from: SocketAddr, datagram: Vec<u8>) {
        if self.random.percent(self.network.hostile_percent) {
            self.attack(to, &datagram);
        }
        if self.random.percent(self.network.loss_percent) {
            return;
        }
        let copies = 1 + u64::from(self.random.percent(self.network.repeat_percent));
        for _ in 0..copies {
            let mut datagram = datagram.clone();
            if self.random.percent(self.network.damage_percent) {
                let at = self.random.below(datagram.len() as u64) as usize;
                datagram[at] ^= 1 << self.random.below(8);
            }
            self.fly(to, from, datagram);
        }
    }

    fn fly(&mut self, to: usize, from: SocketAddr, datagram: Vec<u8>) {
        let delay =
            self.network.delay_ms * 1000 + self.random.below(1 + self.network.jitter_ms * 1000);
        let Some(sent) = self.queue(to, datagram.len() as u64) else {
            return;
        };
        self.count += 1;
        self.flying.push(Reverse((
            sent + Duration::from_micros(delay),
            self.count,
            to,
            from,
            datagram,
        )));
    }

    /// When a datagram has passed the bottleneck; `None` when its queue is full.
    fn queue(&mut self, to: usize, bytes: u64) -> Option<Time> {
        if self.network.rate == 0 {
            return Some(self.now);
        }
        let free_at = self.free_at[to].max(self.now);
        if free_at.since(self.now) > QUEUE {
            return None;
        }
        self.free_at[to] = free_at + Duration::from_micros(bytes * 1000 / self.network.rate);
        Some(self.free_at[to])
    }

    /// Somebody on the path who cannot stop datagrams: what was seen comes again from elsewhere, changed or not.
    fn attack(&mut self, to: usize, datagram: &[u8]) {
        if self.seen.len() < 500 {
            self.seen.push(datagram.to_vec());
        }
        let from = addr(20_000 + self.random.below(1000) as u16);
        let at = self.random.below(self.seen.len() as u64) as usize;
        let mut evil = self.seen[at].clone();
        match self.random.below(4) {
            0 => {}
            1 => {
                let at = self.random.below(evil.len() as u64) as usize;
                evil[at] = evil[at].wrapping_add(1);
            }
            2 => evil.truncate(self.random.below(evil.len() as u64 + 1) as usize),
            _ => {
                let head = evil.len().min(9);
                evil[head..].fill_with(|| self.random.number() as u8);
            }
        }
        self.fly(to, from, evil.clone());
        self.fly(1 - to, from, evil);
    }

    fn next_event(&mut self) -> Option<Time> {
        let flying = self.flying.peek().map(|Reverse((at, ..))| *at);
        let connecting = self.connecting.as_ref().map(Connecting::poll_timeout);
        let timers = self
            .sessions
            .each_mut()
            .map(|s| s.as_mut().and_then(Session::poll_timeout));
        let writes = self
            .apps
            .map(|app| app.next_write.filter(|_| app.written < app.bytes));
        [
            flying, connecting, timers[0], timers[1], writes[0], writes[1],
        ]
        .into_iter()
        .flatten()
        .min()
    }
}

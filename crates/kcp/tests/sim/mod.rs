//! Two pipelines and a network between them that loses, delays, reorders, repeats and damages datagrams, in virtual time.
//!
//! All choices come from one seed. A run alternates: hand over what is due, act on deadlines, write, read, send; then jump
//! to the next event. Nothing sleeps.

pub(crate) mod cubic;

use std::{cmp::Reverse, collections::BinaryHeap, sync::Arc, time::Duration};

use kcp::{Config, Pipeline, Time, arq::Conv, seal::Seal};

use cubic::Cubic;

pub(crate) use testkit::{Random, seeds};

/// What the network does to datagrams of either direction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Path {
    pub(crate) delay_ms: u64,
    /// Added at random; more than the spacing of datagrams means reordering.
    pub(crate) jitter_ms: u64,
    pub(crate) loss_percent: u64,
    /// Chance that a loss goes on with the next datagram.
    pub(crate) burst_percent: u64,
    pub(crate) repeat_percent: u64,
    pub(crate) damage_percent: u64,
    /// Bytes per second that the path passes in each direction, headers of IP and UDP counted; 0: no limit.
    pub(crate) rate: u64,
    /// Bytes that wait for that at most; what comes then is dropped.
    pub(crate) queue: u64,
}

/// Bytes of IP and UDP headers.
const UDP_IP: u64 = 28;

/// One end and its application: writes a pattern, checks what it reads.
pub(crate) struct End {
    pub(crate) pipeline: Pipeline,
    write_at: u64,
    write_end: u64,
    write_most: u64,
    read_at: u64,
    /// Bytes per read; a small number is a slow reader.
    read_most: usize,
    pub(crate) sent_bytes: u64,
    /// When how many bytes had been read.
    pub(crate) arrivals: Vec<(Time, u64)>,
}

fn pattern(end: usize, at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9) >> 13) as u8 ^ if end == 0 { 0 } else { 0xa5 }
}

impl End {
    pub(crate) fn new(pipeline: Pipeline, bytes: u64, write_most: u64, read_most: usize) -> Self {
        Self {
            pipeline,
            write_at: 0,
            write_end: bytes,
            write_most,
            read_at: 0,
            read_most,
            sent_bytes: 0,
            arrivals: Vec::new(),
        }
    }
}

/// When it arrives, its number, at which end, and its bytes.
type Flying = (Time, u64, usize, Vec<u8>);

/// The ends, the datagrams on their way, and the time.
pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) ends: [End; 2],
    pub(crate) path: Path,
    /// Another flow in the queue towards the second end.
    pub(crate) rival: Option<Cubic>,
    random: Random,
    flying: BinaryHeap<Reverse<Flying>>,
    count: u64,
    bursts: [bool; 2],
    /// When each direction's bottleneck has passed all that waits, in nanoseconds.
    free_ns: [u64; 2],
}

impl World {
    /// `apps`: per end, bytes to write, most bytes per write, most per read.
    pub(crate) fn new(
        random: Random,
        path: Path,
        seal: &Arc<Seal>,
        configs: [Config; 2],
        apps: [(u64, u64, usize); 2],
    ) -> Self {
        let mut random = random;
        // Starting anywhere makes timestamps wrap in some runs.
        let now = Time::from_millis(random.pick(&[0, 1_000_000, (1 << 32) - 5000]));
        let [a, b] = configs;
        let mut end = |config: Config, (bytes, write, read)| {
            let pipeline = Pipeline::new(Conv(9), config, Arc::clone(seal), random.bytes())
                .expect("a valid configuration");
            End::new(pipeline, bytes, write, read)
        };
        let ends = [end(a, apps[0]), end(b, apps[1])];
        Self {
            now,
            ends,
            path,
            rival: None,
            random,
            flying: BinaryHeap::new(),
            count: 0,
            bursts: [false; 2],
            free_ns: [0; 2],
        }
    }

    /// Runs until both ends have all bytes and nothing is left to do, or until `limit` has passed. True in the first case.
    pub(crate) fn run(&mut self, limit: Duration) -> bool {
        let end = self.now + limit;
        while self.now < end {
            self.turn();
            match self.next_event() {
                Some(at) => self.now = at.max(self.now).min(end),
                None => return self.done(),
            }
        }
        false
    }

    /// Runs until `end`, even if nothing is left to do before.
    pub(crate) fn run_until(&mut self, end: Time) {
        self.run(end.since(self.now));
        self.now = self.now.max(end);
    }

    /// Gives the application of an end more to write.
    pub(crate) fn feed(&mut self, i: usize, bytes: u64) {
        self.ends[i].write_end += bytes;
    }

    /// All bytes have arrived and are acknowledged.
    pub(crate) fn done(&self) -> bool {
        (0..2).all(|i| {
            self.ends[i].pipeline.is_flushed()
                && self.ends[i].write_at == self.ends[i].write_end
                && self.ends[i].read_at == self.ends[1 - i].write_end
        })
    }

    fn turn(&mut self) {
        while let Some(Reverse((at, _, to, mut datagram))) = self.flying.pop() {
            if at > self.now {
                self.flying.push(Reverse((at, 0, to, datagram)));
                break;
            }
            // Damaged ones are refused; the rest must be fine.
            let _ = self.ends[to]
                .pipeline
                .handle_datagram(self.now, &mut datagram);
        }
        for i in 0..2 {
            self.ends[i].pipeline.handle_timeout(self.now);
            self.write(i);
            self.read(i);
            self.transmit(i);
            self.check_bounds(i);
        }
        self.turn_rival();
    }

    fn turn_rival(&mut self) {
        let Some(mut rival) = self.rival.take() else {
            return;
        };
        rival.turn(self.now, |bytes| {
            let waits = self.bottleneck(0, bytes)?;
            let back = Duration::from_millis(2 * self.path.delay_ms);
            (!self.random.percent(self.path.loss_percent)).then(|| self.now + waits + back)
        });
        self.rival = Some(rival);
    }

    fn next_event(&mut self) -> Option<Time> {
        let flying = self.flying.peek().map(|Reverse((at, ..))| *at);
        let [a, b] = &mut self.ends;
        let timers = [a.pipeline.poll_timeout(), b.pipeline.poll_timeout()];
        // A slow reader comes back every 5 ms.
        let unread = (a.pipeline.readable() + b.pipeline.readable() > 0)
            .then(|| self.now + Duration::from_millis(5));
        let rival = self.rival.as_ref().and_then(Cubic::next_event);
        [flying, timers[0], timers[1], unread, rival]
            .into_iter()
            .flatten()
            .min()
    }

    fn write(&mut self, i: usize) {
        let end = &mut self.ends[i];
        while end.write_at < end.write_end && end.pipeline.is_writable() {
            let most = end.write_most.min(end.write_end - end.write_at);
            let count = 1 + self.random.below(most);
            let data: Vec<u8> = (end.write_at..end.write_at + count)
                .map(|at| pattern(i, at))
                .collect();
            match end.pipeline.write(self.now, &data) {
                Ok(0) | Err(_) => break,
                Ok(taken) => end.write_at += taken as u64,
            }
        }
    }

    fn read(&mut self, i: usize) {
        let end = &mut self.ends[i];
        let mut out = vec![0; end.read_most];
        let count = end.pipeline.read(&mut out);
        for (k, byte) in out[..count].iter().enumerate() {
            let at = end.read_at + k as u64;
            assert_eq!(*byte, pattern(1 - i, at), "end {i} reads byte {at} wrong");
        }
        end.read_at += count as u64;
        if count > 0 {
            end.arrivals.push((self.now, end.read_at));
        }
    }

    fn transmit(&mut self, i: usize) {
        let mut out = [0; 1500];
        while let Some(length) = self.ends[i].pipeline.poll_transmit(self.now, &mut out) {
            self.ends[i].sent_bytes += length as u64;
            let Some(waits) = self.bottleneck(i, length as u64 + UDP_IP) else {
                continue;
            };
            let lost = self.random.percent(if self.bursts[i] {
                self.path.burst_percent
            } else {
                self.path.loss_percent
            });
            self.bursts[i] = lost;
            if lost {
                continue;
            }
            let copies = 1 + u64::from(self.random.percent(self.path.repeat_percent));
            for _ in 0..copies {
                let mut datagram = out[..length].to_vec();
                if self.random.percent(self.path.damage_percent) {
                    let at = self.random.below(length as u64) as usize;
                    datagram[at] ^= 1 << self.random.below(8);
                }
                let delay =
                    self.path.delay_ms * 1000 + self.random.below(1 + self.path.jitter_ms * 1000);
                self.count += 1;
                let at = self.now + waits + Duration::from_micros(delay);
                self.flying.push(Reverse((at, self.count, 1 - i, datagram)));
            }
        }
    }

    /// How long a datagram of so many bytes waits for the link; `None` when the queue is full.
    fn bottleneck(&mut self, i: usize, bytes: u64) -> Option<Duration> {
        if self.path.rate == 0 {
            return Some(Duration::ZERO);
        }
        let now = self.now.as_micros() * 1000;
        let free = self.free_ns[i].max(now);
        let per_byte = 1e9 / self.path.rate as f64;
        let queued = (free - now) as f64 / per_byte;
        if queued as u64 + bytes > self.path.queue {
            return None;
        }
        self.free_ns[i] = free + (bytes as f64 * per_byte) as u64;
        Some(Duration::from_nanos(self.free_ns[i] - now))
    }

    /// Queues never outgrow what the configuration says.
    fn check_bounds(&self, i: usize) {
        let pipeline = &self.ends[i].pipeline;
        let config = pipeline.config();
        let counters = pipeline.counters();
        assert!(pipeline.unacknowledged() <= 2 * config.send_window as usize);
        assert!(counters.ring_buffer_snd_buffer <= u64::from(config.send_window));
        assert!(counters.ring_buffer_rcv_queue <= u64::from(config.recv_window));
        assert!(pipeline.readable() <= config.recv_window as usize * kcp::MTU_MAX);
        assert!(counters.fec_shard_set <= 9);
    }
}

//! Seeded rows of datagrams over a path that loses, doubles and delays; `GT_SEED=n cargo test -p link fec` runs one seed again.

use std::collections::HashMap;

use super::*;

/// xorshift: small, and the same everywhere.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

fn seeds() -> Vec<u64> {
    match std::env::var("GT_SEED").map(|seed| seed.parse()) {
        Ok(Ok(seed)) => vec![seed],
        _ => (1..=12).collect(),
    }
}

fn shards(data: usize, parity: usize) -> Shards {
    Shards::new(data, parity).expect("valid")
}

struct Path {
    dice: Dice,
    /// Of a thousand.
    loss: u64,
    /// Milliseconds that a datagram may take longer than another.
    jitter: u64,
    under_way: Vec<(u64, Bytes)>,
}

impl Path {
    fn put(&mut self, now: u64, datagram: Bytes) {
        let copies = 1 + u64::from(self.dice.roll(50) == 0);
        for _ in 0..copies {
            if self.dice.roll(1000) >= self.loss {
                let at = now + 20 + self.dice.roll(self.jitter + 1);
                self.under_way.push((at, datagram.clone()));
            }
        }
    }

    fn take(&mut self, now: u64) -> Vec<Bytes> {
        let (mut here, rest): (Vec<_>, Vec<_>) =
            self.under_way.drain(..).partition(|(at, _)| *at <= now);
        self.under_way = rest;
        here.sort_by_key(|(at, _)| *at);
        here.into_iter().map(|(_, datagram)| datagram).collect()
    }
}

/// Shares that arrived without and with repair, and the longest time one took.
fn run(seed: u64, (data, parity): (usize, usize), loss: u64, gap: u64) -> (u64, u64, u64) {
    let origin = Instant::now();
    let at = |now: u64| origin + Duration::from_millis(now);
    let mut path = Path {
        dice: Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
        loss,
        jitter: 15,
        under_way: Vec::new(),
    };
    let mut dice = Dice(seed | 1 << 40);
    let (mut sender, mut receiver) = (
        Sender::new(shards(data, parity), origin),
        Receiver::default(),
    );
    let (mut sent, mut got) = (HashMap::new(), HashMap::<Vec<u8>, u64>::new());
    let mut number = 0_u64;
    for now in 0..4000_u64 {
        if now < 3500 && dice.roll(gap) == 0 {
            let mut payload = number.to_be_bytes().to_vec();
            payload.resize(8 + dice.roll(1200) as usize, number as u8);
            sender.send(at(now), &payload, |datagram| path.put(now, datagram));
            sent.insert(payload, now);
            number += 1;
        }
        sender.flush(at(now), |datagram| path.put(now, datagram));
        assert!(sender.flush_at().is_none_or(|flush| flush > at(now)));
        for datagram in path.take(now) {
            receiver.receive(datagram, |payload| {
                let twice = got.insert(payload.to_vec(), now);
                assert_eq!(twice, None, "given twice (seed {seed})");
            });
        }
    }
    let mut longest = 0;
    for (payload, then) in &got {
        let since = sent.get(payload);
        let since = since.unwrap_or_else(|| panic!("never sent (seed {seed})"));
        longest = longest.max(then - since);
    }
    let repaired = receiver.repaired();
    (
        number - (got.len() as u64 - repaired),
        number - got.len() as u64,
        longest,
    )
}

#[test]
fn what_is_lost_is_repaired_once_and_in_bounded_time() {
    for seed in seeds() {
        for (form, gap) in [
            ((10, 3), 1),
            ((10, 3), 40),
            ((4, 2), 3),
            ((1, 1), 5),
            ((32, 16), 1),
        ] {
            let (lost, missing, longest) = run(seed, form, 50, gap);
            let context = format!("GT_SEED={seed}, {form:?} every {gap} ms: {missing} of {lost}");
            assert!(missing * 4 <= lost + 8, "{context}");
            // The path, its jitter, the group, and parity that comes last.
            let bound = 20 + 15 + 10 + 15 + 2;
            assert!(longest <= bound, "{context}: {longest} ms");
        }
    }
}

#[test]
fn without_loss_everything_comes_once() {
    for seed in seeds() {
        let (lost, missing, _) = run(seed, (10, 3), 0, 2);
        assert_eq!((lost.min(missing), missing), (0, 0), "GT_SEED={seed}");
    }
}

#[test]
fn a_lone_datagram_has_parity_of_its_own() {
    let origin = Instant::now();
    let mut sender = Sender::new(shards(10, 3), origin);
    let mut made = Vec::new();
    sender.send(origin, b"lone", |datagram| made.push(datagram));
    assert_eq!(sender.flush_at(), Some(origin + FLUSH));
    sender.flush(origin + FLUSH, |datagram| made.push(datagram));
    assert_eq!(made.len(), 2);
    assert!(made.iter().all(|datagram| datagram.len() <= 4 + OVERHEAD));
    let mut got = Vec::new();
    Receiver::default().receive(made[1].clone(), |payload| got.push(payload));
    assert_eq!(got, [Bytes::from_static(b"lone")]);
    // And the one it replaces, when it comes late, is not given again.
    let mut receiver = Receiver::default();
    let mut count = 0;
    for datagram in [&made[1], &made[0], &made[1], &made[0]] {
        receiver.receive(datagram.clone(), |_| count += 1);
    }
    assert_eq!(count, 1);
}

#[test]
fn numbers_begin_again_without_a_gap() {
    let wrap = shards(10, 3).wrap();
    let mut seen = Seen::default();
    for number in (wrap - 2000..wrap).chain(0..2000) {
        assert!(seen.first_time(number, wrap), "{number}");
        assert!(!seen.first_time(number, wrap), "{number}");
    }
    assert!(!seen.first_time(wrap - 1, wrap), "too old");
    assert!(seen.first_time(5000, wrap));
    assert!(seen.first_time(4999, wrap));
    assert!(!seen.first_time(4999, wrap));
}

#[test]
fn bytes_that_are_no_shards_change_nothing() {
    let mut dice = Dice(7);
    let mut receiver = Receiver::default();
    for _ in 0..20_000 {
        let mut bytes: Vec<u8> = (0..dice.roll(40)).map(|_| dice.roll(256) as u8).collect();
        if let Some(first) = bytes.first_mut() {
            *first = 2 + *first % 2;
        }
        receiver.receive(bytes.into(), |_| {});
    }
    let mut sender = Sender::new(shards(3, 1), Instant::now());
    let mut got = 0;
    for n in 0..30_u8 {
        sender.send(Instant::now(), &[n], |datagram| {
            receiver.receive(datagram, |_| got += 1);
        });
    }
    assert!(got >= 27, "{got}");
}

//! Who gets the link: streams whose readers are willing always move on, bulk transfers share evenly, sparse streams hardly wait.

mod support;

use std::{collections::HashMap, time::Duration};

use mux::{Config, Key, Mux, Turn};
use testkit::seeds;

use support::{Got, Rng, carry, fill, pair, windows};

const NOW: Duration = Duration::ZERO;

/// Opens a stream at `from`; gives the key at both ends.
fn open(from: &mut Mux, to: &mut Mux) -> (Key, Key) {
    let (key, _) = from.open(&[], &[], NOW).expect("room for a stream");
    let got = carry(from, to, NOW);
    let opened = got.iter().find_map(|event| match event {
        Got::Opened(key, _) => Some(*key),
        _ => None,
    });
    (key, opened.expect("opened"))
}

/// An endless sender: uses every turn of every stream and asks again, until the link has no more room for anybody.
fn send_all(from: &mut Mux, streams: &[Key]) {
    for key in streams {
        while let Turn::Now(n) = from.request(*key) {
            fill(from, *key, n);
        }
    }
    send_turns(from);
}

fn send_turns(from: &mut Mux) {
    while let Some((key, n)) = from.next_turn() {
        fill(from, key, n);
        while let Turn::Now(n) = from.request(key) {
            fill(from, key, n);
        }
    }
}

/// Exchanges everything once in both directions; counts what came per stream and passes on what `willing` allows.
fn round(
    from: &mut Mux,
    to: &mut Mux,
    willing: impl Fn(Key) -> bool,
    came: &mut HashMap<Key, usize>,
) {
    for event in carry(from, to, NOW) {
        if let Got::Data(key, n) = event {
            *came.entry(key).or_default() += n;
            if willing(key) {
                to.consumed(key, n, NOW);
            }
        }
    }
    carry(to, from, NOW);
    send_turns(from);
}

/// `stuck` streams that are never read fill what they can of a link window; then `fine` streams must move in every round or two.
fn willing_streams_move(config: Config, stuck: usize, fine: usize, least: usize) {
    let (mut from, mut to) = pair(config);
    let mut came = HashMap::new();
    for _ in 0..stuck {
        let (key, _) = open(&mut from, &mut to);
        send_all(&mut from, &[key]);
        round(&mut from, &mut to, |_| false, &mut came);
    }
    // All of them try again, as long as anything moves.
    loop {
        let before: usize = came.values().sum();
        round(&mut from, &mut to, |_| false, &mut came);
        if came.values().sum::<usize>() == before {
            break;
        }
    }
    let held: usize = came.values().sum();
    assert!(
        held < config.link_window as usize,
        "the window is used up by {stuck} streams"
    );

    let mut fine_from = Vec::new();
    let mut fine_to = Vec::new();
    for _ in 0..fine {
        let (a, b) = open(&mut from, &mut to);
        fine_from.push(a);
        fine_to.push(b);
    }
    send_all(&mut from, &fine_from);
    let mut at: Vec<(usize, usize)> = vec![(0, 0); fine];
    for now in 1..=400 {
        round(&mut from, &mut to, |key| fine_to.contains(&key), &mut came);
        for (key, last) in fine_to.iter().zip(&mut at) {
            let total = came.get(key).copied().unwrap_or_default();
            if total > last.1 {
                *last = (now, total);
            }
            assert!(
                now - last.0 <= 2 + fine / 8,
                "stands still at {total} bytes, round {now}"
            );
        }
    }
    let worst = at.iter().map(|(_, total)| *total).min().expect("some");
    assert!(worst >= least, "only {worst} bytes in 400 rounds");
}

#[test]
fn a_willing_stream_moves_beside_a_thousand_that_are_never_read() {
    willing_streams_move(windows(16 << 10, 64 << 10), 1000, 1, 400);
    willing_streams_move(windows(64 << 10, 256 << 10), 1000, 1, 400 * 8);
    willing_streams_move(windows(256 << 10, 64 << 20), 1000, 1, 400 * 4096);
}

#[test]
fn many_willing_streams_move_beside_a_thousand_that_are_never_read() {
    willing_streams_move(windows(64 << 10, 256 << 10), 1000, 30, 400);
}

#[test]
fn a_willing_stream_moves_beside_streams_with_grown_windows_that_are_never_read() {
    let mut config = windows(64 << 10, 4 << 20);
    config.max_stream_window = 2 << 20;
    let (mut from, mut to) = pair(config);
    // The receiver measures a long round trip, so its windows grow.
    to.on_timeout(NOW).expect("alive");
    carry(&mut to, &mut from, NOW);
    carry(&mut from, &mut to, Duration::from_secs(1));
    assert_eq!(to.round_trip(), Duration::from_secs(1));
    let keys: Vec<(Key, Key)> = (0..50).map(|_| open(&mut from, &mut to)).collect();
    let mut came = HashMap::new();
    for (key, _) in &keys {
        send_all(&mut from, &[*key]);
    }
    for _ in 0..2000 {
        round(&mut from, &mut to, |_| true, &mut came);
    }
    // Now nobody reads.
    for _ in 0..2000 {
        round(&mut from, &mut to, |_| false, &mut came);
    }
    let (key, at_to) = open(&mut from, &mut to);
    send_all(&mut from, &[key]);
    for _ in 0..50 {
        let before = came.get(&at_to).copied().unwrap_or_default();
        round(&mut from, &mut to, |key| key == at_to, &mut came);
        round(&mut from, &mut to, |key| key == at_to, &mut came);
        assert!(
            came[&at_to] >= before + 1000,
            "{} after {before}",
            came[&at_to]
        );
    }
}

/// Credit held back for readers that are done must not look like bytes that are not read, however the window fills up afterwards.
#[test]
fn credit_held_back_never_stops_a_stream_whose_reader_is_done() {
    for seed in seeds(60) {
        let mut rng = Rng::new(seed);
        let link = 1000 + rng.size(200_000) as u32;
        let stream = 1 + rng.size(link as usize) as u32;
        let (mut from, mut to) = pair(windows(stream, link));
        let count = 1 + rng.size(60);
        let keys: Vec<(Key, Key)> = (0..count).map(|_| open(&mut from, &mut to)).collect();
        let mut came = HashMap::new();
        // Readers change their minds; some bytes are passed on, some stay.
        for _ in 0..200 {
            let (key, _) = keys[rng.below(count)];
            if let Turn::Now(n) = from.request(key) {
                fill(&mut from, key, 1 + rng.below(n));
            }
            let bits = rng.next();
            round(
                &mut from,
                &mut to,
                |key| bits >> (key.index() % 64) & 1 == 1,
                &mut came,
            );
        }
        // Half of the readers stop for good, with what they hold; the others have read everything.
        let (done, stuck) = keys.split_at(count / 2);
        for (key, _) in stuck {
            send_all(&mut from, &[*key]);
        }
        for _ in 0..50 {
            round(&mut from, &mut to, |_| false, &mut came);
        }
        for (_, key) in done {
            to.consumed(*key, usize::MAX, NOW);
        }
        carry(&mut to, &mut from, NOW);
        for (key, _) in done {
            send_all(&mut from, &[*key]);
        }
        for step in 0..30 {
            let before = came.clone();
            for _ in 0..1 + count / 4 {
                round(
                    &mut from,
                    &mut to,
                    |key| done.iter().any(|(_, d)| *d == key),
                    &mut came,
                );
            }
            for (_, key) in done {
                assert!(
                    came.get(key) > before.get(key),
                    "step {step}: {key:?} stands still"
                );
            }
        }
    }
}

#[test]
fn bulk_streams_share_the_link_within_a_tenth() {
    for (streams, per_round, output_limit) in [
        (2, 40_000, 64 << 10),
        (7, 10_000, 64 << 10),
        (7, 100_000, 16 << 10),
        (40, 65_536, 256 << 10),
    ] {
        let config = Config {
            output_limit,
            ..Config::default()
        };
        let (mut from, mut to) = pair(config);
        let keys: Vec<(Key, Key)> = (0..streams).map(|_| open(&mut from, &mut to)).collect();
        let sending: Vec<Key> = keys.iter().map(|(key, _)| *key).collect();
        send_all(&mut from, &sending);
        let mut came: HashMap<Key, usize> = HashMap::new();
        let mut warm = false;
        // Some 40 quanta for each.
        while came.values().sum::<usize>() < 40 * streams * (64 << 10) {
            let wire = from.output();
            let wire = wire[..wire.len().min(per_round)].to_vec();
            from.advance(wire.len());
            for event in support::feed(&mut to, &wire, NOW) {
                if let Got::Data(key, n) = event {
                    *came.entry(key).or_default() += n;
                    to.consumed(key, n, NOW);
                }
            }
            carry(&mut to, &mut from, NOW);
            send_turns(&mut from);
            // The first to come found the link empty and filled it.
            if !warm && came.len() == streams {
                warm = true;
                came.clear();
            }
        }
        let most = came.values().max().expect("some");
        let least = came.values().min().expect("some");
        assert_eq!(came.len(), streams);
        assert!(
            least * 10 >= most * 9,
            "{streams} streams: {least} to {most}"
        );
    }
}

#[test]
fn a_sparse_stream_waits_for_one_output_buffer_at_most() {
    let mut rng = Rng::new(7);
    for output_limit in [8 << 10, 64 << 10] {
        let config = Config {
            output_limit,
            ..Config::default()
        };
        let (mut from, mut to) = pair(config);
        let bulk: Vec<Key> = (0..20).map(|_| open(&mut from, &mut to).0).collect();
        let (sparse, _) = open(&mut from, &mut to);
        send_all(&mut from, &bulk);
        let mut taken = 0;
        let mut asked_at = None;
        for step in 0..20_000 {
            // Once the others have used up the quantum that every new stream has.
            if step > 2000 && asked_at.is_none() && rng.chance(10) {
                assert_eq!(from.request(sparse), Turn::Later, "the link is busy");
                asked_at = Some(taken);
            }
            let n = 1 + rng.below(3000);
            let wire = from.output();
            let wire = wire[..wire.len().min(n)].to_vec();
            from.advance(wire.len());
            taken += wire.len();
            for event in support::feed(&mut to, &wire, NOW) {
                if let Got::Data(key, n) = event {
                    to.consumed(key, n, NOW);
                }
            }
            carry(&mut to, &mut from, NOW);
            while let Some((key, n)) = from.next_turn() {
                if key == sparse {
                    let waited = taken + from.output_len() - asked_at.take().expect("asked");
                    assert!(
                        waited <= output_limit + (9 << 10),
                        "{waited} bytes went first"
                    );
                    fill(&mut from, key, n.min(10));
                } else {
                    fill(&mut from, key, n);
                    from.request(key);
                }
            }
        }
    }
}

#[test]
fn short_streams_without_end_leave_a_share_to_a_long_one() {
    let (mut from, mut to) = pair(Config::default());
    let (long, at_to) = open(&mut from, &mut to);
    let mut came: HashMap<Key, usize> = HashMap::new();
    send_all(&mut from, &[long]);
    let mut left: HashMap<Key, usize> = HashMap::new();
    let mut total = 0;
    for _ in 0..2000 {
        // Always eight more that have 20 kB to say.
        while left.len() < 8 {
            let (key, _) = from.open(&[], &[], NOW).expect("room");
            left.insert(key, 20_000);
            assert_eq!(from.request(key), Turn::Later);
        }
        let wire = from.output();
        let wire = wire[..wire.len().min(30_000)].to_vec();
        from.advance(wire.len());
        for event in support::feed(&mut to, &wire, NOW) {
            match event {
                Got::Data(key, n) => {
                    *came.entry(key).or_default() += n;
                    total += n;
                    to.consumed(key, n, NOW);
                }
                Got::Finished(key) => to.finish(key),
                _ => {}
            }
        }
        carry(&mut to, &mut from, NOW);
        while let Some((key, n)) = from.next_turn() {
            match left.get_mut(&key) {
                None => {
                    fill(&mut from, key, n);
                }
                Some(rest) => {
                    *rest -= fill(&mut from, key, n.min(*rest));
                    if *rest == 0 {
                        left.remove(&key);
                        from.finish(key);
                        continue;
                    }
                }
            }
            from.request(key);
        }
    }
    assert!(came[&at_to] * 10 >= total, "{} of {total}", came[&at_to]);
}

#[test]
fn growth_of_a_window_does_not_count_as_bytes_returned() {
    let (mut from, _) = pair(windows(100, 1000));
    let (key, sent) = from.open(&[], &[1; 200], NOW).expect("room");
    assert_eq!(sent, 100);
    assert_eq!(from.request(key), Turn::Later);
    // 400 more for the stream. But a tenth of the link is in use, which makes the share 62, and 100 are held.
    support::feed(&mut from, &[2, 1, 0, 4, 0, 0, 0, 1, 0, 0, 1, 144], NOW);
    assert_eq!(from.next_turn(), None);
    // The 100 are returned: for the stream, which has its share, and for the link, whose share is 250 when all of it is free.
    support::feed(&mut from, &[2, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 100], NOW);
    assert_eq!(
        from.request(key),
        Turn::Later,
        "it has its place in the schedule"
    );
    support::feed(&mut from, &[2, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 100], NOW);
    assert_eq!(from.next_turn(), Some((key, 250)));
}

#[test]
fn credit_of_the_link_held_back_is_given_when_the_rest_is_used_up() {
    let (_, mut to) = pair(windows(640, 640));
    let data = |stream: u8, n: usize| {
        let length = (n as u16).to_be_bytes();
        [
            &[0, 0, length[0], length[1], 0, 0, 0, stream],
            &vec![1; n][..],
        ]
        .concat()
    };
    let open = [1, 0, 0, 2, 0, 0, 0, 1, 0, 0, 1, 0, 0, 2, 0, 0, 0, 3, 0, 0];
    support::feed(&mut to, &open, NOW);
    let got = support::feed(&mut to, &data(1, 10), NOW);
    let [Got::Data(key, 10)] = got[..] else {
        panic!("{got:?}");
    };
    to.consumed(key, 10, NOW);
    assert!(!to.has_output(), "ten bytes of 640 may be held back");
    // Another stream, never read, takes all the rest: nothing more would come, and so nothing be passed on.
    support::feed(&mut to, &data(3, 630), NOW);
    let output = support::drain(&mut to);
    let link: &[u8] = &[2, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 10];
    let stream: &[u8] = &[2, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 10];
    for credit in [link, stream] {
        assert!(output.chunks(12).any(|frame| frame == credit), "{output:?}");
    }
}

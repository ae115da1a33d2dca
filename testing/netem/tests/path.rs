//! The path against a virtual clock: each impairment alone, measured over many packets with fixed seeds.
//!
//! Bounds are five standard deviations of the binomial around the wanted share unless a comment says else.

#![allow(
    clippy::unwrap_used,
    reason = "a failure of a helper is a failure of the test"
)]

use std::time::Duration;

use netem::{Arrival, Chance, GilbertElliott, Packet, Path, Plan, Setting};

const MS: Duration = Duration::from_millis(1);

fn path(settings: &str) -> Path<u32> {
    seeded(settings, 7)
}

fn seeded(settings: &str, seed: u64) -> Path<u32> {
    Path::new(Plan::parse(settings).unwrap(), seed)
}

fn packet(tag: u32, length: usize) -> Packet<u32> {
    Packet {
        tag,
        bytes: vec![0; length],
    }
}

/// Sends `count` packets of `length` bytes, one each `gap`, and takes what arrives, asking only when the path says so.
fn run(path: &mut Path<u32>, count: u32, length: usize, gap: Duration) -> Vec<Arrival<u32>> {
    let mut arrivals = Vec::new();
    for tag in 0..count {
        let now = gap * tag;
        take_until(path, now, &mut arrivals);
        path.handle(now, packet(tag, length));
    }
    take_until(path, Duration::from_secs(1_000_000), &mut arrivals);
    arrivals
}

fn take_until(path: &mut Path<u32>, now: Duration, arrivals: &mut Vec<Arrival<u32>>) {
    while let Some(next) = path.next_time().filter(|next| *next <= now) {
        while let Some(arrival) = path.poll(next) {
            assert_eq!(arrival.due, next, "next_time() was late");
            arrivals.push(arrival);
        }
    }
}

fn tags(arrivals: &[Arrival<u32>]) -> Vec<u32> {
    arrivals.iter().map(|a| a.packet.tag).collect()
}

#[track_caller]
fn near(seen: f64, wanted: f64, count: f64) {
    let sigma = (wanted * (1.0 - wanted) / count).sqrt();
    assert!(
        (seen - wanted).abs() <= 5.0 * sigma,
        "seen {seen}, wanted {wanted} ± {}",
        5.0 * sigma
    );
}

#[test]
fn an_unimpaired_path_passes_everything_at_once_and_in_order() {
    let mut path = path("delay=0");
    let arrivals = run(&mut path, 1000, 100, MS);
    assert_eq!(tags(&arrivals), (0..1000).collect::<Vec<_>>());
    assert!(arrivals.iter().all(|a| a.due == MS * a.packet.tag));
}

#[test]
fn a_delay_is_exact_and_keeps_the_order() {
    let arrivals = run(&mut path("delay=50ms"), 1000, 100, MS);
    assert_eq!(tags(&arrivals), (0..1000).collect::<Vec<_>>());
    assert!(
        arrivals
            .iter()
            .all(|a| a.due == MS * a.packet.tag + 50 * MS)
    );
}

#[test]
fn a_rate_spaces_packets_by_their_size() {
    // 1250 bytes at 10 Mbit/s: 1 ms each; they come twice as fast.
    let mut path = path("rate=10mbit,queue=1MB,delay=5ms");
    let arrivals = run(&mut path, 500, 1250, MS / 2);
    assert_eq!(arrivals.len(), 500);
    for arrival in &arrivals {
        assert_eq!(arrival.due, MS * (arrival.packet.tag + 1) + 5 * MS);
    }
    // The last packet came at 249.5 ms, when 249 had left and the 250th was half done.
    assert_eq!(path.counters().queue_max, 251 * 1250);
}

#[test]
fn a_full_queue_drops_the_newest_and_the_rate_is_held() {
    let mut path = path("rate=10mbit,queue=12500B");
    let arrivals = run(&mut path, 10_000, 1250, MS / 4);
    let counters = path.counters();
    assert_eq!(counters.queue_max, 12_500);
    assert_eq!(counters.queue_drops + counters.packets_out, 10_000);
    // 2500 ms of input, and 10 packets wait at the end.
    assert!(
        (2500..=2510).contains(&arrivals.len()),
        "{}",
        arrivals.len()
    );
    assert!(
        arrivals
            .windows(2)
            .all(|pair| pair[1].due - pair[0].due == MS)
    );
}

#[test]
fn a_packet_larger_than_the_queue_passes_when_nothing_waits() {
    let mut path = path("rate=1mbit,queue=100B");
    path.handle(Duration::ZERO, packet(0, 1000));
    path.handle(Duration::ZERO, packet(1, 10));
    assert_eq!(path.counters().queue_drops, 1);
    assert!(path.poll(8 * MS).is_some());
}

#[test]
fn loss_is_as_frequent_as_asked_and_independent() {
    for (settings, wanted) in [("loss=1%", 0.01), ("loss=10%", 0.1), ("loss=50%", 0.5)] {
        let arrivals = run(&mut path(settings), 200_000, 1, MS);
        near(1.0 - arrivals.len() as f64 / 2e5, wanted, 2e5);
        // After a loss the next one is as likely as ever.
        let got = tags(&arrivals);
        let mut lost = vec![true; 200_000];
        got.iter().for_each(|tag| lost[*tag as usize] = false);
        let after = lost.windows(2).filter(|pair| pair[0]).count();
        let both = lost.windows(2).filter(|pair| pair[0] && pair[1]).count();
        near(both as f64 / after as f64, wanted, after as f64);
    }
}

#[test]
fn bursts_have_the_mean_and_the_length_asked_for() {
    let arrivals = run(&mut path("burst=5%/8"), 1_000_000, 1, MS);
    let mut lost = vec![true; 1_000_000];
    tags(&arrivals)
        .iter()
        .for_each(|tag| lost[*tag as usize] = false);
    let total = lost.iter().filter(|lost| **lost).count() as f64;
    let bursts = lost.windows(2).filter(|pair| !pair[0] && pair[1]).count() as f64;
    // Losses come in bursts, so their number varies 2 × 8 times as much as with independent ones: 5 sigma are 0.44 %.
    assert!((total / 1e6 - 0.05).abs() < 0.0044, "{}", total / 1e6);
    // 6250 bursts of geometric length 8 ± 7.5: 5 sigma are 0.47.
    assert!((total / bursts - 8.0).abs() < 0.47, "{}", total / bursts);
}

#[test]
fn the_model_of_bursts_knows_its_mean() {
    let mean = Chance::new(0.05).unwrap();
    let model = GilbertElliott::bursts(mean, 8.0).unwrap();
    assert!((model.mean() - 0.05).abs() < 1e-12);
    assert!(GilbertElliott::bursts(Chance::new(0.9).unwrap(), 2.0).is_none());
    assert!(GilbertElliott::bursts(mean, 0.5).is_none());
}

#[test]
fn all_four_figures_of_gilbert_and_elliott_count() {
    // Bad a third of the time; loses 1 % in good and 40 % in bad.
    let arrivals = run(&mut path("gilbert=10%/20%/1%/40%"), 1_000_000, 1, MS);
    let wanted = 2.0 / 3.0 * 0.01 + 1.0 / 3.0 * 0.4;
    // Correlated over about 1 / 0.3 packets: at most 7 times the variance of independent losses.
    let sigma = (7.0f64 * wanted * (1.0 - wanted) / 1e6).sqrt();
    let seen = 1.0 - arrivals.len() as f64 / 1e6;
    assert!((seen - wanted).abs() < 5.0 * sigma, "{seen} {wanted}");
}

#[test]
fn jitter_spreads_evenly_around_the_delay() {
    let mut path = path("delay=50ms,jitter=10ms,jitter-reorders=yes");
    let arrivals = run(&mut path, 100_000, 1, MS);
    let delays: Vec<f64> = arrivals
        .iter()
        .map(|a| (a.due - MS * a.packet.tag).as_secs_f64() * 1e3)
        .collect();
    assert!(delays.iter().all(|delay| (40.0..=60.0).contains(delay)));
    let mean = delays.iter().sum::<f64>() / 1e5;
    // Sigma of one is 20 / sqrt(12) ms; of the mean 0.018.
    assert!((mean - 50.0).abs() < 0.1, "{mean}");
    let low = delays.iter().filter(|delay| **delay < 45.0).count() as f64;
    near(low / 1e5, 0.25, 1e5);
    assert!(!tags(&arrivals).is_sorted());
}

#[test]
fn jitter_keeps_the_order_unless_told_otherwise() {
    let arrivals = run(&mut path("delay=50ms,jitter=10ms"), 10_000, 1, MS);
    assert_eq!(tags(&arrivals), (0..10_000).collect::<Vec<_>>());
    assert!(arrivals.windows(2).all(|pair| pair[0].due <= pair[1].due));
}

#[test]
fn jitter_wider_than_the_delay_does_not_reach_into_the_past() {
    let arrivals = run(&mut path("delay=1ms,jitter=10ms"), 1000, 1, MS);
    assert!(arrivals.iter().all(|a| a.due >= MS * a.packet.tag));
}

#[test]
fn held_back_packets_are_overtaken_and_counted() {
    let mut path = path("delay=10ms,reorder=2%,reorder-by=3500us");
    let arrivals = run(&mut path, 100_000, 1, MS);
    let held = path.counters().reordered as f64;
    near(held / 1e5, 0.02, 1e5);
    for arrival in &arrivals {
        let late = arrival.due - (MS * arrival.packet.tag + 10 * MS);
        assert!(late.is_zero() || late == Duration::from_micros(3500));
    }
    let descents = tags(&arrivals)
        .windows(2)
        .filter(|pair| pair[0] > pair[1])
        .count() as f64;
    // A held packet is passed by three, unless all three are held as well.
    assert!((descents - held).abs() < held * 0.05, "{descents} {held}");
}

#[test]
fn duplicates_arrive_twice() {
    let mut path = path("delay=10ms,duplicate=3%");
    let arrivals = run(&mut path, 100_000, 1, MS);
    near((arrivals.len() - 100_000) as f64 / 1e5, 0.03, 1e5);
    assert_eq!(path.counters().duplicated, arrivals.len() as u64 - 100_000);
}

#[test]
fn corruption_flips_one_bit_anywhere() {
    let mut path = path("corrupt=10%");
    let mut places = [0u32; 32];
    let mut hit = 0;
    for arrival in run(&mut path, 50_000, 4, MS) {
        let word = u32::from_be_bytes(arrival.packet.bytes.try_into().unwrap());
        if word != 0 {
            assert_eq!(word.count_ones(), 1);
            places[word.trailing_zeros() as usize] += 1;
            hit += 1;
        }
    }
    near(f64::from(hit) / 5e4, 0.1, 5e4);
    for place in places {
        near(
            f64::from(place) / f64::from(hit),
            1.0 / 32.0,
            f64::from(hit),
        );
    }
}

#[test]
fn the_same_seed_gives_the_same_and_another_one_does_not() {
    let all = "rate=5mbit,delay=20ms,jitter=5ms,loss=5%,reorder=2%,duplicate=1%,corrupt=1%";
    let once = run(&mut seeded(all, 1), 5000, 500, MS);
    assert_eq!(once, run(&mut seeded(all, 1), 5000, 500, MS));
    assert_ne!(once, run(&mut seeded(all, 2), 5000, 500, MS));
}

#[test]
fn one_impairment_does_not_change_the_choices_of_another() {
    let lost = |settings| {
        let arrivals = run(&mut path(settings), 5000, 10, MS);
        let mut tags = tags(&arrivals);
        tags.sort_unstable();
        tags.dedup();
        tags
    };
    assert_eq!(
        lost("loss=5%"),
        lost("loss=5%,jitter=9ms,delay=10ms,duplicate=5%,corrupt=5%")
    );
}

#[test]
fn asking_late_gives_the_same_arrivals() {
    let settings = "rate=5mbit,queue=5kB,delay=20ms,jitter=5ms,loss=5%";
    let often = run(&mut path(settings), 5000, 500, MS);
    let mut path = path(settings);
    let mut seldom = Vec::new();
    for tag in 0..5000 {
        path.handle(MS * tag, packet(tag, 500));
        if tag % 100 == 99 {
            seldom.extend(std::iter::from_fn(|| path.poll(MS * tag)));
        }
    }
    seldom.extend(std::iter::from_fn(|| path.poll(Duration::from_secs(3600))));
    assert_eq!(often, seldom);
}

#[test]
fn settings_change_at_their_time() {
    let mut plan = Plan::parse("delay=10ms").unwrap();
    plan.later = vec![
        (2000 * MS, "loss=0".parse::<Setting>().unwrap()),
        (1000 * MS, "loss=100%".parse::<Setting>().unwrap()),
        (3000 * MS, "delay=40ms".parse::<Setting>().unwrap()),
    ];
    let arrivals = run(&mut Path::new(plan, 1), 4000, 1, MS);
    let wanted: Vec<u32> = (0..1000).chain(2000..4000).collect();
    assert_eq!(tags(&arrivals), wanted);
    let last = arrivals.last().unwrap();
    assert_eq!(last.due - MS * last.packet.tag, 40 * MS);
}

#[test]
fn a_new_rate_holds_for_what_waits() {
    let mut plan = Plan::parse("rate=10mbit,queue=1MB").unwrap();
    plan.later = vec![(10 * MS, "rate=1mbit".parse().unwrap())];
    let mut path = Path::new(plan, 1);
    let arrivals = run(&mut path, 20, 1250, Duration::ZERO);
    for arrival in &arrivals {
        let number = arrival.packet.tag + 1;
        // Ten pass at 1 ms each; the eleventh begins as the change comes.
        let wanted = if number <= 10 {
            number
        } else {
            10 + (number - 10) * 10
        };
        assert!(arrival.due.abs_diff(MS * wanted) <= 9 * MS, "{arrival:?}");
    }
    assert!(arrivals.last().unwrap().due >= 100 * MS);
}

#[test]
fn taking_the_rate_away_empties_the_queue_at_once() {
    let mut path = path("rate=1kbit,queue=1MB");
    for tag in 0..10 {
        path.handle(Duration::ZERO, packet(tag, 1000));
    }
    path.change(MS, &"rate=none".parse().unwrap());
    let arrivals: Vec<_> = std::iter::from_fn(|| path.poll(MS)).collect();
    assert_eq!(tags(&arrivals), (0..10).collect::<Vec<_>>());
}

#[test]
fn memory_is_bounded_when_a_path_without_a_rate_holds_too_much() {
    let mut path = path("delay=60m");
    for tag in 0..3000 {
        path.handle(Duration::ZERO, packet(tag, 60_000));
    }
    let kept = (128 << 20) / (60_000 + 128);
    assert_eq!(path.counters().line_drops, 3000 - kept);
}

#[test]
fn settings_that_make_no_sense_are_refused_with_a_reason() {
    for (text, reason) in [
        ("rate", "write name=value"),
        ("speed=1mbit", "the names are"),
        ("rate=100", "the unit must be one of"),
        ("rate=1bit", "must be 1kbit to 100gbit"),
        ("delay=x", "a number is missing"),
        ("delay=50", "the unit must be one of"),
        ("delay=-1ms", "a number is missing"),
        ("loss=101%", "must be 0% to 100%"),
        ("loss=5ms", "the unit must be"),
        ("burst=5%", "write MEAN/LENGTH"),
        ("burst=90%/1", "write MEAN/LENGTH"),
        ("gilbert=1%/2%/3%", "write TO_BAD"),
        ("queue=9999MB", "at most 1000MB"),
        ("jitter-reorders=maybe", "write yes or no"),
    ] {
        let error = Plan::parse(text).unwrap_err().to_string();
        assert!(error.contains(reason), "{text}: {error}");
    }
}

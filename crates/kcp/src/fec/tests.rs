//! Encoder against decoder: what is lost and what comes back.

use super::*;
use crate::{Counters, Shards, Time};

/// Packets of `groups` groups; the payload of data packet `i` is `i` bytes of value `i`, at least one.
fn packets(shards: Shards, groups: usize) -> Vec<Vec<u8>> {
    let mut encoder = Encoder::new(shards);
    let mut all = Vec::new();
    for i in 0..groups * shards.data() {
        let mut packet = vec![0; DATA_HEADER];
        packet.extend(payload_of(i));
        encoder.seal(Time::ZERO, &mut packet);
        all.push(packet);
        while let Some(length) = encoder.parity_len() {
            let mut packet = vec![0; length];
            assert!(encoder.parity(&mut packet));
            all.push(packet);
        }
    }
    all
}

fn payload_of(i: usize) -> Vec<u8> {
    vec![i as u8; 1 + i * 7 % 300]
}

fn feed<'a>(
    decoder: &mut Decoder,
    packets: impl IntoIterator<Item = &'a Vec<u8>>,
) -> (Vec<Vec<u8>>, Counters) {
    let mut counters = Counters::default();
    let mut recovered = Vec::new();
    for packet in packets {
        decoder.handle(packet, &mut counters);
        recovered.extend(std::iter::from_fn(|| decoder.pop()));
    }
    recovered.sort();
    (recovered, counters)
}

#[test]
fn any_d_of_a_group_give_the_rest() {
    for (data, parity) in [(1, 1), (2, 2), (10, 3), (5, 7), (100, 20), (253, 3)] {
        let shards = Shards::new(data, parity).expect("valid");
        let all = packets(shards, 2);
        for skip in 0..=parity {
            // The first group confirms the parameters; of the second the first and the last data packets are lost.
            let mut lost: Vec<usize> = (0..skip.min(data))
                .map(|i| if i % 2 == 0 { i / 2 } else { data - 1 - i / 2 })
                .collect();
            lost.sort_unstable();
            let mut decoder = Decoder::new(shards);
            let kept = all
                .iter()
                .enumerate()
                .filter(|(i, _)| !lost.iter().any(|l| shards.total() + l == *i));
            let (recovered, counters) = feed(&mut decoder, kept.map(|(_, packet)| packet));
            let mut expected: Vec<_> = lost.iter().map(|i| payload_of(data + i)).collect();
            expected.sort();
            assert_eq!(recovered, expected, "{data}/{parity} without {lost:?}");
            assert_eq!(counters.fec_recovered, lost.len() as u64);
        }
    }
}

#[test]
fn the_first_group_is_recovered_once_its_border_was_seen() {
    let shards = Shards::new(4, 2).expect("valid");
    let all = packets(shards, 1);
    let mut decoder = Decoder::new(shards);
    let (recovered, _) = feed(&mut decoder, [&all[0], &all[2], &all[3], &all[4]]);
    assert_eq!(recovered, [payload_of(1)]);
}

#[test]
fn duplicates_and_late_packets_recover_nothing_twice() {
    let shards = Shards::new(4, 2).expect("valid");
    let all = packets(shards, 3);
    let mut decoder = Decoder::new(shards);
    feed(&mut decoder, &all[..6]);
    let (recovered, _) = feed(
        &mut decoder,
        [&all[6], &all[6], &all[6], &all[6], &all[8], &all[9]],
    );
    assert!(recovered.is_empty());
    let (recovered, _) = feed(&mut decoder, [&all[10], &all[10], &all[11], &all[7]]);
    assert_eq!(recovered, [payload_of(5)]);
}

#[test]
fn a_peer_with_other_parameters_is_understood_after_a_while() {
    let theirs = Shards::new(20, 10).expect("valid");
    let all = packets(theirs, 12);
    let mut decoder = Decoder::new(Shards::new(10, 3).expect("valid"));
    // One in seven is lost all the time.
    let kept = all
        .iter()
        .enumerate()
        .filter(|(i, _)| i % 7 != 3)
        .map(|(_, packet)| packet);
    let (recovered, counters) = feed(&mut decoder, kept);
    assert_eq!(decoder.shards(), theirs);
    assert!(counters.fec_recovered > 10, "{}", counters.fec_recovered);
    let sent: Vec<_> = (0..12 * 20).map(payload_of).collect();
    assert!(
        recovered.iter().all(|payload| sent.contains(payload)),
        "nothing but what was sent"
    );
}

#[test]
fn wrong_parameters_never_invent_packets() {
    for (data, parity) in [(10, 2), (9, 3), (11, 3), (10, 4), (5, 8), (20, 6), (3, 1)] {
        let all = packets(Shards::new(data, parity).expect("valid"), 300 / data);
        let sent: Vec<_> = (0..300).map(payload_of).collect();
        let mut random = 7_u32;
        let mut decoder = Decoder::new(Shards::new(10, 3).expect("valid"));
        let kept = all.iter().filter(|_| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            random >> 24 >= 38
        });
        let (recovered, _) = feed(&mut decoder, kept);
        assert!(
            recovered.iter().all(|payload| sent.contains(payload)),
            "{data}/{parity}"
        );
    }
}

#[test]
fn a_pause_leaves_parity_out_and_keeps_the_count() {
    let shards = Shards::new(2, 1).expect("valid");
    let mut encoder = Encoder::new(shards);
    let mut packet = vec![0; DATA_HEADER + 4];
    encoder.seal(Time::from_millis(0), &mut packet);
    encoder.seal(Time::from_millis(500), &mut packet);
    assert_eq!(encoder.parity_len(), None);
    encoder.seal(Time::from_millis(501), &mut packet);
    assert_eq!(packet[..4], [3, 0, 0, 0]);
    encoder.seal(Time::from_millis(1000), &mut packet);
    assert!(encoder.parity_len().is_some());
}

#[test]
fn memory_is_bounded_whatever_numbers_come() {
    let shards = Shards::new(10, 3).expect("valid");
    let mut decoder = Decoder::new(shards);
    let mut counters = Counters::default();
    let mut number = 1_u32;
    for _ in 0..100_000 {
        number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223) % shards.wrap();
        let mut packet = vec![0; 100];
        let kind = if number % 13 < 10 {
            Kind::Data
        } else {
            Kind::Parity
        };
        write_header(&mut packet, number, kind);
        decoder.handle(&packet, &mut counters);
        assert!(counters.fec_shard_set <= 9, "{}", counters.fec_shard_set);
    }
}

#[test]
fn one_forged_number_far_ahead_does_not_end_recovery() {
    let shards = Shards::new(4, 2).expect("valid");
    let all = packets(shards, 40);
    let mut decoder = Decoder::new(shards);
    feed(&mut decoder, &all[..6]);
    let mut forged = all[0].clone();
    forged[..4].copy_from_slice(&(6_u32 * 100_000_000).to_le_bytes());
    feed(&mut decoder, [&forged]);
    let kept = all[6..]
        .iter()
        .enumerate()
        .filter(|(i, _)| i % 6 != 1)
        .map(|(_, packet)| packet);
    let (recovered, _) = feed(&mut decoder, kept);
    assert!(recovered.len() > 20, "{}", recovered.len());
}

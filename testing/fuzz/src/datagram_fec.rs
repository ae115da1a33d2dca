//! Fuzz checks of `link::quic::fec`: the input's first bytes say which shards of a sender are lost, doubled or changed on their way, and what strangers put
//! between them. What comes out was put in, once, unless something was changed.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use kcp::Shards;
use link::quic::fec::{Receiver, Sender};

/// Runs one input; panics on a finding.
pub fn check(data: &[u8]) {
    let Some((&[form, gap], steps)) = data.split_first_chunk() else {
        return;
    };
    let Ok(shards) = Shards::new(1 + usize::from(form % 32), 1 + usize::from(form / 32)) else {
        return;
    };
    let mut now = Instant::now();
    let (mut sender, mut receiver) = (Sender::new(shards, now), Receiver::default());
    let (mut given, mut changed) = (HashSet::new(), false);
    let mut made = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        let mut payload = (number as u32).to_be_bytes().to_vec();
        payload.resize(4 + usize::from(*step) * 5, *step);
        sender.send(now, &payload, |shard| made.push(shard));
        now += Duration::from_millis(u64::from(gap % 16));
        sender.flush(now, |shard| made.push(shard));
        for shard in made.drain(..) {
            let copies = match step % 8 {
                0 => 0,
                1 => 2,
                _ => 1,
            };
            for _ in 0..copies {
                let mut shard = shard.to_vec();
                if step % 16 == 7 {
                    changed = true;
                    let at = usize::from(*step) * 3 % shard.len();
                    shard[at] ^= step | 1;
                }
                receiver.receive(shard.into(), |payload| {
                    let number = payload
                        .first_chunk()
                        .map(|number| u32::from_be_bytes(*number));
                    let fresh = given.insert(payload.clone());
                    assert!(changed || fresh, "given twice");
                    let sent = number.is_some_and(|number| number as usize <= steps.len());
                    assert!(changed || sent, "never sent");
                });
            }
        }
    }
    // The same bytes as a stranger's.
    let mut rest = data;
    while let Some((length, behind)) = rest.split_first() {
        let (shard, behind) = behind.split_at(usize::from(*length).min(behind.len()));
        receiver.receive(shard.to_vec().into(), |_| {});
        rest = behind;
    }
}

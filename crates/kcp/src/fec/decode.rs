//! The receiver's half: keeps the packets of the last groups and recovers data when `d` of a group have come.
//!
//! Decoding with the wrong parameters gives packets that look right and are not: equal header fields of all packets of a
//! group survive any weights, as those add up to one. So nothing is recovered before the parameters have been seen to
//! match, and nothing any more after one packet contradicted them, until the tuner has found what the peer uses.

use std::collections::VecDeque;

use super::{HEADER, Kernel, Kind, autotune::Tuner, lagrange::Points, payload};
use crate::{Counters, MTU_MAX, Shards};

/// Packets of all groups in memory, roughly; at least three groups are kept, as in kcp-go.
const KEEP_PACKETS: usize = 64;
const MIN_GROUPS: u32 = 3;
/// After this many packets in a row from before the kept groups, the peer must have started anew (or one forged number
/// lies far ahead): follow it.
const STRAY_LIMIT: u32 = 64;

/// A payload that never arrived, computed from the packets that did.
pub type Recovered = Vec<u8>;

#[derive(Debug)]
struct Group {
    id: u32,
    /// What came, by place in the group: covered parts. Emptied once the group is done.
    packets: Vec<(u8, Vec<u8>)>,
    data: usize,
    done: bool,
}

/// Takes FEC packets and recovers lost ones.
#[derive(Debug)]
pub struct Decoder {
    shards: Shards,
    kernel: Kernel,
    /// By id, the oldest first.
    groups: VecDeque<Group>,
    newest: Option<u32>,
    stray: u32,
    trust: Trust,
    /// Present while the parameters are in doubt.
    tuner: Option<Box<Tuner>>,
    spare: Vec<Vec<u8>>,
    recovered: Vec<(u32, Recovered)>,
}

/// What we know about the parameters.
#[derive(Clone, Debug, Default)]
struct Trust {
    confirmed: bool,
    /// A group's first data packet was seen right after the parity before it (or at the very start).
    start: bool,
    /// A group's last data packet and its first parity packet were both seen.
    end: bool,
    last_parity: Option<u32>,
    first_data: Option<u32>,
    last_data: Option<u32>,
    first_parity: Option<u32>,
}

impl Decoder {
    /// A decoder that expects the peer to use `shards`, and finds out if it does not.
    pub fn new(shards: Shards) -> Self {
        Self {
            shards,
            kernel: Kernel::best(),
            groups: VecDeque::new(),
            newest: None,
            stray: 0,
            trust: Trust::default(),
            tuner: None,
            spare: Vec::new(),
            recovered: Vec::new(),
        }
    }

    /// A decoder whose peer has said that it uses `shards`: the first group's packets are recovered, too.
    pub fn agreed(shards: Shards) -> Self {
        Self {
            trust: Trust {
                confirmed: true,
                ..Trust::default()
            },
            ..Self::new(shards)
        }
    }

    /// The parameters believed at present.
    pub fn shards(&self) -> Shards {
        self.shards
    }

    /// The peer's parameters, as soon as they are certain.
    pub(crate) fn known(&self) -> Option<Shards> {
        (self.trust.confirmed && self.tuner.is_none()).then_some(self.shards)
    }

    /// Takes a data or parity packet, header included. Take what it recovers with [`Self::pop`].
    pub fn handle(&mut self, packet: &[u8], counters: &mut Counters) {
        let (Some(kind), Some(number)) = (
            Kind::of(packet),
            packet.first_chunk().map(|&n| u32::from_le_bytes(n)),
        ) else {
            return;
        };
        let covered = &packet[HEADER..];
        if kind == Kind::OutOfBand || covered.len() < 2 || covered.len() > MTU_MAX {
            return;
        }
        let is_parity = kind == Kind::Parity;
        counters.fec_parity_shards += u64::from(is_parity);
        if !self.agrees(number, is_parity) {
            return;
        }
        let place = (number % self.shards.total() as u32) as u8;
        let Some(group) = self.group(number / self.shards.total() as u32) else {
            return;
        };
        if group.done || group.packets.iter().any(|&(other, _)| other == place) {
            return;
        }
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(covered);
        let id = number / self.shards.total() as u32;
        if let Some(group) = self.groups.iter_mut().find(|group| group.id == id) {
            group.packets.push((place, copy));
            group.data += usize::from(!is_parity);
        }
        self.finish(counters);
        counters.fec_shard_set = self.groups.iter().filter(|group| !group.done).count() as u64;
        counters.fec_shard_min = u64::from(self.newest.unwrap_or(0));
    }

    /// The next recovered payload.
    pub fn pop(&mut self) -> Option<Recovered> {
        self.pop_numbered().map(|(_, recovered)| recovered)
    }

    /// The same with the number of the data packet that carried it.
    pub fn pop_numbered(&mut self) -> Option<(u32, Recovered)> {
        self.recovered.pop()
    }

    /// Gives back memory that only a busy session needs.
    pub fn trim(&mut self) {
        self.spare = Vec::new();
    }

    /// Whether the packet fits the parameters; if not, looks for others.
    fn agrees(&mut self, number: u32, is_parity: bool) -> bool {
        let expected = number % self.shards.total() as u32 >= self.shards.data() as u32;
        let fits = expected == is_parity && number < self.shards.wrap();
        if fits && self.tuner.is_none() {
            self.trust.note(number, is_parity, self.shards);
            return true;
        }
        // From the first contradiction on nothing is kept: it may be in the wrong group.
        self.forget();
        let tuner = self.tuner.get_or_insert_default();
        if let Some(shards) = tuner.sample(number, is_parity) {
            self.shards = shards;
            self.tuner = None;
            self.trust = Trust {
                confirmed: true,
                ..Trust::default()
            };
        }
        false
    }

    fn forget(&mut self) {
        self.trust = Trust::default();
        self.groups.clear();
        self.newest = None;
        self.stray = 0;
    }

    /// The group `id`, made if it is new; `None` if it is too old.
    fn group(&mut self, id: u32) -> Option<&Group> {
        let ids = self.shards.wrap() / self.shards.total() as u32;
        let keep = (KEEP_PACKETS / self.shards.total()) as u32;
        let keep = keep.clamp(MIN_GROUPS, 8);
        let newest = *self.newest.get_or_insert(id);
        let ahead = (u64::from(id) + u64::from(ids) - u64::from(newest)) % u64::from(ids);
        if ahead > 0 && ahead < u64::from(ids / 2) {
            self.newest = Some(id);
        } else if ahead > 0 && u64::from(ids) - ahead > u64::from(keep) {
            self.stray += 1;
            if self.stray < STRAY_LIMIT {
                return None;
            }
            self.groups.clear();
            self.newest = Some(id);
        }
        self.stray = 0;
        let newest = self.newest?;
        let age =
            |group: u32| (u64::from(newest) + u64::from(ids) - u64::from(group)) % u64::from(ids);
        if !self.groups.iter().any(|group| group.id == id) {
            let spare = &mut self.spare;
            self.groups.retain_mut(|group| {
                let keep = age(group.id) <= u64::from(keep);
                if !keep {
                    spare.extend(group.packets.drain(..).map(|(_, packet)| packet));
                }
                keep
            });
            self.spare.truncate(self.shards.total());
            self.groups.push_back(Group {
                id,
                packets: Vec::new(),
                data: 0,
                done: false,
            });
        }
        self.groups.iter().find(|group| group.id == id)
    }

    /// Recovers what can be recovered.
    fn finish(&mut self, counters: &mut Counters) {
        let need = self.shards.data();
        for at in 0..self.groups.len() {
            let group = &mut self.groups[at];
            if group.done || group.packets.len() < need {
                continue;
            }
            if group.data == need {
                counters.fec_full_shard_set += 1;
            } else if self.trust.confirmed {
                recover(
                    self.kernel,
                    group,
                    self.shards,
                    &mut self.recovered,
                    counters,
                );
            } else {
                // Later packets may confirm the parameters. Each place counts once, so this cannot pile up.
                continue;
            }
            group.done = true;
            let packets = std::mem::take(&mut group.packets);
            self.spare
                .extend(packets.into_iter().map(|(_, packet)| packet));
            self.spare.truncate(self.shards.total());
        }
    }
}

impl Trust {
    fn note(&mut self, number: u32, is_parity: bool, shards: Shards) {
        if self.confirmed {
            return;
        }
        let total = shards.total() as u32;
        let place = (number % total) as usize;
        if place == 0 {
            self.first_data = Some(number);
        } else if place + 1 == shards.total() {
            self.last_parity = Some(number);
        }
        if place + 1 == shards.data() {
            self.last_data = Some(number);
        } else if place == shards.data() {
            self.first_parity = Some(number);
        }
        let follows = |a: Option<u32>, b: Option<u32>| matches!((a, b), (Some(a), Some(b)) if a.wrapping_add(1) == b);
        // Both implementations count from zero, so the first group is in step for sure.
        self.start |= number < total || follows(self.last_parity, self.first_data);
        self.end |= follows(self.last_data, self.first_parity);
        self.confirmed = self.start && self.end && is_parity;
    }
}

/// Computes the missing data packets of `group`, which has `need` packets, not all of them data.
fn recover(
    kernel: Kernel,
    group: &mut Group,
    shards: Shards,
    out: &mut Vec<(u32, Recovered)>,
    counters: &mut Counters,
) {
    let need = shards.data();
    // Data first: what a group has more than it needs is parity then.
    group.packets.sort_unstable_by_key(|&(place, _)| place);
    let packets = &group.packets[..need];
    let points = Points::new(packets.iter().map(|&(place, _)| place).collect());
    let longest = packets
        .iter()
        .map(|(_, packet)| packet.len())
        .max()
        .unwrap_or(0);
    for missing in (0..need).map(|place| place as u8) {
        if packets.iter().any(|&(place, _)| place == missing) {
            continue;
        }
        let mut sum = vec![0; longest];
        let numerator = points.numerator(missing);
        for (index, (_, packet)) in packets.iter().enumerate() {
            kernel.mul_add(points.weight(missing, numerator, index), packet, &mut sum);
        }
        match payload(&sum).map(<[u8]>::len) {
            Some(length) => {
                sum.truncate(2 + length);
                sum.drain(..2);
                // Below the wrap, as the group's packets are.
                let total = shards.total() as u32;
                out.push((group.id * total + u32::from(missing), sum));
                counters.fec_recovered += 1;
            }
            None => counters.fec_errs += 1,
        }
    }
}

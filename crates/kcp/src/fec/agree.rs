//! When parity may be sent, and in which groups.
//!
//! kcp-go's decoder takes every packet for one of the groups that its own options name, until its tuner has seen whole groups
//! without a gap. With loss that takes thousands of packets, and till then kcp-go 5.6.1 makes packets of parity that it has in
//! the wrong place, whose numbers and bytes are nonsense and are believed. (5.6.72 recovers nothing meanwhile.) So nobody may send
//! such a peer parity in groups of another size than its own, which are those that it sends itself.
//!
//! Until the peer's groups are known, packets carry the number 0, which is data in groups of any size, and which a decoder
//! takes once and then drops as repeated: no group is ever filled. Acknowledgements are wrapped as well, so that an end which
//! only receives makes itself heard. Then groups of the peer's size are sent, from the second one on. Another end of ours gives itself away
//! by repeating the number 0; it decodes groups of any size and gets those that our options name.

use super::{HEADER, Kind};
use crate::Shards;

/// Acknowledgements that still announce us after the peer has: each may be lost, and it must hear two.
const ANNOUNCEMENTS: u8 = 16;

/// What is known of the peer's groups.
#[derive(Debug)]
pub(crate) enum Agreement {
    /// Nothing yet. Keeps the checksum of the first packet of number 0.
    Waiting(Option<u32>),
    /// Enough; so many acknowledgements are still wrapped.
    Reached(u8),
}

impl Agreement {
    /// Nothing is known, or nothing is asked for.
    pub(crate) fn new(wait: bool) -> Self {
        if wait {
            Self::Waiting(None)
        } else {
            Self::Reached(0)
        }
    }

    /// Whether the next packet is to carry the number 0. Called once for each.
    pub(crate) fn announces(&mut self, has_data: bool) -> bool {
        match self {
            Self::Waiting(_) => true,
            Self::Reached(0) => false,
            Self::Reached(left) if !has_data => {
                *left -= 1;
                true
            }
            Self::Reached(_) => false,
        }
    }

    /// Learns from a data or parity packet, which the decoder has taken; `known` are the groups that it is certain of. Gives the
    /// groups to be sent once there is an answer.
    pub(crate) fn learn(
        &mut self,
        packet: &[u8],
        known: Option<Shards>,
        ours: Shards,
    ) -> Option<Shards> {
        let Self::Waiting(first) = self else {
            return None;
        };
        if let Some(theirs) = known.filter(|theirs| affordable(*theirs, ours)) {
            *self = Self::Reached(0);
            return Some(theirs);
        }
        if Kind::of(packet) != Some(Kind::Data) || packet.first_chunk() != Some(&[0; 4]) {
            return None;
        }
        // The network repeats packets too, but as they are.
        let sum = crc32fast::hash(packet.get(HEADER..)?);
        if *first.get_or_insert(sum) == sum {
            return None;
        }
        *self = Self::Reached(ANNOUNCEMENTS);
        Some(ours)
    }
}

/// A peer must not make us send many times what we have to say: at most as much parity as data, unless our own options ask for
/// more.
fn affordable(theirs: Shards, ours: Shards) -> bool {
    theirs.parity() <= theirs.data()
        || theirs.parity() * ours.data() <= ours.parity() * theirs.data()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fec::write_data_header;

    fn shards(data: usize, parity: usize) -> Shards {
        Shards::new(data, parity).expect("valid")
    }

    fn packet(number: u32, content: u8) -> Vec<u8> {
        let mut packet = vec![content; 40];
        write_data_header(&mut packet, number, Kind::Data);
        packet
    }

    #[test]
    fn the_groups_that_the_peer_sends_are_what_it_gets() {
        let mut agreement = Agreement::new(true);
        assert!(agreement.announces(true) && agreement.announces(false));
        assert_eq!(agreement.learn(&packet(5, 1), None, shards(10, 3)), None);
        let theirs = Some(shards(20, 10));
        assert_eq!(
            agreement.learn(&packet(30, 1), theirs, shards(10, 3)),
            theirs
        );
        assert!(!agreement.announces(true) && !agreement.announces(false));
        assert_eq!(
            agreement.learn(&packet(31, 1), Some(shards(5, 5)), shards(10, 3)),
            None,
            "once"
        );
    }

    #[test]
    fn an_end_of_ours_gives_itself_away_and_hears_the_same_of_us() {
        let mut agreement = Agreement::new(true);
        let ours = shards(10, 3);
        assert_eq!(agreement.learn(&packet(0, 1), None, ours), None);
        assert_eq!(
            agreement.learn(&packet(0, 1), None, ours),
            None,
            "repeated by the network"
        );
        assert_eq!(agreement.learn(&packet(0, 2), None, ours), Some(ours));
        assert!(!agreement.announces(true), "data goes in groups");
        let wrapped = (0..100).filter(|_| agreement.announces(false)).count();
        assert_eq!(wrapped, usize::from(ANNOUNCEMENTS));
    }

    #[test]
    fn a_peer_does_not_multiply_what_we_send() {
        let ours = shards(10, 3);
        for theirs in [shards(1, 255), shards(10, 11)] {
            let mut agreement = Agreement::new(true);
            assert_eq!(agreement.learn(&packet(9, 1), Some(theirs), ours), None);
            assert!(agreement.announces(true));
        }
        let wished = shards(1, 4);
        let mut agreement = Agreement::new(true);
        assert_eq!(
            agreement.learn(&packet(9, 1), Some(wished), shards(2, 8)),
            Some(wished)
        );
    }
}

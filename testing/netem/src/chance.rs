//! Seeded randomness: small generators whose numbers never change, so that a seed stays a replay for good.
//!
//! Every impairment draws from a generator of its own: changing the loss of a path does not change which packets are
//! delayed or corrupted.

use std::time::Duration;

use crate::{Chance, settings::GilbertElliott};

/// SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    /// The generator of one impairment (`stream`) of a path.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut dice = Self(seed ^ stream.wrapping_mul(0xd1b5_4a32_d192_ed03));
        Self(dice.next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// Evenly spread over [0, 1).
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Whether it happens this time.
    pub(crate) fn happens(&mut self, chance: Chance) -> bool {
        self.unit() < chance.share()
    }

    /// A whole number below `limit`, which is at least 1.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        ((u128::from(self.next()) * limit as u128) >> 64) as usize
    }

    /// Evenly spread over [0, 2 × `half`].
    pub(crate) fn around(&mut self, half: Duration) -> Duration {
        (half * 2).mul_f64(self.unit())
    }
}

/// The two states of a Gilbert–Elliott channel: a packet moves the state, then the state says how likely the loss is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Channel {
    bad: bool,
}

impl Channel {
    /// Whether the next packet is lost.
    pub(crate) fn loses(&mut self, model: &GilbertElliott, dice: &mut Dice) -> bool {
        let turn = if self.bad {
            model.to_good
        } else {
            model.to_bad
        };
        self.bad ^= dice.happens(turn);
        dice.happens(if self.bad {
            model.loss_bad
        } else {
            model.loss_good
        })
    }
}

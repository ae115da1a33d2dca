//! Seeded choices. SplitMix64: the same numbers from the same seed on every system and in every version of every library.

/// A stream of numbers that follows from its seed.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Another stream for part `part` of the work, independent of how far this one has gone.
    #[must_use]
    pub fn branch(&self, part: u64) -> Self {
        Self(mix(self.0 ^ mix(part.wrapping_add(1))))
    }

    /// Any number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `bound`; 0 when the bound is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(bound)) >> 64) as u64
    }

    /// True once in `times`.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// A size up to `most`, small ones as frequent as large ones: each power of two is equally likely.
    pub fn size(&mut self, most: u64) -> u64 {
        let bits = self.below(u64::from(64 - most.leading_zeros()) + 1);
        self.below((1u64 << bits.min(63)).min(most.saturating_add(1)))
    }
}

fn mix(seed: u64) -> u64 {
    let z = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_again() {
        let draw = |seed| {
            let mut rng = Rng::new(seed).branch(3);
            [rng.draw(), rng.below(10), rng.size(1 << 20)]
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn the_generator_gives_the_published_numbers() {
        // The first outputs of SplitMix64 from 1234567, as its reference implementation lists them.
        let mut rng = Rng::new(1_234_567);
        assert_eq!(
            [rng.draw(), rng.draw()],
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]
        );
    }

    #[test]
    fn sizes_stay_within_their_bound_and_reach_both_ends() {
        let mut rng = Rng::new(1);
        let sizes: Vec<u64> = (0..2000).map(|_| rng.size(1000)).collect();
        assert!(sizes.iter().all(|&size| size <= 1000));
        assert!(sizes.contains(&0) && sizes.iter().any(|&size| size > 800));
        assert_eq!(rng.size(0), 0);
    }
}

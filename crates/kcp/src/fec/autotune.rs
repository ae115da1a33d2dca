//! Finds out a peer's FEC parameters from which packet numbers are data and which parity, though packets are missing.
//!
//! Numbers start at zero and groups follow one another without a gap, so the type of a packet depends only on its number
//! modulo the group size. Of all group sizes, those are possible for which every data packet seen has a smaller place
//! than every parity packet seen. The smallest possible one, with the border between both seen on either side, is it.

use crate::Shards;

/// Packets remembered: two groups of the largest size.
const SAMPLES: usize = 512;
/// Packets between two searches; a search costs some 100 µs.
const EVERY: usize = 32;

#[derive(Debug, Default)]
pub(super) struct Tuner {
    /// Number, and whether it is parity. A ring once full.
    samples: Vec<(u32, bool)>,
    oldest: usize,
    since_search: usize,
}

impl Tuner {
    /// Takes one packet; gives the parameters as soon as they are certain.
    pub(super) fn sample(&mut self, number: u32, is_parity: bool) -> Option<Shards> {
        if self.samples.len() < SAMPLES {
            self.samples.push((number, is_parity));
        } else {
            self.samples[self.oldest] = (number, is_parity);
            self.oldest = (self.oldest + 1) % SAMPLES;
        }
        self.since_search += 1;
        if self.since_search < EVERY {
            return None;
        }
        self.since_search = 0;
        if self.samples.iter().all(|&(_, is_parity)| !is_parity) {
            return None;
        }
        (2..=256).find_map(|total| self.try_total(total))
    }

    fn try_total(&self, total: usize) -> Option<Shards> {
        if self.samples.len() < (2 * total).min(SAMPLES) {
            return None;
        }
        let mut seen = [false; 256];
        let (mut data_end, mut parity_start) = (0, total);
        for &(number, is_parity) in &self.samples {
            let place = number as usize % total;
            seen[place] = true;
            if is_parity {
                parity_start = parity_start.min(place);
            } else {
                data_end = data_end.max(place + 1);
            }
            if data_end > parity_start {
                return None;
            }
        }
        let distinct = seen.iter().filter(|&&seen| seen).count();
        let certain =
            data_end == parity_start && seen[0] && seen[total - 1] && 2 * distinct >= total;
        if certain {
            Shards::new(data_end, total - data_end).ok()
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_found_in_spite_of_loss() {
        let mut random = 1_u32;
        for (data, parity) in [
            (10, 3),
            (1, 1),
            (20, 10),
            (3, 5),
            (70, 30),
            (200, 56),
            (2, 1),
            (1, 10),
        ] {
            let mut tuner = Tuner::default();
            let mut found = None;
            let mut taken = 0;
            for number in 5000.. {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                if random >> 24 < 51 {
                    continue; // 20 % loss
                }
                taken += 1;
                found = tuner.sample(number, number as usize % (data + parity) >= data);
                if found.is_some() || taken > 3000 {
                    break;
                }
            }
            assert_eq!(
                found,
                Shards::new(data, parity).ok(),
                "{data}/{parity} after {taken}"
            );
        }
    }

    #[test]
    fn nonsense_gives_no_parameters() {
        let mut tuner = Tuner::default();
        let mut random = 1_u32;
        for _ in 0..2000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            assert_eq!(tuner.sample(random, random >> 30 == 1), None);
        }
    }
}

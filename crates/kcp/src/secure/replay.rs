//! Which packet numbers were seen: a window of 2048 behind the newest.

/// Numbers that are told apart behind the newest; older ones count as seen.
const WINDOW: u64 = 2048;
/// No honest sender gets here, and beyond it the arithmetic of the window would end.
const LIMIT: u64 = 1 << 62;
const WORDS: usize = (WINDOW / 64) as usize;

/// Remembers packet numbers. Ask [`ReplayWindow::is_new`] before a packet is opened, and [`ReplayWindow::mark`] it only once it has
/// proved to be authentic: a forged number must change nothing.
#[derive(Clone, Debug)]
pub struct ReplayWindow {
    /// One more than the newest number.
    next: u64,
    /// A ring of bits, by number modulo the window.
    bits: [u64; WORDS],
}

impl Default for ReplayWindow {
    fn default() -> Self {
        Self {
            next: 0,
            bits: [0; WORDS],
        }
    }
}

impl ReplayWindow {
    /// Whether the number was not seen and is not too old.
    pub fn is_new(&self, number: u64) -> bool {
        number < LIMIT
            && (number >= self.next || (self.next - number <= WINDOW && !self.bit(number)))
    }

    /// Takes the number of an authentic packet. Returns whether it is the newest.
    pub fn mark(&mut self, number: u64) -> bool {
        let newest = number >= self.next;
        if newest {
            let skipped = number - self.next;
            if skipped >= WINDOW {
                self.bits = [0; WORDS];
            } else {
                for between in self.next..number {
                    self.set(between, false);
                }
            }
            self.next = number + 1;
        }
        self.set(number, true);
        newest
    }

    /// The newest number; `None` before the first.
    pub fn newest(&self) -> Option<u64> {
        self.next.checked_sub(1)
    }

    /// How many of the numbers after `number` were seen; `number` is not older than the window.
    pub(super) fn seen_after(&self, number: u64) -> u64 {
        (number + 1..self.next)
            .filter(|&later| self.bit(later))
            .count() as u64
    }

    /// The oldest number that is still told apart.
    pub(super) fn oldest(&self) -> u64 {
        self.next.saturating_sub(WINDOW)
    }

    fn bit(&self, number: u64) -> bool {
        self.bits[(number % WINDOW / 64) as usize] >> (number % 64) & 1 == 1
    }

    fn set(&mut self, number: u64, seen: bool) {
        let word = &mut self.bits[(number % WINDOW / 64) as usize];
        let bit = 1 << (number % 64);
        if seen {
            *word |= bit;
        } else {
            *word &= !bit;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn agrees_with_a_set_of_all_numbers() {
        for seed in 0..200_u64 {
            let mut state = seed;
            let mut random = move || {
                state = state
                    .wrapping_mul(0x5851_f42d_4c95_7f2d)
                    .wrapping_add(0x1405_7b7e_f767_814f);
                state >> 33
            };
            let (mut window, mut seen, mut newest) =
                (ReplayWindow::default(), HashSet::new(), 0_u64);
            for _ in 0..3000 {
                let number = match random() % 10 {
                    0..5 => newest + random() % 4,
                    5..9 => newest.saturating_sub(random() % 2500),
                    _ => newest + random() % 5000,
                };
                let expected =
                    !seen.contains(&number) && (seen.is_empty() || number + WINDOW > newest);
                assert_eq!(
                    window.is_new(number),
                    expected,
                    "seed {seed}, number {number}, newest {newest}"
                );
                if expected {
                    assert_eq!(
                        window.mark(number),
                        seen.is_empty() || number > newest,
                        "seed {seed}"
                    );
                    seen.insert(number);
                    newest = newest.max(number);
                }
            }
        }
    }

    #[test]
    fn numbers_that_no_sender_reaches_are_refused() {
        let mut window = ReplayWindow::default();
        assert!(!window.is_new(u64::MAX) && !window.is_new(LIMIT));
        assert!(window.mark(LIMIT - 1));
        assert!(!window.is_new(LIMIT - 1) && window.is_new(LIMIT - 2));
    }
}

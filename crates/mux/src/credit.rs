//! How the link's window is shared, as pure arithmetic. Sender and receiver compute the same, see docs/protocol/mux.md §Shares.

/// Steps by which a filling link window makes shares smaller. A stream that is never read keeps what it holds, so what matters is
/// how many such streams it takes to fill the window: with a quarter for the first and half of that after each twentieth, about
/// 0.2 * 2^20, more than [`crate::Config::max_streams`] ever is. A dynamic threshold (Choudhury and Hahne 1998) would be used up
/// by log2(window) of them: it counts on queues that drain.
const STEPS: u32 = 20;

/// Bytes that one stream may hold of a link window of which `free` bytes are unused.
pub(crate) fn share(window: u32, free: u32) -> u32 {
    (window / 4)
        .checked_shr(level(window, free))
        .unwrap_or(0)
        .max(1)
}

/// The largest `free` at which shares are smaller than they are now.
pub(crate) fn next_level_at(window: u32, free: u32) -> u32 {
    let used = (level(window, free) + 1).saturating_mul(step(window));
    window.saturating_sub(used)
}

/// Bytes of consumed link window that a receiver may keep to itself: rarely a frame while there is plenty, at once when the peer is
/// nearly out of credit.
pub(crate) fn link_hold(window: u32, free: u32) -> u32 {
    (window / 64).min(free / 2)
}

fn level(window: u32, free: u32) -> u32 {
    window.saturating_sub(free) / step(window)
}

fn step(window: u32) -> u32 {
    (window / STEPS).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Streams that take their share one after the other and never give it back.
    fn hoarders(window: u32) -> u32 {
        let mut free = window;
        let mut streams = 0;
        while free > 0 {
            free -= share(window, free).min(256 << 10).min(free);
            streams += 1;
        }
        streams
    }

    #[test]
    fn more_hoarders_than_streams_are_needed_to_fill_a_window() {
        assert!(hoarders(64 << 20) > 65_536, "{}", hoarders(64 << 20));
        assert!(hoarders(64 << 10) > 10_000, "{}", hoarders(64 << 10));
    }

    #[test]
    fn a_thousand_hoarders_leave_a_useful_share() {
        let mut free: u32 = 64 << 20;
        for _ in 0..1000 {
            free -= share(64 << 20, free).min(256 << 10);
        }
        assert!(
            share(64 << 20, free) >= 4 << 10,
            "{}",
            share(64 << 20, free)
        );
    }

    #[test]
    fn a_lone_stream_may_hold_a_tenth() {
        let window = 64 << 20;
        let mut held = 0;
        while held < share(window, window - held) {
            held += 1 << 10;
        }
        assert!(held >= window / 10, "{held}");
    }

    #[test]
    fn shares_are_defined_for_every_window() {
        for window in [0, 1, 2, 19, 20, 21, 4096, i32::MAX as u32, u32::MAX] {
            for free in [0, 1, window / 2, window, u32::MAX] {
                let share = share(window, free);
                assert!(share >= 1 && share <= (window / 4).max(1));
                assert!(next_level_at(window, free) <= window);
                assert!(link_hold(window, free) <= window);
            }
        }
    }

    #[test]
    fn the_next_level_is_where_the_share_shrinks() {
        let window = 1 << 20;
        let mut free = window;
        while share(window, free) > 1 {
            let at = next_level_at(window, free);
            assert_eq!(share(window, at + 1), share(window, free));
            assert_eq!(share(window, at), share(window, free) / 2);
            free = at;
        }
    }
}

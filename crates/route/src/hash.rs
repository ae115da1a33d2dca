//! Stable hashing: the same on every worker, in every process and version, because visitors are assigned to servers by it.

/// 64 well-mixed bits of `bytes`. Not secret: who knows `seed` can make values meet.
pub fn hash_bytes(seed: u64, bytes: &[u8]) -> u64 {
    // FNV-1a over words of eight bytes would be faster; keys are addresses and cookies, and this is short.
    let start = 0xcbf2_9ce4_8422_2325 ^ mix(seed);
    mix(bytes.iter().fold(start, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    }))
}

/// The finaliser of splitmix64: every bit of the input changes half of the output's.
pub(crate) fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

//! Salsa20 over a packet: the first 8 bytes (half of the random nonce field) stay in the clear and are the nonce.
//!
//! Eight blocks of key stream are made at a time, one in each lane of a vector: a packet needs 24 of them.

#![allow(
    unsafe_code,
    reason = "SIMD: a function for a CPU feature is called only where that feature was detected"
)]

use super::cfb::PacketCipher;

const CLEAR: usize = 8;
const LANES: usize = 8;
const BLOCK: usize = 64;
const DOUBLE_ROUNDS: usize = 10;
/// "expand 32-byte k": the diagonal of the state.
const SIGMA: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];

type Word = [u32; LANES];

pub(super) struct Salsa([u32; 8]);

impl Salsa {
    pub(super) fn boxed(key: &[u8]) -> Option<Box<dyn PacketCipher>> {
        let (words, rest) = key.as_chunks::<4>();
        let key: [[u8; 4]; 8] = words.try_into().ok()?;
        rest.is_empty()
            .then(|| Box::new(Self(key.map(u32::from_le_bytes))) as Box<dyn PacketCipher>)
    }
}

impl PacketCipher for Salsa {
    fn encrypt(&self, packet: &mut [u8]) {
        if let Some((nonce, rest)) = packet.split_first_chunk_mut::<CLEAR>() {
            apply(&self.0, *nonce, rest);
        }
    }

    fn decrypt(&self, packet: &mut [u8]) {
        self.encrypt(packet);
    }
}

fn apply(key: &[u32; 8], nonce: [u8; CLEAR], data: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the CPU has AVX2, as just asked (a cached flag).
        unsafe { apply_avx2(key, nonce, data) };
        return;
    }
    apply_lanes(key, nonce, data);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn apply_avx2(key: &[u32; 8], nonce: [u8; CLEAR], data: &mut [u8]) {
    apply_by(|words| x86::rounds(words), key, nonce, data);
}

fn apply_lanes(key: &[u32; 8], nonce: [u8; CLEAR], data: &mut [u8]) {
    apply_by(rounds, key, nonce, data);
}

#[inline(always)]
fn apply_by(rounds: impl Fn(&mut [Word; 16]), key: &[u32; 8], nonce: [u8; CLEAR], data: &mut [u8]) {
    let nonce: [u32; 2] =
        std::array::from_fn(|i| u32::from_le_bytes(std::array::from_fn(|j| nonce[4 * i + j])));
    for (counter, run) in (0_u32..).step_by(LANES).zip(data.chunks_mut(LANES * BLOCK)) {
        let mut words = state(key, nonce, counter);
        rounds(&mut words);
        for (lane, block) in run.chunks_mut(BLOCK).enumerate() {
            let mut stream = [0; BLOCK];
            for (bytes, word) in stream.as_chunks_mut::<4>().0.iter_mut().zip(&words) {
                *bytes = word[lane].to_le_bytes();
            }
            for (byte, stream) in block.iter_mut().zip(&stream) {
                *byte ^= stream;
            }
        }
    }
}

/// The states of the blocks `counter` to `counter + 7`. A packet is far below the 2^32 blocks where the upper half of the
/// counter would count.
#[inline(always)]
fn state(key: &[u32; 8], nonce: [u32; 2], counter: u32) -> [Word; 16] {
    let [s0, s1, s2, s3] = SIGMA;
    let [k0, k1, k2, k3, k4, k5, k6, k7] = *key;
    let [n0, n1] = nonce;
    let words = [s0, k0, k1, k2, k3, s1, n0, n1, 0, 0, s2, k4, k5, k6, k7, s3];
    let mut state = words.map(|word| [word; LANES]);
    state[8] = std::array::from_fn(|lane| counter.wrapping_add(lane as u32));
    state
}

/// All rounds, and the start added to their result.
fn rounds(words: &mut [Word; 16]) {
    let start = *words;
    for _ in 0..DOUBLE_ROUNDS {
        for [a, b, c, d] in QUARTERS {
            for (to, one, other, by) in [(b, a, d, 7), (c, b, a, 9), (d, c, b, 13), (a, d, c, 18)] {
                let (one, other) = (words[one], words[other]);
                for lane in 0..LANES {
                    words[to][lane] ^= one[lane].wrapping_add(other[lane]).rotate_left(by);
                }
            }
        }
    }
    for (word, start) in words.iter_mut().zip(&start) {
        for lane in 0..LANES {
            word[lane] = word[lane].wrapping_add(start[lane]);
        }
    }
}

/// Which words of the state each quarter round mixes: columns, then rows.
const QUARTERS: [[usize; 4]; 8] = [
    [0, 4, 8, 12],
    [5, 9, 13, 1],
    [10, 14, 2, 6],
    [15, 3, 7, 11],
    [0, 1, 2, 3],
    [5, 6, 7, 4],
    [10, 11, 8, 9],
    [15, 12, 13, 14],
];

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m256i, _mm256_add_epi32, _mm256_loadu_si256, _mm256_or_si256, _mm256_slli_epi32,
        _mm256_srli_epi32, _mm256_storeu_si256, _mm256_xor_si256,
    };

    use super::{DOUBLE_ROUNDS, Word};

    #[target_feature(enable = "avx2")]
    fn load(word: &Word) -> __m256i {
        // SAFETY: the array has the 32 bytes that are read, and the instruction needs no alignment.
        unsafe { _mm256_loadu_si256(word.as_ptr().cast::<__m256i>()) }
    }

    /// `to ^ (one + other) <<< LEFT`; `RIGHT` is 32 less that.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn mix<const LEFT: i32, const RIGHT: i32>(
        to: __m256i,
        one: __m256i,
        other: __m256i,
    ) -> __m256i {
        let sum = _mm256_add_epi32(one, other);
        let turned = _mm256_or_si256(
            _mm256_slli_epi32::<LEFT>(sum),
            _mm256_srli_epi32::<RIGHT>(sum),
        );
        _mm256_xor_si256(to, turned)
    }

    macro_rules! quarter {
        ($x:ident, $a:literal, $b:literal, $c:literal, $d:literal) => {
            $x[$b] = mix::<7, 25>($x[$b], $x[$a], $x[$d]);
            $x[$c] = mix::<9, 23>($x[$c], $x[$b], $x[$a]);
            $x[$d] = mix::<13, 19>($x[$d], $x[$c], $x[$b]);
            $x[$a] = mix::<18, 14>($x[$a], $x[$d], $x[$c]);
        };
    }

    /// As the plain one.
    #[target_feature(enable = "avx2")]
    pub(super) fn rounds(words: &mut [Word; 16]) {
        let start = [
            load(&words[0]),
            load(&words[1]),
            load(&words[2]),
            load(&words[3]),
            load(&words[4]),
            load(&words[5]),
            load(&words[6]),
            load(&words[7]),
            load(&words[8]),
            load(&words[9]),
            load(&words[10]),
            load(&words[11]),
            load(&words[12]),
            load(&words[13]),
            load(&words[14]),
            load(&words[15]),
        ];
        let mut x = start;
        for _ in 0..DOUBLE_ROUNDS {
            quarter!(x, 0, 4, 8, 12);
            quarter!(x, 5, 9, 13, 1);
            quarter!(x, 10, 14, 2, 6);
            quarter!(x, 15, 3, 7, 11);
            quarter!(x, 0, 1, 2, 3);
            quarter!(x, 5, 6, 7, 4);
            quarter!(x, 10, 11, 8, 9);
            quarter!(x, 15, 12, 13, 14);
        }
        for (word, (end, start)) in words.iter_mut().zip(x.into_iter().zip(start)) {
            let sum = _mm256_add_epi32(end, start);
            // SAFETY: the array has the 32 bytes that are written, and the instruction needs no alignment.
            unsafe { _mm256_storeu_si256(word.as_mut_ptr().cast::<__m256i>(), sum) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_give_the_same_bytes() {
        let key = std::array::from_fn(|i| i as u32 * 0x0101_0107);
        for length in [0, 1, 63, 64, 65, 511, 512, 513, 1492] {
            let (mut a, mut b) = (vec![0; length], vec![0; length]);
            apply(&key, [9; CLEAR], &mut a);
            apply_lanes(&key, [9; CLEAR], &mut b);
            assert!(a == b, "{length}");
        }
    }
}

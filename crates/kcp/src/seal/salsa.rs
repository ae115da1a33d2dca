//! Salsa20 over a packet: the first 8 bytes (half of the random nonce field) stay in the clear and are the nonce.
//!
//! Eight blocks of key stream are made at a time, one in each lane of a vector: a packet needs 24 of them. The code is
//! plain; that it is compiled once more for AVX2 makes it fast where a CPU has that.

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
    apply_lanes(key, nonce, data);
}

#[inline(always)]
fn apply_lanes(key: &[u32; 8], nonce: [u8; CLEAR], data: &mut [u8]) {
    let nonce: [u32; 2] =
        std::array::from_fn(|i| u32::from_le_bytes(std::array::from_fn(|j| nonce[4 * i + j])));
    let mut stream = [0; LANES * BLOCK];
    for (counter, run) in (0_u32..).step_by(LANES).zip(data.chunks_mut(LANES * BLOCK)) {
        let start = state(key, nonce, counter);
        let end = rounds(start);
        for (at, (end, start)) in end.iter().zip(&start).enumerate() {
            for lane in 0..LANES {
                let word = end[lane].wrapping_add(start[lane]).to_le_bytes();
                let at = lane * BLOCK + 4 * at;
                stream[at..at + 4].copy_from_slice(&word);
            }
        }
        for (byte, stream) in run.iter_mut().zip(&stream) {
            *byte ^= stream;
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

#[inline(always)]
fn rounds(mut x: [Word; 16]) -> [Word; 16] {
    for _ in 0..DOUBLE_ROUNDS {
        quarter(&mut x, 0, 4, 8, 12);
        quarter(&mut x, 5, 9, 13, 1);
        quarter(&mut x, 10, 14, 2, 6);
        quarter(&mut x, 15, 3, 7, 11);
        quarter(&mut x, 0, 1, 2, 3);
        quarter(&mut x, 5, 6, 7, 4);
        quarter(&mut x, 10, 11, 8, 9);
        quarter(&mut x, 15, 12, 13, 14);
    }
    x
}

#[inline(always)]
fn quarter(x: &mut [Word; 16], a: usize, b: usize, c: usize, d: usize) {
    for (to, one, other, by) in [(b, a, d, 7), (c, b, a, 9), (d, c, b, 13), (a, d, c, 18)] {
        let (one, other) = (x[one], x[other]);
        for lane in 0..LANES {
            x[to][lane] ^= one[lane].wrapping_add(other[lane]).rotate_left(by);
        }
    }
}

//! The one loop that FEC spends its time in: `target ⊕= coefficient · source` over GF(2^8), for one target or several.
//!
//! Which instructions to use is found out once per process. All kernels give the same bytes.

#![allow(
    unsafe_code,
    reason = "SIMD: functions for a CPU feature are called only where that feature was detected"
)]

use std::sync::OnceLock;

use super::gf::NIBBLES;

/// Bytes of sums, in one line of the cache: what is written again for every packet must not lie across two.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Line(pub(super) [u8; Line::BYTES]);

impl Line {
    pub(super) const BYTES: usize = 64;
    pub(super) const ZERO: Self = Self([0; Self::BYTES]);

    fn bytes(lines: &mut [Self]) -> &mut [u8] {
        let length = lines.len() * Self::BYTES;
        // SAFETY: a line is an array of bytes and nothing else (size and alignment are 64), so that the lines are as many
        // bytes in a row; the borrow is passed on.
        unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast::<u8>(), length) }
    }
}

/// A way to multiply and add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// Tables of nibble products, a byte at a time.
    Scalar,
    /// The same tables, 32 bytes at a time by PSHUFB.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// Multiplication as an 8×8 bit matrix, 32 bytes at a time.
    #[cfg(target_arch = "x86_64")]
    Gfni,
    /// The same, 64 bytes at a time.
    #[cfg(target_arch = "x86_64")]
    Gfni512,
}

impl Kernel {
    /// The fastest one that this CPU has.
    pub fn best() -> Self {
        static BEST: OnceLock<Kernel> = OnceLock::new();
        *BEST.get_or_init(|| Self::available().last().copied().unwrap_or(Self::Scalar))
    }

    /// All that this CPU has, the slowest first.
    pub fn available() -> Vec<Self> {
        #[allow(unused_mut, reason = "other architectures have only the scalar kernel")]
        let mut kernels = vec![Self::Scalar];
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            kernels.push(Self::Avx2);
            if is_x86_feature_detected!("gfni") {
                kernels.push(Self::Gfni);
                if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") {
                    kernels.push(Self::Gfni512);
                }
            }
        }
        kernels
    }

    /// `target[i] ^= coefficient · source[i]` for as many bytes as the shorter of both has.
    pub fn mul_add(self, coefficient: u8, source: &[u8], target: &mut [u8]) {
        let length = source.len().min(target.len());
        let (source, target) = (&source[..length], &mut target[..length]);
        match self {
            Self::Scalar => scalar(coefficient, source, target),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 if is_x86_feature_detected!("avx2") => {
                // SAFETY: the CPU has AVX2, as just asked (a cached flag).
                unsafe { x86::avx2(coefficient, source, target) }
            }
            #[cfg(target_arch = "x86_64")]
            Self::Gfni if is_x86_feature_detected!("gfni") && is_x86_feature_detected!("avx2") => {
                // SAFETY: the CPU has GFNI and AVX2, as just asked (cached flags).
                unsafe { x86::gfni(coefficient, source, target) }
            }
            #[cfg(target_arch = "x86_64")]
            Self::Gfni512
                if is_x86_feature_detected!("gfni")
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw") =>
            {
                // SAFETY: the CPU has GFNI, AVX-512F and AVX-512BW, as just asked (cached flags).
                unsafe { x86::gfni512(coefficient, source, target) }
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 | Self::Gfni | Self::Gfni512 => scalar(coefficient, source, target),
        }
    }
}

impl Kernel {
    /// Adds `source` times each coefficient to each row of `sums`; a row has `stride` lines, and `source` no more bytes
    /// than that.
    pub(super) fn mul_add_rows(
        self,
        coefficients: &[u8],
        source: &[u8],
        sums: &mut [Line],
        stride: usize,
    ) {
        #[cfg(target_arch = "x86_64")]
        if self == Self::Gfni512
            && is_x86_feature_detected!("gfni")
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
        {
            // SAFETY: the CPU has GFNI, AVX-512F and AVX-512BW, as just asked (cached flags).
            unsafe { x86::gfni512_rows(coefficients, source, sums, stride) };
            return;
        }
        for (coefficient, row) in coefficients.iter().zip(sums.chunks_mut(stride.max(1))) {
            self.mul_add(*coefficient, source, Line::bytes(row));
        }
    }
}

fn scalar(coefficient: u8, source: &[u8], target: &mut [u8]) {
    let nibbles = &NIBBLES[usize::from(coefficient)];
    for (to, from) in target.iter_mut().zip(source) {
        *to ^= nibbles[usize::from(from & 15)] ^ nibbles[16 + usize::from(from >> 4)];
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m128i, __m256i, __m512i, _mm_loadu_si128, _mm256_and_si256, _mm256_broadcastsi128_si256,
        _mm256_gf2p8affine_epi64_epi8, _mm256_loadu_si256, _mm256_set1_epi8, _mm256_set1_epi64x,
        _mm256_shuffle_epi8, _mm256_srli_epi64, _mm256_storeu_si256, _mm256_xor_si256,
        _mm512_gf2p8affine_epi64_epi8, _mm512_loadu_si512, _mm512_mask_storeu_epi8,
        _mm512_maskz_loadu_epi8, _mm512_set1_epi64, _mm512_storeu_si512, _mm512_xor_si512,
    };

    use super::{
        super::gf::{AFFINE, NIBBLES},
        Line, scalar,
    };

    const LANE: usize = 32;

    #[target_feature(enable = "avx2")]
    fn load(bytes: &[u8; LANE]) -> __m256i {
        // SAFETY: the array has the 32 bytes that are read, and the instruction needs no alignment.
        unsafe { _mm256_loadu_si256(bytes.as_ptr().cast::<__m256i>()) }
    }

    #[target_feature(enable = "avx2")]
    fn store(bytes: &mut [u8; LANE], value: __m256i) {
        // SAFETY: the array has the 32 bytes that are written, and the instruction needs no alignment.
        unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast::<__m256i>(), value) }
    }

    /// Sixteen table bytes in both halves of a register.
    #[target_feature(enable = "avx2")]
    fn table(bytes: &[u8]) -> __m256i {
        let bytes: &[u8; 16] = bytes.first_chunk().unwrap_or(&[0; 16]);
        // SAFETY: the array has the 16 bytes that are read, and the instruction needs no alignment.
        let half = unsafe { _mm_loadu_si128(bytes.as_ptr().cast::<__m128i>()) };
        _mm256_broadcastsi128_si256(half)
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn avx2(coefficient: u8, source: &[u8], target: &mut [u8]) {
        let nibbles = &NIBBLES[usize::from(coefficient)];
        let (low, high) = (table(&nibbles[..16]), table(&nibbles[16..]));
        let mask = _mm256_set1_epi8(15);
        let (from, from_rest) = source.as_chunks::<LANE>();
        let (to, to_rest) = target.as_chunks_mut::<LANE>();
        for (from, to) in from.iter().zip(to) {
            let bytes = load(from);
            let low = _mm256_shuffle_epi8(low, _mm256_and_si256(bytes, mask));
            let high =
                _mm256_shuffle_epi8(high, _mm256_and_si256(_mm256_srli_epi64::<4>(bytes), mask));
            store(to, _mm256_xor_si256(load(to), _mm256_xor_si256(low, high)));
        }
        scalar(coefficient, from_rest, to_rest);
    }

    #[target_feature(enable = "avx2,gfni")]
    pub(super) fn gfni(coefficient: u8, source: &[u8], target: &mut [u8]) {
        let matrix = _mm256_set1_epi64x(AFFINE[usize::from(coefficient)].cast_signed());
        let (from, from_rest) = source.as_chunks::<LANE>();
        let (to, to_rest) = target.as_chunks_mut::<LANE>();
        for (from, to) in from.iter().zip(to) {
            let product = _mm256_gf2p8affine_epi64_epi8::<0>(load(from), matrix);
            store(to, _mm256_xor_si256(load(to), product));
        }
        scalar(coefficient, from_rest, to_rest);
    }

    /// Four rows at a time, so that each part of the source is loaded once for four.
    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    pub(super) fn gfni512_rows(
        coefficients: &[u8],
        source: &[u8],
        sums: &mut [Line],
        stride: usize,
    ) {
        let rows = sums.chunks_mut((4 * stride).max(1));
        for (coefficients, rows) in coefficients.chunks(4).zip(rows) {
            match *coefficients {
                [a, b, c, d] => gfni512_some([a, b, c, d], source, rows, stride),
                [a, b, c] => gfni512_some([a, b, c], source, rows, stride),
                [a, b] => gfni512_some([a, b], source, rows, stride),
                [a] => gfni512_some([a], source, rows, stride),
                _ => {}
            }
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    fn gfni512_some<const N: usize>(
        coefficients: [u8; N],
        source: &[u8],
        sums: &mut [Line],
        stride: usize,
    ) {
        let matrices =
            coefficients.map(|c| _mm512_set1_epi64(AFFINE[usize::from(c)].cast_signed()));
        let mut rows = sums.chunks_mut(stride.max(1));
        let mut rows: [&mut [Line]; N] = std::array::from_fn(|_| rows.next().unwrap_or_default());
        for (at, part) in source.chunks(Line::BYTES).enumerate() {
            let mask = u64::MAX >> (Line::BYTES - part.len());
            // SAFETY: the mask has a bit for each byte of the part, and only those are read.
            let bytes = unsafe { _mm512_maskz_loadu_epi8(mask, part.as_ptr().cast::<i8>()) };
            for (row, matrix) in rows.iter_mut().zip(matrices) {
                let Some(Line(sum)) = row.get_mut(at) else {
                    return;
                };
                let product = _mm512_gf2p8affine_epi64_epi8::<0>(bytes, matrix);
                let sum = sum.as_mut_ptr().cast::<__m512i>();
                // SAFETY: a line has the 64 bytes that are read and written.
                unsafe {
                    _mm512_storeu_si512(sum, _mm512_xor_si512(_mm512_loadu_si512(sum), product));
                }
            }
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    pub(super) fn gfni512(coefficient: u8, source: &[u8], target: &mut [u8]) {
        let matrix = _mm512_set1_epi64(AFFINE[usize::from(coefficient)].cast_signed());
        let (from, from_rest) = source.as_chunks::<64>();
        let (to, to_rest) = target.as_chunks_mut::<64>();
        for (from, to) in from.iter().zip(to) {
            // SAFETY: both arrays have the 64 bytes that are read, and the instructions need no alignment.
            let (bytes, sum) = unsafe {
                (
                    _mm512_loadu_si512(from.as_ptr().cast::<__m512i>()),
                    _mm512_loadu_si512(to.as_ptr().cast::<__m512i>()),
                )
            };
            let product = _mm512_gf2p8affine_epi64_epi8::<0>(bytes, matrix);
            let sum = _mm512_xor_si512(sum, product);
            // SAFETY: the array has the 64 bytes that are written.
            unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast::<__m512i>(), sum) }
        }
        // What is left, below 64 bytes, goes through a mask: one bit for each byte.
        let left = from_rest.len().min(to_rest.len());
        let mask = (1_u64 << left) - 1;
        // SAFETY: only the first `left` bytes are read, which both slices have; masked ones are not touched.
        let (bytes, sum) = unsafe {
            (
                _mm512_maskz_loadu_epi8(mask, from_rest.as_ptr().cast::<i8>()),
                _mm512_maskz_loadu_epi8(mask, to_rest.as_ptr().cast::<i8>()),
            )
        };
        let sum = _mm512_xor_si512(sum, _mm512_gf2p8affine_epi64_epi8::<0>(bytes, matrix));
        // SAFETY: only the first `left` bytes are written, which the slice has.
        unsafe { _mm512_mask_storeu_epi8(to_rest.as_mut_ptr().cast::<i8>(), mask, sum) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_summed_as_one_by_one() {
        let source: Vec<u8> = (0..400u32).map(|i| (i * 37 + 5) as u8).collect();
        for length in [0, 1, 63, 64, 65, 128, 400] {
            for count in 0..11 {
                let coefficients: Vec<u8> = (0..count).map(|i| (i * 29) as u8).collect();
                for kernel in Kernel::available() {
                    let mut sums = vec![Line([3; Line::BYTES]); 7 * count];
                    kernel.mul_add_rows(&coefficients, &source[..length], &mut sums, 7);
                    for (coefficient, row) in coefficients.iter().zip(sums.chunks_mut(7)) {
                        let mut expected = vec![3; 7 * Line::BYTES];
                        scalar(*coefficient, &source[..length], &mut expected[..length]);
                        assert!(Line::bytes(row) == expected, "{kernel:?} {length} {count}");
                    }
                }
            }
        }
    }

    #[test]
    fn every_kernel_gives_the_same_bytes() {
        let source: Vec<u8> = (0..1500u32).map(|i| (i * 31 + i / 256) as u8).collect();
        for length in [0, 1, 31, 32, 33, 64, 100, 1499, 1500] {
            for coefficient in 0..=255 {
                let mut expected = vec![0x5a; length];
                scalar(coefficient, &source[..length], &mut expected);
                for kernel in Kernel::available() {
                    let mut target = vec![0x5a; length];
                    kernel.mul_add(coefficient, &source, &mut target);
                    assert_eq!(target, expected, "{kernel:?} {coefficient} {length}");
                }
            }
        }
    }
}

//! Triple DES (FIPS 46-3, E-D-E with three keys), encryption only, which is all that CFB needs: S-box and permutation in one
//! table. Its addresses depend on secrets; see the note in `twofish`.
//!
//! Both halves of a block are kept rotated right by one bit, so that the six bits that each S-box gets (the expansion E) lie
//! together: those of boxes 1, 3, 5 and 7 in the word itself, those of 2, 4, 6 and 8 in the word rotated by four.

use cipher::{
    Block, BlockCipherEncBackend, BlockCipherEncClosure, BlockCipherEncrypt, BlockSizeUser, InOut,
    Key, KeyInit, KeySizeUser, ParBlocks, ParBlocksSizeUser,
    typenum::{U4, U8, U24},
};

const ROUNDS: usize = 16;

/// FIPS 46-3, appendix 1: a row for each pair of outer bits, a column for the four inner ones.
const S: [[[u8; 16]; 4]; 8] = [
    [
        [14, 4, 13, 1, 2, 15, 11, 8, 3, 10, 6, 12, 5, 9, 0, 7],
        [0, 15, 7, 4, 14, 2, 13, 1, 10, 6, 12, 11, 9, 5, 3, 8],
        [4, 1, 14, 8, 13, 6, 2, 11, 15, 12, 9, 7, 3, 10, 5, 0],
        [15, 12, 8, 2, 4, 9, 1, 7, 5, 11, 3, 14, 10, 0, 6, 13],
    ],
    [
        [15, 1, 8, 14, 6, 11, 3, 4, 9, 7, 2, 13, 12, 0, 5, 10],
        [3, 13, 4, 7, 15, 2, 8, 14, 12, 0, 1, 10, 6, 9, 11, 5],
        [0, 14, 7, 11, 10, 4, 13, 1, 5, 8, 12, 6, 9, 3, 2, 15],
        [13, 8, 10, 1, 3, 15, 4, 2, 11, 6, 7, 12, 0, 5, 14, 9],
    ],
    [
        [10, 0, 9, 14, 6, 3, 15, 5, 1, 13, 12, 7, 11, 4, 2, 8],
        [13, 7, 0, 9, 3, 4, 6, 10, 2, 8, 5, 14, 12, 11, 15, 1],
        [13, 6, 4, 9, 8, 15, 3, 0, 11, 1, 2, 12, 5, 10, 14, 7],
        [1, 10, 13, 0, 6, 9, 8, 7, 4, 15, 14, 3, 11, 5, 2, 12],
    ],
    [
        [7, 13, 14, 3, 0, 6, 9, 10, 1, 2, 8, 5, 11, 12, 4, 15],
        [13, 8, 11, 5, 6, 15, 0, 3, 4, 7, 2, 12, 1, 10, 14, 9],
        [10, 6, 9, 0, 12, 11, 7, 13, 15, 1, 3, 14, 5, 2, 8, 4],
        [3, 15, 0, 6, 10, 1, 13, 8, 9, 4, 5, 11, 12, 7, 2, 14],
    ],
    [
        [2, 12, 4, 1, 7, 10, 11, 6, 8, 5, 3, 15, 13, 0, 14, 9],
        [14, 11, 2, 12, 4, 7, 13, 1, 5, 0, 15, 10, 3, 9, 8, 6],
        [4, 2, 1, 11, 10, 13, 7, 8, 15, 9, 12, 5, 6, 3, 0, 14],
        [11, 8, 12, 7, 1, 14, 2, 13, 6, 15, 0, 9, 10, 4, 5, 3],
    ],
    [
        [12, 1, 10, 15, 9, 2, 6, 8, 0, 13, 3, 4, 14, 7, 5, 11],
        [10, 15, 4, 2, 7, 12, 9, 5, 6, 1, 13, 14, 0, 11, 3, 8],
        [9, 14, 15, 5, 2, 8, 12, 3, 7, 0, 4, 10, 1, 13, 11, 6],
        [4, 3, 2, 12, 9, 5, 15, 10, 11, 14, 1, 7, 6, 0, 8, 13],
    ],
    [
        [4, 11, 2, 14, 15, 0, 8, 13, 3, 12, 9, 7, 5, 10, 6, 1],
        [13, 0, 11, 7, 4, 9, 1, 10, 14, 3, 5, 12, 2, 15, 8, 6],
        [1, 4, 11, 13, 12, 3, 7, 14, 10, 15, 6, 8, 0, 5, 9, 2],
        [6, 11, 13, 8, 1, 4, 10, 7, 9, 5, 0, 15, 14, 2, 3, 12],
    ],
    [
        [13, 2, 8, 4, 6, 15, 11, 1, 10, 9, 3, 14, 5, 0, 12, 7],
        [1, 15, 13, 8, 10, 3, 7, 4, 12, 5, 6, 11, 0, 14, 9, 2],
        [7, 11, 4, 1, 9, 12, 14, 2, 0, 6, 10, 13, 15, 3, 5, 8],
        [2, 1, 14, 7, 4, 10, 8, 13, 15, 12, 9, 0, 3, 5, 6, 11],
    ],
];

/// The permutation after the S-boxes, as all of these: which bit of the input, counted from one at the top, comes next.
const P: [u8; 32] = [
    16, 7, 20, 21, 29, 12, 28, 17, 1, 15, 23, 26, 5, 18, 31, 10, 2, 8, 24, 14, 32, 27, 3, 9, 19,
    13, 30, 6, 22, 11, 4, 25,
];
const PC1: [u8; 56] = [
    57, 49, 41, 33, 25, 17, 9, 1, 58, 50, 42, 34, 26, 18, 10, 2, 59, 51, 43, 35, 27, 19, 11, 3, 60,
    52, 44, 36, 63, 55, 47, 39, 31, 23, 15, 7, 62, 54, 46, 38, 30, 22, 14, 6, 61, 53, 45, 37, 29,
    21, 13, 5, 28, 20, 12, 4,
];
const PC2: [u8; 48] = [
    14, 17, 11, 24, 1, 5, 3, 28, 15, 6, 21, 10, 23, 19, 12, 4, 26, 8, 16, 7, 27, 20, 13, 2, 41, 52,
    31, 37, 47, 55, 30, 40, 51, 45, 33, 48, 44, 49, 39, 56, 34, 53, 46, 42, 50, 36, 29, 32,
];
/// How far both halves of the key are rotated before each round.
const SHIFTS: [u32; ROUNDS] = [1, 1, 2, 2, 2, 2, 2, 2, 1, 2, 2, 2, 2, 2, 2, 1];

/// What six bits give after S-box and permutation, rotated right by one.
static SP: [[u32; 64]; 8] = {
    let mut table = [[0; 64]; 8];
    let mut which = 0;
    while which < 8 {
        let mut x = 0;
        while x < 64 {
            let (row, column) = (x >> 4 & 2 | x & 1, x >> 1 & 15);
            let nibble = (S[which][row][column] as u64) << (28 - 4 * which);
            table[which][x] = (permute(nibble, 32, &P) as u32).rotate_right(1);
            x += 1;
        }
        which += 1;
    }
    table
};

/// The bits of `from`, which has so many, that `table` names.
const fn permute(from: u64, width: u32, table: &[u8]) -> u64 {
    let (mut to, mut at) = (0, 0);
    while at < table.len() {
        to = to << 1 | from >> (width - table[at] as u32) & 1;
        at += 1;
    }
    to
}

/// The key of a round: for boxes 1, 3, 5 and 7, and for 2, 4, 6 and 8, each at the place of its six bits.
type RoundKey = [u32; 2];

fn schedule(key: u64) -> [RoundKey; ROUNDS] {
    const HALF: u64 = (1 << 28) - 1;
    let chosen = permute(key, 64, &PC1);
    let (mut c, mut d) = (chosen >> 28, chosen & HALF);
    SHIFTS.map(|shift| {
        let rotate = |half: u64| (half << shift | half >> (28 - shift)) & HALF;
        (c, d) = (rotate(c), rotate(d));
        let bits = permute(c << 28 | d, 56, &PC2);
        let part = |which: u32| (bits >> (42 - 6 * which) & 63) as u32;
        [0, 1].map(|odd| {
            (0..4).fold(0, |word, i| {
                word | part(2 * i + odd).rotate_left(26 - 8 * i)
            })
        })
    })
}

pub(super) struct TripleDes([RoundKey; 3 * ROUNDS]);

impl KeySizeUser for TripleDes {
    type KeySize = U24;
}

impl KeyInit for TripleDes {
    fn new(key: &Key<Self>) -> Self {
        let (keys, _) = key.as_chunks::<8>();
        let mut rounds = [[0; 2]; 3 * ROUNDS];
        let parts = rounds.as_chunks_mut::<ROUNDS>().0;
        for (i, (part, key)) in parts.iter_mut().zip(keys).enumerate() {
            *part = schedule(u64::from_be_bytes(*key));
            if i == 1 {
                part.reverse();
            }
        }
        Self(rounds)
    }
}

#[inline(always)]
fn f(half: u32, key: RoundKey) -> u32 {
    let (a, b) = (half ^ key[0], half.rotate_left(4) ^ key[1]);
    let at = |word: u32, shift: u32| (word >> shift & 63) as usize;
    SP[0][at(a, 26)]
        ^ SP[1][at(b, 26)]
        ^ SP[2][at(a, 18)]
        ^ SP[3][at(b, 18)]
        ^ SP[4][at(a, 10)]
        ^ SP[5][at(b, 10)]
        ^ SP[6][at(a, 2)]
        ^ SP[7][at(b, 2)]
}

/// Exchanges the bits of `b` under `mask` with those of `a` that lie `shift` higher.
#[inline(always)]
fn exchange(a: &mut u32, b: &mut u32, shift: u32, mask: u32) {
    let differ = (*a >> shift ^ *b) & mask;
    *b ^= differ;
    *a ^= differ << shift;
}

/// The initial permutation: 64 bits as a square of bytes, transposed, which five exchanges do.
#[inline(always)]
fn initial(block: &[u8]) -> [u32; 2] {
    let word =
        |at: usize| u32::from_be_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]);
    let (mut l, mut r) = (word(0), word(4));
    exchange(&mut l, &mut r, 4, 0x0f0f_0f0f);
    exchange(&mut l, &mut r, 16, 0x0000_ffff);
    exchange(&mut r, &mut l, 2, 0x3333_3333);
    exchange(&mut r, &mut l, 8, 0x00ff_00ff);
    exchange(&mut l, &mut r, 1, 0x5555_5555);
    [l.rotate_right(1), r.rotate_right(1)]
}

/// The inverse of [`initial`], with the halves the other way round, as they are at the end.
#[inline(always)]
fn last([l, r]: [u32; 2], block: &mut [u8]) {
    let (mut l, mut r) = (r.rotate_left(1), l.rotate_left(1));
    exchange(&mut l, &mut r, 1, 0x5555_5555);
    exchange(&mut r, &mut l, 8, 0x00ff_00ff);
    exchange(&mut r, &mut l, 2, 0x3333_3333);
    exchange(&mut l, &mut r, 16, 0x0000_ffff);
    exchange(&mut l, &mut r, 4, 0x0f0f_0f0f);
    block[..4].copy_from_slice(&l.to_be_bytes());
    block[4..].copy_from_slice(&r.to_be_bytes());
}

impl TripleDes {
    /// Several blocks at a time: the look-ups of one wait for each other, those of different ones do not.
    #[inline(always)]
    fn rounds<const N: usize>(&self, blocks: &mut [[u32; 2]; N]) {
        let (thirds, _) = self.0.as_chunks::<ROUNDS>();
        for (i, third) in thirds.iter().enumerate() {
            if i > 0 {
                // Final and initial permutation undo each other; what stays is that the halves change places.
                for block in &mut *blocks {
                    block.swap(0, 1);
                }
            }
            for [first, second] in third.as_chunks::<2>().0 {
                for [l, r] in &mut *blocks {
                    *l ^= f(*r, *first);
                }
                for [l, r] in &mut *blocks {
                    *r ^= f(*l, *second);
                }
            }
        }
    }
}

impl BlockSizeUser for TripleDes {
    type BlockSize = U8;
}

impl ParBlocksSizeUser for TripleDes {
    type ParBlocksSize = U4;
}

impl BlockCipherEncBackend for TripleDes {
    #[inline(always)]
    fn encrypt_block(&self, mut block: InOut<'_, '_, Block<Self>>) {
        let mut halves = [initial(block.get_in())];
        self.rounds(&mut halves);
        last(halves[0], block.get_out());
    }

    #[inline(always)]
    fn encrypt_par_blocks(&self, mut blocks: InOut<'_, '_, ParBlocks<Self>>) {
        let mut halves: [[u32; 2]; 4] = std::array::from_fn(|i| initial(&blocks.get_in()[i]));
        self.rounds(&mut halves);
        for (halves, block) in halves.into_iter().zip(blocks.get_out()) {
            last(halves, block);
        }
    }
}

impl BlockCipherEncrypt for TripleDes {
    fn encrypt_with_backend(&self, f: impl BlockCipherEncClosure<BlockSize = U8>) {
        f.call(self);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With three equal keys it is DES; the example is FIPS 81's (appendix B): "Now is the time for all ".
    #[test]
    fn equal_keys_make_it_des() {
        let key = 0x0123_4567_89ab_cdef_u64.to_be_bytes();
        let keys: [u8; 24] = std::array::from_fn(|i| key[i % 8]);
        let cipher = TripleDes::new(&keys.into());
        let mut blocks = [*b"Now is t", *b"he time ", *b"for all "].map(Block::<TripleDes>::from);
        cipher.encrypt_blocks(&mut blocks);
        let expected = [
            0x3fa4_0e8a_984d_4815_u64,
            0x6a27_1787_ab88_83f9,
            0x893d_51ec_4b56_3b53,
        ];
        assert_eq!(
            blocks.map(|block| u64::from_be_bytes(block.into())),
            expected
        );
    }

    #[test]
    fn blocks_together_are_as_blocks_alone() {
        let key: [u8; 24] = std::array::from_fn(|i| (i * 37) as u8);
        let cipher = TripleDes::new(&key.into());
        let mut together: [Block<TripleDes>; 7] =
            std::array::from_fn(|i| [(i * 41) as u8; 8].into());
        let mut alone = together;
        cipher.encrypt_blocks(&mut together);
        for block in &mut alone {
            BlockCipherEncrypt::encrypt_block(&cipher, block);
        }
        assert_eq!(together, alone);
    }
}

//! Twofish with a 32-byte key, encryption only, which is all that CFB needs. The key is worked into four tables when it is
//! set, so that a round is eight look-ups. As with any cipher of tables, their addresses depend on secrets: somebody who
//! shares the CPU's cache may learn from that.
//!
//! "Twofish: A 128-Bit Block Cipher", Schneier et al., 1998; section numbers are those of that paper.

use cipher::{
    Block, BlockCipherEncBackend, BlockCipherEncClosure, BlockCipherEncrypt, BlockSizeUser, InOut,
    Key, KeyInit, KeySizeUser, ParBlocksSizeUser,
    typenum::{U1, U16, U32},
};

/// §4.3.5: the four 4-bit permutations of q0 and of q1.
const NIBBLES: [[[u8; 16]; 4]; 2] = [
    [
        [8, 1, 7, 13, 6, 15, 3, 2, 0, 11, 5, 9, 14, 12, 10, 4],
        [14, 12, 11, 8, 1, 2, 3, 5, 15, 4, 10, 6, 7, 0, 9, 13],
        [11, 10, 5, 14, 6, 13, 9, 0, 12, 8, 15, 3, 2, 4, 7, 1],
        [13, 7, 15, 4, 1, 2, 6, 14, 9, 11, 3, 0, 8, 5, 12, 10],
    ],
    [
        [2, 8, 11, 13, 15, 7, 6, 14, 3, 1, 9, 4, 0, 10, 12, 5],
        [1, 14, 2, 11, 4, 12, 3, 7, 6, 13, 10, 5, 15, 9, 0, 8],
        [4, 12, 7, 5, 1, 6, 9, 10, 0, 14, 13, 8, 2, 11, 3, 15],
        [11, 9, 5, 1, 12, 3, 13, 14, 6, 4, 7, 15, 2, 0, 8, 10],
    ],
];

/// §4.3.2: the matrix of the maximum-distance code.
const MDS: [[u8; 4]; 4] = [
    [0x01, 0xef, 0x5b, 0x5b],
    [0x5b, 0xef, 0xef, 0x01],
    [0xef, 0x5b, 0x01, 0xef],
    [0xef, 0x01, 0xef, 0x5b],
];
const MDS_POLYNOMIAL: u16 = 0x169;

/// §4.3: the Reed-Solomon matrix that condenses the key for the S-boxes.
const RS: [[u8; 8]; 4] = [
    [0x01, 0xa4, 0x55, 0x87, 0x5a, 0x58, 0xdb, 0x9e],
    [0xa4, 0x56, 0x82, 0xf3, 0x1e, 0xc6, 0x68, 0xe5],
    [0x02, 0xa1, 0xfc, 0xc1, 0x47, 0xae, 0x3d, 0x19],
    [0xa4, 0x55, 0x87, 0x5a, 0x58, 0xdb, 0x9e, 0x03],
];
const RS_POLYNOMIAL: u16 = 0x14d;

/// Figure 2: which of q0 and q1 a byte goes through, before each of the four key words and after the last.
const ORDER: [[usize; 5]; 4] = [
    [1, 1, 0, 0, 1],
    [0, 1, 1, 0, 0],
    [0, 0, 0, 1, 1],
    [1, 0, 1, 1, 0],
];

const ROUNDS: usize = 16;

pub(super) struct Twofish {
    /// Four words for each end, then two for each round.
    keys: [u32; 8 + 2 * ROUNDS],
    /// S-box and matrix in one, by the byte's place in the word.
    tables: Box<[[u32; 256]; 4]>,
}

const fn multiply(a: u8, b: u8, polynomial: u16) -> u8 {
    let (mut a, mut b, mut product) = (a as u16, b, 0);
    while b > 0 {
        if b & 1 == 1 {
            product ^= a;
        }
        a <<= 1;
        if a & 0x100 != 0 {
            a ^= polynomial;
        }
        b >>= 1;
    }
    product as u8
}

/// §4.3.5.
fn q(which: usize, x: u8) -> u8 {
    let t = &NIBBLES[which];
    let mix = |a: u8, b: u8| (a ^ b, (a ^ (b >> 1 | b << 3) ^ (a << 3)) & 15);
    let (a, b) = mix(x >> 4, x & 15);
    let (a, b) = mix(t[0][usize::from(a)], t[1][usize::from(b)]);
    t[3][usize::from(b)] << 4 | t[2][usize::from(a)]
}

/// The byte at place `place` of the function h (§4.3.2), as what it adds to the word; `list` are four words of key.
fn h(place: usize, mut x: u8, list: [[u8; 4]; 4]) -> u32 {
    for (which, word) in ORDER[place].iter().zip(list.iter().rev()) {
        x = q(*which, x) ^ word[place];
    }
    x = q(ORDER[place][4], x);
    u32::from_le_bytes(MDS.map(|row| multiply(row[place], x, MDS_POLYNOMIAL)))
}

impl KeySizeUser for Twofish {
    type KeySize = U32;
}

impl KeyInit for Twofish {
    fn new(key: &Key<Self>) -> Self {
        let word = |at: usize| std::array::from_fn::<u8, 4, _>(|i| key[4 * at + i]);
        let even = std::array::from_fn(|i| word(2 * i));
        let odd = std::array::from_fn(|i| word(2 * i + 1));
        let keys = std::array::from_fn(|i| {
            let all = |x: u8, list| (0..4).fold(0, |sum, place| sum ^ h(place, x, list));
            let pair = (i / 2 * 2) as u8;
            // §4.3.3
            let (a, b) = (all(pair, even), all(pair + 1, odd).rotate_left(8));
            if i % 2 == 0 {
                a.wrapping_add(b)
            } else {
                a.wrapping_add(b.wrapping_mul(2)).rotate_left(9)
            }
        });
        // The condensed words, in reverse (§4.3).
        let list = std::array::from_fn(|i| {
            let part = &key[8 * (3 - i)..];
            RS.map(|row| {
                row.iter()
                    .zip(part)
                    .fold(0, |sum, (&a, &b)| sum ^ multiply(a, b, RS_POLYNOMIAL))
            })
        });
        let mut tables = Box::new([[0; 256]; 4]);
        for (place, table) in tables.iter_mut().enumerate() {
            for (x, entry) in (0..=255).zip(table) {
                *entry = h(place, x, list);
            }
        }
        Self { keys, tables }
    }
}

impl Twofish {
    #[inline(always)]
    fn g(&self, x: u32) -> u32 {
        let [a, b, c, d] = x.to_le_bytes().map(usize::from);
        let [t0, t1, t2, t3] = &*self.tables;
        t0[a] ^ t1[b] ^ t2[c] ^ t3[d]
    }

    /// §4.1, figure 1.
    #[inline(always)]
    fn encrypt_words(&self, words: [u32; 4]) -> [u32; 4] {
        let mut r: [u32; 4] = std::array::from_fn(|i| words[i] ^ self.keys[i]);
        let (pairs, _) = self.keys[8..].as_chunks::<2>();
        for [k0, k1] in pairs {
            let (t0, t1) = (self.g(r[0]), self.g(r[1].rotate_left(8)));
            let f0 = t0.wrapping_add(t1).wrapping_add(*k0);
            let f1 = t0.wrapping_add(t1.wrapping_mul(2)).wrapping_add(*k1);
            r = [
                (r[2] ^ f0).rotate_right(1),
                r[3].rotate_left(1) ^ f1,
                r[0],
                r[1],
            ];
        }
        // The last swap is undone.
        std::array::from_fn(|i| r[(i + 2) % 4] ^ self.keys[4 + i])
    }
}

impl BlockSizeUser for Twofish {
    type BlockSize = U16;
}

impl ParBlocksSizeUser for Twofish {
    type ParBlocksSize = U1;
}

impl BlockCipherEncBackend for Twofish {
    #[inline(always)]
    fn encrypt_block(&self, mut block: InOut<'_, '_, Block<Self>>) {
        let bytes = block.get_in();
        let words =
            std::array::from_fn(|i| u32::from_le_bytes(std::array::from_fn(|j| bytes[4 * i + j])));
        let out = self.encrypt_words(words);
        for (bytes, word) in block.get_out().chunks_exact_mut(4).zip(out) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
    }
}

impl BlockCipherEncrypt for Twofish {
    fn encrypt_with_backend(&self, f: impl BlockCipherEncClosure<BlockSize = U16>) {
        f.call(self);
    }
}

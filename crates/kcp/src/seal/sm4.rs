//! SM4 (GB/T 32907-2016), encryption only, which is all that CFB needs: S-box and linear layer in one table. Its addresses
//! depend on secrets; see the note in `twofish`.

use cipher::{
    Block, BlockCipherEncBackend, BlockCipherEncClosure, BlockCipherEncrypt, BlockSizeUser, InOut,
    Key, KeyInit, KeySizeUser, ParBlocksSizeUser,
    typenum::{U1, U16},
};

const ROUNDS: usize = 32;

/// The S-box by its algebra: an affine map, the inverse in GF(2^8) with x^8 + x^7 + x^6 + x^5 + x^4 + x^2 + 1, and the same
/// map again.
static SBOX: [u8; 256] = {
    let mut table = [0; 256];
    let mut x = 0;
    while x < 256 {
        table[x] = affine(inverse(affine(x as u8)));
        x += 1;
    }
    table
};

/// What a byte in the lowest place gives, after the linear layer of encryption. Other places are rotations of it.
static TABLE: [[u32; 256]; 4] = {
    let mut table = [[0; 256]; 4];
    let mut x = 0;
    while x < 256 {
        let s = SBOX[x] as u32;
        let sum = s ^ s.rotate_left(2) ^ s.rotate_left(10) ^ s.rotate_left(18) ^ s.rotate_left(24);
        let mut place = 0;
        while place < 4 {
            table[place][x] = sum.rotate_left(8 * place as u32);
            place += 1;
        }
        x += 1;
    }
    table
};

const fn affine(x: u8) -> u8 {
    let (mut y, mut bit) = (0, 0);
    while bit < 8 {
        y |= ((x & 0xa7_u8.rotate_left(bit)).count_ones() as u8 & 1) << bit;
        bit += 1;
    }
    y ^ 0xd3
}

/// To the power 254.
const fn inverse(x: u8) -> u8 {
    let (mut y, mut i) = (1, 0);
    while i < 254 {
        y = multiply(y, x);
        i += 1;
    }
    y
}

const fn multiply(a: u8, mut b: u8) -> u8 {
    let (mut a, mut product) = (a as u16, 0);
    while b > 0 {
        if b & 1 == 1 {
            product ^= a;
        }
        a <<= 1;
        if a & 0x100 != 0 {
            a ^= 0x1f5;
        }
        b >>= 1;
    }
    product as u8
}

pub(super) struct Sm4([u32; ROUNDS]);

impl KeySizeUser for Sm4 {
    type KeySize = U16;
}

impl KeyInit for Sm4 {
    fn new(key: &Key<Self>) -> Self {
        const FK: [u32; 4] = [0xa3b1_bac6, 0x56aa_3350, 0x677d_9197, 0xb270_22dc];
        let mut k: [u32; 4] = std::array::from_fn(|i| {
            u32::from_be_bytes(std::array::from_fn(|j| key[4 * i + j])) ^ FK[i]
        });
        Self(std::array::from_fn(|i| {
            let ck = u32::from_be_bytes(std::array::from_fn(|j| ((4 * i + j) * 7) as u8));
            let mixed = (k[1] ^ k[2] ^ k[3] ^ ck).to_be_bytes();
            let s = u32::from_be_bytes(mixed.map(|byte| SBOX[usize::from(byte)]));
            let next = k[0] ^ s ^ s.rotate_left(13) ^ s.rotate_left(23);
            k = [k[1], k[2], k[3], next];
            next
        }))
    }
}

impl BlockSizeUser for Sm4 {
    type BlockSize = U16;
}

impl ParBlocksSizeUser for Sm4 {
    type ParBlocksSize = U1;
}

impl BlockCipherEncBackend for Sm4 {
    #[inline(always)]
    fn encrypt_block(&self, mut block: InOut<'_, '_, Block<Self>>) {
        let bytes = block.get_in();
        let mut x: [u32; 4] =
            std::array::from_fn(|i| u32::from_be_bytes(std::array::from_fn(|j| bytes[4 * i + j])));
        for key in self.0 {
            let [a, b, c, d] = (x[1] ^ x[2] ^ x[3] ^ key).to_le_bytes().map(usize::from);
            let next = x[0] ^ TABLE[0][a] ^ TABLE[1][b] ^ TABLE[2][c] ^ TABLE[3][d];
            x = [x[1], x[2], x[3], next];
        }
        for (bytes, word) in block.get_out().chunks_exact_mut(4).zip(x.iter().rev()) {
            bytes.copy_from_slice(&word.to_be_bytes());
        }
    }
}

impl BlockCipherEncrypt for Sm4 {
    fn encrypt_with_backend(&self, f: impl BlockCipherEncClosure<BlockSize = U16>) {
        f.call(self);
    }
}

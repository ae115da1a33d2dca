//! TEA with 8 cycles and XTEA with 32, on big-endian words: what Go's `x/crypto` does and kcp-go asks for.

use cipher::{
    Block, BlockCipherEncBackend, BlockCipherEncClosure, BlockCipherEncrypt, BlockSizeUser, InOut,
    Key, KeyInit, KeySizeUser, ParBlocksSizeUser,
    typenum::{U1, U8, U16},
};

const DELTA: u32 = 0x9e37_79b9;
const TEA_CYCLES: u32 = 8;
const XTEA_CYCLES: usize = 32;

pub(super) struct Tea([u32; 4]);
/// The keys of all half cycles, each with its multiple of delta added.
pub(super) struct Xtea([[u32; 2]; XTEA_CYCLES]);

fn words(key: &[u8]) -> [u32; 4] {
    std::array::from_fn(|i| u32::from_be_bytes(std::array::from_fn(|j| key[4 * i + j])))
}

trait TwoWords {
    fn encrypt(&self, left: u32, right: u32) -> (u32, u32);
}

impl TwoWords for Tea {
    fn encrypt(&self, mut left: u32, mut right: u32) -> (u32, u32) {
        let mix = |v: u32, sum: u32, a: u32, b: u32| {
            (v << 4).wrapping_add(a) ^ v.wrapping_add(sum) ^ (v >> 5).wrapping_add(b)
        };
        let mut sum = 0_u32;
        for _ in 0..TEA_CYCLES {
            sum = sum.wrapping_add(DELTA);
            left = left.wrapping_add(mix(right, sum, self.0[0], self.0[1]));
            right = right.wrapping_add(mix(left, sum, self.0[2], self.0[3]));
        }
        (left, right)
    }
}

impl TwoWords for Xtea {
    fn encrypt(&self, mut left: u32, mut right: u32) -> (u32, u32) {
        let mix = |v: u32, key: u32| (((v << 4) ^ (v >> 5)).wrapping_add(v)) ^ key;
        for [even, odd] in self.0 {
            left = left.wrapping_add(mix(right, even));
            right = right.wrapping_add(mix(left, odd));
        }
        (left, right)
    }
}

fn tea(key: [u32; 4]) -> Tea {
    Tea(key)
}

fn xtea(key: [u32; 4]) -> Xtea {
    let mut sum = 0_u32;
    Xtea(std::array::from_fn(|_| {
        let even = sum.wrapping_add(key[(sum & 3) as usize]);
        sum = sum.wrapping_add(DELTA);
        [even, sum.wrapping_add(key[(sum >> 11 & 3) as usize])]
    }))
}

struct Backend<'a, C>(&'a C);

impl<C> BlockSizeUser for Backend<'_, C> {
    type BlockSize = U8;
}

impl<C> ParBlocksSizeUser for Backend<'_, C> {
    type ParBlocksSize = U1;
}

impl<C: TwoWords> BlockCipherEncBackend for Backend<'_, C> {
    #[inline(always)]
    fn encrypt_block(&self, mut block: InOut<'_, '_, Block<Self>>) {
        let bytes = block.get_in();
        let word = |at: usize| {
            u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let (left, right) = self.0.encrypt(word(0), word(4));
        let out = block.get_out();
        out[..4].copy_from_slice(&left.to_be_bytes());
        out[4..].copy_from_slice(&right.to_be_bytes());
    }
}

macro_rules! block_cipher {
    ($name:ident, $schedule:ident) => {
        impl KeySizeUser for $name {
            type KeySize = U16;
        }

        impl KeyInit for $name {
            fn new(key: &Key<Self>) -> Self {
                $schedule(words(key))
            }
        }

        impl BlockSizeUser for $name {
            type BlockSize = U8;
        }

        impl BlockCipherEncrypt for $name {
            fn encrypt_with_backend(&self, f: impl BlockCipherEncClosure<BlockSize = U8>) {
                f.call(&Backend(self));
            }
        }
    };
}

block_cipher!(Tea, tea);
block_cipher!(Xtea, xtea);

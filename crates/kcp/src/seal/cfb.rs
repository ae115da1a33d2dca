//! Full-block CFB with a fixed IV, over any block cipher.
//!
//! `E(IV)` is the same for all packets of a key and is computed once. Encryption is serial within a packet, so a batch is
//! encrypted a block of each packet at a time: the CPU works on all of them at once. Decryption is not serial and takes
//! most of a packet at a time.

use cipher::{
    Array, Block, BlockCipherEncBackend, BlockCipherEncClosure, BlockCipherEncrypt, BlockSizeUser,
    KeyInit, array::ArraySize, typenum::Unsigned,
};

/// The IV for 128-bit blocks; ciphers of 64 bits use its first half.
const IV: [u8; 16] = [
    0xa7, 0x73, 0x4f, 0x9c, 0x12, 0xac, 0x1b, 0x01, 0xa4, 0x15, 0xf2, 0xc1, 0xfc, 0x78, 0xe6, 0x6b,
];

/// Blocks decrypted together: with AVX-512, `aes` takes 64 in one go; AES-NI takes eight at a time of them.
const WIDE: usize = 64;

/// Packets encrypted together. An AES block is a chain of ten instructions of four cycles each, of which a core starts one or
/// two in every cycle; eight chains keep it busy.
const LANES: usize = 8;

/// Encrypts whole packets in place.
pub(super) trait PacketCipher: Send + Sync {
    fn encrypt(&self, packet: &mut [u8]);

    /// Encrypts packets that lie one behind the other, each of `size` bytes (not 0), the last one possibly shorter.
    fn encrypt_batch(&self, packets: &mut [u8], size: usize) {
        for packet in packets.chunks_mut(size) {
            self.encrypt(packet);
        }
    }

    fn decrypt(&self, packet: &mut [u8]);
}

pub(super) struct Cfb<C: BlockSizeUser> {
    cipher: C,
    /// `E(IV)`.
    first: Block<C>,
}

impl<C: BlockCipherEncrypt + KeyInit + Send + Sync + 'static> Cfb<C> {
    /// `None` when the cipher does not take a key of this length.
    pub(super) fn boxed(key: &[u8]) -> Option<Box<dyn PacketCipher>> {
        let cipher = C::new_from_slice(key).ok()?;
        let mut first = Block::<C>::default();
        let length = first.len().min(IV.len());
        first[..length].copy_from_slice(&IV[..length]);
        cipher.encrypt_block(&mut first);
        Some(Box::new(Self { cipher, first }))
    }
}

impl<C: BlockCipherEncrypt + Send + Sync> PacketCipher for Cfb<C> {
    fn encrypt(&self, packet: &mut [u8]) {
        self.cipher.encrypt_with_backend(Encrypt {
            stream: self.first.clone(),
            packet,
        });
    }

    fn encrypt_batch(&self, packets: &mut [u8], size: usize) {
        for group in packets.chunks_mut(LANES * size) {
            let whole = group.len() / size * size;
            let (lanes, rest) = group.split_at_mut(whole);
            self.cipher.encrypt_with_backend(EncryptLanes {
                first: &self.first,
                packets: lanes,
                size,
            });
            self.encrypt(rest);
        }
    }

    fn decrypt(&self, packet: &mut [u8]) {
        let size = C::BlockSize::USIZE;
        let mut stream = self.first.clone();
        let mut wide: [Block<C>; WIDE] = std::array::from_fn(|_| Block::<C>::default());
        for run in packet.chunks_mut(WIDE * size) {
            let whole = run.len() / size;
            for (block, bytes) in wide.iter_mut().zip(run.chunks_exact(size)) {
                block.copy_from_slice(bytes);
            }
            self.cipher.encrypt_blocks(&mut wide[..whole]);
            let streams = std::iter::once(&stream).chain(&wide);
            for (bytes, stream) in run.chunks_mut(size).zip(streams) {
                xor(bytes, stream);
            }
            if let Some(last) = whole.checked_sub(1) {
                stream.clone_from(&wide[last]);
            }
        }
    }
}

/// The serial loop, run inside the cipher's own choice of instructions.
struct Encrypt<'a, S: ArraySize> {
    stream: Array<u8, S>,
    packet: &'a mut [u8],
}

impl<S: ArraySize> BlockSizeUser for Encrypt<'_, S> {
    type BlockSize = S;
}

impl<S: ArraySize> BlockCipherEncClosure for Encrypt<'_, S> {
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = S>>(mut self, backend: &B) {
        let mut blocks = self.packet.chunks_exact_mut(S::USIZE);
        for bytes in &mut blocks {
            xor(bytes, &self.stream);
            self.stream.copy_from_slice(bytes);
            backend.encrypt_block_inplace(&mut self.stream);
        }
        xor(blocks.into_remainder(), &self.stream);
    }
}

/// The serial loops of up to [`LANES`] packets of `size` bytes, a block of each in turn.
struct EncryptLanes<'a, S: ArraySize> {
    first: &'a Array<u8, S>,
    packets: &'a mut [u8],
    size: usize,
}

impl<S: ArraySize> BlockSizeUser for EncryptLanes<'_, S> {
    type BlockSize = S;
}

impl<S: ArraySize> BlockCipherEncClosure for EncryptLanes<'_, S> {
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = S>>(self, backend: &B) {
        let mut streams: [Array<u8, S>; LANES] = std::array::from_fn(|_| self.first.clone());
        let whole = self.size / S::USIZE * S::USIZE;
        for at in (0..whole).step_by(S::USIZE) {
            let packets = self.packets.chunks_exact_mut(self.size);
            for (packet, stream) in packets.zip(&mut streams) {
                let bytes = &mut packet[at..at + S::USIZE];
                xor(bytes, stream);
                stream.copy_from_slice(bytes);
                backend.encrypt_block_inplace(stream);
            }
        }
        let packets = self.packets.chunks_exact_mut(self.size);
        for (packet, stream) in packets.zip(&streams) {
            xor(&mut packet[whole..], stream);
        }
    }
}

#[inline(always)]
fn xor(bytes: &mut [u8], stream: &[u8]) {
    for (byte, stream) in bytes.iter_mut().zip(stream) {
        *byte ^= stream;
    }
}

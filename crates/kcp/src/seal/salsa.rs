//! Salsa20 over a packet: the first 8 bytes (half of the random nonce field) stay in the clear and are the nonce.

use salsa20::{
    Salsa20,
    cipher::{KeyIvInit, StreamCipher},
};

use super::cfb::PacketCipher;

const CLEAR: usize = 8;

pub(super) struct Salsa([u8; 32]);

impl Salsa {
    pub(super) fn boxed(key: &[u8]) -> Option<Box<dyn PacketCipher>> {
        Some(Box::new(Self(key.try_into().ok()?)))
    }
}

impl PacketCipher for Salsa {
    fn encrypt(&self, packet: &mut [u8]) {
        if let Some((nonce, rest)) = packet.split_first_chunk_mut::<CLEAR>() {
            Salsa20::new(&self.0.into(), &(*nonce).into()).apply_keystream(rest);
        }
    }

    fn decrypt(&self, packet: &mut [u8]) {
        self.encrypt(packet);
    }
}

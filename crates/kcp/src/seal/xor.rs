//! A packet XORed with a fixed table. It hides nothing from anybody who sees two packets; kept for compatibility.

use super::cfb::PacketCipher;
use crate::MTU_MAX;

const SALT: &[u8] = b"sH3CIVoF#rWLtJo6";
const ROUNDS: u32 = 32;

pub(super) struct Xor(Box<[u8; MTU_MAX]>);

impl Xor {
    pub(super) fn boxed(key: &[u8]) -> Box<dyn PacketCipher> {
        let mut table = Box::new([0; MTU_MAX]);
        pbkdf2::pbkdf2_hmac::<sha1::Sha1>(key, SALT, ROUNDS, &mut table[..]);
        Box::new(Self(table))
    }
}

impl PacketCipher for Xor {
    fn encrypt(&self, packet: &mut [u8]) {
        for (byte, table) in packet.iter_mut().zip(self.0.iter()) {
            *byte ^= table;
        }
    }

    fn decrypt(&self, packet: &mut [u8]) {
        self.encrypt(packet);
    }
}

//! Packet encryption: what kcp-go calls `BlockCrypt`, with its byte layout.
//!
//! - block ciphers: `CFB(nonce16 ‖ crc32 ‖ body)`; the checksum (CRC-32/IEEE, little-endian) covers the body only;
//! - `salsa20`, `xor`: the same three parts under a key stream; `none`: the same three parts as they are;
//! - `aes-128-gcm`: `nonce12 ‖ ciphertext ‖ tag16`;
//! - `null`: the body alone.
//!
//! Only `aes-128-gcm` authenticates. A checksum under CFB or a stream cipher stops other keys and damage, not a forger, and
//! none of these stop replay: compatibility forbids what would.

mod aead;
mod cfb;
mod des;
mod nonce;
mod salsa;
mod sm4;
mod tea;
mod twofish;
mod xor;

use std::{fmt, str::FromStr};

pub use self::nonce::Nonces;
use self::{
    aead::Gcm,
    cfb::{Cfb, PacketCipher},
    des::TripleDes,
    salsa::Salsa,
    sm4::Sm4,
    tea::{Tea, Xtea},
    twofish::Twofish,
    xor::Xor,
};
use crate::{ConfigError, InputError};

const NONCE: usize = 16;
const CHECKSUM: usize = 4;

/// The ciphers of kcp-go and kcptun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cipher {
    /// `null`: nothing is added to a packet.
    Null,
    /// `none`: nonce and checksum, unencrypted.
    None,
    /// `aes`: AES-256.
    Aes,
    /// `aes-192`.
    Aes192,
    /// `aes-128`.
    Aes128,
    /// `aes-128-gcm`: the only one that authenticates.
    Aes128Gcm,
    /// `blowfish` with a 32-byte key.
    Blowfish,
    /// `twofish` with a 32-byte key.
    Twofish,
    /// `cast5`.
    Cast5,
    /// `3des`.
    TripleDes,
    /// `tea` of 8 cycles.
    Tea,
    /// `xtea`.
    Xtea,
    /// `sm4`.
    Sm4,
    /// `salsa20`.
    Salsa20,
    /// `xor` with a table of 1500 bytes: no protection against anybody who looks.
    Xor,
}

impl Cipher {
    /// All ciphers.
    pub const ALL: [Self; 15] = [
        Self::Null,
        Self::None,
        Self::Aes,
        Self::Aes192,
        Self::Aes128,
        Self::Aes128Gcm,
        Self::Blowfish,
        Self::Twofish,
        Self::Cast5,
        Self::TripleDes,
        Self::Tea,
        Self::Xtea,
        Self::Sm4,
        Self::Salsa20,
        Self::Xor,
    ];

    /// kcptun's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::None => "none",
            Self::Aes => "aes",
            Self::Aes192 => "aes-192",
            Self::Aes128 => "aes-128",
            Self::Aes128Gcm => "aes-128-gcm",
            Self::Blowfish => "blowfish",
            Self::Twofish => "twofish",
            Self::Cast5 => "cast5",
            Self::TripleDes => "3des",
            Self::Tea => "tea",
            Self::Xtea => "xtea",
            Self::Sm4 => "sm4",
            Self::Salsa20 => "salsa20",
            Self::Xor => "xor",
        }
    }

    /// Bytes of key that it takes.
    pub const fn key_len(self) -> usize {
        match self {
            Self::Null | Self::None => 0,
            Self::Aes | Self::Blowfish | Self::Twofish | Self::Salsa20 | Self::Xor => 32,
            Self::Aes192 | Self::TripleDes => 24,
            Self::Aes128 | Self::Aes128Gcm | Self::Cast5 | Self::Tea | Self::Xtea | Self::Sm4 => 16,
        }
    }
}

impl fmt::Display for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Cipher {
    type Err = ConfigError;

    /// Unlike kcptun, which falls back to `aes`, refuses a name that it does not know.
    fn from_str(name: &str) -> Result<Self, ConfigError> {
        Self::ALL
            .into_iter()
            .find(|cipher| cipher.name() == name)
            .ok_or_else(|| ConfigError::Cipher(name.to_owned()))
    }
}

/// kcptun's key from a passphrase: PBKDF2-HMAC-SHA1, salt `kcp-go`, 4096 rounds. Takes some milliseconds.
pub fn derive_key(passphrase: &[u8]) -> [u8; 32] {
    pbkdf2::pbkdf2_hmac_array::<sha1::Sha1, 32>(passphrase, b"kcp-go", 4096)
}

/// A cipher with its key. It holds no state that changes, so that all sessions of a socket share one.
pub struct Seal {
    cipher: Cipher,
    inner: Inner,
}

enum Inner {
    Null,
    None,
    Checked(Box<dyn PacketCipher>),
    Gcm(Box<Gcm>),
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seal")
            .field("cipher", &self.cipher)
            .finish_non_exhaustive()
    }
}

impl Seal {
    /// A seal from the first [`Cipher::key_len`] bytes of `key`; it is an error if `key` has fewer.
    pub fn new(cipher: Cipher, key: &[u8]) -> Result<Self, ConfigError> {
        let want = cipher.key_len();
        let wrong = || ConfigError::Key {
            want,
            got: key.len(),
        };
        let key = key.get(..want).ok_or_else(wrong)?;
        let checked =
            |cipher: Option<Box<dyn PacketCipher>>| cipher.map(Inner::Checked).ok_or_else(wrong);
        let inner = match cipher {
            Cipher::Null => Inner::Null,
            Cipher::None => Inner::None,
            Cipher::Aes => checked(Cfb::<aes::Aes256>::boxed(key))?,
            Cipher::Aes192 => checked(Cfb::<aes::Aes192>::boxed(key))?,
            Cipher::Aes128 => checked(Cfb::<aes::Aes128>::boxed(key))?,
            Cipher::Aes128Gcm => Inner::Gcm(Box::new(Gcm::new(key).ok_or_else(wrong)?)),
            Cipher::Blowfish => checked(Cfb::<blowfish::Blowfish>::boxed(key))?,
            Cipher::Twofish => checked(Cfb::<Twofish>::boxed(key))?,
            Cipher::Cast5 => checked(Cfb::<cast5::Cast5>::boxed(key))?,
            Cipher::TripleDes => checked(Cfb::<TripleDes>::boxed(key))?,
            Cipher::Tea => checked(Cfb::<Tea>::boxed(key))?,
            Cipher::Xtea => checked(Cfb::<Xtea>::boxed(key))?,
            Cipher::Sm4 => checked(Cfb::<Sm4>::boxed(key))?,
            Cipher::Salsa20 => checked(Salsa::boxed(key))?,
            Cipher::Xor => Inner::Checked(Xor::boxed(key)),
        };
        Ok(Self { cipher, inner })
    }

    /// The cipher.
    pub fn cipher(&self) -> Cipher {
        self.cipher
    }

    /// Bytes before the body.
    pub fn head_len(&self) -> usize {
        match self.inner {
            Inner::Null => 0,
            Inner::None | Inner::Checked(_) => NONCE + CHECKSUM,
            Inner::Gcm(_) => aead::NONCE,
        }
    }

    /// Bytes after the body.
    pub fn tail_len(&self) -> usize {
        match self.inner {
            Inner::Gcm(_) => aead::TAG,
            _ => 0,
        }
    }

    /// Seals `packet` in place: [`Self::head_len`] bytes to be filled in, the body, [`Self::tail_len`] bytes to be filled
    /// in. A packet shorter than head and tail is left alone. `nonce` must never repeat under the same key.
    pub fn seal(&self, packet: &mut [u8], nonce: [u8; 16]) {
        if packet.len() < self.head_len() + self.tail_len() {
            return;
        }
        match &self.inner {
            Inner::Null => {}
            Inner::None => fill_head(packet, nonce),
            Inner::Checked(cipher) => {
                fill_head(packet, nonce);
                cipher.encrypt(packet);
            }
            Inner::Gcm(gcm) => gcm.seal(packet, nonce),
        }
    }

    /// Seals packets that lie one behind the other, each of `size` bytes, the last one possibly shorter: the same as
    /// [`Self::seal`] for each of them, and much faster for block ciphers, as several are encrypted at once.
    pub fn seal_batch(&self, packets: &mut [u8], size: usize, nonces: &mut Nonces) {
        let least = self.head_len() + self.tail_len();
        let Inner::Checked(cipher) = &self.inner else {
            for packet in packets.chunks_mut(size.max(1)) {
                self.seal(packet, nonces.next_nonce());
            }
            return;
        };
        let last = packets.len().checked_rem(size).unwrap_or(0);
        if size < least || (1..least).contains(&last) {
            return;
        }
        for packet in packets.chunks_mut(size) {
            fill_head(packet, nonces.next_nonce());
        }
        cipher.encrypt_batch(packets, size);
    }

    /// Opens `packet` in place and gives its body.
    pub fn open<'a>(&self, packet: &'a mut [u8]) -> Result<&'a mut [u8], InputError> {
        if packet.len() < self.head_len() + self.tail_len() {
            return Err(InputError::Short);
        }
        match &self.inner {
            Inner::Null => Ok(packet),
            Inner::None => check_head(packet),
            Inner::Checked(cipher) => {
                cipher.decrypt(packet);
                check_head(packet)
            }
            Inner::Gcm(gcm) => gcm.open(packet),
        }
    }
}

/// `packet` holds nonce and checksum at least.
fn fill_head(packet: &mut [u8], nonce: [u8; NONCE]) {
    let (head, body) = packet.split_at_mut(NONCE + CHECKSUM);
    head[..NONCE].copy_from_slice(&nonce);
    head[NONCE..].copy_from_slice(&crc32fast::hash(body).to_le_bytes());
}

fn check_head(packet: &mut [u8]) -> Result<&mut [u8], InputError> {
    let (head, body) = packet.split_at_mut(NONCE + CHECKSUM);
    if head[NONCE..] == crc32fast::hash(body).to_le_bytes() {
        Ok(body)
    } else {
        Err(InputError::Unsealed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cipher_opens_what_it_sealed_and_nothing_damaged() {
        let key: Vec<u8> = (0..32).collect();
        for cipher in Cipher::ALL {
            let seal = Seal::new(cipher, &key).expect("a long key");
            let head = seal.head_len();
            for length in 0..200 {
                let body: Vec<u8> = (0..length).map(|i| i as u8).collect();
                let mut packet = vec![0; head + length + seal.tail_len()];
                packet[head..head + length].copy_from_slice(&body);
                seal.seal(&mut packet, [length as u8; 16]);
                let mut damaged = packet.clone();
                assert_eq!(
                    seal.open(&mut packet).expect("ours"),
                    body,
                    "{cipher} {length}"
                );
                if cipher != Cipher::Null && length > 0 {
                    damaged[head + length / 2] ^= 1;
                    assert_eq!(
                        seal.open(&mut damaged).map(|_| ()),
                        Err(InputError::Unsealed),
                        "{cipher} {length}"
                    );
                }
            }
            for length in 0..head + seal.tail_len() {
                assert_eq!(
                    seal.open(&mut vec![0; length]).map(|_| ()),
                    Err(InputError::Short)
                );
            }
        }
    }

    #[test]
    fn a_batch_is_sealed_as_its_packets_are_one_by_one() {
        let key: Vec<u8> = (0..32).collect();
        for cipher in Cipher::ALL {
            let seal = Seal::new(cipher, &key).expect("a long key");
            let least = seal.head_len() + seal.tail_len();
            for (count, size, last) in [
                (1, 1400, 0),
                (3, 100, 33),
                (8, 64, 0),
                (19, 77, 50),
                (2, 1, 0),
            ] {
                let (size, last) = (least + size, if last > 0 { least + last } else { 0 });
                let mut batch: Vec<u8> = (0..count * size + last).map(|i| (i * 7) as u8).collect();
                let mut single = batch.clone();
                seal.seal_batch(&mut batch, size, &mut Nonces::new([5; 32]));
                let mut nonces = Nonces::new([5; 32]);
                for packet in single.chunks_mut(size) {
                    seal.seal(packet, nonces.next_nonce());
                }
                assert!(batch == single, "{cipher}: {count} of {size} and {last}");
            }
            // Nothing to divide by, and packets without room for a head: left alone, without a panic.
            seal.seal_batch(&mut [0; 10], 0, &mut Nonces::new([5; 32]));
            seal.seal_batch(&mut [0; 10], 3, &mut Nonces::new([5; 32]));
        }
    }

    #[test]
    fn names_parse_and_unknown_ones_are_errors() {
        for cipher in Cipher::ALL {
            assert_eq!(cipher.name().parse(), Ok(cipher));
        }
        assert_eq!(
            "rot13".parse::<Cipher>(),
            Err(ConfigError::Cipher("rot13".into()))
        );
        assert_eq!(
            Seal::new(Cipher::Aes, &[0; 16]).map(|_| ()),
            Err(ConfigError::Key { want: 32, got: 16 })
        );
    }
}

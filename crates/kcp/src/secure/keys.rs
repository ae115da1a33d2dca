//! Keys of one session: agreement, derivation, sealing and opening.
//!
//! ```text
//! T    = SHA-256("gt kcp link v1" ‖ 0 ‖ Initiate as answered ‖ Accept up to its tag)
//! PRK  = HKDF-Extract(salt T, X25519(client key, server key))
//! key, iv of a direction = HKDF-Expand(PRK, "gt kcp client key" …), 16 or 32 and 12 bytes
//! binding = HKDF-Expand(PRK, "gt kcp binding"), 32 bytes
//! nonce = iv XOR packet number (big-endian, in the last 8 bytes), as TLS 1.3 does (RFC 8446 §5.3)
//! ```

use std::fmt;

use aws_lc_rs::{
    aead::{self, Aad, LessSafeKey, UnboundKey},
    agreement::{self, UnparsedPublicKey, X25519},
    digest::{self, SHA256},
    hkdf::{self, HKDF_SHA256, Prk, Salt},
};

use super::wire::{CipherSet, KEY, TAG};

/// Which end this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Client,
    Server,
}

/// A private key that serves one session.
pub(super) struct Ephemeral {
    private: agreement::PrivateKey,
    pub(super) public: [u8; KEY],
}

impl Ephemeral {
    /// Makes a key pair of random bytes; `None` if they make none.
    pub(super) fn new(random: &[u8; KEY]) -> Option<Self> {
        let private = agreement::PrivateKey::from_private_key(&X25519, random).ok()?;
        let mut public = [0; KEY];
        public.copy_from_slice(private.compute_public_key().ok()?.as_ref().get(..KEY)?);
        Some(Self { private, public })
    }

    /// The keys of the session with the owner of `peer`; `None` if that is no usable key (RFC 7748 §6.1: not all zero).
    pub(super) fn agree(
        &self,
        peer: &[u8; KEY],
        initiate: &[u8],
        accept: &[u8],
        cipher: CipherSet,
        role: Role,
    ) -> Option<Keys> {
        let mut transcript = digest::Context::new(&SHA256);
        transcript.update(b"gt kcp link v1\0");
        transcript.update(initiate);
        transcript.update(accept);
        let salt = Salt::new(HKDF_SHA256, transcript.finish().as_ref());
        let peer = UnparsedPublicKey::new(&X25519, peer);
        let prk = agreement::agree(&self.private, peer, (), |shared| Ok(salt.extract(shared)));
        Keys::derive(&prk.ok()?, cipher, role)
    }
}

impl fmt::Debug for Ephemeral {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ephemeral(..)")
    }
}

/// What a session needs of its handshake.
#[derive(Debug)]
pub(super) struct Keys {
    pub(super) send: Direction,
    pub(super) receive: Direction,
    pub(super) binding: [u8; 32],
}

impl Keys {
    fn derive(prk: &Prk, cipher: CipherSet, role: Role) -> Option<Self> {
        let client = Direction::derive(prk, cipher, b"gt kcp client key", b"gt kcp client iv")?;
        let server = Direction::derive(prk, cipher, b"gt kcp server key", b"gt kcp server iv")?;
        let (send, receive) = match role {
            Role::Client => (client, server),
            Role::Server => (server, client),
        };
        let mut binding = [0; 32];
        expand(prk, b"gt kcp binding", &mut binding)?;
        Some(Self {
            send,
            receive,
            binding,
        })
    }
}

/// One direction's key.
pub(super) struct Direction {
    key: LessSafeKey,
    iv: [u8; aead::NONCE_LEN],
}

impl Direction {
    fn derive(prk: &Prk, cipher: CipherSet, key_label: &[u8], iv_label: &[u8]) -> Option<Self> {
        let algorithm = match cipher {
            CipherSet::AES_128_GCM => &aead::AES_128_GCM,
            CipherSet::CHACHA20_POLY1305 => &aead::CHACHA20_POLY1305,
            _ => return None,
        };
        let mut key = [0; 32];
        let key = key.get_mut(..algorithm.key_len())?;
        expand(prk, key_label, key)?;
        let mut iv = [0; aead::NONCE_LEN];
        expand(prk, iv_label, &mut iv)?;
        let key = LessSafeKey::new(UnboundKey::new(algorithm, key).ok()?);
        Some(Self { key, iv })
    }

    fn nonce(&self, number: u64) -> aead::Nonce {
        let mut nonce = self.iv;
        for (byte, number) in nonce[4..].iter_mut().zip(number.to_be_bytes()) {
            *byte ^= number;
        }
        aead::Nonce::assume_unique_for_key(nonce)
    }

    /// Encrypts `body` in place; `head` is authenticated with it. A number must be used once.
    pub(super) fn seal(&self, number: u64, head: &[u8], body: &mut [u8]) -> Option<[u8; TAG]> {
        let sealed = self
            .key
            .seal_in_place_separate_tag(self.nonce(number), Aad::from(head), body);
        sealed.ok()?.as_ref().first_chunk().copied()
    }

    /// Decrypts `sealed`, tag included, in place; `None` if it is not authentic.
    pub(super) fn open<'a>(
        &self,
        number: u64,
        head: &[u8],
        sealed: &'a mut [u8],
    ) -> Option<&'a mut [u8]> {
        self.key
            .open_in_place(self.nonce(number), Aad::from(head), sealed)
            .ok()
    }
}

impl fmt::Debug for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Direction(..)")
    }
}

fn expand(prk: &Prk, label: &[u8], out: &mut [u8]) -> Option<()> {
    struct Length(usize);
    impl hkdf::KeyType for Length {
        fn len(&self) -> usize {
            self.0
        }
    }
    prk.expand(&[label], Length(out.len())).ok()?.fill(out).ok()
}

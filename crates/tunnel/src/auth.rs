//! Secrets, the key made of them, the transcript of a handshake, and the proofs over it.
//!
//! ```text
//! K  = HMAC-SHA256(secret, "gt auth v1" ‖ 0 ‖ id)
//! T  = SHA-256("gt handshake v1" ‖ 0 ‖ magic ‖ Hello ‖ Challenge ‖ binding)
//! client proof = HMAC-SHA256(K, "client" ‖ 0 ‖ T)
//! T' = SHA-256("gt handshake v1" ‖ 0 ‖ magic ‖ Hello ‖ Challenge ‖ Proof ‖ Accept up to its proof ‖ binding)
//! server proof = HMAC-SHA256(K, "server" ‖ 0 ‖ T')
//! ```
//!
//! What this protects from, and from what not, is told in `docs/protocol/tunnel.md`.

use std::fmt;

use aws_lc_rs::{
    constant_time::verify_slices_are_equal,
    digest::{Context, SHA256},
    hmac,
};
use zeroize::Zeroizing;

use crate::{BindingKind, ClientId, error::InvalidValue};

/// What client and server share: 1 to 1024 bytes. Overwritten when dropped, never printed.
#[derive(Clone)]
pub struct Secret(Zeroizing<Box<[u8]>>);

impl Secret {
    /// Takes the bytes of a secret.
    ///
    /// # Errors
    /// When there are none, or more than 1024.
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Self, InvalidValue> {
        let bytes = bytes.as_ref();
        if (1..=1024).contains(&bytes.len()) {
            Ok(Self(Zeroizing::new(bytes.into())))
        } else {
            Err(InvalidValue {
                what: "secret",
                rule: "1 to 1024 bytes",
            })
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// The authentication key of one id: as good as the secret for this id, useless for another. Overwritten when dropped.
#[derive(Clone)]
pub struct Key(Zeroizing<[u8; 32]>);

impl Key {
    /// Makes the key of `id`.
    #[must_use]
    pub fn derive(secret: &Secret, id: &ClientId) -> Self {
        Self(Zeroizing::new(mac(
            &secret.0,
            &[b"gt auth v1\0", id.as_str().as_bytes()],
        )))
    }

    /// Takes a key that somebody else derived.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Takes a key as an authentication service hands it over.
    ///
    /// # Errors
    /// When `hex` is not 64 hexadecimal digits.
    pub fn from_hex(hex: &str) -> Result<Self, InvalidValue> {
        let invalid = InvalidValue {
            what: "key",
            rule: "64 hexadecimal digits",
        };
        let mut bytes = Zeroizing::new([0; 32]);
        if hex.len() != 64 {
            return Err(invalid);
        }
        for (byte, pair) in bytes.iter_mut().zip(hex.as_bytes().chunks_exact(2)) {
            let digit = |c: u8| {
                char::from(c)
                    .to_digit(16)
                    .and_then(|d| u8::try_from(d).ok())
                    .ok_or(invalid)
            };
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Ok(Self(bytes))
    }

    pub(crate) fn client_proof(&self, transcript: &TranscriptHash) -> Proof {
        Proof(mac(&*self.0, &[b"client\0", &transcript.0]))
    }

    pub(crate) fn server_proof(&self, transcript: &TranscriptHash) -> Proof {
        Proof(mac(&*self.0, &[b"server\0", &transcript.0]))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// 32 random bytes, fresh for every handshake. Repeating one makes proofs repeatable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Nonce(pub [u8; 32]);

/// A proof as it travels. There is no `==`: only [`Proof::matches`], whose time does not depend on the bytes.
#[derive(Clone, Copy)]
pub struct Proof([u8; 32]);

impl Proof {
    pub(crate) const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes, for an authentication service.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// 64 hexadecimal digits, for an authentication service.
    #[must_use]
    pub fn to_hex(&self) -> String {
        hex(&self.0)
    }

    /// Compares in constant time.
    #[must_use]
    pub fn matches(&self, other: &Self) -> bool {
        verify_slices_are_equal(&self.0, &other.0).is_ok()
    }
}

impl fmt::Debug for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Proof(..)")
    }
}

/// What ties a handshake to the encrypted channel it runs in, so that nobody can sit between two channels.
#[derive(Clone, Default)]
pub enum ChannelBinding {
    /// A plain transport, or TLS that ends somewhere before the server.
    #[default]
    None,
    /// 32 bytes exported from TLS 1.3 or QUIC under [`crate::EXPORTER_LABEL`]. (TLS 1.2 only with extended master secret, RFC 7627.)
    TlsExporter([u8; 32]),
}

impl ChannelBinding {
    /// Which kind of binding this is.
    #[must_use]
    pub fn kind(&self) -> BindingKind {
        match self {
            Self::None => BindingKind::None,
            Self::TlsExporter(_) => BindingKind::TlsExporter,
        }
    }
}

impl fmt::Debug for ChannelBinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChannelBinding({})", self.kind())
    }
}

/// The hash of a handshake so far and of its channel binding: what proofs are made over.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TranscriptHash([u8; 32]);

impl TranscriptHash {
    /// The bytes, for an authentication service.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// 64 hexadecimal digits, for an authentication service.
    #[must_use]
    pub fn to_hex(&self) -> String {
        hex(&self.0)
    }
}

impl fmt::Debug for TranscriptHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TranscriptHash({})", self.to_hex())
    }
}

/// Hashes the handshake's bytes as they are sent and received. Messages delimit themselves, so plain concatenation is
/// unambiguous.
#[derive(Clone)]
pub(crate) struct Transcript(Context);

impl Transcript {
    /// Begins with the label and the magic.
    pub(crate) fn new() -> Self {
        let mut context = Context::new(&SHA256);
        context.update(b"gt handshake v1\0");
        context.update(&crate::MAGIC);
        Self(context)
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn hash(&self, binding: &ChannelBinding) -> TranscriptHash {
        let mut context = self.0.clone();
        match binding {
            ChannelBinding::None => context.update(&[0, 0, 0]),
            ChannelBinding::TlsExporter(bytes) => {
                context.update(&[1, 0, 32]);
                context.update(bytes);
            }
        }
        let mut hash = [0; 32];
        hash.copy_from_slice(context.finish().as_ref());
        TranscriptHash(hash)
    }
}

fn mac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
    for part in parts {
        context.update(part);
    }
    let mut tag = [0; 32];
    tag.copy_from_slice(context.sign().as_ref());
    tag
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

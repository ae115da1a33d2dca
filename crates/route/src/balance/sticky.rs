//! Cookies that keep a visitor on a server. A cookie holds a keyed digest of the server's address: it says nothing about the address, and
//! nobody can make one for a server of their choice without having been there.

use aws_lc_rs::hmac;

/// The cookie of an upstream.
pub struct Sticky {
    key: hmac::Key,
}

impl Sticky {
    /// `key` is any text of bytes that all workers and restarts share.
    pub fn new(key: &[u8]) -> Self {
        Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, key),
        }
    }

    /// The value that names the server of this address.
    pub fn tag(&self, address: &str) -> StickyTag {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let digest = hmac::sign(&self.key, address.as_bytes());
        let mut tag = [0; 16];
        for (pair, byte) in tag.chunks_exact_mut(2).zip(digest.as_ref()) {
            pair[0] = HEX[usize::from(byte >> 4)];
            pair[1] = HEX[usize::from(byte & 15)];
        }
        StickyTag(tag)
    }
}

impl std::fmt::Debug for Sticky {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sticky(..)")
    }
}

/// The value of a sticky cookie: 16 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StickyTag([u8; 16]);

impl StickyTag {
    /// The digits.
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

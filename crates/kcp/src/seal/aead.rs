//! AES-128-GCM over a packet's body, without associated data.

use aes_gcm::{AeadInOut, Aes128Gcm, KeyInit};

use crate::InputError;

pub(super) const NONCE: usize = 12;
pub(super) const TAG: usize = 16;

pub(super) struct Gcm(Aes128Gcm);

impl Gcm {
    pub(super) fn new(key: &[u8]) -> Option<Self> {
        Aes128Gcm::new_from_slice(key).ok().map(Self)
    }

    /// `packet` holds nonce and tag at least.
    pub(super) fn seal(&self, packet: &mut [u8], nonce: [u8; 16]) {
        let (head, rest) = packet.split_at_mut(NONCE);
        head.copy_from_slice(&nonce[..NONCE]);
        let (body, tail) = rest.split_at_mut(rest.len() - TAG);
        let nonce: [u8; NONCE] = std::array::from_fn(|i| nonce[i]);
        match self
            .0
            .encrypt_inout_detached(&nonce.into(), &[], body.into())
        {
            Ok(tag) => tail.copy_from_slice(&tag),
            // Only for bodies of 64 GiB. Were it to happen, nothing readable may leave.
            Err(_) => body.fill(0),
        }
    }

    /// `packet` holds nonce and tag at least.
    pub(super) fn open<'a>(&self, packet: &'a mut [u8]) -> Result<&'a mut [u8], InputError> {
        let (head, rest) = packet.split_at_mut(NONCE);
        let (body, tail) = rest.split_at_mut(rest.len() - TAG);
        let nonce: [u8; NONCE] = std::array::from_fn(|i| head[i]);
        let tag: [u8; TAG] = std::array::from_fn(|i| tail[i]);
        self.0
            .decrypt_inout_detached(&nonce.into(), &[], (&mut *body).into(), &tag.into())
            .map_err(|_| InputError::Unsealed)?;
        Ok(body)
    }
}

//! AES-128-GCM over a packet's body, without associated data.
//!
//! With the feature `aws-lc` (which `tokio` brings) by AWS-LC, which uses what vectors the CPU has and is about twice as fast;
//! without it by portable Rust. Both are compiled for tests and must agree.

use crate::InputError;

#[cfg(feature = "aws-lc")]
pub(super) type Gcm = aws::Gcm;
#[cfg(not(feature = "aws-lc"))]
pub(super) type Gcm = portable::Gcm;

pub(super) const NONCE: usize = 12;
pub(super) const TAG: usize = 16;

/// Nonce, body and tag of a packet that holds the first and the last at least.
fn parts(packet: &mut [u8]) -> (&mut [u8], &mut [u8], &mut [u8]) {
    let (head, rest) = packet.split_at_mut(NONCE);
    let (body, tail) = rest.split_at_mut(rest.len() - TAG);
    (head, body, tail)
}

#[cfg(feature = "aws-lc")]
mod aws {
    use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

    use super::{InputError, NONCE, TAG, parts};

    pub(in super::super) struct Gcm(LessSafeKey);

    impl Gcm {
        pub(in super::super) fn new(key: &[u8]) -> Option<Self> {
            let key = UnboundKey::new(&AES_128_GCM, key).ok()?;
            Some(Self(LessSafeKey::new(key)))
        }

        /// `packet` holds nonce and tag at least.
        pub(in super::super) fn seal(&self, packet: &mut [u8], nonce: [u8; 16]) {
            let (head, body, tail) = parts(packet);
            let nonce: [u8; NONCE] = std::array::from_fn(|i| nonce[i]);
            head.copy_from_slice(&nonce);
            let nonce = Nonce::assume_unique_for_key(nonce);
            match self.0.seal_in_place_separate_tag(nonce, Aad::empty(), body) {
                Ok(tag) => tail.copy_from_slice(tag.as_ref()),
                // Only for bodies of 64 GiB. Were it to happen, nothing readable may leave.
                Err(_) => body.fill(0),
            }
        }

        /// `packet` holds nonce and tag at least.
        pub(in super::super) fn open<'a>(
            &self,
            packet: &'a mut [u8],
        ) -> Result<&'a mut [u8], InputError> {
            let (head, rest) = packet.split_at_mut(NONCE);
            let nonce: [u8; NONCE] = std::array::from_fn(|i| head[i]);
            let nonce = Nonce::assume_unique_for_key(nonce);
            debug_assert!(rest.len() >= TAG);
            self.0
                .open_in_place(nonce, Aad::empty(), rest)
                .map_err(|_| InputError::Unsealed)
        }
    }
}

#[cfg(any(not(feature = "aws-lc"), test))]
mod portable {
    use aes_gcm::{AeadInOut, Aes128Gcm, KeyInit};

    use super::{InputError, NONCE, TAG, parts};

    pub(in super::super) struct Gcm(Aes128Gcm);

    impl Gcm {
        pub(in super::super) fn new(key: &[u8]) -> Option<Self> {
            Aes128Gcm::new_from_slice(key).ok().map(Self)
        }

        /// `packet` holds nonce and tag at least.
        pub(in super::super) fn seal(&self, packet: &mut [u8], nonce: [u8; 16]) {
            let (head, body, tail) = parts(packet);
            head.copy_from_slice(&nonce[..NONCE]);
            let nonce: [u8; NONCE] = std::array::from_fn(|i| nonce[i]);
            match self
                .0
                .encrypt_inout_detached(&nonce.into(), &[], (&mut *body).into())
            {
                Ok(tag) => tail.copy_from_slice(&tag),
                // As above.
                Err(_) => body.fill(0),
            }
        }

        /// `packet` holds nonce and tag at least.
        pub(in super::super) fn open<'a>(
            &self,
            packet: &'a mut [u8],
        ) -> Result<&'a mut [u8], InputError> {
            let (head, body, tail) = parts(packet);
            let nonce: [u8; NONCE] = std::array::from_fn(|i| head[i]);
            let tag: [u8; TAG] = std::array::from_fn(|i| tail[i]);
            self.0
                .decrypt_inout_detached(&nonce.into(), &[], (&mut *body).into(), &tag.into())
                .map_err(|_| InputError::Unsealed)?;
            Ok(body)
        }
    }
}

#[cfg(all(test, feature = "aws-lc"))]
mod tests {
    use super::*;

    #[test]
    fn both_implementations_agree() {
        let key = [7; 16];
        let aws = aws::Gcm::new(&key).expect("a key");
        let portable = portable::Gcm::new(&key).expect("a key");
        for length in (0..200).chain([1344, 1472]) {
            let plain: Vec<u8> = (0..NONCE + length + TAG).map(|i| i as u8).collect();
            let (mut a, mut b) = (plain.clone(), plain.clone());
            aws.seal(&mut a, [length as u8; 16]);
            portable.seal(&mut b, [length as u8; 16]);
            assert_eq!(a, b, "{length}");
            let body = &plain[NONCE..NONCE + length];
            assert_eq!(portable.open(&mut a).expect("sealed"), body, "{length}");
            assert_eq!(aws.open(&mut b.clone()).expect("sealed"), body, "{length}");
            b[NONCE + length] ^= 1;
            assert!(aws.open(&mut b).is_err(), "{length}");
        }
    }
}

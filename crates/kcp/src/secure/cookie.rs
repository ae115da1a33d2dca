//! Cookies: a client proves that it receives at its address before a server keeps anything about it.
//!
//! `cookie = seconds u64 ‖ HMAC-SHA256(secret, address ‖ client's id ‖ client's key ‖ seconds)`, cut to 16 bytes. The secret is the
//! listener's own and never leaves it; nobody else has to understand a cookie.

use std::{fmt, net::SocketAddr};

use aws_lc_rs::{constant_time::verify_slices_are_equal, hmac};

use super::wire::{COOKIE, Initiate};
use crate::Time;

/// A cookie serves so long: three retransmissions of a client on a slow path.
const LIFETIME_SECONDS: u64 = 15;

pub(super) struct Cookies(hmac::Key);

impl Cookies {
    pub(super) fn new(secret: &[u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    pub(super) fn bake(&self, now: Time, from: SocketAddr, initiate: &Initiate) -> [u8; COOKIE] {
        self.at(seconds(now), from, initiate)
    }

    pub(super) fn is_good(&self, now: Time, from: SocketAddr, initiate: &Initiate) -> bool {
        let Some(cookie) = &initiate.cookie else {
            return false;
        };
        let Some(baked) = cookie.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)) else {
            return false;
        };
        let fresh = seconds(now)
            .checked_sub(baked)
            .is_some_and(|age| age <= LIFETIME_SECONDS);
        fresh && verify_slices_are_equal(&self.at(baked, from, initiate), cookie).is_ok()
    }

    fn at(&self, seconds: u64, from: SocketAddr, initiate: &Initiate) -> [u8; COOKIE] {
        let mut context = hmac::Context::with_key(&self.0);
        match from {
            SocketAddr::V4(v4) => context.update(&v4.ip().octets()),
            SocketAddr::V6(v6) => context.update(&v6.ip().octets()),
        }
        context.update(&from.port().to_le_bytes());
        context.update(&initiate.client.to_le_bytes());
        context.update(&initiate.key);
        context.update(&seconds.to_le_bytes());
        let mut cookie = [0; COOKIE];
        cookie[..8].copy_from_slice(&seconds.to_le_bytes());
        cookie[8..].copy_from_slice(&context.sign().as_ref()[..COOKIE - 8]);
        cookie
    }
}

impl fmt::Debug for Cookies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cookies(..)")
    }
}

fn seconds(now: Time) -> u64 {
    now.as_micros() / 1_000_000
}

//! One buffer per thread for bytes that are gone before the call that read them returns.
//!
//! A stream that needs room for ciphertext or a frame borrows it here for the length of one poll, so that no stream
//! owns such a buffer while it is idle. Nothing may be left in it between two calls.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};

/// Bytes lent: four full TLS records with their overhead, or one WebSocket frame of ours with its header.
pub(crate) const SCRATCH_LEN: usize = 4 * (16 * 1024 + 256) + 64;

thread_local! {
    static SPARE: Cell<Option<Box<[u8]>>> = const { Cell::new(None) };
}

/// The thread's buffer, given back when dropped. A second loan while the first lasts (TLS inside TLS) allocates.
pub(crate) struct Scratch(Option<Box<[u8]>>);

impl Scratch {
    pub(crate) fn borrow() -> Self {
        Self(Some(
            SPARE
                .take()
                .unwrap_or_else(|| vec![0; SCRATCH_LEN].into_boxed_slice()),
        ))
    }
}

impl Deref for Scratch {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }
}

impl DerefMut for Scratch {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.as_deref_mut().unwrap_or_default()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        SPARE.set(self.0.take());
    }
}

//! Cuts received bytes into handshake messages: `type u8 ‖ length u16 ‖ fields`. Takes exactly the bytes of a message, holds at
//! most one, and its memory grows with what has arrived, not with what a header promises.

use crate::{
    MAGIC,
    error::{DecodeError, HandshakeError},
    text::snippet,
    tlv::Fields,
};

/// Largest handshake message in bytes, head included.
pub const MAX_HANDSHAKE_MESSAGE: usize = 4096;

/// Bytes before the fields.
const HEAD: usize = 3;

/// A whole message as it travelled.
pub(super) struct Frame {
    /// Head and fields.
    pub(super) raw: Vec<u8>,
}

impl Frame {
    /// The message's type byte.
    pub(super) fn kind(&self) -> u8 {
        self.raw.first().copied().unwrap_or_default()
    }

    /// A message of another type is an error.
    pub(super) fn must_be(&self, kind: u8, expected: &'static str) -> Result<(), HandshakeError> {
        if self.kind() == kind {
            return Ok(());
        }
        Err(HandshakeError::Unexpected {
            got: self.kind(),
            expected,
        })
    }

    /// Its fields.
    pub(super) fn fields(&self) -> Result<Fields<'_>, DecodeError> {
        Fields::parse(self.raw.get(HEAD..).unwrap_or_default())
    }
}

/// Collects one message at a time.
pub(super) struct Inbox {
    magic: usize,
    buffer: Vec<u8>,
}

impl Inbox {
    /// Expects messages.
    pub(super) fn new() -> Self {
        Self {
            magic: MAGIC.len(),
            buffer: Vec::new(),
        }
    }

    /// Expects the magic, then messages.
    pub(super) fn after_magic() -> Self {
        Self {
            magic: 0,
            buffer: Vec::new(),
        }
    }

    /// Whether nothing of a message has arrived yet.
    pub(super) fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Takes bytes from the front of `input` and gives a message if one is complete.
    pub(super) fn read(&mut self, input: &mut &[u8]) -> Result<Option<Frame>, HandshakeError> {
        self.read_magic(input)?;
        if !self.fill(input, HEAD) {
            return Ok(None);
        }
        let length = HEAD + usize::from(u16::from_be_bytes([self.buffer[1], self.buffer[2]]));
        if length > MAX_HANDSHAKE_MESSAGE {
            return Err(HandshakeError::Malformed {
                message: "handshake message",
                error: DecodeError::TooLong,
            });
        }
        if !self.fill(input, length) {
            return Ok(None);
        }
        Ok(Some(Frame {
            raw: std::mem::take(&mut self.buffer),
        }))
    }

    fn read_magic(&mut self, input: &mut &[u8]) -> Result<(), HandshakeError> {
        while self.magic < MAGIC.len() {
            let Some((&byte, rest)) = input.split_first() else {
                return Ok(());
            };
            if byte != MAGIC[self.magic] {
                let seen = [&MAGIC[..self.magic], &input[..input.len().min(64)]].concat();
                return Err(HandshakeError::NotAClient {
                    sent: snippet(&seen),
                });
            }
            self.magic += 1;
            *input = rest;
        }
        Ok(())
    }

    /// Moves bytes until the buffer has `length`; whether it has.
    fn fill(&mut self, input: &mut &[u8], length: usize) -> bool {
        let wanted = length.saturating_sub(self.buffer.len()).min(input.len());
        let (taken, rest) = input.split_at(wanted);
        self.buffer.extend_from_slice(taken);
        *input = rest;
        self.buffer.len() >= length
    }
}

/// What is wrong with the fields of `message`.
pub(super) fn malformed(message: &'static str) -> impl FnOnce(DecodeError) -> HandshakeError {
    move |error| HandshakeError::Malformed { message, error }
}

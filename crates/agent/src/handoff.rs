//! What one process of a client leaves for the next, as a line of text.

use config::Remote;
use tunnel::SessionId;

/// What a process of a client leaves for the next, so that it joins the session instead of being a second client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handoff {
    pub(crate) session: SessionId,
    pub(crate) remote: Remote,
    /// Of the services declared last.
    pub(crate) generation: u32,
}

impl Handoff {
    pub(crate) fn new(session: SessionId, remote: Remote, generation: u32) -> Self {
        Self {
            session,
            remote,
            generation,
        }
    }
}

impl std::fmt::Display for Handoff {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for byte in self.session.to_bytes() {
            write!(f, "{byte:02x}")?;
        }
        write!(f, " {} {}", self.generation, self.remote)
    }
}

impl std::str::FromStr for Handoff {
    type Err = NoHandoff;

    fn from_str(text: &str) -> Result<Self, NoHandoff> {
        let mut parts = text.splitn(3, ' ');
        let mut part = || parts.next().ok_or(NoHandoff);
        let (session, generation, remote) = (part()?, part()?, part()?);
        let byte = |n: usize| {
            let digits = session.get(2 * n..2 * n + 2)?;
            u8::from_str_radix(digits, 16).ok()
        };
        let bytes: Option<Vec<u8>> = (0..16).map(byte).collect();
        let bytes = bytes.and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
        Ok(Self {
            session: SessionId::from_bytes(bytes.ok_or(NoHandoff)?),
            remote: remote.parse().map_err(|_| NoHandoff)?,
            generation: generation.parse().map_err(|_| NoHandoff)?,
        })
    }
}

/// A text is no [`Handoff`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is not what a client leaves for its next process")]
pub struct NoHandoff;

//! gt's frames: an 8-byte header, then the payload. Knows nothing of streams' states.
//!
//! `kind u8 ‖ flags u8 ‖ length u16 ‖ stream u32 ‖ payload`, big-endian. See docs/protocol/mux.md.

/// Bytes of a frame header.
pub(crate) const HEADER: usize = 8;
/// Largest payload of a frame in bytes.
pub const MAX_PAYLOAD: usize = u16::MAX as usize;
/// Largest header of a stream in bytes.
pub const MAX_HEADER: usize = 1024;

/// Flag of `Data` and `Open`: nothing follows in this direction.
pub(crate) const FIN: u8 = 1;
/// Flag of `Credit`: the window grew by this much; nothing that was sent is returned by it.
pub(crate) const GROW: u8 = 1;
/// Flag of `Ping`: this is the answer.
pub(crate) const ACK: u8 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Data = 0,
    Open = 1,
    Credit = 2,
    Reset = 3,
    Ping = 4,
    Control = 5,
}

impl Kind {
    pub(crate) fn from_wire(value: u8) -> Option<Self> {
        Some(match value {
            0 => Self::Data,
            1 => Self::Open,
            2 => Self::Credit,
            3 => Self::Reset,
            4 => Self::Ping,
            5 => Self::Control,
            _ => return None,
        })
    }

    /// Whether a payload of this length makes sense.
    pub(crate) fn allows(self, length: u16) -> bool {
        match self {
            Self::Data => true,
            Self::Open => length >= 2,
            Self::Credit => length == 4,
            Self::Reset => length == 2,
            Self::Ping => length == 8,
            Self::Control => length > 0,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    pub(crate) flags: u8,
    pub(crate) length: u16,
    pub(crate) stream: u32,
}

impl From<Header> for [u8; HEADER] {
    fn from(header: Header) -> Self {
        let [l0, l1] = header.length.to_be_bytes();
        let [s0, s1, s2, s3] = header.stream.to_be_bytes();
        [header.kind as u8, header.flags, l0, l1, s0, s1, s2, s3]
    }
}

impl Header {
    /// `Err` holds the unknown frame type.
    pub(crate) fn from_wire(wire: [u8; HEADER]) -> Result<Self, u8> {
        let [kind, flags, l0, l1, s0, s1, s2, s3] = wire;
        Ok(Self {
            kind: Kind::from_wire(kind).ok_or(kind)?,
            flags,
            length: u16::from_be_bytes([l0, l1]),
            stream: u32::from_be_bytes([s0, s1, s2, s3]),
        })
    }
}

//! Forward error correction: after every `d` data packets come `p` parity packets; any `d` of the `d + p` give the rest.
//!
//! Layout (little-endian): `number u32 ‖ type u16`, then for data `size u16 = 2 + payload` and the payload. What the code
//! covers starts at `size`, zero-padded to the longest of the group. A packet's place in its group is its number modulo
//! `d + p`. Out-of-band packets use the layout of data with a number of all ones and are covered by nothing.

mod agree;
mod autotune;
mod decode;
mod encode;
mod gf;
mod lagrange;
mod simd;

pub(crate) use self::agree::Agreement;
pub use self::{
    decode::{Decoder, Recovered},
    encode::Encoder,
    simd::Kernel,
};

/// Bytes before the covered part.
pub const HEADER: usize = 6;
/// Bytes before the payload of a data packet.
pub const DATA_HEADER: usize = 8;

/// The number of out-of-band packets.
pub(crate) const OOB_NUMBER: u32 = u32::MAX;

/// What a FEC packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A payload of its own.
    Data,
    /// What recovers lost data.
    Parity,
    /// A message beside the reliable stream.
    OutOfBand,
}

impl Kind {
    const fn wire(self) -> u16 {
        match self {
            Self::Data => 0xf1,
            Self::Parity => 0xf2,
            Self::OutOfBand => 0xf3,
        }
    }

    /// The kind of `packet`; `None` for one without FEC, whose fifth byte is a KCP command (0x51 to 0x54).
    pub fn of(packet: &[u8]) -> Option<Self> {
        match u16::from_le_bytes([*packet.get(4)?, *packet.get(5)?]) {
            0xf1 => Some(Self::Data),
            0xf2 => Some(Self::Parity),
            0xf3 => Some(Self::OutOfBand),
            _ => None,
        }
    }
}

/// Writes the header before the covered part. `packet` holds at least [`HEADER`] bytes.
pub(crate) fn write_header(packet: &mut [u8], number: u32, kind: Kind) {
    packet[0..4].copy_from_slice(&number.to_le_bytes());
    packet[4..6].copy_from_slice(&kind.wire().to_le_bytes());
}

/// Completes a packet whose payload lies at [`DATA_HEADER`]: number, type, size.
pub(crate) fn write_data_header(packet: &mut [u8], number: u32, kind: Kind) {
    write_header(packet, number, kind);
    let size = (packet.len() - HEADER) as u16;
    packet[6..8].copy_from_slice(&size.to_le_bytes());
}

/// The payload of a covered part (which starts with the size field), if the size fits.
pub(crate) fn payload(covered: &[u8]) -> Option<&[u8]> {
    let size = usize::from(u16::from_le_bytes([*covered.first()?, *covered.get(1)?]));
    if size < 2 { None } else { covered.get(2..size) }
}

#[cfg(test)]
mod tests;

//! The datagrams of gt's own mode, as bytes. Numbers are little-endian. Nothing is kept and nothing is decided here.

use super::{INITIATE_LEN, VERSION};

pub(super) const KEY: usize = 32;
pub(super) const TAG: usize = 16;
pub(super) const COOKIE: usize = 24;
/// Kind, receiver's id, packet number.
pub(super) const DATA_HEAD: usize = 1 + 8 + 8;
/// Bytes that sealing takes of each datagram.
pub const OVERHEAD: usize = DATA_HEAD + TAG;

/// Kind, version, client's id.
const HEAD: usize = 1 + 1 + 8;
const INITIATE_FIXED: usize = HEAD + KEY + 1 + 2 + 1;
/// What the keys depend on: all before the cookie, which the server alone understands and which changes when it expires.
pub(super) const INITIATE_HASHED: usize = INITIATE_FIXED - 1;
const RETRY: usize = HEAD + COOKIE;
/// An Accept without its tag: head, server's id, key, cipher, MTU.
pub(super) const ACCEPT_OPEN: usize = HEAD + 8 + KEY + 1 + 2;
const VERSIONS: usize = HEAD + 2;

/// What the first byte of a datagram says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketKind {
    /// A sealed datagram of a session.
    Data,
    /// A client wants a session.
    Initiate,
    /// A server wants the client's address proved.
    Retry,
    /// A server has a session.
    Accept,
    /// A server speaks other versions.
    Versions,
    /// A server takes no more sessions now.
    Refuse,
}

impl PacketKind {
    /// The kind of a datagram; `None` for what is none of ours.
    pub fn of(datagram: &[u8]) -> Option<Self> {
        match datagram.first()? {
            0xc0 => Some(Self::Data),
            0xc1 => Some(Self::Initiate),
            0xc2 => Some(Self::Retry),
            0xc3 => Some(Self::Accept),
            0xc4 => Some(Self::Versions),
            0xc5 => Some(Self::Refuse),
            _ => None,
        }
    }

    const fn byte(self) -> u8 {
        match self {
            Self::Data => 0xc0,
            Self::Initiate => 0xc1,
            Self::Retry => 0xc2,
            Self::Accept => 0xc3,
            Self::Versions => 0xc4,
            Self::Refuse => 0xc5,
        }
    }
}

/// AEADs, as a set of bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CipherSet(pub(super) u8);

impl CipherSet {
    /// AES-128-GCM: the faster one where the processor knows AES.
    pub const AES_128_GCM: Self = Self(1);
    /// ChaCha20-Poly1305: the faster one elsewhere.
    pub const CHACHA20_POLY1305: Self = Self(2);
    /// Both.
    pub const ALL: Self = Self(3);

    /// The cipher for two ends with these sets: AES where both have it.
    pub(super) fn choose(self, other: Self) -> Option<Self> {
        let both = self.0 & other.0;
        [Self::AES_128_GCM, Self::CHACHA20_POLY1305]
            .into_iter()
            .find(|cipher| both & cipher.0 != 0)
    }
}

/// Whose session a datagram is for: the receiver's own id. `None` for a handshake, or too few bytes.
pub fn receiver(datagram: &[u8]) -> Option<u64> {
    (PacketKind::of(datagram)? == PacketKind::Data && datagram.len() >= OVERHEAD)
        .then(|| u64_at(datagram, 1))?
}

/// Writes the head of a sealed datagram.
pub(super) fn write_data_head(out: &mut [u8], receiver: u64, number: u64) {
    out[0] = PacketKind::Data.byte();
    out[1..9].copy_from_slice(&receiver.to_le_bytes());
    out[9..17].copy_from_slice(&number.to_le_bytes());
}

/// The packet number of a sealed datagram.
pub(super) fn data_number(datagram: &[u8]) -> Option<u64> {
    u64_at(datagram, 9)
}

/// A client's first datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Initiate {
    pub(super) client: u64,
    pub(super) key: [u8; KEY],
    pub(super) ciphers: CipherSet,
    pub(super) mtu: u16,
    pub(super) cookie: Option<[u8; COOKIE]>,
}

impl Initiate {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = head(PacketKind::Initiate, self.client);
        out.extend_from_slice(&self.key);
        out.push(self.ciphers.0);
        out.extend_from_slice(&self.mtu.to_le_bytes());
        let cookie: &[u8] = self.cookie.as_ref().map_or(&[], |cookie| cookie);
        out.push(cookie.len() as u8);
        out.extend_from_slice(cookie);
        out.resize(INITIATE_LEN, 0);
        out
    }

    /// Only a padded one of our version.
    pub(super) fn decode(datagram: &[u8]) -> Option<Self> {
        if datagram.len() != INITIATE_LEN || *datagram.get(1)? != VERSION {
            return None;
        }
        let cookie = match *datagram.get(INITIATE_FIXED - 1)? {
            0 => None,
            length if usize::from(length) == COOKIE => Some(array_at(datagram, INITIATE_FIXED)?),
            _ => return None,
        };
        Some(Self {
            client: u64_at(datagram, 2)?,
            key: array_at(datagram, HEAD)?,
            ciphers: CipherSet(*datagram.get(HEAD + KEY)?),
            mtu: u16::from_le_bytes(array_at(datagram, HEAD + KEY + 1)?),
            cookie,
        })
    }

    /// Version and client's id of any Initiate, of whatever version: these two do not move.
    pub(super) fn peek(datagram: &[u8]) -> Option<(u8, u64)> {
        (PacketKind::of(datagram)? == PacketKind::Initiate && datagram.len() == INITIATE_LEN)
            .then(|| Some((*datagram.get(1)?, u64_at(datagram, 2)?)))?
    }
}

/// An Accept; what is sealed of it is only its tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Accept {
    pub(super) client: u64,
    pub(super) server: u64,
    pub(super) key: [u8; KEY],
    pub(super) cipher: CipherSet,
    pub(super) mtu: u16,
}

impl Accept {
    /// Without the tag.
    pub(super) fn encode_open(&self) -> Vec<u8> {
        let mut out = head(PacketKind::Accept, self.client);
        out.extend_from_slice(&self.server.to_le_bytes());
        out.extend_from_slice(&self.key);
        out.push(self.cipher.0);
        out.extend_from_slice(&self.mtu.to_le_bytes());
        out
    }

    pub(super) fn decode(datagram: &[u8]) -> Option<Self> {
        if datagram.len() != ACCEPT_OPEN + TAG || datagram[1] != VERSION {
            return None;
        }
        Some(Self {
            client: u64_at(datagram, 2)?,
            server: u64_at(datagram, HEAD)?,
            key: array_at(datagram, HEAD + 8)?,
            cipher: CipherSet(datagram[HEAD + 8 + KEY]),
            mtu: u16::from_le_bytes(array_at(datagram, HEAD + 8 + KEY + 1)?),
        })
    }
}

pub(super) fn encode_retry(client: u64, cookie: &[u8; COOKIE]) -> Vec<u8> {
    let mut out = head(PacketKind::Retry, client);
    out.extend_from_slice(cookie);
    out
}

/// The client's id and the cookie.
pub(super) fn decode_retry(datagram: &[u8]) -> Option<(u64, [u8; COOKIE])> {
    if datagram.len() != RETRY || datagram[1] != VERSION {
        return None;
    }
    Some((u64_at(datagram, 2)?, array_at(datagram, HEAD)?))
}

/// What a server says to a version it does not know; the version field holds its own newest.
pub(super) fn encode_versions(client: u64) -> Vec<u8> {
    let mut out = head(PacketKind::Versions, client);
    out.extend_from_slice(&[VERSION, VERSION]);
    out
}

/// The client's id, the oldest and the newest version.
pub(super) fn decode_versions(datagram: &[u8]) -> Option<(u64, u8, u8)> {
    if datagram.len() != VERSIONS {
        return None;
    }
    Some((u64_at(datagram, 2)?, datagram[HEAD], datagram[HEAD + 1]))
}

/// What a server that is full, or stops, says to a client that has shown its address.
pub(super) fn encode_refuse(client: u64) -> Vec<u8> {
    head(PacketKind::Refuse, client)
}

/// The client's id.
pub(super) fn decode_refuse(datagram: &[u8]) -> Option<u64> {
    (datagram.len() == HEAD).then(|| u64_at(datagram, 2))?
}

/// What a sealed datagram holds, one after the other. [`Frame::Segments`], [`Frame::Data`] and [`Frame::Parity`] reach to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame<'a> {
    Ping,
    Pong,
    /// KCP segments without FEC.
    Segments(&'a [u8]),
    /// A packet of a FEC group: size and KCP segments.
    Data {
        group: u32,
        index: u8,
        covered: &'a [u8],
    },
    /// Parity of a group of `data` packets, number `index` of `parity`.
    Parity {
        group: u32,
        index: u8,
        data: u8,
        covered: &'a [u8],
    },
    /// This direction ends after so many bytes.
    Fin(u64),
    /// The other direction's end is known.
    FinAck(u64),
    /// The session is over.
    Reset,
    Challenge([u8; 8]),
    Response([u8; 8]),
    /// The highest packet number received, and how many were received.
    Report {
        highest: u64,
        received: u64,
    },
}

/// Kind, group, index, size: what a FEC data frame puts before the segments.
pub(super) const GROUP_HEAD: usize = 1 + 4 + 1;
/// The size field, which parity covers.
pub(super) const SIZE: usize = 2;
/// Kind, group, index, data, parity.
pub(super) const PARITY_HEAD: usize = 1 + 4 + 1 + 1 + 1;

impl<'a> Frame<'a> {
    /// The first frame and what follows it; `None` for an unknown kind or too few bytes, where reading stops.
    pub(super) fn split(body: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (&kind, rest) = body.split_first()?;
        let none: &[u8] = &[];
        Some(match kind {
            0x00 => (Self::Ping, rest),
            0x01 => (Self::Pong, rest),
            0x02 => (Self::Segments(rest), none),
            0x03 => {
                let (group, rest) = rest.split_first_chunk()?;
                let (&index, covered) = rest.split_first()?;
                let group = u32::from_le_bytes(*group);
                (
                    Self::Data {
                        group,
                        index,
                        covered,
                    },
                    none,
                )
            }
            0x04 => {
                let (group, rest) = rest.split_first_chunk()?;
                let (&[index, data, _parity], covered) = rest.split_first_chunk()?;
                let group = u32::from_le_bytes(*group);
                (
                    Self::Parity {
                        group,
                        index,
                        data,
                        covered,
                    },
                    none,
                )
            }
            0x05 => number(rest).map(|(total, rest)| (Self::Fin(total), rest))?,
            0x06 => number(rest).map(|(total, rest)| (Self::FinAck(total), rest))?,
            0x07 => (Self::Reset, rest),
            0x08 => rest
                .split_first_chunk()
                .map(|(token, rest)| (Self::Challenge(*token), rest))?,
            0x09 => rest
                .split_first_chunk()
                .map(|(token, rest)| (Self::Response(*token), rest))?,
            0x0a => {
                let (highest, rest) = number(rest)?;
                let (received, rest) = number(rest)?;
                (Self::Report { highest, received }, rest)
            }
            _ => return None,
        })
    }

    /// Appends a control frame. Those that reach to the end are written in place by their makers.
    pub(super) fn push(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Ping => out.push(0x00),
            Self::Pong => out.push(0x01),
            Self::Fin(total) => push_number(out, 0x05, total),
            Self::FinAck(total) => push_number(out, 0x06, total),
            Self::Reset => out.push(0x07),
            Self::Challenge(token) => {
                out.push(0x08);
                out.extend_from_slice(&token);
            }
            Self::Response(token) => {
                out.push(0x09);
                out.extend_from_slice(&token);
            }
            Self::Report { highest, received } => {
                push_number(out, 0x0a, highest);
                out.extend_from_slice(&received.to_le_bytes());
            }
            Self::Segments(_) | Self::Data { .. } | Self::Parity { .. } => {}
        }
    }
}

pub(super) const SEGMENTS: u8 = 0x02;

/// Writes what comes before the size field of a FEC data frame.
pub(super) fn write_group_head(out: &mut [u8], group: u32, index: u8) {
    out[0] = 0x03;
    out[1..5].copy_from_slice(&group.to_le_bytes());
    out[5] = index;
}

/// Writes what comes before the bytes of a parity frame.
pub(super) fn write_parity_head(out: &mut [u8], group: u32, index: u8, data: u8, parity: u8) {
    out[0] = 0x04;
    out[1..5].copy_from_slice(&group.to_le_bytes());
    out[5..8].copy_from_slice(&[index, data, parity]);
}

fn head(kind: PacketKind, client: u64) -> Vec<u8> {
    let mut out = vec![kind.byte(), VERSION];
    out.extend_from_slice(&client.to_le_bytes());
    out
}

fn push_number(out: &mut Vec<u8>, kind: u8, number: u64) {
    out.push(kind);
    out.extend_from_slice(&number.to_le_bytes());
}

fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u64::from_le_bytes(*number), rest))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    array_at(bytes, at).map(u64::from_le_bytes)
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

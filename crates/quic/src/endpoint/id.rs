//! Connection ids: they tell the kernel which socket a packet is for ([`net::steer_by_connection_id`]), and which process.
//!
//! Nine bytes: one random; that one XOR the socket's place; that one XOR the process's epoch; three random; three that only processes of this
//! service can make of the others. A packet with an id that none of them made costs no lookup and gets no answer.

use std::{sync::Arc, time::Duration};

use aws_lc_rs::hmac;
use net::STEERED_ID_LEN;
use quinn::{ConnectionId, ConnectionIdGenerator};
use quinn_proto::InvalidCid;

/// Makes generators whose ids all of them recognise, in every process with that key.
#[derive(Clone, Debug)]
pub(crate) struct Ids {
    key: Arc<hmac::Key>,
    epoch: u8,
}

/// What an id says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) epoch: u8,
    pub(crate) socket: u8,
}

impl Ids {
    /// For the process with that epoch.
    pub(crate) fn new(key: &[u8], epoch: u8) -> Self {
        Self {
            key: Arc::new(hmac::Key::new(hmac::HMAC_SHA256, key)),
            epoch,
        }
    }

    pub(crate) fn epoch(&self) -> u8 {
        self.epoch
    }

    /// For the socket with that place; places from 256 on do not exist.
    pub(crate) fn generator(&self, socket: usize) -> Generator {
        Generator {
            ids: self.clone(),
            socket: u8::try_from(socket).unwrap_or(0),
        }
    }

    /// Whether a process of this service has made it.
    pub(crate) fn knows(&self, id: &[u8]) -> bool {
        id.len() == STEERED_ID_LEN && self.proof(&id[..BODY]) == id[BODY..]
    }

    fn proof(&self, body: &[u8]) -> [u8; PROOF] {
        let tag = hmac::sign(&self.key, body);
        let mut proof = [0; PROOF];
        proof.copy_from_slice(&tag.as_ref()[..PROOF]);
        proof
    }
}

/// Whose connection the id is of, if it is genuine; `None` for an id of another length.
pub(crate) fn owner(id: &[u8]) -> Option<Owner> {
    let id: &[u8; STEERED_ID_LEN] = id.try_into().ok()?;
    Some(Owner {
        socket: id[0] ^ id[1],
        epoch: id[0] ^ id[2],
    })
}

/// The id that a datagram's first packet is for, if it can be one of this service's.
pub(crate) fn destination(datagram: &[u8]) -> Option<&[u8]> {
    let (first, rest) = datagram.split_first()?;
    if first & LONG_HEADER == 0 {
        // RFC 9000 §17.3: a short header is followed by the id.
        return rest.get(..STEERED_ID_LEN);
    }
    // §17.2: a long header has the version, the id's length, and the id.
    let (length, rest) = rest.get(4..)?.split_first()?;
    (usize::from(*length) == STEERED_ID_LEN)
        .then(|| rest.get(..STEERED_ID_LEN))
        .flatten()
}

/// Whether it begins with an Initial packet that carries a token (RFC 9000 §17.2.2). Such a one may have an id that a server made for a Retry: then
/// it begins a connection, and any process that takes new ones can take it.
pub(crate) fn begins_with_token(datagram: &[u8]) -> bool {
    let behind_ids = || {
        let (first, rest) = datagram.split_first()?;
        let initial = match rest.get(..4)? {
            VERSION_2 => first & TYPE == TYPE_V2_INITIAL,
            _ => first & TYPE == 0,
        };
        let mut rest = rest.get(4..)?;
        for _ in 0..2 {
            let (length, behind) = rest.split_first()?;
            rest = behind.get(usize::from(*length)..)?;
        }
        Some(first & LONG_HEADER != 0 && initial && *rest.first()? != 0)
    };
    behind_ids().unwrap_or(false)
}

const LONG_HEADER: u8 = 0x80;
const TYPE: u8 = 0x30;
/// RFC 9369 §3.1, §3.2.
const VERSION_2: &[u8] = &[0x6b, 0x33, 0x43, 0xcf];
const TYPE_V2_INITIAL: u8 = 0x10;

pub(crate) struct Generator {
    ids: Ids,
    socket: u8,
}

impl ConnectionIdGenerator for Generator {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut id: [u8; STEERED_ID_LEN] = rand::random();
        id[1] = id[0] ^ self.socket;
        id[2] = id[0] ^ self.ids.epoch;
        let proof = self.ids.proof(&id[..BODY]);
        id[BODY..].copy_from_slice(&proof);
        ConnectionId::new(&id)
    }

    fn validate(&self, id: &ConnectionId) -> Result<(), InvalidCid> {
        // What another process may have must not be answered here.
        let ours = owner(id).is_some_and(|owner| owner.epoch == self.ids.epoch);
        let genuine = ours && self.ids.knows(id);
        genuine.then_some(()).ok_or(InvalidCid)
    }

    fn cid_len(&self) -> usize {
        STEERED_ID_LEN
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

const PROOF: usize = 3;
const BODY: usize = STEERED_ID_LEN - PROOF;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_names_its_process_and_socket_to_all_processes_and_to_nobody_else() {
        let old = Ids::new(b"one service", 3);
        let new = Ids::new(b"one service", 4);
        let other = Ids::new(b"another", 3);
        for _ in 0..100 {
            let id = old.generator(200).generate_cid();
            let named = Owner {
                epoch: 3,
                socket: 200,
            };
            assert_eq!(owner(&id), Some(named));
            assert!(new.knows(&id));
            // One of 2^24 is taken for genuine.
            assert!(!other.knows(&id));
            let mut forged = id.to_vec();
            forged[2] ^= 7;
            assert!(!new.knows(&forged));
        }
    }

    #[test]
    fn ids_are_found_in_both_kinds_of_headers() {
        let id = [9; STEERED_ID_LEN];
        let short = [&[0x40][..], &id, b"more"].concat();
        assert_eq!(destination(&short), Some(&id[..]));
        let long = [&[0xc0, 0, 0, 0, 1, 9][..], &id, &[0, 0, 1]].concat();
        assert_eq!(destination(&long), Some(&id[..]));
        assert_eq!(destination(&[0xc0, 0, 0, 0, 1, 8, 1, 2, 3]), None);
        for cut in 0..short.len().min(10) {
            assert_eq!(destination(&short[..cut]), None);
        }
        for cut in 0..15 {
            assert_eq!(destination(&long[..cut]), None);
            assert!(!begins_with_token(&long[..cut]));
        }
        assert!(!begins_with_token(&long));
        let with_token = [&[0xc0, 0, 0, 0, 1, 9][..], &id, &[2, 7, 7, 5, 1, 2]].concat();
        assert!(begins_with_token(&with_token));
        let handshake = [&[0xe0, 0, 0, 0, 1, 9][..], &id, &[2, 7, 7, 5, 1, 2]].concat();
        assert!(!begins_with_token(&handshake));
    }
}

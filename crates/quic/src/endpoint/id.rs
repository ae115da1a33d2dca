//! Connection ids: they tell the kernel which socket a packet is for ([`net::steer_by_connection_id`]), and this process that they are its own.
//!
//! Nine bytes: random; the same XOR the socket's place; four random; three that only the process can make of the others. A packet with an id of
//! nobody's costs no lookup and gets no answer: another process that shares the sockets may know it.

use std::{
    hash::{BuildHasher as _, RandomState},
    time::Duration,
};

use net::STEERED_ID_LEN;
use quinn::{ConnectionId, ConnectionIdGenerator};
use quinn_proto::InvalidCid;

/// Makes generators whose ids all of them recognise.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ids {
    key: RandomState,
}

impl Ids {
    /// For the socket with that place; places from 256 on do not exist.
    pub(crate) fn generator(&self, socket: usize) -> Generator {
        Generator {
            key: self.key.clone(),
            socket: u8::try_from(socket).unwrap_or(0),
        }
    }
}

pub(crate) struct Generator {
    key: RandomState,
    socket: u8,
}

impl Generator {
    fn proof(&self, body: &[u8]) -> [u8; PROOF] {
        let hash = self.key.hash_one(body).to_le_bytes();
        [hash[0], hash[1], hash[2]]
    }
}

impl ConnectionIdGenerator for Generator {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut id: [u8; STEERED_ID_LEN] = rand::random();
        id[1] = id[0] ^ self.socket;
        let proof = self.proof(&id[..BODY]);
        id[BODY..].copy_from_slice(&proof);
        ConnectionId::new(&id)
    }

    fn validate(&self, id: &ConnectionId) -> Result<(), InvalidCid> {
        let genuine = id.len() == STEERED_ID_LEN && self.proof(&id[..BODY]) == id[BODY..];
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

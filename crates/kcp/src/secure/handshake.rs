//! The client's handshake: Initiate, perhaps again with a cookie, until an Accept proves that the server has the same keys.

use std::{net::SocketAddr, time::Duration};

use super::{
    ConnectError, Options,
    keys::{Ephemeral, Role},
    session::{Session, Setup},
    wire::{self, ACCEPT_OPEN, Accept, INITIATE_HASHED, Initiate, PacketKind},
};
use crate::{MTU_MAX, Time};

/// The first wait for an answer; doubled each time up to the longest, which is short: a handshake takes two answers, and on a path that loses
/// much each of them may take several questions.
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// Cookies that are answered at once; a server that asks more often is answered by the timer.
const EAGER_RETRIES: u32 = 3;

/// A session that does not exist yet, at the client. How long to try is the caller's choice.
#[derive(Debug)]
pub struct Connecting {
    options: Options,
    ephemeral: Ephemeral,
    initiate: Initiate,
    /// `initiate` as bytes.
    datagram: Vec<u8>,
    remote: SocketAddr,
    seed: [u8; 32],
    send_at: Time,
    wait: Duration,
    eager: u32,
}

impl Connecting {
    /// Begins. `random` must be random and used once.
    ///
    /// # Errors
    /// [`ConnectError::Key`] when the random bytes make no key.
    pub fn new(
        now: Time,
        remote: SocketAddr,
        options: Options,
        random: &[u8; 72],
    ) -> Result<Self, ConnectError> {
        let (client, random) = random.split_first_chunk::<8>().ok_or(ConnectError::Key)?;
        let (private, random) = random.split_first_chunk::<32>().ok_or(ConnectError::Key)?;
        let seed = *random.first_chunk().ok_or(ConnectError::Key)?;
        let ephemeral = Ephemeral::new(private).ok_or(ConnectError::Key)?;
        let initiate = Initiate {
            client: u64::from_le_bytes(*client),
            key: ephemeral.public,
            ciphers: options.ciphers,
            mtu: options.mtu() as u16,
            cookie: None,
        };
        Ok(Self {
            options,
            ephemeral,
            datagram: initiate.encode(),
            initiate,
            remote,
            seed,
            send_at: now,
            wait: FIRST_WAIT,
            eager: 0,
        })
    }

    /// The datagram to send now, to the address given at first.
    pub fn poll_transmit(&mut self, now: Time) -> Option<&[u8]> {
        if now < self.send_at {
            return None;
        }
        self.send_at = now + self.wait;
        self.wait = (self.wait * 2).min(LONGEST_WAIT);
        Some(&self.datagram)
    }

    /// When [`Self::poll_transmit`] has the next one.
    pub fn poll_timeout(&self) -> Time {
        self.send_at
    }

    /// Takes a datagram; gives the session once there is one. What is not for us, or not right, changes nothing.
    ///
    /// # Errors
    /// What the server says: [`ConnectError::Version`], [`ConnectError::Refused`].
    pub fn handle_datagram(
        &mut self,
        now: Time,
        datagram: &[u8],
    ) -> Result<Option<Session>, ConnectError> {
        match PacketKind::of(datagram) {
            Some(PacketKind::Retry) => {
                if let Some((client, cookie)) = wire::decode_retry(datagram)
                    && client == self.initiate.client
                {
                    self.initiate.cookie = Some(cookie);
                    self.datagram = self.initiate.encode();
                    if self.eager < EAGER_RETRIES {
                        self.eager += 1;
                        self.send_at = now;
                        self.wait = FIRST_WAIT;
                    }
                }
                Ok(None)
            }
            Some(PacketKind::Versions) => match wire::decode_versions(datagram) {
                Some((client, min, max))
                    if client == self.initiate.client && !(min..=max).contains(&super::VERSION) =>
                {
                    Err(ConnectError::Version { min, max })
                }
                _ => Ok(None),
            },
            Some(PacketKind::Refuse)
                if wire::decode_refuse(datagram) == Some(self.initiate.client) =>
            {
                Err(ConnectError::Refused)
            }
            Some(PacketKind::Accept) => Ok(self.accepted(now, datagram)),
            _ => Ok(None),
        }
    }

    fn accepted(&mut self, now: Time, datagram: &[u8]) -> Option<Session> {
        let accept = Accept::decode(datagram)?;
        let offered = self.options.ciphers.choose(accept.cipher)?;
        if accept.client != self.initiate.client || offered != accept.cipher {
            return None;
        }
        let (open, tag) = datagram.split_at_checked(ACCEPT_OPEN)?;
        let hashed = self.datagram.get(..INITIATE_HASHED)?;
        let keys = self
            .ephemeral
            .agree(&accept.key, hashed, open, accept.cipher, Role::Client)?;
        // Number 0 of the server is spent on this.
        keys.receive.open(0, open, &mut tag.to_vec())?;
        let mtu = usize::from(accept.mtu).min(self.options.mtu());
        if !(super::INITIATE_LEN..=MTU_MAX).contains(&mtu) {
            return None;
        }
        Some(Session::new(
            Setup {
                role: Role::Client,
                local_id: self.initiate.client,
                remote_id: accept.server,
                remote: self.remote,
                mtu,
                keys,
                seed: self.seed,
            },
            &self.options,
            now,
        ))
    }
}

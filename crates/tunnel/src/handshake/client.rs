//! The client's side of the handshake: sends magic and Hello, answers the Challenge with a proof, checks the server's.

use super::{
    inbox::{Frame, Inbox, malformed},
    messages::{self, ACCEPT, Accept, CHALLENGE, Challenge, Hello, REJECT},
    types::{Features, Grant, TransportKind, VersionRange, Windows},
};
use crate::{
    ClientId, MAGIC, Name, Rejection, SessionId,
    auth::{ChannelBinding, Key, Nonce, Secret, Transcript},
    error::HandshakeError,
    text::snippet,
};

/// Whether a client insists that the server knows the secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ServerProof {
    /// A server without a valid proof is an impostor.
    #[default]
    Required,
    /// A server may admit without proof (`allowAnyClient`, an external authentication service). A wrong proof is still an
    /// error.
    Optional,
}

/// What a client brings to a handshake.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// Who it is.
    pub id: ClientId,
    /// What it shares with the server.
    pub secret: Secret,
    /// Whether the server has to prove itself.
    pub server_proof: ServerProof,
    /// The versions it speaks.
    pub versions: VersionRange,
    /// The features it offers.
    pub features: Features,
    /// The session to join; none for a new one.
    pub session: Option<SessionId>,
    /// What it is ready to receive.
    pub windows: Windows,
    /// The transport it uses.
    pub transport: TransportKind,
    /// Name and version of its software.
    pub software: Name,
}

impl ClientConfig {
    /// A new session over TCP with default windows; the server has to prove itself.
    #[must_use]
    pub fn new(id: ClientId, secret: Secret) -> Self {
        Self {
            id,
            secret,
            server_proof: ServerProof::default(),
            versions: VersionRange::default(),
            features: Features::NONE,
            session: None,
            windows: Windows::default(),
            transport: TransportKind::Tcp,
            software: Name::default(),
        }
    }
}

/// What a client has once its link is up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientEstablished {
    /// The agreed protocol version.
    pub version: u16,
    /// The agreed features.
    pub features: Features,
    /// What the server grants.
    pub grant: Grant,
    /// Whether the server proved that it knows the secret.
    pub server_proved: bool,
}

/// The client's handshake. The crate's head tells the order of calls.
pub struct ClientHandshake {
    state: State,
    inbox: Inbox,
    output: Vec<u8>,
}

enum State {
    Challenge(AwaitChallenge),
    Accept(AwaitAccept),
    Established(Option<ClientEstablished>),
    Failed(HandshakeError),
}

impl ClientHandshake {
    /// Begins a handshake; [`ClientHandshake::output`] has its first bytes. `nonce` must be fresh.
    #[must_use]
    pub fn new(config: ClientConfig, nonce: Nonce, binding: ChannelBinding) -> Self {
        let hello = Hello {
            versions: config.versions,
            features: config.features,
            id: config.id.clone(),
            nonce,
            binding: binding.kind(),
            session: config.session,
            software: config.software,
            windows: config.windows,
            transport: config.transport,
        }
        .encode();
        let mut transcript = Transcript::new();
        transcript.add(&hello);
        let waiting = AwaitChallenge {
            key: Key::derive(&config.secret, &config.id),
            versions: config.versions,
            features: config.features,
            server_proof: config.server_proof,
            binding,
            transcript,
        };
        Self {
            state: State::Challenge(waiting),
            inbox: Inbox::new(),
            output: [&MAGIC[..], &hello].concat(),
        }
    }

    /// Takes received bytes and says how many: all, or those up to the end of Accept.
    ///
    /// # Errors
    /// When the server is no gt server, breaks the protocol, refuses, or fails to prove itself. The handshake is over then and
    /// every later call gives the same error.
    pub fn handle_input(&mut self, input: &[u8]) -> Result<usize, HandshakeError> {
        let mut rest = input;
        while !matches!(self.state, State::Established(_)) {
            match self.advance(&mut rest) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    self.state = State::Failed(error.clone());
                    return Err(error);
                }
            }
        }
        Ok(input.len() - rest.len())
    }

    /// The bytes to send now; empty if there are none.
    #[must_use]
    pub fn output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// The outcome, once.
    #[must_use]
    pub fn established(&mut self) -> Option<ClientEstablished> {
        if let State::Established(established) = &mut self.state {
            established.take()
        } else {
            None
        }
    }

    /// What to report when the connection ended now.
    #[must_use]
    pub fn closed(&self) -> HandshakeError {
        match &self.state {
            State::Challenge(_) => HandshakeError::Closed("the server's Challenge"),
            State::Accept(_) => HandshakeError::Closed("the server's Accept"),
            State::Established(_) => HandshakeError::Closed("the first stream"),
            State::Failed(error) => error.clone(),
        }
    }

    /// Reads one message and steps on; false when more bytes are needed.
    fn advance(&mut self, rest: &mut &[u8]) -> Result<bool, HandshakeError> {
        if let State::Failed(error) = &self.state {
            return Err(error.clone());
        }
        if let (State::Challenge(_), true, Some(&first)) =
            (&self.state, self.inbox.is_empty(), rest.first())
            && first != CHALLENGE
            && first != REJECT
        {
            return Err(HandshakeError::NotAServer {
                answered: snippet(rest),
            });
        }
        let Some(frame) = self.inbox.read(rest)? else {
            return Ok(false);
        };
        if frame.kind() == REJECT {
            let rejection = frame
                .fields()
                .and_then(Rejection::decode)
                .map_err(malformed("Reject"))?;
            return Err(HandshakeError::Rejected(rejection));
        }
        // The placeholder is what a panic-free early return leaves behind; `handle_input` overwrites it.
        self.state = match std::mem::replace(&mut self.state, State::Established(None)) {
            State::Challenge(waiting) => {
                let (next, proof) = waiting.on_challenge(&frame)?;
                self.output.extend_from_slice(&proof);
                State::Accept(next)
            }
            State::Accept(waiting) => State::Established(Some(waiting.on_accept(&frame)?)),
            state @ (State::Established(_) | State::Failed(_)) => state,
        };
        Ok(true)
    }
}

impl std::fmt::Debug for ClientHandshake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.state {
            State::Challenge(_) => "ClientHandshake(awaits Challenge)",
            State::Accept(_) => "ClientHandshake(awaits Accept)",
            State::Established(_) => "ClientHandshake(established)",
            State::Failed(_) => "ClientHandshake(failed)",
        })
    }
}

/// Hello is sent.
struct AwaitChallenge {
    key: Key,
    versions: VersionRange,
    features: Features,
    server_proof: ServerProof,
    binding: ChannelBinding,
    transcript: Transcript,
}

impl AwaitChallenge {
    /// Proves the secret over everything said so far.
    fn on_challenge(mut self, frame: &Frame) -> Result<(AwaitAccept, Vec<u8>), HandshakeError> {
        frame.must_be(CHALLENGE, "Challenge")?;
        let challenge = frame
            .fields()
            .and_then(Challenge::decode)
            .map_err(malformed("Challenge"))?;
        if !self.versions.contains(challenge.version) {
            return Err(HandshakeError::NotOffered("protocol version"));
        }
        if !self.features.contains(challenge.features) {
            return Err(HandshakeError::NotOffered("feature"));
        }
        self.transcript.add(&frame.raw);
        let proof =
            messages::encode_proof(&self.key.client_proof(&self.transcript.hash(&self.binding)));
        self.transcript.add(&proof);
        let next = AwaitAccept {
            key: self.key,
            version: challenge.version,
            features: challenge.features,
            server_proof: self.server_proof,
            binding: self.binding,
            transcript: self.transcript,
        };
        Ok((next, proof))
    }
}

/// Proof is sent.
struct AwaitAccept {
    key: Key,
    version: u16,
    features: Features,
    server_proof: ServerProof,
    binding: ChannelBinding,
    transcript: Transcript,
}

impl AwaitAccept {
    /// Checks the server's proof, then believes the grant.
    fn on_accept(mut self, frame: &Frame) -> Result<ClientEstablished, HandshakeError> {
        frame.must_be(ACCEPT, "Accept")?;
        let fields = frame.fields().map_err(malformed("Accept"))?;
        let server_proved =
            match Accept::split_proof(&frame.raw, fields).map_err(malformed("Accept"))? {
                Some((covered, proof)) => {
                    self.transcript.add(covered);
                    if !self
                        .key
                        .server_proof(&self.transcript.hash(&self.binding))
                        .matches(&proof)
                    {
                        return Err(HandshakeError::ServerUnproven);
                    }
                    true
                }
                None if self.server_proof == ServerProof::Required => {
                    return Err(HandshakeError::ServerUnproven);
                }
                None => false,
            };
        let grant = Accept::decode(fields).map_err(malformed("Accept"))?;
        Ok(ClientEstablished {
            version: self.version,
            features: self.features,
            grant,
            server_proved,
        })
    }
}

//! The server's side of the handshake: reads magic and Hello, challenges, asks its caller whether the proof is good, and
//! answers with Accept or Reject.

use super::{
    inbox::{Frame, Inbox, malformed},
    messages::{self, Accept, Challenge, HELLO, Hello, PROOF},
    types::{BindingKind, ClientInfo, Features, Grant, VersionRange},
};
use crate::{
    RejectCode, Rejection,
    auth::{ChannelBinding, Key, Nonce, Proof, Transcript, TranscriptHash},
    error::{AuthFailure, HandshakeError},
};

/// When a server admits links that are not bound to their channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BindingPolicy {
    /// Never: plain transports are refused.
    Always,
    /// Where the channel could be bound, it must be.
    #[default]
    WhenPossible,
    /// As the client likes: for servers behind something that ends TLS and starts it again.
    Optional,
}

/// What a server brings to a handshake.
#[derive(Debug, Clone, Default)]
pub struct ServerConfig {
    /// The versions it speaks.
    pub versions: VersionRange,
    /// The features it has.
    pub features: Features,
    /// When links must be bound.
    pub binding: BindingPolicy,
}

/// What a server's handshake asks of its caller.
#[derive(Debug, Clone)]
pub enum ServerStep {
    /// Look the id up and answer with one of [`ServerHandshake::accept_with_key`], [`ServerHandshake::accept_verified`],
    /// [`ServerHandshake::accept_unverified`], [`ServerHandshake::reject_unknown_id`] and [`ServerHandshake::reject`].
    Authenticate(AuthRequest),
}

/// A client that wants in.
#[derive(Debug, Clone)]
pub struct AuthRequest {
    /// What it says about itself; `client.session`, if given, must belong to `client.id`.
    pub client: ClientInfo,
    /// What its proof is over.
    pub transcript: TranscriptHash,
    /// Its proof: `HMAC-SHA256(key, "client" ‖ 0 ‖ transcript)`.
    pub proof: Proof,
}

impl AuthRequest {
    /// Whether the client has this key. Takes the same time for every wrong proof.
    #[must_use]
    pub fn verify(&self, key: &Key) -> bool {
        key.client_proof(&self.transcript).matches(&self.proof)
    }
}

/// Who has proved what when a link is up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Authentication {
    /// Both ends proved that they know the secret.
    Mutual,
    /// Somebody else checked the client's proof; the server proved nothing.
    Client,
    /// Nobody proved anything: the id is a claim.
    None,
}

/// What a server has once a link is up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerEstablished {
    /// The other end.
    pub client: ClientInfo,
    /// What it was granted.
    pub grant: Grant,
    /// Who has proved what.
    pub authentication: Authentication,
}

/// The server's handshake. The crate's head tells the order of calls.
pub struct ServerHandshake {
    state: State,
    inbox: Inbox,
    output: Vec<u8>,
}

enum State {
    Hello(AwaitHello),
    Proof(AwaitProof),
    Decision { waiting: AwaitDecision, asked: bool },
    Established(Option<ServerEstablished>),
    Failed(HandshakeError),
}

impl ServerHandshake {
    /// Begins a handshake. `nonce` must be fresh.
    #[must_use]
    pub fn new(config: ServerConfig, nonce: Nonce, binding: ChannelBinding) -> Self {
        let state = State::Hello(AwaitHello {
            config,
            nonce,
            binding,
        });
        Self {
            state,
            inbox: Inbox::after_magic(),
            output: Vec::new(),
        }
    }

    /// Takes received bytes and says how many: all, or those up to the end of Proof.
    ///
    /// # Errors
    /// When the peer is no gt client, breaks the protocol or shares no version. The handshake is over then and every later call
    /// gives the same error; `output` may still have a Reject to send.
    pub fn handle_input(&mut self, input: &[u8]) -> Result<usize, HandshakeError> {
        let mut rest = input;
        loop {
            match self.advance(&mut rest) {
                Ok(true) => {}
                Ok(false) => return Ok(input.len() - rest.len()),
                Err(error) => return Err(self.fail(error)),
            }
        }
    }

    /// The question to the caller, once.
    #[must_use]
    pub fn poll_step(&mut self) -> Option<ServerStep> {
        match &mut self.state {
            State::Decision { waiting, asked } if !*asked => {
                *asked = true;
                Some(ServerStep::Authenticate(waiting.request.clone()))
            }
            _ => None,
        }
    }

    /// Admits the client if its proof fits `key`, and proves that this server has `key` too.
    ///
    /// # Errors
    /// [`HandshakeError::Auth`] when the proof does not fit: the client is refused. [`HandshakeError::NoDecisionDue`].
    pub fn accept_with_key(&mut self, key: &Key, grant: Grant) -> Result<(), HandshakeError> {
        let AwaitDecision {
            request,
            mut transcript,
            binding,
        } = self.decide()?;
        if !request.verify(key) {
            return Err(self.fail(HandshakeError::Auth(AuthFailure::WrongProof)));
        }
        let prove = |covered: &[u8]| {
            transcript.add(covered);
            key.server_proof(&transcript.hash(&binding))
        };
        self.establish(request.client, grant, Some(prove), Authentication::Mutual);
        Ok(())
    }

    /// Admits a client whose proof somebody else checked. The server proves nothing, so only clients with
    /// [`crate::ServerProof::Optional`] stay.
    ///
    /// # Errors
    /// [`HandshakeError::NoDecisionDue`].
    pub fn accept_verified(&mut self, grant: Grant) -> Result<(), HandshakeError> {
        self.accept_without_proof(grant, Authentication::Client)
    }

    /// Admits anybody. The server proves nothing, so only clients with [`crate::ServerProof::Optional`] stay.
    ///
    /// # Errors
    /// [`HandshakeError::NoDecisionDue`].
    pub fn accept_unverified(&mut self, grant: Grant) -> Result<(), HandshakeError> {
        self.accept_without_proof(grant, Authentication::None)
    }

    /// Refuses an id that nobody has, exactly as a wrong secret is refused, and with the same work.
    ///
    /// # Errors
    /// [`HandshakeError::NoDecisionDue`].
    pub fn reject_unknown_id(&mut self) -> Result<(), HandshakeError> {
        let waiting = self.decide()?;
        let _ = std::hint::black_box(waiting.request.verify(&Key::from_bytes([0; 32])));
        self.fail(HandshakeError::Auth(AuthFailure::UnknownId));
        Ok(())
    }

    /// Refuses the link; possible at any time before it is up, for instance when the address is throttled.
    ///
    /// # Errors
    /// [`HandshakeError::NoDecisionDue`] when the handshake is over.
    pub fn reject(&mut self, rejection: Rejection) -> Result<(), HandshakeError> {
        if matches!(self.state, State::Established(_) | State::Failed(_)) {
            return Err(HandshakeError::NoDecisionDue);
        }
        self.fail(HandshakeError::Refused(rejection));
        Ok(())
    }

    /// The bytes to send now; empty if there are none.
    #[must_use]
    pub fn output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// The outcome, once.
    #[must_use]
    pub fn established(&mut self) -> Option<ServerEstablished> {
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
            State::Hello(_) => HandshakeError::Closed("the client's Hello"),
            State::Proof(_) => HandshakeError::Closed("the client's Proof"),
            State::Decision { .. } => HandshakeError::Closed("the lookup of the client's id"),
            State::Established(_) => HandshakeError::Closed("the first stream"),
            State::Failed(error) => error.clone(),
        }
    }

    /// Reads one message and steps on; false when it cannot.
    fn advance(&mut self, rest: &mut &[u8]) -> Result<bool, HandshakeError> {
        match &self.state {
            State::Hello(_) | State::Proof(_) => {}
            State::Decision { .. } | State::Established(_) => return Ok(false),
            State::Failed(error) => return Err(error.clone()),
        }
        let Some(frame) = self.inbox.read(rest)? else {
            return Ok(false);
        };
        // The placeholder is what an early return leaves behind; `fail` overwrites it.
        self.state = match std::mem::replace(&mut self.state, State::Established(None)) {
            State::Hello(waiting) => {
                let (next, challenge) = waiting.on_hello(&frame)?;
                self.output.extend_from_slice(&challenge);
                State::Proof(next)
            }
            State::Proof(waiting) => State::Decision {
                waiting: waiting.on_proof(&frame)?,
                asked: false,
            },
            state => state,
        };
        Ok(true)
    }

    fn accept_without_proof(
        &mut self,
        grant: Grant,
        authentication: Authentication,
    ) -> Result<(), HandshakeError> {
        let waiting = self.decide()?;
        self.establish(
            waiting.request.client,
            grant,
            None::<fn(&[u8]) -> Proof>,
            authentication,
        );
        Ok(())
    }

    /// Takes the open question out; what follows sets the next state.
    fn decide(&mut self) -> Result<AwaitDecision, HandshakeError> {
        match std::mem::replace(&mut self.state, State::Established(None)) {
            State::Decision { waiting, .. } => Ok(waiting),
            state => {
                self.state = state;
                Err(HandshakeError::NoDecisionDue)
            }
        }
    }

    fn establish(
        &mut self,
        client: ClientInfo,
        grant: Grant,
        prove: Option<impl FnOnce(&[u8]) -> Proof>,
        authentication: Authentication,
    ) {
        self.output
            .extend_from_slice(&Accept::encode(&grant, prove));
        self.state = State::Established(Some(ServerEstablished {
            client,
            grant,
            authentication,
        }));
    }

    /// Ends the handshake and says so to the peer, if it would understand.
    fn fail(&mut self, error: HandshakeError) -> HandshakeError {
        if !matches!(self.state, State::Failed(_)) {
            if let Some(rejection) = rejection_for(&error) {
                let mut fields = Vec::new();
                rejection.encode(&mut fields);
                self.output
                    .extend_from_slice(&messages::frame(messages::REJECT, &fields));
            }
            self.state = State::Failed(error.clone());
        }
        error
    }
}

impl std::fmt::Debug for ServerHandshake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.state {
            State::Hello(_) => "ServerHandshake(awaits Hello)",
            State::Proof(_) => "ServerHandshake(awaits Proof)",
            State::Decision { .. } => "ServerHandshake(awaits a decision)",
            State::Established(_) => "ServerHandshake(established)",
            State::Failed(_) => "ServerHandshake(failed)",
        })
    }
}

/// Nothing is said yet.
struct AwaitHello {
    config: ServerConfig,
    nonce: Nonce,
    binding: ChannelBinding,
}

impl AwaitHello {
    /// Agrees on version, features and binding.
    fn on_hello(self, frame: &Frame) -> Result<(AwaitProof, Vec<u8>), HandshakeError> {
        frame.must_be(HELLO, "Hello")?;
        let fields = frame.fields().map_err(malformed("Hello"))?;
        let (ours, theirs) = (
            self.config.versions,
            Hello::versions(fields).map_err(malformed("Hello"))?,
        );
        let version = ours
            .newest_common(theirs)
            .ok_or(HandshakeError::Version { ours, theirs })?;
        let hello = Hello::decode(fields).map_err(malformed("Hello"))?;
        let binding = agree_binding(self.config.binding, hello.binding, self.binding)?;
        let features = hello.features & self.config.features;
        let challenge = Challenge {
            version,
            features,
            nonce: self.nonce,
        }
        .encode();
        let mut transcript = Transcript::new();
        transcript.add(&frame.raw);
        transcript.add(&challenge);
        let client = ClientInfo {
            id: hello.id,
            session: hello.session,
            version,
            features,
            binding: hello.binding,
            transport: hello.transport,
            windows: hello.windows,
            software: hello.software,
        };
        Ok((
            AwaitProof {
                client,
                transcript,
                binding,
            },
            challenge,
        ))
    }
}

/// Challenge is sent.
struct AwaitProof {
    client: ClientInfo,
    transcript: Transcript,
    binding: ChannelBinding,
}

impl AwaitProof {
    fn on_proof(mut self, frame: &Frame) -> Result<AwaitDecision, HandshakeError> {
        frame.must_be(PROOF, "Proof")?;
        let proof = frame
            .fields()
            .and_then(messages::decode_proof)
            .map_err(malformed("Proof"))?;
        let request = AuthRequest {
            client: self.client,
            transcript: self.transcript.hash(&self.binding),
            proof,
        };
        self.transcript.add(&frame.raw);
        Ok(AwaitDecision {
            request,
            transcript: self.transcript,
            binding: self.binding,
        })
    }
}

/// The caller has to say whether the proof is good.
struct AwaitDecision {
    request: AuthRequest,
    transcript: Transcript,
    binding: ChannelBinding,
}

/// What the proofs are bound to: what both ends have, if the policy is content with it.
fn agree_binding(
    policy: BindingPolicy,
    client: BindingKind,
    server: ChannelBinding,
) -> Result<ChannelBinding, HandshakeError> {
    match (client, &server) {
        (BindingKind::TlsExporter, ChannelBinding::TlsExporter(_)) => Ok(server),
        (BindingKind::TlsExporter, ChannelBinding::None) => Err(HandshakeError::Binding(
            "the client sees an encrypted channel, this server a plain one",
        )),
        (BindingKind::None, ChannelBinding::TlsExporter(_))
            if policy != BindingPolicy::Optional =>
        {
            Err(HandshakeError::Binding(
                "the client did not bind to the encrypted channel",
            ))
        }
        (BindingKind::None, _) if policy == BindingPolicy::Always => Err(HandshakeError::Binding(
            "this server refuses plain transports",
        )),
        (BindingKind::None, _) => Ok(ChannelBinding::None),
        (BindingKind::Unknown(_), _) => Err(HandshakeError::Binding(
            "the client binds in a way unknown here",
        )),
    }
}

/// What the peer is told about an error; nothing if it does not speak the protocol.
fn rejection_for(error: &HandshakeError) -> Option<Rejection> {
    match error {
        HandshakeError::Refused(rejection) => Some(rejection.clone()),
        HandshakeError::Version { .. } => Some(Rejection::new(
            RejectCode::UnsupportedVersion,
            &error.to_string(),
        )),
        HandshakeError::Binding(text) => Some(Rejection::new(RejectCode::BindingMismatch, text)),
        // No message: nothing that differs between an unknown id and a wrong secret.
        HandshakeError::Auth(_) => Some(Rejection::new(RejectCode::AuthFailed, "")),
        HandshakeError::Malformed { .. } | HandshakeError::Unexpected { .. } => {
            Some(Rejection::new(RejectCode::Malformed, &error.to_string()))
        }
        _ => None,
    }
}

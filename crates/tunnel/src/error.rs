//! What can go wrong, and whose fault it is.

use thiserror::Error;

use crate::{Rejection, VersionRange};

/// A value that breaks the rule of its type. The caller's fault, or that of the configuration it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a {what} must be {rule}")]
pub struct InvalidValue {
    /// Which kind of value.
    pub what: &'static str,
    /// What it has to look like.
    pub rule: &'static str,
}

/// Why a peer's message cannot be read. Always the peer's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// It ends within a field.
    #[error("the message ends within a field")]
    Truncated,
    /// It is longer than its kind may be.
    #[error("the message is too long")]
    TooLong,
    /// A mandatory field is absent.
    #[error("the field `{0}` is missing")]
    Missing(&'static str),
    /// A field that may come once came twice.
    #[error("the field `{0}` comes twice")]
    Duplicate(&'static str),
    /// A field breaks its rule.
    #[error("the field `{field}` is invalid: {why}")]
    Invalid {
        /// Which field.
        field: &'static str,
        /// Which rule.
        why: &'static str,
    },
    /// More list items than allowed.
    #[error("too many of `{0}`")]
    TooMany(&'static str),
}

impl DecodeError {
    /// A field whose value broke the rule of its type.
    pub(crate) fn invalid(field: &'static str) -> impl FnOnce(InvalidValue) -> Self {
        move |broken| Self::Invalid {
            field,
            why: broken.rule,
        }
    }
}

/// Whose fault a failed handshake is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The peer broke the protocol, or is no gt peer.
    Peer,
    /// Both work, but do not agree: secret, version, policy.
    Disagreement,
    /// The connection ended too soon.
    Network,
    /// This process called in the wrong order.
    Caller,
}

/// Why the server could not believe a client. The wire does not tell the two apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum AuthFailure {
    /// Nobody has this id.
    #[error("no client has this id")]
    UnknownId,
    /// The proof does not fit the key: another secret, or, where the channel is bound, somebody between the two ends.
    #[error("the proof does not match the secret of this id")]
    WrongProof,
}

/// Why a handshake failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum HandshakeError {
    /// Client: the peer speaks something else.
    #[error("the peer is not a gt server: it answered {answered}")]
    NotAServer {
        /// A printable start of what it sent.
        answered: String,
    },
    /// Server: the peer did not open with [`crate::MAGIC`].
    #[error("the peer is not a gt client: it sent {sent}")]
    NotAClient {
        /// A printable start of what it sent.
        sent: String,
    },
    /// A message could not be read.
    #[error("the peer sent a malformed {message}: {error}")]
    Malformed {
        /// Which message.
        message: &'static str,
        /// What is wrong with it.
        error: DecodeError,
    },
    /// A message of another kind than the one that is due.
    #[error("the peer sent message type {got} where {expected} was due")]
    Unexpected {
        /// The type byte.
        got: u8,
        /// What was due.
        expected: &'static str,
    },
    /// Server: no version in common.
    #[error("no common protocol version: the client speaks {theirs}, this server {ours}")]
    Version {
        /// What this side speaks.
        ours: VersionRange,
        /// What the client offers.
        theirs: VersionRange,
    },
    /// Client: the server chose a version or features that were not offered.
    #[error("the server chose a {0} that was not offered")]
    NotOffered(&'static str),
    /// Server: one side binds to the channel, the other does not.
    #[error("channel binding: {0}")]
    Binding(&'static str),
    /// Server: the client was not believed.
    #[error("authentication failed: {0}")]
    Auth(AuthFailure),
    /// Server: the caller refused the link.
    #[error("refused: {0}")]
    Refused(Rejection),
    /// Client: the server refused the link. Nothing proves that it was the server who said so.
    #[error("the server refused the link: {0}")]
    Rejected(Rejection),
    /// Client: the server's proof is missing or wrong.
    #[error("the server did not prove that it knows the secret")]
    ServerUnproven,
    /// The connection ended within the handshake.
    #[error("the connection ended while waiting for {0}")]
    Closed(&'static str),
    /// A decision was given when none was asked for.
    #[error("no decision is due now")]
    NoDecisionDue,
}

impl HandshakeError {
    /// Whose fault it is.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::NotAServer { .. }
            | Self::NotAClient { .. }
            | Self::Malformed { .. }
            | Self::Unexpected { .. }
            | Self::NotOffered(_) => Fault::Peer,
            Self::Version { .. }
            | Self::Binding(_)
            | Self::Auth(_)
            | Self::Refused(_)
            | Self::Rejected(_)
            | Self::ServerUnproven => Fault::Disagreement,
            Self::Closed(_) => Fault::Network,
            Self::NoDecisionDue => Fault::Caller,
        }
    }

    /// Whether another attempt with the same settings will most likely fail the same way: a client waits long, and says so,
    /// before it tries again.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Closed(_) => false,
            Self::Rejected(rejection) | Self::Refused(rejection) => rejection.code.is_permanent(),
            _ => true,
        }
    }
}

//! Why a server refuses a link.

use std::{fmt, time::Duration};

use crate::{
    Message,
    error::DecodeError,
    open_enum::open_enum,
    tlv::{self, Fields},
};

open_enum! {
    /// Why a server refuses a link.
    RejectCode(u16) {
        /// No protocol version in common.
        UnsupportedVersion = 1, "unsupported protocol version";
        /// Unknown id or wrong secret; the wire does not say which.
        AuthFailed = 2, "authentication failed";
        /// Too many attempts.
        Throttled = 3, "too many attempts";
        /// The session has all the links it may have.
        TooManyLinks = 4, "too many links";
        /// Another client holds this id.
        IdInUse = 5, "the id is in use";
        /// The session to join is gone.
        UnknownSession = 6, "unknown session";
        /// A message could not be read.
        Malformed = 7, "malformed message";
        /// One side binds to the channel, the other does not.
        BindingMismatch = 8, "channel binding mismatch";
        /// Known, but not allowed here.
        NotAllowed = 9, "not allowed";
        /// The server is about to stop.
        ShuttingDown = 10, "the server is shutting down";
        /// The server failed.
        Internal = 11, "internal server error";
    }
}

impl RejectCode {
    /// Whether trying again with the same settings is pointless: not to be done in a loop. An unknown code counts as passing,
    /// so that an old client keeps trying with back-off.
    #[must_use]
    pub fn is_permanent(self) -> bool {
        matches!(
            self,
            Self::UnsupportedVersion
                | Self::AuthFailed
                | Self::Malformed
                | Self::BindingMismatch
                | Self::NotAllowed
        )
    }

    /// What a user can do about it.
    #[must_use]
    pub fn hint(self) -> &'static str {
        match self {
            Self::UnsupportedVersion => "update the older of client and server",
            Self::AuthFailed => "check id and secret against the server's users",
            Self::Throttled => "wait; if it persists, look for a client with a wrong secret",
            Self::TooManyLinks => "lower remoteConnections, or raise connections on the server",
            Self::IdInUse => {
                "stop the other client, choose another id, or allow load balancing for this id"
            }
            Self::UnknownSession => "a new session is started",
            Self::Malformed => "update client and server; if it persists, report it",
            Self::BindingMismatch => {
                "something between client and server ends TLS; allow unbound links on the server if that is intended"
            }
            Self::NotAllowed => "ask who runs the server",
            Self::ShuttingDown => "the client will try again",
            Self::Internal => "look into the server's log",
            Self::Unknown(_) => "update the client to learn what this means",
        }
    }
}

/// A server's refusal of a link. On the wire it is the Reject message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// Why.
    pub code: RejectCode,
    /// When trying again makes sense; at millisecond precision, up to 49 days.
    pub retry_after: Option<Duration>,
    /// More for a person; may be empty.
    pub message: Message,
}

impl Rejection {
    /// A refusal without a time.
    #[must_use]
    pub fn new(code: RejectCode, message: &str) -> Self {
        Self {
            code,
            retry_after: None,
            message: Message::new(message),
        }
    }

    /// Says when trying again makes sense.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        tlv::put(out, CODE, &u16::from(self.code).to_be_bytes());
        tlv::put_option(
            out,
            RETRY_AFTER,
            self.retry_after.map(|wait| millis(wait).to_be_bytes()),
        );
        tlv::put_text(out, MESSAGE, &self.message);
    }

    pub(crate) fn decode(fields: Fields<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            code: u16::from_be_bytes(fields.array(CODE, "code")?).into(),
            retry_after: fields
                .optional_array(RETRY_AFTER, "retry_after")?
                .map(|ms| Duration::from_millis(u32::from_be_bytes(ms).into())),
            message: tlv::text(fields, MESSAGE, "message")?,
        })
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.code.fmt(f)?;
        if !self.message.is_empty() {
            write!(f, ": {}", self.message)?;
        }
        if let Some(wait) = self.retry_after {
            write!(f, ", retry in {} s", wait.as_millis().div_ceil(1000))?;
        }
        write!(f, " ({})", self.code.hint())
    }
}

/// Milliseconds as the wire has them: a longer time is the longest there is.
pub(crate) fn millis(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

const CODE: u8 = 1;
const RETRY_AFTER: u8 = 2;
const MESSAGE: u8 = 3;

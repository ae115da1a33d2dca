//! Messages that the two ends exchange once a link is up, each in one control frame of the multiplexer: `type u8 ‖ fields`.
//!
//! `service` declares services, `answer` answers, `assembler` joins sets that come in parts; the rest is short and here.

mod answer;
mod assembler;
mod names;
mod rules;
mod service;

use std::time::Duration;

pub use answer::{
    Endpoint, Granted, MAX_ENDPOINTS, Refusal, RefusalCode, ServiceResult, ServicesAnswer,
};
pub use assembler::{Assembler, SetError, SetItem};
pub use names::{BadService, Cidr, HostName, HostPrefix};
pub use rules::{
    AuthRules, FieldRules, HttpRules, MAX_RULE_FIELDS, MAX_RULE_USERS, MAX_RULES, MAX_RULES_PER_SET,
};
pub use service::{HttpMode, MAX_CIDRS, MAX_HTTP_HOST, ServiceDecl, ServiceKind, Services};

use crate::{
    Message,
    error::DecodeError,
    open_enum::open_enum,
    reject::millis,
    tlv::{self, Fields},
};

/// Largest control message in bytes.
pub const MAX_CONTROL: usize = 65_535;

/// What this crate makes of sets at most per message, in bytes, so that a long set does not hold streams up. No single item
/// is longer.
pub const MAX_PART: usize = 16 * 1024;

/// How many services a session may have.
pub const MAX_SERVICES: usize = 1024;

/// How many address ranges the services of a session may have together.
pub const MAX_CIDRS_PER_SET: usize = 8192;

const SERVICES: u8 = 1;
const SERVICES_ANSWER: u8 = 2;
const DRAIN: u8 = 3;
const GOODBYE: u8 = 4;
const NOTICE: u8 = 5;
const LEAVE: u8 = 6;
const LEAVE_LINK: u8 = 7;

/// A control message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControlMessage {
    /// Client to server: what this session serves. The set replaces the former one as a whole.
    Services(Services),
    /// Server to client: what became of each service.
    ServicesAnswer(ServicesAnswer),
    /// Server to client: this link will end, move.
    Drain(Drain),
    /// Both: this link ends now, on purpose.
    Goodbye(Goodbye),
    /// Server to client: a word to the user.
    Notice(Notice),
    /// Client to server: open no more streams on this link, and end it when those that run have ended.
    Leave,
    /// Client to server: as [`ControlMessage::Leave`], for the link of this session with the given number, which may hear nothing any more.
    LeaveLink(u16),
}

/// The two ends of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The end that opened the link.
    Client,
    /// The end that accepted it.
    Server,
}

impl ControlMessage {
    /// The message as one control frame.
    ///
    /// # Errors
    /// [`DecodeError::TooLong`] or [`DecodeError::TooMany`] when the peer would not read it: parts that were not made by
    /// [`Services::parts`] or [`ServicesAnswer::parts`], or lists over their bounds.
    pub fn encode(&self) -> Result<Vec<u8>, DecodeError> {
        let mut out = Vec::new();
        match self {
            Self::Services(services) => {
                out.push(SERVICES);
                services.encode(&mut out)?;
            }
            Self::ServicesAnswer(answer) => {
                out.push(SERVICES_ANSWER);
                answer.encode(&mut out)?;
            }
            Self::Drain(drain) => {
                out.push(DRAIN);
                tlv::put(&mut out, 1, &millis(drain.deadline).to_be_bytes());
                tlv::put_text(&mut out, 2, &drain.reason);
            }
            Self::Goodbye(goodbye) => {
                out.push(GOODBYE);
                tlv::put(&mut out, 1, &u16::from(goodbye.code).to_be_bytes());
                tlv::put_text(&mut out, 2, &goodbye.message);
            }
            Self::Notice(notice) => {
                out.push(NOTICE);
                tlv::put(&mut out, 1, &[notice.level.into()]);
                tlv::put_text(&mut out, 2, &notice.text);
            }
            Self::Leave => out.push(LEAVE),
            Self::LeaveLink(number) => {
                out.push(LEAVE_LINK);
                tlv::put(&mut out, 1, &number.to_be_bytes());
            }
        }
        if out.len() > MAX_CONTROL {
            Err(DecodeError::TooLong)
        } else {
            Ok(out)
        }
    }

    /// Reads one control frame. `None` is a message that this version does not know: pass over it.
    ///
    /// # Errors
    /// When the message breaks the protocol: end the link with [`GoodbyeCode::Protocol`].
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, DecodeError> {
        if bytes.len() > MAX_CONTROL {
            return Err(DecodeError::TooLong);
        }
        let (&kind, rest) = bytes.split_first().ok_or(DecodeError::Truncated)?;
        if !(SERVICES..=LEAVE_LINK).contains(&kind) {
            return Ok(None);
        }
        let fields = Fields::parse(rest)?;
        let number = |field| fields.array(1, field).map(u16::from_be_bytes);
        Ok(Some(match kind {
            SERVICES => Self::Services(Services::decode(fields)?),
            SERVICES_ANSWER => Self::ServicesAnswer(ServicesAnswer::decode(fields)?),
            DRAIN => Self::Drain(Drain {
                deadline: Duration::from_millis(
                    u32::from_be_bytes(fields.array(1, "deadline_ms")?).into(),
                ),
                reason: tlv::text(fields, 2, "reason")?,
            }),
            GOODBYE => Self::Goodbye(Goodbye {
                code: number("code")?.into(),
                message: tlv::text(fields, 2, "message")?,
            }),
            LEAVE => Self::Leave,
            LEAVE_LINK => Self::LeaveLink(number("link_number")?),
            _ => {
                let [level] = fields.array(1, "level")?;
                Self::Notice(Notice {
                    level: level.into(),
                    text: tlv::text(fields, 2, "text")?,
                })
            }
        }))
    }

    /// Which end may send it; `None` if both may. A message from the wrong end is a protocol error.
    #[must_use]
    pub fn sender(&self) -> Option<Role> {
        match self {
            Self::Services(_) | Self::Leave | Self::LeaveLink(_) => Some(Role::Client),
            Self::ServicesAnswer(_) | Self::Drain(_) | Self::Notice(_) => Some(Role::Server),
            Self::Goodbye(_) => None,
        }
    }
}

/// The server will end this link: it opens no new streams on it, and the client brings up another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drain {
    /// How long streams that are open may go on, at millisecond precision.
    pub deadline: Duration,
    /// Why; may be empty.
    pub reason: Message,
}

/// The link ends now, on purpose. Streams still open are lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Goodbye {
    /// Why.
    pub code: GoodbyeCode,
    /// More for a person; may be empty.
    pub message: Message,
}

open_enum! {
    /// Why a link ends.
    GoodbyeCode(u16) {
        /// The user or the configuration wants it.
        Done = 1, "done";
        /// The process stops or restarts; coming back makes sense.
        ShuttingDown = 2, "shutting down";
        /// The other end broke the protocol.
        Protocol = 3, "protocol error";
        /// A newer link or client takes its place.
        Replaced = 4, "replaced by a newer one";
        /// The server no longer admits this client: do not come back in a loop.
        Revoked = 5, "no longer allowed";
        /// Over a limit.
        Limit = 6, "over a limit";
        /// The process failed.
        Internal = 7, "internal error";
    }
}

/// A word of the server's owner to the client's user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// How much it matters.
    pub level: NoticeLevel,
    /// The text.
    pub text: Message,
}

open_enum! {
    /// How much a notice matters.
    NoticeLevel(u8) {
        /// Good to know.
        Info = 1, "info";
        /// Something should be done.
        Warning = 2, "warning";
        /// Something does not work.
        Error = 3, "error";
    }
}

//! What became of the services a client declared.

use super::{
    MAX_CONTROL, MAX_PART, MAX_SERVICES,
    assembler::{SetItem, parts},
};
use crate::{
    ControlMessage, Message, ServiceId, Text,
    error::DecodeError,
    open_enum::open_enum,
    tlv::{self, FIELD_HEAD, Fields},
};

/// How many public endpoints one service may have.
pub const MAX_ENDPOINTS: usize = 16;

/// Where visitors reach a service, as text: `http://abc.example.com:8080`, `tcp://0.0.0.0:10022`. 320 bytes at most.
pub type Endpoint = Text<320>;

/// A service is up.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Granted {
    /// Where visitors reach it; [`MAX_ENDPOINTS`] at most.
    pub endpoints: Vec<Endpoint>,
    /// The port it got.
    pub port: Option<u16>,
}

open_enum! {
    /// Why a service is not up.
    RefusalCode(u16) {
        /// Another client has this host prefix.
        PrefixTaken = 1, "the host prefix is taken";
        /// Another client has this host.
        HostTaken = 2, "the host is taken";
        /// The port is in use.
        PortTaken = 3, "the port is taken";
        /// No port of the user's ranges is free.
        NoPortFree = 4, "no port is free";
        /// The port is in none of the user's ranges.
        PortNotAllowed = 5, "the port is not allowed";
        /// The host or prefix is not allowed to this user.
        HostNotAllowed = 6, "the host is not allowed";
        /// More hosts or ports than the user may have.
        TooMany = 7, "too many services";
        /// The server has no listener for this kind.
        NotOffered = 8, "the server does not offer this kind of service";
        /// The declaration makes no sense, for instance an HTTP service without a host.
        Invalid = 9, "the declaration is invalid";
        /// The server failed.
        Internal = 10, "internal server error";
    }
}

/// A service is not up, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Why.
    pub code: RefusalCode,
    /// More for a person; may be empty.
    pub message: Message,
}

/// What became of one service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceResult {
    /// Which service.
    pub id: ServiceId,
    /// What became of it.
    pub result: Result<Granted, Refusal>,
}

impl ServiceResult {
    const ID: u8 = 1;
    const ENDPOINT: u8 = 2;
    const PORT: u8 = 3;
    const REFUSAL: u8 = 4;
    const MESSAGE: u8 = 5;

    fn decode(fields: Fields<'_>) -> Result<Self, DecodeError> {
        let id = ServiceId(u16::from_be_bytes(fields.array(Self::ID, "id")?));
        if let Some(code) = fields.optional_array(Self::REFUSAL, "code")? {
            let message = tlv::text(fields, Self::MESSAGE, "message")?;
            return Ok(Self {
                id,
                result: Err(Refusal {
                    code: u16::from_be_bytes(code).into(),
                    message,
                }),
            });
        }
        if fields.all(Self::ENDPOINT).count() > MAX_ENDPOINTS {
            return Err(DecodeError::TooMany("endpoints"));
        }
        let endpoints = fields
            .all(Self::ENDPOINT)
            .map(|value| Endpoint::from_wire("endpoint", value));
        let port = fields
            .optional_array(Self::PORT, "port")?
            .map(u16::from_be_bytes);
        Ok(Self {
            id,
            result: Ok(Granted {
                endpoints: endpoints.collect::<Result<_, _>>()?,
                port,
            }),
        })
    }
}

impl SetItem for ServiceResult {
    fn id(&self) -> ServiceId {
        self.id
    }

    fn encode(&self) -> Result<Vec<u8>, DecodeError> {
        let mut out = Vec::new();
        tlv::put(&mut out, Self::ID, &self.id.0.to_be_bytes());
        match &self.result {
            Ok(granted) => {
                if granted.endpoints.len() > MAX_ENDPOINTS {
                    return Err(DecodeError::TooMany("endpoints"));
                }
                for endpoint in &granted.endpoints {
                    tlv::put(&mut out, Self::ENDPOINT, endpoint.as_str().as_bytes());
                }
                tlv::put_option(&mut out, Self::PORT, granted.port.map(u16::to_be_bytes));
            }
            Err(refusal) => {
                tlv::put(
                    &mut out,
                    Self::REFUSAL,
                    &u16::from(refusal.code).to_be_bytes(),
                );
                tlv::put_text(&mut out, Self::MESSAGE, &refusal.message);
            }
        }
        Ok(out)
    }
}

/// The answer to a service set, in parts like the set itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServicesAnswer {
    /// The set that is answered.
    pub generation: u32,
    /// Whether further parts follow.
    pub more: bool,
    /// What became of the services of this part.
    pub results: Vec<ServiceResult>,
}

const GENERATION: u8 = 1;
const MORE: u8 = 2;
const RESULT: u8 = 3;

impl ServicesAnswer {
    /// A whole answer as the messages to send, in order; one at least.
    ///
    /// # Errors
    /// When a result is over a bound, two have one id, or there are more than [`MAX_SERVICES`].
    pub fn parts(
        generation: u32,
        results: Vec<ServiceResult>,
    ) -> Result<Vec<ControlMessage>, DecodeError> {
        let parts = parts(results, "results", MAX_PART)?;
        let last = parts.len().saturating_sub(1);
        let message = |(n, results)| {
            ControlMessage::ServicesAnswer(Self {
                generation,
                more: n < last,
                results,
            })
        };
        Ok(parts.into_iter().enumerate().map(message).collect())
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) -> Result<(), DecodeError> {
        tlv::put(out, GENERATION, &self.generation.to_be_bytes());
        tlv::put_option(out, MORE, self.more.then_some([]));
        for result in &self.results {
            let item = result.encode()?;
            if out.len() + FIELD_HEAD + item.len() > MAX_CONTROL {
                return Err(DecodeError::TooLong);
            }
            tlv::put(out, RESULT, &item);
        }
        Ok(())
    }

    pub(super) fn decode(fields: Fields<'_>) -> Result<Self, DecodeError> {
        if fields.all(RESULT).count() > MAX_SERVICES {
            return Err(DecodeError::TooMany("results"));
        }
        Ok(Self {
            generation: u32::from_be_bytes(fields.array(GENERATION, "generation")?),
            more: fields.flag(MORE, "more")?,
            results: fields
                .all(RESULT)
                .map(|item| Fields::parse(item).and_then(ServiceResult::decode))
                .collect::<Result<_, _>>()?,
        })
    }
}

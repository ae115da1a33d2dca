//! What a client serves.

use super::{
    MAX_CONTROL, MAX_PART, MAX_SERVICES,
    assembler::{SetItem, parts},
    names::{Cidr, HostName, HostPrefix},
    rules::HttpRules,
};
use crate::{
    ControlMessage, Name, ServiceId,
    error::DecodeError,
    open_enum::open_enum,
    tlv::{self, FIELD_HEAD, Fields},
};

/// How many ranges an allow list or a deny list may have.
pub const MAX_CIDRS: usize = 64;

open_enum! {
    /// How visitors reach a service.
    ServiceKind(u8) {
        /// By HTTP host.
        Http = 1, "http";
        /// By TLS server name, not decrypted.
        Tls = 2, "tls";
        /// By TCP port.
        Tcp = 3, "tcp";
        /// By UDP port.
        Udp = 4, "udp";
    }
}

/// One service a client declares. What it may have is the server's decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceDecl {
    /// Its number in stream headers, unique within the session.
    pub id: ServiceId,
    /// How visitors reach it.
    pub kind: ServiceKind,
    /// For people; may be empty.
    pub name: Name,
    /// The first label of its host names; none for the client's id.
    pub host_prefix: Option<HostPrefix>,
    /// A full host name, which wins over prefixes.
    pub host: Option<HostName>,
    /// The port it wants.
    pub port: Option<u16>,
    /// Whether any free port will do when `port` is absent or taken.
    pub port_random: bool,
    /// Visitors admitted, [`MAX_CIDRS`] ranges at most; empty admits all.
    pub allow: Vec<Cidr>,
    /// Visitors turned away, [`MAX_CIDRS`] ranges at most; goes before `allow`.
    pub deny: Vec<Cidr>,
    /// Shares its place with other services of the same group name.
    pub load_balance: Option<Name>,
    /// Bytes per second and direction; none for what the server grants. Never zero on the wire.
    pub bandwidth: Option<u64>,
    /// The server parses what visitors send: HTTP mode. None for streams that are copied untouched.
    pub http: Option<HttpMode>,
    /// What the server does to requests in HTTP mode. Only for a server with [`Features::HTTP_RULES`](crate::Features::HTTP_RULES).
    pub rules: HttpRules,
    /// The client's checks of the service fail: its visitors are told so, and others of its group go before it.
    pub down: bool,
}

/// How a server forwards requests to a service in HTTP mode.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HttpMode {
    /// Stands for what is behind the service: streams that were opened while it was another number carry no more requests.
    pub behind: u32,
    /// A stream carries the requests of one visitor only, because its header is told to the service.
    pub one_visitor: bool,
    /// The service speaks HTTP/2, from the first byte (RFC 9113 §3.3). Only for a server with
    /// [`Features::HTTP_RULES`](crate::Features::HTTP_RULES).
    pub http2: bool,
    /// What `Host` says instead of what the visitor asked for, at most [`MAX_HTTP_HOST`] bytes of visible ASCII.
    pub host: Option<Box<str>>,
}

/// Longest host that a service may want to be told: a name, brackets and a port.
pub const MAX_HTTP_HOST: usize = 270;

impl HttpMode {
    /// Flags u8 ‖ behind u32 ‖ host.
    fn encode(&self) -> Vec<u8> {
        let mut out = vec![u8::from(self.one_visitor) | u8::from(self.http2) << 1];
        out.extend_from_slice(&self.behind.to_be_bytes());
        out.extend_from_slice(self.host.as_deref().unwrap_or_default().as_bytes());
        out
    }

    /// Flags of a later version are passed over.
    fn decode(value: &[u8]) -> Result<Self, DecodeError> {
        let invalid = |why| DecodeError::Invalid { field: "http", why };
        let (fixed, host) = value
            .split_first_chunk::<5>()
            .ok_or_else(|| invalid("too short"))?;
        let [flags, behind @ ..] = *fixed;
        if host.len() > MAX_HTTP_HOST || !host.iter().all(u8::is_ascii_graphic) {
            return Err(invalid("no host"));
        }
        let host = str(host, "http")?;
        Ok(Self {
            behind: u32::from_be_bytes(behind),
            one_visitor: flags & 1 != 0,
            http2: flags & 2 != 0,
            host: (!host.is_empty()).then(|| host.into()),
        })
    }
}

impl ServiceDecl {
    /// A service without any wish.
    #[must_use]
    pub fn new(id: ServiceId, kind: ServiceKind) -> Self {
        Self {
            id,
            kind,
            name: Name::default(),
            host_prefix: None,
            host: None,
            port: None,
            port_random: false,
            allow: Vec::new(),
            deny: Vec::new(),
            load_balance: None,
            bandwidth: None,
            http: None,
            rules: HttpRules::default(),
            down: false,
        }
    }

    const ID: u8 = 1;
    const KIND: u8 = 2;
    const NAME: u8 = 3;
    const HOST_PREFIX: u8 = 4;
    const HOST: u8 = 5;
    const PORT: u8 = 6;
    const PORT_RANDOM: u8 = 7;
    const ALLOW: u8 = 8;
    const DENY: u8 = 9;
    const LOAD_BALANCE: u8 = 10;
    const BANDWIDTH: u8 = 11;
    const HTTP: u8 = 12;
    const RULES: u8 = 13;
    const DOWN: u8 = 14;

    fn decode(fields: Fields<'_>) -> Result<Self, DecodeError> {
        let [kind] = fields.array(Self::KIND, "kind")?;
        let host_prefix = fields
            .optional(Self::HOST_PREFIX, "host_prefix")?
            .map(|value| {
                let invalid = DecodeError::invalid("host_prefix");
                HostPrefix::new(str(value, "host_prefix")?).map_err(invalid)
            });
        let host = fields
            .optional(Self::HOST, "host")?
            .map(|value| HostName::new(str(value, "host")?).map_err(DecodeError::invalid("host")));
        let load_balance = fields
            .optional(Self::LOAD_BALANCE, "load_balance")?
            .map(|value| Name::from_wire("load_balance", value));
        let bandwidth = fields
            .optional_array(Self::BANDWIDTH, "bandwidth")?
            .map(u64::from_be_bytes);
        if bandwidth == Some(0) {
            return Err(DecodeError::Invalid {
                field: "bandwidth",
                why: "zero",
            });
        }
        Ok(Self {
            id: ServiceId(u16::from_be_bytes(fields.array(Self::ID, "id")?)),
            kind: kind.into(),
            name: tlv::text(fields, Self::NAME, "name")?,
            host_prefix: host_prefix.transpose()?,
            host: host.transpose()?,
            port: fields
                .optional_array(Self::PORT, "port")?
                .map(u16::from_be_bytes),
            port_random: fields.flag(Self::PORT_RANDOM, "port_random")?,
            allow: cidrs(fields, Self::ALLOW, "allow")?,
            deny: cidrs(fields, Self::DENY, "deny")?,
            load_balance: load_balance.transpose()?,
            bandwidth,
            http: fields
                .optional(Self::HTTP, "http")?
                .map(HttpMode::decode)
                .transpose()?,
            rules: fields
                .optional(Self::RULES, "rules")?
                .map(HttpRules::decode)
                .transpose()?
                .unwrap_or_default(),
            down: fields.flag(Self::DOWN, "down")?,
        })
    }
}

impl SetItem for ServiceDecl {
    fn id(&self) -> ServiceId {
        self.id
    }

    fn cidrs(&self) -> usize {
        self.allow.len() + self.deny.len()
    }

    fn rules(&self) -> usize {
        self.rules.length()
    }

    fn encode(&self) -> Result<Vec<u8>, DecodeError> {
        if self.allow.len() > MAX_CIDRS {
            return Err(DecodeError::TooMany("allow"));
        }
        if self.deny.len() > MAX_CIDRS {
            return Err(DecodeError::TooMany("deny"));
        }
        let mut out = Vec::new();
        tlv::put(&mut out, Self::ID, &self.id.0.to_be_bytes());
        tlv::put(&mut out, Self::KIND, &[self.kind.into()]);
        tlv::put_text(&mut out, Self::NAME, &self.name);
        tlv::put_option(
            &mut out,
            Self::HOST_PREFIX,
            self.host_prefix.as_ref().map(|p| p.as_str().as_bytes()),
        );
        tlv::put_option(
            &mut out,
            Self::HOST,
            self.host.as_ref().map(|h| h.as_str().as_bytes()),
        );
        tlv::put_option(&mut out, Self::PORT, self.port.map(u16::to_be_bytes));
        tlv::put_option(&mut out, Self::PORT_RANDOM, self.port_random.then_some([]));
        for range in &self.allow {
            tlv::put(&mut out, Self::ALLOW, range.to_string().as_bytes());
        }
        for range in &self.deny {
            tlv::put(&mut out, Self::DENY, range.to_string().as_bytes());
        }
        tlv::put_option(
            &mut out,
            Self::LOAD_BALANCE,
            self.load_balance.as_ref().map(|g| g.as_str().as_bytes()),
        );
        // Zero cannot be told from "stop everything", so nobody sends it.
        tlv::put_option(
            &mut out,
            Self::BANDWIDTH,
            self.bandwidth.filter(|b| *b > 0).map(u64::to_be_bytes),
        );
        if let Some(http) = &self.http {
            let invalid = |why| DecodeError::Invalid { field: "http", why };
            let good = |host: &str| {
                (1..=MAX_HTTP_HOST).contains(&host.len())
                    && host.bytes().all(|byte| byte.is_ascii_graphic())
            };
            if !http.host.as_deref().is_none_or(good) {
                return Err(invalid("no host"));
            }
            tlv::put(&mut out, Self::HTTP, &http.encode());
        }
        if !self.rules.is_empty() {
            tlv::put(&mut out, Self::RULES, &self.rules.encode()?);
        }
        tlv::put_option(&mut out, Self::DOWN, self.down.then_some([]));
        Ok(out)
    }
}

/// A client's services, or a part of them: a set that is too long for one message comes in parts of one generation, all but the
/// last with `more`. Put them together with [`super::Assembler`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Services {
    /// Counts the sets of a session upwards; the answer repeats it.
    pub generation: u32,
    /// Whether further parts follow.
    pub more: bool,
    /// The services of this part.
    pub services: Vec<ServiceDecl>,
}

const GENERATION: u8 = 1;
const MORE: u8 = 2;
const SERVICE: u8 = 3;

impl Services {
    /// A whole set as the messages to send, in order; one at least.
    ///
    /// # Errors
    /// When a service is over a bound, two have one id, or there are more than [`MAX_SERVICES`].
    pub fn parts(
        generation: u32,
        services: Vec<ServiceDecl>,
    ) -> Result<Vec<ControlMessage>, DecodeError> {
        let parts = parts(services, "services", MAX_PART)?;
        let last = parts.len().saturating_sub(1);
        let message = |(n, services)| {
            ControlMessage::Services(Self {
                generation,
                more: n < last,
                services,
            })
        };
        Ok(parts.into_iter().enumerate().map(message).collect())
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) -> Result<(), DecodeError> {
        tlv::put(out, GENERATION, &self.generation.to_be_bytes());
        tlv::put_option(out, MORE, self.more.then_some([]));
        for service in &self.services {
            let item = service.encode()?;
            if out.len() + FIELD_HEAD + item.len() > MAX_CONTROL {
                return Err(DecodeError::TooLong);
            }
            tlv::put(out, SERVICE, &item);
        }
        Ok(())
    }

    pub(super) fn decode(fields: Fields<'_>) -> Result<Self, DecodeError> {
        if fields.all(SERVICE).count() > MAX_SERVICES {
            return Err(DecodeError::TooMany("services"));
        }
        Ok(Self {
            generation: u32::from_be_bytes(fields.array(GENERATION, "generation")?),
            more: fields.flag(MORE, "more")?,
            services: fields
                .all(SERVICE)
                .map(|item| Fields::parse(item).and_then(ServiceDecl::decode))
                .collect::<Result<_, _>>()?,
        })
    }
}

fn cidrs(fields: Fields<'_>, tag: u8, field: &'static str) -> Result<Vec<Cidr>, DecodeError> {
    if fields.all(tag).count() > MAX_CIDRS {
        return Err(DecodeError::TooMany(field));
    }
    fields
        .all(tag)
        .map(|value| {
            str(value, field)?
                .parse()
                .map_err(DecodeError::invalid(field))
        })
        .collect()
}

fn str<'a>(value: &'a [u8], field: &'static str) -> Result<&'a str, DecodeError> {
    std::str::from_utf8(value).map_err(|_| DecodeError::Invalid {
        field,
        why: "not UTF-8",
    })
}

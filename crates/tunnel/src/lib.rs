//! The relay protocol above the transport: hello, authentication, services, stream headers, control messages. Sans-IO.
//!
//! ```text
//!  link bytes ─► ClientHandshake / ServerHandshake ─► Established        (once per link)
//!  mux control ─► ControlMessage::decode ─► Assembler ─► whole service set (any time after)
//!  mux open ───► StreamHeader::decode                                     (once per visitor)
//!  mux reset ──► ResetReason::from(u16)
//! ```
//!
//! The order of calls, for both handshakes:
//!
//! 1. `new(config, nonce, binding)`: randomness and the channel binding are arguments.
//! 2. Write what `output()` returns. Do so after every other call too, also after one that failed: a refusal may be waiting.
//! 3. Feed received bytes to `handle_input`, which says how many it took. It never takes a byte past the last handshake
//!    message; the rest belongs to the multiplexer.
//! 4. A server takes the question from [`ServerHandshake::poll_step`] and answers it whenever it knows the answer.
//! 5. Once `established()` gives a value the link is up.
//!
//! A complete handshake, without any socket:
//!
//! ```
//! use tunnel::*;
//! let (id, secret) = (ClientId::new("laptop")?, Secret::new("correct horse battery staple")?);
//! let binding = ChannelBinding::None;
//! let mut client = ClientHandshake::new(ClientConfig::new(id.clone(), secret.clone()), Nonce([1; 32]), binding.clone());
//! let mut server = ServerHandshake::new(ServerConfig::default(), Nonce([2; 32]), binding);
//! let key = Key::derive(&secret, &id);
//!
//! server.handle_input(&client.output())?; // Hello
//! client.handle_input(&server.output())?; // Challenge
//! server.handle_input(&client.output())?; // Proof
//! let Some(ServerStep::Authenticate(request)) = server.poll_step() else { unreachable!() };
//! assert!(request.verify(&key));
//! server.accept_with_key(&key, Grant::new(SessionId::from_bytes([7; 16])))?;
//! client.handle_input(&server.output())?; // Accept
//! assert!(client.established().is_some_and(|link| link.server_proved));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Left to others: sockets, time limits and throttling (`link`, `server`), the framing of streams (`mux`), what a service
//! may claim (`server`). The wire format is described in `docs/protocol/tunnel.md`.

mod auth;
mod control;
mod error;
mod handshake;
mod ids;
mod open_enum;
mod reject;
mod reset;
mod stream;
mod text;
mod tlv;

pub use auth::{ChannelBinding, Key, Nonce, Proof, Secret, TranscriptHash};
pub use control::{
    Assembler, AuthRules, BadService, Cidr, ControlMessage, Drain, Endpoint, FieldRules, Goodbye,
    GoodbyeCode, Granted, HostName, HostPrefix, HttpMode, HttpRules, MAX_CIDRS, MAX_CIDRS_PER_SET,
    MAX_CONTROL, MAX_ENDPOINTS, MAX_HTTP_HOST, MAX_PART, MAX_RULE_FIELDS, MAX_RULE_USERS,
    MAX_RULES, MAX_RULES_PER_SET, MAX_SERVICES, Notice, NoticeLevel, Refusal, RefusalCode, Role,
    ServiceDecl, ServiceKind, ServiceResult, Services, ServicesAnswer, SetError, SetItem,
};
pub use error::{AuthFailure, DecodeError, Fault, HandshakeError, InvalidValue};
pub use handshake::{
    AuthRequest, Authentication, BindingKind, BindingPolicy, ClientConfig, ClientEstablished,
    ClientHandshake, ClientInfo, Features, Grant, MAX_HANDSHAKE_MESSAGE, ServerConfig,
    ServerEstablished, ServerHandshake, ServerProof, ServerStep, TransportKind, VersionRange,
    Windows,
};
pub use ids::{ClientId, ServiceId, SessionId};
pub use reject::{RejectCode, Rejection};
pub use reset::ResetReason;
pub use stream::{MAX_STREAM_HEADER, ServerName, StreamHeader, StreamHeaderError, StreamProtocol};
pub use text::{Message, Name, Text};

/// The four bytes that open every link. The first is no method letter of HTTP, no TLS record type and no PROXY signature, so
/// that links can share a port with visitors.
pub const MAGIC: [u8; 4] = [0xF7, b'g', b't', b'1'];

/// The application protocol (RFC 7301) that a client offers for a link over TLS.
pub const ALPN: &[u8] = b"gt-link-1";

/// The subprotocol (RFC 6455 §1.9) that tells a link over WebSocket from a visitor's WebSocket.
pub const WEBSOCKET_PROTOCOL: &str = "gt-link-1";

/// The protocol version this crate speaks.
pub const VERSION: u16 = 1;

/// The TLS exporter label (RFC 5705, RFC 8446 §7.5; RFC 9266 for the idea) of the channel binding. The context is absent and 32
/// bytes are exported, over TLS and QUIC alike.
pub const EXPORTER_LABEL: &[u8] = b"EXPORTER-gt-link-v1";

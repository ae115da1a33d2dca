//! HTTP/1.1 messages for a proxy (RFC 9112): heads are parsed strictly, bodies are followed without being copied, and what goes on is written
//! anew, never relayed as it came.
//!
//! No sockets, no clock, no buffers: bytes are arguments, and what is found are places in them. The structs are made to be used again for
//! every message of a connection, so that a request costs no allocation.
//!
//! ```text
//! visitor's bytes ─► RequestHead::parse ─► Request ─► HeadWriter ─► upstream
//!                      │ Asked, Framing        Decoder ─► pieces ─►
//!                      ▼
//! upstream's bytes ─► ResponseHead::parse ─► Response ─► HeadWriter ─► visitor
//!                      Framing                 Decoder ─► pieces ─►
//! ```
//!
//! What a body means depends on the request it answers: a [`ResponseHead`] cannot be parsed without the [`Asked`] of its request, and a
//! [`Decoder`] comes from a parsed head. So an answer cannot be framed by the wrong request.
//!
//! Strictness is the point: whatever two programs are known to read differently is refused (see [`RequestError`], [`ResponseError`],
//! [`BodyError`]). What passes means the same to every origin.
//!
//! ```
//! use h1::{HeadWriter, Limits, RequestHead};
//!
//! let bytes = b"GET /a HTTP/1.1\r\nHost: example.com\r\nConnection: close, x-secret\r\nX-Secret: 1\r\nAccept: */*\r\n\r\n";
//! let mut head = RequestHead::default();
//! let length = head.parse(bytes, &Limits::default())?;
//! assert_eq!(length, Some(bytes.len()));
//! let request = head.view(bytes);
//! assert_eq!((request.method(), request.path(), request.host()), (&b"GET"[..], &b"/a"[..], &b"example.com"[..]));
//! assert!(!request.keep_alive());
//!
//! let mut out = Vec::new();
//! let mut writer = HeadWriter::request(&mut out, request.method(), request.target());
//! writer.copy_fields(request.fields(), |_| true);
//! writer.field(b"X-Real-IP", b"192.0.2.1");
//! writer.finish(request.framing());
//! assert_eq!(out, b"GET /a HTTP/1.1\r\nHost: example.com\r\nAccept: */*\r\nX-Real-IP: 192.0.2.1\r\n\r\n");
//! # Ok::<(), h1::RequestError>(())
//! ```

mod body;
mod error;
mod fields;
mod lines;
mod request;
mod response;
mod target;
mod token;
mod write;

pub use body::{Decoder, Framing, Piece};
pub use error::{BodyError, FieldError, RequestError, ResponseError};
pub use fields::{Field, Fields, Known};
pub use lines::Limits;
pub use request::{Asked, Request, RequestHead};
pub use response::{Response, ResponseHead};
pub use token::Version;
pub use write::{HeadWriter, write_chunk_header};

//! HTTP/1.1 codec for a proxy: heads, body framing, re-serialising, and the states of an exchange. Sans-IO: no socket, no
//! clock, no task.
//!
//! ```text
//!   visitor's bytes ─► RequestHead ─► Visitor::begin ─┬─► RequestBody ───── relay ─────► RequestWriter ─┐
//!                                                     └─► Responder ┐                                   ├─► upstream's bytes
//!                                          Upstream::send ◄─────────┘──► HeadWriter ────────────────────┘
//!                                                    │
//!   upstream's bytes ─► ResponseHead ─► Awaiting::answer ─┬─► Responder::forward ─► HeadWriter ────┬─► visitor's bytes
//!                                                         └─► ResponseBody ── relay ─► ResponseWriter ┘
//! ```
//!
//! # Call order
//!
//! 1. Collect what arrives in one buffer and show [`RequestHead::parse`] all of it, each time it has grown, until it says how long the head
//!    is. The head is a struct that is used again for each request of a connection: it holds positions, [`Request`] is the view of them
//!    in the buffer, and neither allocates once the struct has grown to what is usual.
//! 2. [`Visitor::begin`] turns the request into its body and the right to answer it.
//! 3. [`Upstream::send`] writes the request with what belongs to it; [`HeadWriter::copy`] and [`HeadWriter::field`] write its fields.
//!    The writer takes the whole head; bodies are passed on with [`BodyEncoder::relay`], or [`BodyEncoder::relay_into`] if they are small.
//! 4. [`ResponseHead::parse`] and [`Awaiting::answer`] give back what was sent with the request; [`Responder::forward`] writes the answer.
//! 5. [`ResponseWriter::finish`] and [`ResponseBody::finish`] say whether the two connections can go on.
//!
//! A request cannot be answered twice, nor with another's answer, nor be begun before the one before it was answered: each of these would
//! need a value that the step before has consumed.
//!
//! # What is refused
//!
//! Whatever two programs may read in two ways is refused, not repaired: see [`RequestError`], [`ResponseError`], [`BodyError`]. What
//! is accepted is written anew: framing, Host, Connection and Upgrade are always the writer's own, fields of the connection do not travel on
//! ([`Fields::end_to_end`]), chunk extensions are dropped, trailers are kept but for those that come too late.
//!
//! # Bounds
//!
//! Every byte is looked at a constant number of times, however the input was split. What a peer can make this crate keep is: one position per field
//! ([`Limits::fields`]), the trailers of a body ([`Limits::trailers`]), and one head of at most 2 KiB for each parser that is used again: lines that
//! stand again where they stood are compared with it instead of being read. Time limits are the caller's.
//!
//! ```
//! use h1::*;
//!
//! let limits = Limits::default();
//! let (mut request_head, mut response_head) = (RequestHead::default(), ResponseHead::default());
//! let (visitor, upstream) = (Visitor::new(&limits), Upstream::new(&limits));
//! let (mut to_upstream, mut to_visitor) = (Vec::new(), Vec::new());
//!
//! let asked = b"POST /a?b HTTP/1.1\r\nHost: example.com\r\nConnection: x-hop\r\nX-Hop: 1\r\nContent-Length: 2\r\n\r\nhi";
//! let len = request_head.parse(asked, &limits)?.expect("a whole head");
//! let request = request_head.view(asked).expect("a whole head");
//! let (mut request_body, responder) = visitor.begin(request);
//! let mut head = upstream.send(&RequestLine::of(request), responder, &mut to_upstream);
//! head.copy(request.fields(), |field| !field.known.is_forwarding());
//! head.field(b"X-Real-IP", b"192.0.2.1")?;
//! let mut sent = head.finish();
//! let moved = sent.body.encoder().relay_into(request_body.decoder(), &asked[len..], &mut to_upstream)?;
//! assert!(moved.end);
//! assert_eq!(
//!     to_upstream,
//!     b"POST /a?b HTTP/1.1\r\nHost: example.com\r\nContent-Length: 2\r\nX-Real-IP: 192.0.2.1\r\n\r\nhi"
//! );
//!
//! let answered = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nyo\r\n0\r\n\r\n";
//! let len = response_head.parse(answered, &limits)?.expect("a whole head");
//! let response = response_head.view(answered).expect("a whole head");
//! let Ok(Answer::Final { mut body, payload: responder }) = sent.awaiting.answer(response) else {
//!     panic!("an answer");
//! };
//! let mut head = responder.forward(&request_body, response, &mut to_visitor)?;
//! head.copy(response.fields(), |_| true);
//! let mut writer = head.finish();
//! let moved = writer.encoder().relay_into(body.decoder(), &answered[len..], &mut to_visitor)?;
//! assert_eq!(to_visitor, answered);
//!
//! let leftover = answered.len() - len - moved.consumed;
//! assert!(body.finish(sent.body, leftover).is_some(), "the upstream's connection can be used again");
//! assert!(matches!(writer.finish(request_body), Next::Idle(_)), "the visitor may send its next request");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod body;
mod error;
mod fields;
mod lines;
mod places;
mod request;
mod response;
mod scan;
mod target;
mod token;
mod upstream;
mod visitor;
mod write;

pub use body::{
    BodyDecoder, BodyEncoder, Decoded, Framing, Mark, Moved, RelayError, Relayed, Trailers,
};
pub use error::{BodyError, FieldError, RequestError, ResponseError, WriteError};
pub use fields::{Field, Fields, Known};
pub use lines::Limits;
pub use request::{Composer, Request, RequestHead};
pub use response::{Response, ResponseHead};
pub use token::Version;
pub use upstream::{Answer, Awaiting, RequestLine, RequestWriter, ResponseBody, Sent, Upstream};
pub use visitor::{Drain, Drained, Next, RequestBody, Responder, ResponseWriter, Tunnel, Visitor};
pub use write::{HeadWriter, Prepared};

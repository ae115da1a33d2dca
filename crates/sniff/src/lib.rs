//! What the first bytes of a connection say: what it speaks and where it wants to go. Sans-IO: no socket, no clock, no task.
//!
//! ```text
//!   first bytes ─► classify ─┬─ Link ──────────► crate tunnel
//!                            ├─ Tls ───────────► tls::HelloSniffer ─► SNI, ALPN
//!                            ├─ Http1 ─────────► http::HeadSniffer ─► Host, head length, WebSocket, …
//!                            ├─ Http2Preface ──► h2::HeadSniffer ──► :authority
//!                            └─ ProxyV1/ProxyV2 ► proxy::HeaderSniffer ─► addresses; then classify what follows
//! ```
//!
//! # Call order
//!
//! 1. Collect bytes in one buffer and ask [`classify`] until it no longer says [`Classified::NeedMore`].
//! 2. Make the sniffer of that protocol and call its `advance` with the **whole** buffer (less what was already taken, such as
//!    a PROXY header), again each time the buffer has grown. `Ok(None)` asks for more bytes; no answer depends on how the
//!    bytes were split.
//! 3. Nothing is consumed: the caller forwards the buffer untouched, and closes (or answers with what the error offers) on
//!    `Err`.
//!
//! Between calls the buffer must only grow. If it does not, the answers are meaningless, but nothing panics.
//!
//! # Bounds
//!
//! Every sniffer looks at each byte a constant number of times, however the bytes are split, and gives up at a limit set in its
//! `Limits`. Time limits are the caller's.
//!
//! ```
//! use sniff::{Classified, classify, http};
//!
//! let bytes = b"GET / HTTP/1.1\r\nhost: Alice.Example.com:8080\r\n\r\n";
//! assert_eq!(classify(bytes, b"\xF7gt1"), Classified::Http1);
//! let head = http::HeadSniffer::new(http::Limits::default()).advance(bytes)?.expect("a whole head");
//! assert_eq!(head.authority().and_then(|a| a.first_label()), Some("alice"));
//! # Ok::<(), http::HeadError>(())
//! ```

mod classify;
pub mod h2;
pub mod host;
pub mod http;
pub mod proxy;
pub mod tls;

pub use classify::{Classified, MAX_CLASSIFY, classify};

//! The head of an HTTP/1 request: where it ends and where it wants to go.
//!
//! Bytes go into a [`HeadSniffer`], a [`Head`] comes out. A head keeps positions, not bytes: its accessors take the buffer
//! that it was read from, so the caller may own and grow the buffer as it likes. Only the routing authority is copied.
//!
//! Only what two readers could understand differently in a way that matters to routing is refused: control bytes, bare CR or LF,
//! folded lines, space around names, several or odd hosts. Message framing is reported as found, for the forwarding path (crate
//! `h1`) to judge.

mod error;
mod head;
mod line;
mod sniffer;

pub use error::{Flaw, HeadError};
pub use head::{ContentLength, Field, Fields, Head, RoutedBy, TransferEncoding, Version};
pub(crate) use line::{agree, is_token_byte};
pub use sniffer::{HeadSniffer, Limits};

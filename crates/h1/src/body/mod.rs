//! Bodies as they pass: where they end, and which bytes of them can go on as they are. Nothing is copied: the decoder answers with
//! ranges of the input, the encoder with the few bytes that belong around them.

mod decoder;
mod encoder;
mod extension;
mod trailers;

pub(crate) use decoder::Kind;
pub use decoder::{BodyDecoder, Decoded};
pub use encoder::{BodyEncoder, Mark, Moved, RelayError, Relayed};
pub use trailers::Trailers;

/// How a body's end is known (RFC 9112 §6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Framing {
    /// There is no body.
    #[default]
    None,
    /// So many bytes.
    Length(u64),
    /// In chunks (RFC 9112 §7.1).
    Chunked,
    /// Until the connection ends; answers only.
    UntilClose,
}

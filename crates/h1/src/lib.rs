//! HTTP/1.1 codec for a proxy: heads, body framing, re-serialising, and the states of an exchange. Sans-IO: no socket, no
//! clock, no task.

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

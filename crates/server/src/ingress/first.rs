//! Reads the first bytes of a connection until a sniffer has understood them. The waiting connection holds only what it has sent.

use std::{io, time::Duration};

use tokio::io::AsyncReadExt;

/// Why the first bytes were not understood.
#[derive(Debug)]
pub(crate) enum Unread<E> {
    /// The peer closed or the connection failed before it had said enough.
    Gone,
    /// Too little within the time for headers.
    TooSlow,
    /// The sniffer says that it never will.
    Bad(E),
}

/// Feeds `sniff` with all that was read so far, again after each read, until it gives an answer.
pub(crate) async fn read_until<T, E>(
    stream: &mut net::Stream,
    read: &mut Vec<u8>,
    limit: Duration,
    mut sniff: impl FnMut(&[u8]) -> Result<Option<T>, E>,
) -> Result<T, Unread<E>> {
    let reading = async {
        loop {
            if !read.is_empty()
                && let Some(answer) = sniff(read).map_err(Unread::Bad)?
            {
                return Ok(answer);
            }
            match more(stream, read).await {
                Ok(0) | Err(_) => return Err(Unread::Gone),
                Ok(_) => {}
            }
        }
    };
    tokio::time::timeout(limit, reading)
        .await
        .unwrap_or(Err(Unread::TooSlow))
}

async fn more(stream: &mut net::Stream, read: &mut Vec<u8>) -> io::Result<usize> {
    read.reserve(if read.is_empty() { FIRST } else { read.len() });
    stream.read_buf(read).await
}

/// Room for most request heads.
const FIRST: usize = 1024;

//! Snappy's framing format over a transport, flushed with each write as kcptun does, so that nothing waits for more to compress.

use std::{
    io::{self, Read, Write},
    pin::Pin,
    task::{Context, Poll, ready},
};

use snap::{read::FrameDecoder, write::FrameEncoder};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A transport whose bytes are compressed both ways.
pub(super) struct Snappy<T> {
    transport: T,
    encoder: FrameEncoder<Vec<u8>>,
    /// Compressed bytes; those before `sent` are with the transport.
    out: Vec<u8>,
    sent: usize,
    decoder: FrameDecoder<Feed>,
    /// Bytes of the transport that belong to no chunk yet: `raw[taken..filled]`.
    raw: Vec<u8>,
    taken: usize,
    filled: usize,
    /// The part of a chunk that has come.
    chunk: Vec<u8>,
    /// A chunk's bytes, uncompressed; those before `read` were given out, of `length`.
    plain: Vec<u8>,
    read: usize,
    length: usize,
}

/// Whole chunks for the decoder, one at a time.
#[derive(Default)]
struct Feed {
    chunk: Vec<u8>,
    at: usize,
}

impl Read for Feed {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n = (&self.chunk[self.at..]).read(out)?;
        self.at += n;
        Ok(n)
    }
}

impl<T> Snappy<T> {
    pub(super) fn new(transport: T) -> Self {
        Self {
            transport,
            encoder: FrameEncoder::new(Vec::new()),
            out: Vec::new(),
            sent: 0,
            decoder: FrameDecoder::new(Feed::default()),
            raw: vec![0; RAW],
            taken: 0,
            filled: 0,
            chunk: Vec::new(),
            plain: vec![0; BLOCK],
            read: 0,
            length: 0,
        }
    }

    /// Moves raw bytes into the chunk; once it is whole, uncompresses it.
    fn advance(&mut self) -> io::Result<()> {
        while self.taken < self.filled {
            let wanted = match self.chunk.first_chunk() {
                None => HEADER,
                Some(&[_, l0, l1, l2]) => HEADER + u32::from_le_bytes([l0, l1, l2, 0]) as usize,
            };
            if wanted > HEADER + LARGEST {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "the peer sent a snappy chunk that is too long; is it set to compress?",
                ));
            }
            let n = (wanted - self.chunk.len()).min(self.filled - self.taken);
            let end = self.taken + n;
            self.chunk.extend_from_slice(&self.raw[self.taken..end]);
            self.taken = end;
            // Four bytes are a whole chunk only if they say so.
            let whole = match self.chunk.first_chunk() {
                Some(&[_, 0, 0, 0]) => true,
                Some(_) => self.chunk.len() > HEADER && self.chunk.len() == wanted,
                None => false,
            };
            if whole {
                let feed = self.decoder.get_mut();
                std::mem::swap(&mut feed.chunk, &mut self.chunk);
                feed.at = 0;
                self.chunk.clear();
                self.read = 0;
                self.length = self.decoder.read(&mut self.plain)?;
                if self.length > 0 {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

impl<T: AsyncWrite + Unpin> Snappy<T> {
    /// Gives the transport what was compressed.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.out.len() {
            let rest = &self.out[self.sent..];
            let n = ready!(Pin::new(&mut self.transport).poll_write(cx, rest))?;
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += n;
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Snappy<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            if this.read < this.length {
                let n = (this.length - this.read).min(out.remaining());
                out.put_slice(&this.plain[this.read..this.read + n]);
                this.read += n;
                return Poll::Ready(Ok(()));
            }
            if this.taken == this.filled {
                let mut raw = ReadBuf::new(&mut this.raw);
                ready!(Pin::new(&mut this.transport).poll_read(cx, &mut raw))?;
                (this.taken, this.filled) = (0, raw.filled().len());
                if this.filled == 0 {
                    return match this.chunk.is_empty() {
                        true => Poll::Ready(Ok(())),
                        false => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                    };
                }
            }
            this.advance()?;
        }
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Snappy<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_drain(cx))?;
        let n = data.len().min(BLOCK);
        let this = &mut *self;
        this.encoder.write_all(&data[..n])?;
        this.encoder.flush()?;
        this.out.clear();
        this.sent = 0;
        std::mem::swap(&mut this.out, this.encoder.get_mut());
        match self.poll_drain(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            // What is left goes with the next write or flush.
            _ => Poll::Ready(Ok(n)),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx))?;
        Pin::new(&mut self.transport).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx))?;
        Pin::new(&mut self.transport).poll_shutdown(cx)
    }
}

/// Bytes of a chunk's type and length.
const HEADER: usize = 4;
/// Most uncompressed bytes of a chunk, by the format.
const BLOCK: usize = 1 << 16;
/// Most bytes of a chunk: a block that did not shrink, by the bound of the compressor, and its checksum.
const LARGEST: usize = 32 + BLOCK + BLOCK / 6 + 4;
/// Bytes read from the transport at a time.
const RAW: usize = 16 << 10;

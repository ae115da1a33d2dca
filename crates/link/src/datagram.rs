//! The two directions of a UDP visitor's stream, as whole datagrams. On the stream each goes after its length (u16, big-endian); over QUIC
//! one that fits goes as a datagram of its own, and may be lost or overtake others, as on any path.

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf, ReadHalf, WriteHalf};

use crate::{quic::Channel, stream::Stream};

/// Receives datagrams.
pub struct DatagramReader {
    stream: ReadHalf<Stream>,
    channel: Option<Rc<Channel>>,
    /// What the stream has given of the next datagram, its length included.
    partial: Vec<u8>,
}

/// Sends datagrams.
pub struct DatagramWriter {
    stream: WriteHalf<Stream>,
    channel: Option<Rc<Channel>>,
    /// The first one goes on the stream, so that it comes with the stream's header.
    begun: bool,
}

impl std::fmt::Debug for DatagramReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DatagramReader").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for DatagramWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DatagramWriter").finish_non_exhaustive()
    }
}

pub(crate) fn halves(stream: Stream, channel: Option<Channel>) -> (DatagramReader, DatagramWriter) {
    let channel = channel.map(Rc::new);
    let (read, write) = tokio::io::split(stream);
    let reader = DatagramReader {
        stream: read,
        channel: channel.clone(),
        partial: Vec::new(),
    };
    let writer = DatagramWriter {
        stream: write,
        channel,
        begun: false,
    };
    (reader, writer)
}

impl DatagramReader {
    /// The next datagram, in the place of what is in `datagram`. Cancel safe.
    ///
    /// # Errors
    /// When the stream ends; `UnexpectedEof` if in order.
    pub async fn receive(&mut self, datagram: &mut Vec<u8>) -> io::Result<()> {
        poll_fn(|cx| self.poll_receive(cx, datagram)).await
    }

    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        datagram: &mut Vec<u8>,
    ) -> Poll<io::Result<()>> {
        if let Some(channel) = &self.channel
            && let Poll::Ready(received) = channel.poll_receive(cx)
        {
            datagram.clear();
            datagram.extend_from_slice(&received);
            return Poll::Ready(Ok(()));
        }
        loop {
            let wanted = match self.partial.first_chunk() {
                Some(length) => 2 + usize::from(u16::from_be_bytes(*length)),
                None => 2,
            };
            let have = self.partial.len();
            if have >= 2 && have == wanted {
                datagram.clear();
                datagram.extend_from_slice(&self.partial[2..]);
                self.partial.clear();
                return Poll::Ready(Ok(()));
            }
            self.partial.resize(wanted, 0);
            let mut room = ReadBuf::new(&mut self.partial[have..]);
            let read = Pin::new(&mut self.stream).poll_read(cx, &mut room);
            let n = room.filled().len();
            self.partial.truncate(have + n);
            std::task::ready!(read)?;
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }
}

impl DatagramWriter {
    /// Sends a datagram of at most 65,535 bytes; longer ones are an error. Not cancel safe.
    ///
    /// # Errors
    /// When the stream has ended; `InvalidInput` for one that is too long.
    pub async fn send(&mut self, datagram: &[u8]) -> io::Result<()> {
        if std::mem::replace(&mut self.begun, true)
            && let Some(channel) = &self.channel
            && channel.send(datagram)
        {
            return Ok(());
        }
        let Ok(length) = u16::try_from(datagram.len()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let framed = [&length.to_be_bytes(), datagram].concat();
        self.stream.write_all(&framed).await
    }
}

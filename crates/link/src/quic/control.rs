//! The first stream of a QUIC link: the handshake as bytes, then control messages, each after its length (u16, big-endian, not 0).

use std::collections::VecDeque;

use bytes::{Buf, Bytes, BytesMut};
use quinn::{Connection, ConnectionError, ReadError, RecvStream, SendStream, VarInt};

use super::windows::{LINK_WINDOW, STREAMS_AT_FIRST};

/// A connection and its first stream.
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) connection: Connection,
    pub(crate) send: SendStream,
    pub(crate) receive: RecvStream,
    /// What the handshake read and did not need.
    pub(crate) unread: Bytes,
    pub(crate) closing: Closing,
}

/// Closes the connection when it is dropped. Others may hold it too, to read its figures, and both ends would keep it alive.
#[derive(Debug)]
pub(crate) struct Closing(Connection);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close(DONE, b"");
    }
}

/// RFC 9000 §19.19: the application's code of a link that ends in order.
const DONE: VarInt = VarInt::from_u32(0);

impl Control {
    pub(crate) async fn open(connection: Connection) -> Result<Self, ConnectionError> {
        let closing = Closing(connection.clone());
        let (send, receive) = connection.open_bi().await?;
        Ok(Self::new(connection, send, receive, closing))
    }

    pub(crate) async fn accept(connection: Connection) -> Result<Self, ConnectionError> {
        let closing = Closing(connection.clone());
        let (send, receive) = connection.accept_bi().await?;
        Ok(Self::new(connection, send, receive, closing))
    }

    fn new(
        connection: Connection,
        send: SendStream,
        receive: RecvStream,
        closing: Closing,
    ) -> Self {
        // Fails on a stream that has ended only, which the handshake finds out.
        let _ = send.set_priority(PRIORITY);
        Self {
            connection,
            send,
            receive,
            unread: Bytes::new(),
            closing,
        }
    }

    /// The peer is known: from now on it may use the link's windows.
    pub(crate) fn admit(&self) {
        self.connection
            .set_receive_window(VarInt::from_u32(LINK_WINDOW));
        self.connection.set_send_window(LINK_WINDOW.into());
        // Clients open one stream, which they have; the server opens the others.
        let streams = match self.connection.side() {
            quinn::Side::Client => STREAMS_AT_FIRST,
            quinn::Side::Server => 1,
        };
        self.connection
            .set_max_concurrent_bi_streams(VarInt::from_u32(streams));
        self.connection
            .set_max_concurrent_uni_streams(VarInt::from_u32(0));
    }
}

/// Messages that wait to be sent.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    messages: VecDeque<Bytes>,
    bytes: usize,
}

impl Outbox {
    pub(crate) fn push(&mut self, message: &[u8]) {
        let Ok(length) = u16::try_from(message.len()) else {
            return tracing::error!(length = message.len(), "a control message is too long");
        };
        if length == 0 {
            return;
        }
        self.bytes += message.len();
        let framed = [&length.to_be_bytes(), message].concat();
        self.messages.push_back(framed.into());
    }

    pub(crate) fn pop(&mut self) -> Option<Bytes> {
        let message = self.messages.pop_front()?;
        self.bytes -= message.len() - 2;
        Some(message)
    }

    /// The peer provokes answers that it does not read.
    pub(crate) fn is_crowded(&self) -> bool {
        self.bytes > MOST_WAITING
    }
}

/// Control messages out of bytes.
#[derive(Debug)]
pub(crate) struct Inbox(BytesMut);

impl Inbox {
    pub(crate) fn new(unread: &Bytes) -> Self {
        Self(BytesMut::from(&unread[..]))
    }

    /// The next whole message.
    pub(crate) fn pop(&mut self) -> Option<BytesMut> {
        let head: [u8; 2] = self.0.get(..2)?.try_into().ok()?;
        let length = usize::from(u16::from_be_bytes(head));
        if self.0.len() < 2 + length {
            return None;
        }
        self.0.advance(2);
        Some(self.0.split_to(length))
    }

    /// Reads on; `false` when the peer has finished the stream.
    pub(crate) async fn read(&mut self, stream: &mut RecvStream) -> Result<bool, ReadError> {
        match stream.read_chunk(READ, true).await? {
            Some(chunk) => {
                self.0.extend_from_slice(&chunk.bytes);
                Ok(true)
            }
            None => Ok(false),
        }
    }
}

/// Before every visitor's stream.
const PRIORITY: i32 = 2;
const READ: usize = 64 << 10;
/// As many answers as a peer may leave unread before its messages are not read any more: some of the longest.
const MOST_WAITING: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_out_as_they_went_in_however_they_are_cut() {
        let mut outbox = Outbox::default();
        let messages: Vec<Vec<u8>> = vec![vec![1], vec![2; 300], vec![3; 65_535]];
        messages.iter().for_each(|message| outbox.push(message));
        let mut wire = Vec::new();
        while let Some(bytes) = outbox.pop() {
            wire.extend_from_slice(&bytes);
        }
        for cut in [1, 2, 7, 1000, wire.len()] {
            let mut inbox = Inbox::new(&Bytes::new());
            let mut out = Vec::new();
            for piece in wire.chunks(cut) {
                inbox.0.extend_from_slice(piece);
                while let Some(message) = inbox.pop() {
                    out.push(message.to_vec());
                }
            }
            assert_eq!(out, messages, "cut into {cut}");
        }
    }

    #[test]
    fn an_outbox_that_nobody_reads_is_crowded() {
        let mut outbox = Outbox::default();
        (0..16).for_each(|_| outbox.push(&[0; 65_535]));
        assert!(!outbox.is_crowded());
        outbox.push(&[0; 65_535]);
        assert!(outbox.is_crowded());
        while outbox.pop().is_some() {}
        assert!(!outbox.is_crowded());
    }
}

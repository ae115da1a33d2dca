//! A peer that writes its streams byte by byte.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::net::SocketAddr;

use quic::{
    ALPN_H3, Connection, ConnectionError,
    h3::Code,
    quinn::{ReadError, RecvStream},
};

use super::{LONG, client};

/// A control stream with settings that say nothing.
pub(crate) const SETTINGS: &[u8] = b"\x00\x04\x00";
/// GET https://a/about, by the static table: 17, 23, a literal authority and path.
pub(crate) const GET: &[u8] = b"\x01\x0f\x00\x00\xd1\xd7\x50\x01a\x51\x06/about";

pub(crate) async fn connect(address: SocketAddr) -> Connection {
    let client = client(|_| {});
    client
        .connect(address, "localhost", &[ALPN_H3])
        .await
        .unwrap()
}

pub(crate) async fn uni(connection: &Connection, bytes: &[u8]) -> quic::SendStream {
    let mut stream = connection.open_uni().await.unwrap();
    stream.write_all(bytes).await.unwrap();
    stream
}

pub(crate) async fn ask(
    connection: &Connection,
    bytes: &[u8],
    ends: bool,
) -> (quic::SendStream, RecvStream) {
    let (mut send, recv) = connection.open_bi().await.unwrap();
    let _ = send.write_all(bytes).await;
    if ends {
        let _ = send.finish();
    }
    (send, recv)
}

pub(crate) async fn ends_with(connection: &Connection, code: Code, what: &str) {
    let ended = tokio::time::timeout(LONG, connection.closed()).await;
    match ended.unwrap_or_else(|_| panic!("{what}: still there")) {
        ConnectionError::ApplicationClosed(close) => {
            assert_eq!(Code(close.error_code.into_inner()), code, "{what}");
        }
        other => panic!("{what}: {other}"),
    }
}

/// The whole of what comes back.
pub(crate) async fn answer(mut recv: RecvStream) -> Result<Vec<u8>, Code> {
    let mut all = Vec::new();
    loop {
        match recv.read_chunk(4096, true).await {
            Ok(Some(chunk)) => all.extend_from_slice(&chunk.bytes),
            Ok(None) => return Ok(all),
            Err(ReadError::Reset(code)) => return Err(Code(code.into_inner())),
            Err(other) => panic!("{other}"),
        }
    }
}

/// A HEADERS frame without the dynamic table.
pub(crate) fn request(block: &[u8]) -> Vec<u8> {
    let mut bytes = vec![1, u8::try_from(block.len() + 2).unwrap(), 0, 0];
    assert!(block.len() < 62);
    bytes.extend_from_slice(block);
    bytes
}

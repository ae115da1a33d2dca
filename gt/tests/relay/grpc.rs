//! gRPC as far as a relay is concerned: HTTP/2 without TLS, streams that go both ways at once, trailers at the end.

use std::{net::SocketAddr, thread};

use bytes::Bytes;
use e2e::{Transport, over_each_transport, pattern::Pattern};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use tokio::net::{TcpListener, TcpStream};

use crate::server;

over_each_transport!(calls_stream_both_ways_at_once, an_unknown_host_is_not_found);

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

/// A service that echoes each message of a call at once and ends the call with trailers; it serves until the test process ends.
pub(super) fn echo() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.set_nonblocking(true).expect("not blocking");
    let address = listener.local_addr().expect("its address");
    thread::spawn(move || {
        runtime().block_on(async {
            let listener = TcpListener::from_std(listener).expect("a listener");
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(serve(socket));
            }
        });
    });
    address
}

async fn serve(socket: TcpStream) -> Result<(), Failure> {
    let mut connection = h2::server::handshake(socket).await?;
    while let Some(call) = connection.accept().await {
        let (request, mut respond) = call?;
        tokio::spawn(async move {
            let head = Response::builder()
                .header("content-type", "application/grpc")
                .body(())?;
            let out = respond.send_response(head, false)?;
            answer(request.into_body(), out).await
        });
    }
    Ok(())
}

async fn answer(mut messages: RecvStream, mut out: SendStream<Bytes>) -> Result<(), Failure> {
    while let Some(message) = messages.data().await {
        let message = message?;
        messages.flow_control().release_capacity(message.len())?;
        send(&mut out, message).await?;
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", "0".parse()?);
    out.send_trailers(trailers)?;
    Ok(())
}

/// Sends within the peer's window.
async fn send(out: &mut SendStream<Bytes>, mut bytes: Bytes) -> Result<(), Failure> {
    while !bytes.is_empty() {
        out.reserve_capacity(bytes.len());
        let room = std::future::poll_fn(|cx| out.poll_capacity(cx))
            .await
            .ok_or("the call was reset")??;
        out.send_data(bytes.split_to(room.min(bytes.len())), false)?;
    }
    Ok(())
}

/// A call of `messages` messages, each sent when the one before has come back.
async fn call(
    client: h2::client::SendRequest<Bytes>,
    seed: u64,
    messages: usize,
) -> Result<(), Failure> {
    let request = Request::post("http://web.example.com/echo.Echo/Chat")
        .header("te", "trailers")
        .body(())?;
    let (response, mut out) = client.ready().await?.send_request(request, false)?;
    let response = response.await?;
    assert_eq!(response.status(), 200);
    let mut back = response.into_body();
    let mut pattern = Pattern::new(seed);
    for n in 0..messages {
        let message = Bytes::from(pattern.bytes(1 + n * 331 % 20_000));
        let (mut left, expected) = (message.len(), message.clone());
        send(&mut out, message).await?;
        let mut got = Vec::new();
        while left > 0 {
            let piece = back.data().await.ok_or("the call ended early")??;
            back.flow_control().release_capacity(piece.len())?;
            left = left
                .checked_sub(piece.len())
                .ok_or("more came back than was sent")?;
            got.extend_from_slice(&piece);
        }
        assert!(
            got == expected,
            "message {n} of call {seed} came back changed"
        );
    }
    out.send_data(Bytes::new(), true)?;
    assert!(back.data().await.is_none());
    let trailers = back.trailers().await?.ok_or("no trailers")?;
    assert_eq!(
        trailers.get("grpc-status").map(http::HeaderValue::as_bytes),
        Some(&b"0"[..])
    );
    Ok(())
}

async fn visit(address: SocketAddr) -> Result<(), Failure> {
    let (client, connection) = h2::client::handshake(TcpStream::connect(address).await?).await?;
    let connection = tokio::spawn(connection);
    let calls: Vec<_> = (0..8)
        .map(|seed| tokio::spawn(call(client.clone(), seed, 60)))
        .collect();
    drop(client);
    for call in calls {
        call.await??;
    }
    connection.await??;
    Ok(())
}

fn calls_stream_both_ways_at_once(transport: Transport) {
    let service = echo();
    let server = server();
    let _client = server
        .client(transport, "web")
        .service(format!("http://{service}"), "")
        .start_up();
    visit_in_time(server.http());
}

/// Calls through `address`, all of which must succeed.
pub(super) fn visit_in_time(address: SocketAddr) {
    let visited =
        runtime().block_on(async { tokio::time::timeout(e2e::patience(), visit(address)).await });
    visited.expect("in time").expect("no failure");
}

fn an_unknown_host_is_not_found(transport: Transport) {
    let server = server();
    let _client = server
        .client(transport, "web")
        .service("http://127.0.0.1:1", "")
        .start_up();
    let told = runtime().block_on(async {
        let (client, connection) =
            h2::client::handshake(TcpStream::connect(server.http()).await?).await?;
        let connection = tokio::spawn(connection);
        let request = Request::get("http://nobody.example.com/").body(())?;
        let (response, _) = client.ready().await?.send_request(request, true)?;
        let status = response.await?.status().as_u16();
        let _ = connection.await?;
        Ok::<_, Failure>(status)
    });
    assert_eq!(told.expect("an answer"), 404);
}

//! WebSocket through the relay, with a real implementation at both ends.

use std::{io, net::TcpStream};

use e2e::{Service, Transport, http, over_each_transport, pattern::Pattern};
use tungstenite::{Bytes, Message, WebSocket, accept, client};

use crate::{server, silence};

over_each_transport!(
    messages_of_all_kinds_pass,
    a_ping_after_silence_is_answered,
    the_service_closes_with_its_reason
);

/// Echoes messages; says goodbye to `bye`.
fn echo() -> Service {
    Service::tcp(|stream| {
        let mut socket = accept(stream).map_err(io::Error::other)?;
        loop {
            match socket.read().map_err(io::Error::other)? {
                Message::Text(text) if text.as_str() == "bye" => {
                    let frame = tungstenite::protocol::CloseFrame {
                        code: 4001.into(),
                        reason: "as you wish".into(),
                    };
                    socket.close(Some(frame)).map_err(io::Error::other)?;
                }
                message @ (Message::Text(_) | Message::Binary(_)) => {
                    socket.send(message).map_err(io::Error::other)?
                }
                // Pings are answered and closings finished inside read and flush.
                _ => socket.flush().map_err(io::Error::other)?,
            }
        }
    })
}

fn visit(address: std::net::SocketAddr) -> WebSocket<TcpStream> {
    let stream = http::connect(address).expect("a connection");
    let (socket, response) = client("ws://web.example.com/chat", stream).expect("a WebSocket");
    assert_eq!(response.status(), 101);
    socket
}

fn messages_of_all_kinds_pass(transport: Transport) {
    let service = echo();
    let server = server();
    let _client = server
        .client(transport, "web")
        .service(service.url("http"), "")
        .start_up();
    let mut socket = visit(server.http());
    let mut pattern = Pattern::new(2);
    for size in [0, 1, 125, 126, 65_535, 65_536, 1_000_000] {
        let message = Message::Binary(Bytes::from(pattern.bytes(size)));
        socket.send(message.clone()).expect("sent");
        assert!(
            socket.read().expect("an answer") == message,
            "{size} bytes came back changed"
        );
    }
    socket.send(Message::text("grüße")).expect("sent");
    assert_eq!(socket.read().expect("an answer"), Message::text("grüße"));
    socket.close(None).expect("closed");
    while socket.read().is_ok() {}
}

fn a_ping_after_silence_is_answered(transport: Transport) {
    let service = echo();
    let server = server();
    let _client = server
        .client(transport, "web")
        .service(service.url("http"), "")
        .start_up();
    let mut socket = visit(server.http());
    // The silence itself is what is tested.
    std::thread::sleep(silence());
    socket
        .send(Message::Ping(Bytes::from_static(b"still there?")))
        .expect("sent");
    let pong = socket.read().expect("an answer");
    assert_eq!(pong, Message::Pong(Bytes::from_static(b"still there?")));
    socket.send(Message::text("yes")).expect("sent");
    assert_eq!(socket.read().expect("an answer"), Message::text("yes"));
}

fn the_service_closes_with_its_reason(transport: Transport) {
    let service = echo();
    let server = server();
    let _client = server
        .client(transport, "web")
        .service(service.url("http"), "")
        .start_up();
    let mut socket = visit(server.http());
    socket.send(Message::text("bye")).expect("sent");
    let Message::Close(Some(frame)) = socket.read().expect("an answer") else {
        panic!("no close frame");
    };
    assert_eq!(
        (u16::from(frame.code), frame.reason.as_str()),
        (4001, "as you wish")
    );
}

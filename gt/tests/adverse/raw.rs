//! The relay protocol spoken by hand, to say what no gt client or server would say.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    thread,
    time::Duration,
};

use e2e::{http, relay::SECRET};
use mux::{Config, Event, Mux, Side};
use tunnel::{
    ChannelBinding, ClientConfig, ClientEstablished, ClientHandshake, ClientId, ControlMessage,
    Features, Grant, HandshakeError, Key, MAGIC, Nonce, Secret, ServerConfig, ServerHandshake,
    ServerStep, Services, SessionId, VersionRange,
};

/// A client with this id and secret, over plain TCP.
pub(crate) fn client(id: &str, secret: &str) -> ClientConfig {
    let id = ClientId::new(id).expect("an id");
    ClientConfig::new(id, Secret::new(secret).expect("a secret"))
}

/// The same, for a version that nobody speaks.
pub(crate) fn client_of_another_version(id: &str) -> ClientConfig {
    ClientConfig {
        versions: VersionRange { min: 9, max: 9 },
        ..client(id, SECRET)
    }
}

/// One attempt to become a link.
pub(crate) fn attempt(
    server: SocketAddr,
    config: ClientConfig,
) -> Result<(TcpStream, ClientEstablished), HandshakeError> {
    let mut stream = http::connect(server).expect("the server accepts");
    let mut machine = ClientHandshake::new(config, Nonce([7; 32]), ChannelBinding::None);
    let mut unread = Vec::new();
    loop {
        stream.write_all(&machine.output()).expect("writable");
        if let Some(established) = machine.established() {
            return Ok((stream, established));
        }
        let mut piece = [0; 4096];
        match stream.read(&mut piece).unwrap_or(0) {
            0 => return Err(HandshakeError::Closed("an answer")),
            n => unread.extend_from_slice(&piece[..n]),
        }
        let taken = machine.handle_input(&unread)?;
        unread.drain(..taken);
    }
}

/// The bytes of a Hello, and nothing after them.
pub(crate) fn hello(id: &str) -> Vec<u8> {
    let config = client(id, SECRET);
    let hello = ClientHandshake::new(config, Nonce([7; 32]), ChannelBinding::None).output();
    assert!(hello.starts_with(&MAGIC));
    hello
}

/// A server that lets one client with [`SECRET`] in and opens a stream with this header to it; returns how the client reset it.
pub(crate) fn server_that_opens(
    id: &str,
    header: Vec<u8>,
) -> (SocketAddr, thread::JoinHandle<Option<u16>>) {
    let (listener, address) = listen();
    let key = key_of(id);
    let served = thread::spawn(move || {
        let (mut stream, _) = listener.accept().ok()?;
        let_in(&mut stream, ServerConfig::default(), &key)?;
        first_reset(stream, &header)
    });
    (address, served)
}

fn key_of(id: &str) -> Key {
    Key::derive(
        &Secret::new(SECRET).expect("a secret"),
        &ClientId::new(id).expect("an id"),
    )
}

/// The handshake of a client; what came behind it.
fn let_in(stream: &mut TcpStream, config: ServerConfig, key: &Key) -> Option<Vec<u8>> {
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .ok()?;
    let mut machine = ServerHandshake::new(config, Nonce([9; 32]), ChannelBinding::None);
    let mut unread = Vec::new();
    while machine.established().is_none() {
        shake(stream, &mut machine, &mut unread).ok()?;
        if let Some(ServerStep::Authenticate(_)) = machine.poll_step() {
            let grant = Grant::new(SessionId::from_bytes([1; 16]));
            machine.accept_with_key(key, grant).ok()?;
            stream.write_all(&machine.output()).ok()?;
        }
    }
    Some(unread)
}

/// A server without any optional ability that lets one client with [`SECRET`] in; returns what the client declares to it.
pub(crate) fn server_without_features(
    id: &str,
) -> (SocketAddr, thread::JoinHandle<Option<Services>>) {
    let (listener, address) = listen();
    let key = key_of(id);
    let served = thread::spawn(move || {
        let (mut stream, _) = listener.accept().ok()?;
        let config = ServerConfig {
            features: Features::NONE,
            ..ServerConfig::default()
        };
        let unread = let_in(&mut stream, config, &key)?;
        first_message(stream, unread)
    });
    (address, served)
}

/// A server of another protocol version: refuses every client and goes on.
pub(crate) fn server_of_another_version() -> SocketAddr {
    let (listener, address) = listen();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let config = ServerConfig {
                versions: VersionRange { min: 9, max: 9 },
                ..ServerConfig::default()
            };
            let mut machine = ServerHandshake::new(config, Nonce([9; 32]), ChannelBinding::None);
            let _ = shake(&mut stream, &mut machine, &mut Vec::new());
        }
    });
    address
}

fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("bound");
    (listener, address)
}

/// One read, and the answer to it.
fn shake(
    stream: &mut TcpStream,
    machine: &mut ServerHandshake,
    unread: &mut Vec<u8>,
) -> io::Result<()> {
    let mut piece = [0; 4096];
    match stream.read(&mut piece)? {
        0 => return Err(io::ErrorKind::UnexpectedEof.into()),
        n => unread.extend_from_slice(&piece[..n]),
    }
    let taken = machine.handle_input(unread);
    stream.write_all(&machine.output())?;
    unread.drain(..taken.map_err(io::Error::other)?);
    Ok(())
}

/// The services that the client declares first.
fn first_message(mut stream: TcpStream, unread: Vec<u8>) -> Option<Services> {
    let mut mux = Mux::new(Side::Acceptor, Config::default(), Duration::ZERO);
    let mut piece = unread;
    loop {
        let mut input = &piece[..];
        while let Some(event) = mux.receive(&mut input, Duration::ZERO).ok()? {
            if let Event::Control { message } = event
                && let Ok(Some(ControlMessage::Services(services))) =
                    ControlMessage::decode(&message)
            {
                return Some(services);
            }
        }
        piece = vec![0; 4096];
        let n = stream.read(&mut piece).ok().filter(|n| *n > 0)?;
        piece.truncate(n);
    }
}

fn first_reset(mut stream: TcpStream, header: &[u8]) -> Option<u16> {
    let mut mux = Mux::new(Side::Acceptor, Config::default(), Duration::ZERO);
    mux.open(header, b"hello", Duration::ZERO).ok()?;
    loop {
        while mux.has_output() {
            let n = stream.write(mux.output()).ok()?;
            mux.advance(n);
        }
        let mut piece = [0; 4096];
        let n = stream.read(&mut piece).ok().filter(|n| *n > 0)?;
        let mut input = &piece[..n];
        while let Some(event) = mux.receive(&mut input, Duration::ZERO).ok()? {
            if let Event::Reset { reason, .. } = event {
                return Some(reason.0);
            }
        }
    }
}

//! Two ends of a handshake wired together in memory, with a place for somebody in between, and seeded randomness.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "every test binary uses its own part"
)]

use testkit::Random;
use tunnel::*;

/// A seeded generator.
pub struct Rng(Random);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(Random::new(seed))
    }

    pub fn next(&mut self) -> u64 {
        self.0.number()
    }

    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.0.below(bound as u64)).unwrap()
    }
}

/// Runs `test` over seeds, or as [`testkit::seeds`] is told.
pub fn seeds(count: u64, test: impl Fn(&mut Rng)) {
    for seed in testkit::seeds(count) {
        test(&mut Rng::new(seed));
    }
}

pub fn id() -> ClientId {
    ClientId::new("laptop.home_1-a").unwrap()
}

pub fn secret() -> Secret {
    Secret::new("a secret that nobody guesses").unwrap()
}

pub fn key() -> Key {
    Key::derive(&secret(), &id())
}

pub fn grant() -> Grant {
    Grant {
        notice: Message::new("welcome"),
        max_links: 4,
        wanted_links: Some(2),
        ..Grant::new(SessionId::from_bytes([9; 16]))
    }
}

pub fn client_config() -> ClientConfig {
    ClientConfig {
        software: Name::new("gt 0.1.0"),
        ..ClientConfig::new(id(), secret())
    }
}

pub const CLIENT_NONCE: Nonce = Nonce([0xC1; 32]);
pub const SERVER_NONCE: Nonce = Nonce([0x5E; 32]);

pub fn client(config: ClientConfig) -> ClientHandshake {
    ClientHandshake::new(config, CLIENT_NONCE, ChannelBinding::None)
}

pub fn server() -> ServerHandshake {
    ServerHandshake::new(ServerConfig::default(), SERVER_NONCE, ChannelBinding::None)
}

/// What became of both ends.
#[derive(Debug)]
pub struct Outcome {
    pub client: Result<ClientEstablished, HandshakeError>,
    pub server: Result<ServerEstablished, HandshakeError>,
    /// All bytes to the server, then all bytes to the client, as they were received.
    pub recorded: (Vec<u8>, Vec<u8>),
}

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    ToServer,
    ToClient,
}

/// Runs both ends until nobody has anything to say; `between` may change what passes.
pub fn run(
    mut client: ClientHandshake,
    mut server: ServerHandshake,
    answer: impl Fn(&mut ServerHandshake, &AuthRequest),
    mut between: impl FnMut(Way, Vec<u8>) -> Vec<u8>,
) -> Outcome {
    let mut recorded = (Vec::new(), Vec::new());
    let (mut client_error, mut server_error) = (None, None);
    loop {
        let up = between(Way::ToServer, client.output());
        recorded.0.extend_from_slice(&up);
        if let Err(error) = server.handle_input(&up) {
            server_error.get_or_insert(error);
        }
        while let Some(ServerStep::Authenticate(request)) = server.poll_step() {
            answer(&mut server, &request);
        }
        let down = between(Way::ToClient, server.output());
        recorded.1.extend_from_slice(&down);
        if let Err(error) = client.handle_input(&down) {
            client_error.get_or_insert(error);
        }
        if up.is_empty() && down.is_empty() {
            break;
        }
    }
    Outcome {
        client: client
            .established()
            .ok_or_else(|| client_error.unwrap_or_else(|| client.closed())),
        server: server
            .established()
            .ok_or_else(|| server_error.unwrap_or_else(|| server.closed())),
        recorded,
    }
}

pub fn with_key(server: &mut ServerHandshake, _: &AuthRequest) {
    let _ = server.accept_with_key(&key(), grant());
}

pub fn untouched(_: Way, bytes: Vec<u8>) -> Vec<u8> {
    bytes
}

pub fn honest() -> Outcome {
    run(client(client_config()), server(), with_key, untouched)
}

/// A message of the handshake from its fields.
pub fn message(kind: u8, fields: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let body: Vec<u8> = fields
        .iter()
        .flat_map(|(tag, value)| field(*tag, value))
        .collect();
    field(kind, &body)
}

pub fn field(tag: u8, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len()).unwrap().to_be_bytes();
    [&[tag], &length[..], value].concat()
}

/// The fields of a message, which begins with its head.
pub fn fields(message: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let (mut rest, mut fields) = (&message[3..], Vec::new());
    while let [tag, high, low, after @ ..] = rest {
        let (value, next) = after.split_at(usize::from(u16::from_be_bytes([*high, *low])));
        fields.push((*tag, value.to_vec()));
        rest = next;
    }
    fields
}

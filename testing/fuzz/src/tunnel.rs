//! Fuzz checks of crate `tunnel`: whatever a peer sends, nothing panics, nothing is taken past its end, what is understood says
//! the same when said again, and nobody gets in without the key.

use tunnel::{
    Assembler, ChannelBinding, ClientConfig, ClientHandshake, ClientId, ControlMessage, Grant,
    HandshakeError, Key, MAX_CONTROL, Name, Nonce, Secret, ServerConfig, ServerHandshake,
    ServerStep, ServiceDecl, ServiceResult, Services, SessionId, StreamHeader,
};

/// Runs one input; panics on a finding.
pub fn check(data: &[u8]) {
    stream_header(data);
    control(data);
    for piece in [1, 7, usize::MAX] {
        server(data, piece);
        client(data, piece);
    }
}

fn stream_header(data: &[u8]) {
    if let Ok(header) = StreamHeader::decode(data) {
        let mut again = Vec::new();
        header.encode(&mut again);
        assert_eq!(again, data);
    }
}

fn control(data: &[u8]) {
    let Ok(Some(message)) = ControlMessage::decode(data) else {
        return;
    };
    match message.encode() {
        Ok(bytes) => assert_eq!(ControlMessage::decode(&bytes), Ok(Some(message.clone()))),
        // Ranges are written in full, so a message that was nearly too long may become too long.
        Err(error) => assert!(data.len() > MAX_CONTROL / 2, "{error}"),
    }
    match message {
        ControlMessage::Services(part) => {
            let mut assembler = Assembler::<ServiceDecl>::default();
            if let Ok(Some((generation, set))) = assembler.push(part.clone()) {
                assert_eq!((generation, &set), (part.generation, &part.services));
                assert!(can_be_sent(generation, set));
            }
            let _ = assembler.push(part);
        }
        ControlMessage::ServicesAnswer(part) => {
            let mut assembler = Assembler::<ServiceResult>::default();
            let _ = assembler.push(part.clone());
            let _ = assembler.push(part);
        }
        _ => {}
    }
}

/// Whether a set can be sent on.
fn can_be_sent(generation: u32, set: Vec<ServiceDecl>) -> bool {
    Services::parts(generation, set)
        .is_ok_and(|parts| parts.iter().all(|part| part.encode().is_ok()))
}

/// The keys and nonces of the vectors in `docs/protocol/tunnel.md`, so that the corpus holds a handshake that succeeds.
fn id_and_secret() -> Option<(ClientId, Secret)> {
    Some((
        ClientId::new("laptop.home_1-a").ok()?,
        Secret::new("a secret that nobody guesses").ok()?,
    ))
}

fn server(data: &[u8], piece: usize) {
    let Some((id, secret)) = id_and_secret() else {
        unreachable!("valid constants")
    };
    let key = Key::derive(&secret, &id);
    let mut server = ServerHandshake::new(
        ServerConfig::default(),
        Nonce([0x5E; 32]),
        ChannelBinding::None,
    );
    let mut error = None;
    feed(data, piece, |bytes| {
        let taken = server.handle_input(bytes);
        if let Some(ServerStep::Authenticate(request)) = server.poll_step() {
            let good = request.verify(&key);
            assert_eq!(
                server
                    .accept_with_key(&key, Grant::new(SessionId::from_bytes([9; 16])))
                    .is_ok(),
                good
            );
            assert_eq!(server.established().is_some(), good);
        }
        assert!(server.output().len() <= 8192);
        keep_first(&mut error, taken)
    });
}

fn client(data: &[u8], piece: usize) {
    let Some((id, secret)) = id_and_secret() else {
        unreachable!("valid constants")
    };
    let config = ClientConfig {
        software: Name::new("gt 0.1.0"),
        ..ClientConfig::new(id, secret)
    };
    let mut client = ClientHandshake::new(config, Nonce([0xC1; 32]), ChannelBinding::None);
    let mut error = None;
    feed(data, piece, |bytes| {
        let taken = client.handle_input(bytes);
        assert!(client.output().len() <= 4096);
        if let Some(link) = client.established() {
            assert!(link.server_proved);
        }
        keep_first(&mut error, taken)
    });
}

/// Passes `data` on in pieces until it is used up, refused or no longer taken.
fn feed(mut data: &[u8], piece: usize, mut take: impl FnMut(&[u8]) -> Option<usize>) {
    while !data.is_empty() {
        let end = piece.min(data.len());
        match take(&data[..end]) {
            Some(taken) if taken > 0 => {
                assert!(taken <= end);
                data = &data[taken..];
            }
            Some(_) => return,
            None => data = &data[end..],
        }
    }
}

/// A handshake that failed stays failed, with the same error.
fn keep_first(
    first: &mut Option<HandshakeError>,
    taken: Result<usize, HandshakeError>,
) -> Option<usize> {
    match (taken, &first) {
        (Ok(taken), None) => Some(taken),
        (Ok(_), Some(error)) => panic!("went on after {error}"),
        (Err(error), None) => {
            *first = Some(error);
            None
        }
        (Err(error), Some(before)) => {
            assert_eq!(&error, before);
            None
        }
    }
}

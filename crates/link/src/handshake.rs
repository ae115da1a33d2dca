//! Drives the relay protocol's handshakes (`tunnel`) over a transport, of whichever kind. Bounds on time are the caller's.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tunnel::{
    AuthRequest, ClientEstablished, ClientHandshake, HandshakeError, ServerEstablished,
    ServerHandshake, ServerStep,
};

use crate::transport::Transport;

/// Why no link came to be.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeFailure {
    /// The transport failed or was closed.
    #[error("the connection failed during the handshake: {0}")]
    Transport(#[from] io::Error),
    /// The peers did not agree; says whose fault it was.
    #[error("{0}")]
    Protocol(#[from] HandshakeError),
}

/// The client's part, from the magic to the server's acceptance. The stream that comes back continues where the handshake ended.
pub async fn connect(
    mut stream: Transport,
    mut machine: ClientHandshake,
) -> Result<(Transport, ClientEstablished), HandshakeFailure> {
    let mut unread = Vec::new();
    let established = run(
        &mut stream,
        &mut machine,
        &mut unread,
        ClientHandshake::established,
    )
    .await?;
    Ok((stream.with_unread(unread), established))
}

/// The server's part: first [`Accepting::request`], then [`Accepting::answer`].
#[derive(Debug)]
pub struct Accepting {
    stream: Transport,
    machine: ServerHandshake,
    unread: Vec<u8>,
}

impl Accepting {
    /// Begins on a transport of which nothing, or nothing that was not put back in front, has been read.
    pub fn new(stream: Transport, machine: ServerHandshake) -> Self {
        Self {
            stream,
            machine,
            unread: Vec::new(),
        }
    }

    /// Goes as far as the client's proof.
    pub async fn request(&mut self) -> Result<AuthRequest, HandshakeFailure> {
        let step = |machine: &mut ServerHandshake| machine.poll_step();
        let ServerStep::Authenticate(request) =
            run(&mut self.stream, &mut self.machine, &mut self.unread, step).await?;
        Ok(request)
    }

    /// Refuses the client with one of the machine's `reject*` and lets it read why.
    pub async fn refuse(
        mut self,
        reject: impl FnOnce(&mut ServerHandshake) -> Result<(), HandshakeError>,
    ) {
        let _ = reject(&mut self.machine);
        let _ = send(&mut self.stream, self.machine.output()).await;
        close(&mut self.stream).await;
    }

    /// Admits the client with one of the machine's `accept_*`; an error of it is sent to the client as well.
    pub async fn answer(
        mut self,
        answer: impl FnOnce(&mut ServerHandshake) -> Result<(), HandshakeError>,
    ) -> Result<(Transport, ServerEstablished), HandshakeFailure> {
        let answered = answer(&mut self.machine);
        send(&mut self.stream, self.machine.output()).await?;
        if let Err(error) = answered {
            close(&mut self.stream).await;
            return Err(error.into());
        }
        let established = run(
            &mut self.stream,
            &mut self.machine,
            &mut self.unread,
            ServerHandshake::established,
        )
        .await?;
        Ok((self.stream.with_unread(self.unread), established))
    }
}

trait Machine {
    fn input(&mut self, bytes: &[u8]) -> Result<usize, HandshakeError>;
    fn output(&mut self) -> Vec<u8>;
}

impl Machine for ClientHandshake {
    fn input(&mut self, bytes: &[u8]) -> Result<usize, HandshakeError> {
        self.handle_input(bytes)
    }

    fn output(&mut self) -> Vec<u8> {
        self.output()
    }
}

impl Machine for ServerHandshake {
    fn input(&mut self, bytes: &[u8]) -> Result<usize, HandshakeError> {
        self.handle_input(bytes)
    }

    fn output(&mut self) -> Vec<u8> {
        self.output()
    }
}

/// Moves bytes until `done` has an answer; what the machine did not take stays in `unread`.
async fn run<M: Machine, T>(
    stream: &mut Transport,
    machine: &mut M,
    unread: &mut Vec<u8>,
    mut done: impl FnMut(&mut M) -> Option<T>,
) -> Result<T, HandshakeFailure> {
    loop {
        send(stream, machine.output()).await?;
        if let Some(answer) = done(machine) {
            return Ok(answer);
        }
        if unread.is_empty() && stream.read_buf(unread).await? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        match machine.input(unread) {
            // The machine waits for its caller: `done` knows.
            Ok(0) if !unread.is_empty() => {
                if let Some(answer) = done(machine) {
                    return Ok(answer);
                }
                return Err(io::Error::from(io::ErrorKind::InvalidData).into());
            }
            Ok(taken) => {
                unread.drain(..taken);
            }
            Err(error) => {
                // Says why, as far as the peer may know.
                let _ = send(stream, machine.output()).await;
                close(stream).await;
                return Err(error.into());
            }
        }
    }
}

async fn send(stream: &mut Transport, bytes: Vec<u8>) -> io::Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    stream.write_all(&bytes).await?;
    stream.flush().await
}

/// Ends the connection so that the last words arrive: what the peer still sends is read for a moment.
async fn close(stream: &mut Transport) {
    let drain = async {
        let _ = stream.shutdown().await;
        let mut ignored = [0; 1024];
        for _ in 0..64 {
            if !matches!(stream.read(&mut ignored).await, Ok(n) if n > 0) {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(std::time::Duration::from_secs(1), drain).await;
}

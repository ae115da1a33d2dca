//! The HTTP service of the reload soak: what it sends and expects follows from numbers in the target, each POST request is remembered, and a
//! WebSocket gives back what comes.

use std::collections::HashMap;
use std::io::{self, BufReader, Read, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use tungstenite::handshake::derive_accept_key;
use tungstenite::protocol::Role;
use tungstenite::{Message, WebSocket};

use crate::acceptor::{Acceptor, Guarded};
use crate::pattern::Pattern;
use crate::service::{PIECE, read_line, send_pattern};

/// `GET /n/seed`, `POST /n/seed` and a WebSocket at any target.
pub struct Origin {
    acceptor: Acceptor,
    posts: Posts,
}

/// How often each POST request came, by its seed.
type Posts = Arc<Mutex<HashMap<u64, u32>>>;

impl Origin {
    /// Starts it.
    ///
    /// # Errors
    /// When the address cannot be had.
    pub fn open(at: SocketAddr) -> Result<Self> {
        let posts = Posts::default();
        let counted = posts.clone();
        let acceptor = Acceptor::open(at, move |stream| {
            let watch = stream.try_clone();
            if serve(stream, &counted).is_err()
                && let Ok(watch) = watch
            {
                watch.abort();
            }
        })?;
        Ok(Self { acceptor, posts })
    }

    /// Its address.
    #[must_use]
    pub fn at(&self) -> SocketAddr {
        self.acceptor.at()
    }

    /// How often a POST request came.
    #[must_use]
    pub fn posted(&self, seed: u64) -> u32 {
        let posts = self.posts.lock().unwrap_or_else(PoisonError::into_inner);
        posts.get(&seed).copied().unwrap_or(0)
    }
}

#[derive(Default)]
struct Head {
    verb: String,
    length: u64,
    seed: u64,
    body: u64,
    key: Option<String>,
    close: bool,
}

fn serve(mut stream: Guarded, posts: &Posts) -> io::Result<()> {
    let mut reader = BufReader::with_capacity(PIECE, stream.try_clone()?);
    while let Some(head) = read_head(&mut reader)? {
        if let Some(key) = &head.key {
            let accept = derive_accept_key(key.as_bytes());
            write!(
                stream,
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
            )?;
            return echo(stream);
        }
        if head.verb == "POST" {
            let verdict = match receive(&mut reader, head.seed, head.body)? {
                true if head.body == head.length => "right",
                _ => "wrong",
            };
            *posts
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .entry(head.seed)
                .or_default() += 1;
            write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{verdict}"
            )?;
        } else {
            write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
                head.length
            )?;
            send_pattern(&mut stream, head.length, head.seed)?;
        }
        if head.close {
            break;
        }
    }
    stream.finish();
    // Closing with unread bytes would be a reset.
    let _ = io::copy(&mut reader.take(1 << 20), &mut io::sink());
    Ok(())
}

fn read_head(reader: &mut BufReader<Guarded>) -> io::Result<Option<Head>> {
    let first = read_line(reader)?;
    if first.is_empty() {
        return Ok(None);
    }
    let mut head = Head::default();
    let mut words = first.split(' ');
    head.verb = words.next().unwrap_or_default().to_owned();
    let mut segments = words.next().unwrap_or_default().rsplit('/');
    let mut number = || {
        segments
            .next()
            .and_then(|text| text.parse().ok())
            .unwrap_or(0)
    };
    (head.seed, head.length) = (number(), number());
    loop {
        let line = read_line(reader)?;
        let Some((name, value)) = line.split_once(':') else {
            break;
        };
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => head.body = value.parse().unwrap_or(0),
            "sec-websocket-key" => head.key = Some(value.to_owned()),
            "connection" => head.close = value.eq_ignore_ascii_case("close"),
            _ => {}
        }
    }
    Ok(Some(head))
}

/// Whether the bytes were the expected ones.
fn receive(from: &mut impl Read, seed: u64, length: u64) -> io::Result<bool> {
    let (mut pattern, mut right) = (Pattern::new(seed), true);
    let mut buffer = [0; PIECE];
    while pattern.position() < length {
        let left = usize::try_from(length - pattern.position()).unwrap_or(PIECE);
        match from.read(&mut buffer[..left.min(PIECE)])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => right &= pattern.check(&buffer[..n]).is_ok(),
        }
        if !right {
            return Ok(false);
        }
    }
    Ok(right)
}

fn echo(stream: Guarded) -> io::Result<()> {
    let mut socket = WebSocket::from_raw_socket(stream, Role::Server, None);
    loop {
        match socket.read() {
            Ok(message @ (Message::Text(_) | Message::Binary(_))) => {
                socket.send(message).map_err(io::Error::other)?;
            }
            Ok(_) => {}
            Err(tungstenite::Error::ConnectionClosed) => return Ok(()),
            Err(error) => return Err(io::Error::other(error)),
        }
    }
}

//! Services beside the client: a thread per connection, as small as possible. HTTP/1.1 by hand, so that a test decides every byte.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::unix::net::UnixListener,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use crate::{
    Cert,
    http::{self, HttpConn, STUCK},
    pattern::Sha256,
    tls,
};

/// A TCP service; it stops accepting when dropped.
#[derive(Debug)]
pub struct Service {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    accepted: Arc<AtomicU64>,
}

impl Service {
    /// Serves each connection with `serve`. Errors of `serve` end its connection and nothing else.
    ///
    /// # Panics
    /// When no port can be listened on.
    #[must_use]
    pub fn tcp(serve: impl Fn(TcpStream) -> io::Result<()> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("its address");
        let (stop, accepted) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let service = Self {
            address,
            stop: Arc::clone(&stop),
            accepted: Arc::clone(&accepted),
        };
        let serve = Arc::new(serve);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if stop.load(Relaxed) {
                    return;
                }
                let (Ok(stream), serve) = (stream, Arc::clone(&serve)) else {
                    continue;
                };
                accepted.fetch_add(1, Relaxed);
                let _ = stream.set_nodelay(true);
                thread::spawn(move || serve(stream));
            }
        });
        service
    }

    /// Sends back what it gets, half-close included.
    #[must_use]
    pub fn echo() -> Self {
        Self::tcp(|stream| {
            io::copy(&mut &stream, &mut &stream)?;
            stream.shutdown(std::net::Shutdown::Write)
        })
    }

    /// An HTTP/1.1 service that keeps connections open.
    #[must_use]
    pub fn http(
        handler: impl Fn(&mut Exchange<'_>) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self::tcp(move |stream| {
            let peer = stream.peer_addr()?;
            serve_http(stream, peer, &handler)
        })
    }

    /// The same over TLS.
    #[must_use]
    pub fn https(
        cert: &Cert,
        handler: impl Fn(&mut Exchange<'_>) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let config = tls::server_config(cert);
        Self::tcp(move |stream| {
            let peer = stream.peer_addr()?;
            serve_http(tls::accept(stream, Arc::clone(&config))?, peer, &handler)
        })
    }

    /// The same on a Unix socket; it serves until the process ends.
    ///
    /// # Panics
    /// When the path cannot be listened on.
    pub fn unix_http(
        path: &Path,
        handler: impl Fn(&mut Exchange<'_>) -> io::Result<()> + Send + Sync + 'static,
    ) {
        let listener = UnixListener::bind(path).expect("the path");
        let handler = Arc::new(handler);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let handler = Arc::clone(&handler);
                thread::spawn(move || {
                    serve_http(stream, (Ipv4Addr::UNSPECIFIED, 0).into(), &*handler)
                });
            }
        });
    }

    /// Answers every request with `text`, as soon as its content is read.
    #[must_use]
    pub fn text(text: &str) -> Self {
        let text = text.to_owned();
        Self::http(move |exchange| {
            exchange.discard()?;
            exchange.respond(200, &text)
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// As `local` of a service: `SCHEME://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self, scheme: &str) -> String {
        format!("{scheme}://{}", self.address)
    }

    /// How many connections it has accepted.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Relaxed)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        // Wakes the accept loop, which closes the listener.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
    }
}

/// One request, and the way to its answer.
pub struct Exchange<'a> {
    /// Method.
    pub method: String,
    /// Target as it was sent.
    pub target: String,
    /// Headers in order; names in lower case.
    pub headers: Vec<(String, String)>,
    /// Who connected.
    pub peer: SocketAddr,
    connection: &'a mut dyn Connection,
    left: Left,
    expects: bool,
    closes: bool,
}

/// What is left of the request's content.
enum Left {
    Length(u64),
    Chunks,
}

impl Exchange<'_> {
    /// The first header of that name (lower case).
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(other, _)| other == name)
            .map(|(_, value)| value.as_str())
    }

    /// Reads the next piece of the content; `None` at its end. Sends `100 Continue` first where the visitor waits for it.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn piece(&mut self) -> io::Result<Option<Vec<u8>>> {
        if std::mem::take(&mut self.expects) {
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        match &mut self.left {
            Left::Length(0) => Ok(None),
            Left::Length(left) => {
                let piece = self
                    .connection
                    .some(usize::try_from(*left).unwrap_or(usize::MAX))?;
                *left -= piece.len() as u64;
                Ok(Some(piece))
            }
            Left::Chunks => {
                let piece = self.connection.chunk()?;
                if piece.is_none() {
                    self.left = Left::Length(0);
                }
                Ok(piece)
            }
        }
    }

    /// Reads the whole content.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn content(&mut self) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        while let Some(piece) = self.piece()? {
            content.extend_from_slice(&piece);
        }
        Ok(content)
    }

    /// Reads the whole content: its length and SHA-256.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn digest(&mut self) -> io::Result<(u64, String)> {
        let (mut length, mut digest) = (0, Sha256::new());
        while let Some(piece) = self.piece()? {
            length += piece.len() as u64;
            digest.update(&piece);
        }
        Ok((length, digest.hex()))
    }

    /// Reads the whole content and forgets it.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn discard(&mut self) -> io::Result<()> {
        while self.piece()?.is_some() {}
        Ok(())
    }

    /// Sends a whole response.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn respond(&mut self, status: u16, body: impl AsRef<[u8]>) -> io::Result<()> {
        let body = body.as_ref();
        let length = body.len();
        self.write(format!(
            "HTTP/1.1 {status} Status\r\nContent-Length: {length}\r\n\r\n"
        ))?;
        self.write(body)
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn write(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.connection.send(bytes.as_ref())
    }

    /// Closes the connection after this exchange.
    pub fn close(&mut self) {
        self.closes = true;
    }
}

trait Connection {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()>;
    fn chunk(&mut self) -> io::Result<Option<Vec<u8>>>;
    fn some(&mut self, most: usize) -> io::Result<Vec<u8>>;
}

impl<S: Read + Write> Connection for HttpConn<S> {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        HttpConn::send(self, bytes)
    }

    fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        HttpConn::chunk(self)
    }

    fn some(&mut self, most: usize) -> io::Result<Vec<u8>> {
        HttpConn::some(self, most)
    }
}

fn serve_http<S: Read + Write>(
    stream: S,
    peer: SocketAddr,
    handler: &(impl Fn(&mut Exchange<'_>) -> io::Result<()> + ?Sized),
) -> io::Result<()> {
    let mut connection = HttpConn::new(stream);
    loop {
        let (line, headers) = connection.request_head()?;
        let mut words = line.split(' ').map(str::to_owned);
        let (method, target) = (
            words.next().unwrap_or_default(),
            words.next().unwrap_or_default(),
        );
        let named = |name: &str| {
            headers
                .iter()
                .find(|(other, _)| other == name)
                .map(|(_, value)| value.to_ascii_lowercase())
        };
        let left = match named("transfer-encoding") {
            Some(coding) if coding == "chunked" => Left::Chunks,
            _ => Left::Length(
                named("content-length")
                    .and_then(|length| length.parse().ok())
                    .unwrap_or(0),
            ),
        };
        let expects = named("expect").is_some_and(|value| value == "100-continue");
        let closes = named("connection").is_some_and(|value| value == "close");
        let mut exchange = Exchange {
            method,
            target,
            headers,
            peer,
            connection: &mut connection,
            left,
            expects,
            closes,
        };
        handler(&mut exchange)?;
        if exchange.closes {
            return Ok(());
        }
        exchange.discard()?;
    }
}

/// A UDP service that sends back each datagram after a word of its own.
#[derive(Debug)]
pub struct UdpService {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
}

impl UdpService {
    /// Answers each datagram with `word` and the datagram.
    ///
    /// # Panics
    /// When no port can be had.
    #[must_use]
    pub fn echo(word: &str) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = socket.local_addr().expect("its address");
        let stop = Arc::new(AtomicBool::new(false));
        let (word, stopped) = (word.to_owned(), Arc::clone(&stop));
        thread::spawn(move || {
            let mut datagram = vec![0; 1 << 16];
            while let Ok((n, from)) = socket.recv_from(&mut datagram) {
                if stopped.load(Relaxed) {
                    return;
                }
                let _ = socket.send_to(&[word.as_bytes(), &datagram[..n]].concat(), from);
            }
        });
        Self { address, stop }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for UdpService {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Ok(socket) = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)) {
            let _ = socket.send_to(b"", self.address);
        }
    }
}

/// A connection to `address` that fails instead of hanging; see [`http::connect`].
///
/// # Errors
/// Those of connecting.
pub fn visit(address: SocketAddr) -> io::Result<TcpStream> {
    http::connect(address)
}

/// Waits until the peer closes or resets the connection; what still comes is dropped.
///
/// # Errors
/// `TimedOut` or `WouldBlock` when it does not.
pub fn wait_closed(stream: &mut TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(STUCK))?;
    let mut rest = [0; 4096];
    loop {
        match stream.read(&mut rest) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

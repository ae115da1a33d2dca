//! The load: connections of quinn on one thread and one socket, asking again as soon as an answer is there and right.
//!
//! The process says `ready` once its connections are there, begins when it is told to, and says its figures in one line; its connections
//! stay until its input ends. So whoever reads the server's counters at both moments has the requests alone.

use std::{
    cell::RefCell,
    io::Write as _,
    net::{Ipv4Addr, SocketAddr},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use quinn::{
    Connection, Endpoint, IdleTimeout, SendStream, TransportConfig, VarInt,
    crypto::rustls::QuicClientConfig,
};
use rustls::{
    DigitallySignedStruct, SignatureScheme,
    client::{
        Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    pki_types::{CertificateDer, ServerName, UnixTime},
};

use super::{
    FILLING,
    answer::{Answer, CONTROL, GET, PUT, data_head, request},
};

/// What to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Work {
    /// Bodies of `size` bytes, over connections that stay.
    Requests,
    /// A connection for each request, each with a full handshake.
    Handshakes,
    /// The same with sessions that are resumed (RFC 8446 §2.2), without early data.
    Resumptions,
    /// One body of `size` bytes.
    Download,
    /// The same in a request.
    Upload,
}

/// How much of it.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// The server.
    pub to: SocketAddr,
    /// What to ask for.
    #[arg(long)]
    pub work: Work,
    /// Connections at once.
    #[arg(long, default_value_t = 1)]
    pub connections: usize,
    /// Streams at once in each.
    #[arg(long, default_value_t = 1)]
    pub streams: usize,
    /// Bytes of a body.
    #[arg(long, default_value_t = 30)]
    pub size: u64,
    /// Seconds, but for single bodies.
    #[arg(long, default_value_t = 4)]
    pub seconds: u64,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Right answers.
    pub requests: u64,
    /// From the first request to the last answer.
    pub time: Duration,
    /// Half of the answers came within this.
    pub p50: Duration,
    /// 99 of 100 answers came within this.
    pub p99: Duration,
    /// Handshakes in which a certificate was shown.
    pub full: u64,
}

/// Works, by the rules above, over standard input and output.
///
/// # Errors
/// When any answer is not right, or any connection fails.
pub fn run(options: &Options) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let tasks = tokio::task::LocalSet::new();
    tasks.block_on(&runtime, async {
        let client = Client::new(options.to)?;
        let load = match options.work {
            Work::Requests => requests(&client, options).await?,
            Work::Handshakes | Work::Resumptions => handshakes(&client, options).await?,
            Work::Download | Work::Upload => bulk(&client, options).await?,
        };
        println!("{}", load.line());
        std::io::stdout().flush()?;
        wait_for_input();
        client.endpoint.close(NO_ERROR, b"");
        let _ = tokio::time::timeout(GOODBYE, client.endpoint.wait_idle()).await;
        Ok(())
    })
}

impl Load {
    fn line(&self) -> String {
        format!(
            "done {} {} {} {} {}",
            self.requests,
            self.time.as_nanos(),
            self.p50.as_nanos(),
            self.p99.as_nanos(),
            self.full
        )
    }

    /// Reads what [`run`] says.
    ///
    /// # Errors
    /// When it is something else.
    pub fn parse(line: &str) -> Result<Self> {
        let mut words = line.split_ascii_whitespace();
        ensure!(words.next() == Some("done"), "no figures: {line}");
        let mut number =
            || -> Result<u64> { Ok(words.next().context("a figure is missing")?.parse()?) };
        Ok(Self {
            requests: number()?,
            time: Duration::from_nanos(number()?),
            p50: Duration::from_nanos(number()?),
            p99: Duration::from_nanos(number()?),
            full: number()?,
        })
    }

    fn of(mut times: Vec<u32>, time: Duration) -> Self {
        times.sort_unstable();
        let at = |part: usize| {
            let place = (times.len() * part / 100).min(times.len().saturating_sub(1));
            Duration::from_micros(times.get(place).copied().unwrap_or_default().into())
        };
        Self {
            requests: times.len() as u64,
            time,
            p50: at(50),
            p99: at(99),
            full: 0,
        }
    }
}

/// Says `ready` and waits for the word.
fn begin() -> Result<Instant> {
    println!("ready");
    std::io::stdout().flush()?;
    wait_for_input();
    Ok(Instant::now())
}

/// The one thread may stand still here: the server has nothing to do meanwhile.
fn wait_for_input() {
    let mut line = String::new();
    let _ = std::io::stdin().read_line(&mut line);
}

async fn requests(client: &Client, options: &Options) -> Result<Load> {
    let request = Bytes::from(request(GET, &format!("/{}", options.size)));
    let mut connections = Vec::new();
    for _ in 0..options.connections {
        let (connection, control) = client.connect(client.config(false)?).await?;
        ask(&connection, &request, options.size, &mut Answer::default()).await?;
        connections.push((connection, control));
    }
    let times = Rc::new(RefCell::new(Vec::with_capacity(1 << 20)));
    let start = begin()?;
    let until = start + Duration::from_secs(options.seconds);
    let mut tasks = Vec::new();
    for (connection, _) in &connections {
        for _ in 0..options.streams {
            let (connection, request) = (connection.clone(), request.clone());
            let (times, size) = (Rc::clone(&times), options.size);
            tasks.push(tokio::task::spawn_local(async move {
                let mut answer = Answer::default();
                let mut before = Instant::now();
                while before < until {
                    ask(&connection, &request, size, &mut answer).await?;
                    let now = Instant::now();
                    times.borrow_mut().push(micros(now - before));
                    before = now;
                }
                Ok::<_, anyhow::Error>(())
            }));
        }
    }
    for task in tasks {
        task.await??;
    }
    let time = start.elapsed();
    Ok(Load::of(times.take(), time))
}

async fn handshakes(client: &Client, options: &Options) -> Result<Load> {
    let resumed = options.work == Work::Resumptions;
    let request = Bytes::from(request(GET, &format!("/{}", options.size)));
    let mut configs = Vec::new();
    for _ in 0..options.connections {
        let config = client.config(resumed)?;
        // What it takes to be known to the server.
        once(client, config.clone(), &request, options.size).await?;
        configs.push(config);
    }
    let times = Rc::new(RefCell::new(Vec::new()));
    let full_before = client.full.load(Relaxed);
    let start = begin()?;
    let until = start + Duration::from_secs(options.seconds);
    let tasks = configs.into_iter().map(|config| {
        let (client, request) = (client.clone(), request.clone());
        let (times, size) = (Rc::clone(&times), options.size);
        tokio::task::spawn_local(async move {
            let mut before = Instant::now();
            while before < until {
                once(&client, config.clone(), &request, size).await?;
                let now = Instant::now();
                times.borrow_mut().push(micros(now - before));
                before = now;
            }
            Ok::<_, anyhow::Error>(())
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await??;
    }
    let time = start.elapsed();
    let load = Load {
        full: client.full.load(Relaxed) - full_before,
        ..Load::of(times.take(), time)
    };
    let expected = if resumed { 0 } else { load.requests };
    ensure!(
        load.full == expected,
        "{} of {} handshakes were full",
        load.full,
        load.requests
    );
    Ok(load)
}

/// A connection for one request.
async fn once(
    client: &Client,
    config: quinn::ClientConfig,
    request: &Bytes,
    size: u64,
) -> Result<()> {
    let (connection, _control) = client.connect(config).await?;
    ask(&connection, request, size, &mut Answer::default()).await?;
    connection.close(NO_ERROR, b"");
    Ok(())
}

async fn bulk(client: &Client, options: &Options) -> Result<Load> {
    let (connection, _control) = client.connect(client.config(false)?).await?;
    let transfer = async |size: u64| match options.work {
        Work::Upload => upload(&connection, size).await,
        _ => {
            let request = request(GET, &format!("/{size}")).into();
            ask(&connection, &request, size, &mut Answer::default()).await
        }
    };
    // The congestion window grows before it is measured.
    transfer(WARM_UP).await?;
    let start = begin()?;
    transfer(options.size).await?;
    let time = start.elapsed();
    Ok(Load::of(vec![micros(time)], time))
}

async fn ask(
    connection: &Connection,
    request: &Bytes,
    size: u64,
    answer: &mut Answer,
) -> Result<()> {
    let (mut send, mut receive) = connection.open_bi().await?;
    send.write_chunk(request.clone()).await?;
    send.finish()?;
    answer.clear();
    while let Some(chunk) = receive.read_chunk(usize::MAX, true).await? {
        answer.take(&chunk.bytes)?;
    }
    answer.end()?;
    ensure!(
        answer.length == size && answer.text.is_empty(),
        "a body of {} bytes instead of {size}",
        answer.length
    );
    Ok(())
}

async fn upload(connection: &Connection, size: u64) -> Result<()> {
    static PORTION: [u8; 64 << 10] = [FILLING; 64 << 10];
    let (mut send, mut receive) = connection.open_bi().await?;
    let mut head = request(PUT, "/");
    head.extend(data_head(size));
    send.write_chunk(head.into()).await?;
    let mut left = size;
    while left > 0 {
        let n = left.min(PORTION.len() as u64);
        send.write_chunk(Bytes::from_static(&PORTION).slice(..n as usize))
            .await?;
        left -= n;
    }
    send.finish()?;
    let mut answer = Answer::default();
    while let Some(chunk) = receive.read_chunk(usize::MAX, true).await? {
        answer.take(&chunk.bytes)?;
    }
    answer.end()?;
    ensure!(
        answer.text == size.to_string().as_bytes(),
        "{size} bytes did not arrive"
    );
    Ok(())
}

fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

/// Connects to one server.
#[derive(Clone)]
struct Client {
    endpoint: Endpoint,
    to: SocketAddr,
    full: Arc<AtomicU64>,
    transport: Arc<TransportConfig>,
}

impl Client {
    fn new(to: SocketAddr) -> Result<Self> {
        let socket = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        net::raise_udp_buffers(&socket, BUFFER)?;
        let endpoint = Endpoint::new(
            quinn::EndpointConfig::default(),
            None,
            socket,
            Arc::new(quinn::TokioRuntime),
        )?;
        let mut transport = TransportConfig::default();
        transport
            .stream_receive_window(STREAM_WINDOW.into())
            .receive_window(WINDOW.into())
            .send_window(u64::from(WINDOW))
            .max_idle_timeout(Some(IdleTimeout::from(VarInt::from_u32(30_000))));
        Ok(Self {
            endpoint,
            to,
            full: Arc::default(),
            transport: Arc::new(transport),
        })
    }

    /// With a memory of sessions of its own, or none.
    fn config(&self, resume: bool) -> Result<quinn::ClientConfig> {
        let judge = Arc::new(Judge(Arc::clone(&self.full)));
        // Offers AES-128 first, as browsers do and as Go's servers choose whatever a client puts first.
        let mut tls = rustls::ClientConfig::builder_with_provider(net::tls::provider())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(judge)
            .with_no_client_auth();
        tls.alpn_protocols = vec![b"h3".to_vec()];
        tls.resumption = if resume {
            Resumption::in_memory_sessions(8)
        } else {
            Resumption::disabled()
        };
        let mut config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
        config.transport_config(Arc::clone(&self.transport));
        Ok(config)
    }

    /// A connection, and its control stream, which has to stay open.
    async fn connect(&self, config: quinn::ClientConfig) -> Result<(Connection, SendStream)> {
        let connecting = self.endpoint.connect_with(config, self.to, "localhost")?;
        let Ok(connection) = tokio::time::timeout(CONNECT, connecting).await else {
            bail!("no connection within {} s", CONNECT.as_secs());
        };
        let connection = connection?;
        let mut control = connection.open_uni().await?;
        control.write_all(&CONTROL).await?;
        Ok((connection, control))
    }
}

/// Trusts everybody, and counts certificates: a session that is resumed shows none.
#[derive(Debug)]
struct Judge(Arc<AtomicU64>);

impl ServerCertVerifier for Judge {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.0.fetch_add(1, Relaxed);
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}

/// `H3_NO_ERROR` (RFC 9114 §8.1).
const NO_ERROR: VarInt = VarInt::from_u32(0x100);
const CONNECT: Duration = Duration::from_secs(10);
const GOODBYE: Duration = Duration::from_secs(1);
/// Windows that limit nobody on this machine.
const STREAM_WINDOW: u32 = 8 << 20;
const WINDOW: u32 = 16 << 20;
const BUFFER: usize = 4 << 20;
const WARM_UP: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_as_they_were_said() {
        let load = Load {
            full: 3,
            ..Load::of((1..=100).collect(), Duration::from_secs(2))
        };
        assert_eq!(Load::parse(&load.line()).unwrap(), load);
        assert_eq!(load.requests, 100);
        assert_eq!(load.p99, Duration::from_micros(100));
        assert!(Load::parse("ready").is_err());
    }
}

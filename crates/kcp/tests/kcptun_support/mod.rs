//! One exchange through two kcptun ends: a service that answers with the SHA-256 of what came and with bytes of its own, a lossy
//! forwarder, and the ends.

use std::{
    fmt,
    io::{self, Write as _},
    net::{Ipv4Addr, SocketAddr},
    process::Stdio,
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use kcp::seal::Cipher;
use sha2::{Digest, Sha256};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream, UdpSocket},
    process::{Child, Command},
    task::JoinSet,
    time::timeout,
};

use crate::kcptun::{
    client::Client,
    options::{ClientOptions, ServerOptions},
    server::Server,
};

const LOOPBACK: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

/// Who is kcptun itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    TheirServer,
    TheirClient,
    /// Nobody.
    Ours,
    /// Both ends are: what kcptun does without us.
    Theirs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fec {
    None,
    Same(usize, usize),
    /// The client has 10/3, the server 20/10.
    Different,
}

pub(crate) const FECS: [Fec; 4] = [
    Fec::None,
    Fec::Same(10, 3),
    Fec::Same(20, 10),
    Fec::Different,
];

impl fmt::Display for Fec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Same(data, parity) => write!(f, "{data}/{parity}"),
            Self::Different => f.write_str("10/3, 20/10"),
        }
    }
}

impl Fec {
    fn of(self, server: bool) -> (usize, usize) {
        match self {
            Self::None => (0, 0),
            Self::Same(data, parity) => (data, parity),
            Self::Different if server => (20, 10),
            Self::Different => (10, 3),
        }
    }
}

/// The ciphers of Debian's kcptun.
pub(crate) const PEER_CIPHERS: [Cipher; 13] = [
    Cipher::Aes,
    Cipher::Aes128,
    Cipher::Aes192,
    Cipher::Salsa20,
    Cipher::Blowfish,
    Cipher::Twofish,
    Cipher::Cast5,
    Cipher::TripleDes,
    Cipher::Tea,
    Cipher::Xtea,
    Cipher::Xor,
    Cipher::Sm4,
    Cipher::None,
];

#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) peer: Peer,
    pub(crate) cipher: Cipher,
    pub(crate) fec: Fec,
    pub(crate) compress: bool,
    pub(crate) smux: u8,
    /// Datagrams lost, in percent.
    pub(crate) loss: u32,
    /// Bytes each way.
    pub(crate) bytes: u64,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let peer = match self.peer {
            Peer::TheirServer => "kcptun-server",
            Peer::TheirClient => "kcptun-client",
            Peer::Ours => "-",
            Peer::Theirs => "both",
        };
        let snappy = if self.compress { "snappy" } else { "-" };
        let (cipher, fec, smux, loss) = (self.cipher, self.fec, self.smux, self.loss);
        let mib = self.bytes as f64 / f64::from(1 << 20);
        write!(
            f,
            "{peer} | {cipher} | {fec} | {snappy} | smux {smux} | loss {loss} % | {mib} MiB"
        )
    }
}

impl Case {
    fn args(&self, name: &str, server: bool) -> Vec<String> {
        let (data, parity) = self.fec.of(server);
        // Where nothing may be lost, a window and its parity must fit the forwarder's socket buffers.
        let lossless = self.fec == Fec::Different && self.loss == 0;
        let window = if lossless { 48 } else { 512 };
        let mut args = format!(
            "{name} -l 127.0.0.1:0 -key secret -crypt {} -mode fast3 -sndwnd {window} -rcvwnd {window} -datashard {data} \
             -parityshard {parity} -smuxver {}",
            self.cipher, self.smux
        );
        if !self.compress {
            args.push_str(" -nocomp");
        }
        args.split(' ').map(str::to_owned).collect()
    }

    /// Starts the server's end; gives its UDP address.
    async fn server(&self, service: SocketAddr, running: &mut Running) -> io::Result<SocketAddr> {
        let mut args = self.args("kcptun-server", true);
        args.extend(["-t".to_owned(), service.to_string()]);
        if matches!(self.peer, Peer::TheirServer | Peer::Theirs) {
            // kcptun-server does not tell a port that the system chose. An address of one's own needs none, below the ports
            // that the system gives to others.
            static HOST: AtomicU32 = AtomicU32::new(0);
            let n = HOST.fetch_add(1, Ordering::Relaxed);
            // Neither 0 nor 255 at the end; another process has another second number.
            let (c, d) = ((n / 250 % 250) as u8, (n % 250) as u8 + 1);
            let b = (std::process::id() % 250) as u8 + 1;
            let address = SocketAddr::from(([127, b, c, d], 29_900));
            args[2] = address.to_string();
            running.child(&args, "key derivation done").await?;
            return Ok(address);
        }
        let options = ServerOptions::from_args(args).map_err(io::Error::other)?;
        let server = Server::bind(options).await?;
        let address = server.local_addr();
        running.tasks.spawn(async move {
            let _ = server.run().await;
        });
        Ok(address)
    }

    /// Starts the client's end; gives its TCP address.
    async fn client(&self, remote: SocketAddr, running: &mut Running) -> io::Result<SocketAddr> {
        let mut args = self.args("kcptun-client", false);
        args.extend(["-r".to_owned(), remote.to_string()]);
        if matches!(self.peer, Peer::TheirClient | Peer::Theirs) {
            let line = running.child(&args, "listening on: ").await?;
            return line.parse().map_err(io::Error::other);
        }
        let options = ClientOptions::from_args(args).map_err(io::Error::other)?;
        let client = Client::bind(options).await?;
        let address = client.local_addr()?;
        running.tasks.spawn(client.run());
        Ok(address)
    }

    /// Different FEC with loss, between two ends of kcptun: in some runs they damage bytes or stand still, as kcptun's decoder takes a
    /// group of the wrong size for its own (`kcptun_with_itself` counts how often). An end of ours sends it none of those, so that
    /// nothing may fail where one takes part.
    pub(crate) fn may_fail(&self) -> bool {
        self.peer == Peer::Theirs && self.fec == Fec::Different && self.loss > 0
    }

    /// Bytes differ from case to case and direction to direction, and can be compressed by half.
    fn seed(&self, direction: u64) -> u64 {
        let cipher = self.cipher.name().bytes().map(u64::from).sum::<u64>();
        cipher << 8 | u64::from(self.loss) << 4 | u64::from(self.smux) << 1 | direction
    }
}

/// What ends with the exchange.
#[derive(Default)]
struct Running {
    tasks: JoinSet<()>,
    children: Vec<Child>,
}

impl Running {
    /// Runs kcptun; gives what it says behind `word`.
    async fn child(&mut self, args: &[String], word: &str) -> io::Result<String> {
        let mut child = Command::new(&args[0])
            .args(&args[1..])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stderr = child.stderr.take().ok_or(io::ErrorKind::BrokenPipe)?;
        self.children.push(child);
        let mut lines = BufReader::new(stderr).lines();
        while let Some(line) = lines.next_line().await? {
            if let Some((_, rest)) = line.split_once(word) {
                let rest = rest.trim().to_owned();
                // It goes on talking.
                self.tasks
                    .spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
                return Ok(rest);
            }
        }
        Err(io::Error::other("kcptun ended before it listened"))
    }
}

/// Whether Debian's kcptun is installed; says so if not.
pub(crate) fn have_peer() -> bool {
    let there = ["kcptun-client", "kcptun-server"].iter().all(|name| {
        let run = std::process::Command::new(name)
            .arg("--version")
            .stdout(Stdio::null())
            .status();
        run.is_ok_and(|status| status.success())
    });
    if !there {
        // Not by `eprintln!`: the test runner hides what a passing test prints.
        let _ = writeln!(
            io::stderr(),
            "\n*** SKIPPED: there is no kcptun; nothing was checked against it ***\n"
        );
    }
    there
}

/// Sends the case's bytes each way; gives the time from the first byte to the last.
pub(crate) async fn exchange(case: &Case) -> Result<Duration, String> {
    // At 10 % loss and 64 MiB, windows of 512 packets on a busy machine.
    let patience = if case.may_fail() { 15 } else { 60 };
    let limit = Duration::from_secs(patience + case.bytes / (1 << 20) * 5);
    let mut running = Running::default();
    match timeout(limit, try_exchange(case, &mut running)).await {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(_) => Err(format!("not done in {limit:?}")),
    }
}

async fn try_exchange(case: &Case, running: &mut Running) -> io::Result<Duration> {
    let mut tcp = connect(case, running).await?;
    let began = Instant::now();
    tcp.write_all(&case.bytes.to_le_bytes()).await?;
    tcp.write_all(&case.seed(1).to_le_bytes()).await?;
    let sent = send(&mut tcp, case.seed(0), case.bytes).await?;
    let mut theirs = [0; 32];
    tcp.read_exact(&mut theirs).await?;
    if theirs != sent {
        return Err(io::Error::other("what the service received differs"));
    }
    let received = receive(&mut tcp, case.bytes).await?;
    tcp.read_exact(&mut theirs).await?;
    if theirs != received {
        return Err(io::Error::other("what came from the service differs"));
    }
    Ok(began.elapsed())
}

/// Starts all that a case needs; gives a connection to the service through it.
async fn connect(case: &Case, running: &mut Running) -> io::Result<TcpStream> {
    let listener = TcpListener::bind(LOOPBACK).await?;
    let service = listener.local_addr()?;
    running.tasks.spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            tokio::spawn(serve(tcp));
        }
    });
    let server = case.server(service, running).await?;
    let forwarder = forwarder(server, case.loss, running).await?;
    let client = case.client(forwarder, running).await?;
    TcpStream::connect(client).await
}

/// The service: a length, a seed and so many bytes come; their SHA-256, as many bytes by the seed, and the SHA-256 of those go.
async fn serve(mut tcp: TcpStream) -> io::Result<()> {
    let bytes = tcp.read_u64_le().await?;
    let seed = tcp.read_u64_le().await?;
    let received = receive(&mut tcp, bytes).await?;
    tcp.write_all(&received).await?;
    let sent = send(&mut tcp, seed, bytes).await?;
    tcp.write_all(&sent).await?;
    tcp.shutdown().await?;
    // Closing with bytes unread would reset the connection.
    tcp.read(&mut [0]).await.map(drop)
}

/// Sends generated bytes; gives their SHA-256.
async fn send(tcp: &mut TcpStream, seed: u64, bytes: u64) -> io::Result<[u8; 32]> {
    let mut random = testkit::Random::new(seed);
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    let mut left = bytes;
    while left > 0 {
        for word in buffer.chunks_exact_mut(16) {
            // Every other word repeats.
            word[..8].copy_from_slice(&random.number().to_le_bytes());
        }
        let n = left.min(buffer.len() as u64) as usize;
        hash.update(&buffer[..n]);
        tcp.write_all(&buffer[..n]).await?;
        left -= n as u64;
    }
    Ok(hash.finalize().into())
}

/// Takes so many bytes; gives their SHA-256.
async fn receive(tcp: &mut TcpStream, bytes: u64) -> io::Result<[u8; 32]> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    let mut left = bytes;
    while left > 0 {
        let n = left.min(buffer.len() as u64) as usize;
        let n = tcp.read(&mut buffer[..n]).await?;
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        hash.update(&buffer[..n]);
        left -= n as u64;
    }
    Ok(hash.finalize().into())
}

/// An answer that is longer than any window, to a question that is ended by half-close.
pub(crate) async fn half_close(case: &Case) {
    let listener = TcpListener::bind(LOOPBACK).await.expect("a port");
    let service = listener.local_addr().expect("bound");
    let mut running = Running::default();
    running.tasks.spawn(async move {
        let (mut tcp, _) = listener.accept().await.expect("a connection");
        let mut question = Vec::new();
        tcp.read_to_end(&mut question).await.expect("read");
        assert_eq!(question, b"question");
        tcp.write_all(&vec![42; 3 << 20]).await.expect("written");
    });
    let server = case.server(service, &mut running).await.expect("a server");
    let client = case.client(server, &mut running).await.expect("a client");
    let mut tcp = TcpStream::connect(client).await.expect("connected");
    tcp.write_all(b"question").await.expect("written");
    tcp.shutdown().await.expect("half-closed");
    let mut answer = Vec::new();
    timeout(Duration::from_secs(60), tcp.read_to_end(&mut answer))
        .await
        .expect("in time")
        .expect("read");
    assert_eq!(answer, vec![42; 3 << 20]);
}

/// Forwards between one client and `server`, losing datagrams of both directions. The seed is fixed; which datagram is lost still
/// depends on timing.
async fn forwarder(
    server: SocketAddr,
    loss_percent: u32,
    running: &mut Running,
) -> io::Result<SocketAddr> {
    let front = UdpSocket::bind(LOOPBACK).await?;
    let back = UdpSocket::bind(LOOPBACK).await?;
    let address = front.local_addr()?;
    running.tasks.spawn(async move {
        let (mut client, mut random) = (None, 0x1234_5678_u32);
        let (mut outward, mut inward) = (vec![0; 2048], vec![0; 2048]);
        loop {
            let (length, from_client) = tokio::select! {
                Ok((length, from)) = front.recv_from(&mut outward) => { client = Some(from); (length, true) }
                Ok((length, _)) = back.recv_from(&mut inward) => (length, false),
                else => return,
            };
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if (random >> 16) % 100 < loss_percent {
                continue;
            }
            // A full buffer loses datagrams as well.
            let _ = match (from_client, client) {
                (true, _) => back.send_to(&outward[..length], server).await,
                (false, Some(client)) => front.send_to(&inward[..length], client).await,
                (false, None) => continue,
            };
        }
    });
    Ok(address)
}

/// Results by cipher, FEC and loss: how many combinations of the rest passed, and their median time.
pub(crate) fn table(results: &[(Case, Result<Duration, String>)]) -> String {
    let mut lines = vec![
        "| cipher | FEC | loss % | MiB each way | passed | median s | slowest s | tolerated |"
            .to_owned(),
        "|---|---|---:|---:|---:|---:|---:|---:|".to_owned(),
    ];
    for cipher in PEER_CIPHERS {
        for fec in FECS {
            for loss in [0, 10] {
                let group: Vec<_> = results
                    .iter()
                    .filter(|(case, _)| (case.cipher, case.fec, case.loss) == (cipher, fec, loss))
                    .collect();
                let mut times: Vec<f64> = group
                    .iter()
                    .filter_map(|(_, result)| result.as_ref().ok())
                    .map(Duration::as_secs_f64)
                    .collect();
                times.sort_by(f64::total_cmp);
                let Some((case, _)) = group.first() else {
                    continue;
                };
                let mib = case.bytes >> 20;
                let median = times.get(times.len() / 2).copied().unwrap_or(f64::NAN);
                let slowest = times.last().copied().unwrap_or(f64::NAN);
                let (passed, of) = (times.len(), group.len());
                let excused = group
                    .iter()
                    .filter(|(case, result)| result.is_err() && case.may_fail())
                    .count();
                lines.push(format!(
                    "| {cipher} | {fec} | {loss} | {mib} | {passed} of {of} | {median:.2} | {slowest:.2} | {excused} |"
                ));
            }
        }
    }
    lines.join("\n") + "\n"
}

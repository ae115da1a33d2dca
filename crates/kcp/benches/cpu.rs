//! CPU beside kcp-go: FEC, ciphers, timers, and whole sessions over loopback, in turns with the Go library in one run.
//!
//! `testing/interop/kcp/cpu` does the same work with kcp-go; this program tells it, over its standard input, what to do and
//! for how long. A workload runs on one side, then on the other, round after round; the table has the medians and the
//! median of the rounds' ratios. `--rounds N`, `--millis N` and `--only NAME` change what is done. Loads both cores for
//! rounds × 2 × workloads × milliseconds.

use std::{
    hint::black_box,
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use kcp::{
    Config, Counters, Mode, Pipeline, Shards, Time,
    arq::Conv,
    fec::{Decoder, Encoder},
    seal::{Cipher, Nonces, Seal},
    udp::{Listener, Options, Session},
};
use testkit::Go;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::oneshot,
};

type Failure = Box<dyn std::error::Error>;

const SIZE: usize = 1500;
/// Datagrams sealed together, as a session under load does.
const BATCH: usize = 16;

fn main() -> Result<(), Failure> {
    let options = Arguments::parse()?;
    let mut peer = Peer::start()?;
    println!("{}\n", heading(&options));
    println!(
        "| workload | unit | gt | kcp-go 5.6.72 | gt / kcp-go, median (min to max) | wanted |"
    );
    println!("|---|---|---|---|---|---|");
    for (name, unit, wanted) in workloads() {
        if options
            .only
            .as_ref()
            .is_some_and(|only| !name.contains(only.as_str()))
        {
            continue;
        }
        let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..options.rounds {
            let (a, b) = (
                run(&name, options.length)?,
                peer.run(&name, options.length)?,
            );
            ours.push(a);
            theirs.push(b);
            ratios.push(a / b);
        }
        for values in [&mut ours, &mut theirs, &mut ratios] {
            values.sort_by(f64::total_cmp);
        }
        let median = |values: &[f64]| values[values.len() / 2];
        println!(
            "| {name} | {unit} | {:.0} | {:.0} | {:.2} ({:.2} to {:.2}) | {wanted} |",
            median(&ours),
            median(&theirs),
            median(&ratios),
            ratios[0],
            ratios[ratios.len() - 1],
        );
    }
    Ok(())
}

struct Arguments {
    rounds: usize,
    length: Duration,
    only: Option<String>,
}

impl Arguments {
    fn parse() -> Result<Self, Failure> {
        let mut parsed = Self {
            rounds: 7,
            length: Duration::from_millis(1000),
            only: None,
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or("a value is missing");
            match word.as_str() {
                "--rounds" => parsed.rounds = value()?.parse::<usize>()?.max(1),
                "--millis" => parsed.length = Duration::from_millis(value()?.parse()?),
                "--only" => parsed.only = Some(value()?),
                // Given by `cargo bench`.
                "--bench" => {}
                other => return Err(format!("unknown argument {other}").into()),
            }
        }
        Ok(parsed)
    }
}

fn heading(options: &Arguments) -> String {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split(':').nth(1));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!(
        "# KCP beside kcp-go: CPU\n\n\
         `make bench-kcp KCP_ROUNDS={} KCP_MILLIS={}`: so many rounds of so many milliseconds each, in turns: gt, kcp-go, gt, \
         kcp-go.\nMB/s are 10^6 bytes of packets or payload, counted once, and for `echo` and `sink` at the receiver. \
         `seal` is sealing and opening of\npackets of 1500 bytes, here {BATCH} at a time; `flush` is a look at the timers with \
         1024 segments in flight, none of them due. All but `echo` and `sink` are per second of CPU time.\n\nCPU:{}, {cores} cores. Load averages at the start: {}",
        options.rounds,
        options.length.as_millis(),
        model.unwrap_or(" unknown"),
        read("/proc/loadavg").trim(),
    )
}

/// Name, unit, and the ratio that we want.
fn workloads() -> Vec<(String, &'static str, &'static str)> {
    let mut all = vec![
        ("fec-encode".to_owned(), "MB/s", "≥ 1.3"),
        ("fec-decode".to_owned(), "MB/s", "≥ 3"),
        ("flush".to_owned(), "per s", "≥ 10"),
    ];
    for cipher in Cipher::ALL {
        let wanted = match cipher {
            Cipher::Null => continue,
            Cipher::Aes128 => "≥ 3",
            _ => "≥ 1",
        };
        all.push((format!("seal-{cipher}"), "MB/s", wanted));
    }
    all.push(("echo".to_owned(), "MB/s", "≥ 2"));
    all.push(("sink".to_owned(), "MB/s", "≥ 2"));
    all
}

fn run(name: &str, length: Duration) -> Result<f64, Failure> {
    match name {
        "fec-encode" => fec_encode(length),
        "fec-decode" => fec_decode(length),
        "flush" => flush(length),
        "echo" => transfer(4096, true, length),
        "sink" => transfer(65_536, false, length),
        other => seal(
            other.strip_prefix("seal-").unwrap_or(other).parse()?,
            length,
        ),
    }
}

/// CPU time of this thread in seconds, which does not count what others on the machine take; without it, the clock.
fn cpu_time(start: Instant) -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = stat.split(' ').next().and_then(|field| field.parse().ok());
    nanos.map_or_else(|| start.elapsed().as_secs_f64(), |nanos: f64| nanos / 1e9)
}

/// Calls `work`, which does so many units, until the time is over, and gives units per second of CPU.
fn repeat(length: Duration, units: f64, mut work: impl FnMut()) -> f64 {
    let start = Instant::now();
    while start.elapsed() < length / 10 {
        work();
    }
    let mut count = 0_u32;
    let start = Instant::now();
    let before = cpu_time(start);
    while start.elapsed() < length {
        for _ in 0..8 {
            work();
        }
        count += 8;
    }
    f64::from(count) * units / (cpu_time(start) - before)
}

fn fec_encode(length: Duration) -> Result<f64, Failure> {
    let mut encoder = Encoder::new(Shards::new(10, 3)?);
    let (mut packet, mut parity) = ([7; SIZE], [0; SIZE]);
    Ok(repeat(length, SIZE as f64 / 1e6, || {
        encoder.seal(Time::ZERO, &mut packet);
        while let Some(length) = encoder.parity_len() {
            encoder.parity(&mut parity[..length]);
        }
    }))
}

fn fec_decode(length: Duration) -> Result<f64, Failure> {
    let shards = Shards::new(10, 3)?;
    let mut encoder = Encoder::new(shards);
    let mut packets = Vec::new();
    for i in 0..64 * shards.data() {
        let mut packet: Vec<u8> = (0..SIZE).map(|j| (i * 7 + j) as u8).collect();
        encoder.seal(Time::ZERO, &mut packet);
        packets.push(packet);
        while let Some(length) = encoder.parity_len() {
            let mut parity = vec![0; length];
            encoder.parity(&mut parity);
            packets.push(parity);
        }
    }
    let mut decoder = Decoder::new(shards);
    let mut counters = Counters::default();
    let (mut lost, mut number, mut at) = (1_u32, 0_u32, 0);
    Ok(repeat(length, SIZE as f64 / 1e6, || {
        let packet = &mut packets[at];
        packet[..4].copy_from_slice(&number.to_le_bytes());
        number += 1;
        at = (at + 1) % (64 * shards.total());
        lost = lost.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if !(lost >> 16).is_multiple_of(13) {
            decoder.handle(packet, &mut counters);
            while let Some(recovered) = decoder.pop() {
                black_box(recovered);
            }
        }
    }))
}

fn seal(cipher: Cipher, length: Duration) -> Result<f64, Failure> {
    let key: Vec<u8> = (0..32).collect();
    let seal = Seal::new(cipher, &key)?;
    let mut nonces = Nonces::new([7; 32]);
    let mut packets = vec![0; BATCH * SIZE];
    Ok(repeat(length, (BATCH * SIZE) as f64 / 1e6, || {
        seal.seal_batch(&mut packets, SIZE, &mut nonces);
        for packet in packets.chunks_mut(SIZE) {
            assert!(seal.open(packet).is_ok(), "we sealed it");
        }
    }))
}

/// What a deadline costs while 1024 segments are in flight and none of them is due.
fn flush(length: Duration) -> Result<f64, Failure> {
    let config = Config {
        mode: Mode::FAST3,
        send_window: 1024,
        recv_window: 2048,
        ..Config::default()
    };
    let null = Arc::new(Seal::new(Cipher::Null, &[])?);
    let mut a = Pipeline::new(Conv(1), config.clone(), Arc::clone(&null), [0; 32])?;
    let mut b = Pipeline::new(Conv(1), config, null, [0; 32])?;
    let mut datagram = [0; SIZE];
    // One exchange tells the window.
    let mut now = Time::from_millis(1);
    a.write(now, b"x")?;
    while let Some(length) = a.poll_transmit(now, &mut datagram) {
        b.handle_datagram(now, &mut datagram[..length])?;
    }
    now = Time::from_millis(20_000);
    while let Some(length) = b.poll_transmit(now, &mut datagram) {
        a.handle_datagram(now, &mut datagram[..length])?;
    }
    while a.write(now, &[0; 1376])? > 0 {}
    while a.poll_transmit(now, &mut datagram).is_some() {}
    assert_eq!(a.counters().ring_buffer_snd_buffer, 1024);
    let far = a.poll_timeout().ok_or("something is in flight")?;
    Ok(repeat(length, 1.0, || {
        // The clock creeps up to the first timeout and never passes it.
        now = Time::from_micros(
            now.as_micros() + (far.as_micros() - now.as_micros()).saturating_sub(1) / 1_000_000,
        );
        a.handle_timeout(now);
        assert!(
            a.poll_transmit(now, &mut datagram).is_none(),
            "nothing is due"
        );
        black_box(a.poll_timeout());
    }))
}

/// Writes messages of so many bytes as fast as it can; counted at the receiver.
fn transfer(message: usize, echo: bool, length: Duration) -> Result<f64, Failure> {
    let (cipher, fec) = if echo {
        (Cipher::Salsa20, Some(Shards::new(10, 3)?))
    } else {
        (Cipher::Null, None)
    };
    let key: Vec<u8> = (0..32).collect();
    let config = Config {
        mode: Mode::FAST3,
        send_window: 1024,
        recv_window: 1024,
        mtu: 1400,
        fec,
        ..Config::default()
    };
    let options = Options::new(config, Arc::new(Seal::new(cipher, &key)?));
    let (address_to, address) = std::sync::mpsc::channel();
    let (speed_to, speed) = oneshot::channel();
    let (stop, stopped) = oneshot::channel::<()>();
    let server = options.clone();
    // One thread per end, as an application has.
    let serving = std::thread::spawn(move || -> std::io::Result<()> {
        runtime()?.block_on(async move {
            let mut listener = Listener::bind(([127, 0, 0, 1], 0).into(), server)?;
            // The other end waits for it.
            let _ = address_to.send(listener.local_addr());
            let mut session = listener.accept().await?;
            let serve = async {
                if echo {
                    return echo_all(&mut session).await;
                }
                let _ = speed_to.send(count(&mut session, length).await?);
                std::future::pending().await
            };
            tokio::select! {
                failed = serve => failed,
                _ = stopped => Ok(()),
            }
        })
    });
    let address = address.recv()?;
    let speed = runtime()?.block_on(async move {
        let session = Session::connect(address, options)?;
        let (mut reader, mut writer) = tokio::io::split(session);
        let writing = async {
            let out = vec![0; message];
            loop {
                if let Err(error) = writer.write_all(&out).await {
                    break std::io::Result::<f64>::Err(error);
                }
            }
        };
        let counting = async {
            if echo {
                count(&mut reader, length).await
            } else {
                speed.await.map_err(std::io::Error::other)
            }
        };
        tokio::select! {
            speed = counting => speed,
            failed = writing => failed,
        }
    })?;
    // Nobody listens any more only if it has failed, which joining tells.
    let _ = stop.send(());
    serving.join().map_err(|_| "the other end panicked")??;
    Ok(speed)
}

async fn echo_all(session: &mut Session) -> std::io::Result<()> {
    let mut buffer = vec![0; 512 * 1024];
    loop {
        let count = session.read(&mut buffer).await?;
        session.write_all(&buffer[..count]).await?;
    }
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

async fn count(from: &mut (impl AsyncReadExt + Unpin), length: Duration) -> std::io::Result<f64> {
    let mut buffer = vec![0; 1 << 20];
    let warm = Instant::now() + length / 10;
    let (mut start, mut bytes) = (warm, 0);
    loop {
        let count = from.read(&mut buffer).await?;
        let now = Instant::now();
        if now < warm {
            start = now;
            continue;
        }
        bytes += count;
        let passed = now.saturating_duration_since(start);
        if passed > length {
            return Ok(bytes as f64 / 1e6 / passed.as_secs_f64());
        }
    }
}

/// The Go side.
struct Peer {
    child: Child,
    orders: ChildStdin,
    results: BufReader<ChildStdout>,
}

impl Peer {
    fn start() -> Result<Self, Failure> {
        let go = Go {
            module: "kcp",
            package: "./cpu",
            flags: &[],
        };
        let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("kcp-cpu-5.6.72");
        go.build(&program)?;
        let mut child = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let orders = child.stdin.take().ok_or("no standard input")?;
        let results = BufReader::new(child.stdout.take().ok_or("no standard output")?);
        Ok(Self {
            child,
            orders,
            results,
        })
    }

    fn run(&mut self, name: &str, length: Duration) -> Result<f64, Failure> {
        writeln!(self.orders, "{name} {}", length.as_millis())?;
        let mut line = String::new();
        self.results.read_line(&mut line)?;
        Ok(line.trim().parse()?)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

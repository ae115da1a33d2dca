//! Many sessions at one listener: memory for each, CPU while they are idle and while each gets two small packets a second,
//! and memory after many sessions have come and gone. Beside it kcp-go's listener with the same clients, which are ours.
//!
//! `--sessions N` (10000), `--seconds N` (10) of each measurement, `--cycles N` (20000), `--rounds N` (3) in turns, `--only gt`. Needs a
//! limit of open files above the number of sessions: every client has a socket, as in life.

use std::{
    io::{BufRead, BufReader, Write},
    net::SocketAddr,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use kcp::{
    Config, Mode,
    seal::{Cipher, Seal},
    udp::{Listener, Options, Session},
};
use testkit::Go;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

type Failure = Box<dyn std::error::Error>;

/// Ticks of `/proc/PID/stat`, per second: fixed on Linux.
const TICKS: f64 = 100.0;
const MESSAGE: [u8; 64] = [7; 64];

fn main() -> Result<(), Failure> {
    let mut numbers = [
        ("--sessions", 10_000),
        ("--seconds", 10),
        ("--cycles", 20_000),
        ("--rounds", 3),
    ];
    let mut only = String::new();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        if word == "--serve" {
            return runtime()?.block_on(serve());
        }
        if word == "--only" {
            only = words.next().ok_or("a name is missing")?;
            continue;
        }
        if let Some((_, number)) = numbers.iter_mut().find(|(name, _)| *name == word) {
            *number = words.next().ok_or("a number is missing")?.parse()?;
        } else if word != "--bench" {
            return Err(format!("unknown argument {word}").into());
        }
    }
    let [sessions, seconds, cycles, rounds] = numbers.map(|(_, number)| number);
    type Start = fn() -> Result<Server, Failure>;
    let both: [(&str, Start); 2] = [("gt", ours), ("kcp-go 5.6.72", theirs)];
    let chosen: Vec<_> = both
        .into_iter()
        .filter(|(name, _)| name.contains(&only))
        .collect();
    let mut rows: Vec<Vec<Row>> = vec![Vec::new(); chosen.len()];
    for _ in 0..rounds {
        for ((_, start), rows) in chosen.iter().zip(&mut rows) {
            let length = Duration::from_secs(seconds);
            rows.push(runtime()?.block_on(measure(start()?, sessions, length, cycles))?);
        }
    }
    report(
        &chosen.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
        &rows,
    );
    Ok(())
}

/// What one round gave of one listener: KiB per session, CPU in per cent while idle and while busy, switches of context per packet
/// while busy, and KiB kept per session that came and went.
type Row = [f64; 5];

/// Medians of the rounds; and of the busy CPU the rounds' ratios.
fn report(names: &[&str], rows: &[Vec<Row>]) {
    println!(
        "| listener | KiB per session | idle CPU % | CPU % with 2 packets/s each | sleeps per packet | KiB kept per session that came and went |"
    );
    println!("|---|---|---|---|---|---|");
    for (name, rows) in names.iter().zip(rows) {
        let cells = [0, 1, 2, 3, 4].map(|i| spread(rows.iter().map(|row| row[i])));
        println!("| {name} | {} |", cells.join(" | "));
    }
    if let [ours, theirs] = rows {
        let ratios = ours.iter().zip(theirs).map(|(a, b)| a[2] / b[2]);
        println!(
            "\nCPU of gt / kcp-go's with 2 packets/s each, by rounds: {}.",
            spread(ratios)
        );
    }
}

/// Median, and least and most.
fn spread(values: impl Iterator<Item = f64>) -> String {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    match values[..] {
        [] => "-".to_owned(),
        [one] => format!("{one:.2}"),
        [least, .., most] => {
            format!("{:.2} ({least:.2} to {most:.2})", values[values.len() / 2])
        }
    }
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

fn options() -> Result<Options, Failure> {
    let config = Config {
        mode: Mode::FAST2,
        send_window: 128,
        recv_window: 512,
        ..Config::default()
    };
    let key: Vec<u8> = (0..32).collect();
    Ok(Options {
        linger: Duration::from_millis(200),
        backlog: 4096,
        ..Options::new(config, Arc::new(Seal::new(Cipher::Aes128, &key)?))
    })
}

/// The listener, in a process of its own: says its port, reads all sessions, and gives up those that say 2.
async fn serve() -> Result<(), Failure> {
    let mut listener = Listener::bind(([127, 0, 0, 1], 0).into(), options()?)?;
    println!("{}", listener.local_addr().port());
    std::io::stdout().flush()?;
    loop {
        let mut session = listener.accept().await?;
        tokio::spawn(async move {
            let mut buffer = [0; 64];
            while let Ok(count) = session.read(&mut buffer).await {
                if buffer[..count].contains(&2) {
                    break;
                }
            }
        });
    }
}

async fn measure(
    server: Server,
    sessions: u64,
    length: Duration,
    cycles: u64,
) -> Result<Row, Failure> {
    let address: SocketAddr = ([127, 0, 0, 1], server.port).into();
    let empty = server.memory()?;
    let mut clients = Vec::new();
    for i in 0..sessions {
        let mut session = Session::connect(address, options()?)?;
        session.write_all(&MESSAGE).await?;
        clients.push(session);
        if i % 64 == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    // Acknowledged: the listener has them all.
    for session in &mut clients {
        while session.counters().ring_buffer_snd_buffer > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    // Long enough to give memory back.
    tokio::time::sleep(Duration::from_secs(12)).await;
    let each = server.memory()?.saturating_sub(empty) as f64 / sessions as f64;
    let idle = server
        .cpu_over(length, async { tokio::time::sleep(length).await })
        .await?;
    let switches = server.switches()?;
    let busy = server
        .cpu_over(length, async {
            let steps = u32::try_from(length.as_millis() / 10).unwrap_or(1);
            let mut timer = tokio::time::interval(length / steps);
            let per_step = (sessions as f64 * 0.02).ceil() as usize;
            let mut next = 0;
            for _ in 0..steps {
                timer.tick().await;
                for _ in 0..per_step {
                    let at = next % clients.len();
                    next += 1;
                    // A session that failed shows in nothing else than less work, so it must not.
                    clients[at]
                        .write_all(&MESSAGE)
                        .await
                        .expect("a live session");
                }
            }
        })
        .await?;
    let packets = sessions as f64 * 2.0 * length.as_secs_f64();
    let sleeps = (server.switches()? - switches) as f64 / packets;
    drop(clients);
    let before = server.memory()?;
    for _ in 0..cycles {
        let mut session = Session::connect(address, options()?)?;
        session.write_all(&[2]).await?;
        // KCP has no end of session: when the last acknowledgement is lost, nobody is there to repeat it.
        session.set_write_deadline(Some(tokio::time::Instant::now() + Duration::from_secs(1)));
        let _ = session.shutdown().await;
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    // Without cycles there is nothing to keep.
    let kept = match cycles {
        0 => 0.0,
        _ => server.memory()?.saturating_sub(before) as f64 / cycles as f64,
    };
    Ok([each, idle, busy, sleeps, kept])
}

struct Server {
    child: Child,
    port: u16,
}

fn ours() -> Result<Server, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--serve");
    Server::start(command)
}

fn theirs() -> Result<Server, Failure> {
    let go = Go {
        module: "kcp",
        package: "./cpu",
        flags: &[],
    };
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("kcp-cpu-5.6.72");
    go.build(&program)?;
    let mut command = Command::new(program);
    command.arg("serve");
    Server::start(command)
}

impl Server {
    fn start(mut command: Command) -> Result<Self, Failure> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let out = child.stdout.take().ok_or("no standard output")?;
        BufReader::new(out).read_line(&mut line)?;
        let port = line.trim().parse()?;
        Ok(Self { child, port })
    }

    /// Resident memory in KiB.
    fn memory(&self) -> Result<u64, Failure> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().next());
        Ok(number.ok_or("no resident memory")?.parse()?)
    }

    /// How often its threads have gone to sleep so far.
    fn switches(&self) -> Result<u64, Failure> {
        let mut sum = 0;
        for thread in std::fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let status = std::fs::read_to_string(thread?.path().join("status"))?;
            let number = status
                .lines()
                .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            sum += number.ok_or("no switches")?.trim().parse::<u64>()?;
        }
        Ok(sum)
    }

    /// User and system time so far, in seconds.
    fn cpu(&self) -> Result<f64, Failure> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        // The name, in brackets, is the second field; user and system time are the 14th and 15th.
        let (_, fields) = stat.rsplit_once(')').ok_or("no fields")?;
        let mut fields = fields.split_whitespace().skip(11);
        let mut ticks = || fields.next().unwrap_or("0").parse::<f64>();
        Ok((ticks()? + ticks()?) / TICKS)
    }

    /// CPU in per cent of a core while `work` is done.
    async fn cpu_over(
        &self,
        length: Duration,
        work: impl Future<Output = ()>,
    ) -> Result<f64, Failure> {
        let before = self.cpu()?;
        work.await;
        Ok((self.cpu()? - before) / length.as_secs_f64() * 100.0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

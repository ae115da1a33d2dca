//! One case: the bridge, the processes at its ends, and what is measured.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use e2e::{Client, Server, ServerSpec, Transport, netns::inside};
use netem::{Filter, Options, Plan, TunBridge, TunOptions};

use crate::{
    Settings,
    cases::{Case, HTTPS, KCP, Phase, SCHEMES},
    watch::Watch,
};

/// What a phase showed.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    /// The transport of the newest link.
    pub(crate) chosen: String,
    /// From the phase's beginning, the client's start in the first, to the first link.
    pub(crate) first: Option<Duration>,
    /// The same to the first link of the transport that was chosen in the end.
    pub(crate) settled: Option<Duration>,
    pub(crate) moves: usize,
    /// Of the last move.
    pub(crate) reason: Option<String>,
    /// Mbit/s in each round: of the client that chooses, then of each transport.
    pub(crate) goodputs: Vec<Vec<f64>>,
}

/// Runs it.
pub(crate) fn run(case: &Case, settings: Settings) -> anyhow::Result<Vec<Measured>> {
    let lab = Lab::new(case, settings)?;
    lab.bridge
        .running
        .filter(&Filter::new(case.phases[0].rules.clone()));
    let fixed: Vec<Client> = SCHEMES
        .iter()
        .map(|scheme| lab.client(scheme, &lab.remote(scheme)))
        .collect();
    let ways: Vec<String> = SCHEMES
        .iter()
        .map(|scheme| format!("\"{}\"", lab.remote(scheme)))
        .collect();
    let started = Instant::now();
    let auto = lab.client("auto", &format!("[{}]", ways.join(", ")));
    let mut watch = Watch::new(&auto);
    let mut measured = Vec::new();
    for (number, phase) in case.phases.iter().enumerate() {
        let began = if number == 0 {
            started
        } else {
            let filter = Filter::new(phase.rules.clone());
            lab.bridge.running.filter(&filter);
            Instant::now()
        };
        let mut result = lab.settle(&mut watch, phase, began);
        if phase.measured {
            let clients = std::iter::once(&auto).chain(&fixed);
            result.goodputs = lab.goodputs(&clients.collect::<Vec<_>>(), settings);
        }
        // Moves while goodput was measured count too: it should have settled.
        watch.look();
        let (moves, reason) = watch.moves_since(began);
        (result.moves, result.reason) = (moves, reason.map(str::to_owned));
        measured.push(result);
    }
    if settings.log {
        eprintln!("{}", auto.process.log());
    }
    Ok(measured)
}

/// A bridge with a server on its right side, and a service on its left that sends without end.
pub(crate) struct Lab {
    bridge: TunBridge,
    pub(crate) left: String,
    pub(crate) right: String,
    pub(crate) left_address: Ipv4Addr,
    pub(crate) server: Server,
    source: SocketAddr,
}

impl Lab {
    pub(crate) fn new(case: &Case, settings: Settings) -> anyhow::Result<Self> {
        let plan = Plan::parse(case.path).context("the path")?;
        let options = TunOptions::new(Options {
            up: plan.clone(),
            down: plan,
            seed: settings.seed,
            spin: Duration::ZERO,
        });
        let bridge = TunBridge::start(&options)?;
        for mut command in [bridge.left("sysctl"), bridge.right("sysctl")] {
            // What one flow has learned about the path must not help the next.
            let status = command
                .args(["-q", "-w", "net.ipv4.tcp_no_metrics_save=1"])
                .status()?;
            anyhow::ensure!(status.success(), "sysctl failed");
        }
        let (left, right) = (options.left.namespace, options.right.namespace);
        let secure = format!("\"{}:{HTTPS}\"", options.right.address);
        let mut spec = ServerSpec::new()
            .option("tlsAddr", &secure)
            .option("quicAddr", &secure)
            .option("kcpAddr", format!("\"{}:{KCP}\"", options.right.address))
            .option("tcpRange", "1024-65535")
            .option("workers", 1)
            .user("auto");
        for scheme in SCHEMES {
            spec = spec.user(scheme);
        }
        let server = inside(&right, || spec.start());
        let source = inside(&left, source)?;
        Ok(Self {
            bridge,
            left,
            right,
            left_address: options.left.address,
            server,
            source,
        })
    }

    pub(crate) fn remote(&self, scheme: &str) -> String {
        let address = match scheme {
            "kcp" => self.server.kcp(),
            "quic" => self.server.quic(),
            _ => self.server.https(),
        };
        format!("{scheme}://{address}")
    }

    fn client(&self, id: &str, remote: &str) -> Client {
        let spec = self
            .server
            .client(Transport::Tls, id)
            .option("remote", remote)
            .option("remoteChoice", "best")
            .option("remoteConnections", 1)
            .service(
                format!("tcp://{}", self.source),
                "name: source, remoteTCPRandom: true",
            );
        inside(&self.left, || spec.start())
    }

    /// Keeps the client that chooses busy until it has done what it should and stays there, or does not within the time there is.
    fn settle(&self, watch: &mut Watch<'_>, phase: &Phase, began: Instant) -> Measured {
        let stop = AtomicBool::new(false);
        let client = watch.client();
        thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    let Some(address) = self.address(client) else {
                        thread::sleep(TICK);
                        continue;
                    };
                    let short = Duration::from_millis(2500);
                    self.download(address, Duration::ZERO, short, &stop);
                }
            });
            loop {
                thread::sleep(TICK);
                watch.look();
                let right = |scheme: &str| phase.expected.contains(&scheme);
                let there = watch.link().is_some_and(|link| right(&link.scheme));
                let quiet = watch.quiet(began);
                if there && quiet >= STAYS || began.elapsed() >= PATIENCE {
                    break;
                }
            }
            stop.store(true, Relaxed);
        });
        let chosen = watch.link().map(|link| link.scheme.clone());
        let first = watch.first_since(began);
        let chosen = chosen.unwrap_or_default();
        Measured {
            first: first.map(|link| link.at.duration_since(began)),
            settled: watch
                .last_change(began)
                .map(|link| link.at.duration_since(began)),
            chosen,
            ..Measured::default()
        }
    }

    /// One download after the other, through each client in turn.
    fn goodputs(&self, clients: &[&Client], settings: Settings) -> Vec<Vec<f64>> {
        let mut goodputs = vec![Vec::new(); clients.len()];
        for _ in 0..settings.rounds {
            for (client, goodputs) in clients.iter().zip(&mut goodputs) {
                let never = AtomicBool::new(false);
                let rate = self.address(client).map_or(0.0, |address| {
                    self.download(address, WARM, settings.time, &never)
                });
                goodputs.push(rate);
                // What is still on its way must not meet the next one.
                thread::sleep(Duration::from_millis(400));
            }
        }
        goodputs
    }

    /// Where visitors find a client's service; `None` while it was never up.
    fn address(&self, client: &Client) -> Option<SocketAddr> {
        let up = client.process.count_log(&["a service is up"]) > 0;
        up.then(|| self.server.port(client.port_of("source")))
    }

    /// Mbit/s that a visitor gets in `time` after `warm`. Nothing at all ends it early.
    fn download(
        &self,
        address: SocketAddr,
        warm: Duration,
        time: Duration,
        stop: &AtomicBool,
    ) -> f64 {
        let visit = || -> std::io::Result<f64> {
            let mut visitor = TcpStream::connect_timeout(&address, SILENCE)?;
            visitor.set_read_timeout(Some(SILENCE))?;
            let begins = Instant::now() + warm;
            let ends = begins + time;
            let mut bytes = 0;
            let mut buffer = vec![0; 64 << 10];
            while !stop.load(Relaxed) {
                let read = visitor.read(&mut buffer);
                let now = Instant::now();
                if now >= ends {
                    break;
                }
                match read {
                    Ok(0) => break,
                    Ok(n) if now >= begins => bytes += n,
                    Ok(_) => {}
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
            }
            Ok(bytes as f64 * 8.0 / 1e6 / time.as_secs_f64())
        };
        let rate = inside(&self.right, visit).unwrap_or(0.0);
        if rate == 0.0 {
            thread::sleep(TICK);
        }
        rate
    }
}

/// A service that sends without end.
fn source() -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else {
                return;
            };
            thread::spawn(move || {
                let bytes = vec![7; 64 << 10];
                while stream.write_all(&bytes).is_ok() {}
            });
        }
    });
    Ok(address)
}

const TICK: Duration = Duration::from_millis(5);
/// Of a download: its start does not count.
const WARM: Duration = Duration::from_secs(2);
/// A visitor that gets nothing for so long gives up.
const SILENCE: Duration = Duration::from_secs(2);
/// Longer than links stay on a way before another one is tried, and that must be worth it.
const STAYS: Duration = Duration::from_secs(17);
const PATIENCE: Duration = Duration::from_secs(75);

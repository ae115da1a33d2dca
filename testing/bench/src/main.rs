//! The command line of the benches; see the library for how they measure.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bench::peers::Subject;
use bench::run::{Setting, bulk, floors, idle, keystroke, proxy, quic, relay};
use bench::{floor, http3, origin, tools::Tools};
use clap::{Args, Parser, Subcommand, ValueEnum};

/// Measures gt beside rathole and frp on this machine; writes a Markdown table and prints it.
#[derive(Parser)]
#[command(name = "bench", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Small requests: CPU per request, requests/s, latency, memory.
    Relay {
        #[arg(long, default_value_t = 7)]
        rounds: u32,
        #[arg(long, default_value_t = 4)]
        seconds: u32,
        #[arg(long, default_value_t = 100)]
        connections: u32,
        /// Pin both relay processes to core 0 and origin and load to core 1 (default: only the origin is pinned).
        #[arg(long)]
        pin: bool,
        #[command(flatten)]
        shared: Shared,
    },
    /// 1 GiB download: CPU per GiB, MB/s.
    Bulk {
        #[arg(long, default_value_t = 5)]
        rounds: u32,
        /// Pin both relay processes to core 0.
        #[arg(long)]
        pin: bool,
        #[command(flatten)]
        shared: Shared,
    },
    /// Many idle visitors: memory for each.
    Idle {
        #[arg(long, default_value_t = 10_000)]
        visitors: u32,
        /// Seconds between the last visitor and the measuring.
        #[arg(long, default_value_t = 5)]
        settle: u64,
        #[command(flatten)]
        shared: Shared,
    },
    /// Echo times of single bytes, alone and beside a download on one link.
    Keystroke {
        #[arg(long, default_value_t = 3)]
        rounds: u32,
        /// Seconds of each part.
        #[arg(long, default_value_t = 10)]
        seconds: u64,
        #[command(flatten)]
        shared: Shared,
    },
    /// Reverse proxies: CPU per request, requests/s, latency, memory.
    Proxy {
        /// Tables, separated by commas (default: all).
        #[arg(long, value_delimiter = ',')]
        case: Vec<proxy::Case>,
        /// Proxies, separated by commas (default: all).
        #[arg(long, value_delimiter = ',')]
        proxy: Vec<proxy::Subject>,
        /// Another build of gt, measured beside this one.
        #[arg(long)]
        before: Option<PathBuf>,
        /// Idle visitors.
        #[arg(long, default_value_t = 9000)]
        visitors: u32,
        #[arg(long, default_value_t = 7)]
        rounds: u32,
        #[arg(long, default_value_t = 4)]
        seconds: u32,
        #[arg(long, default_value_t = 100)]
        connections: u32,
        #[command(flatten)]
        shared: Shared,
    },
    /// What io_uring would bring to a proxy: the floor by epoll and by io_uring, with one switch at a time turned.
    Floors {
        /// Tables, separated by commas.
        #[arg(long, value_delimiter = ',', default_value = "small")]
        case: Vec<proxy::Case>,
        /// Names of floors, or parts of them, separated by commas (default: all).
        #[arg(long, value_delimiter = ',')]
        floor: Vec<String>,
        #[arg(long, default_value_t = 15)]
        rounds: u32,
        #[arg(long, default_value_t = 2)]
        seconds: u32,
        #[arg(long, default_value_t = 100)]
        connections: u32,
        /// Epoll's floor and the other at the same time: for a busy machine.
        #[arg(long)]
        together: bool,
        #[command(flatten)]
        shared: Shared,
    },
    /// HTTP/3 beside quic-go: requests, connections and bytes per CPU-second of the server.
    Quic {
        /// Tables, separated by commas (default: all).
        #[arg(long, value_delimiter = ',')]
        case: Vec<quic::Case>,
        #[arg(long, default_value_t = 7)]
        rounds: u32,
        #[arg(long, default_value_t = 4)]
        seconds: u64,
        #[command(flatten)]
        shared: Shared,
    },
    /// The HTTP/3 server on crate `quic`, started by the bench itself.
    #[command(hide = true)]
    Http3Server {
        address: SocketAddr,
        certificate: PathBuf,
        key: PathBuf,
    },
    /// The load for HTTP/3 servers, started by the bench itself.
    #[command(hide = true)]
    Http3Load(http3::Options),
    /// The echo origin, started by the bench itself.
    #[command(hide = true)]
    Echo { port: u16 },
    /// The least a proxy can do, started by the bench itself.
    #[command(hide = true)]
    Floor {
        at: SocketAddr,
        origin: SocketAddr,
        /// How bytes are relayed.
        #[arg(long, value_enum, default_value_t = floor::Driver::Epoll)]
        driver: floor::Driver,
        #[command(flatten)]
        tricks: floor::Tricks,
    },
}

#[derive(Args)]
struct Shared {
    /// Only these relays, separated by commas.
    #[arg(long, value_delimiter = ',')]
    only: Vec<Subject>,
    /// The gt binary (default: a release build in the target directory).
    #[arg(long)]
    gt: Option<PathBuf>,
    /// Directory with bin/rathole and bin/frp-run (default: peers in the target directory).
    #[arg(long)]
    peers: Option<PathBuf>,
    /// Where reports are written.
    #[arg(long, default_value = "bench/results")]
    out: PathBuf,
}

impl From<Shared> for Setting {
    fn from(shared: Shared) -> Self {
        Self {
            tools: Tools::new(shared.peers, shared.gt),
            out: shared.out,
            only: shared.only,
        }
    }
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Relay {
            rounds,
            seconds,
            connections,
            pin,
            shared,
        } => relay::run(
            &shared.into(),
            &relay::Options {
                rounds,
                seconds,
                connections,
                pin,
            },
        ),
        Command::Bulk {
            rounds,
            pin,
            shared,
        } => bulk::run(&shared.into(), &bulk::Options { rounds, pin }),
        Command::Idle {
            visitors,
            settle,
            shared,
        } => idle::run(
            &shared.into(),
            &idle::Options {
                visitors,
                settle: Duration::from_secs(settle),
            },
        ),
        Command::Keystroke {
            rounds,
            seconds,
            shared,
        } => keystroke::run(
            &shared.into(),
            &keystroke::Options {
                rounds,
                length: Duration::from_secs(seconds),
            },
        ),
        Command::Proxy {
            case,
            proxy: proxies,
            before,
            visitors,
            rounds,
            seconds,
            connections,
            shared,
        } => proxy::run(
            &shared.into(),
            &proxy::Options {
                cases: if case.is_empty() {
                    proxy::Case::value_variants().to_vec()
                } else {
                    case
                },
                visitors,
                proxies,
                before,
                rounds,
                seconds,
                connections,
            },
        ),
        Command::Floors {
            case,
            floor,
            rounds,
            seconds,
            connections,
            together,
            shared,
        } => floors::run(
            &shared.into(),
            &floors::Options {
                cases: case,
                floors: floor,
                rounds,
                seconds,
                connections,
                together,
            },
        ),
        Command::Quic {
            case,
            rounds,
            seconds,
            shared,
        } => quic::run(
            &shared.into(),
            &quic::Options {
                cases: if case.is_empty() {
                    quic::Case::value_variants().to_vec()
                } else {
                    case
                },
                rounds,
                seconds,
            },
        ),
        Command::Http3Server {
            address,
            certificate,
            key,
        } => http3::serve(address, &certificate, &key),
        Command::Http3Load(options) => http3::run(&options),
        Command::Echo { port } => origin::serve_echo(port),
        Command::Floor {
            at,
            origin,
            driver,
            tricks,
        } => floor::serve(at, origin, driver, &tricks),
    }
}

//! Measures KCP beside kcp-go, kernel TCP and QUIC on impaired paths, and prints Markdown tables.
//!
//! Each measurement has a bridge of its own (crate `netem`): a sender in the left namespace, a receiver in the right one, all
//! traffic through the same path. `lab` starts the ends as processes of this program (or of the Go one) and reads what they
//! print; `ends` are those processes; `tables` are the questions. Needs root.

mod ends;
mod lab;
mod subject;
mod tables;

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, Parser, Subcommand};

use crate::subject::Subject;

/// Measures KCP beside kcp-go, TCP and QUIC on impaired paths; needs root.
#[derive(Parser)]
#[command(name = "kcp-path", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Bulk data over 100 Mbit/s, round trip 100 ms, a queue of one BDP, at several losses.
    Goodput {
        /// Losses towards the receiver in percent; acknowledgements are not lost.
        #[arg(long, value_delimiter = ',', default_values_t = [1, 5, 10])]
        loss: Vec<u32>,
        /// Seconds measured, after 3 s of start.
        #[arg(long, default_value_t = 5)]
        seconds: u64,
        /// How often each is measured, with another seed each time; medians are shown.
        #[arg(long, default_value_t = 3)]
        rounds: u32,
        #[command(flatten)]
        shared: Shared,
    },
    /// 64 bytes every 20 ms at 10 % loss both ways: the time until they can be read.
    Latency {
        /// Messages per subject and round.
        #[arg(long, default_value_t = 500)]
        count: u32,
        /// How often each is measured, with another seed each time; medians are shown.
        #[arg(long, default_value_t = 3)]
        rounds: u32,
        #[command(flatten)]
        shared: Shared,
    },
    /// Beside one CUBIC flow in the same queue: who gets how much.
    Fairness {
        /// Seconds measured, from 3 s after the second flow's first byte on.
        #[arg(long, default_value_t = 15)]
        seconds: u64,
        #[command(flatten)]
        shared: Shared,
    },
    /// One end, started by the others.
    #[command(hide = true)]
    Receive {
        subject: Subject,
        address: SocketAddr,
        warm: u64,
        seconds: u64,
    },
    /// One end, started by the others.
    #[command(hide = true)]
    Send {
        subject: Subject,
        address: SocketAddr,
        seconds: u64,
    },
    /// One end, started by the others.
    #[command(hide = true)]
    Listen {
        subject: Subject,
        address: SocketAddr,
        count: usize,
    },
    /// One end, started by the others.
    #[command(hide = true)]
    Talk {
        subject: Subject,
        address: SocketAddr,
    },
}

/// What all measurements take.
#[derive(Args)]
struct Shared {
    /// The Go program (testing/interop/kcp/path).
    #[arg(long)]
    kcp_go: PathBuf,
    /// Segments of KCP's windows at both ends; 1024 hold a little more than the path without its queue.
    #[arg(long, default_value_t = 1024)]
    window: u32,
    /// Only these.
    #[arg(long, value_delimiter = ',')]
    only: Vec<Subject>,
    /// The path's seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Goodput {
            loss,
            seconds,
            rounds,
            shared,
        } => tables::goodput(&shared, &loss, seconds, rounds),
        Command::Latency {
            count,
            rounds,
            shared,
        } => tables::latency(&shared, count, rounds),
        Command::Fairness { seconds, shared } => tables::fairness(&shared, seconds),
        Command::Receive {
            subject,
            address,
            warm,
            seconds,
        } => ends::run(ends::receive(subject, address, warm, seconds)),
        Command::Send {
            subject,
            address,
            seconds,
        } => ends::run(ends::send(subject, address, seconds)),
        Command::Listen {
            subject,
            address,
            count,
        } => ends::run(ends::listen(subject, address, count)),
        Command::Talk { subject, address } => ends::run(ends::talk(subject, address)),
    }
}

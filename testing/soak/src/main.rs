//! The command line of the soak; see the library for what it does.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use bench::tools::{Tools, require};
use clap::Parser;
use soak::run::{Options, run};

/// Loads a gt server and three clients (tcp, tls, ws links) with seeded visitors while links, services and clients are killed.
#[derive(Parser)]
#[command(name = "soak", version)]
struct Cli {
    /// Time under load.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Seed of all visits and kills (default: from the clock).
    #[arg(long)]
    seed: Option<u64>,
    /// Visitors at a time.
    #[arg(long, default_value_t = 16)]
    visitors: u64,
    /// Longest time of one visit, in seconds.
    #[arg(long, default_value_t = 30)]
    limit: u64,
    /// The gt binary (default: a release build in the target directory).
    #[arg(long)]
    gt: Option<PathBuf>,
}

fn main() -> anyhow::Result<ExitCode> {
    let cli = Cli::parse();
    require(&["openssl"])?;
    let gt = Tools::new(None, cli.gt).gt()?;
    bench::origin::raise_descriptor_limit();
    let from_clock = || {
        SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(1, |now| now.as_secs())
    };
    let seed = cli.seed.unwrap_or_else(from_clock);
    let replay = format!(
        "soak --seconds {} --seed {seed} --visitors {} --limit {}",
        cli.seconds, cli.visitors, cli.limit
    );
    println!("replay: {replay}");

    let time = Duration::from_secs(cli.seconds);
    let outcome = run(&Options {
        gt,
        time,
        seed,
        visitors: cli.visitors,
        limit: Duration::from_secs(cli.limit),
    });
    let sums = outcome.inspect_err(|_| println!("replay: {replay}"))?;
    println!(
        "{} visits right, {} broken off by a kill, {} failures",
        sums.right,
        sums.excused,
        sums.failures.len()
    );
    for failure in &sums.failures {
        println!("FAILED {failure}");
    }
    println!("replay: {replay}");
    Ok(if sums.failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

//! The command line of the soak; see the library for what it does.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use bench::tools::{Tools, require};
use clap::Parser;
use soak::{
    relay::Links,
    reload,
    run::{Options, run},
};

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
    /// Let clients choose among QUIC, KCP and TLS, change their addresses and block UDP instead of killing anything: nothing may be lost then.
    #[arg(long, conflicts_with_all = ["reloads", "beside"])]
    paths: bool,
    /// Reload a supervised server, its clients and a reverse proxy so many times instead of killing anything: nothing may be lost then.
    #[arg(long)]
    reloads: Option<u64>,
    /// Reloads per second.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=100))]
    rate: u64,
    /// With reloads: bytes of the transfers that take as long as they do, down and up, through the proxy and over a TCP link; a sixteenth over other links.
    #[arg(long, default_value_t = 1 << 30)]
    long: u64,
    /// With reloads: keep the logs of all processes in this folder.
    #[arg(long)]
    logs: Option<PathBuf>,
    /// Reload gt's proxy, nginx and HAProxy under the same load for SECONDS each, and write a table into this folder.
    #[arg(long)]
    beside: Option<PathBuf>,
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
    let every = Duration::from_secs(1) / u32::try_from(cli.rate).unwrap_or(1);
    if let Some(out) = cli.beside {
        let good = reload::beside::run(&reload::beside::Options {
            gt,
            seconds: cli.seconds,
            every,
            seed,
            out,
        })?;
        return Ok(code(good));
    }
    if let Some(reloads) = cli.reloads {
        return reloading(&reload::Options {
            gt,
            reloads,
            every,
            seed,
            visitors: cli.visitors,
            limit: Duration::from_secs(cli.limit),
            long: cli.long,
            logs: cli.logs,
        });
    }
    let replay = format!(
        "soak --seconds {} --seed {seed} --visitors {} --limit {}{}",
        cli.seconds,
        cli.visitors,
        cli.limit,
        if cli.paths { " --paths" } else { "" }
    );
    println!("replay: {replay}");

    let time = Duration::from_secs(cli.seconds);
    let outcome = run(&Options {
        gt,
        time,
        seed,
        visitors: cli.visitors,
        limit: Duration::from_secs(cli.limit),
        links: if cli.paths {
            Links::Auto
        } else {
            Links::OneEach
        },
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
    Ok(code(sums.failures.is_empty()))
}

fn reloading(options: &reload::Options) -> anyhow::Result<ExitCode> {
    let replay = format!(
        "soak --reloads {} --rate {:.0} --seed {} --visitors {} --limit {} --long {}",
        options.reloads,
        1.0 / options.every.as_secs_f64(),
        options.seed,
        options.visitors,
        options.limit.as_secs(),
        options.long
    );
    println!("replay: {replay}");
    let verdict = reload::run(options)?;
    print!("{}", verdict.counts);
    println!(
        "{} reloads (the longest took {:?}), {} workers replaced, {} changes waited; {} other visits right; {} KiB before, {} KiB after",
        options.reloads,
        verdict.longest,
        verdict.replaced,
        verdict.waited,
        verdict.sums.right,
        verdict.memory.0 >> 10,
        verdict.memory.1 >> 10,
    );
    for failure in verdict
        .sums
        .failures
        .iter()
        .chain(&verdict.counts.table().1)
    {
        println!("FAILED {failure}");
    }
    println!("replay: {replay}");
    Ok(code(verdict.is_good()))
}

fn code(good: bool) -> ExitCode {
    match good {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

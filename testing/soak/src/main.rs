//! The command line of the soak; see the library for what it does.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use bench::tools::{Tools, require};
use clap::Parser;
use soak::{
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
    /// Reload a supervised server so many times instead of killing anything: nothing may be lost then.
    #[arg(long)]
    reloads: Option<u64>,
    /// Reloads per second.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=100))]
    rate: u64,
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
    if let Some(reloads) = cli.reloads {
        return reloading(&reload::Options {
            gt,
            reloads,
            every: Duration::from_secs(1) / u32::try_from(cli.rate).unwrap_or(1),
            seed,
            visitors: cli.visitors,
            limit: Duration::from_secs(cli.limit),
        });
    }
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

fn reloading(options: &reload::Options) -> anyhow::Result<ExitCode> {
    let replay = format!(
        "soak --reloads {} --rate {:.0} --seed {} --visitors {} --limit {}",
        options.reloads,
        1.0 / options.every.as_secs_f64(),
        options.seed,
        options.visitors,
        options.limit.as_secs()
    );
    println!("replay: {replay}");
    let verdict = reload::run(options)?;
    println!(
        "{} reloads (the longest took {:?}), {} workers replaced, {} changes waited; {} visits right, {} failures",
        options.reloads,
        verdict.longest,
        verdict.replaced,
        verdict.waited,
        verdict.sums.right,
        verdict.sums.failures.len()
    );
    for failure in &verdict.sums.failures {
        println!("FAILED {failure}");
    }
    println!("replay: {replay}");
    Ok(if verdict.sums.failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

//! The command line: `netem udp` and `netem tun`; see the library for what they do.

mod calibrate;

use std::{
    net::{Ipv4Addr, SocketAddr},
    process::ExitStatus,
    time::{Duration, SystemTime},
};

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use netem::{
    Options, Plan, Running, Setting, TunBridge, TunOptions, UdpForwarder, UdpOptions, settings,
    units,
};
use tokio::{
    signal::unix::{SignalKind, signal},
    time::interval,
};

/// Impaired network paths in user space. Settings hold for both directions; --up and --down change one of them.
#[derive(Parser)]
#[command(name = "netem", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    path: PathArgs,
}

#[derive(Subcommand)]
enum Command {
    /// A UDP port whose datagrams go to another address and back. Up is towards that address.
    Udp {
        /// Where to listen.
        #[arg(long)]
        listen: SocketAddr,
        /// Where datagrams go.
        #[arg(long)]
        to: SocketAddr,
        /// Most clients at a time.
        #[arg(long, default_value_t = 1024)]
        clients: usize,
    },
    /// Measures how far this machine's paths are from what they are asked for; about a minute.
    Calibrate,
    /// Two network namespaces joined by TUN devices; needs root. Up is from left to right.
    Tun {
        /// The left namespace; made, and removed at the end, if it does not exist.
        #[arg(long)]
        left: Option<String>,
        /// The right namespace, likewise.
        #[arg(long)]
        right: Option<String>,
        /// The left device's address.
        #[arg(long, default_value = "10.77.0.1")]
        left_ip: Ipv4Addr,
        /// The right device's address.
        #[arg(long, default_value = "10.77.0.2")]
        right_ip: Ipv4Addr,
        /// The largest packet.
        #[arg(long, default_value_t = 1500, value_parser = clap::value_parser!(u16).range(576..=9000))]
        mtu: u16,
        /// A shell command for the right namespace, ended with the left one.
        #[arg(long)]
        serve: Option<String>,
        /// What to run in the left namespace; without it the bridge stays until Ctrl-C.
        #[arg(last = true)]
        command: Vec<String>,
    },
}

#[derive(Args)]
struct PathArgs {
    /// The bottleneck: 100mbit
    #[arg(long, global = true)]
    rate: Option<String>,
    /// What may wait before it: 100ms (at the rate), 1250kB [default: 100ms]
    #[arg(long, global = true)]
    queue: Option<String>,
    /// The time on the way, each direction: 50ms
    #[arg(long, global = true)]
    delay: Option<String>,
    /// How far the delay varies to both sides: 5ms
    #[arg(long, global = true)]
    jitter: Option<String>,
    /// Whether jitter may change the order: yes, no
    #[arg(long, global = true)]
    jitter_reorders: Option<String>,
    /// How many packets are held back: 1%
    #[arg(long, global = true)]
    reorder: Option<String>,
    /// How long they are held back [default: 5ms]
    #[arg(long, global = true)]
    reorder_by: Option<String>,
    /// How many packets arrive twice: 1%
    #[arg(long, global = true)]
    duplicate: Option<String>,
    /// How many packets are lost, each for itself: 5%
    #[arg(long, global = true)]
    loss: Option<String>,
    /// Loss in bursts, mean/average length: 5%/8
    #[arg(long, global = true)]
    burst: Option<String>,
    /// Loss by Gilbert and Elliott, to bad/to good/loss in good/loss in bad: 1%/20%/0%/100%
    #[arg(long, global = true)]
    gilbert: Option<String>,
    /// How many packets get a flipped bit: 0.1%
    #[arg(long, global = true)]
    corrupt: Option<String>,
    /// Settings of the up direction only: loss=5%,delay=20ms
    #[arg(long, global = true, value_name = "SETTINGS")]
    up: Option<String>,
    /// Settings of the down direction only
    #[arg(long, global = true, value_name = "SETTINGS")]
    down: Option<String>,
    /// Settings from a time on: 10s:loss=20% or 10s:up:loss=20%; may be repeated
    #[arg(long, global = true, value_name = "TIME:[up:|down:]SETTINGS")]
    at: Vec<String>,
    /// Replays the choices of an earlier run [default: from the clock]
    #[arg(long, global = true)]
    seed: Option<u64>,
    /// Ask the clock instead of sleeping for so long before a packet is due: 100us
    #[arg(long, global = true)]
    spin: Option<String>,
}

impl PathArgs {
    fn options(&self) -> anyhow::Result<Options> {
        let mut both = Plan::default();
        for (name, value) in [
            ("rate", &self.rate),
            ("queue", &self.queue),
            ("delay", &self.delay),
            ("jitter", &self.jitter),
            ("jitter-reorders", &self.jitter_reorders),
            ("reorder", &self.reorder),
            ("reorder-by", &self.reorder_by),
            ("duplicate", &self.duplicate),
            ("loss", &self.loss),
            ("burst", &self.burst),
            ("gilbert", &self.gilbert),
            ("corrupt", &self.corrupt),
        ] {
            if let Some(value) = value {
                both.set(&[format!("{name}={value}").parse::<Setting>()?]);
            }
        }
        let (mut up, mut down) = (both.clone(), both);
        if let Some(text) = &self.up {
            up.set(&settings(text)?);
        }
        if let Some(text) = &self.down {
            down.set(&settings(text)?);
        }
        for text in &self.at {
            later(text, &mut up, &mut down).with_context(|| format!("--at {text}"))?;
        }
        let spin = match &self.spin {
            Some(text) => units::duration(text).context("--spin")?,
            None => Duration::ZERO,
        };
        let seed = self.seed.unwrap_or_else(|| {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            now.unwrap_or_default().as_nanos() as u64
        });
        Ok(Options {
            up,
            down,
            seed,
            spin,
        })
    }
}

fn later(text: &str, up: &mut Plan, down: &mut Plan) -> anyhow::Result<()> {
    let (time, rest) = text
        .split_once(':')
        .context("write TIME:SETTINGS, as 10s:loss=20%")?;
    let time = units::duration(time)?;
    let (plans, list) = match rest.split_once(':') {
        Some(("up", list)) => (vec![up], list),
        Some(("down", list)) => (vec![down], list),
        Some((other, _)) => anyhow::bail!("{other:?} is neither up nor down"),
        None => (vec![up, down], rest),
    };
    let changes = settings(list)?;
    for plan in plans {
        plan.later
            .extend(changes.iter().map(|change| (time, change.clone())));
    }
    Ok(())
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let path = cli.path.options()?;
    if matches!(cli.command, Command::Calibrate) {
        return calibrate::run(path.spin);
    }
    eprintln!("netem: --seed {} replays this run", path.seed);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let code = runtime.block_on(run(cli.command, path))?;
    drop(runtime);
    std::process::exit(code);
}

async fn run(command: Command, path: Options) -> anyhow::Result<i32> {
    match command {
        Command::Calibrate => Ok(0),
        Command::Udp {
            listen,
            to,
            clients,
        } => {
            let options = UdpOptions {
                clients,
                ..UdpOptions::new(listen, to, path)
            };
            let forwarder = UdpForwarder::start(&options).with_context(|| listen.to_string())?;
            eprintln!("netem: {} to {to}", forwarder.local_addr());
            interrupted(&forwarder.running).await?;
            println!("{}", forwarder.running.stop()?);
            Ok(0)
        }
        Command::Tun {
            left,
            right,
            left_ip,
            right_ip,
            mtu,
            serve,
            command,
        } => {
            let mut options = TunOptions::new(path);
            options.left.address = left_ip;
            options.right.address = right_ip;
            options.mtu = mtu;
            if let Some(left) = left {
                options.left.namespace = left;
            }
            if let Some(right) = right {
                options.right.namespace = right;
            }
            bridge(&options, serve.as_deref(), &command).await
        }
    }
}

async fn bridge(
    options: &TunOptions,
    serve: Option<&str>,
    command: &[String],
) -> anyhow::Result<i32> {
    let (left, right) = (&options.left, &options.right);
    let bridge = TunBridge::start(options)?;
    eprintln!(
        "netem: {} {} to {} {}",
        left.namespace, left.address, right.namespace, right.address
    );
    let environment = |command: std::process::Command| {
        let mut command = tokio::process::Command::from(command);
        command
            .env("NETEM_LEFT", &left.namespace)
            .env("NETEM_RIGHT", &right.namespace)
            .env("NETEM_LEFT_IP", left.address.to_string())
            .env("NETEM_RIGHT_IP", right.address.to_string())
            .kill_on_drop(true);
        command
    };
    let mut server = match serve {
        Some(line) => {
            let mut shell = bridge.right("sh");
            shell.args(["-c", line]);
            Some(environment(shell).spawn().context("--serve")?)
        }
        None => None,
    };
    let mut code = 0;
    if let Some((program, arguments)) = command.split_first() {
        let mut inner = bridge.left(program);
        inner.args(arguments);
        let mut child = environment(inner).spawn().context("the command")?;
        tokio::select! {
            status = child.wait() => code = exit_code(status?),
            stopped = interrupted(&bridge.running) => {
                stopped?;
                child.kill().await?;
                code = 130;
            }
        }
    } else {
        interrupted(&bridge.running).await?;
    }
    if let Some(server) = &mut server {
        server.kill().await?;
    }
    println!("{}", bridge.running.report());
    Ok(code)
}

fn exit_code(status: ExitStatus) -> i32 {
    status.code().unwrap_or(1)
}

/// Until Ctrl-C or a termination signal, or until the loop has ended by an error.
async fn interrupted(running: &Running) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut look = interval(Duration::from_millis(200));
    loop {
        tokio::select! {
            pressed = tokio::signal::ctrl_c() => return Ok(pressed?),
            _ = terminate.recv() => return Ok(()),
            _ = look.tick() => if running.is_finished() {
                anyhow::bail!("the path has ended: its socket or device is gone");
            },
        }
    }
}

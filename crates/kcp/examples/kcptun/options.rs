//! kcptun's flags, with one or two dashes, and its JSON files. Raw arguments become checked options here.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use clap::{Args, Parser, error::ErrorKind};
use kcp::{
    Config, ConfigError, Mode, Shards,
    seal::{Cipher, Seal, derive_key},
    udp::Options,
};
use mux::smux;

/// kcptun - client
#[derive(Clone, Debug, Parser)]
#[command(name = "kcptun_client", args_override_self = true)]
pub(crate) struct ClientOptions {
    /// local listen address
    #[arg(short = 'l', long, default_value = ":12948")]
    pub(crate) localaddr: String,
    /// KCP server address
    #[arg(short = 'r', long, default_value = "vps:29900")]
    pub(crate) remoteaddr: String,
    /// number of UDP connections to the server
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) conn: u16,
    /// seconds after which a connection gets no new streams; 0: never
    #[arg(long, default_value_t = 0)]
    pub(crate) autoexpire: u64,
    /// seconds that an expired connection may still live
    #[arg(long, default_value_t = 600)]
    pub(crate) scavengettl: u64,
    #[command(flatten)]
    pub(crate) tunnel: Tunnel,
}

/// kcptun - server
#[derive(Clone, Debug, Parser)]
#[command(name = "kcptun_server", args_override_self = true)]
pub(crate) struct ServerOptions {
    /// KCP server listen address
    #[arg(short = 'l', long, default_value = ":29900")]
    pub(crate) listen: String,
    /// address of the service, or path of its unix socket
    #[arg(short = 't', long, default_value = "127.0.0.1:12948")]
    pub(crate) target: String,
    #[command(flatten)]
    pub(crate) tunnel: Tunnel,
}

/// What both ends have.
#[derive(Clone, Debug, Args)]
pub(crate) struct Tunnel {
    /// pre-shared secret between client and server
    #[arg(
        long,
        default_value = "it's a secrect",
        env = "KCPTUN_KEY",
        hide_env_values = true
    )]
    key: String,
    /// aes, aes-128, aes-128-gcm, aes-192, salsa20, blowfish, twofish, cast5, 3des, tea, xtea, xor, sm4, none, null
    #[arg(long, default_value = "aes")]
    crypt: Cipher,
    /// fast3, fast2, fast, normal, manual
    #[arg(long, default_value = "fast")]
    mode: String,
    /// UDP payload bytes of a packet
    #[arg(long, default_value_t = 1350)]
    mtu: usize,
    /// send window in packets [client: 128, server: 1024]
    #[arg(long)]
    sndwnd: Option<u32>,
    /// receive window in packets [client: 512, server: 1024]
    #[arg(long)]
    rcvwnd: Option<u32>,
    /// Reed-Solomon data shards; 0: no FEC
    #[arg(long, visible_alias = "ds", default_value_t = 10)]
    datashard: usize,
    /// Reed-Solomon parity shards; 0: no FEC
    #[arg(long, visible_alias = "ps", default_value_t = 3)]
    parityshard: usize,
    /// DSCP (6 bits)
    #[arg(long, default_value_t = 0)]
    dscp: u8,
    /// no compression
    #[arg(long)]
    pub(super) nocomp: bool,
    /// acknowledge every packet at once
    #[arg(long)]
    acknodelay: bool,
    /// mode manual: short timeouts
    #[arg(long, default_value_t = 0)]
    nodelay: u8,
    /// mode manual: milliseconds
    #[arg(long, default_value_t = 50)]
    interval: u64,
    /// mode manual: duplicate acknowledgements
    #[arg(long, default_value_t = 0)]
    resend: u32,
    /// mode manual: 1 switches congestion control off
    #[arg(long, default_value_t = 0)]
    nc: u8,
    /// socket buffer in bytes
    #[arg(long, default_value_t = 4_194_304)]
    sockbuf: usize,
    /// smux version: 1 or 2
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    smuxver: u8,
    /// bytes of all streams that may wait for their readers
    #[arg(long, default_value_t = 4_194_304)]
    smuxbuf: usize,
    /// bytes of one stream that may wait, smux 2
    #[arg(long, default_value_t = 2_097_152)]
    streambuf: u32,
    /// seconds between heartbeats
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    keepalive: u64,
    /// seconds that one direction may be still after the other has ended; 0: both end together, as in old kcptun
    #[arg(long, default_value_t = 30)]
    pub(super) closewait: u64,
    /// no messages about streams
    #[arg(long)]
    pub(super) quiet: bool,
    /// JSON file whose values override the arguments
    #[arg(short = 'c')]
    c: Option<String>,
}

impl ClientOptions {
    /// Arguments of a command line, its name first.
    pub(crate) fn from_args(args: Vec<String>) -> Result<Self, clap::Error> {
        Self::try_parse_from(expand(args)?)
    }
}

impl ServerOptions {
    /// Arguments of a command line, its name first.
    pub(crate) fn from_args(args: Vec<String>) -> Result<Self, clap::Error> {
        Self::try_parse_from(expand(args)?)
    }
}

impl Tunnel {
    /// Options of KCP; `windows` are the role's.
    pub(super) fn kcp(&self, windows: (u32, u32)) -> io::Result<Options> {
        let invalid = |error: ConfigError| io::Error::new(io::ErrorKind::InvalidInput, error);
        let fec = match (self.datashard, self.parityshard) {
            (0, _) | (_, 0) => None,
            (data, parity) => Some(Shards::new(data, parity).map_err(invalid)?),
        };
        let config = Config {
            mode: self.mode()?,
            send_window: self.sndwnd.unwrap_or(windows.0),
            recv_window: self.rcvwnd.unwrap_or(windows.1),
            mtu: self.mtu,
            ack_nodelay: self.acknodelay,
            fec,
            ..Config::default()
        };
        let key = derive_key(self.key.as_bytes());
        let seal = Seal::new(self.crypt, &key).map_err(invalid)?;
        Ok(Options {
            recv_buffer: Some(self.sockbuf),
            send_buffer: Some(self.sockbuf),
            dscp: (self.dscp > 0).then_some(self.dscp),
            max_sessions: MAX_SESSIONS,
            ..Options::new(config, Arc::new(seal))
        })
    }

    pub(super) fn smux(&self) -> smux::Config {
        let keep_alive = Duration::from_secs(self.keepalive);
        let timeout = smux::Config::default().keep_alive_timeout;
        smux::Config {
            version: match self.smuxver {
                1 => smux::Version::V1,
                _ => smux::Version::V2,
            },
            receive_buffer: self.smuxbuf,
            stream_buffer: self.streambuf,
            keep_alive,
            keep_alive_timeout: timeout.max(keep_alive.saturating_mul(3)),
            ..smux::Config::default()
        }
    }

    fn mode(&self) -> io::Result<Mode> {
        if self.mode == "manual" {
            let (nodelay, congestion) = (self.nodelay > 0, self.nc == 0);
            return Ok(Mode::new(nodelay, self.interval, self.resend, congestion));
        }
        Mode::named(&self.mode).ok_or_else(|| {
            let message = format!("there is no mode `{}`", self.mode);
            io::Error::new(io::ErrorKind::InvalidInput, message)
        })
    }
}

/// The first address of a name with a port; without a host, all of this machine's.
pub(super) async fn resolve(address: &str) -> io::Result<SocketAddr> {
    let address = match address.strip_prefix(':') {
        Some(port) => format!("0.0.0.0:{port}"),
        None => address.to_owned(),
    };
    let nothing = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let mut found = tokio::net::lookup_host(&address).await?;
    found.next().ok_or_else(nothing)
}

/// Sessions of a server; each may hold some megabytes of windows.
const MAX_SESSIONS: usize = 1024;

/// Arguments as clap wants them: two dashes before long names, and those of the JSON file behind the others, where they win.
fn expand(args: Vec<String>) -> Result<Vec<String>, clap::Error> {
    let dashes = |arg: String| match arg.strip_prefix('-') {
        Some(name) if name.len() > 1 && !name.starts_with(['-', '=']) => {
            // `-l=:1` is short, `-key=x` is long.
            let long = !name[1..].starts_with('=');
            if long { format!("-{arg}") } else { arg }
        }
        _ => arg,
    };
    let mut args: Vec<String> = args.into_iter().map(dashes).collect();
    let file = args.iter().position(|arg| arg == "-c");
    if let Some(path) = file.and_then(|at| args.get(at + 1)) {
        let from_file = json_args(path)
            .map_err(|error| clap::Error::raw(ErrorKind::Io, format!("{path}: {error}\n")))?;
        args.extend(from_file);
    }
    Ok(args)
}

fn json_args(path: &str) -> io::Result<Vec<String>> {
    let text = std::fs::read_to_string(path)?;
    let values: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&text)?;
    let as_arg = |(name, value)| match value {
        serde_json::Value::Bool(true) => Some(format!("--{name}")),
        serde_json::Value::Bool(false) | serde_json::Value::Null => None,
        serde_json::Value::String(text) => Some(format!("--{name}={text}")),
        other => Some(format!("--{name}={other}")),
    };
    Ok(values.into_iter().filter_map(as_arg).collect())
}

//! A bridge with an impaired path between two network namespaces: any IP traffic, by a TUN device in each.
//!
//! Namespaces that do not exist are made and removed again; those that exist are used and left. Packets of the left namespace to
//! the right one's addresses come out of its TUN device, pass the up path and enter the right device; the way back is the down
//! path. Devices end with the bridge. Needs root, `/dev/net/tun` and iproute2's `ip`.

use std::{
    io,
    net::Ipv4Addr,
    os::fd::{AsFd, BorrowedFd},
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use thiserror::Error;
use tun_rs::{DeviceBuilder, SyncDevice};

use crate::shell::{Direction, Ends, FIRST_TOKEN, Options, Received, Running, watch};

/// Why a bridge cannot be built; the system's fault or that of the one who started it.
#[derive(Debug, Error)]
pub enum TunError {
    /// The system does not let this process.
    #[error("{0}")]
    Unavailable(String),
    /// `ip` failed.
    #[error("{command}: {message}")]
    Ip {
        /// What was run.
        command: String,
        /// What it said.
        message: String,
    },
    /// The device or the loop could not be made.
    #[error("cannot make the TUN device: {0}")]
    Device(#[from] io::Error),
}

/// One end of a bridge.
#[derive(Clone, Debug)]
pub struct Side {
    /// The namespace, as `ip netns` names it.
    pub namespace: String,
    /// The address of its TUN device.
    pub address: Ipv4Addr,
}

/// What a bridge joins.
#[derive(Clone, Debug)]
pub struct TunOptions {
    /// One end.
    pub left: Side,
    /// The other.
    pub right: Side,
    /// The largest packet, 576 to 9000 bytes.
    pub mtu: u16,
    /// What the paths do.
    pub path: Options,
}

impl TunOptions {
    /// Namespaces named after the process and `number`, 10.77.0.1 and 10.77.0.2, an MTU of 1500.
    pub fn new(path: Options) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let mark = NUMBER.fetch_add(1, Ordering::Relaxed);
        let side = |name: &str, last| Side {
            namespace: format!("netem-{}-{mark}-{name}", std::process::id()),
            address: Ipv4Addr::new(10, 77, 0, last),
        };
        Self {
            left: side("left", 1),
            right: side("right", 2),
            mtu: 1500,
            path,
        }
    }
}

/// A bridge at work. Dropping it removes what it has made.
#[derive(Debug)]
pub struct TunBridge {
    /// Its loop. Before the namespaces: the devices go first.
    pub running: Running,
    left: Namespace,
    right: Namespace,
}

impl TunBridge {
    /// Makes namespaces and devices and starts.
    ///
    /// # Errors
    /// [`TunError`]; nothing stays behind.
    pub fn start(options: &TunOptions) -> Result<Self, TunError> {
        available().map_err(TunError::Unavailable)?;
        let left = Namespace::obtain(&options.left.namespace)?;
        let right = Namespace::obtain(&options.right.namespace)?;
        let ends = Bridge {
            left: device(
                &left,
                options.left.address,
                options.right.address,
                options.mtu,
            )?,
            right: device(
                &right,
                options.right.address,
                options.left.address,
                options.mtu,
            )?,
        };
        Ok(Self {
            running: Running::start(ends, &options.path)?,
            left,
            right,
        })
    }

    /// A command that will run in the left namespace.
    pub fn left(&self, program: &str) -> Command {
        self.left.command(program)
    }

    /// A command that will run in the right namespace.
    pub fn right(&self, program: &str) -> Command {
        self.right.command(program)
    }
}

/// Whether bridges can be built here, or why not.
pub fn available() -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("namespaces and TUN devices need root".to_owned());
    }
    if !std::path::Path::new("/dev/net/tun").exists() {
        return Err("there is no /dev/net/tun".to_owned());
    }
    match Command::new("ip").arg("-V").stdout(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        _ => Err("there is no `ip` (Debian package iproute2)".to_owned()),
    }
}

/// Packets that wait in a device until the loop reads them.
const DEVICE_QUEUE: &str = "10000";

#[derive(Debug)]
struct Namespace {
    name: String,
    ours: bool,
}

impl Namespace {
    fn obtain(name: &str) -> Result<Self, TunError> {
        let exists = std::path::Path::new("/run/netns").join(name).exists();
        if !exists {
            ip(&["netns", "add", name])?;
        }
        let namespace = Self {
            name: name.to_owned(),
            ours: !exists,
        };
        ip(&["-n", name, "link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if self.ours {
            // What cannot be removed stays visible in `ip netns`; there is nobody to tell.
            let _ = ip(&["netns", "del", &self.name]);
        }
    }
}

fn device(
    namespace: &Namespace,
    own: Ipv4Addr,
    peer: Ipv4Addr,
    mtu: u16,
) -> Result<SyncDevice, TunError> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    // At most 15 characters.
    let name = format!("nm{:x}-{number:x}", std::process::id());
    let device = DeviceBuilder::new()
        .name(name.as_str())
        .enable(false)
        .build_sync()?;
    device.set_nonblocking(true)?;
    let ns = namespace.name.as_str();
    let (own, peer, mtu) = (own.to_string(), peer.to_string(), mtu.to_string());
    ip(&["link", "set", &name, "netns", ns])?;
    // Without IPv6 addresses: their announcements would be packets nobody asked for.
    ip(&["-n", ns, "link", "set", &name, "addrgenmode", "none"])?;
    ip(&[
        "-n",
        ns,
        "link",
        "set",
        &name,
        "mtu",
        &mtu,
        "txqueuelen",
        DEVICE_QUEUE,
        "up",
    ])?;
    ip(&["-n", ns, "addr", "add", &own, "peer", &peer, "dev", &name])?;
    Ok(device)
}

fn ip(arguments: &[&str]) -> Result<(), TunError> {
    let failed = |message: String| TunError::Ip {
        command: format!("ip {}", arguments.join(" ")),
        message,
    };
    let output = Command::new("ip")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    Err(failed(message.trim().to_owned()))
}

struct Bridge {
    left: SyncDevice,
    right: SyncDevice,
}

const LEFT: u64 = FIRST_TOKEN;
const RIGHT: u64 = FIRST_TOKEN + 1;

impl Ends for Bridge {
    fn register(&self, set: BorrowedFd<'_>) -> io::Result<()> {
        watch(set, self.left.as_fd(), LEFT)?;
        watch(set, self.right.as_fd(), RIGHT)
    }

    fn receive(
        &mut self,
        token: u64,
        buffer: &mut [u8],
        _now: Duration,
        _set: BorrowedFd<'_>,
    ) -> io::Result<Received> {
        let (device, direction) = match token {
            LEFT => (&self.left, Direction::Up),
            _ => (&self.right, Direction::Down),
        };
        match device.recv(buffer) {
            Ok(length) => Ok(Received::Packet(direction, 0, length)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Received::Empty),
            // The device is gone: somebody has removed the namespace.
            Err(error) => Err(error),
        }
    }

    fn send(&mut self, direction: Direction, _tag: u64, bytes: &[u8]) -> bool {
        match direction {
            Direction::Up => self.right.send(bytes),
            Direction::Down => self.left.send(bytes),
        }
        .is_ok()
    }
}

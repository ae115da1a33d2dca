//! Tells systemd what happens (sd_notify(3)), in its own words. Without systemd nothing is done.

use std::{
    env, io,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixDatagram},
    },
    time::Duration,
};

/// The way to the service manager.
#[derive(Debug, Default)]
pub(crate) struct Notify {
    to: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

impl Notify {
    /// From the environment: `NOTIFY_SOCKET`, `WATCHDOG_USEC`, `WATCHDOG_PID`.
    #[must_use]
    pub(crate) fn from_env() -> Self {
        let to = env::var("NOTIFY_SOCKET")
            .ok()
            .and_then(|path| open(&path).ok());
        let mine = env::var("WATCHDOG_PID")
            .ok()
            .is_none_or(|pid| pid == std::process::id().to_string());
        let usec = env::var("WATCHDOG_USEC")
            .ok()
            .and_then(|text| text.parse().ok());
        let watchdog = usec
            .filter(|usec| mine && *usec > 0)
            .map(Duration::from_micros);
        Self { to, watchdog }
    }

    /// How often to say that all is well: half of what systemd allows.
    #[must_use]
    pub(crate) fn watchdog_every(&self) -> Option<Duration> {
        self.watchdog.map(|most| most / 2)
    }

    /// It serves.
    pub(crate) fn ready(&self, status: &str) {
        self.say(&format!("READY=1\nSTATUS={status}"));
    }

    /// It reads its configuration again; [`Notify::ready`] follows.
    pub(crate) fn reloading(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let usec = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1000;
        self.say(&format!("RELOADING=1\nMONOTONIC_USEC={usec}"));
    }

    /// It ends.
    pub(crate) fn stopping(&self) {
        self.say("STOPPING=1");
    }

    /// It lives.
    pub(crate) fn watchdog(&self) {
        self.say("WATCHDOG=1");
    }

    fn say(&self, text: &str) {
        if let Some((socket, to)) = &self.to {
            // Nobody can be told that the telling failed.
            let _ = socket.send_to_addr(text.as_bytes(), to);
        }
    }
}

fn open(path: &str) -> io::Result<(UnixDatagram, SocketAddr)> {
    let to = match path.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(path)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    Ok((socket, to))
}

/// What must not reach workers: they are not the service.
pub(crate) const OWN_VARIABLES: [&str; 7] = [
    crate::resume::RESUME,
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
];

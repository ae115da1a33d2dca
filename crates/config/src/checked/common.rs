//! What server and client configurations share: logging and warnings.

use std::{
    fmt,
    hash::{DefaultHasher, Hasher},
    path::PathBuf,
};

/// Where the log goes and how much of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// A file instead of standard error.
    pub file: Option<PathBuf>,
    /// The file is rotated before it grows past this many bytes; 0 = never. Default 512 MiB.
    pub max_size: u64,
    /// Rotated files kept (`FILE.1` is the newest); 0 = none, the full file is emptied. Default 7.
    pub max_count: u32,
    /// Least important level that is written; `None` = not set here (the environment or the default, info, decides).
    pub level: Option<LogLevel>,
    /// Text for people or one JSON object per line.
    pub format: LogFormat,
}

impl Default for Log {
    fn default() -> Self {
        Self {
            file: None,
            max_size: 512 << 20,
            max_count: 7,
            level: None,
            format: LogFormat::Human,
        }
    }
}

/// Levels of the log, most important first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Nothing at all.
    Off,
    /// Something failed and someone should look.
    Error,
    /// Something is odd, service goes on.
    Warn,
    /// What an operator wants to see: start, stop, clients that come and go.
    Info,
    /// One line and more per connection; may hold visitors' addresses.
    Debug,
    /// Protocol steps.
    Trace,
}

impl LogLevel {
    /// The name used in files, flags and `GT_LOG`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// How a log line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// Text for people.
    #[default]
    Human,
    /// One JSON object per line.
    Json,
}

/// Something that is not wrong but that the user should know. Printed once at start and by `gt config check`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// Where it comes from: `file:line:column`, or the flag; empty when it has no place.
    pub place: String,
    /// One sentence, without secrets.
    pub text: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.place.is_empty() {
            write!(f, "{}: ", self.place)?;
        }
        f.write_str(&self.text)
    }
}

/// Datagrams of a group, and parity that is added to them (`udpFEC`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpFec {
    /// Datagrams.
    pub data: u8,
    /// Parity.
    pub parity: u8,
}

impl UdpFec {
    /// By the option's value; `None` for `off`.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let (data, parity) = name.split_once('/')?;
        Some(Self {
            data: data.parse().ok()?,
            parity: parity.parse().ok()?,
        })
    }
}

/// How KCP links work (`kcpMode`, `kcpFEC`, `kcpMTU`). The names are those of the options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kcp {
    /// `normal`, `fast`, `fast2` or `fast3`. Default `fast2`.
    pub mode: &'static str,
    /// `auto`, `on` or `off`. Default `auto`.
    pub fec: &'static str,
    /// Largest datagram in bytes of UDP payload, 1200 to 1500. Default 1350.
    pub mtu: u16,
}

impl Default for Kcp {
    fn default() -> Self {
        Self {
            mode: "fast2",
            fec: "auto",
            mtu: 1350,
        }
    }
}

/// Stands for what files held when the configuration was read, so that a reload notices other content under the same name. Nobody gains
/// from two contents with one number: whoever can write the files is believed anyway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Content(u64);

impl Content {
    /// Of texts in this order; a file that cannot be read is an empty text.
    pub(crate) fn of<'t>(texts: impl IntoIterator<Item = &'t str>) -> Self {
        let mut hasher = DefaultHasher::new();
        for text in texts {
            hasher.write(text.as_bytes());
            // No two lists give one stream of bytes: UTF-8 has no such byte.
            hasher.write_u8(0xFF);
        }
        Self(hasher.finish())
    }
}

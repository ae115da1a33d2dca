//! What the way below a stream shows: round trip, packets, losses. From the kernel (`TCP_INFO`, tcp(7)) or from a KCP session. A reading costs a
//! system call or a lock; who wants to follow it reads it now and then. What to make of it is left to others.

use std::{io, time::Duration};

use tokio::net::TcpStream;

use crate::kcp::Monitor;

/// A reading. Counters begin with the connection and only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PathFigures {
    /// Smoothed round-trip time, once measured.
    pub rtt: Option<Duration>,
    /// Packets that this end has sent, acknowledgements too.
    pub spoken: u64,
    /// Packets that came from the peer, acknowledgements too.
    pub heard: u64,
    /// Packets with data that this end has sent, those sent again too.
    pub sent: u64,
    /// Those that did not arrive.
    pub lost: Lost,
}

/// How losses are known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lost {
    /// So many packets, as the sender believes.
    Packets(u64),
    /// A share of late, 0 to 1, as the peer reports.
    Share(f64),
}

impl Default for Lost {
    fn default() -> Self {
        Self::Packets(0)
    }
}

/// Reads `TCP_INFO`.
///
/// # Errors
/// The system's; `Unsupported` where the system has no such thing or one that is too old (before Linux 4.6).
pub(crate) fn of_tcp(tcp: &TcpStream) -> io::Result<PathFigures> {
    let mut info = [0; INFO];
    let length = tcp_info(tcp, &mut info)?;
    parse(&info[..length.min(INFO)]).ok_or_else(|| io::ErrorKind::Unsupported.into())
}

pub(crate) fn of_kcp(monitor: &Monitor) -> PathFigures {
    let stats = monitor.stats();
    PathFigures {
        rtt: monitor.rtt(),
        spoken: stats.sent,
        heard: stats.received,
        sent: stats.sent,
        lost: Lost::Share(monitor.loss()),
    }
}

/// The fields of `struct tcp_info` (linux/tcp.h) that are used here, by their place.
fn parse(info: &[u8]) -> Option<PathFigures> {
    let field = |at: usize| {
        let bytes = info.get(at..at + 4)?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?))
    };
    let rtt = field(RTT)?;
    Some(PathFigures {
        rtt: (rtt > 0).then(|| Duration::from_micros(rtt.into())),
        spoken: field(SEGS_OUT)?.into(),
        heard: field(SEGS_IN)?.into(),
        sent: field(DATA_SEGS_OUT)?.into(),
        lost: Lost::Packets(field(TOTAL_RETRANS)?.into()),
    })
}

/// Whether the system's TCP uses BBR unless asked for something else: then it does not send more slowly for each lost packet.
#[must_use]
pub fn tcp_uses_bbr() -> bool {
    let name = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control");
    name.is_ok_and(|name| name.trim_start().starts_with("bbr"))
}

#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "only getsockopt tells how a connection fares")]
fn tcp_info(tcp: &TcpStream, info: &mut [u8; INFO]) -> io::Result<usize> {
    use std::os::fd::AsRawFd;
    let mut length =
        libc::socklen_t::try_from(info.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the descriptor is open for the whole call; the kernel writes at most `length` bytes, the size of `info`, and how many it wrote
    // into `length`. Any bytes are valid ones.
    let result = unsafe {
        libc::getsockopt(
            tcp.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result == 0 {
        Ok(length as usize)
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(not(target_os = "linux"))]
fn tcp_info(_: &TcpStream, _: &mut [u8; INFO]) -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Up to and with the last field that is used.
const INFO: usize = DATA_SEGS_OUT + 4;
const RTT: usize = 68;
const TOTAL_RETRANS: usize = 100;
const SEGS_OUT: usize = 136;
const SEGS_IN: usize = 140;
const DATA_SEGS_OUT: usize = 156;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_tells_less_is_not_believed() {
        let info = [1; INFO];
        assert!(parse(&info).is_some());
        assert_eq!(parse(&info[..INFO - 1]), None);
        assert_eq!(parse(&[]), None);
    }
}

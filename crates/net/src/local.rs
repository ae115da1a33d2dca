//! Sockets whose other end is on this machine: they are not paced.
//!
//! BBR sends at the rate it has estimated, in small portions by timers. On a path that is a memory copy nothing is gained by that. A megabyte
//! through the proxy took 1.08 to 1.43 times what a bare loop takes that is paced, and 0.95 to 1.25 times without (`bench proxy --case large
//! --proxy gt,floor`, three runs of each in turn on a busy machine); small requests are not changed by it.
//! Where a system is set to BBR, connections over loopback have Reno instead, which every Linux allows every process. Connections to other
//! machines keep what the system is set to.

use std::net::IpAddr;

use socket2::SockRef;

/// Whether that end is this machine for certain.
pub(crate) fn is_local(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

/// Keeps a socket from pacing, and those accepted from it. A system that does not let us is left as it is.
#[cfg(target_os = "linux")]
pub(crate) fn unpaced(socket: SockRef<'_>) {
    if system_paces() {
        let _ = socket.set_tcp_congestion(b"reno");
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn unpaced(_: SockRef<'_>) {}

/// Looked up once: who changes it changes it for sockets that come, and starts gt again.
#[cfg(target_os = "linux")]
fn system_paces() -> bool {
    use std::{fs, sync::LazyLock};
    static PACES: LazyLock<bool> = LazyLock::new(|| {
        fs::read("/proc/sys/net/ipv4/tcp_congestion_control")
            .is_ok_and(|name| name.starts_with(b"bbr"))
    });
    *PACES
}

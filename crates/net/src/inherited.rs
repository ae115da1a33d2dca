//! Sockets that the service manager opened for this process (sd_listen_fds(3)).

use std::{env, os::fd::OwnedFd};

/// Takes the sockets that `LISTEN_FDS` announces, with their names from `LISTEN_FDNAMES`. The descriptors are not inherited by
/// children any more. A second call finds nothing.
#[must_use]
pub fn take_inherited_sockets() -> Vec<(String, OwnedFd)> {
    use std::sync::atomic::{AtomicBool, Ordering};
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let mine = env::var("LISTEN_PID").is_ok_and(|pid| pid == std::process::id().to_string());
    let count = env::var("LISTEN_FDS")
        .ok()
        .and_then(|text| text.parse::<i32>().ok());
    let Some(count) = count.filter(|count| mine && (1..=MOST).contains(count)) else {
        return Vec::new();
    };
    if TAKEN.swap(true, Ordering::SeqCst) {
        return Vec::new();
    }
    let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':');
    (FIRST..FIRST + count)
        .filter_map(|fd| {
            let name = names.next().unwrap_or_default().to_owned();
            Some((name, take(fd)?))
        })
        .collect()
}

#[allow(
    unsafe_code,
    reason = "a number in the environment is the only name of these sockets"
)]
fn take(fd: i32) -> Option<OwnedFd> {
    use std::os::fd::FromRawFd;
    // SAFETY: F_SETFD only changes the flag of a descriptor; one that is not open is an error, which is looked at.
    let open = unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } == 0;
    // SAFETY: the descriptor is open, was given to this very process (LISTEN_PID) to be taken, and is taken once (TAKEN).
    open.then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// SD_LISTEN_FDS_START.
const FIRST: i32 = 3;
const MOST: i32 = 1024;

//! How many files the process may have open.

use rustix::process::{Resource, getrlimit};

/// The soft limit of open files (`ulimit -n`), sockets included, as it is now; `u64::MAX` where there is none.
#[must_use]
pub fn open_files_limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

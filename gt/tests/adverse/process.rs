//! What a process holds, read from /proc; and limits that are set from outside.

use std::{
    fs,
    sync::{Mutex, PoisonError},
};

use e2e::{Process, wait};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

/// Open file descriptors.
pub(crate) fn descriptors(process: &Process) -> usize {
    fs::read_dir(format!("/proc/{}/fd", process.pid())).map_or(0, Iterator::count)
}

/// Waits until the process holds no more descriptors than `before`.
#[track_caller]
pub(crate) fn wait_descriptors(process: &Process, before: usize) {
    wait::until(&format!("at most {before} descriptors"), || {
        (descriptors(process) <= before).then_some(())
    });
}

/// Lets this process and `process` open as many files as may be, up to `wanted` or what they may already; returns how many of the wanted
/// that is. Never lowers a limit: another test of this process may hold that many.
pub(crate) fn raise_files(process: &Process, wanted: u64) -> u64 {
    let _alone = RAISING.lock().unwrap_or_else(PoisonError::into_inner);
    let now = getrlimit(Resource::Nofile);
    let hard = now.maximum.unwrap_or(wanted);
    let raised = |n: u64| Rlimit {
        current: Some(n.max(now.current.unwrap_or(n))),
        maximum: Some(n.max(hard)),
    };
    let pid = i32::try_from(process.pid()).ok().and_then(Pid::from_raw);
    // Only the superuser can go beyond the hard limit.
    for files in [wanted, hard.min(wanted)] {
        let own = prlimit(None, Resource::Nofile, raised(files));
        if own.is_ok() && prlimit(pid, Resource::Nofile, raised(files)).is_ok() {
            return files;
        }
    }
    now.current.unwrap_or(1024)
}

/// Two tests at one time would read the limit before and write it after one another.
static RAISING: Mutex<()> = Mutex::new(());

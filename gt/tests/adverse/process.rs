//! What a process holds, read from /proc; and limits that are set from outside.

use std::fs;

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

/// Lets this process and `process` open as many files as may be, up to `wanted`; returns how many that is.
pub(crate) fn raise_files(process: &Process, wanted: u64) -> u64 {
    let now = getrlimit(Resource::Nofile);
    let hard = now.maximum.unwrap_or(wanted);
    let raised = |n| Rlimit {
        current: Some(n),
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

//! What a process cost: processor time, resident memory, descriptors and threads, read from `/proc`.
//!
//! A [`Usage`] is a snapshot; two of them make a cost. Nanoseconds come from the scheduler's counters per thread; those of a
//! thread that ended are lost, so the process-wide tick counters check the sum and stand in for it.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// Processor time used so far by one process, user and system, all threads.
#[derive(Clone, Debug)]
pub struct Usage {
    /// `utime + stime` of the whole process, in clock ticks (10 ms on most systems).
    ticks: Duration,
    /// Time on a processor per living thread; absent where the kernel does not count it.
    threads: BTreeMap<u32, Duration>,
}

impl Usage {
    /// Reads the counters of a process.
    ///
    /// # Errors
    /// When the process is gone or `/proc` has another form.
    pub fn of(pid: u32) -> Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))
            .with_context(|| format!("process {pid} is gone"))?;
        let ticks = parse_stat(&stat)?;
        let per_second = rustix::param::clock_ticks_per_second().max(1);
        let mut threads = BTreeMap::new();
        for entry in fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
            let Some(tid) = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
            else {
                continue;
            };
            let Ok(text) = fs::read_to_string(entry.path().join("schedstat")) else {
                continue;
            };
            if let Some(nanos) = text
                .split_ascii_whitespace()
                .next()
                .and_then(|word| word.parse().ok())
            {
                threads.insert(tid, Duration::from_nanos(nanos));
            }
        }
        Ok(Self {
            ticks: Duration::from_nanos(ticks.saturating_mul(1_000_000_000 / per_second)),
            threads,
        })
    }

    /// Time used since an earlier snapshot of the same process.
    pub fn since(&self, earlier: &Self) -> Duration {
        let coarse = self.ticks.saturating_sub(earlier.ticks);
        let lost_a_thread = earlier
            .threads
            .keys()
            .any(|tid| !self.threads.contains_key(tid));
        if lost_a_thread || self.threads.is_empty() {
            return coarse;
        }
        let fine = |tid: &u32, now: &Duration| {
            now.saturating_sub(earlier.threads.get(tid).copied().unwrap_or_default())
        };
        let fine: Duration = self.threads.iter().map(|(tid, now)| fine(tid, now)).sum();
        // A thread that came and went between the snapshots is in the ticks only.
        if coarse > fine + fine / 50 + 2 * TICK {
            coarse
        } else {
            fine
        }
    }
}

/// Resident memory in bytes (`VmRSS`).
///
/// # Errors
/// When the process is gone.
pub fn resident(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))
        .with_context(|| format!("process {pid} is gone"))?;
    parse_resident(&status).with_context(|| format!("no VmRSS for process {pid}"))
}

/// Number of open descriptors.
///
/// # Errors
/// When the process is gone.
pub fn descriptors(pid: u32) -> Result<usize> {
    Ok(fs::read_dir(format!("/proc/{pid}/fd"))
        .with_context(|| format!("process {pid} is gone"))?
        .count())
}

/// A process and all that descend from it: a supervisor's workers count with it.
pub fn family(pid: u32) -> Vec<u32> {
    let mut found = vec![pid];
    let mut next = 0;
    while next < found.len() {
        let Ok(tasks) = fs::read_dir(format!("/proc/{}/task", found[next])) else {
            next += 1;
            continue;
        };
        for task in tasks.flatten() {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            found.extend(
                children
                    .split_ascii_whitespace()
                    .filter_map(|word| word.parse::<u32>().ok()),
            );
        }
        next += 1;
    }
    found
}

fn parse_stat(stat: &str) -> Result<u64> {
    // The command name may hold spaces and parentheses: fields are counted after the last one (proc(5), fields 14 and 15).
    let Some((_, rest)) = stat.rsplit_once(')') else {
        bail!("stat has no command name")
    };
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next().context("stat has no utime")?.parse()?;
    let system: u64 = fields.next().context("stat has no stime")?.parse()?;
    Ok(user + system)
}

fn parse_resident(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

const TICK: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_name_with_parentheses_does_not_shift_the_fields() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 100 0 0 0 25 17 0 0 20 0 1 0 5 0 0";
        assert_eq!(parse_stat(stat).unwrap(), 42);
    }

    #[test]
    fn resident_memory_is_read_in_bytes() {
        assert_eq!(
            parse_resident("Name:\tx\nVmRSS:\t    12 kB\n"),
            Some(12 * 1024)
        );
        assert_eq!(parse_resident("Name:\tx\n"), None);
    }

    #[test]
    fn work_done_shows_as_time_used() {
        let pid = std::process::id();
        let before = Usage::of(pid).unwrap();
        let start = std::time::Instant::now();
        let mut sum = 0u64;
        while start.elapsed() < Duration::from_millis(60) {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(7));
        }
        let used = Usage::of(pid).unwrap().since(&before);
        assert!(used > Duration::from_millis(5), "{used:?}");
    }

    #[test]
    fn a_thread_that_ended_falls_back_to_the_ticks() {
        let usage = |ticks: u64, threads: &[(u32, u64)]| Usage {
            ticks: Duration::from_millis(ticks),
            threads: threads
                .iter()
                .map(|&(tid, ms)| (tid, Duration::from_millis(ms)))
                .collect(),
        };
        let earlier = usage(100, &[(1, 60), (2, 40)]);
        assert_eq!(
            usage(200, &[(1, 61)]).since(&earlier),
            Duration::from_millis(100)
        );
        assert_eq!(
            usage(200, &[(1, 100), (2, 95), (3, 1)]).since(&earlier),
            Duration::from_millis(96)
        );
        assert_eq!(
            usage(300, &[(1, 100), (2, 95)]).since(&earlier),
            Duration::from_millis(200)
        );
    }

    #[test]
    fn a_child_belongs_to_the_family() {
        let mut child = std::process::Command::new("sleep")
            .arg("30")
            .spawn()
            .unwrap();
        assert!(family(std::process::id()).contains(&child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

//! What io_uring offers to a relay, each to be had or not, so that what each brings can be measured.

use std::str::FromStr;

use clap::{Args, ValueEnum};

/// How bytes are relayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Driver {
    /// Edge-triggered epoll, receives and sends.
    Epoll,
    /// All by io_uring.
    IoUring,
    /// Epoll and receives; sends are queued in an io_uring and go out at the end of the turn.
    Hybrid,
    /// Epoll and receives; sends wait for the end of the turn and go out one by one.
    Late,
}

/// When completions that the network brings are worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TaskRun {
    /// `SINGLE_ISSUER`, `DEFER_TASKRUN`: when the thread waits.
    Defer,
    /// `SINGLE_ISSUER`, `COOP_TASKRUN`: when the thread enters the kernel for anything.
    Coop,
    /// At once, the thread being interrupted.
    Interrupt,
}

/// How bytes are received; the kernel picks the buffer each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Receive {
    /// One request for all that comes.
    Multishot,
    /// One request for each receive, which tries first and then waits.
    Single,
    /// One request for each receive, which waits first (`RECVSEND_POLL_FIRST`).
    PollFirst,
}

/// The switches.
#[derive(Clone, Debug, Args)]
pub struct Tricks {
    /// When completions are worked on.
    #[arg(long, value_enum, default_value_t = TaskRun::Defer)]
    pub task_run: TaskRun,
    /// How bytes are received.
    #[arg(long, value_enum, default_value_t = Receive::Multishot)]
    pub receive: Receive,
    /// One completion for several buffers of a multishot receive (`RECVSEND_BUNDLE`).
    #[arg(long)]
    pub bundle: bool,
    /// Sockets live in the ring's table: accepted into it, made and connected in it.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    pub direct: bool,
    /// The ring's own descriptor is registered.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    pub ring_fd: bool,
    /// No array of indices before the submission queue (`NO_SQARRAY`).
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    pub no_sqarray: bool,
    /// Sends that are done at once make no completion (`CQE_SKIP_SUCCESS`, with `MSG_WAITALL` and `MSG_DONTWAIT`).
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    pub skip_success: bool,
    /// `N/M`: waits for N completions, but, once M microseconds are over, for one only.
    #[arg(long, value_parser = min_wait)]
    pub min_wait: Option<(usize, u32)>,
    /// Bytes of a receive buffer, at least 1024 [default: 4096 by io_uring, 32768 by the others].
    #[arg(long)]
    pub buffer: Option<usize>,
    /// Receive buffers, at most 16384; rounded up to a power of two.
    #[arg(long, default_value_t = 4096)]
    pub buffers: u16,
}

impl Default for Tricks {
    /// As the command line's.
    fn default() -> Self {
        Self {
            task_run: TaskRun::Defer,
            receive: Receive::Multishot,
            bundle: false,
            direct: true,
            ring_fd: true,
            no_sqarray: true,
            skip_success: true,
            min_wait: None,
            buffer: None,
            buffers: 4096,
        }
    }
}

fn min_wait(text: &str) -> Result<(usize, u32), String> {
    fn number<N: FromStr>(text: &str) -> Result<N, String> {
        text.parse().map_err(|_| format!("{text}: not a number"))
    }
    let (want, micros) = text.split_once('/').ok_or("wanted: N/M")?;
    Ok((number(want)?, number(micros)?))
}

//! What supervisor and worker say to each other: one JSON value per packet, sockets beside it. Unknown fields are passed over, so that
//! a new supervisor can speak with the workers of an old one.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// TCP or UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Protocol {
    /// Listening sockets.
    Tcp,
    /// Bound sockets.
    Udp,
}

/// Names a group of sockets that is kept while workers come and go.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct SocketName {
    /// The option that names the address; empty for a port that a service opened.
    pub(crate) option: String,
    /// TCP or UDP.
    pub(crate) protocol: Protocol,
    /// The address as it was asked for; with port 0 the option tells groups apart.
    pub(crate) address: SocketAddr,
}

impl SocketName {
    /// Opened for a service, and kept for a while when nobody serves it: its client may come back.
    #[must_use]
    pub(crate) fn is_of_service(&self) -> bool {
        self.option.is_empty()
    }
}

/// From the supervisor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum ToWorker {
    /// The first message: who the worker is.
    Hello {
        /// Counts the workers of one configuration, from 1.
        generation: u32,
        /// There was one before it, whose visitors and peers are on their way.
        takes_over: bool,
        /// What the one before left for it.
        handoff: Option<String>,
        /// The socket of the supervisor, to find the next one if this one dies.
        control: String,
        /// The key that goes with it.
        key: String,
        /// Which of its configurations.
        unit: String,
    },
    /// The sockets that were asked for come with it.
    Listening {
        /// Of the question.
        id: u64,
        /// Why there are none: the system's error number, and its words.
        error: Option<(i32, String)>,
        /// More of them follow.
        more: bool,
    },
    /// Begin to accept.
    Go {
        /// What the one before left when it stopped.
        handoff: Option<String>,
    },
    /// Another one takes over: stop accepting, say [`ToSupervisor::Stopped`], let what runs end, and end.
    Drain {
        /// The most that this may take, in milliseconds.
        deadline_ms: u64,
    },
    /// The same without a successor.
    Stop {
        /// The most that this may take, in milliseconds.
        patience_ms: u64,
    },
    /// Read the configuration again and apply what can be applied; or only say what would be.
    Reload {
        /// Say only.
        plan: bool,
    },
    /// Open the log file again.
    ReopenLogs,
}

/// From a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum ToSupervisor {
    /// Open these sockets, or hand them over if they are open.
    Listen {
        /// Comes back in the answer.
        id: u64,
        /// Which.
        socket: SocketName,
        /// How many, if they must be opened.
        count: usize,
    },
    /// They are not needed any more.
    Release {
        /// Which.
        socket: SocketName,
    },
    /// Everything is open; waits for [`ToWorker::Go`].
    Ready {
        /// One line for people: what it is and where.
        what: String,
    },
    /// Whoever was on the way to it has come: it can be replaced again.
    Settled,
    /// It accepts no more.
    Stopped,
    /// What is left while it drains.
    Busy {
        /// Visits and streams that run.
        visits: u64,
        /// Links to clients or servers.
        links: u64,
    },
    /// It cannot run.
    Failed {
        /// Why.
        error: String,
        /// Trying again does not help.
        for_good: bool,
    },
    /// The answer to [`ToWorker::Reload`].
    Reloaded(Outcome),
    /// What the next worker should get, if this one has to be replaced.
    Handoff {
        /// Means something to workers only.
        state: String,
    },
    /// After the death of a supervisor, to its successor: these sockets come with it.
    Kept {
        /// Which.
        socket: SocketName,
    },
}

/// What became of a new configuration in a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// All of it holds now, or would.
    InPlace {
        /// What is different; empty = nothing.
        changes: Vec<String>,
    },
    /// A new process is needed; nothing has changed.
    Replace {
        /// What is different.
        changes: Vec<String>,
        /// Those that a running process cannot take.
        reasons: Vec<String>,
    },
    /// It cannot be used; nothing has changed.
    Refused {
        /// Why.
        error: String,
    },
}

/// What one worker process runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitSpec {
    /// Names it among its siblings: a file, or what a command line asks for.
    pub name: String,
    /// The arguments of the worker, after the hidden first one.
    pub args: Vec<String>,
}

/// What the hidden check prints: what would be started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checked {
    /// One worker each.
    pub units: Vec<UnitSpec>,
    /// The version of the state that is handed over at a restart.
    pub handover: u32,
    /// Of the program.
    pub version: String,
}

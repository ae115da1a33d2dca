//! The process that keeps listening sockets open and replaces worker processes without losing a connection.
//!
//! ```text
//!  gt -s reload ─► control socket ─┐                    ┌─► worker (serves)      ─┐
//!  signals ────────────────────────┼─► supervisor ──────┼─► worker (lets its work end) ─┤ the same
//!  systemd ◄── state ──────────────┘   (one poll loop)  └─► check (reads, exits)  │ sockets
//!                                        keeps sockets ───────────────────────────┘
//! ```
//!
//! The supervisor binds addresses when a worker asks for them first and keeps them, so that connections wait in the kernel while a
//! worker is replaced. It reads no configuration, speaks no protocol of the network, and trusts no worker further than that it is gt.
//! [`run`] is the supervisor; [`Supervised`] is a worker's side; [`ask`] is what `gt -s` does.
//!
//! - `run` the loop; `hearing` what workers say and how they end; `asking` who asks; `unit` one configuration and its workers; `job` a reload or restart under way; `resume` exec of a new program
//! - `sockets` what is kept; `channel` and `message` how supervisor and workers speak
//! - `place` and `control` how a running one is found and asked; `notify` what systemd is told
//!
//! Left to others: what a worker does (`gt`, `server`, `agent`), what can change in place (they say so), what a configuration means
//! (`config`).

mod asking;
mod channel;
mod control;
mod hearing;
mod job;
mod message;
mod notify;
mod place;
mod resume;
mod run;
mod sockets;
mod unit;
mod worker;

pub use control::{Answer, Ask, AskError, ListenerStatus, Status, UnitStatus, WorkerStatus, ask};
pub use message::{Checked, Outcome, UnitSpec};
pub use place::PlaceError;
pub use resume::{HANDOVER, is_resumed};
pub use run::{Options, SupervisorError, run};
pub use worker::{Command, Hello, Supervised};

/// The first argument of a worker process; the program's own arguments follow.
pub const WORKER: &str = "@worker";
/// The first argument of a process that checks the configuration and prints [`Checked`].
pub const CHECK: &str = "@check";

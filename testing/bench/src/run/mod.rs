//! The benches: each starts its relays, takes its figures round by round, and publishes a report.

pub mod bulk;
pub mod floors;
pub mod idle;
pub mod keystroke;
pub mod proxy;
pub mod quic;
pub mod relay;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::lab::Lab;
use crate::peers::{self, Plan, Running, Subject};
use crate::tools::{Missing, Tools};
use crate::visit::{self, Answer};

/// What all benches share.
pub struct Setting {
    /// Programs.
    pub tools: Tools,
    /// Where reports go.
    pub out: PathBuf,
    /// Subjects named on the command line; empty means the bench's usual ones.
    pub only: Vec<Subject>,
}

impl Setting {
    /// The named subjects, else the usual ones.
    fn subjects(&self, usual: &[Subject]) -> Vec<Subject> {
        if self.only.is_empty() {
            usual.to_vec()
        } else {
            self.only.clone()
        }
    }
}

/// The core the origin is pinned to, and with `--pin` the load as well.
const ORIGIN_CORE: usize = 1;

/// The core both relay processes are pinned to with `--pin`.
const RELAY_CORE: usize = 0;

/// Starts a subject and waits until `probe` gets through. `None`, with one line on standard error, when its program is missing.
fn started<T>(
    subject: Subject,
    plan: &Plan<'_>,
    lab: &Lab,
    tools: &Tools,
    probe: impl Fn(&Running) -> Result<T>,
) -> Result<Option<(Running, T)>> {
    let running = match peers::start(subject, plan, lab, tools) {
        Ok(running) => running,
        Err(error) if error.is::<Missing>() => {
            eprintln!("{subject} skipped: {error}");
            return Ok(None);
        }
        Err(error) => return Err(error.context(format!("start {subject}"))),
    };
    match visit::until_ready(READY, || probe(&running)) {
        Ok(value) => Ok(Some((running, value))),
        Err(error) => Err(error.context(format!(
            "{subject} lets no visitor through\n{}",
            running.logs()
        ))),
    }
}

/// A visit that must give the origin's short answer.
fn short_answer(running: &Running) -> Result<Answer> {
    let answer = visit::get(running.doors[0], running.host, "/")?;
    ensure!(
        answer.status == 200 && answer.body == crate::origin::BODY,
        "status {}: not the origin's answer",
        answer.status
    );
    Ok(answer)
}

/// A byte through the first service and back.
fn echoed(running: &Running) -> Result<()> {
    let mut stream = visit::connect(running.doors[0], None)?;
    visit::echo_byte(&mut stream, b'r').context("echo through the relay")?;
    Ok(())
}

/// A relay that lets no visitor through by then has failed.
const READY: Duration = Duration::from_secs(15);
